/* Small programs about lookups. -DBEFORE: a library that stands in front of getppid, as other tools stand in front of
 * something. -DMISSING: calls the vendors' functions that happen to be there. -DCORE: uses the core. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#if defined BEFORE
pid_t getppid(void) {
    static int depth;
    pid_t (*next)(void) = (pid_t (*)(void))dlsym(RTLD_NEXT, "getppid");
    if (depth++) return -1; /* what is behind us is ourselves */
    pid_t found = next();
    depth = 0;
    return found == -1 ? -1 : 4711;
}
#elif defined MISSING
int cuMemMap(uint64_t, size_t, size_t, uint64_t, uint64_t) __attribute__((weak));
int hipMemMap(uint64_t, size_t, size_t, uint64_t, uint64_t) __attribute__((weak));
int main(void) {
    int (*map)(uint64_t, size_t, size_t, uint64_t, uint64_t) = cuMemMap ? cuMemMap : hipMemMap;
    printf("%d", map ? map(0, 0, 0, 0, 0) : -1);
    printf(" %d\n", map ? map(0, 0, 0, 0, 0) : -1);
    return 0;
}
#elif defined CORE
#include "gvmm.h"
int main(void) {
    gvmm_device *device = NULL;
    gvmm_allocation *allocation = NULL;
    uint64_t address = 0;
    gvmm_status opened = gvmm_device_open(NULL, &device), made = 0;
    if (!opened) made = gvmm_allocation_create(device, 2 << 20, &allocation, &address);
    if (opened) opened = 3;
    printf("open %d, allocate %d\n", (int)opened, (int)made);
    if (allocation) gvmm_allocation_destroy(allocation);
    if (device) gvmm_device_close(device);
    return 0;
}
#else
int main(void) {
    int parent = (int)getppid();
    printf("%d then %d\n", parent, parent == 4711 ? (int)getppid() : 0);
    printf("driver %d %d\n", dlsym(RTLD_DEFAULT, "cuMemMap") != NULL, dlsym(dlopen(NULL, RTLD_LAZY), "cuMemMap") != NULL);
    printf("why %d\n", dlerror() != NULL);
    printf("other %d\n", dlsym(RTLD_DEFAULT, "no_such_name") == NULL && dlerror() != NULL);
    printf("same %d\n", dlsym(RTLD_DEFAULT, "printf") == (void *)printf);
    return 0;
}
#endif
