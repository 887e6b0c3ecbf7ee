/* The fake CUDA driver of ffi_tests, with what programs that are not ours call too. */
#include "../../ffi_tests/fakes/fake_cuda.c"
#include <dlfcn.h>

/* A child made by fork finds the tables whole. */
static void hold(void) { pthread_mutex_lock(&big), pthread_mutex_lock(&count_lock); }
static void let_go(void) { pthread_mutex_unlock(&count_lock), pthread_mutex_unlock(&big); }
__attribute__((constructor)) static void before_forks(void) { pthread_atfork(hold, let_go, let_go); }

API R cuMemRetainAllocationHandle(U *handle, U at) {
    ENTER();
    R status = INVALID;
    pthread_mutex_lock(&big);
    EACH(maps, i) if (maps[i].size && maps[i].at <= at && at < maps[i].at + maps[i].size) {
        blocks[maps[i].block].refs++;
        *handle = blocks[maps[i].block].handle;
        status = OK;
    }
    pthread_mutex_unlock(&big);
    return status;
}
API R cuGraphLaunch_ptsz(Graph *g, U h) { return cuGraphLaunch(g, h); }
#ifdef NEW_MAP
/* A driver of the future: the old name is there, and there is another one. */
API R cuMemMap_v2(U at, size_t size, size_t offset, U handle, U flags) { return cuMemMap(at, size, offset, handle, flags) ? 1 : 7000; }
#endif
#ifdef OTHER_ADDRESS
/* What a lookup gives need not be the exported address. */
static R inner_map(U at, size_t size, size_t offset, U handle, U flags) { return cuMemMap(at, size, offset, handle, flags); }
#endif
API R cuGetProcAddress_v2(const char *name, void **out, int version, U flags, int *why);
API R cuGetProcAddress(const char *name, void **out, int version, U flags) { return cuGetProcAddress_v2(name, out, version, flags, NULL); }
/* Flags: 1 the legacy default stream, 2 one for each thread. `why`: 0 found, 1 not there, 2 newer than the version. */
API R cuGetProcAddress_v2(const char *name, void **out, int version, U flags, int *why) {
    char full[96];
    R s = enter(__func__);
    if (s) return s;
    snprintf(full, sizeof full, "%s", name);
    if (strcmp(name, "cuGetProcAddress") == 0 && version >= 12000) strcat(full, "_v2");
    if (strcmp(name, "cuGraphLaunch") == 0 && flags == 2) strcat(full, "_ptsz");
    if (strcmp(name, "cuMemMap") == 0 && version < 10020) { *out = NULL; if (why) *why = 2; return OK; }
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *out = dlsym(self, full);
#ifdef NEW_MAP
    if (strcmp(name, "cuMemMap") == 0 && version >= 14000) *out = (void *)cuMemMap_v2;
#endif
#ifdef OTHER_ADDRESS
    if (strcmp(name, "cuMemMap") == 0) *out = (void *)inner_map;
#endif
    if (why) *why = *out ? 0 : 1;
    return *out ? OK : NOT_FOUND;
}
