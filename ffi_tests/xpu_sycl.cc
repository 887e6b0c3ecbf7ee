// The functions for Intel GPUs beside the real SYCL runtime: what it exports, how its objects are passed, what it answers, and
// with a GPU of Level Zero that memory of ours is of use there. scripts/sycl_check.sh builds and runs it.
#if __has_include(<level_zero/ze_api.h>)
#include <level_zero/ze_api.h>
#include <sycl/ext/oneapi/backend/level_zero.hpp>
#define LEVEL_ZERO_HANDLES
#endif
#include <sycl/sycl.hpp>

#include <gvmm.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <type_traits>
#include <vector>

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);             \
            std::exit(1);                                                                    \
        }                                                                                    \
    } while (0)

// What our calls rely on: objects are given where a hidden first argument points, and fit there.
static_assert(sizeof(sycl::context) <= 16 && !std::is_trivially_copyable_v<sycl::context>);
static_assert(sizeof(sycl::device) <= 16 && !std::is_trivially_copyable_v<sycl::device>);
static_assert(sizeof(sycl::backend) == 1 && static_cast<int>(sycl::backend::ext_oneapi_level_zero) == 2);

static bool says(const char *words) {
    char message[512] = "";
    std::size_t needed = 0;
    gvmm_last_error_message(message, sizeof message, &needed);
    if (std::string(message).find(words) != std::string::npos) return true;
    std::fprintf(stderr, "the last error is: %s\n", message);
    return false;
}

static const char *const NAMES[] = {
    "_ZNK4sycl3_V15queue11get_backendEv", "_ZNK4sycl3_V15queue11is_in_orderEv",  "_ZNK4sycl3_V15queue11get_contextEv",
    "_ZNK4sycl3_V17context9getNativeEv",  "_ZNK4sycl3_V15queue10get_deviceEv",   "_ZNK4sycl3_V16device9getNativeEv",
    "_ZNK4sycl3_V15queue9getNativeERi",
};

template <class F> static F *find(const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);
    CHECK(address != nullptr);
    return reinterpret_cast<F *>(address);
}

static void symbols() {
    Dl_info info{};
    for (const char *name : NAMES) CHECK(dladdr(reinterpret_cast<void *>(find<void()>(name)), &info) != 0);
    const char *file = std::strrchr(info.dli_fname, '/');
    std::printf("%s: all %zu functions are there\n", file ? file + 1 : info.dli_fname, std::size(NAMES));
}

// The handles that our way of calling gives are those that SYCL's own gives.
template <sycl::backend backend> static void handles(sycl::queue &queue) {
    void *part[2] = {};
    int is_list = 0;
    find<void *(void **, const void *)>(NAMES[2])(part, &queue);
    auto context = find<unsigned long(void **)>(NAMES[3])(part);
    sycl::context same = queue.get_context();
    CHECK(std::memcmp(part, &same, sizeof same) == 0);
    CHECK(context == reinterpret_cast<unsigned long>(sycl::get_native<backend>(same)));
    find<void *(void **, const void *)>(NAMES[4])(part, &queue);
    auto device = find<unsigned long(void **)>(NAMES[5])(part);
    CHECK(device == reinterpret_cast<unsigned long>(sycl::get_native<backend>(queue.get_device())));
    CHECK(find<unsigned long(const void *, int *)>(NAMES[6])(&queue, &is_list) != 0);
    CHECK(find<bool(const void *)>(NAMES[1])(&queue) && find<sycl::backend(const void *)>(NAMES[0])(&queue) == backend);
}

static void on_opencl(const sycl::device &device) {
    sycl::queue queue(device, sycl::property::queue::in_order{});
    handles<sycl::backend::opencl>(queue);
    CHECK(gvmm_xpu_alloc(4096, 0, &queue) == nullptr && says("not one of Level Zero"));
    std::printf("OpenCL, %s: handles agree; a queue of it is refused\n", device.get_info<sycl::info::device::name>().c_str());
}

static void on_level_zero(const sycl::device &device, int number) {
    std::string name = device.get_info<sycl::info::device::name>();
    sycl::context context(device);
    sycl::queue disorder(context, device), queue(context, device, sycl::property::queue::in_order{});
    CHECK(gvmm_xpu_alloc(4096, number, &disorder) == nullptr && says("out of order"));
#ifdef LEVEL_ZERO_HANDLES
    handles<sycl::backend::ext_oneapi_level_zero>(queue);
#endif
    constexpr std::size_t SIZE = 40 << 20;
    auto *block = static_cast<unsigned char *>(gvmm_xpu_alloc(SIZE, number, &queue));
    if (block == nullptr && says("UR_L0_USE_IMMEDIATE_COMMANDLISTS=1")) {
        std::printf("Level Zero, %s: a queue that works in batches is refused\n", name.c_str());
        return;
    }
    CHECK(block != nullptr);
    bool known = sycl::get_pointer_type(block, context) == sycl::usm::alloc::device;
    // Level Zero's driver for tests runs nothing.
    if (name != "Null Device") {
        std::vector<unsigned char> back(SIZE);
        queue.memset(block, 0xa5, SIZE);
        queue.memcpy(back.data(), block, SIZE).wait();
        for (unsigned char byte : back) CHECK(byte == 0xa5);
    }
    gvmm_xpu_free(block, SIZE, number, &queue);
    CHECK(gvmm_xpu_alloc(SIZE, number, &queue) == block);
    sycl::queue second(context, device, sycl::property::queue::in_order{});
    CHECK(gvmm_xpu_alloc(4096, number, &second) == nullptr && says("a second stream"));
    gvmm_xpu_free(block, SIZE, number, &queue);
    gvmm_pool *pool = nullptr;
    gvmm_pool_stats stats{};
    stats.struct_size = sizeof stats;
    CHECK(gvmm_xpu_pool(number, &pool) == GVMM_STATUS_SUCCESS && gvmm_pool_query(pool, &stats) == GVMM_STATUS_SUCCESS);
    std::printf("Level Zero, %s: %s; type %s; %s\n", name.c_str(),
                name == "Null Device" ? "allocated" : "written and read back", known ? "device" : "UNKNOWN",
                stats.map_calls > 0 ? "mapped" : "plain allocations");
}

int main() {
    symbols();
    CHECK(gvmm_xpu_alloc(4096, 0, nullptr) == nullptr && says("NULL is no sycl::queue"));
    int opencl = 0, level_zero = 0;
    for (const sycl::platform &platform : sycl::platform::get_platforms())
        for (const sycl::device &device : platform.get_devices()) {
            if (device.get_backend() == sycl::backend::opencl && opencl++ == 0) on_opencl(device);
            if (device.get_backend() == sycl::backend::ext_oneapi_level_zero) on_level_zero(device, level_zero++);
        }
    std::printf("%d devices of OpenCL, %d of Level Zero\n", opencl, level_zero);
    return 0;
}
