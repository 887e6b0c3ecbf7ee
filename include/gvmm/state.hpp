// What an allocator over virtual memory needs of a device. Part of gvmm.hpp: include that.
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef GVMM_STATE_HPP
#define GVMM_STATE_HPP

#include "mapping.hpp"

namespace gvmm {
inline namespace GVMM_HPP_VARIANT {

/// What a subclass of XLA's DeviceAddressVmmAllocator gives for one device: the device's state, blocks, reservations that
/// every peer reaches, and a number written behind what a stream has enqueued, which says when that may be freed.
class DeviceState {
   public:
    static StatusOr<DeviceState> create(Api api, std::uint32_t driver, std::uint32_t ordinal,
                                        View<std::uint32_t> peers = {}) {
        DeviceState state;
        StatusOr<Device> device = Device::open(api, driver, ordinal);
        if (!device.ok()) return device.status();
        state.device_ = *std::move(device);
        StatusOr<gvmm_device_info> info = state.device_.query();
        if (!info.ok()) return info.status();
        state.granularity_ = info->granularity_bytes;
        StatusOr<Timeline> timeline = Timeline::create(state.device_);
        if (!timeline.ok()) return timeline.status();
        state.timeline_ = *std::move(timeline);
        for (std::uint32_t peer : peers) state.access_.push_back({peer, GVMM_ACCESS_READ_WRITE});
        state.access_.push_back({ordinal, GVMM_ACCESS_READ_WRITE});
        return state;
    }
    const Device &device() const { return device_; }
    std::uint64_t granularity() const { return granularity_; }
    /// Where the number stands that enqueue_deferred_free writes.
    const std::uint64_t *timeline() const { return timeline_.address(); }
    View<gvmm_access> access() const { return access_; }

    StatusOr<Block> create_allocation(std::uint64_t size) const { return Block::create(device_, round_up(size)); }
    StatusOr<Reservation> create_reservation(std::uint64_t size) const {
        return Reservation::create(device_, round_up(size), access_);
    }
    Status enqueue_deferred_free(void *stream, std::uint64_t number) const { return timeline_.write(stream, number); }
    std::uint64_t round_up(std::uint64_t size) const { return (size + granularity_ - 1) / granularity_ * granularity_; }

   private:
    Device device_;
    Timeline timeline_;
    std::vector<gvmm_access> access_;
    std::uint64_t granularity_ = 1;
};

}  // namespace GVMM_HPP_VARIANT
}  // namespace gvmm

#endif
