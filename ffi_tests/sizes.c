/* Sizes, offsets and ranges that cannot be: a status, and nothing has changed. */
#include "common.h"

static const uint64_t HUGE = UINT64_MAX - GRANULE + 1; /* the largest multiple of the granule */

static void blocks(gvmm_device *device) {
    gvmm_block *block = (gvmm_block *)0x1234;
    const uint64_t bad[] = {0, 1, GRANULE - 1, GRANULE + 1, UINT64_MAX, UINT64_MAX - 1};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_block_create(device, bad[i], 0, &block));
    EXPECT(GVMM_ERROR_OUT_OF_DEVICE_MEMORY, gvmm_block_create(device, HUGE, 0, &block));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_block_create(device, GRANULE, 4, &block));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_block_create(device, GRANULE, GVMM_BLOCK_OWNED, &block));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_block_adopt(device, 0, GRANULE, 0, &block));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_block_adopt(device, 0xdeadbeef, GRANULE, 0, &block));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_block_import(device, -1, GRANULE, &block));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_block_import(device, 999999, GRANULE, &block));
    CHECK(block == (gvmm_block *)0x1234); /* outputs are written on success only */
}

static void reservations(gvmm_device *device) {
    gvmm_reservation *reservation = (gvmm_reservation *)0x1234;
    uint64_t address = 77;
    const uint64_t bad[] = {0, 1, GRANULE + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_reserve(device, bad[i], NULL, &reservation, &address));
    if (!under_valgrind()) { /* whose own mmap says EINVAL instead of ENOMEM */
        EXPECT(GVMM_ERROR_OUT_OF_ADDRESS_SPACE, gvmm_reserve(device, HUGE, NULL, &reservation, &address));
        EXPECT(GVMM_ERROR_OUT_OF_ADDRESS_SPACE, gvmm_reserve(device, 1ull << 50, NULL, &reservation, &address));
    }
    gvmm_reserve_desc desc = {.struct_size = sizeof desc, .alignment_bytes = 3};
    EXPECT(GVMM_ERROR_MISALIGNED, gvmm_reserve(device, GRANULE, &desc, &reservation, &address));
    gvmm_access access = {.device = 0, .mode = 2};
    desc = (gvmm_reserve_desc){.struct_size = sizeof desc, .access = &access, .access_count = 1,
                               .access_stride_bytes = sizeof access};
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_reserve(device, GRANULE, &desc, &reservation, &address));
    access = (gvmm_access){.device = 99, .mode = GVMM_ACCESS_READ};
    EXPECT(GVMM_ERROR_NO_DEVICE, gvmm_reserve(device, GRANULE, &desc, &reservation, &address));
    CHECK(reservation == (gvmm_reservation *)0x1234 && address == 77);

    desc = (gvmm_reserve_desc){.struct_size = sizeof desc, .alignment_bytes = 16 * GRANULE};
    OK(gvmm_reserve(device, GRANULE, &desc, &reservation, &address));
    CHECK(address % (16 * GRANULE) == 0);
    OK(gvmm_reservation_destroy(reservation));
}

static void mappings(gvmm_device *device) {
    uint64_t address = 0;
    gvmm_reservation *r = reserve(device, 8 * GRANULE, &address);
    gvmm_block *one = make_block(device, GRANULE), *two = make_block(device, 2 * GRANULE);

    EXPECT(GVMM_ERROR_MISALIGNED, gvmm_map(r, 1, one));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_map(r, 8 * GRANULE, one));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_map(r, 7 * GRANULE, two));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_map(r, HUGE, two));

    OK(gvmm_map(r, 2 * GRANULE, two));
    EXPECT(GVMM_ERROR_ALREADY_MAPPED, gvmm_map(r, 2 * GRANULE, one));
    EXPECT(GVMM_ERROR_ALREADY_MAPPED, gvmm_map(r, 3 * GRANULE, one));
    EXPECT(GVMM_ERROR_ALREADY_MAPPED, gvmm_map(r, 1 * GRANULE, two));

    EXPECT(GVMM_ERROR_NOT_MAPPED, gvmm_reservation_unmap(r, 0, GRANULE));
    EXPECT(GVMM_ERROR_PARTIAL_MAPPING, gvmm_reservation_unmap(r, 2 * GRANULE, GRANULE));
    EXPECT(GVMM_ERROR_PARTIAL_MAPPING, gvmm_reservation_unmap(r, 3 * GRANULE, GRANULE));
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_reservation_unmap(r, 2 * GRANULE, 0));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_reservation_unmap(r, 2 * GRANULE, HUGE));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_reservation_unmap(r, HUGE, 2 * GRANULE));

    gvmm_access access = {.device = 0, .mode = GVMM_ACCESS_READ_WRITE};
    EXPECT(GVMM_ERROR_PARTIAL_MAPPING, gvmm_reservation_set_access(r, 2 * GRANULE, GRANULE, &access, 1, sizeof access));
    EXPECT(GVMM_ERROR_NOT_MAPPED, gvmm_reservation_set_access(r, 0, GRANULE, &access, 1, sizeof access));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_reservation_set_access(r, HUGE, 2 * GRANULE, &access, 1, sizeof access));
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_reservation_set_access(r, 0, 0, &access, 1, sizeof access));

    gvmm_reservation_info info = {.struct_size = sizeof info};
    OK(gvmm_reservation_query(r, &info));
    CHECK(info.address == address && info.size_bytes == 8 * GRANULE);
    CHECK(info.mapped_bytes == 2 * GRANULE && info.mapping_count == 1);

    gvmm_block *found = NULL;
    uint64_t offset = 0;
    OK(gvmm_device_find(device, address + 3 * GRANULE + 5, &found, &offset));
    CHECK(found == two && offset == GRANULE + 5);
    EXPECT(GVMM_ERROR_NOT_MAPPED, gvmm_device_find(device, address, &found, &offset));
    EXPECT(GVMM_ERROR_NOT_MAPPED, gvmm_device_find(device, 0, &found, &offset));
    EXPECT(GVMM_ERROR_NOT_MAPPED, gvmm_device_find(device, UINT64_MAX, &found, &offset));

    OK(gvmm_reservation_set_access(r, 2 * GRANULE, 2 * GRANULE, &access, 1, sizeof access));
    *at(address + 2 * GRANULE) = 0x600d;
    OK(gvmm_reservation_unmap(r, 2 * GRANULE, 2 * GRANULE));
    OK(gvmm_block_destroy(one));
    OK(gvmm_block_destroy(two));
    OK(gvmm_reservation_destroy(r));
}

static void remaps(gvmm_device *device) {
    uint64_t address = 0;
    gvmm_reservation *r = reserve(device, 4 * GRANULE, &address);
    gvmm_block *one = make_block(device, GRANULE), *two = make_block(device, 2 * GRANULE);
    gvmm_remap_report report = {.struct_size = sizeof report};

    gvmm_remap_entry entries[2] = {{r, 0, one}, {r, 4 * GRANULE, one}};
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_remap(device, entries, 2, sizeof entries[0], NULL, 0, &report));
    CHECK(last_detail().entry == 1);
    entries[1].offset_bytes = 5;
    EXPECT(GVMM_ERROR_MISALIGNED, gvmm_remap(device, entries, 2, sizeof entries[0], NULL, 0, &report));
    entries[1].offset_bytes = 0;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_remap(device, entries, 2, sizeof entries[0], NULL, 0, &report));
    entries[0] = (gvmm_remap_entry){r, GRANULE, one};
    entries[1] = (gvmm_remap_entry){r, 0, two};
    EXPECT(GVMM_ERROR_ALREADY_MAPPED, gvmm_remap(device, entries, 2, sizeof entries[0], NULL, 0, &report));
    CHECK(report.map_calls == 0);

    entries[0] = (gvmm_remap_entry){r, 0, two};
    entries[1] = (gvmm_remap_entry){r, 2 * GRANULE, one};
    OK(gvmm_remap(device, entries, 2, sizeof entries[0], NULL, 0, &report));
    CHECK(report.map_calls == 2 && report.set_access_calls == 1 && report.mapped_bytes == 3 * GRANULE);
    *at(address) = 1;
    OK(gvmm_remap(device, entries, 2, sizeof entries[0], NULL, 0, &report));
    CHECK(report.map_calls == 0 && report.skipped_entries == 2);
    EXPECT(GVMM_ERROR_PARTIAL_MAPPING,
           gvmm_remap(device, &(gvmm_remap_entry){r, GRANULE, NULL}, 1, sizeof entries[0], NULL, 0, NULL));
    EXPECT(GVMM_ERROR_NOT_MAPPED,
           gvmm_device_retire(device, &(gvmm_remap_entry){r, 3 * GRANULE, NULL}, 1, sizeof entries[0], NULL, 0));
    OK(gvmm_remap(device, NULL, 0, 0, NULL, 0, NULL));
    OK(gvmm_device_retire(device, entries, 2, sizeof entries[0], NULL, 0));
    uint64_t collected = 0;
    OK(gvmm_device_collect(device, &collected));
    OK(gvmm_block_destroy(one));
    OK(gvmm_block_destroy(two));
    OK(gvmm_reservation_destroy(r));
}

static void copies(gvmm_device *device) {
    gvmm_stream *stream = make_stream(device);
    memory m = allocate(device, GRANULE);
    uint32_t launches = 7;
    gvmm_copy_slice s[2] = {{m.address, m.address + 100, 64}, {m.address + 32, m.address + 300, 64}};
    EXPECT(GVMM_ERROR_OVERLAP, gvmm_shadow_copy(device, stream, s, 2, sizeof s[0], &launches));
    CHECK(last_detail().entry <= 1);
    s[0] = (gvmm_copy_slice){m.address, m.address + 10, 64};
    EXPECT(GVMM_ERROR_OVERLAP, gvmm_shadow_copy(device, stream, s, 1, sizeof s[0], &launches));
    s[0] = (gvmm_copy_slice){UINT64_MAX - 3, m.address, 64};
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_shadow_copy(device, stream, s, 1, sizeof s[0], &launches));
    s[0] = (gvmm_copy_slice){m.address, 0, 64};
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_shadow_copy(device, stream, s, 1, sizeof s[0], &launches));
    CHECK(launches == 7);
    OK(gvmm_shadow_copy(device, stream, NULL, 0, 0, &launches));
    CHECK(launches == 0);
    s[0] = (gvmm_copy_slice){m.address, m.address + 4096, 64};
    *at(m.address + 4096) = 42;
    OK(gvmm_shadow_copy(device, stream, s, 1, sizeof s[0], &launches));
    OK(gvmm_stream_synchronize(stream));
    CHECK(launches == 1 && *at(m.address) == 42);
    OK(gvmm_allocation_destroy(m.allocation));
    OK(gvmm_stream_destroy(stream));
}

static void allocations(gvmm_device *device) {
    gvmm_allocation *allocation = (gvmm_allocation *)0x1234;
    uint64_t address = 77;
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_allocation_create(device, 0, &allocation, &address));
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_allocation_create(device, UINT64_MAX, &allocation, &address));
    EXPECT(GVMM_ERROR_OUT_OF_DEVICE_MEMORY, gvmm_allocation_create(device, 1ull << 60, &allocation, &address));
    CHECK(allocation == (gvmm_allocation *)0x1234 && address == 77);
    memory m = allocate(device, 1);
    *at(m.address) = 5;
    CHECK(m.size == GRANULE);
    OK(gvmm_allocation_destroy(m.allocation));
}

static void thresholds(void) {
    uint64_t sizes[4] = {4096, 65536, 0, 1ull << 40}, threshold = 7;
    OK(gvmm_compute_threshold(sizes, 4, 0, 0, 0, &threshold));
    CHECK(threshold == 65536);
    OK(gvmm_compute_threshold(NULL, 0, 1, 1, 1, &threshold));
    CHECK(threshold == GVMM_THRESHOLD_OFF);
    OK(gvmm_compute_threshold(sizes, 4, UINT64_MAX, UINT64_MAX, UINT64_MAX, &threshold));
    CHECK(threshold >= 65536);
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_compute_threshold(sizes, SIZE_MAX, 1, 1, 1, &threshold));
}

int main(void) {
    setenv("GVMM_HOST_MEMORY", "256M", 1);
    gvmm_device *device = open_host();
    blocks(device);
    reservations(device);
    mappings(device);
    remaps(device);
    copies(device);
    allocations(device);
    thresholds();
    gvmm_device_info info = {.struct_size = sizeof info};
    OK(gvmm_device_query(device, &info));
    CHECK(info.driver == GVMM_DRIVER_HOST && info.granularity_bytes == GRANULE);
    CHECK(info.total_bytes == 256ull << 20 && info.device_count == 1);
    uint64_t free_bytes = 0, total = 0;
    OK(gvmm_device_memory(device, &free_bytes, &total));
    CHECK(free_bytes == total && total == info.total_bytes); /* nothing was left behind */
    OK(gvmm_device_close(device));
    return 0;
}
