/* What a library in front costs and saves on a real driver. Prints one JSON object: nanoseconds of cheap calls (the lowest
 * of some rounds), and what XLA's pattern costs: each buffer a block, a range, a map and a set-access for each device.
 *
 * cc -O2 -o overhead overhead.c -ldl        LD_PRELOAD=.../libgvmm_preload_cuda.so GVMM_PRELOAD=observe ./overhead */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef uint64_t U;
typedef struct { int32_t kind, handle_types, location, id; U meta; uint8_t rest[8]; } Prop;
typedef struct { int32_t location, id, flags; } Access;
enum { SIZE = 2 << 20, ROUNDS = 9, CALLS = 20000, BUFFERS = 200 };

#define FUNCTIONS(F) F(cuInit, (unsigned)) F(cuDeviceGetCount, (int *)) F(cuDevicePrimaryCtxRetain, (void **, int)) \
    F(cuCtxPushCurrent_v2, (void *)) F(cuDeviceCanAccessPeer, (int *, int, int)) F(cuMemCreate, (U *, size_t, const Prop *, U)) \
    F(cuMemRelease, (U)) F(cuMemAddressReserve, (U *, size_t, size_t, U, U)) F(cuMemAddressFree, (U, size_t)) \
    F(cuMemMap, (U, size_t, size_t, U, U)) F(cuMemUnmap, (U, size_t)) F(cuMemSetAccess, (U, size_t, const Access *, size_t)) \
    F(cuMemGetAccess, (U *, const int32_t *, U)) F(cuMemGetAllocationGranularity, (size_t *, const Prop *, int))
#define DECLARE(n, p) static int (*n) p;
FUNCTIONS(DECLARE)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static void check(int status, const char *what) {
    if (!status) return;
    printf("{\"error\": \"%s: %d\"}\n", what, status);
    exit(1);
}
#define CHECK(call) check(call, #call)

typedef struct { U at, block; } Buffer;
static double access_ns;
static Buffer make(int devices) {
    Buffer b = {0, 0};
    Prop p = {.kind = 1, .location = 1};
    CHECK(cuMemCreate(&b.block, SIZE, &p, 0));
    CHECK(cuMemAddressReserve(&b.at, SIZE, 0, 0, 0));
    CHECK(cuMemMap(b.at, SIZE, 0, b.block, 0));
    double from = now();
    for (int d = 0; d < devices; d++) {
        Access one = {1, d, 3};
        CHECK(cuMemSetAccess(b.at, SIZE, &one, 1));
    }
    access_ns += now() - from;
    return b;
}
static void drop(Buffer b) {
    CHECK(cuMemUnmap(b.at, SIZE));
    CHECK(cuMemRelease(b.block));
    CHECK(cuMemAddressFree(b.at, SIZE));
}
/* Microseconds a buffer: all of it, and of that set-access. `together`: all live at once. */
static void buffers(const char *name, int devices, int together) {
    static Buffer all[BUFFERS];
    drop(make(devices));
    access_ns = 0;
    double from = now();
    for (int i = 0; i < BUFFERS; i++) {
        all[i] = make(devices);
        if (!together) drop(all[i]);
    }
    for (int i = 0; together && i < BUFFERS; i++) drop(all[i]);
    printf(", \"%s_us\": %.2f, \"%s_access_us\": %.2f", name, (now() - from) / 1e3 / BUFFERS, name, access_ns / 1e3 / BUFFERS);
}

int main(void) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *context;
    if (!lib) { printf("{\"error\": \"no driver\"}\n"); return 1; }
#define FIND(n, p) *(void **)&n = dlsym(lib, #n); check(n ? 0 : 500, #n);
    FUNCTIONS(FIND)
    int devices = 0, peer = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&devices));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxPushCurrent_v2(context));
    double best[2] = {1e18, 1e18};
    Buffer b = make(1);
    Prop p = {.kind = 1, .location = 1};
    for (int round = 0; round < ROUNDS; round++) {
        int32_t location[2] = {1, 0};
        U flags;
        size_t granule;
        double from = now();
        for (int i = 0; i < CALLS; i++) cuMemGetAccess(&flags, location, b.at);
        double middle = now();
        for (int i = 0; i < CALLS; i++) cuMemGetAllocationGranularity(&granule, &p, 0);
        double to = now();
        if ((middle - from) / CALLS < best[0]) best[0] = (middle - from) / CALLS;
        if ((to - middle) / CALLS < best[1]) best[1] = (to - middle) / CALLS;
    }
    drop(b);
    printf("{\"devices\": %d, \"get_access_ns\": %.1f, \"granularity_ns\": %.1f", devices, best[0], best[1]);
    buffers("local", 1, 0);
    if (devices > 1 && !cuDeviceCanAccessPeer(&peer, 1, 0) && peer) {
        buffers("peer", 2, 0);
        buffers("peer_together", 2, 1);
    }
    printf("}\n");
    return 0;
}
