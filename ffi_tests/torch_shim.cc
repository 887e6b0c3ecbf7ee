// PyTorch's own C++ calls of its current allocator, which the Python module has made ours: what arrives at our books, by PyTorch's
// types, function objects and pairs. No GPU is needed: the library is on its host driver. scripts/torch_shim_check.py builds and runs it.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>
#include <gvmm.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);             \
            return false;                                                                    \
        }                                                                                    \
    } while (0)

using alloc_function = void *(std::size_t, int, void *);
namespace current = c10::cuda::CUDACachingAllocator;
static constexpr std::size_t MIB = 1 << 20;

struct Bench {
    alloc_function *alloc;
    void *stream;
    gvmm_pool *pool = nullptr;

    gvmm_pool_stats stats() const {
        gvmm_pool_stats stats{};
        stats.struct_size = sizeof stats;
        gvmm_pool_query(pool, &stats);
        return stats;
    }
    // 0 where there is memory, 1 where PyTorch's OutOfMemoryError came, 2 for another error of its.
    int failure(std::size_t size, int device, std::string &says) const {
        try {
            void *address = alloc(size, device, stream);
            if (address != nullptr) current::raw_delete(address);
            return 0;
        } catch (const c10::OutOfMemoryError &error) {
            says = error.what_without_backtrace();
            return 1;
        } catch (const c10::Error &error) {
            says = error.what_without_backtrace();
            return 2;
        }
    }
};

static bool memory(const Bench &bench) {
    auto before = bench.stats().all.blocks.current;
    void *p = bench.alloc(3 * MIB, 0, bench.stream);
    CHECK(p != nullptr && bench.stats().all.blocks.current == before + 1);
    std::size_t size = 0;
    CHECK(current::getBaseAllocation(static_cast<char *>(p) + 1000, &size) == p && size == 3 * MIB);
    current::raw_delete(p);
    CHECK(bench.stats().all.blocks.current == before && bench.alloc(3 * MIB, 0, bench.stream) == p);
    CHECK(current::get()->raw_deleter() != nullptr);
    current::get()->raw_deleter()(p);
    CHECK(bench.stats().all.blocks.current == before);
    current::raw_delete(nullptr);
    auto held = bench.stats().all.reserved_bytes.current;
    current::emptyCache();
    CHECK(bench.stats().all.reserved_bytes.current < held);
    return true;
}

static bool failures(const Bench &bench) {
    std::string says;
    CHECK(bench.alloc(0, 0, bench.stream) == nullptr);
    CHECK(bench.failure(std::size_t{1} << 40, 0, says) == 1 && says.find("CUDA out of memory. Tried to allocate") == 0);
    CHECK(bench.failure(200 * MIB, 0, says) == 0);
    void *most = bench.alloc(150 * MIB, 0, bench.stream);
    CHECK(bench.failure(130 * MIB, 0, says) == 1 && says.find("130 MiB asked") != std::string::npos);
    current::raw_delete(most);
    CHECK(bench.failure(MIB, 77, says) == 2 && says.find("no device has this number") != std::string::npos);
    CHECK(bench.failure(MIB, 0, says) == 0);
    current::get()->setMemoryFraction(0.25, 0);
    CHECK(bench.stats().limit_bytes == 64 * MIB);
    CHECK(bench.failure(100 * MIB, 0, says) == 1);
    current::get()->setMemoryFraction(1.0, 0);
    CHECK(bench.failure(100 * MIB, 0, says) == 0);
    return true;
}

// The filter is gone after the call, and asked later all the same; at the end it is destroyed.
static bool pools(const Bench &bench) {
    auto asked = std::make_shared<int>(0);
    const c10::cuda::MempoolId_t id{7, 9};
    current::beginAllocateToPool(0, id, [asked, padding = std::string(100, 'x')](cudaStream_t) {
        ++*asked;
        return padding[99] == 'x';
    });
    CHECK(asked.use_count() == 2);
    void *inside = bench.alloc(2 * MIB, 0, bench.stream);
    CHECK(*asked > 0);
    current::endAllocateToPool(0, id);
    CHECK(asked.use_count() == 1);
    current::raw_delete(inside);
    // Free in the books, and the graph's.
    void *outside = bench.alloc(2 * MIB, 0, bench.stream);
    CHECK(outside != inside);
    current::raw_delete(outside);
    current::releasePool(0, id);
    current::releasePool(0, id);
    char says[512] = "";
    std::size_t needed = 0;
    gvmm_last_error_message(says, sizeof says, &needed);
    CHECK(std::strstr(says, "no such pool") != nullptr && bench.stats().all.blocks.current == 0);
    return true;
}

// What no GPU is asked for: that a peer which was not asked for is an error that names the way.
static bool peers() {
    try {
        current::get()->enablePeerAccess(0, 1);
        return false;
    } catch (const c10::Error &error) {
        CHECK(std::strstr(error.what_without_backtrace(), "gvmm.torch.enable(peers=\"all\")") != nullptr);
    }
    return true;
}

extern "C" int torch_shim_check(alloc_function *alloc, void *stream) {
    Bench bench{alloc, stream};
    void *first = alloc(1, 0, stream);
    if (first == nullptr || gvmm_torch_pool(0, &bench.pool) != GVMM_STATUS_SUCCESS) return 1;
    current::raw_delete(first);
    if (!current::get()->initialized()) current::init(1);
    if (!current::get()->initialized() || current::get()->name().find("pluggable") == std::string::npos) return 2;
    return memory(bench) && failures(bench) && pools(bench) && peers() ? 0 : 3;
}
