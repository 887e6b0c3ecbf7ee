/* A stream that has stopped on a fault: what was bound to it can still be given up, and other streams go on. */
#include "common.h"

int main(void) {
    setenv("GVMM_HOST_MEMORY", "64M", 1);
    gvmm_device *device = open_host();
    uint64_t free_before = 0, free_after = 0, total = 0;
    OK(gvmm_device_memory(device, &free_before, &total));
    gvmm_stream *bad = make_stream(device), *good = make_stream(device);
    gvmm_slot slots[2] = {{.size_bytes = GRANULE}, {.size_bytes = 4096}};
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = 4096};
    memory m = allocate(device, GRANULE), n = allocate(device, GRANULE), o = allocate(device, GRANULE);
    gvmm_buffer first[2] = {buffer_of(m, GRANULE), buffer_of(n, 4096)};
    gvmm_buffer second[2] = {buffer_of(o, GRANULE), buffer_of(n, 4096)};
    gvmm_binding *on_bad = NULL, *on_good = NULL;
    uint64_t addresses[2], generation = 0, gone = 0;
    OK(gvmm_binding_create(device, &desc, slots, 2, sizeof slots[0], &on_bad));
    OK(gvmm_binding_create(device, &desc, slots, 2, sizeof slots[0], &on_good));

    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(on_bad, bad, first, 2, sizeof first[0], 0, NULL));
    OK(gvmm_binding_addresses(on_bad, addresses, 2, &generation));
    OK(gvmm_binding_begin(on_bad, bad, first, 2, sizeof first[0], generation, NULL));
    gvmm_copy_slice nowhere = {4096, 8192, 64};
    OK(gvmm_shadow_copy(device, bad, &nowhere, 1, sizeof nowhere, NULL)); /* the launch goes wrong */
    OK(gvmm_binding_abort(on_bad));
    EXPECT(GVMM_ERROR_DEVICE_FAULT, gvmm_stream_synchronize(bad));

    /* A begin that must wait for the broken step cannot; the binding stays as it was. */
    gvmm_status status = gvmm_binding_begin(on_bad, bad, second, 2, sizeof second[0], generation, NULL);
    CHECK(status >= 100);
    EXPECT(status, gvmm_binding_begin(on_bad, good, second, 2, sizeof second[0], generation, NULL));

    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(on_good, good, first, 2, sizeof first[0], 0, NULL));
    OK(gvmm_binding_addresses(on_good, addresses, 2, &generation));
    *at(n.address) = 31;
    OK(gvmm_binding_begin(on_good, good, first, 2, sizeof first[0], generation, NULL));
    OK(gvmm_stream_synchronize(good));
    CHECK(*at(addresses[1]) == 31);
    OK(gvmm_binding_end(on_good, NULL));

    OK(gvmm_binding_destroy(on_good));
    OK(gvmm_binding_destroy(on_bad));
    OK(gvmm_stream_destroy(bad));
    OK(gvmm_stream_destroy(good));
    OK(gvmm_device_collect(device, &gone));
    (void)gvmm_device_drain(device); /* may say that a stream is gone; the rest is collected all the same */
    OK(gvmm_allocation_destroy(m.allocation));
    OK(gvmm_allocation_destroy(n.allocation));
    OK(gvmm_allocation_destroy(o.allocation));
    OK(gvmm_device_close(device));
    device = open_host(); /* opened anew: nothing was left behind */
    OK(gvmm_device_memory(device, &free_after, &total));
    CHECK(free_after == free_before);
    OK(gvmm_device_close(device));
    return 0;
}
