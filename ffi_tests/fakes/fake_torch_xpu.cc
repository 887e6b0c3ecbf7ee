// A stand-in for the parts of PyTorch's libraries for Intel GPUs (libc10_xpu, libtorch_xpu, libtorch_python) that the Python module's
// C++ shim is linked against, behind PyTorch's own headers; and what calls the current allocator as PyTorch does.
// scripts/sycl_check.sh builds it, since no package index that is reached everywhere has these libraries.
#include <torch/csrc/xpu/XPUPluggableAllocator.h>

#include <cstdint>
#include <cstring>
#include <mutex>

// The queue that allocations are for, as PyTorch's current stream would be.
static sycl::queue *current = nullptr;

namespace c10::xpu::XPUCachingAllocator {
std::atomic<XPUAllocator *> allocator{nullptr};
}

// Headers of later versions ask for it where nothing of ours comes.
namespace c10::xpu {
C10_XPU_API sycl::device &get_raw_device(c10::DeviceIndex) { TORCH_CHECK(false, "there is no device here"); }
} // namespace c10::xpu

namespace torch::xpu::XPUPluggableAllocator {
using Stats = c10::CachingDeviceAllocator::DeviceStats;

void *XPUPluggableAllocator::malloc(size_t size, c10::DeviceIndex device, sycl::queue *queue) {
    void *address = alloc_fn_(size, device, queue);
    const std::lock_guard<std::mutex> lock(allocator_mutex_);
    allocation_metadata_.emplace(address, _AllocationMetadata(size, device, queue));
    return address;
}
static void drop(void *address) { c10::xpu::XPUCachingAllocator::raw_delete(address); }
c10::DataPtr XPUPluggableAllocator::allocate(size_t size) {
    void *address = malloc(size, 0, current);
    return {address, address, drop, c10::Device(c10::DeviceType::XPU, 0)};
}
c10::DeleterFnPtr XPUPluggableAllocator::raw_deleter() const { return drop; }
void *XPUPluggableAllocator::raw_alloc(size_t size) { return malloc(size, 0, current); }
void XPUPluggableAllocator::raw_delete(void *address) {
    _AllocationMetadata known;
    {
        const std::lock_guard<std::mutex> lock(allocator_mutex_);
        auto found = allocation_metadata_.find(address);
        TORCH_CHECK(found != allocation_metadata_.end(), "freed, and never given");
        known = found->second;
        allocation_metadata_.erase(found);
    }
    free_fn_(address, known.size, known.device_idx, known.queue);
}
void XPUPluggableAllocator::init(c10::DeviceIndex count) {
    if (init_fn_) init_fn_(count);
    initialized_ = true;
}
bool XPUPluggableAllocator::initialized() { return initialized_; }
void XPUPluggableAllocator::copy_data(void *to, const void *from, std::size_t count) const { std::memcpy(to, from, count); }
void XPUPluggableAllocator::recordStream(const c10::DataPtr &data, c10::Stream stream) {
    // A stream's number stands for its queue here.
    if (record_stream_fn_) record_stream_fn_(data.get(), reinterpret_cast<sycl::queue *>(stream.id()));
}
void XPUPluggableAllocator::emptyCache(c10::MempoolId_t) {}
Stats XPUPluggableAllocator::getDeviceStats(c10::DeviceIndex) { return {}; }
void XPUPluggableAllocator::resetAccumulatedStats(c10::DeviceIndex) {}
void XPUPluggableAllocator::resetPeakStats(c10::DeviceIndex) {}

void changeCurrentAllocator(const std::shared_ptr<c10::xpu::XPUCachingAllocator::XPUAllocator> &mine) {
    static std::shared_ptr<c10::xpu::XPUCachingAllocator::XPUAllocator> kept;
    TORCH_CHECK(!kept, "the allocator was changed already");
    kept = mine;
    kept->init(1);
    c10::xpu::XPUCachingAllocator::allocator.store(kept.get());
}
} // namespace torch::xpu::XPUPluggableAllocator

extern "C" void fake_current_queue(void *queue) { current = static_cast<sycl::queue *>(queue); }

// One tensor's life: 0 where it went well, 1 for an OutOfMemoryError, 2 for another of PyTorch's errors; with what it says.
extern "C" int fake_tensor(size_t size, int64_t also_used_by, char *says, size_t room) {
    try {
        c10::DataPtr data = c10::xpu::XPUCachingAllocator::get()->allocate(size);
        if (also_used_by != 0) {
            auto device = c10::Device(c10::DeviceType::XPU, 0);
            c10::xpu::XPUCachingAllocator::get()->recordStream(data, c10::Stream(c10::Stream::UNSAFE, device, also_used_by));
        }
        return 0;
    } catch (const c10::OutOfMemoryError &error) {
        std::strncpy(says, error.what_without_backtrace(), room - 1);
        return 1;
    } catch (const c10::Error &error) {
        std::strncpy(says, error.what_without_backtrace(), room - 1);
        return 2;
    }
}
