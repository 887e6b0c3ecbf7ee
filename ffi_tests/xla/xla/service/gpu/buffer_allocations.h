// A stand-in, written from the documented interface: the buffers of one run of an executable, by their index.
#ifndef STANDIN_XLA_BUFFER_ALLOCATIONS_H
#define STANDIN_XLA_BUFFER_ALLOCATIONS_H

#include <vector>

#include "xla/stream_executor/device_address_vmm_allocator.h"

namespace xla {
namespace se = ::stream_executor;
struct BufferAllocation {
    using Index = std::int64_t;
};
namespace gpu {

class BufferAllocations {
   public:
    BufferAllocations(std::vector<se::DeviceAddressBase> buffers, int ordinal, se::DeviceAddressVmmAllocator *allocator)
        : buffers_(std::move(buffers)), ordinal_(ordinal), allocator_(allocator) {}
    se::DeviceAddressBase GetDeviceAddress(BufferAllocation::Index index) const { return buffers_[index]; }
    se::DeviceAddressBase &GetMutableDeviceAddress(BufferAllocation::Index index) { return buffers_[index]; }
    std::size_t size() const { return buffers_.size(); }
    int device_ordinal() const { return ordinal_; }
    se::DeviceAddressVmmAllocator *memory_allocator() const { return allocator_; }

   private:
    std::vector<se::DeviceAddressBase> buffers_;
    int ordinal_;
    se::DeviceAddressVmmAllocator *allocator_;
};

}  // namespace gpu
}  // namespace xla

#endif
