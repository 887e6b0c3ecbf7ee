/* Two devices, access lists, sharing by descriptor, adopted handles. */
#include "common.h"
#include <fcntl.h>
#include <unistd.h>

static gvmm_device *open_number(uint32_t ordinal) {
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST, .ordinal = ordinal};
    gvmm_device *device = NULL;
    OK(gvmm_device_open(&desc, &device));
    return device;
}

/* Copies a word on a stream of a device, and says what the stream made of it. */
static gvmm_status copy(gvmm_device *device, uint64_t to, uint64_t from) {
    gvmm_stream *stream = make_stream(device);
    gvmm_copy_slice slice = {to, from, 4};
    OK(gvmm_shadow_copy(device, stream, &slice, 1, sizeof slice, NULL));
    gvmm_status status = gvmm_stream_synchronize(stream);
    OK(gvmm_stream_destroy(stream));
    return status;
}

static void access_lists(gvmm_device *zero, gvmm_device *one) {
    gvmm_access both[2] = {{0, GVMM_ACCESS_READ_WRITE}, {1, GVMM_ACCESS_READ}};
    gvmm_reserve_desc desc = {.struct_size = sizeof desc, .access = both, .access_count = 2,
                              .access_stride_bytes = sizeof both[0]};
    gvmm_reservation *r = NULL;
    uint64_t address = 0;
    OK(gvmm_reserve(zero, GRANULE, &desc, &r, &address));
    gvmm_block *block = make_block(zero, GRANULE);
    gvmm_remap_entry entry = {r, 0, block};
    OK(gvmm_remap(zero, &entry, 1, sizeof entry, NULL, 0, NULL));
    memory at_one = allocate(one, GRANULE);
    *at(address) = 77;
    OK(copy(one, at_one.address, address)); /* one may read */
    CHECK(*at(at_one.address) == 77);
    EXPECT(GVMM_ERROR_DEVICE_FAULT, copy(one, address, at_one.address)); /* and not write */
    EXPECT(GVMM_ERROR_DEVICE_FAULT, copy(zero, address, at_one.address)); /* zero was not let in there */
    both[1].mode = GVMM_ACCESS_READ_WRITE;
    OK(gvmm_reservation_set_access(r, 0, GRANULE, both, 2, sizeof both[0]));
    OK(copy(one, address, at_one.address));

    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_remap(one, &entry, 1, sizeof entry, NULL, 0, NULL)); /* zero's */
    gvmm_stream *stream = make_stream(one);
    gvmm_copy_slice slice = {address, at_one.address, 4};
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_shadow_copy(zero, stream, &slice, 1, sizeof slice, NULL));
    OK(gvmm_stream_destroy(stream));
    entry.block = NULL;
    OK(gvmm_remap(zero, &entry, 1, sizeof entry, NULL, 0, NULL));
    gvmm_reservation *other = reserve(one, GRANULE, &address);
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_map(other, 0, block));
    OK(gvmm_reservation_destroy(other));
    OK(gvmm_reservation_destroy(r));
    OK(gvmm_block_destroy(block));
    OK(gvmm_allocation_destroy(at_one.allocation));
}

static void graphs_of_two_devices(gvmm_device *zero, gvmm_device *one) {
    gvmm_stream *here = make_stream(zero), *there = make_stream(one);
    gvmm_graph *graph = NULL;
    OK(gvmm_stream_capture_begin(here));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_stream_capture_begin(here));
    OK(gvmm_stream_capture_end(here, &graph));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_stream_capture_end(here, &graph));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_graph_launch(graph, there));
    OK(gvmm_graph_launch(graph, here));
    OK(gvmm_graph_destroy(graph));
    OK(gvmm_stream_destroy(here));
    OK(gvmm_stream_destroy(there));
}

static void sharing(gvmm_device *device) {
    gvmm_block *ours = NULL, *theirs = NULL;
    int fd = -1;
    OK(gvmm_block_create(device, GRANULE, GVMM_BLOCK_EXPORTABLE, &ours));
    OK(gvmm_block_export(ours, &fd));
    CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    OK(gvmm_block_import(device, fd, GRANULE, &theirs));
    CHECK(close(fd) == 0);
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_block_import(device, fd, GRANULE, &theirs));
    uint64_t address = 0;
    gvmm_reservation *r = reserve(device, 2 * GRANULE, &address);
    gvmm_remap_entry entries[2] = {{r, 0, ours}, {r, GRANULE, theirs}};
    OK(gvmm_remap(device, entries, 2, sizeof entries[0], NULL, 0, NULL));
    *at(address) = 1234;
    CHECK(*at(address + GRANULE) == 1234); /* one memory */
    OK(gvmm_reservation_unmap(r, 0, 2 * GRANULE));
    OK(gvmm_reservation_destroy(r));
    OK(gvmm_block_destroy(ours));
    OK(gvmm_block_destroy(theirs));
    gvmm_block *plain = make_block(device, GRANULE);
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_block_export(plain, &fd));
    OK(gvmm_block_destroy(plain));
}

static void adopted(gvmm_device *device) {
    gvmm_block *block = make_block(device, GRANULE), *borrowed = NULL;
    gvmm_block_info info = {.struct_size = sizeof info}, copy_of = {.struct_size = sizeof copy_of};
    OK(gvmm_block_query(block, &info));
    OK(gvmm_block_adopt(device, info.native_handle, GRANULE, 0, &borrowed));
    OK(gvmm_block_query(borrowed, &copy_of));
    CHECK(copy_of.native_handle == info.native_handle && copy_of.allocation_id != info.allocation_id);
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_block_adopt(device, info.native_handle, 2 * GRANULE, 0, &borrowed));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT,
           gvmm_block_adopt(device, info.native_handle, GRANULE, GVMM_BLOCK_OWNED, &borrowed));
    OK(gvmm_block_destroy(borrowed)); /* which leaves the native handle */
    uint64_t address = 0;
    gvmm_reservation *r = reserve(device, GRANULE, &address);
    gvmm_remap_entry entry = {r, 0, block};
    OK(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, NULL));
    *at(address) = 1;
    entry.block = NULL;
    OK(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, NULL));
    OK(gvmm_reservation_destroy(r));
    OK(gvmm_block_destroy(block));
}

int main(void) {
    setenv("GVMM_HOST_DEVICES", "2", 1);
    uint32_t count = 0;
    OK(gvmm_device_count(GVMM_DRIVER_HOST, &count));
    CHECK(count == 2);
    gvmm_device *zero = open_number(0), *one = open_number(1);
    access_lists(zero, one);
    graphs_of_two_devices(zero, one);
    sharing(zero);
    adopted(zero);
    OK(gvmm_device_drain(zero));
    OK(gvmm_device_close(zero));
    OK(gvmm_device_close(one));
    return 0;
}
