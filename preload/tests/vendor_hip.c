/* The fake HIP of ffi_tests, with what programs that are not ours call too. */
#include "../../ffi_tests/fakes/fake_hip.c"
#include <dlfcn.h>

/* A child made by fork finds the tables whole. */
static void hold(void) { pthread_mutex_lock(&big), pthread_mutex_lock(&count_lock); }
static void let_go(void) { pthread_mutex_unlock(&count_lock), pthread_mutex_unlock(&big); }
__attribute__((constructor)) static void before_forks(void) { pthread_atfork(hold, let_go, let_go); }

API R hipMemRetainAllocationHandle(U *handle, U at) {
    ENTER();
    R status = INVALID;
    pthread_mutex_lock(&big);
    int m = map_at(at);
    if (m >= 0) {
        blocks[maps[m].block].refs++;
        *handle = blocks[maps[m].block].handle;
        status = OK;
    }
    pthread_mutex_unlock(&big);
    return status;
}
API R hipGetProcAddress(const char *name, void **out, int version, U flags, int *why) {
    R s = enter(__func__);
    if (s) return s;
    (void)version, (void)flags;
    void *self = dlopen("libamdhip64.so.7", RTLD_NOW | RTLD_NOLOAD);
    *out = dlsym(self, name);
    if (why) *why = *out ? 0 : 1;
    return *out ? OK : NOT_FOUND;
}
