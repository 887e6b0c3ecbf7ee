// Devices, streams, timelines, blocks and allocations. Part of gvmm.hpp: include that.
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef GVMM_OBJECTS_HPP
#define GVMM_OBJECTS_HPP

#include "base.hpp"

namespace gvmm {
inline namespace GVMM_HPP_VARIANT {

class Device : public Owned<gvmm_device, &gvmm_api::device_close> {
   public:
    using Owned::Owned;
    static StatusOr<Device> open(Api api, std::uint32_t driver = GVMM_DRIVER_AUTO, std::uint32_t ordinal = 0) {
        gvmm_device_desc desc = sized<gvmm_device_desc>();
        desc.driver = driver;
        desc.ordinal = ordinal;
        return make<Device>(api, &gvmm_api::device_open, &desc);
    }
    static StatusOr<Device> attach(Api api, gvmm_attach_desc desc) {
        desc.struct_size = sizeof desc;
        return make<Device>(api, &gvmm_api::device_attach, &desc);
    }
    StatusOr<gvmm_device_info> query() const { return ask<gvmm_device_info>(&gvmm_api::device_query); }
    StatusOr<gvmm_call_counts> counters() const { return ask<gvmm_call_counts>(&gvmm_api::device_counters); }
    StatusOr<std::uint64_t> collect() const {
        std::uint64_t collected = 0;
        Status status = call(&gvmm_api::device_collect, get(), &collected);
        return status.ok() ? StatusOr<std::uint64_t>(collected) : status;
    }
    Status drain() const { return call(&gvmm_api::device_drain, get()); }
    Status forget(void *stream) const { return call(&gvmm_api::stream_forget, get(), stream); }
    StatusOr<gvmm_remap_report> remap(View<gvmm_remap_entry> entries, Streams streams = {}) const {
        gvmm_remap_report report = sized<gvmm_remap_report>();
        Status status = call(&gvmm_api::remap, get(), entries.data(), entries.size(), sizeof(gvmm_remap_entry),
                             streams.data(), streams.size(), &report);
        return status.ok() ? StatusOr<gvmm_remap_report>(report) : status;
    }
    Status retire(View<gvmm_remap_entry> entries, Streams streams) const {
        return call(&gvmm_api::device_retire, get(), entries.data(), entries.size(), sizeof(gvmm_remap_entry),
                    streams.data(), streams.size());
    }
    Status shadow_copy(void *stream, View<gvmm_copy_slice> slices) const {
        return call(&gvmm_api::shadow_copy, get(), stream, slices.data(), slices.size(), sizeof(gvmm_copy_slice),
                    nullptr);
    }

   private:
    template <class S>
    StatusOr<S> ask(gvmm_status (*gvmm_api::*function)(gvmm_device *, S *)) const {
        S answer = sized<S>();
        Status status = call(function, get(), &answer);
        return status.ok() ? StatusOr<S>(answer) : status;
    }
};

/// Streams and graphs of the library's own.
class Graph : public Owned<gvmm_graph, &gvmm_api::graph_destroy> {
   public:
    using Owned::Owned;
    Status launch(gvmm_stream *stream) const { return call(&gvmm_api::graph_launch, get(), stream); }
};

class Stream : public Owned<gvmm_stream, &gvmm_api::stream_destroy> {
   public:
    using Owned::Owned;
    static StatusOr<Stream> create(const Device &device) {
        return make<Stream>(device.api(), &gvmm_api::stream_create, device.get());
    }
    static StatusOr<Stream> wrap_queue(const Device &device, std::uint64_t queue, std::uint32_t group) {
        return make<Stream>(device.api(), &gvmm_api::stream_wrap_queue, device.get(), queue, group);
    }
    Status synchronize() const { return call(&gvmm_api::stream_synchronize, get()); }
    Status host_function(gvmm_host_function function, void *data) const {
        return call(&gvmm_api::stream_host_function, get(), function, data);
    }
    Status capture_begin() const { return call(&gvmm_api::stream_capture_begin, get()); }
    StatusOr<Graph> capture_end() const {
        return make<Graph>(api(), &gvmm_api::stream_capture_end, get());
    }
};

/// A number in host memory that streams write.
class Timeline : public Owned<gvmm_timeline, &gvmm_api::timeline_destroy> {
   public:
    using Owned::Owned;
    static StatusOr<Timeline> create(const Device &device) {
        gvmm_timeline *handle = nullptr;
        const std::uint64_t *value = nullptr;
        Status status = device.api().check(device.api()->timeline_create(device.get(), &handle, &value));
        if (!status.ok()) return status;
        Timeline timeline(device.api(), handle);
        timeline.value_ = value;
        return timeline;
    }
    /// Where the number stands.
    const std::uint64_t *address() const { return value_; }
    std::uint64_t value() const { return __atomic_load_n(value_, __ATOMIC_ACQUIRE); }
    Status write(void *stream, std::uint64_t value) const {
        return call(&gvmm_api::timeline_write, get(), stream, value);
    }

   private:
    const std::uint64_t *value_ = nullptr;
};

class Block : public Owned<gvmm_block, &gvmm_api::block_destroy> {
   public:
    using Owned::Owned;
    static StatusOr<Block> create(const Device &device, std::uint64_t size_bytes, std::uint32_t flags = 0) {
        return make<Block>(device.api(), &gvmm_api::block_create, device.get(), size_bytes, flags);
    }
    static StatusOr<Block> adopt(const Device &device, std::uint64_t native, std::uint64_t size_bytes,
                                 std::uint32_t flags = 0) {
        return make<Block>(device.api(), &gvmm_api::block_adopt, device.get(), native, size_bytes,
                           flags);
    }
    static StatusOr<Block> import(const Device &device, int fd, std::uint64_t size_bytes) {
        return make<Block>(device.api(), &gvmm_api::block_import, device.get(), fd, size_bytes);
    }
    StatusOr<gvmm_block_info> query() const {
        gvmm_block_info info = sized<gvmm_block_info>();
        Status status = call(&gvmm_api::block_query, get(), &info);
        return status.ok() ? StatusOr<gvmm_block_info>(info) : status;
    }
    StatusOr<int> export_fd() const {
        int fd = -1;
        Status status = call(&gvmm_api::block_export, get(), &fd);
        return status.ok() ? StatusOr<int>(fd) : status;
    }
};

class Allocation : public Owned<gvmm_allocation, &gvmm_api::allocation_destroy> {
   public:
    using Owned::Owned;
    static StatusOr<Allocation> create(const Device &device, std::uint64_t size_bytes) {
        gvmm_allocation *handle = nullptr;
        std::uint64_t address = 0;
        Status status = device.api().check(device.api()->allocation_create(device.get(), size_bytes, &handle, &address));
        if (!status.ok()) return status;
        Allocation made(device.api(), handle);
        made.address_ = address;
        return made;
    }
    std::uint64_t address() const { return address_; }
    StatusOr<gvmm_allocation_info> query() const {
        gvmm_allocation_info info = sized<gvmm_allocation_info>();
        Status status = call(&gvmm_api::allocation_query, get(), &info);
        return status.ok() ? StatusOr<gvmm_allocation_info>(info) : status;
    }

   private:
    std::uint64_t address_ = 0;
};

}  // namespace GVMM_HPP_VARIANT
}  // namespace gvmm

#endif
