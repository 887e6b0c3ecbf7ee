/* A stand-in for libamdhip64.so.7 over the host's memory, for tests without a GPU. Blocks are memory files that are
 * really mapped and remapped; a stream is a thread that runs a queue in order; the copy kernel is played by reading
 * its table. It keeps the vendor's rules strictly: what a real runtime would refuse, crash on, or let pass and rot,
 * is counted as a breach, and a test fails where the count is not 0.
 *
 * cc -shared -fPIC -O1 -g -pthread -o libamdhip64.so.7 fake_hip.c     (-DhipMemMap=hidden makes it lack a symbol)
 *
 * Settings, by fake_hip_set before hipInit or from the environment: FAKE_HIP_DEVICES (2), FAKE_HIP_MEMORY (bytes of
 * each, 4 GiB), FAKE_HIP_VERSION (70253211), FAKE_HIP_VMM, FAKE_HIP_LARGE_BAR, FAKE_HIP_PEERS, FAKE_HIP_RTC (1 each;
 * 0: lacks it), FAKE_HIP_BATCH (1), FAKE_HIP_INIT (what hipInit answers); FAKE_HIP_ARCH (gfx942) is a text.
 *
 * Known faults, by fake_hip_fault or as a list in FAKE_HIP_FAULTS: joint-unmap, release-mapped, silent-map,
 * access-fails, access-joined, access-part, peer-last, calls-race, null-stream, sync-all, memory-kept, fresh-zeros,
 * stale-graph, stale-always, stream-values, host-refused, moves-hint. More functions at the end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int32_t R;
typedef uint64_t U;
#define API __attribute__((visibility("default")))

enum { OK, INVALID = 1, OOM = 2, NOT_INIT = 3, NO_DEVICE = 100, BAD_DEVICE = 101, BAD_IMAGE = 200, BAD_HANDLE = 400,
       BAD_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, FAULT = 700, DESTROYED = 709, NOT_SUPPORTED = 801,
       CAPTURE_UNSUPPORTED = 900, WRONG_THREAD = 908, UNKNOWN = 999 };
enum { MAX = 16, LIST = 8192, STALE = 64, FRESH_NS = 50000000 }; /* 2 ms in the wild; tests are slow */

static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER; /* all tables below */
static int inited, devices, version, has_vmm, large_bar, peers, has_rtc, has_batch;
static char arch[64];
static U memory, used[MAX];
static U breaches;
static char last_breach[256];
static _Atomic int global_captures;

static R breach(R status, const char *what) {
    __atomic_add_fetch(&breaches, 1, __ATOMIC_SEQ_CST);
    snprintf(last_breach, sizeof last_breach, "%s (answered %d)", what, status);
    if (getenv("FAKE_HIP_TRACE")) fprintf(stderr, "fake_hip breach: %s\n", last_breach);
    return status;
}

/* Calls by name: how many, and a rule that makes one fail. */
static struct { const char *name; U count; } counts[128];
static struct { char name[64]; U nth; R status; } rule;
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;

static __thread R kept; /* the thread's last error, for whoever asks */

static R enter(const char *name) {
    R status = OK;
    pthread_mutex_lock(&count_lock);
    for (int i = 0; i < 128; i++) {
        if (!counts[i].name) counts[i].name = name;
        if (strcmp(counts[i].name, name) == 0) { counts[i].count++; break; }
    }
    if (rule.nth && strcmp(rule.name, name) == 0 && --rule.nth == 0) status = rule.status;
    pthread_mutex_unlock(&count_lock);
    if (status) kept = status;
    return status;
}
API R hipPeekAtLastError(void) { return kept; }
API R hipGetLastError(void) { R status = kept; kept = OK; return status; }
static __thread int inside; /* a host function runs on this thread */
#define ENTER() do { R s_ = enter(__func__); if (s_) return s_; if (!inited) return breach(NOT_INIT, __func__); \
    if (inside) return breach(UNKNOWN, "a call from a host function"); } while (0)

/* Known faults: which are shown. */
static const char *const FAULTS[] = { "joint-unmap", "release-mapped", "silent-map", "access-fails", "access-joined",
    "access-part", "peer-last", "calls-race", "null-stream", "sync-all", "memory-kept", "fresh-zeros", "stale-graph",
    "stale-always", "stream-values", "host-refused", "moves-hint" };
enum { JOINT_UNMAP, RELEASE_MAPPED, SILENT_MAP, ACCESS_FAILS, ACCESS_JOINED, ACCESS_PART, PEER_LAST, CALLS_RACE,
       NULL_STREAM, SYNC_ALL, MEMORY_KEPT, FRESH_ZEROS, STALE_GRAPH, STALE_ALWAYS, STREAM_VALUES, HOST_REFUSED,
       MOVES_HINT, FAULT_COUNT };
static _Atomic int faults[FAULT_COUNT];
API int fake_hip_fault(const char *name, int on) {
    for (int i = 0; i < FAULT_COUNT; i++) if (strcmp(FAULTS[i], name) == 0) { faults[i] = on; return 0; }
    return breach(1, "no such fault");
}

/* Devices: one is current on each thread, 0 at first. */
typedef struct Dev { _Atomic R sticky; struct Stream *null_stream; } Dev;
static Dev devs[MAX];
static __thread int current;
static __thread int mode; /* of captures: 0 global, 1 thread-local, 2 relaxed */
#define NEED_DEV() do { if (devs[current].sticky) return devs[current].sticky; } while (0)
/* What a capture in global mode forbids to every thread that has not relaxed. */
#define UNSAFE_IN_CAPTURE() do { if (global_captures && mode != 2) return breach(CAPTURE_UNSUPPORTED, __func__); } while (0)

/* Memory. `stuck`: the range cannot be freed any more. `kept`: bytes that stay used while the range is reserved. */
typedef struct Block { U handle, size; int device, fd, exportable, refs, maps, imported, last_range; } Block; /* range + 1 */
typedef struct Range { U at, size, kept; int stuck, kept_device; } Range;
typedef struct Map { U at, size, born; int block, corrupt; uint8_t access[MAX], host; } Map;
typedef struct Plain { U at, size; int device; } Plain; /* device -1: pinned host memory */
static Block blocks[LIST];
static Range ranges[LIST];
static Map maps[LIST];
static Plain plains[LIST];
#define EACH(i) for (int i = 0; i < LIST; i++)
static U granule(void) { return version < 71100000 ? 4096 : 2 << 20; }
static U now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }

static int find_block(U handle) {
    EACH(i) if (blocks[i].size && blocks[i].handle == handle && blocks[i].refs) return i;
    return -1;
}
static void drop_block(int i) {
    if (blocks[i].refs || blocks[i].maps) return;
    Range *last = blocks[i].last_range ? &ranges[blocks[i].last_range - 1] : NULL;
    if (faults[MEMORY_KEPT] && last && !blocks[i].imported) { last->kept += blocks[i].size; last->kept_device = blocks[i].device; }
    else if (!blocks[i].imported) used[blocks[i].device] -= blocks[i].size;
    close(blocks[i].fd);
    memset(&blocks[i], 0, sizeof blocks[i]);
}
static int range_of(U at, U size) {
    EACH(i) if (ranges[i].size && ranges[i].at <= at && at + size <= ranges[i].at + ranges[i].size) return i;
    return -1;
}
static int map_at(U at) {
    EACH(i) if (maps[i].size && maps[i].at <= at && at < maps[i].at + maps[i].size) return i;
    return -1;
}
/* Where the piece of memory that holds an address ends; 0: nowhere. */
static U end_of(U at) {
    int m = map_at(at);
    if (m >= 0) return maps[m].at + maps[m].size;
    EACH(i) if (plains[i].size && plains[i].at <= at && at < plains[i].at + plains[i].size) return plains[i].at + plains[i].size;
    return 0;
}

/* May `device` do `wanted` (1 read, 3 read and write) with all of it? */
static int may(int device, U at, U bytes, int wanted) {
    while (bytes) {
        int m = map_at(at);
        if (m >= 0 && (maps[m].access[device] & wanted) != wanted) return 0;
        if (m < 0) EACH(i) if (plains[i].size && plains[i].at <= at && at < plains[i].at + plains[i].size)
            if (plains[i].device >= 0 && plains[i].device != device) return 0;
        U end = end_of(at);
        if (!end) return 0;
        U step = end - at < bytes ? end - at : bytes;
        at += step;
        bytes -= step;
    }
    return 1;
}
/* What a reader gets where a fault says that it is not what was written. */
static void spoil(U dst, U src, U bytes) {
    while (bytes) {
        int m = map_at(src);
        U end = end_of(src), step = end - src < bytes ? end - src : bytes;
        if (m >= 0 && maps[m].corrupt) memset((void *)dst, 0xEE, step);
        if (m >= 0 && faults[FRESH_ZEROS] && now() - maps[m].born < FRESH_NS) memset((void *)dst, 0, step);
        src += step;
        dst += step;
        bytes -= step;
    }
}
static R move(int device, U dst, U src, U bytes) {
    pthread_mutex_lock(&big);
    R status = may(device, src, bytes, 1) && may(device, dst, bytes, 3) ? OK : FAULT;
    if (status == OK) { memcpy((void *)dst, (void *)src, bytes); spoil(dst, src, bytes); }
    pthread_mutex_unlock(&big);
    return status;
}
static U slot_of(Plain p) {
    EACH(i) if (!plains[i].size) { plains[i] = p; return i; }
    abort();
}

/* Streams: what is enqueued is an Op; a graph is a list of them. */
typedef struct Event { U magic; int device; _Atomic U recorded, done; } Event;
typedef struct Op {
    enum { COPY, TABLE, CALL, WRITE, WAIT, RECORD, WAIT_EVENT, GRAPH } kind;
    U a, b, c;
    U *table;
    void (*function)(void *);
    Event *event;
    struct Graph *graph;
    struct Op *next;
} Op;
typedef struct Graph { U magic; Op *first; _Atomic int refs; } Graph;
typedef struct Stream {
    U magic;
    int device;
    pthread_t thread, capturer;
    pthread_mutex_t lock;
    pthread_cond_t change;
    Op *first, **last, *kept, **kept_last;
    int capture_mode; /* -1: not captured */
    int closing;
    U entered, finished;
    struct { U at, bytes; void *old; } stale[STALE]; /* what a graph launched now reads instead */
    int stale_count;
} Stream;
static Stream *streams[LIST];
static U stream_magic = 0x57575757, event_magic = 0xE7E7E7E7, graph_magic = 0x69696969;
static struct { U at; int device; } writers[LIST]; /* which device's stream wrote a value last */

static void unref(Graph *g) {
    if (--g->refs) return;
    for (Op *op = g->first, *next; op; op = next) { next = op->next; free(op->table); free(op); }
    free(g);
}
static void forget_stale(Stream *s) {
    for (int i = 0; i < s->stale_count; i++) free(s->stale[i].old);
    s->stale_count = 0;
}
static R copy_slice(Stream *s, U dst, U src, U bytes, int in_graph) {
    if ((faults[STALE_GRAPH] || faults[STALE_ALWAYS]) && !in_graph && s->stale_count < STALE && may(s->device, dst, bytes, 3)) {
        void *old = malloc(bytes);
        memcpy(old, (void *)dst, bytes);
        s->stale[s->stale_count].at = dst;
        s->stale[s->stale_count].bytes = bytes;
        s->stale[s->stale_count++].old = old;
    }
    R status = move(s->device, dst, src, bytes);
    if (status || !in_graph) return status;
    for (int i = 0; i < s->stale_count; i++) {
        U from = s->stale[i].at > src ? s->stale[i].at : src;
        U end = s->stale[i].at + s->stale[i].bytes < src + bytes ? s->stale[i].at + s->stale[i].bytes : src + bytes;
        if (from < end) memcpy((char *)dst + (from - src), (char *)s->stale[i].old + (from - s->stale[i].at), end - from);
    }
    return OK;
}
static int value_there(Stream *s, Op *op) {
    if (__atomic_load_n((U *)op->a, __ATOMIC_ACQUIRE) < op->b) return 0;
    if (faults[STREAM_VALUES]) for (int i = 0; i < LIST; i++) if (writers[i].at == op->a && writers[i].device != s->device) return 0;
    return 1;
}
static R perform(Stream *s, Op *op, int in_graph) {
    R status = OK;
    switch (op->kind) {
    case COPY: return copy_slice(s, op->a, op->b, op->c, in_graph);
    case TABLE:
        for (U i = 0; i < (op->table[0] & 0xffffffff) && !status; i++) {
            U *e = op->table + 2 + 3 * i;
            status = copy_slice(s, e[0], e[1], e[2] & ((1ull << 40) - 1), in_graph);
        }
        return status;
    case CALL: inside = 1; op->function((void *)op->a); inside = 0; return OK;
    case WRITE:
        for (int i = 0; i < LIST; i++) if (!writers[i].at || writers[i].at == op->a) { writers[i].at = op->a; writers[i].device = s->device; break; }
        __atomic_store_n((U *)op->a, op->b, __ATOMIC_RELEASE);
        return OK;
    case WAIT:
        while (!value_there(s, op)) {
            if (devs[s->device].sticky) return devs[s->device].sticky;
            usleep(20);
        }
        return OK;
    case RECORD: op->event->done = op->a; return OK;
    case WAIT_EVENT:
        while (op->event->done < op->a && !devs[s->device].sticky) usleep(20);
        return OK;
    case GRAPH:
        for (Op *o = op->graph->first; o && !status; o = o->next) status = perform(s, o, 1);
        forget_stale(s);
        unref(op->graph);
        return status;
    }
    return OK;
}
static void *work(void *data) {
    Stream *s = data;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->closing) pthread_cond_wait(&s->change, &s->lock);
        Op *op = s->first;
        if (!op) break;
        s->first = op->next;
        if (!s->first) s->last = &s->first;
        pthread_mutex_unlock(&s->lock);
        if (!devs[s->device].sticky) {
            R status = perform(s, op, 0);
            if (status) devs[s->device].sticky = status;
        }
        free(op->table);
        free(op);
        pthread_mutex_lock(&s->lock);
        s->finished++;
        pthread_cond_broadcast(&s->change);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
static Stream *make_stream(int device) { /* with `big` held */
    Stream *s = calloc(1, sizeof *s);
    s->magic = stream_magic;
    s->device = device;
    s->capture_mode = -1;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->change, NULL);
    if (pthread_create(&s->thread, NULL, work, s)) abort();
    EACH(i) if (!streams[i]) { streams[i] = s; break; }
    return s;
}
static Stream *null_stream(int device) {
    pthread_mutex_lock(&big);
    if (!devs[device].null_stream) devs[device].null_stream = make_stream(device);
    pthread_mutex_unlock(&big);
    return devs[device].null_stream;
}
/* The stream that a handle names: NULL, 1 and 2 are the current device's. Any other is looked up, as HIP does. */
static Stream *stream_at(U handle) {
    if (handle <= 2) return null_stream(current);
    Stream *found = NULL;
    pthread_mutex_lock(&big);
    EACH(i) if (streams[i] == (Stream *)handle) found = streams[i];
    pthread_mutex_unlock(&big);
    return found;
}
#define STREAM(s, handle) Stream *s = stream_at(handle); if (!s) return breach(DESTROYED, __func__); \
    if (devs[s->device].sticky) return devs[s->device].sticky
#define HERE(s) if ((s)->device != current) return breach(BAD_HANDLE, "a stream of a device that is not current")
static R put(Stream *s, Op proto, int may_be_captured) {
    Op *op = malloc(sizeof *op);
    *op = proto;
    op->next = NULL;
    pthread_mutex_lock(&s->lock);
    R status = OK;
    if (s->capture_mode >= 0 && !may_be_captured) {
        status = breach(CAPTURE_UNSUPPORTED, "enqueued on a captured stream");
    } else if (s->capture_mode >= 0) {
        *s->kept_last = op;
        s->kept_last = &op->next;
    } else {
        *s->last = op;
        s->last = &op->next;
        s->entered++;
        pthread_cond_broadcast(&s->change);
    }
    pthread_mutex_unlock(&s->lock);
    if (status) { free(op->table); free(op); }
    return status;
}
static void wait_idle(Stream *s) {
    pthread_mutex_lock(&s->lock);
    U goal = s->entered;
    while (s->finished < goal) pthread_cond_wait(&s->change, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* The runtime and its devices. With no device every call leaves its outputs as they were. */
static struct { char name[64]; U value; } settings[16];
static U from_env(const char *name, U otherwise) {
    for (int i = 0; i < 16; i++) if (strcmp(settings[i].name, name) == 0) return settings[i].value;
    const char *v = getenv(name);
    return v ? strtoull(v, NULL, 10) : otherwise;
}
API R hipRuntimeGetVersion(int *v) { R s = enter(__func__); if (s) return s; *v = from_env("FAKE_HIP_VERSION", 70253211); return OK; }
API R hipInit(unsigned flags) {
    R status = enter(__func__);
    int answer = from_env("FAKE_HIP_INIT", 0);
    if (status || answer) return status ? status : answer;
    if (flags) return breach(INVALID, "hipInit flags");
    if (inited) return OK;
    devices = from_env("FAKE_HIP_DEVICES", 2);
    version = from_env("FAKE_HIP_VERSION", 70253211);
    has_vmm = from_env("FAKE_HIP_VMM", 1);
    large_bar = from_env("FAKE_HIP_LARGE_BAR", 1);
    peers = from_env("FAKE_HIP_PEERS", 1);
    has_rtc = from_env("FAKE_HIP_RTC", 1);
    has_batch = from_env("FAKE_HIP_BATCH", 1);
    memory = from_env("FAKE_HIP_MEMORY", 4ull << 30);
    if (!arch[0]) snprintf(arch, sizeof arch, "%s", getenv("FAKE_HIP_ARCH") ? getenv("FAKE_HIP_ARCH") : "gfx942");
    for (char *list = getenv("FAKE_HIP_FAULTS") ? strdup(getenv("FAKE_HIP_FAULTS")) : NULL, *rest = list, *name;
         list && (name = strtok_r(rest, ",", &rest));) fake_hip_fault(name, 1);
    inited = 1;
    return OK;
}
API R hipGetDeviceCount(int *n) { ENTER(); if (!devices) return NO_DEVICE; *n = devices; return OK; }
API R hipDeviceGetName(char *name, int n, int d) { ENTER(); if (d < 0 || d >= devices) return BAD_DEVICE; snprintf(name, n, "fake HIP device %d", d); return OK; }
API R hipDeviceTotalMem(size_t *bytes, int d) { ENTER(); if (d < 0 || d >= devices) return BAD_DEVICE; *bytes = memory; return OK; }
API R hipDeviceGetAttribute(int *v, int attribute, int d) {
    ENTER();
    if (d < 0 || d >= devices) return BAD_DEVICE;
    int digits = strlen(arch) - 3; /* gfx942: 9, 4; gfx1201: 12, 0 */
    char major[8] = {0}, minor[2] = {arch[3 + digits - 2], 0};
    memcpy(major, arch + 3, digits - 2 < 7 ? digits - 2 : 7);
    switch (attribute) {
    case 23: *v = atoi(major); return OK;
    case 61: *v = atoi(minor); return OK;
    case 59: *v = 8192; return OK;
    case 60: *v = 1300000; return OK;
    case 89: *v = has_vmm; return OK;
    case 10011: *v = large_bar; return OK;
    case 10013: *v = 1; return OK;
    default: return breach(INVALID, "attribute");
    }
}
API R hipGetDevicePropertiesR0600(char *p, int d) {
    ENTER();
    if (d < 0 || d >= devices) return BAD_DEVICE;
    memset(p, 0x5A, 1472);
    snprintf(p, 256, "fake HIP device %d", d);
    snprintf(p + 1160, 256, "%s:sramecc+:xnack-", arch);
    return OK;
}
/* Whose structs have two layouts: not to be called. */
API R hipGetDeviceProperties(void *p, int d) { (void)p; (void)d; return breach(INVALID, __func__); }
API R hipPointerGetAttributes(void *p, const void *at) { (void)p; (void)at; return breach(INVALID, __func__); }
/* Broken on some devices: not to be called. */
API R hipGraphExecKernelNodeSetParams(U exec, U node, void *p) { (void)exec; (void)node; (void)p; return breach(INVALID, __func__); }
API R hipGraphExecUpdate(U exec, U graph, U *node, int *result) { (void)exec; (void)graph; (void)node; (void)result; return breach(INVALID, __func__); }
API R hipDeviceCanAccessPeer(int *can, int d, int p) {
    ENTER();
    if (d == p) { *can = 0; return OK; }
    *can = peers;
    return OK;
}
API R hipDrvGetErrorName(R status, const char **name) {
    if (status != 4242) return INVALID;
    *name = "hipErrorOfTheFake";
    return OK;
}
API R hipGetDevice(int *d) { ENTER(); *d = current; return OK; }
API R hipSetDevice(int d) { ENTER(); if (d < 0 || d >= devices) return BAD_DEVICE; current = d; return OK; }
API R hipThreadExchangeStreamCaptureMode(int *m) { int old = mode; if (*m < 0 || *m > 2) return INVALID; mode = *m; *m = old; return OK; }

/* Plain memory. */
API R hipMemGetInfo(size_t *free_bytes, size_t *total) {
    ENTER(); NEED_DEV();
    pthread_mutex_lock(&big);
    *total = memory; *free_bytes = memory - used[current];
    pthread_mutex_unlock(&big);
    return OK;
}
API R hipMalloc(U *at, size_t bytes) {
    ENTER(); NEED_DEV(); UNSAFE_IN_CAPTURE();
    if (!bytes) return breach(INVALID, __func__);
    pthread_mutex_lock(&big);
    R status = used[current] + bytes > memory ? OOM : OK;
    if (!status) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) status = OOM;
        else { used[current] += bytes; slot_of((Plain){(U)p, bytes, current}); *at = (U)p; }
    }
    pthread_mutex_unlock(&big);
    return status;
}
static R free_plain(U at, int pinned, const char *who) {
    pthread_mutex_lock(&big);
    R status = INVALID;
    EACH(i) if (plains[i].size && plains[i].at == at && (plains[i].device < 0) == pinned) {
        if (pinned) free((void *)at);
        else { munmap((void *)at, plains[i].size); used[plains[i].device] -= plains[i].size; }
        plains[i].size = 0;
        status = OK;
        break;
    }
    pthread_mutex_unlock(&big);
    return status ? breach(status, who) : OK;
}
API R hipFree(U at) { ENTER(); NEED_DEV(); UNSAFE_IN_CAPTURE(); return free_plain(at, 0, __func__); }
API R hipHostMalloc(void **at, size_t bytes, unsigned flags) {
    ENTER(); NEED_DEV(); UNSAFE_IN_CAPTURE();
    if (!(flags & 0x40000000)) return breach(INVALID, "pinned memory that is not coherent");
    if (posix_memalign(at, 4096, bytes)) return OOM;
    memset(*at, 0xA5, bytes);
    pthread_mutex_lock(&big);
    slot_of((Plain){(U)*at, bytes, -1});
    pthread_mutex_unlock(&big);
    return OK;
}
API R hipHostFree(U at) { ENTER(); NEED_DEV(); UNSAFE_IN_CAPTURE(); return free_plain(at, 1, __func__); }
API R hipHostGetDevicePointer(U *out, U host, unsigned flags) { ENTER(); NEED_DEV(); if (flags) return INVALID; *out = host; return OK; }

/* Virtual memory. Whatever our side should have refused itself is a breach. */
typedef struct { int32_t kind, handle_types, location, id; U meta; uint8_t compression, rdma; uint16_t usage; uint8_t reserved[4]; } Prop;
typedef struct { int32_t location, id, flags; } Access;
_Static_assert(sizeof(Prop) == 32 && sizeof(Access) == 12, "as in hip_runtime_api.h");
static int good(const Prop *p) {
    return p->kind == 1 && p->location == 1 && p->id >= 0 && p->id < devices && !p->meta && !p->usage && !p->compression;
}
/* Two calls at once corrupt the runtime's own books. */
static _Atomic int calls_inside;
#define RACE() do { if (faults[CALLS_RACE]) { int others_ = calls_inside++; usleep(300); calls_inside--; \
    if (others_ > 0) return UNKNOWN; } } while (0)

API R hipMemGetAllocationGranularity(size_t *g, const Prop *p, int option) {
    ENTER();
    if (!has_vmm) return NOT_SUPPORTED;
    if (!good(p) || option < 0 || option > 1) return breach(INVALID, __func__);
    *g = granule();
    return OK;
}
API R hipMemAddressReserve(U *at, size_t size, size_t alignment, U hint, U flags) {
    ENTER(); RACE();
    if (!size || size % granule() || (alignment & (alignment - 1)) || flags) return breach(INVALID, __func__);
    if (alignment < 2 << 20) alignment = 2 << 20;
    if (size > 1ull << 46) return OOM;
    char *p = MAP_FAILED;
    if (hint && !faults[MOVES_HINT]) p = mmap((void *)hint, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    U start = (U)p;
    if (p == MAP_FAILED) {
        U more = 2 * alignment;
        p = mmap(NULL, size + more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return OOM;
        start = ((U)p + alignment - 1) & ~(alignment - 1);
        /* Before 7.0 a larger alignment is not looked at. */
        if (version < 70000000 && alignment > 2 << 20) start += 2 << 20;
        if (faults[MOVES_HINT] && start == hint) start += 2 << 20;
        if (start > (U)p) munmap(p, start - (U)p);
        U end = (U)p + size + more;
        if (end > start + size) munmap((void *)(start + size), end - start - size);
    }
    pthread_mutex_lock(&big);
    EACH(i) if (!ranges[i].size) { ranges[i] = (Range){.at = start, .size = size}; break; }
    pthread_mutex_unlock(&big);
    *at = start;
    return OK;
}
API R hipMemAddressFree(U at, size_t size) {
    ENTER(); RACE();
    R status = INVALID;
    pthread_mutex_lock(&big);
    EACH(i) if (maps[i].size && maps[i].at < at + size && at < maps[i].at + maps[i].size) {
        pthread_mutex_unlock(&big);
        return breach(UNKNOWN, "freed a range that is mapped");
    }
    EACH(i) if (ranges[i].size == size && ranges[i].at == at) {
        if (ranges[i].stuck) { pthread_mutex_unlock(&big); return UNKNOWN; }
        munmap((void *)at, size);
        used[ranges[i].kept_device] -= ranges[i].kept;
        ranges[i].size = 0;
        EACH(b) if (blocks[b].last_range == i + 1) blocks[b].last_range = 0;
        status = OK;
    }
    pthread_mutex_unlock(&big);
    return status ? breach(status, version < 70000000 ? "freed what HIP does not know: a crash" : __func__) : OK;
}
API R hipMemCreate(U *handle, size_t size, const Prop *p, U flags) {
    ENTER(); RACE();
    if (!has_vmm) return NOT_SUPPORTED;
    if (!good(p) || !size || size % granule() || flags || (p->handle_types & ~1)) return breach(INVALID, __func__);
    if (p->id != current) return breach(INVALID, "a block is made on the current device");
    pthread_mutex_lock(&big);
    R status = used[p->id] + size > memory ? OOM : OK;
    if (!status) {
        int fd = memfd_create("fake-hip-block", MFD_CLOEXEC);
        /* The end of descriptors is told as the end of memory. */
        if (fd < 0 || ftruncate(fd, size)) status = OOM;
        EACH(i) if (!status && !blocks[i].size) {
            blocks[i] = (Block){.handle = (U)malloc(16), .size = size, .device = p->id, .fd = fd, .exportable = p->handle_types & 1, .refs = 1};
            used[p->id] += size;
            *handle = blocks[i].handle;
            break;
        }
    }
    pthread_mutex_unlock(&big);
    return status;
}
API R hipMemRelease(U handle) {
    ENTER(); RACE();
    pthread_mutex_lock(&big);
    int i = find_block(handle), mapped = i >= 0 && blocks[i].refs == 1 && blocks[i].maps;
    if (mapped && faults[RELEASE_MAPPED]) EACH(m) if (maps[m].size && maps[m].block == i) ranges[range_of(maps[m].at, 1)].stuck = 1;
    if (i >= 0) { blocks[i].refs--; drop_block(i); }
    pthread_mutex_unlock(&big);
    return i < 0 ? breach(INVALID, "released what is not a block: a crash") : mapped ? breach(OK, "released while mapped") : OK;
}
API R hipMemMap(U at, size_t size, size_t offset, U handle, U flags) {
    ENTER(); RACE();
    if (offset || flags) return breach(INVALID, "map with an offset");
    pthread_mutex_lock(&big);
    int b = find_block(handle), device = b < 0 ? 0 : blocks[b].device;
    pthread_mutex_unlock(&big);
    if (b < 0) return breach(INVALID, "map: no such block: a crash");
    if (faults[NULL_STREAM] && version < 71400000) wait_idle(null_stream(device));
    if (faults[SILENT_MAP]) return OK;
    R status = OK;
    const char *why = NULL;
    pthread_mutex_lock(&big);
    if (range_of(at, size) < 0) why = "map: outside of every range";
    EACH(i) if (maps[i].size && maps[i].at < at + size && at < maps[i].at + maps[i].size) why = "map: mapped already";
    if (at % granule()) why = "map: misaligned";
    /* A probe of a handle from outside maps the wrong size on purpose: refused, and no breach. */
    if (!why && blocks[b].size != size) status = INVALID;
    if (!why && !status) EACH(i) if (!maps[i].size) {
        maps[i] = (Map){.at = at, .size = size, .block = b, .born = now()};
        blocks[b].maps++;
        if (mmap((void *)at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, blocks[b].fd, 0) == MAP_FAILED) abort();
        break;
    }
    pthread_mutex_unlock(&big);
    return why ? breach(INVALID, why) : status;
}
/* From 7.14 on, unmap waits for every stream of every device with access. */
static void wait_for_users(U at) {
    Stream *all[LIST];
    int n = 0;
    pthread_mutex_lock(&big);
    int m = map_at(at);
    EACH(i) if (m >= 0 && streams[i] && (maps[m].access[streams[i]->device] || blocks[maps[m].block].device == streams[i]->device)) all[n++] = streams[i];
    pthread_mutex_unlock(&big);
    for (int i = 0; i < n; i++) wait_idle(all[i]);
}
API R hipMemUnmap(U at, size_t size) {
    ENTER(); RACE();
    U found = 0;
    int partial = 0, count = 0, unmapped[LIST];
    if (faults[SYNC_ALL] && version >= 71400000) wait_for_users(at);
    pthread_mutex_lock(&big);
    int m0 = map_at(at), device = m0 < 0 ? 0 : blocks[maps[m0].block].device;
    pthread_mutex_unlock(&big);
    if (faults[NULL_STREAM] && version < 71400000) wait_idle(null_stream(device));
    pthread_mutex_lock(&big);
    EACH(i) if (maps[i].size && maps[i].at < at + size && at < maps[i].at + maps[i].size) {
        if (maps[i].at < at || maps[i].at + maps[i].size > at + size) partial = 1;
        found += maps[i].size;
        unmapped[count++] = i;
    }
    if (!partial && found == size) for (int k = 0; k < count; k++) {
        Map *m = &maps[unmapped[k]];
        Range *range = &ranges[range_of(m->at, 1)];
        if (mmap((void *)m->at, m->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) abort();
        if (faults[JOINT_UNMAP] && count > 1) range->stuck = 1;
        m->size = 0;
        blocks[m->block].maps--;
        blocks[m->block].last_range = range - ranges + 1;
        drop_block(m->block);
    }
    pthread_mutex_unlock(&big);
    if (!found) return breach(INVALID, version < 70000000 ? "unmap: what HIP does not know: a crash" : "unmap: nothing there");
    return partial || found != size ? breach(INVALID, "unmap: not exactly what was mapped") : OK;
}
static R grant(Map *m, const Access *a) {
    int owner = blocks[m->block].device;
    if (a->location == 2) { m->host = a->flags; return OK; }
    if (!peers && a->id != owner) return INVALID;
    if (faults[PEER_LAST] && a->id != owner && a->flags && m->access[owner]) m->corrupt = 1;
    if (a->id == owner && a->flags) m->corrupt = 0;
    m->access[a->id] = a->flags;
    return OK;
}
API R hipMemSetAccess(U at, size_t size, const Access *list, size_t count) {
    static _Atomic int tries;
    ENTER(); RACE();
    U found = 0;
    int n = 0, touched[LIST], partial = 0;
    for (size_t k = 0; k < count; k++) {
        if (list[k].flags < 0 || list[k].flags > 3 || list[k].flags == 2) return breach(INVALID, "set-access: a bad list");
        if (list[k].location == 2) {
            if (version < 70200000) return breach(INVALID, "set-access: no access for the host before 7.2");
            if (faults[HOST_REFUSED] || !large_bar) return INVALID;
        } else if (list[k].location != 1 || list[k].id < 0 || list[k].id >= devices) return breach(INVALID, "set-access: a bad list");
    }
    if (!count) return breach(INVALID, "set-access: an empty list");
    /* Works at the third try. */
    if (faults[ACCESS_FAILS] && ++tries % 3) return INVALID;
    pthread_mutex_lock(&big);
    EACH(i) if (maps[i].size && maps[i].at < at + size && at < maps[i].at + maps[i].size) {
        if (maps[i].at < at || maps[i].at + maps[i].size > at + size) partial = 1;
        found += maps[i].size;
        touched[n++] = i;
    }
    R status = partial || found != size ? INVALID : OK;
    int r = range_of(at, size), nothing = !found;
    if (!status && faults[ACCESS_JOINED] && n > 1) status = INVALID;
    else if (!status && faults[ACCESS_PART] && at != ranges[r].at) status = INVALID;
    else if (status && !nothing) status = breach(INVALID, partial ? "set-access: a part of a mapping" : "set-access: over a hole");
    if (!status) for (size_t k = 0; k < count && !status; k++) for (int i = 0; i < n && !status; i++) {
        status = grant(&maps[touched[i]], &list[k]);
        if (status) breach(status, "set-access: a peer out of reach");
    }
    pthread_mutex_unlock(&big);
    /* Nothing there at all: a map that failed silently is found out like this. */
    return status;
}
API R hipMemGetAccess(U *flags, const int32_t *location, U at) {
    ENTER();
    R status = INVALID;
    pthread_mutex_lock(&big);
    int m = map_at(at);
    if (m >= 0 && location[0] == 1) { *flags = maps[m].access[location[1]]; status = OK; }
    pthread_mutex_unlock(&big);
    return status;
}
API R hipMemGetAddressRange(U *base, size_t *size, U at) {
    ENTER();
    R status = NOT_FOUND;
    pthread_mutex_lock(&big);
    int m = map_at(at);
    if (m >= 0) { *base = maps[m].at; *size = maps[m].size; status = OK; }
    pthread_mutex_unlock(&big);
    return status;
}
API R hipMemGetAllocationPropertiesFromHandle(Prop *p, U handle) {
    ENTER();
    pthread_mutex_lock(&big);
    int i = find_block(handle);
    if (i >= 0) *p = (Prop){.kind = 1, .location = 1, .id = blocks[i].device, .handle_types = blocks[i].exportable};
    pthread_mutex_unlock(&big);
    return i < 0 ? INVALID : OK;
}
API R hipMemExportToShareableHandle(int *fd, U handle, int kind, U flags) {
    ENTER(); RACE();
    pthread_mutex_lock(&big);
    int i = find_block(handle);
    R status = i < 0 || kind != 1 || flags || !blocks[i].exportable ? breach(INVALID, __func__) : OK;
    if (!status && (*fd = dup(blocks[i].fd)) < 0) status = INVALID;
    pthread_mutex_unlock(&big);
    return status;
}
/* Each import is a handle of its own. Before 7.1 the descriptor comes by pointer, from then on by value. */
API R hipMemImportFromShareableHandle(U *handle, U word, int kind) {
    ENTER(); RACE();
    struct stat a, b;
    R status = INVALID;
    int by_pointer = version < 70100000;
    if (by_pointer != (word > 0xffffff)) return breach(INVALID, "a descriptor in the other form");
    int fd = by_pointer ? *(int *)word : (int)word;
    if (kind != 1 || fstat(fd, &a)) return INVALID;
    pthread_mutex_lock(&big);
    EACH(i) if (status && blocks[i].size && !fstat(blocks[i].fd, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev)
        EACH(k) if (status && !blocks[k].size) {
            blocks[k] = (Block){.handle = (U)malloc(16), .size = blocks[i].size, .device = current, .fd = dup(fd), .exportable = 1, .refs = 1, .imported = 1};
            *handle = blocks[k].handle;
            status = OK;
        }
    /* What was exported lives on in its descriptor. */
    if (status && S_ISREG(a.st_mode) && a.st_size) EACH(k) if (status && !blocks[k].size) {
        blocks[k] = (Block){.handle = (U)malloc(16), .size = a.st_size, .device = current, .fd = dup(fd), .exportable = 1, .refs = 1, .imported = 1};
        *handle = blocks[k].handle;
        status = OK;
    }
    pthread_mutex_unlock(&big);
    return status;
}

/* Streams, events, copies. */
API R hipStreamCreateWithFlags(Stream **out, unsigned flags) {
    ENTER(); NEED_DEV();
    if (flags > 1) return INVALID;
    pthread_mutex_lock(&big);
    *out = make_stream(current);
    pthread_mutex_unlock(&big);
    return OK;
}
API R hipStreamDestroy(U h) {
    ENTER();
    Stream *s = stream_at(h);
    if (!s || h <= 2) return breach(DESTROYED, __func__);
    pthread_mutex_lock(&s->lock);
    s->closing = 1;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    forget_stale(s);
    s->magic = 0; /* the struct stays, so that its address does not come back */
    pthread_mutex_lock(&big);
    EACH(i) if (streams[i] == s) streams[i] = NULL;
    pthread_mutex_unlock(&big);
    return OK;
}
API R hipStreamSynchronize(U h) {
    ENTER();
    STREAM(s, h);
    if (s->capture_mode >= 0) return breach(CAPTURE_UNSUPPORTED, __func__);
    wait_idle(s);
    if (!faults[STALE_ALWAYS]) forget_stale(s);
    return devs[s->device].sticky;
}
API R hipStreamQuery(U h) {
    ENTER();
    STREAM(s, h);
    if (s->capture_mode >= 0) return breach(CAPTURE_UNSUPPORTED, __func__);
    pthread_mutex_lock(&s->lock);
    int busy = s->finished < s->entered;
    pthread_mutex_unlock(&s->lock);
    return busy ? kept = NOT_READY : OK;
}
API R hipStreamGetDevice(U h, int *d) {
    ENTER();
    Stream *s = stream_at(h);
    if (!s) return kept = DESTROYED;
    *d = s->device;
    return OK;
}
API R hipStreamIsCapturing(U h, int *status) { ENTER(); STREAM(s, h); *status = s->capture_mode >= 0; return OK; }
API R hipStreamBeginCapture(U h, int m) {
    ENTER();
    STREAM(s, h);
    if (h == 0 || s->capture_mode >= 0) return breach(BAD_STATE, __func__);
    s->capture_mode = m;
    s->capturer = pthread_self();
    s->kept = NULL;
    s->kept_last = &s->kept;
    if (m == 0) global_captures++;
    return OK;
}
API R hipStreamEndCapture(U h, Graph **out) {
    ENTER();
    STREAM(s, h);
    if (s->capture_mode < 0) return breach(BAD_STATE, __func__);
    if (s->capture_mode != 2 && !pthread_equal(s->capturer, pthread_self())) return breach(WRONG_THREAD, __func__);
    if (s->capture_mode == 0) global_captures--;
    s->capture_mode = -1;
    Graph *g = calloc(1, sizeof *g);
    *g = (Graph){graph_magic, s->kept, 1};
    *out = g;
    return OK;
}
API R hipGraphInstantiateWithFlags(Graph **exec, Graph *g, U flags) { ENTER(); if (flags || g->magic != graph_magic) return breach(INVALID, __func__); g->refs++; *exec = g; return OK; }
API R hipGraphLaunch(Graph *g, U h) {
    ENTER();
    STREAM(s, h); HERE(s);
    if (g->magic != graph_magic) return breach(INVALID, __func__);
    g->refs++;
    R status = put(s, (Op){.kind = GRAPH, .graph = g}, 0);
    if (status) unref(g);
    return status;
}
API R hipGraphExecDestroy(Graph *g) { ENTER(); unref(g); return OK; }
API R hipGraphDestroy(Graph *g) { ENTER(); unref(g); return OK; }
API R hipEventCreateWithFlags(Event **out, unsigned flags) { ENTER(); NEED_DEV(); (void)flags; Event *e = calloc(1, sizeof *e); e->magic = event_magic; e->device = current; *out = e; return OK; }
API R hipEventRecord(Event *e, U h) {
    ENTER();
    STREAM(s, h); HERE(s);
    if (e->device != s->device) return breach(BAD_HANDLE, "an event of another device");
    return put(s, (Op){.kind = RECORD, .event = e, .a = ++e->recorded}, 1);
}
API R hipEventQuery(Event *e) { ENTER(); NEED_DEV(); UNSAFE_IN_CAPTURE(); if (e->magic != event_magic) return breach(BAD_HANDLE, __func__); return e->done == e->recorded ? OK : (kept = NOT_READY); }
API R hipEventDestroy(Event *e) { ENTER(); if (e->magic != event_magic) return breach(BAD_HANDLE, __func__); return OK; /* the struct stays: a stream may still wait for it */ }
API R hipStreamWaitEvent(U h, Event *e, unsigned flags) { ENTER(); (void)flags; STREAM(s, h); HERE(s); return put(s, (Op){.kind = WAIT_EVENT, .event = e, .a = e->recorded}, 1); }
API R hipStreamWriteValue64(U h, U at, U value, unsigned flags) {
    ENTER();
    STREAM(s, h); HERE(s);
    if (flags || at % 8) return breach(INVALID, __func__);
    return put(s, (Op){.kind = WRITE, .a = at, .b = value}, 0);
}
API R hipStreamWaitValue64(U h, U at, U value, unsigned flags, U mask) {
    ENTER();
    STREAM(s, h); HERE(s);
    if (flags || at % 8 || mask != ~0ull) return breach(INVALID, __func__);
    return put(s, (Op){.kind = WAIT, .a = at, .b = value}, 0);
}
/* A copy does not go from one mapping into the next. */
static int in_one(U at, U bytes) {
    pthread_mutex_lock(&big);
    U end = end_of(at);
    pthread_mutex_unlock(&big);
    return !end || end - at >= bytes;
}
API R hipMemcpyAsync(U dst, U src, size_t bytes, int kind, U h) {
    ENTER();
    STREAM(s, h); HERE(s);
    if (kind != 4 || !in_one(dst, bytes) || !in_one(src, bytes)) return breach(INVALID, "a copy across mappings");
    return put(s, (Op){.kind = COPY, .a = dst, .b = src, .c = bytes}, 1);
}
typedef struct { int32_t order, places[4]; uint32_t flags; } BatchAttributes;
API R hipMemcpyBatchAsync(U *dsts, U *srcs, size_t *sizes, size_t count, BatchAttributes *attributes, size_t *starts, size_t kinds, size_t *failed, U h) {
    ENTER();
    STREAM(s, h); HERE(s);
    if (!has_batch) return NOT_SUPPORTED;
    if (!count || kinds != 1 || starts[0] || attributes->order != 1 || !failed || !h) return breach(INVALID, __func__);
    if (s->capture_mode >= 0) return breach(CAPTURE_UNSUPPORTED, __func__);
    for (size_t i = 0; i < count; i++) if (!in_one(dsts[i], sizes[i]) || !in_one(srcs[i], sizes[i])) return breach(INVALID, "a copy across mappings");
    for (size_t i = 0; i < count; i++) put(s, (Op){.kind = COPY, .a = dsts[i], .b = srcs[i], .c = sizes[i]}, 0);
    return OK;
}
/* Between the host and the current device; done on return. */
API R hipMemcpy(U dst, U src, size_t bytes, int kind) {
    ENTER(); NEED_DEV();
    if (kind != 4) return breach(INVALID, __func__);
    pthread_mutex_lock(&big);
    int known = end_of(dst) ? may(current, dst, bytes, 3) : may(current, src, bytes, 1);
    if (known) { memcpy((void *)dst, (void *)src, bytes); if (end_of(src)) spoil(dst, src, bytes); }
    pthread_mutex_unlock(&big);
    return known ? OK : INVALID;
}
API R hipLaunchHostFunc(U h, void (*function)(void *), void *data) {
    ENTER();
    STREAM(s, h);
    return put(s, (Op){.kind = CALL, .function = function, .a = (U)data}, 1);
}

/* The compiler: a program is its text, and code is the text again behind a mark. */
static const char MARK[] = "FAKEHIPCODE";
typedef struct Program { char *text; int compiled; } Program;
API R hiprtcCreateProgram(Program **out, const char *text, const char *name, int headers, void *a, void *b) {
    (void)name; (void)a; (void)b;
    if (headers || !strstr(text, "gvmm_copy_") || strstr(text, "asm")) return breach(1, __func__);
    Program *p = malloc(sizeof *p);
    *p = (Program){strdup(text), 0};
    *out = p;
    return OK;
}
API R hiprtcCompileProgram(Program *p, int count, const char **options) {
    for (int i = 0; i < count; i++) {
        const char *target = strncmp(options[i], "--offload-arch=", 15) ? NULL : options[i] + 15;
        if (target && strncmp(target, arch, strlen(arch))) return breach(5, "compiled for another device");
    }
    p->compiled = has_rtc;
    return has_rtc ? OK : 6;
}
static const char LOG[] = "the fake's compiler is off";
API R hiprtcGetProgramLogSize(Program *p, size_t *n) { (void)p; *n = sizeof LOG; return OK; }
API R hiprtcGetProgramLog(Program *p, char *text) { (void)p; memcpy(text, LOG, sizeof LOG); return OK; }
API R hiprtcGetCodeSize(Program *p, size_t *n) { if (!p->compiled) return breach(1, __func__); *n = sizeof MARK + strlen(p->text) + 1; return OK; }
API R hiprtcGetCode(Program *p, char *code) { memcpy(code, MARK, sizeof MARK); strcpy(code + sizeof MARK, p->text); return OK; }
API R hiprtcDestroyProgram(Program **p) { free((*p)->text); free(*p); *p = NULL; return OK; }

/* Modules: a function is the size of its table. */
typedef struct Module { char *text; int device; } Module;
typedef struct Function { U capacity; int device; } Function;
API R hipModuleLoadData(Module **out, const char *code) {
    ENTER(); NEED_DEV(); UNSAFE_IN_CAPTURE();
    if (memcmp(code, MARK, sizeof MARK)) return breach(BAD_IMAGE, __func__);
    Module *m = malloc(sizeof *m);
    *m = (Module){strdup(code + sizeof MARK), current};
    *out = m;
    return OK;
}
API R hipModuleUnload(Module *m) { ENTER(); free(m->text); free(m); return OK; }
API R hipModuleGetFunction(Function **out, Module *m, const char *name) {
    ENTER();
    U capacity;
    char entry[64];
    if (sscanf(name, "gvmm_copy_%lu", &capacity) != 1) return NOT_FOUND;
    snprintf(entry, sizeof entry, "ENTRY(%lu)", capacity);
    if (!strstr(m->text, entry)) return NOT_FOUND;
    Function *f = malloc(sizeof *f);
    *f = (Function){capacity, m->device};
    *out = f;
    return OK;
}
API R hipModuleLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, U h, void **params, void **extra) {
    ENTER();
    STREAM(s, h); HERE(s);
    if (f->device != s->device) return breach(BAD_HANDLE, "a kernel of another device");
    const U *table = params[0];
    U count = table[0] & 0xffffffff, shift = table[0] >> 32, tiles = 0;
    if (gy != 1 || gz != 1 || bx != 256 || by != 1 || bz != 1 || shared || extra || count > f->capacity || !count) return breach(INVALID, __func__);
    for (U i = 0; i < count; i++) {
        U extent = table[2 + 3 * i + 2], bytes = extent & ((1ull << 40) - 1);
        if (extent >> 40 != tiles || !bytes) return breach(INVALID, "a tile's number is off");
        tiles += (bytes + (1ull << shift) - 1) >> shift;
    }
    if (tiles != gx || table[1] != (tiles == count)) return breach(INVALID, "the grid is not the tiles");
    U *copy = malloc((2 + 3 * f->capacity) * sizeof(U));
    memcpy(copy, table, (2 + 3 * f->capacity) * sizeof(U));
    return put(s, (Op){.kind = TABLE, .table = copy}, 1);
}

/* For tests. */
API void fake_hip_set(const char *name, U value) {
    for (int i = 0; i < 16; i++) if (!settings[i].name[0] || strcmp(settings[i].name, name) == 0) {
        snprintf(settings[i].name, sizeof settings[i].name, "%s", name);
        settings[i].value = value;
        return;
    }
}
API void fake_hip_arch(const char *name) { snprintf(arch, sizeof arch, "%s", name); }
API U fake_hip_breaches(void) { return __atomic_load_n(&breaches, __ATOMIC_SEQ_CST); }
API const char *fake_hip_last_breach(void) { return last_breach; }
API U fake_hip_calls(const char *name) {
    U count = 0;
    pthread_mutex_lock(&count_lock);
    for (int i = 0; i < 128 && counts[i].name; i++) if (strcmp(counts[i].name, name) == 0) count = counts[i].count;
    pthread_mutex_unlock(&count_lock);
    return count;
}
API void fake_hip_fail(const char *name, U nth, R status) {
    pthread_mutex_lock(&count_lock);
    snprintf(rule.name, sizeof rule.name, "%s", name);
    rule.nth = nth;
    rule.status = status;
    pthread_mutex_unlock(&count_lock);
}
/* A sticky error, as after a kernel's fault. */
API void fake_hip_break(int device, R status) { devs[device].sticky = status; }
/* What the host may do at an address of a mapping: 0, 1 or 3. */
API U fake_hip_host(U at) {
    pthread_mutex_lock(&big);
    int m = map_at(at);
    U flags = m < 0 ? 0 : maps[m].host;
    pthread_mutex_unlock(&big);
    return flags;
}
/* What lives: blocks, ranges, mappings, plain memory (pinned pages aside). */
API U fake_hip_live(void) {
    U n = 0;
    pthread_mutex_lock(&big);
    EACH(i) n += (blocks[i].size != 0) + (ranges[i].size != 0) + (maps[i].size != 0) + (plains[i].size && plains[i].device >= 0);
    pthread_mutex_unlock(&big);
    return n;
}
API int fake_hip_current(void) { return current; }
#ifdef FAKE_IN_FRONT
API int gvmm_preload_marker;
#endif
