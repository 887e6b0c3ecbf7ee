/* Retiring: a stream still sees what the caller has given up, the same block comes back without a driver call, and the
   driver's unmap follows when the stream has passed. */
#include "common.h"
#include <stdatomic.h>
#include <unistd.h>

static atomic_int closed = 1;

/* Holds a stream back until the gate is opened. */
static void gate(void *user_data) {
    (void)user_data;
    while (atomic_load(&closed)) usleep(100);
}

static gvmm_call_counts counts(gvmm_device *device) {
    gvmm_call_counts c = {.struct_size = sizeof c};
    OK(gvmm_device_counters(device, &c));
    return c;
}

static uint64_t mapped(gvmm_reservation *r) {
    gvmm_reservation_info info = {.struct_size = sizeof info};
    OK(gvmm_reservation_query(r, &info));
    return info.mapping_count;
}

int main(void) {
    gvmm_device *device = open_host();
    gvmm_stream *stream = make_stream(device);
    uint64_t address = 0, collected = 7;
    gvmm_reservation *r = reserve(device, GRANULE, &address);
    gvmm_block *block = make_block(device, GRANULE), *other = make_block(device, GRANULE);
    gvmm_remap_entry entry = {r, 0, block};
    void *const streams[1] = {stream};
    OK(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, NULL));
    *at(address) = 41;
    memory seen = allocate(device, 4096);

    /* The stream reads the mapping after it was retired. */
    gvmm_copy_slice slice = {seen.address, address, 4};
    OK(gvmm_stream_host_function(stream, gate, NULL));
    OK(gvmm_shadow_copy(device, stream, &slice, 1, sizeof slice, NULL));
    gvmm_call_counts before = counts(device);
    OK(gvmm_device_retire(device, &entry, 1, sizeof entry, streams, 1));
    CHECK(mapped(r) == 0 && counts(device).unmap == before.unmap);
    OK(gvmm_device_collect(device, &collected));
    CHECK(collected == 0); /* the stream has not passed */

    /* The same block at the same place: taken back, and no driver call but the one that marks the stream. */
    gvmm_remap_report report = {.struct_size = sizeof report};
    OK(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, &report));
    CHECK(report.map_calls == 0 && report.unmap_calls == 0 && report.set_access_calls == 0);
    CHECK(mapped(r) == 1 && counts(device).map == before.map && counts(device).unmap == before.unmap);

    /* Retired again, and not wanted back: it goes once the stream has passed. */
    OK(gvmm_device_retire(device, &entry, 1, sizeof entry, streams, 1));
    OK(gvmm_block_destroy(block)); /* its memory goes with the last mapping */
    atomic_store(&closed, 0);
    OK(gvmm_stream_synchronize(stream));
    CHECK(*at(seen.address) == 41);
    OK(gvmm_device_drain(device));
    CHECK(counts(device).unmap == before.unmap + 1 && counts(device).release == before.release + 1);

    /* Another block at the place of a retired one waits for the stream by itself. */
    entry.block = other;
    OK(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, NULL));
    atomic_store(&closed, 1);
    OK(gvmm_stream_host_function(stream, gate, NULL));
    OK(gvmm_device_retire(device, &entry, 1, sizeof entry, streams, 1));
    atomic_store(&closed, 0);
    entry.block = make_block(device, GRANULE);
    OK(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, &report));
    CHECK(report.map_calls == 1 && mapped(r) == 1);

    gvmm_block *last = entry.block;
    entry.block = NULL;
    OK(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, NULL));
    OK(gvmm_block_destroy(last));
    OK(gvmm_block_destroy(other));
    OK(gvmm_reservation_destroy(r));
    OK(gvmm_allocation_destroy(seen.allocation));
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_device_close(device));
    return 0;
}
