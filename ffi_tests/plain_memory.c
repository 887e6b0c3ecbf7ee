/* A device without virtual memory: allocations have no block, bindings copy or bake, the rest is UNSUPPORTED. */
#include "common.h"

int main(void) {
    setenv("GVMM_HOST_CAPS", "-virtual_memory,-joint_copies", 1);
    gvmm_device *device = open_host();
    gvmm_device_info info = {.struct_size = sizeof info};
    OK(gvmm_device_query(device, &info));
    CHECK(!(info.capabilities & GVMM_CAPABILITY_VIRTUAL_MEMORY));
    gvmm_block *block = NULL;
    gvmm_reservation *r = NULL;
    uint64_t u = 0, generation = 0, addresses[2];
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_block_create(device, GRANULE, 0, &block));
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_block_adopt(device, 1, GRANULE, 0, &block));
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_reserve(device, GRANULE, NULL, &r, &u));
    memory m = allocate(device, 4096), n = allocate(device, 4096);
    CHECK(m.block == NULL && m.address % 256 == 0);
    EXPECT(GVMM_ERROR_NOT_MAPPED, gvmm_device_find(device, m.address, &block, &u));

    gvmm_stream *stream = make_stream(device);
    gvmm_slot slots[2] = {{.size_bytes = 64}, {.size_bytes = 4096}};
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = 64};
    gvmm_binding *b = NULL;
    OK(gvmm_binding_create(device, &desc, slots, 2, sizeof slots[0], &b));
    gvmm_buffer buffers[2] = {{m.address, 64, 1, NULL}, {n.address, 4096, 2, NULL}};
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(b, stream, buffers, 2, sizeof buffers[0], 0, NULL));
    OK(gvmm_binding_addresses(b, addresses, 2, &generation));
    uint32_t actions[2];
    OK(gvmm_binding_actions(b, actions, 2));
    CHECK(actions[0] == GVMM_ACTION_COPY && actions[1] == GVMM_ACTION_BAKE && addresses[1] == n.address);
    *at(m.address) = 5;
    OK(gvmm_binding_begin(b, stream, buffers, 2, sizeof buffers[0], generation, NULL));
    OK(gvmm_stream_synchronize(stream));
    CHECK(*at(addresses[0]) == 5);
    OK(gvmm_binding_end(b, NULL));
    OK(gvmm_binding_destroy(b));

    /* A pool caches plain memory. */
    gvmm_access access[2] = {{0, GVMM_ACCESS_READ_WRITE}, {0, GVMM_ACCESS_READ}};
    gvmm_pool_desc limits = {.struct_size = sizeof limits, .limit_bytes = 8 << 20};
    gvmm_pool *pool = NULL;
    uint64_t block_a = 0, block_b = 0, bytes = 0;
    OK(gvmm_pool_create(device, &limits, &pool));
    OK(gvmm_pool_alloc(pool, 3 << 20, stream, &block_a));
    *at(block_a) = 6;
    EXPECT(GVMM_ERROR_IN_USE, gvmm_pool_destroy(pool));
    EXPECT(GVMM_ERROR_OUT_OF_DEVICE_MEMORY, gvmm_pool_alloc(pool, 6 << 20, stream, &block_b));
    OK(gvmm_pool_free(pool, block_a));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_free(pool, block_a));
    OK(gvmm_pool_alloc(pool, 3 << 20, stream, &block_b));
    CHECK(block_a == block_b && *at(block_b) == 6);
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_pool_set_access(pool, access + 1, 1, sizeof access[0]));
    OK(gvmm_pool_free(pool, block_b));
    OK(gvmm_pool_trim(pool, &bytes));
    CHECK(bytes == 3 << 20);
    OK(gvmm_pool_destroy(pool));
    limits.access = access + 1, limits.access_count = 1, limits.access_stride_bytes = sizeof access[0];
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_pool_create(device, &limits, &pool));
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_segment_create(device, NULL, &(gvmm_segment *){NULL}, &bytes));

    OK(gvmm_stream_destroy(stream));
    OK(gvmm_allocation_destroy(m.allocation));
    OK(gvmm_allocation_destroy(n.allocation));
    OK(gvmm_device_close(device));
    return 0;
}
