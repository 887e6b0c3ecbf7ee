/* Eight threads on one device; two in one binding; the last error is each thread's own. */
#include "common.h"
#include <pthread.h>

enum { THREADS = 8 };
static gvmm_device *device;
static int rounds;

static void add_one(void *user_data) { *at(*(uint64_t *)user_data) += 1; }

/* Each has its own stream, binding and blocks, and fails now and then. */
static void *work(void *argument) {
    uint32_t id = (uint32_t)(uintptr_t)argument;
    gvmm_stream *stream = make_stream(device);
    gvmm_slot slots[2] = {{.size_bytes = GRANULE}, {.size_bytes = 4096}};
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = 4096};
    gvmm_binding *b = NULL;
    OK(gvmm_binding_create(device, &desc, slots, 2, sizeof slots[0], &b));
    uint64_t addresses[2] = {0, 0}, generation = 0;
    for (int round = 0; round < rounds; round++) {
        memory m[2] = {allocate(device, GRANULE), allocate(device, GRANULE)};
        *at(m[0].address) = id, *at(m[1].address) = id + 100;
        gvmm_buffer buffers[2] = {buffer_of(m[0], GRANULE), buffer_of(m[1], 4096)};
        gvmm_status status = gvmm_binding_begin(b, stream, buffers, 2, sizeof buffers[0], generation, NULL);
        if (status == GVMM_STATUS_RECORD_AGAIN) {
            OK(gvmm_binding_addresses(b, addresses, 2, &generation));
            status = gvmm_binding_begin(b, stream, buffers, 2, sizeof buffers[0], generation, NULL);
        }
        EXPECT(GVMM_STATUS_SUCCESS, status);
        OK(gvmm_stream_host_function(stream, add_one, &addresses[0]));
        OK(gvmm_stream_host_function(stream, add_one, &addresses[1]));
        OK(gvmm_binding_end(b, NULL));

        uint64_t size = 1 + id; /* each thread's own mistake */
        EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_block_create(device, size, 0, &(gvmm_block *){NULL}));
        CHECK(last_detail().size_bytes == size);
        EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_block_destroy((gvmm_block *)(uintptr_t)(0x1000 + id)));

        OK(gvmm_stream_synchronize(stream));
        CHECK(*at(m[0].address) == id + 1 && *at(m[1].address) == id + 101);
        gvmm_block *found = NULL;
        uint64_t offset = 0;
        OK(gvmm_device_find(device, m[0].address + 64, &found, &offset));
        CHECK(found == m[0].block && offset == 64);
        OK(gvmm_device_collect(device, &offset));
        OK(gvmm_allocation_destroy(m[0].allocation));
        OK(gvmm_allocation_destroy(m[1].allocation));
    }
    OK(gvmm_binding_destroy(b));
    OK(gvmm_stream_destroy(stream));
    return NULL;
}

/* Remaps of one reservation from all threads: each of its own places. */
static gvmm_reservation *shared;
static uint64_t shared_address;
static void *remap(void *argument) {
    uint64_t id = (uint64_t)(uintptr_t)argument, place = id * GRANULE;
    gvmm_block *blocks[2] = {make_block(device, GRANULE), make_block(device, GRANULE)};
    for (int round = 0; round < rounds; round++) {
        gvmm_remap_entry entry = {shared, place, blocks[round % 2]};
        OK(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, NULL));
        *at(shared_address + place) = (uint32_t)id;
        CHECK(*at(shared_address + place) == id);
    }
    gvmm_remap_entry entry = {shared, place, NULL};
    OK(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, NULL));
    OK(gvmm_block_destroy(blocks[0]));
    OK(gvmm_block_destroy(blocks[1]));
    return NULL;
}

/* Handles of what is in use stay good while another thread tries to destroy them. */
static gvmm_block *used_block;
static gvmm_reservation *used_range;
static _Atomic int using;
static void *destroyer(void *argument) {
    (void)argument;
    while (using) {
        EXPECT(GVMM_ERROR_IN_USE, gvmm_device_close(device));
        EXPECT(GVMM_ERROR_IN_USE, gvmm_block_destroy(used_block));
        EXPECT(GVMM_ERROR_IN_USE, gvmm_reservation_destroy(used_range));
    }
    return NULL;
}
static void *user(void *argument) {
    (void)argument;
    for (int round = 0; round < 100 * rounds; round++) {
        gvmm_block_info block = {.struct_size = sizeof block};
        gvmm_reservation_info range = {.struct_size = sizeof range};
        OK(gvmm_block_query(used_block, &block));
        OK(gvmm_reservation_query(used_range, &range));
        OK(gvmm_block_destroy(make_block(device, GRANULE)));
    }
    using = 0;
    return NULL;
}
static void *use_and_destroy(void *argument) { return argument == NULL ? user(argument) : destroyer(argument); }

/* Two threads in one binding: each call is served or BUSY or out of order, and nothing breaks. */
static gvmm_binding *contested;
static gvmm_stream *contested_stream;
static gvmm_buffer contested_buffer;
static void *contest(void *argument) {
    (void)argument;
    uint64_t address = 0, generation = 0;
    for (int round = 0; round < 50 * rounds; round++) {
        gvmm_status begun =
            gvmm_binding_begin(contested, contested_stream, &contested_buffer, 1, sizeof contested_buffer, 1, NULL);
        CHECK(begun == GVMM_STATUS_SUCCESS || begun == GVMM_ERROR_BUSY || begun == GVMM_ERROR_WRONG_STATE);
        gvmm_status read = gvmm_binding_addresses(contested, &address, 1, &generation);
        CHECK(read == GVMM_ERROR_BUSY || (read == GVMM_STATUS_SUCCESS && generation == 1));
        gvmm_status ended = gvmm_binding_end(contested, NULL);
        CHECK(ended == GVMM_STATUS_SUCCESS || ended == GVMM_ERROR_BUSY || ended == GVMM_ERROR_WRONG_STATE);
    }
    return NULL;
}

static void all(void *(*function)(void *), int count) {
    pthread_t threads[THREADS];
    for (int i = 0; i < count; i++) CHECK(pthread_create(&threads[i], NULL, function, (void *)(uintptr_t)i) == 0);
    for (int i = 0; i < count; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void) {
    rounds = under_valgrind() ? 5 : 60;
    device = open_host();
    all(work, THREADS);
    shared = reserve(device, THREADS * GRANULE, &shared_address);
    all(remap, THREADS);
    OK(gvmm_reservation_destroy(shared));

    uint64_t address = 0;
    used_range = reserve(device, GRANULE, &address);
    used_block = make_block(device, GRANULE);
    OK(gvmm_map(used_range, 0, used_block));
    using = 1;
    all(use_and_destroy, 2);
    OK(gvmm_reservation_unmap(used_range, 0, GRANULE));
    OK(gvmm_block_destroy(used_block));
    OK(gvmm_reservation_destroy(used_range));

    contested_stream = make_stream(device);
    memory m = allocate(device, GRANULE);
    contested_buffer = buffer_of(m, 4096);
    gvmm_slot slot = {.size_bytes = 4096};
    OK(gvmm_binding_create(device, NULL, &slot, 1, sizeof slot, &contested));
    EXPECT(GVMM_STATUS_RECORD_AGAIN,
           gvmm_binding_begin(contested, contested_stream, &contested_buffer, 1, sizeof contested_buffer, 0, NULL));
    all(contest, 2);
    OK(gvmm_binding_destroy(contested));
    OK(gvmm_stream_destroy(contested_stream));
    OK(gvmm_allocation_destroy(m.allocation));
    OK(gvmm_device_drain(device));
    OK(gvmm_device_close(device));
    return 0;
}
