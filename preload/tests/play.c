/* A program as XLA, PyTorch and NCCL are programs: it links HIP's functions with their versions (-DHIP), or opens
 * libcuda.so.1 and looks each function up. It plays the scene that its first argument names and prints what it saw; what
 * the vendor's library counted comes last. It must print the same whether a library of ours is in front or not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t U;
typedef int R;
typedef struct { int32_t kind, handle_types, location, id; U meta; uint8_t rest[8]; } Prop;
typedef struct { int32_t location, id, flags; } Access;
enum { MIB2 = 2 << 20 };

#define FUNCTIONS(F) F(MemCreate, (U *, size_t, const Prop *, U)) F(MemRelease, (U)) \
    F(MemAddressReserve, (U *, size_t, size_t, U, U)) F(MemAddressFree, (U, size_t)) \
    F(MemMap, (U, size_t, size_t, U, U)) F(MemUnmap, (U, size_t)) F(MemSetAccess, (U, size_t, const Access *, size_t)) \
    F(MemGetAccess, (U *, const int32_t *, U)) F(MemRetainAllocationHandle, (U *, U)) \
    F(MemExportToShareableHandle, (int *, U, int, U)) F(MemImportFromShareableHandle, (U *, U, int)) \
    F(MemGetAllocationGranularity, (size_t *, const Prop *, int)) F(Init, (unsigned))

#ifdef HIP
#define DECLARE(n, p) R hip##n p;
FUNCTIONS(DECLARE)
R hipSetDevice(int);
R hipMemcpy(U, U, size_t, int);
R hipGetLastError(void);
R hipGetProcAddress(const char *, void **, int, U, int *);
U fake_hip_calls(const char *), fake_hip_breaches(void), fake_hip_live(void);
const char *fake_hip_last_breach(void);
void fake_hip_fail(const char *, U, R);
#define V(n) hip##n
#define LOOKUP hipGetProcAddress
#define NAME(n) "hip" n
#define calls fake_hip_calls
#define breaches fake_hip_breaches
#define last_breach fake_hip_last_breach
#define live fake_hip_live
#define fail_next fake_hip_fail
static void open_vendor(void) {}
static const char vendors_file[] = "libamdhip64.so";
static void use_device(int d) { hipSetDevice(d); }
#else
#define DECLARE(n, p) static R (*cu##n) p;
FUNCTIONS(DECLARE)
static R (*cuGetProcAddress_v2)(const char *, void **, int, U, int *);
static U (*calls)(const char *), (*breaches)(void), (*live)(void);
static const char *(*last_breach)(void);
static void (*fail_next)(const char *, U, R);
#define V(n) cu##n
#define LOOKUP cuGetProcAddress_v2
#define NAME(n) "cu" n
static const char vendors_file[] = "libcuda.so";
static void use_device(int d) { (void)d; }
/* Who only wants to know whether there is a driver looks it up and closes it again; what comes then may lie elsewhere. */
static void look_and_close(void) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    Dl_info info;
    if (!dladdr(dlsym(lib, "cuInit"), &info) || !dlsym(lib, "cuGetProcAddress_v2") || !dlsym(lib, "cuMemMap")) abort();
    dlclose(lib);
    mmap(info.dli_fbase, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}
static void open_vendor(void) {
    if (getenv("CLOSED_BEFORE")) look_and_close();
    if (getenv("FOREIGN")) { /* some other library that has the name too, asked first */
        Dl_info info;
        void *map = dlsym(dlopen(getenv("FOREIGN"), RTLD_NOW | RTLD_LOCAL), "cuMemMap");
        printf("foreign %d\n", dladdr(map, &info) && strstr(info.dli_fname, "libother.so"));
    }
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | (getenv("CLOSED_BEFORE") ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!lib) { printf("no driver\n"); exit(0); }
#define FIND(n, p) *(void **)&cu##n = dlsym(lib, "cu" #n); if (!cu##n) abort();
    FUNCTIONS(FIND)
    *(void **)&cuGetProcAddress_v2 = dlsym(lib, "cuGetProcAddress_v2");
    *(void **)&calls = dlsym(lib, "fake_cuda_calls");
    *(void **)&breaches = dlsym(lib, "fake_cuda_breaches");
    *(void **)&last_breach = dlsym(lib, "fake_cuda_last_breach");
    *(void **)&live = dlsym(lib, "fake_cuda_live");
    *(void **)&fail_next = dlsym(lib, "fake_cuda_fail");
    if (getenv("BY_LOOKUP")) { /* as the runtime and NCCL do */
#define LOOK(n, p) if (cuGetProcAddress_v2("cu" #n, (void **)&cu##n, 13000, 0, NULL)) abort();
        FUNCTIONS(LOOK)
    }
    if (getenv("CLOSED_BEFORE")) *(void **)&cuMemMap = dlsym(RTLD_DEFAULT, "cuMemMap");
}
#endif

static U statuses = 14695981039346656037ull; /* a digest of all statuses, in their order */
static R seen(R status) { statuses = (statuses ^ (U)status) * 1099511628211ull; return status; }

typedef struct { U at, size, block; } Buffer;
static Prop prop(int device) { return (Prop){.kind = 1, .handle_types = 1, .location = 1, .id = device}; }
static R access_to(U at, U size, int device, int flags) {
    Access one = {1, device, flags};
    return seen(V(MemSetAccess)(at, size, &one, 1));
}
static Buffer make(int device, U size) {
    Buffer b = {0, size, 0};
    Prop p = prop(device);
    use_device(device);
    if (seen(V(MemCreate)(&b.block, size, &p, 0))) abort();
    if (seen(V(MemAddressReserve)(&b.at, size, 0, 0, 0))) abort();
    if (seen(V(MemMap)(b.at, size, 0, b.block, 0))) abort();
    return b;
}
static void drop(Buffer b) {
    seen(V(MemUnmap)(b.at, b.size));
    seen(V(MemRelease)(b.block));
    seen(V(MemAddressFree)(b.at, b.size));
}
static U flags_of(U at, int device) {
    int32_t location[2] = {1, device};
    U flags = 99;
    if (V(MemGetAccess)(&flags, location, at)) return 98;
    return flags;
}

/* XLA's vmm allocator: each buffer a block, a range, a map, and a set-access for each device. */
static void buffers(void) {
    for (int i = 0; i < 10; i++) {
        Buffer b = make(0, (U)(i % 3 + 1) * MIB2);
        U before = flags_of(b.at, 1);
        access_to(b.at, b.size, 0, 3);
        printf("%d: peer before its call %d, %d\n", i, (int)before, (int)flags_of(b.at, 1));
        access_to(b.at, b.size, 1, 3);
        printf("%d: after %d %d\n", i, (int)flags_of(b.at, 0), (int)flags_of(b.at, 1));
        drop(b);
    }
}
/* The peer is no longer asked for. */
static void changes_mind(void) {
    for (int i = 0; i < 8; i++) {
        Buffer b = make(0, MIB2);
        access_to(b.at, b.size, 0, 3);
        if (i < 4) access_to(b.at, b.size, 1, 3);
        printf("%d: %d %d\n", i, (int)flags_of(b.at, 0), (int)flags_of(b.at, 1));
        if (i == 2) { access_to(b.at, b.size, 1, 1); access_to(b.at, b.size, 1, 0); }
        drop(b);
    }
}
static void twice(void) {
    Buffer b = make(0, MIB2);
    access_to(b.at, b.size, 0, 3);
    printf("unmap %d\n", seen(V(MemUnmap)(b.at, b.size)));
    printf("again %d\n", V(MemUnmap)(b.at, b.size));
    seen(V(MemRelease)(b.block));
    printf("free %d\n", seen(V(MemAddressFree)(b.at, b.size)));
}
/* Blocks beside each other in one range, unmapped together, the last place never filled. */
static void joint(void) {
    U at = 0, block[3];
    Prop p = prop(0);
    use_device(0);
    seen(V(MemAddressReserve)(&at, 4 * MIB2, 0, 0, 0));
    for (int i = 0; i < 3; i++) {
        seen(V(MemCreate)(&block[i], MIB2, &p, 0));
        seen(V(MemMap)(at + (U)i * MIB2, MIB2, 0, block[i], 0));
    }
    printf("access %d\n", access_to(at, 3 * MIB2, 0, 3));
    U size = getenv("WITH_HOLE") ? 4 * MIB2 : 3 * MIB2;
    printf("unmap %d\n", V(MemUnmap)(at, size));
    for (int i = 0; i < 3; i++) seen(V(MemRelease)(block[i]));
    printf("free %d\n", V(MemAddressFree)(at, 4 * MIB2));
}
/* After what is expected of a mapping, calls over two mappings at once. */
static void wide(void) {
    U at = 0, block[2];
    Prop p = prop(0);
    for (int i = 0; i < 3; i++) {
        Buffer b = make(0, MIB2);
        for (int d = 0; d < 2; d++) access_to(b.at, MIB2, d, 3);
        drop(b);
    }
    seen(V(MemAddressReserve)(&at, 2 * MIB2, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        seen(V(MemCreate)(&block[i], MIB2, &p, 0));
        seen(V(MemMap)(at + (U)i * MIB2, MIB2, 0, block[i], 0));
    }
    for (int d = 0; d < 2; d++) access_to(at, 2 * MIB2, d, 3);
    printf("peer %d %d\n", (int)flags_of(at, 1), (int)flags_of(at + MIB2, 1));
    for (int i = 0; i < 2; i++) seen(V(MemUnmap)(at + (U)i * MIB2, MIB2));
    for (int i = 0; i < 2; i++) seen(V(MemRelease)(block[i]));
    seen(V(MemAddressFree)(at, 2 * MIB2));
}
/* Expandable segments: part after part of one range. */
static void parts(void) {
    U at = 0, block[4];
    Prop p = prop(0);
    use_device(0);
    seen(V(MemAddressReserve)(&at, 4 * MIB2, 0, 0, 0));
    for (int i = 0; i < 4; i++) {
        seen(V(MemCreate)(&block[i], MIB2, &p, 0));
        seen(V(MemMap)(at + (U)i * MIB2, MIB2, 0, block[i], 0));
        printf("access %d: %d\n", i, access_to(at + (U)i * MIB2, MIB2, 0, 3));
    }
    for (int i = 0; i < 4; i++) {
        seen(V(MemUnmap)(at + (U)i * MIB2, MIB2));
        seen(V(MemRelease)(block[i]));
    }
    printf("free %d\n", V(MemAddressFree)(at, 4 * MIB2));
}
static void release_first(void) {
    Buffer b = make(0, MIB2);
    access_to(b.at, b.size, 0, 3);
    printf("release %d\n", V(MemRelease)(b.block));
    printf("access stays %d\n", (int)flags_of(b.at, 0));
    printf("unmap %d\n", V(MemUnmap)(b.at, b.size));
    printf("free %d\n", V(MemAddressFree)(b.at, b.size));
}
/* NCCL: the handle is found by the address, and given back twice. */
static void nccl(void) {
    Buffer b = make(0, MIB2);
    U handle = 0;
    access_to(b.at, b.size, 0, 3);
    access_to(b.at, b.size, 1, 3);
    printf("retain %d same %d\n", V(MemRetainAllocationHandle)(&handle, b.at), handle == b.block);
    printf("release %d\n", V(MemRelease)(handle));
    printf("unmap %d\n", V(MemUnmap)(b.at, b.size));
    printf("release %d\n", V(MemRelease)(handle));
    printf("free %d\n", V(MemAddressFree)(b.at, b.size));
}
static void shares(void) {
    Buffer b = make(0, MIB2);
    U other = 0;
    int fd = -1;
    access_to(b.at, b.size, 0, 3);
    printf("export %d\n", V(MemExportToShareableHandle)(&fd, b.block, 1, 0));
    printf("import %d\n", V(MemImportFromShareableHandle)(&other, (U)fd, 1));
    close(fd);
    printf("release %d\n", V(MemRelease)(other));
    drop(b);
}
#ifdef HIP
/* What the device reads after a peer was granted, in one call or in two. */
static void peer_last(void) {
    int right = 1;
    for (int i = 0; i < 4; i++) {
        Buffer b = make(0, MIB2);
        int in = 4711 + i, out = 0;
        access_to(b.at, b.size, 0, 3);
        access_to(b.at, b.size, 1, 3);
        hipMemcpy(b.at, (U)&in, sizeof in, 4);
        hipMemcpy((U)&out, b.at, sizeof out, 4);
        right &= out == in;
        drop(b);
    }
    printf("read %d\n", right);
}
static void last_error(void) {
    Buffer b = make(0, MIB2);
    if (getenv("WAITS")) fail_next("hipMemUnmap", 1, 1), V(MemUnmap)(b.at, MIB2);
    fail_next("hipMemSetAccess", 1, 1);
    printf("access %d\n", access_to(b.at, b.size, 0, 3));
    printf("last error %d\n", hipGetLastError());
    drop(b);
}
#endif
static const char *file_of(void *address) {
    Dl_info info;
    return dladdr(address, &info) && info.dli_fname ? (strstr(info.dli_fname, vendors_file) ? "vendor" : "ours") : "none";
}
static void lookups(void) {
    static const char *const names[] = { NAME("MemMap"), NAME("GraphLaunch"), NAME("GetProcAddress"), NAME("Init"), "noSuchName" };
    for (int i = 0; i < 5; i++) for (int version = 10000; version <= 14000; version += 1000) for (U flags = 0; flags < 3; flags += 2) {
        void *found = NULL;
        int why = -1;
        R status = LOOKUP(names[i], &found, version, flags, &why);
        printf("%s %d %d: %d %d ", names[i], version, (int)flags, status, why);
        printf(getenv("SHOW_FILES") ? "%s\n" : "%.0s\n", file_of(found));
    }
}
/* Which file each function is of that was found by its name. */
static void by_name(void) {
#define SHOW(n, p) printf(NAME(#n) " is %s\n", file_of((void *)V(n)));
    FUNCTIONS(SHOW)
    printf("lookup is %s\n", file_of((void *)LOOKUP));
}
static void keeps_errno(void) {
    Prop p = prop(0);
    size_t granule = 0;
    for (int i = 0; i < 3; i++) {
        errno = 42;
        seen(V(MemGetAllocationGranularity)(&granule, &p, 0));
        printf("errno %d\n", errno);
    }
}
/* Addresses that nobody reserved. */
static void strangers(void) {
    printf("unmap %d\n", V(MemUnmap)((U)1 << 40, MIB2));
    printf("free %d\n", V(MemAddressFree)((U)1 << 40, MIB2));
}
/* A release that failed changed nothing: the block is still the program's when it is mapped. */
static void release_fails(void) {
    Buffer b = {0, MIB2, 0};
    Prop p = prop(0);
    use_device(0);
    seen(V(MemCreate)(&b.block, MIB2, &p, 0));
    fail_next(NAME("MemRelease"), 1, 1);
    printf("release %d\n", V(MemRelease)(b.block));
    seen(V(MemAddressReserve)(&b.at, MIB2, 0, 0, 0));
    seen(V(MemMap)(b.at, MIB2, 0, b.block, 0));
    access_to(b.at, MIB2, 0, 3);
    printf("release %d\n", V(MemRelease)(b.block));
    printf("unmap %d\n", V(MemUnmap)(b.at, b.size));
    printf("free %d\n", V(MemAddressFree)(b.at, b.size));
}
/* Each call fails once, and works when it is made again. */
static void retries(void) {
    Buffer b = {0, MIB2, 0};
    Prop p = prop(0);
    use_device(0);
#define TWICE(n, ...) fail_next(NAME(#n), 1, 1); \
    for (int i = 0; i < 2; i++) printf(#n " %d\n", seen(V(n)(__VA_ARGS__)))
    TWICE(MemCreate, &b.block, MIB2, &p, 0);
    TWICE(MemAddressReserve, &b.at, MIB2, 0, 0, 0);
    TWICE(MemMap, b.at, MIB2, 0, b.block, 0);
    access_to(b.at, MIB2, 0, 3);
    TWICE(MemUnmap, b.at, MIB2);
    TWICE(MemRelease, b.block);
    TWICE(MemAddressFree, b.at, MIB2);
}
/* Another library with the same names is not the driver that is there. */
static void second(void) {
    void *lib = dlopen(getenv("SECOND"), RTLD_NOW | RTLD_LOCAL);
    printf("second %s\n", lib ? file_of(dlsym(lib, NAME("MemMap"))) : dlerror());
}
#include "processes.h"
static void speed(void) {
    struct timespec from, to;
    Buffer b = make(0, MIB2);
    access_to(b.at, b.size, 0, 3);
    enum { TIMES = 100000 };
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < TIMES; i++) flags_of(b.at, 0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    drop(b);
    fprintf(stderr, "ns a call: %.1f\n", ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / TIMES);
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*play)(void); } scenes[] = {
        {"buffers", buffers}, {"changes_mind", changes_mind}, {"twice", twice}, {"joint", joint}, {"parts", parts},
        {"release_first", release_first}, {"nccl", nccl}, {"shares", shares}, {"lookups", lookups}, {"threads", threads},
        {"forks", forks}, {"leaves", leaves}, {"speed", speed}, {"second", second}, {"closes_all", closes_all},
        {"by_name", by_name}, {"keeps_errno", keeps_errno}, {"strangers", strangers}, {"release_fails", release_fails}, {"retries", retries}, {"wide", wide}, {"forks_busy", forks_busy},
#ifdef HIP
        {"peer_last", peer_last}, {"last_error", last_error},
#endif
    };
    static const char *const counted[] = { NAME("MemCreate"), NAME("MemRelease"), NAME("MemAddressReserve"), NAME("MemAddressFree"),
        NAME("MemMap"), NAME("MemUnmap"), NAME("MemSetAccess"), NAME("MemGetAccess"), NAME("MemRetainAllocationHandle"),
        NAME("MemExportToShareableHandle"), NAME("MemImportFromShareableHandle") };
    const char *late = getenv("LOAD_LATE");
    open_vendor();
    R status = V(Init)(0);
    if (status) { printf("init %d, map %d\n", status, V(MemMap)(0, 0, 0, 0, 0)); return 0; }
    if (late && !dlopen(late, RTLD_NOW)) puts(dlerror());
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) if (argc > 1 && strcmp(argv[1], scenes[i].name) == 0) scenes[i].play();
    printf("statuses %016llx\n", (unsigned long long)statuses);
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) printf("vendor %s %d\n", counted[i], (int)calls(counted[i]));
    printf("breaches %d %s\n", (int)breaches(), breaches() ? last_breach() : "");
    printf("live %d\n", (int)live());
    (void)fail_next;
    return 0;
}
