/* HIP's functions on top of NVIDIA's driver: test material, and no HIP. It lets the HIP driver of this library run
 * against a real GPU's memory where the GPU is NVIDIA's, or against the fake CUDA library. What it shows is that our
 * code makes the right calls in the right order; it shows nothing about AMD's runtime and its faults.
 *
 * cc -shared -fPIC -O1 -g -pthread -DPTX='"PATH/copy_old.ptx"' -o libhip_on_cuda.so hip_on_cuda.c -ldl
 *
 * The compiler (hiprtc) compiles nothing: it gives the text that the same kernel was compiled to for NVIDIA.
 * Device numbers, error numbers, access flags and the structs of virtual memory are the same in both; the numbers of
 * attributes differ. The last error of a thread is kept as HIP does. Streams are looked up, mappings and descriptors
 * tell their size, as AMD's do.
 *
 * Settings, by hip_on_cuda_set before hipInit: version (70253211), rtc (1; 0: the compiler fails), library (a path;
 * else $GVMM_CUDA_LIBRARY, else libcuda.so.1). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int32_t R;
typedef uint64_t U;
#define API __attribute__((visibility("default")))
enum { OK, INVALID = 1, OOM = 2, NOT_INIT = 3, NO_DEVICE = 100, BAD_DEVICE = 101, NOT_FOUND = 500, DESTROYED = 709,
       NOT_SUPPORTED = 801 };
enum { MAX = 16, LIST = 8192, LAST_SPECIAL_STREAM = 2 };

static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER; /* all tables below; no call is made while it is held */
static U version = 70253211, rtc = 1;
static const char *path;
static void *library;
static int devices;
static U contexts[MAX];
static __thread int current, pushed;
static __thread R kept;

static R missing(void) { return NOT_FOUND; }
static void *find(const char *name) {
    void *found = library ? dlsym(library, name) : NULL;
    return found ? found : (void *)missing;
}
/* A call of the driver's. Words that a function does not take are ignored by the C convention of 64-bit machines. */
#define CU(name, ...) ((R (*)())find(#name))(__VA_ARGS__)
static R done(R status) { if (status) kept = status; return status; }

/* Makes the primary context of the thread's device current. */
static R here(void) {
    if (!library) return NOT_INIT;
    U now = 0;
    R status = OK;
    if (!__atomic_load_n(&contexts[current], __ATOMIC_ACQUIRE)) {
        U made = 0, none = 0;
        if ((status = CU(cuDevicePrimaryCtxRetain, &made, current))) return status;
        __atomic_compare_exchange_n(&contexts[current], &none, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    if ((status = CU(cuCtxGetCurrent, &now)) || now == contexts[current]) return status;
    if (pushed) CU(cuCtxPopCurrent_v2, &now);
    pushed = !(status = CU(cuCtxPushCurrent_v2, contexts[current]));
    return status;
}
#define HERE() do { R s_ = here(); if (s_) return done(s_); } while (0)

/* Pieces of device memory, streams, and descriptors that stand for the driver's. */
typedef struct { U at, size; int mapped; } Piece;
static Piece pieces[LIST];
static struct { U handle; int device; } streams[LIST];
static struct { ino_t file; dev_t on; int real; } exported[LIST];
static struct { U handle, size, refs; } blocks[LIST];
#define EACH(i) for (int i = 0; i < LIST; i++)
#define LOCKED(...) do { pthread_mutex_lock(&big); __VA_ARGS__; pthread_mutex_unlock(&big); } while (0)

static void add_piece(U at, U size, int mapped) {
    LOCKED(EACH(i) if (!pieces[i].size) { pieces[i] = (Piece){at, size, mapped}; break; });
}
static void drop_pieces(U at, U size, int mapped) {
    LOCKED(EACH(i) if (pieces[i].size && pieces[i].mapped == mapped && at <= pieces[i].at && pieces[i].at < at + size) pieces[i].size = 0);
}
static Piece piece_at(U at) {
    Piece found = {0};
    LOCKED(EACH(i) if (pieces[i].size && pieces[i].at <= at && at < pieces[i].at + pieces[i].size) found = pieces[i]);
    return found;
}
/* A block that was made or imported; the driver may give one's handle again, also while it lives. The driver looks
 * behind a handle without checking it, so that only those in the table are shown to it. */
static void add_block(U handle, U size) {
    int at = -1;
    LOCKED(EACH(i) if (blocks[i].refs && blocks[i].handle == handle) at = i;
           EACH(i) if (at < 0 && !blocks[i].refs) { blocks[at = i].handle = handle; blocks[i].size = size; }
           if (at >= 0) blocks[at].refs++);
}
static int has_block(U handle, U *size) {
    int found = 0;
    LOCKED(EACH(i) if (blocks[i].refs && blocks[i].handle == handle) { found = 1; if (size) *size = blocks[i].size; });
    return found;
}
static int device_of(U stream) {
    int found = stream <= LAST_SPECIAL_STREAM ? current : -1;
    LOCKED(EACH(i) if (found < 0 && streams[i].handle == stream) found = streams[i].device);
    return found;
}
#define STREAM(h) do { if (device_of(h) < 0) return done(DESTROYED); HERE(); } while (0)

/* The runtime and its devices. */
API R hipRuntimeGetVersion(int *v) { *v = version; return OK; }
API R hipInit(unsigned flags) {
    if (flags) return done(INVALID);
    if (!path) path = getenv("GVMM_CUDA_LIBRARY");
    if (!library) library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return done(NO_DEVICE);
    R status = CU(cuInit, 0);
    if (!status) status = CU(cuDeviceGetCount, &devices);
    return done(status);
}
static R known(int d) { return !library ? NOT_INIT : d < 0 || d >= devices || d >= MAX ? BAD_DEVICE : OK; }
#define DEVICE(d) do { R s_ = known(d); if (s_) return done(s_); } while (0)
API R hipGetDeviceCount(int *n) { if (!library) return done(NOT_INIT); *n = devices; return done(devices ? OK : NO_DEVICE); }
API R hipDeviceGetName(char *name, int n, int d) {
    DEVICE(d);
    char own[256] = "";
    R status = CU(cuDeviceGetName, own, 255, d);
    if (!status) snprintf(name, n, "%s (HIP on CUDA)", own);
    return done(status);
}
API R hipDeviceTotalMem(size_t *bytes, int d) { DEVICE(d); return done(CU(cuDeviceTotalMem_v2, bytes, d)); }
API R hipDeviceGetAttribute(int *v, int attribute, int d) {
    DEVICE(d);
    switch (attribute) {
    case 23: return done(CU(cuDeviceGetAttribute, v, 75, d));    /* major */
    case 61: return done(CU(cuDeviceGetAttribute, v, 76, d));    /* minor */
    case 59: return done(CU(cuDeviceGetAttribute, v, 37, d));    /* bits of the bus */
    case 60: return done(CU(cuDeviceGetAttribute, v, 36, d));    /* memory clock */
    case 89: return done(CU(cuDeviceGetAttribute, v, 102, d));   /* virtual memory */
    case 10011: *v = 0; return OK;                               /* large BAR: the host has no access */
    case 10013: return done(CU(cuDeviceGetAttribute, v, 122, d)); /* stream values */
    default: return done(INVALID);
    }
}
/* The name at 0 and the architecture at 1160, of a struct of 1,472 bytes. The architecture is told as it is: nobody
 * must take it for AMD's. */
API R hipGetDevicePropertiesR0600(char *p, int d) {
    DEVICE(d);
    int major = 0, minor = 0;
    memset(p, 0, 1472);
    R status = hipDeviceGetName(p, 256, d);
    if (!status) status = CU(cuDeviceGetAttribute, &major, 75, d);
    if (!status) status = CU(cuDeviceGetAttribute, &minor, 76, d);
    snprintf(p + 1160, 256, "sm_%d%d", major, minor);
    return done(status);
}
API R hipDeviceCanAccessPeer(int *can, int d, int p) { DEVICE(d); DEVICE(p); *can = 0; return d == p ? OK : done(CU(cuDeviceCanAccessPeer, can, d, p)); }
API R hipGetDevice(int *d) { if (!library) return done(NOT_INIT); *d = current; return OK; }
API R hipSetDevice(int d) { DEVICE(d); current = d; return OK; }
API R hipPeekAtLastError(void) { return kept; }
API R hipGetLastError(void) { R status = kept; kept = OK; return status; }
API R hipDrvGetErrorName(R status, const char **name) { return CU(cuGetErrorName, status, name); }

/* Plain memory. */
static R beyond(R status, U bytes) {
    size_t total = 0;
    CU(cuDeviceTotalMem_v2, &total, current);
    return status == INVALID && bytes > total ? OOM : status;
}
API R hipMemGetInfo(size_t *free_bytes, size_t *total) { HERE(); return done(CU(cuMemGetInfo_v2, free_bytes, total)); }
API R hipMalloc(U *at, size_t bytes) {
    HERE();
    R status = beyond(CU(cuMemAlloc_v2, at, bytes), bytes);
    if (!status) add_piece(*at, bytes, 0);
    return done(status);
}
API R hipFree(U at) {
    HERE();
    R status = CU(cuMemFree_v2, at);
    if (!status) drop_pieces(at, 1, 0);
    return done(status);
}
/* Coherent (bit 30) is what pinned memory is anyway. */
API R hipHostMalloc(void **at, size_t bytes, unsigned flags) { HERE(); return done(CU(cuMemHostAlloc, at, bytes, flags & 3)); }
API R hipHostFree(U at) { HERE(); return done(CU(cuMemFreeHost, at)); }
API R hipHostGetDevicePointer(U *out, U host, unsigned flags) { HERE(); return done(CU(cuMemHostGetDevicePointer_v2, out, host, flags)); }

/* Virtual memory. */
typedef struct { int32_t kind, handle_types, location, id; U meta; uint8_t compression, rdma; uint16_t usage; uint8_t reserved[4]; } Prop;
typedef struct { int32_t location, id, flags; } Access;
_Static_assert(sizeof(Prop) == 32 && sizeof(Access) == 12, "the same in cuda.h and hip_runtime_api.h");
API R hipMemGetAllocationGranularity(size_t *bytes, const Prop *p, int option) { HERE(); return done(CU(cuMemGetAllocationGranularity, bytes, p, option)); }
API R hipMemAddressReserve(U *at, size_t size, size_t alignment, U hint, U flags) { HERE(); return done(CU(cuMemAddressReserve, at, size, alignment, hint, flags)); }
API R hipMemAddressFree(U at, size_t size) { HERE(); return done(CU(cuMemAddressFree, at, size)); }
API R hipMemCreate(U *handle, size_t size, const Prop *p, U flags) {
    HERE();
    R status = beyond(CU(cuMemCreate, handle, size, p, flags), size);
    if (!status) add_block(*handle, size);
    return done(status);
}
API R hipMemRelease(U handle) {
    HERE();
    if (!has_block(handle, NULL)) return done(INVALID);
    R status = CU(cuMemRelease, handle);
    if (!status) LOCKED(EACH(i) if (blocks[i].refs && blocks[i].handle == handle) blocks[i].refs--);
    return done(status);
}
API R hipMemMap(U at, size_t size, size_t offset, U handle, U flags) {
    HERE();
    R status = CU(cuMemMap, at, size, offset, handle, flags);
    if (!status) add_piece(at, size, 1);
    return done(status);
}
API R hipMemUnmap(U at, size_t size) {
    HERE();
    R status = CU(cuMemUnmap, at, size);
    if (!status) drop_pieces(at, size, 1);
    return done(status);
}
API R hipMemSetAccess(U at, size_t size, const Access *list, size_t count) {
    HERE();
    for (size_t i = 0; i < count; i++) if (list[i].location != 1) return done(INVALID);
    return done(CU(cuMemSetAccess, at, size, list, count));
}
API R hipMemGetAccess(U *flags, const int32_t *location, U at) { HERE(); return done(CU(cuMemGetAccess, flags, location, at)); }
API R hipMemGetAddressRange(U *base, size_t *size, U at) {
    Piece found = piece_at(at);
    if (!found.size) return done(NOT_FOUND);
    *base = found.at;
    *size = found.size;
    return OK;
}
API R hipMemGetAllocationPropertiesFromHandle(Prop *p, U handle) { HERE(); if (!has_block(handle, NULL)) return done(INVALID); return done(CU(cuMemGetAllocationPropertiesFromHandle, p, handle)); }
/* AMD's descriptors end where the block ends; NVIDIA's do not tell. So a file of the block's size goes out, and the
 * driver's descriptor stays here, open for ever. */
API R hipMemExportToShareableHandle(int *fd, U handle, int kind, U flags) {
    HERE();
    int real = -1, put = 0;
    U size = 0;
    struct stat s;
    if (!has_block(handle, &size)) return done(INVALID);
    R status = CU(cuMemExportToShareableHandle, &real, handle, kind, flags);
    if (status) return done(status);
    int shown = memfd_create("hip-on-cuda-block", MFD_CLOEXEC);
    if (shown < 0 || ftruncate(shown, size) || fstat(shown, &s)) { if (shown >= 0) close(shown); close(real); return done(OOM); }
    LOCKED(EACH(i) if (!put && !exported[i].file) { exported[i].file = s.st_ino; exported[i].on = s.st_dev; exported[i].real = real; put = 1; });
    *fd = shown;
    return OK;
}
/* Before 7.1 the descriptor comes by pointer, from then on by value. */
API R hipMemImportFromShareableHandle(U *handle, U word, int kind) {
    HERE();
    int fd = version < 70100000 ? *(int *)word : (int)word, real = -1;
    struct stat s;
    if (fstat(fd, &s)) return done(INVALID);
    LOCKED(EACH(i) if (exported[i].file == s.st_ino && exported[i].on == s.st_dev) real = exported[i].real);
    R status = real < 0 ? INVALID : CU(cuMemImportFromShareableHandle, handle, (U)real, kind);
    if (!status) add_block(*handle, s.st_size);
    return done(status);
}

/* Streams, events, graphs. */
API R hipStreamCreateWithFlags(U *out, unsigned flags) {
    HERE();
    R status = CU(cuStreamCreate, out, flags);
    int put = 0;
    if (!status) LOCKED(EACH(i) if (!put && !streams[i].handle) { streams[i].handle = *out; streams[i].device = current; put = 1; });
    return done(status);
}
API R hipStreamDestroy(U h) {
    STREAM(h);
    R status = CU(cuStreamDestroy_v2, h);
    LOCKED(EACH(i) if (streams[i].handle == h) streams[i].handle = 0);
    return done(status);
}
API R hipStreamSynchronize(U h) { STREAM(h); return done(CU(cuStreamSynchronize, h)); }
API R hipStreamQuery(U h) { STREAM(h); return done(CU(cuStreamQuery, h)); }
API R hipStreamGetDevice(U h, int *d) { if ((*d = device_of(h)) < 0) return done(DESTROYED); return OK; }
API R hipStreamWaitEvent(U h, U event, unsigned flags) { STREAM(h); return done(CU(cuStreamWaitEvent, h, event, flags)); }
API R hipStreamIsCapturing(U h, int *status) { STREAM(h); return done(CU(cuStreamIsCapturing, h, status)); }
API R hipStreamBeginCapture(U h, int mode) { STREAM(h); return done(CU(cuStreamBeginCapture_v2, h, mode)); }
API R hipStreamEndCapture(U h, U *graph) { STREAM(h); return done(CU(cuStreamEndCapture, h, graph)); }
API R hipThreadExchangeStreamCaptureMode(int *mode) { return done(CU(cuThreadExchangeStreamCaptureMode, mode)); }
API R hipEventCreateWithFlags(U *event, unsigned flags) { HERE(); return done(CU(cuEventCreate, event, flags)); }
API R hipEventRecord(U event, U h) { STREAM(h); return done(CU(cuEventRecord, event, h)); }
API R hipEventQuery(U event) { HERE(); return done(CU(cuEventQuery, event)); }
API R hipEventDestroy(U event) { HERE(); return done(CU(cuEventDestroy_v2, event)); }
API R hipLaunchHostFunc(U h, void (*function)(void *), void *data) { STREAM(h); return done(CU(cuLaunchHostFunc, h, function, data)); }
API R hipGraphInstantiateWithFlags(U *exec, U graph, U flags) { HERE(); return done(CU(cuGraphInstantiateWithFlags, exec, graph, flags)); }
API R hipGraphLaunch(U exec, U h) { STREAM(h); return done(CU(cuGraphLaunch, exec, h)); }
API R hipGraphExecDestroy(U exec) { HERE(); return done(CU(cuGraphExecDestroy, exec)); }
API R hipGraphDestroy(U graph) { HERE(); return done(CU(cuGraphDestroy, graph)); }
API R hipStreamWriteValue64(U h, U at, U value, unsigned flags) { STREAM(h); return done(CU(cuStreamWriteValue64_v2, h, at, value, flags)); }
API R hipStreamWaitValue64(U h, U at, U value, unsigned flags, U mask) {
    STREAM(h);
    return done(mask != ~0ull ? NOT_SUPPORTED : CU(cuStreamWaitValue64_v2, h, at, value, flags));
}

/* Copies. */
API R hipMemcpyAsync(U dst, U src, size_t bytes, int kind, U h) { if (kind != 4) return done(INVALID); STREAM(h); return done(CU(cuMemcpyAsync, dst, src, bytes, h)); }
API R hipMemcpyBatchAsync(U *dsts, U *srcs, size_t *sizes, size_t count, void *attributes, size_t *starts, size_t kinds, size_t *failed, U h) {
    STREAM(h);
    if (find("cuMemcpyBatchAsync") != (void *)missing)
        return done(CU(cuMemcpyBatchAsync, dsts, srcs, sizes, count, attributes, starts, kinds, failed, h));
    R status = OK;
    for (size_t i = 0; i < count && !status; i++) status = CU(cuMemcpyAsync, dsts[i], srcs[i], sizes[i], h);
    return done(status);
}
/* Between the host and the current device; done on return. */
API R hipMemcpy(U dst, U src, size_t bytes, int kind) {
    HERE();
    int to = piece_at(dst).size != 0, from = piece_at(src).size != 0;
    if (kind != 4 || to == from) return done(INVALID);
    R status = to ? CU(cuMemcpyHtoD_v2, dst, src, bytes) : CU(cuMemcpyDtoH_v2, dst, src, bytes);
    /* From pageable memory it may return before the last bytes are there. */
    return done(status ? status : CU(cuStreamSynchronize, (U)0));
}

/* Kernels, and the compiler that is none. */
API R hipModuleLoadData(U *module, const char *code) { HERE(); return done(CU(cuModuleLoadData, module, code)); }
API R hipModuleGetFunction(U *function, U module, const char *name) { HERE(); return done(CU(cuModuleGetFunction, function, module, name)); }
API R hipModuleUnload(U module) { HERE(); return done(CU(cuModuleUnload, module)); }
API R hipModuleLaunchKernel(U f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, U h, void **params, void **extra) {
    STREAM(h);
    return done(CU(cuLaunchKernel, f, gx, gy, gz, bx, by, bz, shared, h, params, extra));
}
__asm__(".pushsection .rodata\nhip_on_cuda_text: .incbin \"" PTX "\"\n.byte 0\nhip_on_cuda_end:\n.popsection");
extern const char hip_on_cuda_text[], hip_on_cuda_end[];
static int program;
API R hiprtcCreateProgram(void **out, const char *text, const char *name, int headers, void *a, void *b) {
    (void)name; (void)a; (void)b;
    *out = &program;
    return headers || !strstr(text, "gvmm_copy_");
}
API R hiprtcCompileProgram(void *p, int count, const char **options) { (void)p; (void)count; (void)options; return rtc ? OK : 6; }
API R hiprtcGetProgramLogSize(void *p, size_t *n) { (void)p; *n = 1; return OK; }
API R hiprtcGetProgramLog(void *p, char *text) { (void)p; *text = 0; return OK; }
API R hiprtcGetCodeSize(void *p, size_t *n) { (void)p; *n = hip_on_cuda_end - hip_on_cuda_text; return OK; }
API R hiprtcGetCode(void *p, char *code) { (void)p; memcpy(code, hip_on_cuda_text, hip_on_cuda_end - hip_on_cuda_text); return OK; }
API R hiprtcDestroyProgram(void **p) { *p = NULL; return OK; }

/* For tests. */
API R hip_on_cuda_set(const char *name, U value) {
    if (strcmp(name, "version") == 0) version = value;
    else if (strcmp(name, "rtc") == 0) rtc = value;
    else if (strcmp(name, "library") == 0) path = strdup((const char *)value);
    else return INVALID;
    return OK;
}
