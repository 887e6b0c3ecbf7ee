/* A stand-in for libcuda.so.1 over the host's memory, for tests without a GPU. Blocks are memory files that are
 * really mapped and remapped; a stream is a thread that runs a queue in order; the copy kernel is played by reading
 * its table. It keeps the vendor's rules strictly: what a real driver would refuse, or let pass and rot, is counted
 * as a breach, and a test fails where the count is not 0.
 *
 * cc -shared -fPIC -O1 -g -pthread -o libcuda.so.1 fake_cuda.c     (-DcuMemMap=hidden makes it lack a symbol)
 *
 * Settings, by fake_cuda_set before cuInit or from the environment: FAKE_CUDA_DEVICES (2), FAKE_CUDA_MEMORY (bytes
 * of each, 4 GiB), FAKE_CUDA_VERSION (13000), FAKE_CUDA_SM (90), FAKE_CUDA_VMM, FAKE_CUDA_STREAM_VALUES,
 * FAKE_CUDA_PEERS, FAKE_CUDA_PTX (1 each; 0: lacks it), FAKE_CUDA_INIT (what cuInit answers). More at the end. */
#define _GNU_SOURCE
#include <fcntl.h>
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

enum { OK, INVALID = 1, OOM = 2, NOT_INIT = 3, NO_DEVICE = 100, BAD_DEVICE = 101, BAD_CONTEXT = 201, BAD_PTX = 218,
       PTX_VERSION = 222, BAD_HANDLE = 400, BAD_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, FAULT = 700,
       DESTROYED = 709, NOT_PERMITTED = 800, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, WRONG_THREAD = 908 };
enum { GRANULE = 2 << 20, MAX = 16, LIST = 8192 };

static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER; /* all tables below */
static int inited, devices = 2, version = 13000, sm = 90, has_vmm = 1, has_values = 1, peers = 1, takes_ptx = 1;
static U memory = 4ull << 30, used[MAX];
static U breaches;
static char last_breach[256];
static _Atomic int global_captures;

static R breach(R status, const char *what) {
    __atomic_add_fetch(&breaches, 1, __ATOMIC_SEQ_CST);
    snprintf(last_breach, sizeof last_breach, "%s (answered %d)", what, status);
    if (getenv("FAKE_CUDA_TRACE")) fprintf(stderr, "fake_cuda breach: %s\n", last_breach);
    return status;
}

/* Calls by name: how many, and a rule that makes one fail. */
static struct { const char *name; U count; } counts[128];
static struct { char name[64]; U nth; R status; } rule;
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;

static R enter(const char *name) {
    R status = OK;
    pthread_mutex_lock(&count_lock);
    for (int i = 0; i < 128; i++) {
        if (!counts[i].name) counts[i].name = name;
        if (strcmp(counts[i].name, name) == 0) { counts[i].count++; break; }
    }
    if (rule.nth && strcmp(rule.name, name) == 0 && --rule.nth == 0) status = rule.status;
    pthread_mutex_unlock(&count_lock);
    return status;
}
static __thread int inside; /* a host function runs on this thread */
#define ENTER() do { R s_ = enter(__func__); if (s_) return s_; if (!inited) return breach(NOT_INIT, __func__); \
    if (inside) return breach(NOT_PERMITTED, __func__); } while (0)

/* Contexts. */
typedef struct Ctx { U magic, id; int device, primary, refs, dead; _Atomic R sticky; struct Stream *null_stream; } Ctx;
static Ctx primaries[MAX];
static U ctx_magic = 0xC0C0C0C0, next_ctx = 1;
static __thread Ctx *stack[64];
static __thread int depth;
static __thread int mode; /* 0 global, 1 thread-local, 2 relaxed */
static Ctx *current(void) { return depth ? stack[depth - 1] : NULL; }
#define NEED_CTX() do { Ctx *c_ = current(); if (!c_) return breach(BAD_CONTEXT, __func__); \
    if (c_->dead || c_->sticky) return c_->dead ? DESTROYED : c_->sticky; } while (0)
/* What a capture in global mode forbids to every thread that has not relaxed. */
#define UNSAFE_IN_CAPTURE() do { if (global_captures && mode != 2) return breach(CAPTURE_UNSUPPORTED, __func__); } while (0)

/* Memory. */
/* A block for RDMA is `spoilt` once it lost its first mapping while it had others, and `stuck` once their access changed. */
typedef struct Block { U handle, size; int device, fd, exportable, refs, maps, rdma, spoilt, stuck; } Block;
typedef struct Range { U at, size; } Range;
typedef struct Map { U at, size; int block, first; uint8_t access[MAX]; } Map;
typedef struct Plain { U at, size; int device; } Plain; /* device -1: pinned host memory */
static Block blocks[LIST];
static Range ranges[LIST];
static Map maps[LIST];
static Plain plains[LIST];
static U next_handle = 0x7700, free_handles[LIST];
static int free_count;
/* As the driver: the number of a block that is gone is given again, and soon. */
static U new_handle(void) { return free_count ? free_handles[--free_count] : (next_handle += 16); }
#define EACH(list, i) for (int i = 0; i < LIST; i++)

static int find_block(U handle) {
    EACH(blocks, i) if (blocks[i].size && blocks[i].handle == handle && blocks[i].refs) return i;
    return -1;
}
static void drop_block(int i) {
    if (blocks[i].refs || blocks[i].maps) return;
    used[blocks[i].device] -= blocks[i].size;
    close(blocks[i].fd);
    if (free_count < LIST) free_handles[free_count++] = blocks[i].handle;
    memset(&blocks[i], 0, sizeof blocks[i]);
}

/* May `device` do `wanted` (1 read, 3 read and write) with all of it? */
static int may(int device, U at, U bytes, int wanted) {
    while (bytes) {
        U step = 0;
        EACH(maps, i) if (maps[i].size && maps[i].at <= at && at < maps[i].at + maps[i].size) {
            if ((maps[i].access[device] & wanted) != wanted) return 0;
            step = maps[i].at + maps[i].size - at;
        }
        EACH(plains, i) if (plains[i].size && plains[i].at <= at && at < plains[i].at + plains[i].size) {
            if (plains[i].device >= 0 && plains[i].device != device) return 0;
            step = plains[i].at + plains[i].size - at;
        }
        if (!step) return 0;
        at += step < bytes ? step : bytes;
        bytes -= step < bytes ? step : bytes;
    }
    return 1;
}
static R move(int device, U dst, U src, U bytes) {
    pthread_mutex_lock(&big);
    R status = may(device, src, bytes, 1) && may(device, dst, bytes, 3) ? OK : FAULT;
    if (status == OK) memcpy((void *)dst, (void *)src, bytes);
    pthread_mutex_unlock(&big);
    return status;
}
static U slot_of(Plain p) {
    EACH(plains, i) if (!plains[i].size) { plains[i] = p; return i; }
    abort();
}

/* Streams: what is enqueued is an Op; a graph is a list of them. */
typedef struct Event { U magic; _Atomic U recorded, done; } Event;
typedef struct Op {
    enum { COPY, UPLOAD, TABLE, ROUTE, STEP, CALL, WRITE, WAIT, RECORD, WAIT_EVENT, GRAPH } kind;
    U a, b, c;
    U *table;
    size_t table_bytes;
    U *seen; /* of a ROUTE: what its tables held when it was launched */
    struct Op *origin; /* of an op of an executable graph: the node that it was made of */
    void (*function)(void *);
    Event *event;
    struct Graph *graph;
    struct Op *next;
} Op;
typedef struct Graph { U magic; Op *first; _Atomic int refs; int destroyed; struct Graph *source; } Graph;
typedef struct Stream {
    U magic;
    Ctx *ctx;
    pthread_t thread, capturer;
    pthread_mutex_t lock;
    pthread_cond_t change;
    Op *first, **last, *kept, **kept_last, *newest;
    int capture_mode; /* -1: not captured */
    int closing, blocking;
    U entered, finished, capture_id;
} Stream;
static U stream_magic = 0x57575757, event_magic = 0xE7E7E7E7, graph_magic = 0x69696969;

/* The kernel of cli/src/cuda/step.cu: looks at words of a slot, then writes them. */
typedef struct { U address, bytes; uint32_t check, write, counter, unused; } StepSlot;
static U mix(U x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
static U step_span(const StepSlot *s, U from, U to, const U *seed, int writes) {
    U bad = 0;
    for (U at = from; at < to; at += 8) {
        U word = mix(*seed + at), n = to - at < 8 ? to - at : 8;
        if (writes) memcpy((char *)s->address + at, &word, n);
        else bad += memcmp((char *)s->address + at, &word, n) != 0;
    }
    return bad;
}
static U step_words(const StepSlot *s, const U *seed, int writes) {
    const U whole = 64 << 10;
    if (s->bytes <= whole) return step_span(s, 0, s->bytes, seed, writes);
    U bad = step_span(s, 0, 64, seed, writes);
    for (U at = whole; at + 8 <= s->bytes; at += whole) bad += step_span(s, at, at + 8, seed, writes);
    return bad + step_span(s, (s->bytes - 64) & ~7ull, s->bytes, seed, writes);
}
static R step(int device, const StepSlot *slots, U count, const U *seeds, uint32_t *wrong) {
    R status = OK;
    pthread_mutex_lock(&big);
    for (const StepSlot *s = slots; !status && s < slots + count; s++) {
        if (!may(device, s->address, s->bytes, s->write == ~0u ? 1 : 3)) status = FAULT;
        if (!status && s->check != ~0u) wrong[s->counter] += step_words(s, seeds + s->check, 0);
        if (!status && s->write != ~0u) step_words(s, seeds + s->write, 1);
    }
    pthread_mutex_unlock(&big);
    return status;
}
static void drop_op(Op *op) { free(op->table); free(op->seen); free(op); }
static void unref(Graph *g) {
    if (!g || --g->refs) return;
    for (Op *op = g->first, *next; op; op = next) { next = op->next; drop_op(op); }
    unref(g->source);
    free(g);
}

/* A route's kernel: words of a head (tiles, count and first slice, flags and how many far ends are others'), then the far
 * ends, those of others, and where to leave these. With the flag BEHIND the first word is where the far ends were left. */
enum { HEAD = 3, TILE = 3, OUTWARD = 1, BEHIND = 2 };
static U others_of(const U *words) { return words[2] >> 32; }
static int in_plain(int device, U at, U bytes) {
    EACH(plains, i) if (plains[i].size && plains[i].device == device && plains[i].at <= at && at + bytes <= plains[i].at + plains[i].size) return 1;
    return 0;
}
/* The tiles of a route's launch, and their bytes. */
static U tables_of(const Op *op, U *out) {
    U bytes = op->a * TILE * sizeof(U);
    if (out) memcpy(out, (void *)op->table[0], bytes);
    return bytes;
}
static R check_route(const Op *op, int device) {
    pthread_mutex_lock(&big);
    const U *far = op->table + HEAD;
    U count = op->table[1] & 0xffffffff, others = others_of(op->table);
    int good = in_plain(device, op->table[0], op->a * TILE * sizeof(U));
    if (others) good = good && in_plain(device, far[count + others], others * sizeof(U));
    if (op->table[2] & BEHIND) good = good && in_plain(device, far[0], count * sizeof(U));
    pthread_mutex_unlock(&big);
    return good ? OK : breach(FAULT, "a route's table is not where it should be");
}
/* Takes down what a launch must find when it runs. */
static void take_down(Op *op, int device) {
    if (op->kind != ROUTE || check_route(op, device)) return;
    op->seen = malloc(tables_of(op, NULL));
    tables_of(op, op->seen);
}
static R run_route(int device, const Op *op) {
    if (!op->seen || check_route(op, device)) return FAULT;
    U *now = malloc(tables_of(op, NULL)), bytes = tables_of(op, now);
    int changed = memcmp(now, op->seen, bytes);
    U count = op->table[1] & 0xffffffff, first = op->table[1] >> 32, outward = op->table[2] & OUTWARD;
    const U *far = op->table + HEAD, others = others_of(op->table);
    if (others) memcpy((void *)far[count + others], far + count, others * sizeof(U));
    if (op->table[2] & BEHIND) far = (const U *)far[0];
    R status = OK;
    for (U i = 0; i < op->a && !status; i++) {
        const U *tile = now + i * TILE;
        U slice = tile[2] >> 32, n = tile[2] & 0xffffffff;
        if (slice < first || slice - first >= count || !n) { status = breach(FAULT, "a tile of another slice"); break; }
        if (!far[slice - first]) continue;
        U at = far[slice - first] + tile[1];
        status = outward ? move(device, at, tile[0], n) : move(device, tile[0], at, n);
    }
    free(now);
    return changed ? breach(FAULT, "a table was rewritten under a launch that reads it") : status;
}

static R perform(Stream *s, Op *op) {
    int device = s->ctx->device;
    R status = OK;
    switch (op->kind) {
    case COPY: return move(device, op->a, op->b, op->c);
    case TABLE:
        for (U i = 0; i < (op->table[0] & 0xffffffff) && !status; i++) {
            U *e = op->table + 2 + 3 * i;
            status = move(device, e[0], e[1], e[2] & ((1ull << 40) - 1));
        }
        return status;
    case UPLOAD:
        pthread_mutex_lock(&big);
        status = may(device, op->a, op->table_bytes, 3) ? OK : FAULT;
        if (!status) memcpy((void *)op->a, op->table, op->table_bytes);
        pthread_mutex_unlock(&big);
        return status;
    case ROUTE: return run_route(device, op);
    case STEP: return step(device, (StepSlot *)op->table, op->a, (U *)op->b, (uint32_t *)op->c);
    case CALL: inside = 1; op->function((void *)op->a); inside = 0; return OK;
    case WRITE: __atomic_store_n((U *)op->a, op->b, __ATOMIC_RELEASE); return OK;
    case WAIT:
        while ((int64_t)(__atomic_load_n((U *)op->a, __ATOMIC_ACQUIRE) - op->b) < 0) {
            if (s->ctx->sticky || s->ctx->dead) return s->ctx->sticky;
            usleep(20);
        }
        return OK;
    case RECORD: op->event->done = op->a; return OK;
    case WAIT_EVENT:
        while (op->event->done < op->a && !s->ctx->sticky) usleep(20);
        return OK;
    case GRAPH:
        for (Op *o = op->graph->first; o && !status; o = o->next) status = perform(s, o);
        unref(op->graph);
        return status;
    }
    return OK;
}
static _Atomic int held; /* streams lag: nothing runs */
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
        while (held) usleep(50);
        if (!s->ctx->sticky) {
            R status = perform(s, op);
            if (status) s->ctx->sticky = status;
        }
        drop_op(op);
        pthread_mutex_lock(&s->lock);
        s->finished++;
        pthread_cond_broadcast(&s->change);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
static Stream *make_stream(Ctx *ctx) {
    Stream *s = calloc(1, sizeof *s);
    s->magic = stream_magic;
    s->ctx = ctx;
    s->capture_mode = -1;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->change, NULL);
    if (pthread_create(&s->thread, NULL, work, s)) abort();
    return s;
}
/* The stream that a handle names: NULL, 1 and 2 are the current context's. */
static Stream *stream_at(U handle) {
    if (handle > 2) {
        Stream *s = (Stream *)handle;
        return s->magic == stream_magic ? s : NULL;
    }
    Ctx *ctx = current();
    if (!ctx) return NULL;
    pthread_mutex_lock(&big);
    if (!ctx->null_stream) ctx->null_stream = make_stream(ctx);
    pthread_mutex_unlock(&big);
    return ctx->null_stream;
}
#define STREAM(s, handle) Stream *s = stream_at(handle); if (!s) return breach(BAD_HANDLE, __func__); \
    if (s->ctx->dead || s->ctx->sticky) return s->ctx->dead ? DESTROYED : s->ctx->sticky
static R put(Stream *s, Op proto, int may_be_captured) {
    Op *op = malloc(sizeof *op);
    *op = proto;
    op->next = NULL;
    pthread_mutex_lock(&s->lock);
    R status = OK;
    if (s->capture_mode >= 0 && !may_be_captured) {
        status = breach(CAPTURE_UNSUPPORTED, "enqueued on a captured stream");
    } else if (s->capture_mode >= 0) {
        *s->kept_last = s->newest = op;
        s->kept_last = &op->next;
    } else {
        take_down(op, s->ctx->device);
        *s->last = op;
        s->last = &op->next;
        s->entered++;
        pthread_cond_broadcast(&s->change);
    }
    pthread_mutex_unlock(&s->lock);
    if (status) drop_op(op);
    return status;
}

/* The driver, devices and contexts. */
static struct { char name[64]; U value; } settings[16];
static U from_env(const char *name, U otherwise) {
    for (int i = 0; i < 16; i++) if (strcmp(settings[i].name, name) == 0) return settings[i].value;
    const char *v = getenv(name);
    return v ? strtoull(v, NULL, 10) : otherwise;
}
API R cuInit(unsigned flags) {
    R status = enter(__func__);
    int answer = from_env("FAKE_CUDA_INIT", 0);
    if (status || answer) return status ? status : answer;
    if (flags) return breach(INVALID, "cuInit flags");
    if (inited) return OK;
    devices = from_env("FAKE_CUDA_DEVICES", 2);
    version = from_env("FAKE_CUDA_VERSION", 13000);
    sm = from_env("FAKE_CUDA_SM", 90);
    has_vmm = from_env("FAKE_CUDA_VMM", 1);
    has_values = from_env("FAKE_CUDA_STREAM_VALUES", 1);
    peers = from_env("FAKE_CUDA_PEERS", 1);
    memory = from_env("FAKE_CUDA_MEMORY", memory);
    takes_ptx = from_env("FAKE_CUDA_PTX", 1);
    inited = 1;
    return OK;
}
API R cuDriverGetVersion(int *v) { R s = enter(__func__); if (s) return s; *v = from_env("FAKE_CUDA_VERSION", 13000); return OK; }
API R cuDeviceGetCount(int *n) { ENTER(); *n = devices; return OK; }
API R cuDeviceGet(int *d, int i) { ENTER(); if (i < 0 || i >= devices) return BAD_DEVICE; *d = i; return OK; }
API R cuDeviceGetName(char *name, int n, int d) { ENTER(); snprintf(name, n, "fake CUDA device %d", d); return OK; }
API R cuDeviceTotalMem_v2(size_t *bytes, int d) { ENTER(); (void)d; *bytes = memory; return OK; }
API R cuDeviceGetAttribute(int *v, int attribute, int d) {
    ENTER();
    if (d < 0 || d >= devices) return BAD_DEVICE;
    switch (attribute) {
    case 36: *v = 3201000; return OK;
    case 37: *v = 6144; return OK;
    case 75: *v = sm / 10; return OK;
    case 76: *v = sm % 10; return OK;
    case 102: case 103: *v = has_vmm; return OK;
    case 110: *v = 1; return OK;
    case 122: *v = has_values; return OK;
    default: return breach(INVALID, "attribute");
    }
}
API R cuDeviceCanAccessPeer(int *can, int d, int p) {
    ENTER();
    if (d == p) return breach(BAD_DEVICE, "peer of itself");
    *can = peers;
    return OK;
}
API R cuGetErrorName(R status, const char **name) {
    if (status != 4242) return INVALID;
    *name = "CUDA_ERROR_OF_THE_FAKE";
    return OK;
}
API R cuDevicePrimaryCtxRetain(Ctx **out, int d) {
    ENTER();
    if (d < 0 || d >= devices) return BAD_DEVICE;
    pthread_mutex_lock(&big);
    Ctx *c = &primaries[d];
    if (!c->refs++) { c->magic = ctx_magic; c->device = d; c->primary = 1; c->dead = 0; c->id = next_ctx++; }
    pthread_mutex_unlock(&big);
    *out = c;
    return OK;
}
API R cuDevicePrimaryCtxRelease_v2(int d) {
    ENTER();
    if (primaries[d].refs <= 0) return breach(BAD_CONTEXT, "released too often");
    primaries[d].refs--;
    return OK;
}
/* The owner destroys what is in it; whoever retained it still has to release it. */
API R cuDevicePrimaryCtxReset_v2(int d) { ENTER(); primaries[d].dead = 1; return OK; }
API R cuCtxCreate_v2(Ctx **out, unsigned flags, int d) {
    ENTER();
    (void)flags;
    Ctx *c = calloc(1, sizeof *c);
    c->magic = ctx_magic; c->device = d; c->id = next_ctx++;
    stack[depth++] = c;
    *out = c;
    return OK;
}
API R cuCtxDestroy_v2(Ctx *c) {
    ENTER();
    c->dead = 1; /* the struct stays, so that a later use is told and not a crash */
    if (current() == c) depth--;
    return OK;
}
API R cuCtxGetCurrent(Ctx **out) { ENTER(); *out = current(); return OK; }
API R cuCtxGetId(Ctx *c, U *id) {
    ENTER();
    if (!c) c = current();
    if (c->dead) return DESTROYED;
    *id = c->id;
    return OK;
}
API R cuCtxPushCurrent_v2(Ctx *c) {
    ENTER();
    if (!c || c->magic != ctx_magic) return breach(BAD_CONTEXT, __func__);
    if (c->dead) return DESTROYED;
    if (depth == 64) abort();
    stack[depth++] = c;
    return OK;
}
API R cuCtxPopCurrent_v2(Ctx **out) { ENTER(); if (!depth) return breach(BAD_CONTEXT, __func__); *out = stack[--depth]; return OK; }
API R cuCtxGetDevice(int *d) { ENTER(); NEED_CTX(); *d = current()->device; return OK; }
API R cuThreadExchangeStreamCaptureMode(int *m) { ENTER(); int old = mode; if (*m < 0 || *m > 2) return INVALID; mode = *m; *m = old; return OK; }

/* Plain memory. */
API R cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ENTER(); NEED_CTX();
    pthread_mutex_lock(&big);
    *total = memory; *free_bytes = memory - used[current()->device];
    pthread_mutex_unlock(&big);
    return OK;
}
API R cuMemAlloc_v2(U *at, size_t bytes) {
    ENTER(); NEED_CTX(); UNSAFE_IN_CAPTURE();
    if (!bytes) return breach(INVALID, __func__);
    pthread_mutex_lock(&big);
    int d = current()->device;
    R status = used[d] + bytes > memory ? OOM : OK;
    if (!status) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) status = OOM;
        else { used[d] += bytes; slot_of((Plain){(U)p, bytes, d}); *at = (U)p; }
    }
    pthread_mutex_unlock(&big);
    return status;
}
static R free_plain(U at, int pinned, const char *who) {
    pthread_mutex_lock(&big);
    R status = INVALID;
    EACH(plains, i) if (plains[i].size && plains[i].at == at && (plains[i].device < 0) == pinned) {
        if (pinned) free((void *)at);
        else { munmap((void *)at, plains[i].size); used[plains[i].device] -= plains[i].size; }
        plains[i].size = 0;
        status = OK;
        break;
    }
    pthread_mutex_unlock(&big);
    return status ? breach(status, who) : OK;
}
API R cuMemFree_v2(U at) { ENTER(); NEED_CTX(); UNSAFE_IN_CAPTURE(); return free_plain(at, 0, __func__); }
API R cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    ENTER(); NEED_CTX(); UNSAFE_IN_CAPTURE();
    (void)flags;
    if (posix_memalign(at, 4096, bytes)) return OOM;
    memset(*at, 0xA5, bytes);
    pthread_mutex_lock(&big);
    slot_of((Plain){(U)*at, bytes, -1});
    pthread_mutex_unlock(&big);
    return OK;
}
API R cuMemFreeHost(U at) { ENTER(); NEED_CTX(); UNSAFE_IN_CAPTURE(); return free_plain(at, 1, __func__); }
API R cuMemHostGetDevicePointer_v2(U *out, U host, unsigned flags) { ENTER(); NEED_CTX(); if (flags) return INVALID; *out = host; return OK; }

/* Virtual memory. Whatever our side should have refused itself is a breach. */
typedef struct { int32_t kind, handle_types, location, id; U meta; uint8_t compression, rdma; uint16_t usage; uint8_t reserved[4]; } Prop;
typedef struct { int32_t location, id, flags; } Access;
_Static_assert(sizeof(Prop) == 32 && sizeof(Access) == 12, "as in cuda.h");
static int good(const Prop *p) {
    return p->kind == 1 && p->location == 1 && p->id >= 0 && p->id < devices && !p->meta && !p->usage && !p->compression;
}
API R cuMemGetAllocationGranularity(size_t *g, const Prop *p, int option) {
    ENTER();
    if (!has_vmm) return NOT_SUPPORTED;
    if (!good(p) || option < 0 || option > 1) return breach(INVALID, __func__);
    *g = GRANULE;
    return OK;
}
API R cuMemAddressReserve(U *at, size_t size, size_t alignment, U hint, U flags) {
    ENTER();
    if (!size || size % GRANULE || (alignment & (alignment - 1)) || flags) return breach(INVALID, __func__);
    if (alignment < GRANULE) alignment = GRANULE;
    if (size > 1ull << 46) return OOM;
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *p = hint && hint % alignment == 0 ? mmap((void *)hint, size, PROT_NONE, how | MAP_FIXED_NOREPLACE, -1, 0) : MAP_FAILED;
    U start = (U)p;
    if (p == MAP_FAILED) {
        if ((p = mmap(NULL, size + alignment, PROT_NONE, how, -1, 0)) == MAP_FAILED) return OOM;
        start = ((U)p + alignment - 1) & ~(alignment - 1);
        if (start > (U)p) munmap(p, start - (U)p);
        U end = (U)p + size + alignment;
        if (end > start + size) munmap((void *)(start + size), end - start - size);
    }
    pthread_mutex_lock(&big);
    EACH(ranges, i) if (!ranges[i].size) { ranges[i] = (Range){start, size}; break; }
    pthread_mutex_unlock(&big);
    *at = start;
    return OK;
}
API R cuMemAddressFree(U at, size_t size) {
    ENTER();
    R status = INVALID;
    pthread_mutex_lock(&big);
    EACH(maps, i) if (maps[i].size && maps[i].at < at + size && at < maps[i].at + maps[i].size) {
        pthread_mutex_unlock(&big);
        return breach(INVALID, "freed a range that is mapped");
    }
    EACH(ranges, i) if (ranges[i].size == size && ranges[i].at == at) {
        munmap((void *)at, size);
        ranges[i].size = 0;
        status = OK;
    }
    pthread_mutex_unlock(&big);
    return status ? breach(status, __func__) : OK;
}
API R cuMemCreate(U *handle, size_t size, const Prop *p, U flags) {
    ENTER();
    if (!has_vmm) return NOT_SUPPORTED;
    if (!good(p) || !size || size % GRANULE || flags || (p->handle_types & ~1)) return breach(INVALID, __func__);
    pthread_mutex_lock(&big);
    R status = used[p->id] + size > memory ? OOM : OK;
    if (!status) {
        int fd = memfd_create("fake-cuda-block", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, size)) status = 304;
        EACH(blocks, i) if (!status && !blocks[i].size) {
            blocks[i] = (Block){new_handle(), size, p->id, fd, p->handle_types & 1, 1, 0, p->rdma, 0, 0};
            used[p->id] += size;
            *handle = blocks[i].handle;
            break;
        }
    }
    pthread_mutex_unlock(&big);
    return status;
}
API R cuMemRelease(U handle) {
    ENTER();
    pthread_mutex_lock(&big);
    int i = find_block(handle);
    if (i >= 0) { blocks[i].refs--; drop_block(i); }
    pthread_mutex_unlock(&big);
    return i < 0 ? breach(INVALID, __func__) : OK;
}
API R cuMemMap(U at, size_t size, size_t offset, U handle, U flags) {
    ENTER();
    R status = INVALID;
    const char *why = "map: outside of every range";
    if (offset || flags) return breach(NOT_SUPPORTED, "map with an offset");
    pthread_mutex_lock(&big);
    int b = find_block(handle);
    EACH(ranges, i) if (ranges[i].size && ranges[i].at <= at && at + size <= ranges[i].at + ranges[i].size) status = OK;
    EACH(maps, i) if (maps[i].size && maps[i].at < at + size && at < maps[i].at + maps[i].size) { status = INVALID; why = "map: mapped already"; }
    if (b < 0) { status = INVALID; why = "map: no such block"; }
    if (!status && at % GRANULE) { status = INVALID; why = "map: misaligned"; }
    /* A probe of a handle from outside maps the wrong size on purpose: refused, and no breach. */
    if (!status && blocks[b].size != size) { pthread_mutex_unlock(&big); return size < blocks[b].size ? NOT_SUPPORTED : INVALID; }
    if (!status && blocks[b].stuck) { pthread_mutex_unlock(&big); return 999; }
    if (!status) EACH(maps, i) if (!maps[i].size) {
        maps[i] = (Map){.at = at, .size = size, .block = b, .first = !blocks[b].maps};
        blocks[b].maps++;
        if (mmap((void *)at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, blocks[b].fd, 0) == MAP_FAILED) abort();
        break;
    }
    pthread_mutex_unlock(&big);
    return status ? breach(status, why) : OK;
}
API R cuMemUnmap(U at, size_t size) {
    ENTER();
    U found = 0;
    int partial = 0;
    pthread_mutex_lock(&big);
    EACH(maps, i) if (maps[i].size && maps[i].at < at + size && at < maps[i].at + maps[i].size)
        if (maps[i].at < at || maps[i].at + maps[i].size > at + size) partial = 1;
    if (!partial) EACH(maps, i) if (maps[i].size && at <= maps[i].at && maps[i].at < at + size) {
        found += maps[i].size;
        if (mmap((void *)maps[i].at, maps[i].size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) abort();
        maps[i].size = 0;
        Block *of = &blocks[maps[i].block];
        of->maps--;
        of->spoilt = of->maps && (of->spoilt || (of->rdma && maps[i].first));
        of->stuck = of->stuck && of->maps;
        drop_block(maps[i].block);
    }
    pthread_mutex_unlock(&big);
    if (partial) return breach(INVALID, "unmap: a part of a mapping");
    /* CUDA lets it pass; whoever relies on that has lost count. */
    return found == size ? OK : breach(OK, "unmap: not exactly what was mapped");
}
API R cuMemSetAccess(U at, size_t size, const Access *list, size_t count) {
    ENTER();
    U found = 0;
    int partial = 0;
    for (size_t k = 0; k < count; k++)
        if (list[k].location != 1 || list[k].id < 0 || list[k].id >= devices || list[k].flags < 0 || list[k].flags > 3 || list[k].flags == 2)
            return breach(INVALID, "set-access: a bad list");
    if (!count) return breach(INVALID, "set-access: an empty list");
    pthread_mutex_lock(&big);
    EACH(maps, i) if (maps[i].size && maps[i].at < at + size && at < maps[i].at + maps[i].size) {
        if (maps[i].at < at || maps[i].at + maps[i].size > at + size) partial = 1;
        found += maps[i].size;
    }
    if (!partial && found == size) EACH(maps, i) if (maps[i].size && at <= maps[i].at && maps[i].at < at + size)
        for (size_t k = 0; k < count; k++) {
            if (!peers && list[k].id != blocks[maps[i].block].device) { pthread_mutex_unlock(&big); return breach(INVALID, "set-access: a peer out of reach"); }
            Block *of = &blocks[maps[i].block];
            of->stuck = of->stuck || (of->spoilt && maps[i].access[list[k].id] != list[k].flags);
            maps[i].access[list[k].id] = list[k].flags;
        }
    pthread_mutex_unlock(&big);
    if (partial) return breach(INVALID, "set-access: a part of a mapping");
    /* Over some holes it succeeds; whoever relies on that is wrong. */
    return found == size ? OK : breach(INVALID, "set-access: over a hole");
}
API R cuMemGetAccess(U *flags, const int32_t *location, U at) {
    ENTER();
    R status = INVALID;
    if (location[0] != 1 || location[1] < 0 || location[1] >= devices) return breach(INVALID, __func__);
    pthread_mutex_lock(&big);
    EACH(maps, i) if (maps[i].size && maps[i].at <= at && at < maps[i].at + maps[i].size) { *flags = maps[i].access[location[1]]; status = OK; }
    pthread_mutex_unlock(&big);
    return status;
}
API R cuMemGetAllocationPropertiesFromHandle(Prop *p, U handle) {
    ENTER();
    pthread_mutex_lock(&big);
    int i = find_block(handle);
    if (i >= 0) *p = (Prop){.kind = 1, .location = 1, .id = blocks[i].device, .handle_types = blocks[i].exportable};
    pthread_mutex_unlock(&big);
    /* The real one looks behind the handle, and may crash. */
    return i < 0 ? breach(INVALID, "asked about a handle of no block") : OK;
}
/* What was exported outlives its block while a descriptor is open. */
static struct Export { ino_t file; U size; int device; } exported[LIST];
static int exports;
API R cuMemExportToShareableHandle(int *fd, U handle, int kind, U flags) {
    ENTER();
    pthread_mutex_lock(&big);
    int i = find_block(handle);
    R status = i < 0 || kind != 1 || flags || !blocks[i].exportable ? breach(INVALID, __func__) : OK;
    if (!status && (*fd = dup(blocks[i].fd)) < 0) status = 304;
    if (!status) {
        struct stat s;
        fstat(*fd, &s);
        exported[exports++ % LIST] = (struct Export){s.st_ino, blocks[i].size, blocks[i].device};
    }
    pthread_mutex_unlock(&big);
    return status;
}
/* A descriptor of this process only: the same handle again, as the driver may give, while the block lives. */
API R cuMemImportFromShareableHandle(U *handle, U fd, int kind) {
    ENTER();
    struct stat a, b;
    R status = INVALID;
    if (kind != 1 || fstat((int)fd, &a)) return INVALID;
    pthread_mutex_lock(&big);
    EACH(blocks, i) if (status && blocks[i].size && !fstat(blocks[i].fd, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev) {
        blocks[i].refs++;
        *handle = blocks[i].handle;
        status = OK;
    }
    for (int e = 0; status && e < LIST; e++) if (exported[e].size && exported[e].file == a.st_ino) {
        EACH(blocks, i) if (!blocks[i].size) {
            int own = fcntl((int)fd, F_DUPFD_CLOEXEC, 0);
            if (own < 0) { status = 304; e = LIST; break; }
            blocks[i] = (Block){new_handle(), exported[e].size, exported[e].device, own, 1, 1, 0, 0, 0, 0};
            used[exported[e].device] += exported[e].size;
            *handle = blocks[i].handle;
            status = OK;
            break;
        }
    }
    pthread_mutex_unlock(&big);
    return status;
}

/* Streams, events, copies. */
API R cuStreamCreate(Stream **out, unsigned flags) { ENTER(); NEED_CTX(); if (flags > 1) return INVALID; *out = make_stream(current()); return OK; }
static void wait_idle(Stream *s) {
    pthread_mutex_lock(&s->lock);
    U goal = s->entered;
    while (s->finished < goal) pthread_cond_wait(&s->change, &s->lock);
    pthread_mutex_unlock(&s->lock);
}
API R cuStreamDestroy_v2(U h) {
    ENTER(); NEED_CTX();
    Stream *s = stream_at(h);
    if (!s || h <= 2) return breach(BAD_HANDLE, __func__);
    pthread_mutex_lock(&s->lock);
    s->closing = 1;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->magic = 0; /* the struct stays, so that a later use is told and not a crash */
    return OK;
}
API R cuStreamSynchronize(U h) {
    ENTER(); NEED_CTX();
    STREAM(s, h);
    if (s->capture_mode >= 0) return breach(CAPTURE_UNSUPPORTED, __func__);
    wait_idle(s);
    return s->ctx->sticky;
}
API R cuStreamQuery(U h) {
    ENTER(); NEED_CTX();
    STREAM(s, h);
    if (s->capture_mode >= 0) return breach(CAPTURE_UNSUPPORTED, __func__);
    pthread_mutex_lock(&s->lock);
    int busy = s->finished < s->entered;
    pthread_mutex_unlock(&s->lock);
    return busy ? NOT_READY : OK;
}
API R cuStreamGetCtx(U h, Ctx **out) {
    ENTER();
    Stream *s = stream_at(h);
    if (!s) return breach(h <= 2 ? BAD_CONTEXT : BAD_HANDLE, __func__);
    if (s->ctx->dead) return DESTROYED;
    *out = s->ctx;
    return OK;
}
#define SAME_CTX(s) if ((s)->ctx != current()) return breach(BAD_CONTEXT, __func__)
API R cuStreamIsCapturing(U h, int *status) { ENTER(); STREAM(s, h); *status = s->capture_mode >= 0; return OK; }
API R cuStreamBeginCapture_v2(U h, int m) {
    ENTER(); NEED_CTX();
    STREAM(s, h);
    if (h == 0 || s->capture_mode >= 0) return breach(BAD_STATE, __func__);
    static _Atomic U captures;
    s->capture_mode = m;
    s->capture_id = ++captures;
    s->capturer = pthread_self();
    s->kept = s->newest = NULL;
    s->kept_last = &s->kept;
    if (m == 0) global_captures++;
    return OK;
}
API R cuStreamEndCapture(U h, Graph **out) {
    ENTER(); NEED_CTX();
    STREAM(s, h);
    if (s->capture_mode < 0) return breach(BAD_STATE, __func__);
    if (s->capture_mode != 2 && !pthread_equal(s->capturer, pthread_self())) return breach(WRONG_THREAD, __func__);
    if (s->capture_mode == 0) global_captures--;
    s->capture_mode = -1;
    Graph *g = calloc(1, sizeof *g);
    *g = (Graph){.magic = graph_magic, .first = s->kept, .refs = 1};
    *out = g;
    return OK;
}
/* The nodes that what comes next on the stream will follow: the newest. */
API R cuStreamGetCaptureInfo_v2(U h, int *status, U *id, Graph **graph, Op *const **nodes, size_t *count) {
    ENTER(); NEED_CTX();
    STREAM(s, h);
    *status = s->capture_mode >= 0;
    if (!*status) return OK;
    if (id) *id = s->capture_id;
    if (graph) *graph = NULL;
    *nodes = &s->newest;
    *count = s->newest != NULL;
    return OK;
}
/* A copy of what a graph holds. */
static Graph *copy_graph(const Graph *g, int executable) {
    Graph *copy = calloc(1, sizeof *copy);
    *copy = (Graph){.magic = graph_magic, .refs = 1};
    Op **last = &copy->first;
    for (Op *op = g->first; op; op = op->next) {
        Op *own = malloc(sizeof *own);
        *own = *op;
        own->next = NULL;
        own->seen = NULL;
        own->origin = executable ? op : op->origin;
        if (op->table) { own->table = malloc(op->table_bytes); memcpy(own->table, op->table, op->table_bytes); }
        *last = own;
        last = &own->next;
    }
    return copy;
}
API R cuGraphInstantiateWithFlags(Graph **exec, Graph *g, U flags) {
    ENTER();
    if (flags || g->magic != graph_magic) return breach(INVALID, __func__);
    *exec = copy_graph(g, 1);
    g->refs++;
    (*exec)->source = g;
    return OK;
}
/* A launch has its own copy: what is changed later does not concern it. */
API R cuGraphLaunch(Graph *g, U h) {
    ENTER(); NEED_CTX();
    STREAM(s, h);
    if (g->magic != graph_magic) return breach(BAD_HANDLE, __func__);
    Graph *launch = copy_graph(g, 0);
    for (Op *op = launch->first; op; op = op->next) take_down(op, s->ctx->device);
    R status = put(s, (Op){.kind = GRAPH, .graph = launch}, 0);
    if (status) unref(launch);
    return status;
}
API R cuGraphExecDestroy(Graph *g) { ENTER(); unref(g); return OK; }
API R cuGraphDestroy(Graph *g) { ENTER(); g->destroyed = 1; unref(g); return OK; }
API R cuEventCreate(Event **out, unsigned flags) { ENTER(); NEED_CTX(); (void)flags; Event *e = calloc(1, sizeof *e); e->magic = event_magic; *out = e; return OK; }
API R cuEventRecord(Event *e, U h) {
    ENTER(); NEED_CTX();
    STREAM(s, h); SAME_CTX(s);
    return put(s, (Op){.kind = RECORD, .event = e, .a = ++e->recorded}, 1);
}
API R cuEventQuery(Event *e) { ENTER(); NEED_CTX(); UNSAFE_IN_CAPTURE(); if (e->magic != event_magic) return breach(BAD_HANDLE, __func__); return e->done == e->recorded ? OK : NOT_READY; }
API R cuEventDestroy_v2(Event *e) { ENTER(); NEED_CTX(); if (e->magic != event_magic) return breach(BAD_HANDLE, __func__); return OK; /* the struct stays: a stream may still wait for it */ }
API R cuStreamWaitEvent(U h, Event *e, unsigned flags) { ENTER(); NEED_CTX(); (void)flags; STREAM(s, h); return put(s, (Op){.kind = WAIT_EVENT, .event = e, .a = e->recorded}, 1); }
API R cuStreamWriteValue64_v2(U h, U at, U value, unsigned flags) {
    ENTER(); NEED_CTX();
    STREAM(s, h); SAME_CTX(s);
    if (!has_values || flags || at % 8) return breach(NOT_SUPPORTED, __func__);
    return put(s, (Op){.kind = WRITE, .a = at, .b = value}, 0);
}
API R cuStreamWaitValue64_v2(U h, U at, U value, unsigned flags) {
    ENTER(); NEED_CTX();
    STREAM(s, h); SAME_CTX(s);
    if (!has_values || flags || at % 8) return breach(NOT_SUPPORTED, __func__);
    return put(s, (Op){.kind = WAIT, .a = at, .b = value}, 0);
}
API R cuMemcpyAsync(U dst, U src, size_t bytes, U h) { ENTER(); NEED_CTX(); STREAM(s, h); return put(s, (Op){.kind = COPY, .a = dst, .b = src, .c = bytes}, 1); }
API R cuMemcpyDtoDAsync_v2(U dst, U src, size_t bytes, U h) { return cuMemcpyAsync(dst, src, bytes, h); }
/* One set of attributes, which says that sources are read in stream order; not on a capturing stream, nor on NULL. */
API R cuMemcpyBatchAsync(U *dst, U *src, size_t *bytes, size_t count, const uint32_t *how, size_t *from, size_t sets, size_t *failed, U h) {
    ENTER();
    NEED_CTX();
    STREAM(s, h);
    if (!h || !count || sets != 1 || from[0] != 0 || how[0] != 1) return breach(INVALID, __func__);
    if (s->capture_mode >= 0) return breach(CAPTURE_UNSUPPORTED, __func__);
    for (size_t i = 0; i < count; i++) {
        R status = put(s, (Op){.kind = COPY, .a = dst[i], .b = src[i], .c = bytes[i]}, 1);
        if (status) { *failed = i; return status; }
    }
    return OK;
}
/* From pageable memory: what is there when the call is made. */
API R cuMemcpyHtoDAsync_v2(U dst, const void *src, size_t bytes, U h) {
    ENTER(); NEED_CTX(); UNSAFE_IN_CAPTURE();
    STREAM(s, h);
    if (!bytes) return breach(INVALID, __func__);
    U *copy = malloc(bytes);
    memcpy(copy, src, bytes);
    return put(s, (Op){.kind = UPLOAD, .a = dst, .table = copy, .table_bytes = bytes}, 0);
}
/* As the driver's: on the default stream of the current context, done on return. */
API R cuMemcpyDtoH_v2(void *dst, U src, size_t bytes) { ENTER(); NEED_CTX(); if (!may(current()->device, src, bytes, 1)) return INVALID; memcpy(dst, (void *)src, bytes); return OK; }
API R cuMemcpyHtoD_v2(U dst, const void *src, size_t bytes) { ENTER(); NEED_CTX(); if (!may(current()->device, dst, bytes, 3)) return INVALID; memcpy((void *)dst, src, bytes); return OK; }
API R cuLaunchHostFunc(U h, void (*function)(void *), void *data) {
    ENTER(); NEED_CTX();
    STREAM(s, h);
    return put(s, (Op){.kind = CALL, .function = function, .a = (U)data}, 1);
}

API R cuEventElapsedTime(float *ms, Event *a, Event *b) { ENTER(); (void)a; (void)b; *ms = 0.001f; return OK; }

/* Modules: the text's version and target must fit, and a function is the size of its table. */
typedef struct Module { char *text; Ctx *ctx; } Module;
typedef struct Function { U capacity; Ctx *ctx; char kind; } Function; /* kind: copy, route, step, wait */
API R cuModuleLoadData(Module **out, const char *text) {
    ENTER(); NEED_CTX(); UNSAFE_IN_CAPTURE();
    int major = 0, minor = 0, target = 0;
    const char *v = strstr(text, ".version"), *t = strstr(text, ".target sm_");
    if (!v || !t || sscanf(v, ".version %d.%d", &major, &minor) != 2 || sscanf(t, ".target sm_%d", &target) != 1) return breach(BAD_PTX, __func__);
    if (!takes_ptx) return BAD_PTX;
    int known = version >= 12010 ? 81 : 70;
    if (major * 10 + minor > known || target > sm) return breach(PTX_VERSION, __func__);
    Module *m = malloc(sizeof *m);
    *m = (Module){strdup(text), current()};
    *out = m;
    return OK;
}
API R cuModuleUnload(Module *m) { ENTER(); NEED_CTX(); free(m->text); free(m); return OK; }
API R cuModuleGetFunction(Function **out, Module *m, const char *name) {
    ENTER(); NEED_CTX();
    char entry[128];
    U capacity = 16;
    char kind = strcmp(name, "gvmm_step") == 0 ? 's' : strcmp(name, "gvmm_spin") == 0 ? 'w' : 'c';
    if (sscanf(name, "gvmm_route_%lu", &capacity) == 1) kind = 'r';
    snprintf(entry, sizeof entry, ".entry %s(", name);
    if (!strstr(m->text, entry) || (kind == 'c' && sscanf(name, "gvmm_copy_%lu", &capacity) != 1)) return NOT_FOUND;
    Function *f = malloc(sizeof *f);
    *f = (Function){capacity, m->ctx, kind};
    *out = f;
    return OK;
}
/* The op of a route's kernel; its status where the parameters are not good. */
static R route_op(Op *op, Function *f, const unsigned grid[3], const unsigned block[3], unsigned shared, void **params, void **extra) {
    const U *words = params[0];
    U count = words[1] & 0xffffffff, n = HEAD + f->capacity;
    int shape = grid[0] && grid[1] == 1 && grid[2] == 1 && block[0] == 256 && block[1] == 1 && block[2] == 1 && !shared && !extra;
    U others = others_of(words), needed = words[2] & BEHIND ? 1 : count + others + (others != 0);
    if (!shape || !count || (words[2] & 0xffffffff) > (OUTWARD | BEHIND) || needed > f->capacity) return breach(INVALID, "a route's launch");
    *op = (Op){.kind = ROUTE, .a = grid[0], .table = malloc(n * sizeof(U)), .table_bytes = n * sizeof(U)};
    memcpy(op->table, words, n * sizeof(U));
    return OK;
}
static R step_op(Op *op, Function *f, const unsigned grid[3], const unsigned block[3], unsigned shared, void **params, void **extra) {
    int shape = grid[0] && grid[0] <= f->capacity && grid[1] == 1 && grid[2] == 1 && block[0] == 256 && block[1] == 1 && block[2] == 1;
    if (!shape || shared || extra) return breach(INVALID, "a step's launch");
    StepSlot *slots = malloc(sizeof(StepSlot) * 16);
    memcpy(slots, params[0], sizeof(StepSlot) * 16);
    *op = (Op){.kind = STEP, .table = (U *)slots, .table_bytes = sizeof(StepSlot) * 16, .a = grid[0], .b = *(U *)params[1], .c = *(U *)params[2]};
    return OK;
}
typedef struct { Function *function; unsigned grid[3], block[3], shared; void **params, **extra; } NodeParams;
_Static_assert(sizeof(NodeParams) == 56, "as in cuda.h");
API R cuGraphExecKernelNodeSetParams(Graph *exec, Op *node, const NodeParams *p) {
    ENTER(); NEED_CTX();
    if (exec->magic != graph_magic || !exec->source) return breach(INVALID, "not an executable graph");
    if (exec->source->destroyed) return breach(INVALID, "the graph of the node is gone");
    for (Op *op = exec->first; op; op = op->next) if (op->origin == node) {
        Op changed;
        int route = op->kind == ROUTE && p->function->kind == 'r';
        if (!route && (op->kind != STEP || p->function->kind != 's')) return breach(INVALID, "another node's parameters");
        R status = (route ? route_op : step_op)(&changed, p->function, p->grid, p->block, p->shared, p->params, p->extra);
        if (status) return status;
        if (route && changed.table_bytes != op->table_bytes) return breach(INVALID, "another kernel for a node");
        free(op->table);
        op->table = changed.table;
        return OK;
    }
    return INVALID;
}
API R cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, U h, void **params, void **extra) {
    ENTER(); NEED_CTX();
    STREAM(s, h); SAME_CTX(s);
    if (f->ctx != current()) return breach(BAD_CONTEXT, "a kernel of another context");
    if (f->kind == 'w') return OK;
    if (f->kind == 'r') {
        Op op;
        R status = route_op(&op, f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, params, extra);
        return status ? status : put(s, op, 1);
    }
    if (f->kind == 's') {
        Op op;
        R status = step_op(&op, f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, params, extra);
        return status ? status : put(s, op, 1);
    }
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
    return put(s, (Op){.kind = TABLE, .table = copy, .table_bytes = (2 + 3 * f->capacity) * sizeof(U)}, 1);
}

/* For tests. */
API void fake_cuda_set(const char *name, U value) {
    for (int i = 0; i < 16; i++) if (!settings[i].name[0] || strcmp(settings[i].name, name) == 0) {
        snprintf(settings[i].name, sizeof settings[i].name, "%s", name);
        settings[i].value = value;
        return;
    }
}
API U fake_cuda_breaches(void) { return __atomic_load_n(&breaches, __ATOMIC_SEQ_CST); }
API const char *fake_cuda_last_breach(void) { return last_breach; }
API U fake_cuda_calls(const char *name) {
    U count = 0;
    pthread_mutex_lock(&count_lock);
    for (int i = 0; i < 128 && counts[i].name; i++) if (strcmp(counts[i].name, name) == 0) count = counts[i].count;
    pthread_mutex_unlock(&count_lock);
    return count;
}
API void fake_cuda_fail(const char *name, U nth, R status) {
    pthread_mutex_lock(&count_lock);
    snprintf(rule.name, sizeof rule.name, "%s", name);
    rule.nth = nth;
    rule.status = status;
    pthread_mutex_unlock(&count_lock);
}
/* Lets all streams lag (1) or go on (0): what is enqueued meanwhile waits. */
API void fake_cuda_hold(U on) { held = on != 0; }
/* A sticky error, as after a kernel's fault. */
API void fake_cuda_break(int device, R status) { primaries[device].sticky = status; }
/* What lives: blocks, ranges, mappings, plain memory (pinned pages aside). */
API U fake_cuda_live(void) {
    U n = 0;
    pthread_mutex_lock(&big);
    EACH(blocks, i) n += (blocks[i].size != 0) + (ranges[i].size != 0) + (maps[i].size != 0) + (plains[i].size && plains[i].device >= 0);
    pthread_mutex_unlock(&big);
    return n;
}
API U fake_cuda_rdma_blocks(void) {
    U n = 0;
    EACH(blocks, i) n += blocks[i].size && blocks[i].rdma;
    return n;
}
API int fake_cuda_depth(void) { return depth; }
#ifdef FAKE_IN_FRONT
API int gvmm_preload_marker;
#endif
