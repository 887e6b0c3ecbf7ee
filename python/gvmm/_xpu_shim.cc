// What PyTorch's allocator for plugging in lacks from Python on Intel GPUs: the hook that tells which streams use a block, and an
// OutOfMemoryError where it would use a NULL. `gvmm.xpu.enable` compiles it against the PyTorch and the SYCL at hand.
#include <torch/csrc/xpu/XPUPluggableAllocator.h>

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace {
using Plain = torch::xpu::XPUPluggableAllocator::XPUPluggableAllocator;
struct detail {
    std::size_t struct_size;
    int32_t status;
    uint32_t operation;
};
using alloc_function = void *(std::size_t, int, sycl::queue *);
using free_function = void(void *, std::size_t, int, sycl::queue *);
using record_function = void(void *, sycl::queue *);
using message_function = int32_t(char *, std::size_t, std::size_t *);
// The group of memory, and a size that is more than a device can have: no setting that does not fit it, which is of opening.
bool is_shortage(const detail &why) { return why.status / 100 == 2 || (why.status == 102 && why.operation == 10); }
using detail_function = int32_t(detail *);

template <class F> F *as(void *address) { return reinterpret_cast<F *>(address); }
} // namespace

// Makes ours the current allocator. `functions`: alloc, free, record, last message, last detail.
extern "C" void gvmm_xpu_shim_install(void *const *functions) {
    auto *alloc = as<alloc_function>(functions[0]);
    auto *message = as<message_function>(functions[3]);
    auto *last = as<detail_function>(functions[4]);
    auto checked = [alloc, message, last](std::size_t size, int device, sycl::queue *queue) {
        void *address = alloc(size, device, queue);
        if (address != nullptr || size == 0) return address;
        char text[1024] = "";
        std::size_t needed = 0;
        detail why{sizeof(detail), 0, 0};
        message(text, sizeof text, &needed);
        last(&why);
        TORCH_CHECK_WITH(OutOfMemoryError, !is_shortage(why), "XPU out of memory. Tried to allocate ",
                         size, " bytes on device ", device, ". gvmm: ", text);
        TORCH_CHECK(false, "gvmm could not allocate ", size, " bytes on device ", device, ": ", text);
        return address;
    };
    auto mine = std::make_shared<Plain>(checked, as<free_function>(functions[1]));
    mine->set_record_stream_fn(as<record_function>(functions[2]));
    torch::xpu::XPUPluggableAllocator::changeCurrentAllocator(mine);
}
