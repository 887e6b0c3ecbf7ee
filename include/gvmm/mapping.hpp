// Reservations and what is mapped in them. Part of gvmm.hpp: include that.
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef GVMM_MAPPING_HPP
#define GVMM_MAPPING_HPP

#include "objects.hpp"

namespace gvmm {
inline namespace GVMM_HPP_VARIANT {

class Reservation;

/// What a mapping is to hold: a whole block, as drivers can map no less. `allocation_offset` is 0.
struct MappingDescriptor {
    std::size_t reservation_offset;
    std::size_t allocation_offset;
    std::size_t size;
    gvmm_block *block;
};

/// What a place of a mapping is to hold from now on; without `remap_required`, what it holds.
struct RemappingDescriptor {
    std::size_t reservation_offset;
    std::size_t allocation_offset;
    std::size_t size;
    gvmm_block *block;
    bool remap_required;
};

/// A part of a reservation with its blocks; it is unmapped when this goes. Nothing may run there then: retire() instead.
class ScopedMapping {
   public:
    ScopedMapping() = default;
    ScopedMapping(ScopedMapping &&other) noexcept { *this = std::move(other); }
    ScopedMapping &operator=(ScopedMapping &&other) noexcept {
        if (this != &other) {
            drop();
            api_ = other.api_, device_ = other.device_, reservation_ = std::exchange(other.reservation_, nullptr);
            address_ = other.address_, offset_ = other.offset_, size_ = other.size_;
            starts_ = std::move(other.starts_);
        }
        return *this;
    }
    ~ScopedMapping() { drop(); }

    bool is_null() const { return reservation_ == nullptr; }
    std::uint64_t mapped_address() const { return address_; }
    std::size_t size() const { return size_; }

    /// Puts other blocks where the descriptors say so, all or none, after the streams have passed: one transaction, and
    /// access once over what changed. After a failure all is as before.
    Status remap(View<RemappingDescriptor> descriptors, Streams streams = {}) & {
        std::vector<gvmm_remap_entry> entries;
        std::size_t at = offset_;
        for (const RemappingDescriptor &d : descriptors) {
            bool fits = !is_null() && d.reservation_offset == at && d.allocation_offset == 0 && d.block != nullptr;
            if (!fits) return failure(GVMM_ERROR_INVALID_ARGUMENT, "remap: the descriptors are not the mapping's");
            at += d.size;
            if (d.remap_required) entries.push_back({reservation_, d.reservation_offset, d.block});
        }
        if (is_null() || at != offset_ + size_)
            return failure(GVMM_ERROR_INVALID_ARGUMENT, "remap: the descriptors are not the mapping's");
        return apply(entries, streams);
    }
    /// The same in XLA's shape: the mapping moves on; after a failure it stays here.
    StatusOr<ScopedMapping> remap(View<RemappingDescriptor> descriptors, Streams streams = {}) && {
        Status status = remap(descriptors, streams);
        if (!status.ok()) return status;
        return std::move(*this);
    }

    /// Unmaps once the streams have passed what is enqueued on them now.
    Status retire(Streams streams) {
        if (is_null()) return Status();
        Status status = api_.check(retire_places(reservation_, streams));
        if (status.ok()) reservation_ = nullptr;
        return status;
    }

   private:
    friend class Reservation;
    Status apply(const std::vector<gvmm_remap_entry> &entries, Streams streams) const {
        if (entries.empty()) return Status();
        return api_.check(api_->remap(device_, entries.data(), entries.size(), sizeof entries[0], streams.data(),
                                      streams.size(), nullptr));
    }
    gvmm_status retire_places(gvmm_reservation *reservation, Streams streams) const {
        std::vector<gvmm_remap_entry> entries;
        for (std::size_t start : starts_) entries.push_back({reservation, start, nullptr});
        return api_->device_retire(device_, entries.data(), entries.size(), sizeof entries[0], streams.data(),
                                   streams.size());
    }
    void drop() noexcept {
        gvmm_reservation *reservation = std::exchange(reservation_, nullptr);
        if (!reservation) return;
        gvmm_status code = api_->reservation_unmap(reservation, offset_, size_);
        if (code < 100) return;
        GVMM_HPP_LOG(api_.message(code).c_str());
        code = retire_places(reservation, {});  // the library tries it again, at later calls
        if (code >= 100) GVMM_HPP_LOG(api_.message(code).c_str());
    }
    Api api_;
    gvmm_device *device_ = nullptr;
    gvmm_reservation *reservation_ = nullptr;
    std::uint64_t address_ = 0;
    std::size_t offset_ = 0, size_ = 0;
    std::vector<std::size_t> starts_;
};

class Reservation : public Owned<gvmm_reservation, &gvmm_api::reservation_destroy> {
   public:
    using Owned::Owned;
    /// Reserves; `access` says who may use what is mapped there, nobody named being the device itself.
    static StatusOr<Reservation> create(const Device &device, std::uint64_t size_bytes, View<gvmm_access> access = {},
                                        std::uint64_t alignment_bytes = 0) {
        gvmm_reserve_desc desc = sized<gvmm_reserve_desc>();
        desc.alignment_bytes = alignment_bytes;
        desc.access = access.data();
        desc.access_count = access.size();
        desc.access_stride_bytes = sizeof(gvmm_access);
        gvmm_reservation *handle = nullptr;
        std::uint64_t address = 0;
        Api api = device.api();
        Status status = api.check(api->reserve(device.get(), size_bytes, &desc, &handle, &address));
        if (!status.ok()) return status;
        Reservation made(api, handle);
        made.device_ = device.get(), made.address_ = address, made.size_ = size_bytes;
        return made;
    }
    std::uint64_t address() const { return address_; }
    std::uint64_t size() const { return size_; }

    Status map(std::uint64_t offset, gvmm_block *block) const { return call(&gvmm_api::map, get(), offset, block); }
    Status unmap(std::uint64_t offset, std::uint64_t size) const {
        return call(&gvmm_api::reservation_unmap, get(), offset, size);
    }
    Status set_access(std::uint64_t offset, std::uint64_t size, View<gvmm_access> access = {}) const {
        return call(&gvmm_api::reservation_set_access, get(), offset, size, access.data(), access.size(),
                    sizeof(gvmm_access));
    }
    StatusOr<gvmm_reservation_info> query() const {
        gvmm_reservation_info info = sized<gvmm_reservation_info>();
        Status status = call(&gvmm_api::reservation_query, get(), &info);
        return status.ok() ? StatusOr<gvmm_reservation_info>(info) : status;
    }

    /// Maps blocks side by side, with the reservation's access, all or none.
    StatusOr<ScopedMapping> map_to(View<MappingDescriptor> descriptors) const {
        ScopedMapping mapping;
        std::vector<gvmm_remap_entry> entries;
        for (const MappingDescriptor &d : descriptors) {
            if (entries.empty()) mapping.offset_ = d.reservation_offset;
            if (d.reservation_offset != mapping.offset_ + mapping.size_ || d.allocation_offset != 0 || !d.block)
                return failure(GVMM_ERROR_INVALID_ARGUMENT, "map: not whole blocks side by side");
            entries.push_back({get(), d.reservation_offset, d.block});
            mapping.starts_.push_back(d.reservation_offset);
            mapping.size_ += d.size;
        }
        if (entries.empty()) return failure(GVMM_ERROR_INVALID_ARGUMENT, "map: no descriptors");
        mapping.api_ = api(), mapping.device_ = device_, mapping.address_ = address_ + mapping.offset_;
        Status status = mapping.apply(entries, {});
        if (!status.ok()) return status;
        mapping.reservation_ = get();
        return mapping;
    }
    StatusOr<ScopedMapping> map_to(std::size_t reservation_offset, std::size_t allocation_offset, std::size_t size,
                                   const Block &block) const {
        MappingDescriptor one{reservation_offset, allocation_offset, size, block.get()};
        return map_to(View<MappingDescriptor>(one));
    }

   private:
    gvmm_device *device_ = nullptr;
    std::uint64_t address_ = 0, size_ = 0;
};

}  // namespace GVMM_HPP_VARIANT
}  // namespace gvmm

#endif
