// A stand-in for libsycl.so: only what tells of a queue, under the real one's names, over handles that the test gives (of the
// fake Level Zero). c++ -shared -fPIC -o libsycl.so.8 fake_sycl.cc; -DMAJOR=9 has a device be a plain pointer, as libsycl.so.9.
#include <atomic>
#include <cstdint>
#include <memory>

#ifndef MAJOR
#define MAJOR 8
#endif
#define API __attribute__((visibility("default")))

static std::atomic<std::uint64_t> asked{0};

namespace sycl {
inline namespace _V1 {
enum class backend : char { opencl = 1, ext_oneapi_level_zero = 2 };
namespace detail {
struct context_impl { std::uint64_t handle; };
struct device_impl { std::uint64_t handle; };
struct queue_impl {
    std::shared_ptr<context_impl> context;
    std::shared_ptr<device_impl> device;
    std::uint64_t list;
    int kind; // 1: an immediate list, 2: in order, 4: of Level Zero
};
} // namespace detail

class API context {
  public:
    std::uint64_t getNative() const;
    std::shared_ptr<detail::context_impl> impl;
};

class API device {
  public:
#if MAJOR == 9
    explicit device(detail::device_impl *given) : impl(given) {}
    device(const device &other);
    detail::device_impl *impl;
#else
    explicit device(std::shared_ptr<detail::device_impl> given) : impl(std::move(given)) {}
    std::shared_ptr<detail::device_impl> impl;
#endif
    std::uint64_t getNative() const;
};

class API queue {
  public:
    backend get_backend() const;
    bool is_in_order() const;
    context get_context() const;
    device get_device() const;
    std::uint64_t getNative(std::int32_t &is_list) const;
    std::shared_ptr<detail::queue_impl> impl;
};

#if MAJOR == 9
device::device(const device &other) : impl(other.impl) {}
device queue::get_device() const { return device(impl->device.get()); }
#else
device queue::get_device() const { return device(impl->device); }
#endif
std::uint64_t context::getNative() const { return impl->handle; }
std::uint64_t device::getNative() const { return impl->handle; }
backend queue::get_backend() const { return impl->kind & 4 ? backend::ext_oneapi_level_zero : backend::opencl; }
bool queue::is_in_order() const { return (impl->kind & 2) != 0; }
context queue::get_context() const { return {impl->context}; }
std::uint64_t queue::getNative(std::int32_t &is_list) const {
    ++asked;
    is_list = impl->kind & 1;
    return impl->list;
}
} // namespace _V1
} // namespace sycl

extern "C" API sycl::queue *fake_sycl_queue(std::uint64_t context, std::uint64_t device, std::uint64_t list, int kind) {
    using namespace sycl::detail;
    auto c = std::make_shared<context_impl>(context_impl{context});
    auto d = std::make_shared<device_impl>(device_impl{device});
    return new sycl::queue{std::make_shared<queue_impl>(queue_impl{std::move(c), std::move(d), list, kind})};
}
// Another object for the same queue.
extern "C" API sycl::queue *fake_sycl_copy(const sycl::queue *queue) { return new sycl::queue(*queue); }
// How many hold the queue's context, the queue itself among them.
extern "C" API long fake_sycl_holders(const sycl::queue *queue) { return queue->impl->context.use_count(); }
// How many queues were asked for their handle.
extern "C" API std::uint64_t fake_sycl_asked() { return asked; }
