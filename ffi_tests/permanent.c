/* Slots with a permanent address: there before the first step, the same in every generation, freed after the last step. */
#include "common.h"

#include <sched.h>

enum { SHARED = 0, MOVING = 1, COUNT = 2 };

static int gate_open;
static void gate(void *user_data) {
    (void)user_data;
    while (!__atomic_load_n(&gate_open, __ATOMIC_ACQUIRE)) sched_yield();
}

static void refused(gvmm_device *device) {
    gvmm_binding *binding = NULL;
    gvmm_slot slots[2] = {{.size_bytes = 64}, {.size_bytes = 64, .flags = GVMM_SLOT_PERMANENT | GVMM_SLOT_REGISTERED}};
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_binding_create(device, NULL, slots, 2, sizeof slots[0], &binding));
    CHECK(last_detail().entry == 1);
    slots[1].flags = GVMM_SLOT_PERMANENT, slots[1].shadow_address = 4096;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_binding_create(device, NULL, slots, 2, sizeof slots[0], &binding));
    slots[1].shadow_address = 0, slots[1].alignment_bytes = 2 * GRANULE;
    EXPECT(GVMM_ERROR_MISALIGNED, gvmm_binding_create(device, NULL, slots, 2, sizeof slots[0], &binding));
    CHECK(last_detail().entry == 1);
    slots[1].alignment_bytes = 4096;
    for (uint64_t nth = 1; nth <= 4; nth++) { /* create, reserve, map, access */
        OK(gvmm_device_fail_calls(device, GVMM_CALL_ANY, nth, 1, GVMM_ERROR_DRIVER_ERROR));
        EXPECT(GVMM_ERROR_DRIVER_ERROR, gvmm_binding_create(device, NULL, slots, 2, sizeof slots[0], &binding));
        OK(gvmm_device_fail_calls(device, GVMM_CALL_ANY, 1, 0, GVMM_ERROR_DRIVER_ERROR));
    }
    CHECK(binding == NULL);
    OK(gvmm_binding_create(device, NULL, slots, 2, sizeof slots[0], &binding));
    uint64_t address = 0;
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_binding_permanent(binding, 2, &address));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_permanent(binding, 0, &address));
    OK(gvmm_binding_permanent(binding, 1, &address));
    CHECK(address != 0 && address % 4096 == 0);
    OK(gvmm_binding_destroy(binding));
}

int main(void) {
    gvmm_device *device = open_host();
    gvmm_stream *stream = make_stream(device);
    uint64_t before = 0, after = 0, total = 0;
    OK(gvmm_device_memory(device, &before, &total));
    refused(device);

    /* The other slot is baked, so that each move of it lays the binding out anew. */
    gvmm_slot slots[COUNT] = {{.size_bytes = 64, .flags = GVMM_SLOT_PERMANENT},
                              {.size_bytes = 64, .flags = GVMM_SLOT_REGISTERED}};
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = GVMM_THRESHOLD_OFF};
    gvmm_binding *binding = NULL;
    OK(gvmm_binding_create(device, &desc, slots, COUNT, sizeof slots[0], &binding));
    uint64_t permanent = 0, addresses[COUNT], generation = 0, last = 0;
    OK(gvmm_binding_permanent(binding, SHARED, &permanent));
    *at(permanent) = 1; /* a communicator may use it already */

    memory shared[2] = {allocate(device, 64), allocate(device, 64)}, moving[2] = {allocate(device, 64), allocate(device, 64)};
    for (uint32_t step = 0; step < 6; step++) {
        gvmm_buffer buffers[COUNT] = {buffer_of(shared[step % 2], 64), buffer_of(moving[step % 2], 64)};
        *at(shared[step % 2].address) = 10 + step;
        gvmm_status status = gvmm_binding_begin(binding, stream, buffers, COUNT, sizeof buffers[0], generation, NULL);
        CHECK(status == GVMM_STATUS_RECORD_AGAIN);
        OK(gvmm_binding_addresses(binding, addresses, COUNT, &generation));
        CHECK(addresses[SHARED] == permanent && addresses[MOVING] == moving[step % 2].address && generation > last);
        last = generation;
        OK(gvmm_binding_begin(binding, stream, buffers, COUNT, sizeof buffers[0], generation, NULL));
        OK(gvmm_stream_synchronize(stream));
        CHECK(*at(permanent) == 10 + step);
        *at(permanent) += 100;
        OK(gvmm_binding_end(binding, NULL));
        OK(gvmm_stream_synchronize(stream));
        CHECK(*at(shared[step % 2].address) == 110 + step);
    }

    /* Destroyed while a step is under way: the memory stays until the stream has passed. */
    gvmm_buffer buffers[COUNT] = {buffer_of(shared[0], 64), buffer_of(moving[1], 64)};
    OK(gvmm_stream_host_function(stream, gate, NULL));
    OK(gvmm_binding_begin(binding, stream, buffers, COUNT, sizeof buffers[0], generation, NULL));
    OK(gvmm_binding_end(binding, NULL));
    OK(gvmm_binding_destroy(binding));
    *at(permanent) = 7; /* still there */
    __atomic_store_n(&gate_open, 1, __ATOMIC_RELEASE);
    OK(gvmm_stream_synchronize(stream));
    for (int i = 0; i < 2; i++) {
        OK(gvmm_allocation_destroy(shared[i].allocation));
        OK(gvmm_allocation_destroy(moving[i].allocation));
    }
    OK(gvmm_device_drain(device));
    OK(gvmm_device_memory(device, &after, &total));
    CHECK(after == before);
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_device_close(device));
    return 0;
}
