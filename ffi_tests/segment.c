/* Segments: rounding, runs, limits, and each driver call failing in turn. */
#include "common.h"

static gvmm_device *device;
static gvmm_stream *s;

static gvmm_segment *make(uint64_t chunks, uint64_t *address) {
    gvmm_segment_desc desc = {.struct_size = sizeof desc, .size_bytes = chunks * GRANULE, .chunk_bytes = GRANULE};
    gvmm_segment *segment = NULL;
    OK(gvmm_segment_create(device, &desc, &segment, address));
    return segment;
}

static uint64_t live(gvmm_segment *segment) {
    gvmm_segment_info info = {.struct_size = sizeof info};
    OK(gvmm_segment_query(segment, &info));
    return info.live_chunks;
}

static void rounding(void) {
    uint64_t start = 0, from = 0, size = 0, gone = 0;
    gvmm_segment *segment = make(8, &start);
    OK(gvmm_segment_map(segment, start + 5, 1, &from, &size));
    CHECK(from == start && size == GRANULE && live(segment) == 1);
    OK(gvmm_segment_map(segment, start + 3 * GRANULE - 1, 2, &from, &size));
    CHECK(from == start + 2 * GRANULE && size == 2 * GRANULE && live(segment) == 3);
    OK(gvmm_segment_map(segment, start + 7 * GRANULE, GRANULE, NULL, NULL)); /* the end is an end */
    *at(start + 8 * GRANULE - 4) = 1;
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_segment_map(segment, start + 7 * GRANULE, GRANULE + 1, &from, &size));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_segment_map(segment, start - 1, 1, &from, &size));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_segment_map(segment, start, UINT64_MAX, &from, &size));
    gvmm_chunk_run runs[3] = {{0}};
    size_t count = 0;
    OK(gvmm_segment_live_runs(segment, NULL, 0, 0, &count));
    CHECK(count == 3);
    OK(gvmm_segment_live_runs(segment, runs, 2, sizeof runs[0], &count));
    CHECK(count == 3 && runs[0].first_chunk == 0 && runs[0].chunk_count == 1);
    CHECK(runs[1].first_chunk == 2 && runs[1].chunk_count == 2 && runs[2].chunk_count == 0);
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_segment_live_runs(segment, runs, 2, 15, &count));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_segment_destroy(segment));
    OK(gvmm_segment_unmap(segment, start + 1, 4 * GRANULE - 1, NULL, 0, &gone)); /* inwards */
    CHECK(gone == 2 * GRANULE && live(segment) == 2);
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_segment_unmap(segment, start, 9 * GRANULE, NULL, 0, &gone));
    void *streams[2] = {s, device};
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_segment_unmap(segment, start, 8 * GRANULE, streams, 2, &gone));
    CHECK(live(segment) == 2);
    OK(gvmm_segment_unmap(segment, start, 8 * GRANULE, streams, 1, &gone));
    CHECK(gone == 2 * GRANULE && live(segment) == 0);
    OK(gvmm_segment_destroy(segment));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_segment_destroy(segment));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_segment_map(segment, start, 1, &from, &size));
    OK(gvmm_device_drain(device));
}

static void descriptions(void) {
    uint64_t address = 0;
    gvmm_segment *segment = NULL;
    gvmm_access access[2] = {{0, GVMM_ACCESS_READ_WRITE}, {9, GVMM_ACCESS_READ}};
    gvmm_segment_desc desc = {.struct_size = sizeof desc, .size_bytes = GRANULE, .chunk_bytes = 4096};
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_segment_create(device, &desc, &segment, &address));
    desc.chunk_bytes = GRANULE, desc.size_bytes = UINT64_MAX;
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_segment_create(device, &desc, &segment, &address));
    desc.size_bytes = GRANULE, desc.access = access, desc.access_count = 2, desc.access_stride_bytes = 8;
    EXPECT(GVMM_ERROR_NO_DEVICE, gvmm_segment_create(device, &desc, &segment, &address));
    access[1].device = 1, access[1].mode = 2;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_segment_create(device, &desc, &segment, &address));
    desc.access_stride_bytes = 1;
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_segment_create(device, &desc, &segment, &address));
    CHECK(segment == NULL && address == 0);
    OK(gvmm_segment_create(device, NULL, &segment, &address));
    gvmm_segment_info info = {.struct_size = sizeof info};
    OK(gvmm_segment_query(segment, &info));
    CHECK(info.address == address && info.size_bytes >= 9 * (256ull << 20) / 8 && info.chunk_bytes == 8 * GRANULE);
    CHECK(info.chunk_count * info.chunk_bytes == info.size_bytes && info.live_chunks == 0);
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_segment_set_access(segment, access, 2, sizeof access[0]));
    access[1].device = 9, access[1].mode = GVMM_ACCESS_READ;
    EXPECT(GVMM_ERROR_NO_DEVICE, gvmm_segment_set_access(segment, access, 2, sizeof access[0]));
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_segment_set_access(segment, access, 2, 3));
    access[1].device = 1;
    OK(gvmm_segment_map(segment, address, 1, NULL, NULL));
    OK(gvmm_segment_set_access(segment, access, 2, sizeof access[0])); /* what lives */
    OK(gvmm_segment_map(segment, address + info.chunk_bytes, 1, NULL, NULL)); /* and what comes */
    EXPECT(GVMM_ERROR_OUT_OF_DEVICE_MEMORY, gvmm_segment_map(segment, address, info.size_bytes, NULL, NULL));
    CHECK(live(segment) == 2); /* all or nothing */
    OK(gvmm_segment_unmap(segment, address, info.size_bytes, NULL, 0, &address));
    OK(gvmm_segment_destroy(segment));
}

static void each_call_fails(void) {
    uint64_t start = 0, gone = 0;
    gvmm_status kinds[] = {GVMM_ERROR_DRIVER_ERROR, GVMM_ERROR_OUT_OF_DEVICE_MEMORY};
    for (int k = 0; k < 2; k++) {
        int failed = 1;
        for (uint64_t nth = 1; failed; nth++) {
            gvmm_segment *segment = make(4, &start);
            OK(gvmm_segment_map(segment, start, GRANULE, NULL, NULL));
            *at(start) = 9;
            OK(gvmm_device_fail_calls(device, GVMM_CALL_ANY, nth, 1, kinds[k]));
            failed = gvmm_segment_map(segment, start, 4 * GRANULE, NULL, NULL) != GVMM_STATUS_SUCCESS;
            CHECK(live(segment) == (failed ? 1 : 4) && *at(start) == 9);
            OK(gvmm_device_fail_calls(device, GVMM_CALL_ANY, 0, 0, 0));
            OK(gvmm_segment_map(segment, start, 4 * GRANULE, NULL, NULL));
            CHECK(live(segment) == 4 && *at(start) == 9);
            OK(gvmm_segment_unmap(segment, start, 4 * GRANULE, NULL, 0, &gone));
            OK(gvmm_segment_destroy(segment));
            CHECK(nth < 50 && (nth > 3 || failed || k == 1));
        }
    }
}

int main(void) {
    setenv("GVMM_HOST_MEMORY", "256M", 1);
    setenv("GVMM_HOST_DEVICES", "2", 1);
    device = open_host();
    s = make_stream(device);
    rounding();
    descriptions();
    each_call_fails();
    OK(gvmm_stream_destroy(s));
    OK(gvmm_device_close(device));
    return 0;
}
