/* Reaches every status of the header once. STATUSES is a list that the test makes from the header, so that a status
   which is added and not reached here fails. */
#include "common.h"
#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "statuses.inc"

static char reached[1000];

static void note(gvmm_status wanted, gvmm_status got, int line, const char *call) {
    expect(__FILE__, line, wanted, got, call);
    reached[wanted] = 1;
    if (wanted >= 100) { /* a failure leaves its status, and a message that is more than its name */
        char message[512];
        size_t needed = 0;
        OK(gvmm_last_error_message(message, sizeof message, &needed));
        CHECK(needed == strlen(message) + 1 && needed > 6);
        CHECK(last_detail().status == wanted);
        /* what was being done is known, also where a handle or an array is to blame */
        CHECK(last_detail().operation != GVMM_OPERATION_NONE);
    }
}
#define REACH(wanted, call) note((wanted), (call), __LINE__, #call)

/* The next driver call of a sort fails, and with it a call of ours. */
#define INJECT(wanted, sort, call)                                                                 \
    do {                                                                                           \
        OK(gvmm_device_fail_calls(device, sort, 1, 1000, wanted));                                 \
        REACH(wanted, call);                                                                       \
        OK(gvmm_device_fail_calls(device, GVMM_CALL_ANY, 0, 0, 0));                                \
    } while (0)

static void the_callers(gvmm_device *device, gvmm_stream *stream) {
    gvmm_block *block = NULL;
    uint64_t address = 0, generation = 0;
    gvmm_reservation *r = reserve(device, 4 * GRANULE, &address);
    gvmm_block *two = make_block(device, 2 * GRANULE);
    REACH(GVMM_ERROR_INVALID_ARGUMENT, gvmm_block_create(device, GRANULE, 128, &block));
    REACH(GVMM_ERROR_NULL_POINTER, gvmm_block_create(device, GRANULE, 0, NULL));
    REACH(GVMM_ERROR_INVALID_SIZE, gvmm_block_create(device, 0, 0, &block));
    REACH(GVMM_ERROR_MISALIGNED, gvmm_map(r, 7, two));
    REACH(GVMM_ERROR_OUT_OF_RANGE, gvmm_map(r, 3 * GRANULE, two));
    REACH(GVMM_ERROR_INVALID_HANDLE, gvmm_map(r, 0, (gvmm_block *)r));
    OK(gvmm_map(r, 0, two));
    REACH(GVMM_ERROR_IN_USE, gvmm_block_destroy(two));
    REACH(GVMM_ERROR_ALREADY_MAPPED, gvmm_map(r, GRANULE, two));
    REACH(GVMM_ERROR_NOT_MAPPED, gvmm_reservation_unmap(r, 3 * GRANULE, GRANULE));
    REACH(GVMM_ERROR_PARTIAL_MAPPING, gvmm_reservation_unmap(r, 0, GRANULE));
    OK(gvmm_reservation_unmap(r, 0, 2 * GRANULE));

    gvmm_slot slots[2] = {{.size_bytes = 4096}, {.size_bytes = 4096}};
    gvmm_binding *b = NULL;
    OK(gvmm_binding_create(device, NULL, slots, 2, sizeof slots[0], &b));
    REACH(GVMM_ERROR_WRONG_STATE, gvmm_binding_end(b, NULL));
    memory m = allocate(device, GRANULE), n = allocate(device, GRANULE);
    gvmm_buffer buffers[2] = {buffer_of(m, 4096), buffer_of(m, 4096)};
    REACH(GVMM_ERROR_ALIASED, gvmm_binding_begin(b, stream, buffers, 2, sizeof buffers[0], 0, NULL));
    REACH(GVMM_ERROR_COUNT_MISMATCH, gvmm_binding_begin(b, stream, buffers, 1, sizeof buffers[0], 0, NULL));
    REACH(GVMM_ERROR_UNKNOWN_VERSION, gvmm_binding_begin(b, stream, buffers, 2, 31, 0, NULL));
    REACH(GVMM_ERROR_INVALID_STREAM, gvmm_binding_begin(b, &buffers, buffers, 2, sizeof buffers[0], 0, NULL));
    buffers[1] = buffer_of(n, 4096);
    REACH(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(b, stream, buffers, 2, sizeof buffers[0], 0, NULL));
    uint64_t addresses[2];
    REACH(GVMM_STATUS_SUCCESS, gvmm_binding_addresses(b, addresses, 2, &generation));
    OK(gvmm_binding_destroy(b));
    gvmm_plan_desc plan = {.struct_size = sizeof plan, .mode = GVMM_PLAN_AUTO, .watched_steps = 2};
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .plan = &plan};
    OK(gvmm_binding_create(device, &desc, NULL, 0, 0, &b));
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(b, stream, NULL, 0, 0, 0, NULL));
    for (int step = 0; step < 2; step++) {
        OK(gvmm_binding_begin(b, stream, NULL, 0, 0, 1, NULL));
        OK(gvmm_binding_end(b, NULL));
    }
    REACH(GVMM_ERROR_PLAN_MISMATCH, gvmm_binding_plan_check(b, 1));
    OK(gvmm_binding_destroy(b));

    gvmm_copy_slice slices[2] = {{m.address, n.address, 8}, {m.address + 4, n.address + 64, 8}};
    REACH(GVMM_ERROR_OVERLAP, gvmm_shadow_copy(device, stream, slices, 2, sizeof slices[0], NULL));
    gvmm_graph *graph = NULL;
    OK(gvmm_stream_capture_begin(stream));
    REACH(GVMM_ERROR_STREAM_CAPTURING, gvmm_stream_synchronize(stream));
    OK(gvmm_stream_capture_end(stream, &graph));
    OK(gvmm_graph_destroy(graph));
    OK(gvmm_allocation_destroy(m.allocation));
    OK(gvmm_allocation_destroy(n.allocation));
    OK(gvmm_block_destroy(two));
    OK(gvmm_reservation_destroy(r));
}

static void memory_group(gvmm_device *device) {
    gvmm_block *block = NULL;
    gvmm_reservation *r = NULL;
    uint64_t address = 0;
    REACH(GVMM_ERROR_OUT_OF_DEVICE_MEMORY, gvmm_block_create(device, 1ull << 40, 0, &block));
    if (under_valgrind())
        INJECT(GVMM_ERROR_OUT_OF_ADDRESS_SPACE, GVMM_CALL_RESERVE, gvmm_reserve(device, GRANULE, NULL, &r, &address));
    else
        REACH(GVMM_ERROR_OUT_OF_ADDRESS_SPACE, gvmm_reserve(device, 1ull << 55, NULL, &r, &address));
    /* The host runs out of memory only with the whole machine. */
    INJECT(GVMM_ERROR_OUT_OF_HOST_MEMORY, GVMM_CALL_CREATE, gvmm_block_create(device, GRANULE, 0, &block));
    /* GVMM_HOST_MAX_MAPS allows 64. */
    r = reserve(device, 200 * GRANULE, &address);
    gvmm_block *one = make_block(device, GRANULE);
    gvmm_status status = GVMM_STATUS_SUCCESS;
    for (uint64_t i = 0; i < 100 && status == GVMM_STATUS_SUCCESS; i++) status = gvmm_map(r, 2 * i * GRANULE, one);
    REACH(GVMM_ERROR_MAP_LIMIT, status);
    for (uint64_t i = 0; i < 100; i++) (void)gvmm_reservation_unmap(r, 2 * i * GRANULE, GRANULE);
    OK(gvmm_block_destroy(one));
    OK(gvmm_reservation_destroy(r));
    /* Exportable blocks have a descriptor each. */
    struct rlimit before, tight;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    tight = before;
    tight.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    status = gvmm_block_create(device, GRANULE, GVMM_BLOCK_EXPORTABLE, &block);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    REACH(GVMM_ERROR_OUT_OF_FILE_DESCRIPTORS, status);
    /* The driver's own code is there as a number, and in the message. */
    CHECK(last_detail().has_native == 1 && last_detail().native_code == EMFILE);
    char message[512], code[32];
    size_t needed = 0;
    snprintf(code, sizeof code, "(%d)", EMFILE);
    OK(gvmm_last_error_message(message, sizeof message, &needed));
    CHECK(strstr(message, code) != NULL);
}

static void fault(gvmm_device *device) {
    gvmm_stream *stream = make_stream(device);
    gvmm_copy_slice slice = {4096, 8192, 64}; /* memory that nobody gave us */
    OK(gvmm_shadow_copy(device, stream, &slice, 1, sizeof slice, NULL));
    REACH(GVMM_ERROR_DEVICE_FAULT, gvmm_stream_synchronize(stream));
    OK(gvmm_stream_destroy(stream));
}

static void the_drivers(gvmm_device *device) {
    uint64_t free_bytes = 0, total = 0;
    uint32_t count = 0;
    gvmm_device *none = NULL;
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST, .ordinal = 99};
    REACH(GVMM_ERROR_NO_DEVICE, gvmm_device_open(&desc, &none));
    REACH(GVMM_ERROR_DRIVER_NOT_FOUND, gvmm_device_count(GVMM_DRIVER_LEVEL_ZERO, &count));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_device_count(17, &count));
    gvmm_block *block = make_block(device, GRANULE);
    gvmm_reservation *r = reserve(device, 2 * GRANULE, &(uint64_t){0});
    OK(gvmm_map(r, 0, block));
    REACH(GVMM_ERROR_UNSUPPORTED, gvmm_reservation_set_access(r, 0, GRANULE, NULL, 0, 0)); /* not the whole */
    OK(gvmm_reservation_unmap(r, 0, GRANULE));
    OK(gvmm_reservation_destroy(r));
    OK(gvmm_block_destroy(block));
    /* These need a driver that is old, or hardware that breaks. */
    INJECT(GVMM_ERROR_DRIVER_TOO_OLD, GVMM_CALL_MEMORY, gvmm_device_memory(device, &free_bytes, &total));
    INJECT(GVMM_ERROR_DEVICE_LOST, GVMM_CALL_MEMORY, gvmm_device_memory(device, &free_bytes, &total));
    INJECT(GVMM_ERROR_DRIVER_ERROR, GVMM_CALL_MEMORY, gvmm_device_memory(device, &free_bytes, &total));
}

static void range_lost(gvmm_device *device) {
    uint64_t address = 0;
    gvmm_reservation *r = reserve(device, 2 * GRANULE, &address);
    gvmm_block *one = make_block(device, GRANULE), *two = make_block(device, GRANULE);
    gvmm_remap_entry entry = {r, 0, one};
    OK(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, NULL));
    *at(address) = 11;
    entry.block = two;
    /* The map of the new block fails, and that of the old one, which would undo it. */
    INJECT(GVMM_ERROR_RANGE_LOST, GVMM_CALL_MAP, gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, NULL));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_block_destroy(one)); /* it is still held */
    gvmm_remap_entry other = {r, GRANULE, two};
    OK(gvmm_remap(device, &other, 1, sizeof other, NULL, 0, NULL)); /* rebuilds */
    CHECK(*at(address) == 11);
    OK(gvmm_reservation_unmap(r, 0, 2 * GRANULE));
    OK(gvmm_block_destroy(one));
    OK(gvmm_block_destroy(two));
    OK(gvmm_reservation_destroy(r));
}

static void entered(void *user_data) {
    volatile int *flags = (volatile int *)user_data;
    flags[0] = 1;
    while (!flags[1]) usleep(1000);
}

/* Another thread waits inside a binding: a begin that must remap waits for the step before. */
#include <pthread.h>
static gvmm_binding *busy_binding;
static gvmm_stream *busy_stream;
static gvmm_buffer busy_buffer;
static uint64_t busy_generation;
static void *waiting(void *unused) {
    (void)unused;
    gvmm_status status;
    do /* the other thread looks in now and then */
        status =
            gvmm_binding_begin(busy_binding, busy_stream, &busy_buffer, 1, sizeof busy_buffer, busy_generation, NULL);
    while (status == GVMM_ERROR_BUSY);
    EXPECT(GVMM_STATUS_SUCCESS, status);
    return NULL;
}

static void busy(gvmm_device *device) {
    gvmm_stream *stream = make_stream(device);
    gvmm_slot slot = {.size_bytes = GRANULE};
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = GVMM_THRESHOLD_OFF};
    gvmm_binding *b = NULL;
    OK(gvmm_binding_create(device, &desc, &slot, 1, sizeof slot, &b));
    memory m = allocate(device, GRANULE), n = allocate(device, GRANULE);
    gvmm_buffer buffer = buffer_of(m, GRANULE);
    uint64_t address = 0, generation = 0;
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(b, stream, &buffer, 1, sizeof buffer, 0, NULL));
    OK(gvmm_binding_addresses(b, &address, 1, &generation));
    OK(gvmm_binding_begin(b, stream, &buffer, 1, sizeof buffer, generation, NULL));
    int flags[2] = {0, 0};
    OK(gvmm_stream_host_function(stream, entered, flags));
    OK(gvmm_binding_end(b, NULL));
    busy_binding = b, busy_stream = stream, busy_buffer = buffer_of(n, GRANULE), busy_generation = generation;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waiting, NULL) == 0);
    gvmm_status status = GVMM_ERROR_WRONG_STATE;
    for (int tries = 0; tries < 10000 && status != GVMM_ERROR_BUSY; tries++) {
        usleep(1000);
        status = gvmm_binding_abort(b);
    }
    REACH(GVMM_ERROR_BUSY, status);
    ((volatile int *)flags)[1] = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    OK(gvmm_binding_end(b, NULL));
    OK(gvmm_binding_destroy(b));
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_device_drain(device));
    OK(gvmm_allocation_destroy(m.allocation));
    OK(gvmm_allocation_destroy(n.allocation));
}

/* Defects of the library cannot be asked for; what they answer can. */
static void ours(gvmm_device *device) {
    uint64_t free_bytes = 0, total = 0;
    INJECT(GVMM_ERROR_INTERNAL, GVMM_CALL_MEMORY, gvmm_device_memory(device, &free_bytes, &total));
    INJECT(GVMM_ERROR_POISONED, GVMM_CALL_MEMORY, gvmm_device_memory(device, &free_bytes, &total));
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(gvmm_device_memory(device, &free_bytes, &total) == GVMM_ERROR_FORKED ? 33 : 1);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 33);
    reached[GVMM_ERROR_FORKED] = 1;
}

int main(void) {
    setenv("GVMM_HOST_MEMORY", "256M", 1);
    setenv("GVMM_HOST_MAX_MAPS", "64", 1);
    setenv("GVMM_HOST_CAPS", "-range_access", 1);
    gvmm_device *device = open_host();
    gvmm_stream *stream = make_stream(device);
    the_callers(device, stream);
    memory_group(device);
    fault(device);
    the_drivers(device);
    range_lost(device);
    busy(device);
    ours(device);
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_device_close(device));
    int missed = 0;
#define ONE(name)                                                                                  \
    CHECK(strcmp(gvmm_status_name(name), #name) == 0);                                             \
    if (!reached[name]) fprintf(stderr, "%s was not reached\n", #name), missed = 1;
    STATUSES(ONE)
    CHECK(strcmp(gvmm_status_name(-1), "GVMM_STATUS_UNKNOWN") == 0);
    return missed;
}
