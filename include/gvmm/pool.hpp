// Pools and their segments. Part of gvmm.hpp: include that.
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef GVMM_POOL_HPP
#define GVMM_POOL_HPP

#include "objects.hpp"

namespace gvmm {
inline namespace GVMM_HPP_VARIANT {

/// A caching allocator. What it gave is freed by its address, on the stream that used it last.
class Pool : public Owned<gvmm_pool, &gvmm_api::pool_destroy> {
   public:
    using Owned::Owned;
    static StatusOr<Pool> create(const Device &device, gvmm_pool_desc desc = sized<gvmm_pool_desc>()) {
        return make<Pool>(device.api(), &gvmm_api::pool_create, device.get(), &desc);
    }
    StatusOr<std::uint64_t> alloc(std::uint64_t size_bytes, void *stream) const {
        std::uint64_t address = 0;
        Status status = call(&gvmm_api::pool_alloc, get(), size_bytes, stream, &address);
        return status.ok() ? StatusOr<std::uint64_t>(address) : status;
    }
    Status free(std::uint64_t address) const { return call(&gvmm_api::pool_free, get(), address); }
    Status free_on(std::uint64_t address, void *stream) const {
        return call(&gvmm_api::pool_free_on, get(), address, stream);
    }
    Status record_stream(std::uint64_t address, void *stream) const {
        return call(&gvmm_api::pool_record_stream, get(), address, stream);
    }
    Status forget_stream(void *stream) const { return call(&gvmm_api::pool_forget_stream, get(), stream); }
    Status set_limit(std::uint64_t limit_bytes) const { return call(&gvmm_api::pool_set_limit, get(), limit_bytes); }
    Status set_fraction(double fraction) const { return call(&gvmm_api::pool_set_fraction, get(), fraction); }
    /// Gives back what nothing uses; how many bytes that was.
    StatusOr<std::uint64_t> trim() const {
        std::uint64_t bytes = 0;
        Status status = call(&gvmm_api::pool_trim, get(), &bytes);
        return status.ok() ? StatusOr<std::uint64_t>(bytes) : status;
    }
    StatusOr<gvmm_pool_stats> query() const {
        gvmm_pool_stats stats = sized<gvmm_pool_stats>();
        Status status = call(&gvmm_api::pool_query, get(), &stats);
        return status.ok() ? StatusOr<gvmm_pool_stats>(stats) : status;
    }
};

/// Addresses whose chunks get memory and lose it.
class Segment : public Owned<gvmm_segment, &gvmm_api::segment_destroy> {
   public:
    using Owned::Owned;
    static StatusOr<Segment> create(const Device &device, const gvmm_segment_desc &desc) {
        gvmm_segment *handle = nullptr;
        std::uint64_t address = 0;
        Status status = device.api().check(device.api()->segment_create(device.get(), &desc, &handle, &address));
        if (!status.ok()) return status;
        Segment made(device.api(), handle);
        made.address_ = address;
        return made;
    }
    std::uint64_t address() const { return address_; }
    /// Gives memory to the chunks that a range touches.
    Status map(std::uint64_t address, std::uint64_t size_bytes) const {
        std::uint64_t start = 0, mapped = 0;
        return call(&gvmm_api::segment_map, get(), address, size_bytes, &start, &mapped);
    }
    /// Takes the chunks in a range away once the streams have passed; how many bytes.
    StatusOr<std::uint64_t> unmap(std::uint64_t address, std::uint64_t size_bytes, Streams streams = {}) const {
        std::uint64_t bytes = 0;
        Status status = call(&gvmm_api::segment_unmap, get(), address, size_bytes, streams.data(), streams.size(), &bytes);
        return status.ok() ? StatusOr<std::uint64_t>(bytes) : status;
    }
    StatusOr<gvmm_segment_info> query() const {
        gvmm_segment_info info = sized<gvmm_segment_info>();
        Status status = call(&gvmm_api::segment_query, get(), &info);
        return status.ok() ? StatusOr<gvmm_segment_info>(info) : status;
    }

   private:
    std::uint64_t address_ = 0;
};

}  // namespace GVMM_HPP_VARIANT
}  // namespace gvmm

#endif
