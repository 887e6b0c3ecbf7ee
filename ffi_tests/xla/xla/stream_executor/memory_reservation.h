// A stand-in, written from the documented interface: device addresses, physical memory without an address, and ranges of
// addresses that it is mapped into.
#ifndef STANDIN_XLA_MEMORY_RESERVATION_H
#define STANDIN_XLA_MEMORY_RESERVATION_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace stream_executor {

class DeviceAddressBase {
   public:
    explicit DeviceAddressBase(void *opaque = nullptr, std::uint64_t size = 0) : opaque_(opaque), size_(size) {}
    void *opaque() const { return opaque_; }
    std::uint64_t size() const { return size_; }
    bool is_null() const { return opaque_ == nullptr; }
    bool IsSameAs(const DeviceAddressBase &other) const { return opaque_ == other.opaque_ && size_ == other.size_; }
    DeviceAddressBase GetByteSlice(std::uint64_t offset, std::uint64_t size) const {
        return DeviceAddressBase(static_cast<char *>(opaque_) + offset, size);
    }

   private:
    void *opaque_;
    std::uint64_t size_;
};

class MemoryAllocation {
   public:
    MemoryAllocation() = default;
    virtual ~MemoryAllocation() = default;
    MemoryAllocation(MemoryAllocation &&) = delete;
    virtual DeviceAddressBase address() const = 0;
    virtual std::string ToString() const { return "memory"; }
};

class MemoryReservation {
   public:
    MemoryReservation() = default;
    virtual ~MemoryReservation() = default;
    MemoryReservation(MemoryReservation &&) = delete;
    virtual DeviceAddressBase address() const = 0;

    struct MappingDescriptor {
        std::size_t reservation_offset, allocation_offset, size;
        MemoryAllocation *allocation;
    };
    struct RemappingDescriptor {
        std::size_t reservation_offset, allocation_offset, size;
        MemoryAllocation *allocation;
        bool remap_required;
    };

    class ScopedMapping {
       public:
        ScopedMapping() = default;
        ~ScopedMapping() { Drop(); }
        ScopedMapping(ScopedMapping &&other) noexcept { *this = std::move(other); }
        ScopedMapping &operator=(ScopedMapping &&other) noexcept {
            if (this == &other) return *this;
            Drop();
            reservation_ = std::exchange(other.reservation_, nullptr);
            offset_ = other.offset_, size_ = other.size_;
            return *this;
        }
        DeviceAddressBase mapped_address() const { return reservation_->address().GetByteSlice(offset_, size_); }
        bool is_null() const { return reservation_ == nullptr; }

        // Unmaps the changed places, maps them anew, and sets access once. After a failure nothing is mapped.
        absl::StatusOr<ScopedMapping> Remap(absl::Span<const RemappingDescriptor> places) && {
            std::size_t at = offset_;
            for (const RemappingDescriptor &place : places) {
                if (is_null() || place.reservation_offset != at || place.allocation == nullptr)
                    return absl::InvalidArgumentError("Remap: not the places of this mapping");
                at += place.size;
            }
            if (at != offset_ + size_) return absl::InvalidArgumentError("Remap: not all of this mapping");
            MemoryReservation *reservation = std::exchange(reservation_, nullptr);
            std::size_t unmapped = 0, mapped = 0;
            absl::Status status;
            for (; unmapped < places.size() && status.ok(); unmapped++)
                if (places[unmapped].remap_required)
                    status = reservation->UnMap(places[unmapped].reservation_offset, places[unmapped].size);
            if (!status.ok()) unmapped--;
            for (; mapped < places.size() && status.ok(); mapped++)
                if (places[mapped].remap_required)
                    status = reservation->Map(places[mapped].reservation_offset, places[mapped].allocation_offset,
                                              places[mapped].size, *places[mapped].allocation);
            if (!status.ok() && mapped > 0) mapped--;
            if (status.ok()) status = reservation->SetAccess(offset_, size_);
            if (status.ok()) return ScopedMapping(reservation, offset_, size_);
            for (std::size_t i = 0; i < places.size(); i++) {
                bool there = !places[i].remap_required || i >= unmapped || i < mapped;
                if (there) Log(reservation->UnMap(places[i].reservation_offset, places[i].size));
            }
            return status;
        }

       private:
        friend class MemoryReservation;
        ScopedMapping(MemoryReservation *reservation, std::size_t offset, std::size_t size)
            : reservation_(reservation), offset_(offset), size_(size) {}
        void Drop() {
            if (reservation_ != nullptr) Log(reservation_->UnMap(offset_, size_));
            reservation_ = nullptr;
        }
        MemoryReservation *reservation_ = nullptr;
        std::size_t offset_ = 0, size_ = 0;
    };

    absl::StatusOr<ScopedMapping> MapTo(std::size_t reservation_offset, std::size_t allocation_offset, std::size_t size,
                                        MemoryAllocation &allocation) {
        MappingDescriptor one{reservation_offset, allocation_offset, size, &allocation};
        return MapTo(absl::Span<const MappingDescriptor>(&one, 1));
    }

    absl::StatusOr<ScopedMapping> MapTo(absl::Span<const MappingDescriptor> places) {
        if (places.empty()) return absl::InvalidArgumentError("MapTo: nothing to map");
        std::size_t start = places[0].reservation_offset, size = 0;
        absl::Status status;
        for (const MappingDescriptor &place : places) {
            status = place.reservation_offset == start + size
                         ? Map(place.reservation_offset, place.allocation_offset, place.size, *place.allocation)
                         : absl::InvalidArgumentError("MapTo: not side by side");
            if (!status.ok()) break;
            size += place.size;
        }
        if (status.ok()) status = SetAccess(start, size);
        if (status.ok()) return ScopedMapping(this, start, size);
        if (size > 0) Log(UnMap(start, size));
        return status;
    }

    // How many failures had no caller to go to.
    static int &logged() {
        static int count = 0;
        return count;
    }

   private:
    static void Log(const absl::Status &status) {
        if (status.ok()) return;
        logged()++;
        std::fprintf(stderr, "logged: %s\n", std::string(status.message()).c_str());
    }
    virtual absl::Status Map(std::size_t reservation_offset, std::size_t allocation_offset, std::size_t size,
                             MemoryAllocation &allocation) = 0;
    virtual absl::Status SetAccess(std::uint64_t reservation_offset, std::size_t size) = 0;
    virtual absl::Status UnMap(std::size_t reservation_offset, std::size_t size) = 0;
};

}  // namespace stream_executor

#endif
