/* The first, second, third ... driver call of a scenario fails, and all that follow or just that one: every failure is a
   status, everything can be destroyed afterwards, and no memory is left behind. */
#include "common.h"

static gvmm_device *device;
static const uint32_t calls[] = {
    GVMM_CALL_RESERVE, GVMM_CALL_FREE, GVMM_CALL_CREATE, GVMM_CALL_RELEASE, GVMM_CALL_MAP, GVMM_CALL_UNMAP,
    GVMM_CALL_SET_ACCESS, GVMM_CALL_COPY, GVMM_CALL_TIMELINE_CREATE, GVMM_CALL_TIMELINE_WRITE,
    GVMM_CALL_TIMELINE_READ, GVMM_CALL_TIMELINE_WAIT, GVMM_CALL_STREAM_WAIT, GVMM_CALL_IS_CAPTURING,
    GVMM_CALL_MEMORY, GVMM_CALL_ANY,
};

/* Takes a step: a failure ends the scenario, RECORD_AGAIN does not. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status >= 100) goto out;                                                               \
    } while (0)

/* What is made goes back whatever happened; what cannot go while calls fail goes later. */
static void destroy_all(gvmm_binding *b, gvmm_allocation **allocations, gvmm_reservation *r, gvmm_block **blocks,
                        gvmm_stream **streams) {
    if (b) OK(gvmm_binding_destroy(b));
    for (int i = 0; i < 2; i++)
        if (streams[i]) OK(gvmm_stream_destroy(streams[i]));
    for (int i = 0; i < 2; i++)
        if (allocations[i]) OK(gvmm_allocation_destroy(allocations[i]));
    if (r) {
        gvmm_remap_entry entries[2] = {{r, 0, NULL}, {r, GRANULE, NULL}};
        OK(gvmm_remap(device, entries, 2, sizeof entries[0], NULL, 0, NULL));
        OK(gvmm_reservation_destroy(r));
    }
    for (int i = 0; i < 2; i++)
        if (blocks[i]) OK(gvmm_block_destroy(blocks[i]));
    OK(gvmm_device_drain(device));
}

static gvmm_status scenario(void) {
    gvmm_status status = GVMM_STATUS_SUCCESS;
    gvmm_binding *b = NULL;
    gvmm_allocation *allocations[2] = {NULL, NULL};
    gvmm_reservation *r = NULL;
    gvmm_block *blocks[2] = {NULL, NULL};
    gvmm_stream *streams[2] = {NULL, NULL};
    gvmm_buffer buffers[2][2];
    uint64_t address = 0, addresses[2] = {0, 0}, generation = 0, n = 0, total = 0;
    gvmm_slot slots[2] = {{.size_bytes = GRANULE}, {.size_bytes = 4096}};
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = 4096};
    memset(buffers, 0, sizeof buffers);

    for (int i = 0; i < 2; i++) TRY(gvmm_stream_create(device, &streams[i]));
    TRY(gvmm_device_memory(device, &n, &total));
    for (int i = 0; i < 2; i++) TRY(gvmm_block_create(device, GRANULE, 0, &blocks[i]));
    TRY(gvmm_reserve(device, 2 * GRANULE, NULL, &r, &address));
    TRY(gvmm_map(r, 0, blocks[0]));
    TRY(gvmm_reservation_set_access(r, 0, GRANULE, NULL, 0, 0));
    gvmm_remap_entry entries[2] = {{r, 0, blocks[1]}, {r, GRANULE, blocks[0]}};
    TRY(gvmm_remap(device, entries, 2, sizeof entries[0], (void *const *)streams, 2, NULL));
    TRY(gvmm_device_retire(device, &entries[0], 1, sizeof entries[0], (void *const *)streams, 1));
    for (int i = 0; i < 2; i++) {
        TRY(gvmm_allocation_create(device, GRANULE, &allocations[i], &address));
        gvmm_allocation_info info = {.struct_size = sizeof info};
        OK(gvmm_allocation_query(allocations[i], &info));
        *at(address) = 5;
        buffers[i][0] = buffers[1 - i][1] =
            (gvmm_buffer){.address = address, .size_bytes = GRANULE, .block = info.block};
    }
    TRY(gvmm_binding_create(device, &desc, slots, 2, sizeof slots[0], &b));
    for (int step = 0; step < 4; step++) {
        gvmm_stream *stream = streams[step / 2];
        TRY(gvmm_binding_begin(b, stream, buffers[step % 2], 2, sizeof(gvmm_buffer), generation, NULL));
        if (status == GVMM_STATUS_RECORD_AGAIN) {
            OK(gvmm_binding_addresses(b, addresses, 2, &generation));
            TRY(gvmm_binding_begin(b, stream, buffers[step % 2], 2, sizeof(gvmm_buffer), generation, NULL));
        }
        status = gvmm_binding_end(b, NULL);
        if (status >= 100) {
            OK(gvmm_binding_abort(b)); /* a step that could not end can be given up */
            goto out;
        }
    }
    TRY(gvmm_binding_drop_idle(b, &n));
    TRY(gvmm_device_collect(device, &n));
    TRY(gvmm_device_drain(device));
out:
    OK(gvmm_device_fail_calls(device, GVMM_CALL_ANY, 0, 0, 0));
    destroy_all(b, allocations, r, blocks, streams);
    return status;
}

/* The entry that a driver call failed for is named, wherever it stands in the array. */
static void blamed(uint32_t call, uint64_t nth, uint64_t entry) {
    gvmm_reservation *r = reserve(device, 8 * GRANULE, &(uint64_t){0});
    gvmm_block *blocks[3];
    for (int i = 0; i < 3; i++) blocks[i] = make_block(device, GRANULE);
    gvmm_remap_entry there = {r, 4 * GRANULE, blocks[0]};
    OK(gvmm_remap(device, &there, 1, sizeof there, NULL, 0, NULL));
    /* By offset they are the second, the third and the first; no two are neighbours. */
    gvmm_remap_entry entries[3] = {{r, 2 * GRANULE, blocks[1]}, {r, 4 * GRANULE, blocks[2]}, {r, 0, blocks[0]}};
    OK(gvmm_device_fail_calls(device, call, nth, 1, GVMM_ERROR_DRIVER_ERROR));
    EXPECT(GVMM_ERROR_DRIVER_ERROR, gvmm_remap(device, entries, 3, sizeof entries[0], NULL, 0, NULL));
    CHECK(last_detail().entry == entry && last_detail().status == GVMM_ERROR_DRIVER_ERROR);
    OK(gvmm_device_fail_calls(device, GVMM_CALL_ANY, 0, 0, 0));
    for (int i = 0; i < 3; i++) entries[i].block = NULL;
    OK(gvmm_remap(device, entries, 3, sizeof entries[0], NULL, 0, NULL));
    for (int i = 0; i < 3; i++) OK(gvmm_block_destroy(blocks[i]));
    OK(gvmm_reservation_destroy(r));
}

int main(void) {
    setenv("GVMM_HOST_MEMORY", "64M", 1);
    device = open_host();
    blamed(GVMM_CALL_UNMAP, 1, 1);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        blamed(GVMM_CALL_MAP, nth, (nth + 1) % 3);
        blamed(GVMM_CALL_SET_ACCESS, nth, (nth + 1) % 3);
    }
    EXPECT(GVMM_STATUS_SUCCESS, scenario());
    uint64_t free_before = 0, free_after = 0, total = 0;
    OK(gvmm_device_memory(device, &free_before, &total));
    CHECK(free_before == total);
    const uint64_t counts[] = {1, 2, 1000};
    int failed = 0, most = under_valgrind() ? 5 : 60;
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++)
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
            for (int nth = 1; nth <= most; nth++) {
                OK(gvmm_device_fail_calls(device, calls[c], (uint64_t)nth, counts[k],
                                          GVMM_ERROR_OUT_OF_DEVICE_MEMORY));
                gvmm_status status = scenario();
                failed += status >= 100;
                CHECK(status < 100 || status == GVMM_ERROR_OUT_OF_DEVICE_MEMORY || status == GVMM_ERROR_RANGE_LOST);
                OK(gvmm_device_memory(device, &free_after, &total));
                if (free_after != free_before) {
                    fprintf(stderr, "call %u, from the %dth, %llu times: %lld bytes left behind\n", calls[c], nth,
                            (unsigned long long)counts[k], (long long)(free_before - free_after));
                    return 1;
                }
            }
    CHECK(failed > 100 || under_valgrind());
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_device_fail_calls(device, 99, 1, 1, GVMM_ERROR_INTERNAL));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_device_fail_calls(device, 0, 0, 1, GVMM_ERROR_INTERNAL));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_device_fail_calls(device, 0, 1, 1, GVMM_STATUS_RECORD_AGAIN));
    EXPECT(GVMM_STATUS_SUCCESS, scenario());
    gvmm_call_counts counted = {.struct_size = sizeof counted};
    OK(gvmm_device_counters(device, &counted));
    CHECK(counted.create > 0 && counted.map > 0 && counted.unmap > 0 && counted.copy_launches > 0);
    OK(gvmm_device_close(device));
    return 0;
}
