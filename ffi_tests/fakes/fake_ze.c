/* A stand-in for libze_loader.so.1 with an Intel driver below it, over the host's memory, for tests without a GPU.
 * Blocks are memory files that are really mapped and remapped. Lists go to queues of the device, and a queue is a
 * thread that runs what it is given in order: a command that waits holds up every other list of that queue, as on
 * the real one. It lets pass what the vendor lets pass, and counts it: what a real driver would refuse, or let pass
 * and rot, is a breach, and a test fails where the count is not 0.
 *
 * cc -shared -fPIC -O1 -g -pthread -o libze_loader.so.1 fake_ze.c     (-DzeVirtualMemMap=hidden: it lacks a symbol)
 * cc -fsyntax-only -DLAYOUT_ONLY fake_ze.c                            (compares layouts with the vendor's headers)
 *
 * Settings, by fake_ze_set or from the environment: FAKE_ZE_DEVICES (2), FAKE_ZE_MEMORY (bytes of each, 4 GiB),
 * FAKE_ZE_INIT (what zeInit answers, 0), FAKE_ZE_PAGES (1: by size, 64 KiB below 2 MiB; 2: 2 MiB always),
 * FAKE_ZE_SKEW (1: addresses are aligned to 64 KiB only), FAKE_ZE_USM (1; 0: the type of mapped memory is unknown),
 * FAKE_ZE_QUEUES (queues of a device, 1), FAKE_ZE_CPU (1: a device that is no GPU comes first), FAKE_ZE_DRIVERS (1),
 * FAKE_ZE_VMM, FAKE_ZE_PEERS, FAKE_ZE_SYSMAN, FAKE_ZE_SHARING, FAKE_ZE_APPEND (1 each; 0: lacks it). At the end:
 * what fails the n-th call, or says success and does nothing. */
#define _GNU_SOURCE
#ifdef LAYOUT_ONLY
#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>
#include <stddef.h>
#define SIZE(t, n) _Static_assert(sizeof(t) == n, #t)
#define AT(t, f, n) _Static_assert(offsetof(t, f) == n, #t "." #f)
SIZE(ze_device_properties_t, 368); AT(ze_device_properties_t, type, 16); AT(ze_device_properties_t, maxMemAllocSize, 40);
AT(ze_device_properties_t, uuid, 96); AT(ze_device_properties_t, name, 112);
SIZE(ze_device_memory_properties_t, 296); AT(ze_device_memory_properties_t, totalSize, 32);
SIZE(ze_device_memory_ext_properties_t, 48); AT(ze_device_memory_ext_properties_t, readBandwidth, 32);
AT(ze_device_memory_ext_properties_t, bandwidthUnit, 40);
SIZE(ze_command_queue_group_properties_t, 40); AT(ze_command_queue_group_properties_t, numQueues, 32);
SIZE(ze_device_external_memory_properties_t, 32); AT(ze_device_external_memory_properties_t, memoryAllocationExportTypes, 20);
SIZE(ze_context_desc_t, 24); SIZE(ze_command_queue_desc_t, 40); AT(ze_command_queue_desc_t, flags, 24);
AT(ze_command_queue_desc_t, mode, 28); SIZE(ze_command_list_desc_t, 24); AT(ze_command_list_desc_t, flags, 20);
SIZE(ze_event_pool_desc_t, 24); AT(ze_event_pool_desc_t, count, 20); SIZE(ze_event_desc_t, 32); AT(ze_event_desc_t, index, 16);
SIZE(ze_device_mem_alloc_desc_t, 24); SIZE(ze_relaxed_allocation_limits_exp_desc_t, 24);
SIZE(ze_memory_allocation_properties_t, 40); AT(ze_memory_allocation_properties_t, id, 24);
SIZE(ze_physical_mem_desc_t, 32); AT(ze_physical_mem_desc_t, size, 24);
SIZE(ze_external_memory_export_desc_t, 24); SIZE(ze_external_memory_import_fd_t, 24); AT(ze_external_memory_import_fd_t, fd, 20);
SIZE(ze_external_memory_export_fd_t, 24); AT(ze_external_memory_export_fd_t, fd, 20);
SIZE(ze_driver_extension_properties_t, 260);
SIZE(zes_device_properties_t, 776); AT(zes_device_properties_t, core, 16);
SIZE(zes_mem_properties_t, 48); AT(zes_mem_properties_t, onSubdevice, 20); AT(zes_mem_properties_t, location, 28);
SIZE(zes_mem_state_t, 40); AT(zes_mem_state_t, free, 24); AT(zes_mem_state_t, size, 32);
_Static_assert(ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES == 0x3 && ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES == 0x6 &&
    ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES == 0x7 && ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES == 0xc &&
    ZE_STRUCTURE_TYPE_CONTEXT_DESC == 0xd && ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC == 0xe &&
    ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC == 0xf && ZE_STRUCTURE_TYPE_EVENT_POOL_DESC == 0x10 &&
    ZE_STRUCTURE_TYPE_EVENT_DESC == 0x11 && ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC == 0x15 &&
    ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES == 0x17 && ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC == 0x18 &&
    ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD == 0x19 && ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD == 0x1a &&
    ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC == 0x20 && ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES == 0x1000e &&
    ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC == 0x20001, "numbers of types");
_Static_assert(ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES == 0x1 && ZES_STRUCTURE_TYPE_MEM_PROPERTIES == 0xb &&
    ZES_STRUCTURE_TYPE_MEM_STATE == 0x1e, "numbers of types");
_Static_assert(ZE_RESULT_NOT_READY == 1 && ZE_RESULT_ERROR_UNINITIALIZED == 0x78000001 &&
    ZE_RESULT_ERROR_UNSUPPORTED_FEATURE == 0x78000003 && ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE == 1 &&
    ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY == 2, "numbers");
#ifdef ZE_API_VERSION_1_7
SIZE(ze_init_driver_type_desc_t, 24);
#endif
#else
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef uint32_t R;
typedef uint64_t U;
#define API __attribute__((visibility("default")))

enum { OK, NOT_READY = 1, LOST = 0x70000001, OOM_HOST = 0x70000002, OOM = 0x70000003, NO_RIGHT = 0x70010000, NOT_INIT = 0x78000001,
       NO_FEATURE = 0x78000003, BAD = 0x78000004, NO_HANDLE = 0x78000005, NO_POINTER = 0x78000007, BAD_SIZE = 0x78000009,
       BAD_ALIGN = 0x7800000a, BAD_EVENT = 0x7800000b, NO_ENUM = 0x7800000d, BAD_LIST = 0x78000019, YES = 0x78000022, NO = 0x78000023,
       UNKNOWN = 0x7ffffffe };
enum { SMALL = 64 << 10, LARGE = 2 << 20, MAX = 8, LIST = 8192 };

static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER; /* all tables below */
static int inited;
static U breaches;
static char last_breach[256];

static R breach(R status, const char *what) {
    __atomic_add_fetch(&breaches, 1, __ATOMIC_SEQ_CST);
    snprintf(last_breach, sizeof last_breach, "%s (answered %x)", what, status);
    if (getenv("FAKE_ZE_TRACE")) fprintf(stderr, "fake_ze breach: %s\n", last_breach);
    return status;
}

static struct { char name[64]; U value; } settings[32];
static U setting(const char *name, U otherwise) {
    for (int i = 0; i < 32; i++) if (strcmp(settings[i].name, name) == 0) return settings[i].value;
    const char *v = getenv(name);
    return v ? strtoull(v, NULL, 10) : otherwise;
}

/* Calls by name: how many, and a rule that makes one fail, or (status 0) do nothing and say success. */
static struct { const char *name; U count; } counts[128];
static struct { char name[64]; U nth; R status; } rule;
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;
static int enter(const char *name, R *status) {
    int hit = 0;
    pthread_mutex_lock(&count_lock);
    for (int i = 0; i < 128; i++) {
        if (!counts[i].name) counts[i].name = name;
        if (strcmp(counts[i].name, name) == 0) { counts[i].count++; break; }
    }
    if (rule.nth && strcmp(rule.name, name) == 0 && --rule.nth == 0) { hit = 1; *status = rule.status; }
    pthread_mutex_unlock(&count_lock);
    return hit;
}
#define COUNT() do { R s_; if (enter(__func__, &s_)) return s_; } while (0)
#define ENTER() do { COUNT(); if (!inited) return breach(NOT_INIT, __func__); } while (0)

/* Structs start with a type's number, which must be right, and a further struct. */
typedef struct { uint32_t stype, pad; void *next; } Head;
#define TYPED(p, n) do { if (!(p)) return breach(NO_POINTER, __func__); if (((Head *)(p))->stype != (n)) return breach(BAD, __func__); } while (0)
static void *behind(void *p, uint32_t stype) {
    for (Head *h = ((Head *)p)->next; h; h = h->next) if (h->stype == stype) return h;
    return NULL;
}

typedef struct Engine {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct Op *first, **last;
    int started;
} Engine;
typedef struct Driver { U magic; int first, count; } Driver;
typedef struct Device { U magic; int number, is_gpu; Driver *driver; _Atomic R sticky; U used; Engine engines[4]; } Device;
typedef struct Context { U magic; Driver *driver; int dead; } Context;
static Driver drivers[2];
static Device devices[MAX], cpu;
static const U MAGIC_DRIVER = 0xD1D1, MAGIC_DEVICE = 0xD2D2, MAGIC_CONTEXT = 0xC0C0, MAGIC_LIST = 0x1157,
               MAGIC_POOL = 0x9001, MAGIC_EVENT = 0xE7E7;
static U memory(void) { return setting("FAKE_ZE_MEMORY", 4ull << 30); }
static int held; /* queues begin nothing new */

#define HANDLE(type, var, h, magic_) type *var = (type *)(h); if (!var || var->magic != magic_) return breach(NO_HANDLE, __func__)
#define CONTEXT(c, h) HANDLE(Context, c, h, MAGIC_CONTEXT); if (c->dead) return breach(NO_HANDLE, __func__)
#define DEVICE(d, h) HANDLE(Device, d, h, MAGIC_DEVICE)

static R start(void) {
    R answer = setting("FAKE_ZE_INIT", 0);
    if (answer) return answer;
    pthread_mutex_lock(&big);
    if (!inited) {
        int n = setting("FAKE_ZE_DEVICES", 2), groups = setting("FAKE_ZE_DRIVERS", 1);
        for (int i = 0; i < n; i++) devices[i] = (Device){.magic = MAGIC_DEVICE, .number = i, .is_gpu = 1, .driver = &drivers[groups > 1 && i ? 1 : 0]};
        cpu = (Device){.magic = MAGIC_DEVICE, .number = 99, .driver = &drivers[0]};
        drivers[0] = (Driver){MAGIC_DRIVER, 0, groups > 1 && n ? 1 : n};
        drivers[1] = (Driver){MAGIC_DRIVER, 1, n - 1};
        inited = 1;
    }
    pthread_mutex_unlock(&big);
    return setting("FAKE_ZE_DEVICES", 2) || setting("FAKE_ZE_CPU", 0) ? OK : NOT_INIT;
}
static R give_drivers(uint32_t *count, U *out) {
    uint32_t n = setting("FAKE_ZE_DRIVERS", 1);
    if (!count) return breach(NO_POINTER, __func__);
    if (!*count || !out) { *count = n; return OK; }
    if (*count > n) *count = n;
    for (uint32_t i = 0; i < *count; i++) out[i] = (U)&drivers[i];
    return OK;
}
API R zeInit(uint32_t flags) { COUNT(); if (flags > 1) return breach(BAD, __func__); return start(); }
API R zeInitDrivers(uint32_t *count, U *out, void *desc) {
    COUNT();
    TYPED(desc, 0x20021);
    if (((uint32_t *)desc)[4] != 1) return breach(BAD, __func__);
    R s = start();
    return s ? s : give_drivers(count, out);
}
API R zeDriverGet(uint32_t *count, U *out) { ENTER(); return give_drivers(count, out); }
API R zeDriverGetExtensionProperties(U driver, uint32_t *count, void *out) {
    ENTER();
    HANDLE(Driver, d, driver, MAGIC_DRIVER);
    (void)d;
    static const char *names[] = {"ZE_extension_float_atomics", "ZE_experimental_immediate_command_list_append"};
    uint32_t n = setting("FAKE_ZE_APPEND", 1) ? 2 : 1;
    if (!*count || !out) { *count = n; return OK; }
    for (uint32_t i = 0; i < n && i < *count; i++) snprintf((char *)out + 260 * i, 256, "%s", names[i]);
    return OK;
}
API R zeDeviceGet(U driver, uint32_t *count, U *out) {
    ENTER();
    HANDLE(Driver, d, driver, MAGIC_DRIVER);
    uint32_t extra = d == &drivers[0] && setting("FAKE_ZE_CPU", 0), n = d->count + extra;
    if (!*count || !out) { *count = n; return OK; }
    if (*count > n) *count = n;
    for (uint32_t i = 0; i < *count; i++) out[i] = extra && i == 0 ? (U)&cpu : (U)&devices[d->first + i - extra];
    return OK;
}
API R zeDeviceGetSubDevices(U device, uint32_t *count, U *out) { ENTER(); DEVICE(d, device); (void)d; (void)out; *count = 0; return OK; }
API R zeDeviceGetProperties(U device, void *p) {
    ENTER();
    DEVICE(d, device);
    TYPED(p, 0x3);
    char *at = p;
    *(uint32_t *)(at + 16) = d->is_gpu ? 1 : 2;
    *(uint32_t *)(at + 20) = 0x8086;
    *(U *)(at + 40) = memory() / 2;
    memset(at + 96, 0x40 + d->number, 16);
    snprintf(at + 112, 256, "fake Level Zero device %d", d->number);
    return OK;
}
API R zeDeviceGetMemoryProperties(U device, uint32_t *count, void *p) {
    ENTER();
    DEVICE(d, device);
    (void)d;
    if (!*count || !p) { *count = 1; return OK; }
    TYPED(p, 0x7);
    *(U *)((char *)p + 32) = memory();
    char *ext = behind(p, 0x1000e);
    if (ext) { *(uint32_t *)(ext + 32) = 1600; *(uint32_t *)(ext + 36) = 1500; *(uint32_t *)(ext + 40) = 1; }
    return OK;
}
/* A group that only copies comes first, so that the one that computes must be looked for. */
API R zeDeviceGetCommandQueueGroupProperties(U device, uint32_t *count, void *p) {
    ENTER();
    DEVICE(d, device);
    (void)d;
    if (!*count || !p) { *count = 2; return OK; }
    for (uint32_t i = 0; i < 2; i++) {
        char *at = (char *)p + 40 * i;
        TYPED(at, 0x6);
        *(uint32_t *)(at + 16) = i == 0 ? 2 : 3;
        *(U *)(at + 24) = 16;
        *(uint32_t *)(at + 32) = i == 0 ? 1 : setting("FAKE_ZE_QUEUES", 1);
    }
    return OK;
}
API R zeDeviceGetExternalMemoryProperties(U device, void *p) {
    ENTER();
    DEVICE(d, device);
    (void)d;
    TYPED(p, 0xc);
    ((uint32_t *)p)[4] = ((uint32_t *)p)[5] = setting("FAKE_ZE_SHARING", 1) ? 3 : 0;
    return OK;
}
API R zeDeviceCanAccessPeer(U device, U peer, uint8_t *can) { ENTER(); DEVICE(d, device); DEVICE(p, peer); *can = d == p || setting("FAKE_ZE_PEERS", 1); return OK; }
API R zeDeviceGetStatus(U device) { ENTER(); DEVICE(d, device); return d->sticky; }
API R zeContextCreate(U driver, void *desc, U *out) {
    ENTER();
    HANDLE(Driver, d, driver, MAGIC_DRIVER);
    TYPED(desc, 0xd);
    Context *c = calloc(1, sizeof *c);
    *c = (Context){MAGIC_CONTEXT, d, 0};
    *out = (U)c;
    return OK;
}
static U live_in(Context *c);
API R zeContextDestroy(U context) {
    ENTER();
    CONTEXT(c, context);
    if (live_in(c)) breach(OK, "a context was destroyed with something in it");
    c->dead = 1; /* the struct stays, so that a later use is told and not a crash */
    return OK;
}
API R zeContextGetStatus(U context) { ENTER(); CONTEXT(c, context); (void)c; return OK; }

/* Memory. Every entry knows its context. */
typedef struct Block { U size; Device *device; Context *context; int fd, guest, shared, descriptor; U at; } Block; /* at: where it is mapped */
typedef struct Range { U at, size, whole_at, whole_size; Context *context; } Range;
typedef struct Map { U at, size; Block *block; Context *context; uint32_t access; } Map;
typedef struct Plain { U at, size; Device *device; Context *context; } Plain;
static Block *blocks[LIST];
static Range ranges[LIST];
static Map maps[LIST];
static Plain plains[LIST];
#define EACH(i) for (int i = 0; i < LIST; i++)
static int find_block(U handle) { EACH(i) if (blocks[i] && (U)blocks[i] == handle) return i; return -1; }
static U live_in(Context *c) {
    U n = 0;
    EACH(i) n += (blocks[i] && blocks[i]->context == c) + (ranges[i].size && ranges[i].context == c) + (maps[i].size && maps[i].context == c) + (plains[i].size && plains[i].context == c);
    return n;
}
/* May a device of the context do `wanted` (1 read, 3 write) with all of it? */
static int may(Context *c, Device *d, U at, U bytes, int wanted) {
    while (bytes) {
        U step = 0;
        EACH(i) if (maps[i].size && maps[i].at <= at && at < maps[i].at + maps[i].size) {
            int can = maps[i].access == 1 ? 3 : maps[i].access == 2 ? 1 : 0;
            if (maps[i].context != c || (can & wanted) != wanted) return 0;
            step = maps[i].at + maps[i].size - at;
        }
        EACH(i) if (plains[i].size && plains[i].at <= at && at < plains[i].at + plains[i].size) {
            if (plains[i].context != c || (plains[i].device && plains[i].device != d && !setting("FAKE_ZE_PEERS", 1))) return 0;
            step = plains[i].at + plains[i].size - at;
        }
        if (!step) return 0;
        if (step > bytes) step = bytes;
        at += step;
        bytes -= step;
    }
    return 1;
}
static U page_of(U size) { return setting("FAKE_ZE_PAGES", 1) == 2 || size >= LARGE ? LARGE : SMALL; }
static int whole_pages(U size) { return size && size % page_of(size) == 0; }

API R zeVirtualMemQueryPageSize(U context, U device, size_t size, size_t *page) {
    ENTER();
    CONTEXT(c, context); DEVICE(d, device);
    if (c->driver != d->driver || !size) return breach(BAD, __func__);
    if (!setting("FAKE_ZE_VMM", 1)) return NO_FEATURE;
    *page = page_of(size);
    return OK;
}
API R zeVirtualMemReserve(U context, U hint, size_t size, U *out) {
    ENTER();
    CONTEXT(c, context);
    if (!setting("FAKE_ZE_VMM", 1)) return NO_FEATURE;
    if (!whole_pages(size)) return breach(BAD_SIZE, __func__);
    if (size > 1ull << 46) return OOM_HOST;
    (void)hint; /* only a hint, and moved */
    U whole = size + 2 * LARGE;
    char *p = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return OOM_HOST;
    U at = ((U)p + LARGE - 1) & ~(U)(LARGE - 1);
    if (setting("FAKE_ZE_SKEW", 0)) at += SMALL;
    pthread_mutex_lock(&big);
    EACH(i) if (!ranges[i].size) { ranges[i] = (Range){at, size, (U)p, whole, c}; break; }
    pthread_mutex_unlock(&big);
    *out = at;
    return OK;
}
API R zeVirtualMemFree(U context, U at, size_t size) {
    ENTER();
    CONTEXT(c, context);
    R status = BAD;
    pthread_mutex_lock(&big);
    /* The vendor's neither checks nor unmaps. */
    EACH(i) if (maps[i].size && maps[i].at < at + size && at < maps[i].at + maps[i].size) breach(OK, "freed a range that is mapped");
    EACH(i) if (ranges[i].size == size && ranges[i].at == at && ranges[i].context == c) {
        munmap((void *)ranges[i].whole_at, ranges[i].whole_size);
        ranges[i].size = 0;
        status = OK;
    }
    pthread_mutex_unlock(&big);
    return status ? breach(status, __func__) : OK;
}
API R zePhysicalMemCreate(U context, U device, void *desc, U *out) {
    ENTER();
    CONTEXT(c, context); DEVICE(d, device);
    TYPED(desc, 0x20);
    U size = *(U *)((char *)desc + 24);
    if (!setting("FAKE_ZE_VMM", 1)) return NO_FEATURE;
    if (c->driver != d->driver) return breach(LOST, "a device of another context");
    if (!whole_pages(size) || ((uint32_t *)desc)[4]) return breach(BAD_SIZE, __func__);
    uint32_t *export = behind(desc, 0x18), *import = behind(desc, 0x19);
    if ((export && export[4] != 2) || (import && import[4] != 2)) return breach(NO_ENUM, __func__);
    int fd, guest = 0;
    if (import) {
        struct stat a, b;
        int ours = 0;
        if (fstat((int)import[5], &a)) return breach(BAD, "imported a descriptor that is not open");
        pthread_mutex_lock(&big);
        EACH(i) if (blocks[i] && blocks[i]->shared && !fstat(blocks[i]->fd, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev) ours = 1;
        pthread_mutex_unlock(&big);
        /* A memory file whose exporter let go of it is one of ours too. */
        if (!ours && fcntl((int)import[5], F_GET_SEALS) < 0) return OOM;
        if (lseek((int)import[5], 0, SEEK_END) != (off_t)size) return breach(BAD_SIZE, "imported with another size");
        fd = dup((int)import[5]);
        guest = 1;
    } else {
        fd = memfd_create("fake-ze-block", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd >= 0 && ftruncate(fd, size)) { close(fd); return OOM; }
    }
    if (fd < 0) return OOM;
    Block *b = calloc(1, sizeof *b);
    *b = (Block){.size = size, .device = d, .context = c, .fd = fd, .guest = guest, .shared = export || import, .descriptor = -1};
    pthread_mutex_lock(&big);
    if (!guest) {
        d->used += size;
        /* The vendor's gives more than there is, and the device is lost when it is used. */
        if (d->used > memory()) { d->sticky = LOST; breach(OK, "more memory than there is"); }
    }
    EACH(i) if (!blocks[i]) { blocks[i] = b; break; }
    pthread_mutex_unlock(&big);
    *out = (U)b;
    return OK;
}
API R zePhysicalMemDestroy(U context, U handle) {
    ENTER();
    CONTEXT(c, context);
    pthread_mutex_lock(&big);
    int i = find_block(handle);
    /* The vendor's says success for a handle that it does not know. */
    if (i < 0 || blocks[i]->context != c) breach(OK, "destroyed a block that is not there");
    else {
        Block *b = blocks[i];
        if (b->at) breach(OK, "destroyed a block while it is mapped");
        if (!b->guest) b->device->used -= b->size;
        if (b->descriptor >= 0) close(b->descriptor);
        close(b->fd);
        blocks[i] = NULL; /* the struct stays, so that its number does not come again */
    }
    pthread_mutex_unlock(&big);
    return OK;
}
API R zePhysicalMemGetProperties(U context, U handle, void *p) {
    ENTER();
    CONTEXT(c, context);
    TYPED(p, 0x20040);
    int32_t *export = behind(p, 0x1a);
    R status = OK;
    pthread_mutex_lock(&big);
    int i = find_block(handle);
    if (i < 0 || blocks[i]->context != c) status = BAD;
    else if (export && (!blocks[i]->shared || export[4] != 2)) status = breach(BAD, "exported what was not made for it");
    else {
        *(U *)((char *)p + 24) = blocks[i]->size;
        if (export) {
            /* The same number each time; it stays the driver's. */
            if (blocks[i]->descriptor < 0) blocks[i]->descriptor = dup(blocks[i]->fd);
            export[5] = blocks[i]->descriptor;
            if (export[5] < 0) status = OOM_HOST;
        }
    }
    pthread_mutex_unlock(&big);
    return status;
}
API R zeVirtualMemMap(U context, U at, size_t size, U handle, size_t offset, uint32_t access) {
    ENTER();
    CONTEXT(c, context);
    const char *why = NULL;
    if (offset || access > 2) return breach(BAD, "map: offset or access");
    if (!whole_pages(size)) return breach(BAD_SIZE, "map: size");
    if (at % page_of(size)) return breach(BAD_ALIGN, "map: misaligned");
    pthread_mutex_lock(&big);
    int b = find_block(handle), inside = 0;
    EACH(i) if (ranges[i].size && ranges[i].context == c && ranges[i].at <= at && at + size <= ranges[i].at + ranges[i].size) inside = 1;
    if (!inside) why = "map: outside of every range";
    EACH(i) if (maps[i].size && maps[i].at < at + size && at < maps[i].at + maps[i].size) why = "map: mapped already";
    if (b < 0) why = "map: no such block";
    else if (blocks[b]->context != c) why = "map: another context's block";
    else if (blocks[b]->at) why = "map: the block is mapped elsewhere";
    else if (blocks[b]->size != size) why = "map: not the whole block";
    if (!why) EACH(i) if (!maps[i].size) {
        maps[i] = (Map){at, size, blocks[b], c, access};
        blocks[b]->at = at;
        if (mmap((void *)at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, blocks[b]->fd, 0) == MAP_FAILED) abort();
        break;
    }
    pthread_mutex_unlock(&big);
    return why ? breach(BAD, why) : OK;
}
API R zeVirtualMemUnmap(U context, U at, size_t size) {
    ENTER();
    CONTEXT(c, context);
    U found = 0;
    pthread_mutex_lock(&big);
    EACH(i) if (maps[i].size && maps[i].context == c && at <= maps[i].at && maps[i].at + maps[i].size <= at + size) {
        found += maps[i].at == at && maps[i].size == size;
        if (mmap((void *)maps[i].at, maps[i].size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) abort();
        maps[i].block->at = 0;
        maps[i].size = 0;
    }
    pthread_mutex_unlock(&big);
    /* The vendor's lets it pass; whoever relies on that has lost count. */
    return found == 1 ? OK : breach(OK, "unmap: not exactly what was mapped");
}
API R zeMemAllocDevice(U context, void *desc, size_t size, size_t alignment, U device, U *out) {
    ENTER();
    CONTEXT(c, context); DEVICE(d, device);
    TYPED(desc, 0x15);
    uint32_t *relaxed = behind(desc, 0x20001);
    if (!size || (alignment & (alignment - 1)) || c->driver != d->driver) return breach(BAD, __func__);
    if (size > memory() / 2 && !(relaxed && relaxed[4] == 1)) return breach(BAD_SIZE, "a large allocation without saying so");
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return OOM;
    pthread_mutex_lock(&big);
    d->used += size;
    if (d->used > memory()) { d->sticky = LOST; breach(OK, "more memory than there is"); }
    EACH(i) if (!plains[i].size) { plains[i] = (Plain){(U)p, size, d, c}; break; }
    pthread_mutex_unlock(&big);
    *out = (U)p;
    return OK;
}
/* Memory of the host that every device of the context reaches. */
API R zeMemAllocHost(U context, void *desc, size_t size, size_t alignment, U *out) {
    ENTER();
    CONTEXT(c, context);
    TYPED(desc, 0x16);
    if (!size || (alignment & (alignment - 1))) return breach(BAD, __func__);
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return OOM;
    pthread_mutex_lock(&big);
    EACH(i) if (!plains[i].size) { plains[i] = (Plain){(U)p, size, NULL, c}; break; }
    pthread_mutex_unlock(&big);
    *out = (U)p;
    return OK;
}
API R zeMemFree(U context, U at) {
    ENTER();
    CONTEXT(c, context);
    R status = BAD;
    pthread_mutex_lock(&big);
    EACH(i) if (plains[i].size && plains[i].at == at && plains[i].context == c) {
        munmap((void *)at, plains[i].size);
        if (plains[i].device) plains[i].device->used -= plains[i].size;
        plains[i].size = 0;
        status = OK;
    }
    pthread_mutex_unlock(&big);
    return status ? breach(status, __func__) : OK;
}
/* An address that is not known is no failure: the type says so, and the rest is left as it was. */
API R zeMemGetAllocProperties(U context, U at, void *p, U *device) {
    ENTER();
    CONTEXT(c, context);
    (void)c;
    TYPED(p, 0x17);
    uint32_t type = 0;
    pthread_mutex_lock(&big);
    EACH(i) if (plains[i].size && plains[i].at <= at && at < plains[i].at + plains[i].size) { type = 2; *device = (U)plains[i].device; }
    EACH(i) if (maps[i].size && maps[i].at <= at && at < maps[i].at + maps[i].size && setting("FAKE_ZE_USM", 1)) { type = 2; *device = (U)maps[i].block->device; }
    pthread_mutex_unlock(&big);
    ((uint32_t *)p)[4] = type;
    return OK;
}

/* Events, and lists of commands that queues run. */
typedef struct Pool { U magic; Context *context; uint32_t count, made; } Pool;
typedef struct Event { U magic; Pool *pool; _Atomic int signaled, to_signal, waiters; } Event;
typedef struct Op {
    enum { COPY, BARRIER, END } kind;
    U dst, src, bytes;
    Event *wait, *signal;
    struct Node *list; /* END: this list has run */
    Context *context;
    Device *device;
    struct Op *next;
} Op;
typedef struct Node {
    U magic;
    Context *context;
    Device *device;
    uint32_t group, index;
    int immediate, is_queue, closed, captured;
    _Atomic int users, running;
    Op *first, **last;
} Node;

static void run(Op *op) {
    if (op->wait) {
        while (!op->wait->signaled && !op->device->sticky) usleep(20);
        op->wait->waiters--;
    }
    if (op->device->sticky) return; /* nothing runs there any more */
    if (op->kind == COPY) {
        pthread_mutex_lock(&big);
        int can = may(op->context, op->device, op->src, op->bytes, 1) && may(op->context, op->device, op->dst, op->bytes, 3);
        if (can) memmove((void *)op->dst, (void *)op->src, op->bytes);
        pthread_mutex_unlock(&big);
        if (!can) { op->device->sticky = LOST; return; }
    }
    if (op->signal) {
        op->signal->to_signal--;
        op->signal->signaled = 1;
    }
}
static void *work(void *data) {
    Engine *e = data;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->first || __atomic_load_n(&held, __ATOMIC_SEQ_CST)) {
            struct timespec soon;
            clock_gettime(CLOCK_REALTIME, &soon);
            soon.tv_nsec += 1000000;
            if (soon.tv_nsec >= 1000000000) { soon.tv_sec++; soon.tv_nsec -= 1000000000; }
            pthread_cond_timedwait(&e->change, &e->lock, &soon);
        }
        Op *op = e->first;
        e->first = op->next;
        if (!e->first) e->last = &e->first;
        pthread_mutex_unlock(&e->lock);
        if (op->kind == END) op->list->running--;
        run(op);
        free(op);
        pthread_mutex_lock(&e->lock);
    }
    return NULL;
}
static void put(Device *d, uint32_t index, Op proto) {
    Engine *e = &d->engines[index];
    Op *op = malloc(sizeof *op);
    *op = proto;
    op->next = NULL;
    pthread_mutex_lock(&big);
    if (!e->started) {
        pthread_mutex_init(&e->lock, NULL);
        pthread_cond_init(&e->change, NULL);
        e->last = &e->first;
        if (pthread_create(&e->thread, NULL, work, e)) abort();
        e->started = 1;
    }
    pthread_mutex_unlock(&big);
    pthread_mutex_lock(&e->lock);
    *e->last = op;
    e->last = &op->next;
    pthread_cond_signal(&e->change);
    pthread_mutex_unlock(&e->lock);
}
/* One thread at a time may use a list. */
static int alone(Node *n) { int before = n->users++; if (before) breach(OK, "a list was used by two threads at once"); return 1; }
#define ALONE(n) alone(n)
#define LEAVE(n) ((n)->users--)
#define NODE(n, h, queue) HANDLE(Node, n, h, MAGIC_LIST); if (n->is_queue != queue) return breach(BAD_LIST, __func__)

static R note(Node *n, Op op) {
    R status = OK;
    op.context = n->context;
    op.device = n->device;
    ALONE(n);
    if (op.wait && op.wait->pool->context != n->context) status = breach(BAD_EVENT, "waits for another context's event");
    if (op.signal && op.signal->pool->context != n->context) status = breach(BAD_EVENT, "signals another context's event");
    if (n->immediate && n->device->sticky) status = LOST;
    if (!status && n->captured && op.kind == BARRIER) status = breach(BAD, "a captured list was appended to");
    if (!status && !n->immediate && n->closed) status = breach(BAD_LIST, "appended to a closed list");
    if (!status) {
        if (op.wait) {
            /* Nobody is going to signal it: on a shared queue this would hang. */
            if (!op.wait->signaled && !op.wait->to_signal) breach(OK, "waits for an event that nobody will signal");
            op.wait->waiters++;
        }
        if (op.signal) {
            if (op.signal->signaled || op.signal->to_signal) breach(OK, "an event is signaled twice");
            op.signal->to_signal++;
        }
        if (n->immediate) put(n->device, n->index, op);
        else { Op *o = malloc(sizeof *o); *o = op; o->next = NULL; *n->last = o; n->last = &o->next; }
    }
    LEAVE(n);
    return status;
}
static R submit(Node *list, Device *d, uint32_t group, uint32_t index) {
    if (!list->closed) return breach(BAD_LIST, "ran a list that is not closed");
    if (list->group != group || list->device != d) return breach(BAD_LIST, "ran a list of another group");
    if (list->running) return breach(BAD_LIST, "ran a list that is running");
    list->running++;
    Op *first = list->first;
    for (Op *op = first; op; op = op->next) put(d, index, *op);
    put(d, index, (Op){.kind = END, .list = list, .device = d});
    return OK;
}
static void empty(Node *n, int ran) {
    for (Op *op = n->first, *next; op; op = next) {
        next = op->next;
        if (!ran) { if (op->signal) op->signal->to_signal--; if (op->wait) op->wait->waiters--; }
        free(op);
    }
    n->first = NULL;
    n->last = &n->first;
    n->closed = 0;
}
API R zeCommandListCreateImmediate(U context, U device, void *desc, U *out) {
    ENTER();
    CONTEXT(c, context); DEVICE(d, device);
    TYPED(desc, 0xe);
    uint32_t *f = (uint32_t *)desc + 4; /* group, index, flags, mode, priority */
    if (c->driver != d->driver || f[0] > 1 || f[1] >= (f[0] ? setting("FAKE_ZE_QUEUES", 1) : 1)) return breach(BAD, __func__);
    if (!(f[2] & 2) || f[3] == 1) return breach(BAD, "a stream of ours must be in order and not wait");
    Node *n = calloc(1, sizeof *n);
    *n = (Node){.magic = MAGIC_LIST, .context = c, .device = d, .group = f[0], .index = f[0] ? f[1] : 3, .immediate = 1};
    *out = (U)n;
    return OK;
}
API R zeCommandListCreate(U context, U device, void *desc, U *out) {
    ENTER();
    CONTEXT(c, context); DEVICE(d, device);
    TYPED(desc, 0xf);
    if (c->driver != d->driver || ((uint32_t *)desc)[4] > 1) return breach(BAD, __func__);
    Node *n = calloc(1, sizeof *n);
    *n = (Node){.magic = MAGIC_LIST, .context = c, .device = d, .group = ((uint32_t *)desc)[4]};
    n->last = &n->first;
    *out = (U)n;
    return OK;
}
API R zeCommandListClose(U list) { ENTER(); NODE(n, list, 0); if (n->immediate || n->closed) return breach(BAD_LIST, __func__); n->closed = 1; return OK; }
API R zeCommandListReset(U list) {
    ENTER();
    NODE(n, list, 0);
    if (n->immediate) return breach(BAD_LIST, __func__);
    /* Its done event may be seen a moment before its end. */
    for (int i = 0; n->running && i < 1000 && !n->device->sticky; i++) usleep(100);
    if (n->running && !n->device->sticky) return breach(BAD_LIST, "reset a list that is running");
    empty(n, n->closed);
    return OK;
}
API R zeCommandListDestroy(U list) {
    ENTER();
    NODE(n, list, 0);
    for (int i = 0; n->running && i < 1000 && !n->device->sticky; i++) usleep(100);
    if (n->running && !n->device->sticky) return breach(BAD_LIST, "destroyed a list that is running");
    n->magic = 0; /* the struct stays, so that a later use is told and not a crash */
    return OK;
}
API R zeCommandListIsImmediate(U list, uint8_t *is) { ENTER(); NODE(n, list, 0); *is = n->immediate; return OK; }
API R zeCommandListGetDeviceHandle(U list, U *device) { ENTER(); NODE(n, list, 0); *device = (U)n->device; return OK; }
API R zeCommandListGetContextHandle(U list, U *context) { ENTER(); NODE(n, list, 0); *context = (U)n->context; return OK; }
API R zeCommandListGetOrdinal(U list, uint32_t *group) { ENTER(); NODE(n, list, 0); *group = n->group; return OK; }
API R zeCommandListIsGraphCaptureEnabledExt(U list) { ENTER(); NODE(n, list, 0); return n->captured ? YES : NO; }
API R zeCommandListAppendMemoryCopy(U list, U dst, U src, size_t bytes, U signal, uint32_t waits, U *events) {
    ENTER();
    NODE(n, list, 0);
    if (signal || waits || events || !bytes || !dst || !src) return breach(BAD, __func__);
    return note(n, (Op){.kind = COPY, .dst = dst, .src = src, .bytes = bytes});
}
API R zeCommandListAppendBarrier(U list, U signal, uint32_t waits, U *events) {
    ENTER();
    NODE(n, list, 0);
    if (waits > 1) return breach(BAD, __func__);
    Event *s = (Event *)signal, *w = waits ? (Event *)events[0] : NULL;
    if ((s && s->magic != MAGIC_EVENT) || (w && w->magic != MAGIC_EVENT)) return breach(BAD_EVENT, __func__);
    return note(n, (Op){.kind = BARRIER, .signal = s, .wait = w});
}
API R zeCommandListImmediateAppendCommandListsExp(U immediate, uint32_t count, U *lists, U signal, uint32_t waits, U *events) {
    ENTER();
    NODE(n, immediate, 0);
    if (!setting("FAKE_ZE_APPEND", 1)) return NO_FEATURE;
    if (!n->immediate || count != 1 || waits || events) return breach(BAD, __func__);
    NODE(list, lists[0], 0);
    if (n->device->sticky) return LOST;
    ALONE(n);
    R status = submit(list, n->device, n->group, n->index);
    LEAVE(n);
    return status ? status : zeCommandListAppendBarrier(immediate, signal, 0, NULL);
}
API R zeCommandQueueCreate(U context, U device, void *desc, U *out) {
    ENTER();
    CONTEXT(c, context); DEVICE(d, device);
    TYPED(desc, 0xe);
    Node *n = calloc(1, sizeof *n);
    *n = (Node){.magic = MAGIC_LIST, .context = c, .device = d, .group = ((uint32_t *)desc)[4], .is_queue = 1};
    *out = (U)n;
    return OK;
}
API R zeCommandQueueDestroy(U queue) { ENTER(); NODE(n, queue, 1); n->magic = 0; return OK; }
API R zeCommandQueueGetOrdinal(U queue, uint32_t *group) { ENTER(); NODE(n, queue, 1); *group = n->group; return OK; }
API R zeCommandQueueExecuteCommandLists(U queue, uint32_t count, U *lists, U fence) {
    ENTER();
    NODE(n, queue, 1);
    if (count != 1 || fence) return breach(BAD, __func__);
    NODE(list, lists[0], 0);
    if (n->device->sticky) return LOST;
    if (list->first && (list->first->kind != BARRIER)) breach(OK, "lists of a queue are not kept apart");
    ALONE(n);
    R status = submit(list, n->device, n->group, n->index);
    LEAVE(n);
    return status;
}
API R zeEventPoolCreate(U context, void *desc, uint32_t count, U *list, U *out) {
    ENTER();
    CONTEXT(c, context);
    TYPED(desc, 0x10);
    (void)list;
    if (((uint32_t *)desc)[4] != 1 || count) return breach(BAD, __func__);
    Pool *p = calloc(1, sizeof *p);
    *p = (Pool){MAGIC_POOL, c, ((uint32_t *)desc)[5], 0};
    *out = (U)p;
    return OK;
}
API R zeEventPoolDestroy(U pool) { ENTER(); HANDLE(Pool, p, pool, MAGIC_POOL); if (p->made) breach(OK, "a pool was destroyed with events in it"); p->magic = 0; return OK; }
API R zeEventCreate(U pool, void *desc, U *out) {
    ENTER();
    HANDLE(Pool, p, pool, MAGIC_POOL);
    TYPED(desc, 0x11);
    uint32_t *f = (uint32_t *)desc + 4; /* index, signal, wait */
    if (f[0] >= p->count || !(f[1] & 4)) return breach(BAD, __func__);
    Event *e = calloc(1, sizeof *e);
    e->magic = MAGIC_EVENT;
    e->pool = p;
    p->made++;
    *out = (U)e;
    return OK;
}
#define EVENT(e, h) HANDLE(Event, e, h, MAGIC_EVENT)
API R zeEventDestroy(U event) { ENTER(); EVENT(e, event); if (e->to_signal || e->waiters) breach(OK, "an event was destroyed while in use"); e->magic = 0; e->pool->made--; return OK; }
API R zeEventQueryStatus(U event) { ENTER(); EVENT(e, event); return e->signaled ? OK : NOT_READY; }
API R zeEventHostSynchronize(U event, U timeout) {
    ENTER();
    EVENT(e, event);
    for (U waited = 0; !e->signaled; waited += 20000) {
        if (waited >= timeout) return NOT_READY;
        usleep(20);
    }
    return OK;
}
API R zeEventHostReset(U event) { ENTER(); EVENT(e, event); if (e->to_signal || e->waiters) breach(OK, "an event was reset while in use"); e->signaled = 0; return OK; }

/* Sysman, with devices of its own that only a uuid leads to. */
typedef struct { uint8_t id[16]; } Uuid;
static int sysman_ready;
#define SYSMAN() do { COUNT(); if (!setting("FAKE_ZE_SYSMAN", 1) || !sysman_ready) return NO_FEATURE; } while (0)
API R zesInit(uint32_t flags) { COUNT(); if (flags) return breach(BAD, __func__); if (!setting("FAKE_ZE_SYSMAN", 1)) return NO_FEATURE; sysman_ready = 1; return OK; }
API R zesDriverGet(uint32_t *count, U *out) { SYSMAN(); if (*count && out) out[0] = 0x5151; *count = 1; return OK; }
API R zesDeviceGet(U driver, uint32_t *count, U *out) {
    SYSMAN();
    if (driver != 0x5151) return breach(NO_HANDLE, __func__);
    uint32_t n = setting("FAKE_ZE_DEVICES", 2);
    if (!*count || !out) { *count = n; return OK; }
    for (uint32_t i = 0; i < n && i < *count; i++) out[i] = 0x52520000 + i;
    return OK;
}
API R zesDriverGetDeviceByUuidExp(U driver, Uuid uuid, U *device, uint8_t *on_part, uint32_t *part) {
    SYSMAN();
    if (driver != 0x5151) return breach(NO_HANDLE, __func__);
    (void)part;
    uint32_t i = uuid.id[15] - 0x40;
    if (i >= setting("FAKE_ZE_DEVICES", 2)) return BAD;
    *device = 0x52520000 + i;
    *on_part = 0;
    return OK;
}
API R zesDeviceGetProperties(U device, void *p) { SYSMAN(); TYPED(p, 0x1); memset((char *)p + 16 + 96, 0x40 + (device & 0xffff), 16); return OK; }
/* The first module is the host's memory, the second the device's. */
API R zesDeviceEnumMemoryModules(U device, uint32_t *count, U *out) {
    SYSMAN();
    if (!*count || !out) { *count = 2; return OK; }
    for (uint32_t i = 0; i < 2 && i < *count; i++) out[i] = 0x53530000 + (device & 0xffff) * 2 + i;
    return OK;
}
API R zesMemoryGetProperties(U module, void *p) {
    SYSMAN();
    TYPED(p, 0xb);
    *((uint8_t *)p + 20) = 0;
    ((uint32_t *)p)[7] = module & 1;
    return OK;
}
API R zesMemoryGetState(U module, void *p) {
    SYSMAN();
    TYPED(p, 0x1e);
    if (setting("FAKE_ZE_SYSMAN", 1) == 2) return NO_RIGHT;
    Device *d = &devices[(module & 0xffff) / 2];
    pthread_mutex_lock(&big);
    *(U *)((char *)p + 24) = !(module & 1) ? 1ull << 40 : d->used > memory() ? 0 : memory() - d->used;
    *(U *)((char *)p + 32) = module & 1 ? memory() : 1ull << 40;
    pthread_mutex_unlock(&big);
    return OK;
}

/* For tests. */
API void fake_ze_set(const char *name, U value) {
    for (int i = 0; i < 32; i++) if (!settings[i].name[0] || strcmp(settings[i].name, name) == 0) {
        snprintf(settings[i].name, sizeof settings[i].name, "%s", name);
        settings[i].value = value;
        return;
    }
}
API U fake_ze_breaches(void) { return __atomic_load_n(&breaches, __ATOMIC_SEQ_CST); }
API const char *fake_ze_last_breach(void) { return last_breach; }
API U fake_ze_calls(const char *name) {
    U count = 0;
    pthread_mutex_lock(&count_lock);
    for (int i = 0; i < 128 && counts[i].name; i++) if (strcmp(counts[i].name, name) == 0) count = counts[i].count;
    pthread_mutex_unlock(&count_lock);
    return count;
}
/* The n-th call from now answers `status`; 0: it says success and does nothing. */
API void fake_ze_fail(const char *name, U nth, R status) {
    pthread_mutex_lock(&count_lock);
    snprintf(rule.name, sizeof rule.name, "%s", name);
    rule.nth = nth;
    rule.status = status;
    pthread_mutex_unlock(&count_lock);
}
API void fake_ze_break(int device, R status) { devices[device].sticky = status; }
/* Queues begin nothing new until they are let go. */
API void fake_ze_hold(int on) { __atomic_store_n(&held, on, __ATOMIC_SEQ_CST); }
API void fake_ze_capture(U list, int on) { ((Node *)list)->captured = on; }
/* What lives: blocks, ranges, mappings, plain memory. */
API U fake_ze_live(void) {
    U n = 0;
    pthread_mutex_lock(&big);
    EACH(i) n += (blocks[i] != NULL) + (ranges[i].size != 0) + (maps[i].size != 0) + (plains[i].size != 0);
    pthread_mutex_unlock(&big);
    return n;
}
/* Reads and writes what a device may read and write; 0 where it may not. */
API U fake_ze_peek(U context, U device, void *to, U from, U bytes) {
    pthread_mutex_lock(&big);
    int can = may((Context *)context, (Device *)device, from, bytes, 1);
    if (can) memcpy(to, (void *)from, bytes);
    pthread_mutex_unlock(&big);
    return can;
}
API U fake_ze_poke(U context, U device, U to, const void *from, U bytes) {
    pthread_mutex_lock(&big);
    int can = may((Context *)context, (Device *)device, to, bytes, 3);
    if (can) memcpy((void *)to, from, bytes);
    pthread_mutex_unlock(&big);
    return can;
}
#ifdef FAKE_IN_FRONT
API int gvmm_preload_marker;
#endif
#endif
