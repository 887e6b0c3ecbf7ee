/* The program ends with work pending: streams run, a step is begun, something is retired, nothing is destroyed. */
#include "common.h"
#include <unistd.h>

static void nap(void *user_data) {
    (void)user_data;
    for (int i = 0; i < 2000; i++) usleep(1000);
}

int main(void) {
    gvmm_device *device = open_host();
    gvmm_stream *streams[3];
    for (int i = 0; i < 3; i++) streams[i] = make_stream(device);
    memory m = allocate(device, GRANULE);
    gvmm_slot slots[2] = {{.size_bytes = GRANULE}, {.size_bytes = 4096}};
    gvmm_buffer buffers[2] = {buffer_of(m, GRANULE), buffer_of(allocate(device, GRANULE), 4096)};
    gvmm_binding *b = NULL;
    OK(gvmm_binding_create(device, NULL, slots, 2, sizeof slots[0], &b));
    uint64_t addresses[2], generation = 0;
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(b, streams[0], buffers, 2, sizeof buffers[0], 0, NULL));
    OK(gvmm_binding_addresses(b, addresses, 2, &generation));
    OK(gvmm_binding_begin(b, streams[0], buffers, 2, sizeof buffers[0], generation, NULL));
    OK(gvmm_stream_host_function(streams[0], nap, NULL));
    OK(gvmm_stream_host_function(streams[1], nap, NULL));
    OK(gvmm_stream_capture_begin(streams[2]));
    OK(gvmm_stream_host_function(streams[2], nap, NULL));
    gvmm_reservation *r = reserve(device, GRANULE, &addresses[0]);
    gvmm_remap_entry entry = {r, 0, make_block(device, GRANULE)};
    OK(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, NULL));
    OK(gvmm_device_retire(device, &entry, 1, sizeof entry, (void *const *)&streams[1], 1));
    alarm(under_valgrind() ? 120 : 20); /* the end must not wait for what never ends */
    return 0;
}
