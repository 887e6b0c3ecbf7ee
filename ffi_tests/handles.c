/* Handles that are stale, doubled, bent or of another type; and destroying what is in use. */
#include "common.h"

static void stale(gvmm_device *device) {
    gvmm_block *block = make_block(device, GRANULE);
    gvmm_block_info info = {.struct_size = sizeof info};
    OK(gvmm_block_query(block, &info));
    CHECK(info.size_bytes == GRANULE && info.mapping_count == 0 && info.allocation_id != 0);
    OK(gvmm_block_destroy(block));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_block_query(block, &info));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_block_destroy(block));
    gvmm_block *next = make_block(device, GRANULE); /* may use the same place, not the same handle */
    CHECK(next != block);
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_block_destroy(block));
    OK(gvmm_block_destroy(next));
}

static void wrong_type(gvmm_device *device) {
    gvmm_block *block = make_block(device, GRANULE);
    gvmm_reservation *r = reserve(device, GRANULE, &(uint64_t){0});
    gvmm_stream *stream = make_stream(device);
    gvmm_block_info info = {.struct_size = sizeof info};
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_block_query((gvmm_block *)device, &info));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_map((gvmm_reservation *)block, 0, block));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_map(r, 0, (gvmm_block *)r));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_stream_synchronize((gvmm_stream *)block));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_device_close((gvmm_device *)stream));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_graph_destroy((gvmm_graph *)stream));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_binding_abort((gvmm_binding *)r));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_allocation_destroy((gvmm_allocation *)block));
    /* Any pointer, and any bent key. */
    int local = 0;
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_block_destroy((gvmm_block *)&local));
    for (int bit = 0; bit < 64; bit++) {
        uintptr_t bent = (uintptr_t)block ^ ((uintptr_t)1 << bit);
        EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_block_query((gvmm_block *)bent, &info));
    }
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_reservation_destroy(r));
    OK(gvmm_block_destroy(block));
}

static void streams(gvmm_device *device) {
    uint32_t capturing = 7;
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_stream_is_capturing(device, NULL, &capturing));
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_stream_is_capturing(device, &capturing, &capturing));
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_stream_forget(device, (void *)(uintptr_t)1));
    gvmm_stream *stream = make_stream(device);
    OK(gvmm_stream_is_capturing(device, stream, &capturing));
    CHECK(capturing == 0);
    OK(gvmm_stream_forget(device, stream));
    OK(gvmm_stream_destroy(stream));
    capturing = 7;
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_stream_is_capturing(device, stream, &capturing));
    CHECK(capturing == 7);
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_stream_destroy(stream));
    gvmm_remap_entry entry = {reserve(device, GRANULE, &(uint64_t){0}), 0, NULL};
    void *dead[1] = {stream};
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_remap(device, &entry, 1, sizeof entry, dead, 1, NULL));
    CHECK(last_detail().entry == 0);
    OK(gvmm_reservation_destroy(entry.reservation));
}

static void in_use(gvmm_device *device) {
    uint64_t address = 0;
    gvmm_reservation *r = reserve(device, 2 * GRANULE, &address);
    gvmm_block *block = make_block(device, GRANULE);
    OK(gvmm_map(r, 0, block));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_block_destroy(block));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_reservation_destroy(r));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_device_close(device));
    gvmm_block_info info = {.struct_size = sizeof info};
    OK(gvmm_block_query(block, &info)); /* all are as before */
    CHECK(info.mapping_count == 1);
    OK(gvmm_reservation_unmap(r, 0, GRANULE));

    memory m = allocate(device, GRANULE);
    EXPECT(GVMM_ERROR_IN_USE, gvmm_block_destroy(m.block)); /* the allocation's */
    OK(gvmm_map(r, GRANULE, m.block));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_allocation_destroy(m.allocation));
    OK(gvmm_block_query(m.block, &info));
    OK(gvmm_reservation_unmap(r, GRANULE, GRANULE));
    OK(gvmm_allocation_destroy(m.allocation));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_block_query(m.block, &info)); /* ended with it */

    OK(gvmm_block_destroy(block));
    OK(gvmm_reservation_destroy(r));
}

/* A binding's mapping does not keep the caller from destroying a block. */
static void binding_holds(gvmm_device *device) {
    gvmm_stream *stream = make_stream(device);
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = GVMM_THRESHOLD_OFF};
    gvmm_slot slot = {.size_bytes = GRANULE};
    gvmm_binding *binding = NULL;
    OK(gvmm_binding_create(device, &desc, &slot, 1, sizeof slot, &binding));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_device_close(device));
    memory m = allocate(device, GRANULE);
    gvmm_buffer buffer = buffer_of(m, GRANULE);
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(binding, stream, &buffer, 1, sizeof buffer, 0, NULL));
    uint64_t address = 0, generation = 0;
    OK(gvmm_binding_addresses(binding, &address, 1, &generation));
    OK(gvmm_binding_begin(binding, stream, &buffer, 1, sizeof buffer, generation, NULL));
    OK(gvmm_binding_end(binding, NULL));
    *at(m.address) = 0xabcd;
    CHECK(*at(address) == 0xabcd);
    /* Other blocks come and go; the step's own live. */
    OK(gvmm_block_destroy(make_block(device, GRANULE)));
    gvmm_step_report report = {.struct_size = sizeof report};
    OK(gvmm_binding_begin(binding, stream, &buffer, 1, sizeof buffer, generation, &report));
    CHECK(report.changed_slots == 0);
    OK(gvmm_binding_end(binding, NULL));
    OK(gvmm_allocation_destroy(m.allocation));
    CHECK(*at(address) == 0xabcd); /* the mapping holds the memory */
    memory other = allocate(device, GRANULE);
    gvmm_buffer moved = buffer_of(other, GRANULE);
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(binding, stream, &moved, 1, sizeof moved, 0, NULL));
    for (int i = 0; i < 2; i++) {
        EXPECT(GVMM_ERROR_INVALID_HANDLE,
               gvmm_binding_begin(binding, stream, &buffer, 1, sizeof buffer, generation, NULL));
        CHECK(last_detail().entry == 0);
    }
    OK(gvmm_binding_begin(binding, stream, &moved, 1, sizeof moved, generation, NULL));
    OK(gvmm_binding_end(binding, NULL));
    OK(gvmm_allocation_destroy(other.allocation));
    OK(gvmm_binding_destroy(binding));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_binding_destroy(binding));
    OK(gvmm_stream_destroy(stream));
}

/* Two handles of one device: one memory, each with its own children. */
static void two_handles(gvmm_device *device) {
    gvmm_device *other = open_host();
    CHECK(other != device);
    gvmm_block *block = make_block(other, GRANULE);
    gvmm_reservation *r = reserve(device, GRANULE, &(uint64_t){0});
    OK(gvmm_map(r, 0, block)); /* made through one, used with the other */
    OK(gvmm_reservation_unmap(r, 0, GRANULE));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_device_close(other));
    OK(gvmm_block_destroy(block));
    OK(gvmm_device_close(other));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_device_close(other));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_device_drain(other));
    OK(gvmm_reservation_destroy(r));
}

static void graphs(gvmm_device *device) {
    gvmm_stream *stream = make_stream(device);
    gvmm_graph *graph = NULL;
    OK(gvmm_stream_capture_begin(stream));
    OK(gvmm_stream_capture_end(stream, &graph));
    OK(gvmm_stream_destroy(stream));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_device_close(device));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_graph_launch(graph, stream));
    OK(gvmm_graph_destroy(graph));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_graph_destroy(graph));
}

int main(void) {
    gvmm_device *device = open_host();
    stale(device);
    wrong_type(device);
    streams(device);
    in_use(device);
    binding_holds(device);
    two_handles(device);
    graphs(device);
    OK(gvmm_device_drain(device));
    OK(gvmm_device_close(device));
    return 0;
}
