// PyTorch does not check what its current allocator gives. This stands between: a NULL becomes its OutOfMemoryError.
// `gvmm.torch.enable` compiles it against the PyTorch at hand, and where CUDA's headers are there too with GVMM_FULL, which adds
// what PyTorch's allocator for plugging in leaves out.
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
// The group of memory, and a size that is more than a device can have: no setting that does not fit it, which is of opening.
bool is_shortage(const detail &why) { return why.status / 100 == 2 || (why.status == 102 && why.operation == 10); }
using detail_function = int32_t(detail *);
using delete_function = void(void *);
alloc_function *alloc;
message_function *message;
detail_function *last;
delete_function *drop;
} // namespace

extern "C" void gvmm_shim_connect(alloc_function *a, message_function *m, detail_function *l, delete_function *d) {
    alloc = a;
    message = m;
    last = l;
    drop = d;
}

extern "C" void *gvmm_shim_alloc(std::size_t size, int device, void *stream) {
    void *address = alloc(size, device, stream);
    if (address != nullptr || size == 0) return address;
    char text[1024] = "";
    std::size_t needed = 0;
    detail why{sizeof(detail), 0, 0};
    message(text, sizeof text, &needed);
    last(&why);
    TORCH_CHECK_WITH(OutOfMemoryError, !is_shortage(why), "CUDA out of memory. Tried to allocate ",
                     size, " bytes on device ", device, ". gvmm: ", text);
    TORCH_CHECK(false, "gvmm could not allocate ", size, " bytes on device ", device, ": ", text);
    return nullptr;
}

#ifdef GVMM_FULL
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <memory>
#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
#include <c10/cuda/PeerToPeerAccess.h>
namespace peer_cache = c10::cuda::detail;
#else
#include <ATen/cuda/PeerToPeerAccess.h>
namespace peer_cache = at::cuda::detail;
#endif

namespace {
using Plain = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;
struct Allocator final : Plain {
    uint64_t peers = 0;
    using Plain::Plain;

    // PyTorch's own class keeps a map of what it gave, behind one lock. The pool knows all that.
    c10::DataPtr allocate(size_t size) override {
        auto device = c10::cuda::current_device();
        void *address = gvmm_shim_alloc(size, device, c10::cuda::getCurrentCUDAStream(device).stream());
        return {address, address, drop, c10::Device(c10::DeviceType::CUDA, device)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return drop; }
    void *raw_alloc(size_t size) override {
        return raw_alloc_with_stream(size, c10::cuda::getCurrentCUDAStream().stream());
    }
    void *raw_alloc_with_stream(size_t size, cudaStream_t stream) override {
        return gvmm_shim_alloc(size, c10::cuda::current_device(), stream);
    }
    void raw_delete(void *address) override { drop(address); }

    // CUDA's switch for peers opens nothing that was mapped by pages: the pool has done that, or nobody has.
    void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex other) override {
        if (peers >> device & 1) return Plain::enablePeerAccess(device, other);
        // So that the next try is told the same, instead of running into a fault.
        peer_cache::init_p2p_access_cache(c10::cuda::device_count());
        TORCH_CHECK(false, "device ", int(device), " has no access to gvmm's memory on device ", int(other),
                    ": ask for it by gvmm.torch.enable(peers=\"all\") or GVMM_POOL_PEERS");
    }

    cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream,
                            bool by_peers) override {
        if (to_device == from_device || by_peers)
            return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
        return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
    }

    // Who chooses a workspace asks for the largest block that could be had.
    void cacheInfo(c10::DeviceIndex device, size_t *largest) override {
        c10::cuda::CUDAGuard guard(device);
        size_t all = 0;
        C10_CUDA_CHECK(cudaMemGetInfo(largest, &all));
    }
};

template <class F> F *as(void *address) { return reinterpret_cast<F *>(address); }
} // namespace

// Makes ours the current allocator. `hooks`: free, init, reset, fraction, base, record, begin, end, release.
extern "C" void gvmm_shim_install(void *const *hooks, uint64_t peers) {
    using id = c10::cuda::MempoolId_t;
    auto mine = std::make_shared<Allocator>(as<void *(size_t, int, cudaStream_t)>(reinterpret_cast<void *>(gvmm_shim_alloc)),
                                            as<void(void *, size_t, int, cudaStream_t)>(hooks[0]));
    mine->peers = peers;
    mine->set_init_fn(as<void(int)>(hooks[1]));
    mine->set_reset_fn(as<void()>(hooks[2]));
    mine->set_memory_fraction_fn(as<void(double, int)>(hooks[3]));
    mine->set_base_alloc_fn(as<void *(void *, size_t *)>(hooks[4]));
    mine->set_record_stream_fn(as<void(void *, cudaStream_t)>(hooks[5]));
    mine->set_begin_allocate_to_pool(as<void(int, id, std::function<bool(cudaStream_t)>)>(hooks[6]));
    mine->set_end_allocate_to_pool_fn(as<void(int, id)>(hooks[7]));
    mine->set_release_pool(as<void(int, id)>(hooks[8]));
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(mine);
}
#endif
