// PyTorch does not check what its current allocator gives. This stands between: a NULL becomes its OutOfMemoryError.
// `gvmm.torch.enable` compiles it against the PyTorch at hand.
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>

namespace {
using alloc_function = void *(std::size_t, int, void *);
using message_function = int32_t(char *, std::size_t, std::size_t *);
struct detail {
    std::size_t struct_size;
    int32_t status;
    uint32_t operation;
};
using detail_function = int32_t(detail *);
alloc_function *alloc;
message_function *message;
detail_function *last;
} // namespace

extern "C" void gvmm_shim_connect(alloc_function *a, message_function *m, detail_function *d) {
    alloc = a;
    message = m;
    last = d;
}

extern "C" void *gvmm_shim_alloc(std::size_t size, int device, void *stream) {
    void *address = alloc(size, device, stream);
    if (address != nullptr || size == 0) return address;
    char text[1024] = "";
    std::size_t needed = 0;
    detail why{sizeof(detail), 0, 0};
    message(text, sizeof text, &needed);
    last(&why);
    // The group of memory, and a size that is more than a device can have.
    TORCH_CHECK_WITH(OutOfMemoryError, why.status / 100 != 2 && why.status != 102, "CUDA out of memory. Tried to allocate ", size,
                     " bytes on device ", device, ". gvmm: ", text);
    TORCH_CHECK(false, "gvmm could not allocate ", size, " bytes on device ", device, ": ", text);
    return nullptr;
}
