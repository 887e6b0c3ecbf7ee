// The header from C++17: types, constants, and the five calls that the library is known for.
#include <gvmm.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

static_assert(std::is_standard_layout<gvmm_slot>::value && std::is_trivial<gvmm_slot>::value, "plain data");
static_assert(GVMM_THRESHOLD_OFF == UINT64_MAX, "a constant that the preprocessor knows");
#if GVMM_ERROR_IN_USE != 106
#error "constants can be used by the preprocessor"
#endif

static void ok(gvmm_status status, const char *call) {
    if (status == GVMM_STATUS_SUCCESS) return;
    std::size_t needed = 0;
    gvmm_last_error_message(nullptr, 0, &needed);
    std::string message(needed, '\0');
    gvmm_last_error_message(message.data(), message.size(), &needed);
    std::fprintf(stderr, "%s: %s: %s\n", call, gvmm_status_name(status), message.c_str());
    std::exit(1);
}
#define OK(call) ok((call), #call)

struct closer {
    void operator()(gvmm_device *device) const { OK(gvmm_device_close(device)); }
    void operator()(gvmm_stream *stream) const { OK(gvmm_stream_destroy(stream)); }
    void operator()(gvmm_block *block) const { OK(gvmm_block_destroy(block)); }
    void operator()(gvmm_reservation *reservation) const { OK(gvmm_reservation_destroy(reservation)); }
};
template <class T> using owned = std::unique_ptr<T, closer>;

int main() {
    gvmm_device_desc desc{};
    desc.struct_size = sizeof desc;
    desc.driver = GVMM_DRIVER_HOST;
    gvmm_device *raw_device = nullptr;
    OK(gvmm_device_open(&desc, &raw_device));
    owned<gvmm_device> device(raw_device);
    gvmm_stream *raw_stream = nullptr;
    OK(gvmm_stream_create(device.get(), &raw_stream));
    owned<gvmm_stream> stream(raw_stream);

    gvmm_device_info info{};
    info.struct_size = sizeof info;
    OK(gvmm_device_query(device.get(), &info));
    std::vector<owned<gvmm_block>> blocks;
    for (int i = 0; i < 3; i++) {
        gvmm_block *block = nullptr;
        OK(gvmm_block_create(device.get(), info.granularity_bytes, 0, &block));
        blocks.emplace_back(block);
    }
    gvmm_reservation *raw_reservation = nullptr;
    std::uint64_t address = 0;
    OK(gvmm_reserve(device.get(), 2 * info.granularity_bytes, nullptr, &raw_reservation, &address));
    owned<gvmm_reservation> reservation(raw_reservation);
    OK(gvmm_map(reservation.get(), 0, blocks[0].get()));

    gvmm_remap_entry entries[] = {{reservation.get(), 0, blocks[1].get()},
                                  {reservation.get(), info.granularity_bytes, blocks[2].get()}};
    void *streams[] = {stream.get()};
    gvmm_remap_report report{};
    report.struct_size = sizeof report;
    OK(gvmm_remap(device.get(), entries, 2, sizeof entries[0], streams, 1, &report));
    if (report.map_calls != 2 || report.unmap_calls != 1) return 2;

    auto *words = reinterpret_cast<std::uint32_t *>(address);
    words[0] = 7;
    gvmm_copy_slice slice{address + info.granularity_bytes, address, 64};
    OK(gvmm_shadow_copy(device.get(), stream.get(), &slice, 1, sizeof slice, nullptr));
    OK(gvmm_stream_synchronize(stream.get()));
    if (words[info.granularity_bytes / 4] != 7) return 3;

    std::uint64_t size = 4096, threshold = 0;
    OK(gvmm_compute_threshold(&size, 1, info.bandwidth_bytes_per_s, 0, info.total_bytes, &threshold));
    for (auto &entry : entries) entry.block = nullptr;
    OK(gvmm_remap(device.get(), entries, 2, sizeof entries[0], streams, 1, nullptr));
    return 0;
}
