/* Timelines: numbers that streams write, seen without a call. */
#include "common.h"

#include <sched.h>

static uint64_t now(const uint64_t *value) { return __atomic_load_n(value, __ATOMIC_ACQUIRE); }

static void wait_for(const uint64_t *value, uint64_t wanted) {
    while (now(value) < wanted) sched_yield();
}

static int gate_open;
static void gate(void *user_data) {
    (void)user_data;
    while (!__atomic_load_n(&gate_open, __ATOMIC_ACQUIRE)) sched_yield();
}

int main(void) {
    gvmm_device *device = open_host();
    gvmm_stream *stream = make_stream(device);
    gvmm_timeline *timeline = NULL, *other = NULL;
    const uint64_t *value = NULL, *others = NULL;
    OK(gvmm_timeline_create(device, &timeline, &value));
    OK(gvmm_timeline_create(device, &other, &others));
    CHECK(now(value) == 0 && value != others && (uintptr_t)value % 8 == 0);

    /* The number comes once the stream gets there, and not before. */
    OK(gvmm_stream_host_function(stream, gate, NULL));
    OK(gvmm_timeline_write(timeline, stream, 7));
    CHECK(now(value) == 0);
    EXPECT(GVMM_ERROR_IN_USE, gvmm_timeline_destroy(timeline));
    __atomic_store_n(&gate_open, 1, __ATOMIC_RELEASE);
    wait_for(value, 7);
    OK(gvmm_timeline_write(timeline, stream, 8));
    OK(gvmm_stream_synchronize(stream));
    CHECK(now(value) == 8 && now(others) == 0);

    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_timeline_write(timeline, stream, 7)); /* it would never be at rest */
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_timeline_write(timeline, stream, 1ull << 63));
    OK(gvmm_timeline_write(timeline, stream, 8));
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_timeline_write(timeline, NULL, 9));
    OK(gvmm_stream_capture_begin(stream));
    EXPECT(GVMM_ERROR_STREAM_CAPTURING, gvmm_timeline_write(timeline, stream, 9));
    gvmm_graph *graph = NULL;
    OK(gvmm_stream_capture_end(stream, &graph));
    OK(gvmm_graph_destroy(graph));
    OK(gvmm_device_fail_calls(device, GVMM_CALL_TIMELINE_WRITE, 1, 1, GVMM_ERROR_DRIVER_ERROR));
    EXPECT(GVMM_ERROR_DRIVER_ERROR, gvmm_timeline_write(timeline, stream, 9));
    OK(gvmm_device_fail_calls(device, GVMM_CALL_TIMELINE_CREATE, 1, 1, GVMM_ERROR_OUT_OF_HOST_MEMORY));
    gvmm_timeline *third = NULL;
    const uint64_t *thirds = NULL;
    EXPECT(GVMM_ERROR_OUT_OF_HOST_MEMORY, gvmm_timeline_create(device, &third, &thirds));
    CHECK(third == NULL && thirds == NULL);
    OK(gvmm_timeline_write(timeline, stream, 9));
    wait_for(value, 9);

    EXPECT(GVMM_ERROR_IN_USE, gvmm_device_close(device));
    OK(gvmm_device_fail_calls(device, GVMM_CALL_TIMELINE_DESTROY, 1, 1, GVMM_ERROR_DRIVER_ERROR));
    EXPECT(GVMM_ERROR_DRIVER_ERROR, gvmm_timeline_destroy(timeline));
    OK(gvmm_timeline_destroy(timeline));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_timeline_write(timeline, stream, 10));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_timeline_destroy(timeline));
    OK(gvmm_timeline_destroy(other));
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_device_close(device));
    return 0;
}
