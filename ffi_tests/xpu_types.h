// The types of PyTorch's pluggable allocator for Intel GPUs, from its headers where they and SYCL's are there
// (GVMM_XPU_HEADERS), else written down; and the check that our functions match them.
#ifndef XPU_TYPES_H
#define XPU_TYPES_H

#include "torch_types.h"

#ifdef GVMM_XPU_HEADERS
#include <torch/csrc/xpu/XPUPluggableAllocator.h>

using xpu_allocator = torch::xpu::XPUPluggableAllocator::XPUPluggableAllocator;
// The function type F of a setter `void (C::*)(std::function<F>)`.
template <class T> struct xpu_set_by;
template <class C, class F> struct xpu_set_by<void (C::*)(std::function<F>)> { using type = F; };
using xpu_record_hook = xpu_set_by<decltype(&xpu_allocator::set_record_stream_fn)>::type;
using xpu_alloc_hook = void *(std::size_t, int, sycl::queue *);
using xpu_free_hook = void(void *, std::size_t, int, sycl::queue *);
// What the constructor takes, and nothing else.
static_assert(std::is_constructible_v<xpu_allocator, std::function<xpu_alloc_hook>, std::function<xpu_free_hook>>);
static_assert(!std::is_constructible_v<xpu_allocator, std::function<xpu_alloc_hook>,
                                       std::function<void(void *, std::size_t, sycl::queue *)>>);
#else
namespace sycl {
inline namespace _V1 {
class queue;
}
} // namespace sycl
using xpu_alloc_hook = void *(std::size_t, int, sycl::queue *);
using xpu_free_hook = void(void *, std::size_t, int, sycl::queue *);
using xpu_record_hook = void(void *, sycl::queue *);
#endif

SAME(xpu_alloc_hook, gvmm_xpu_alloc);
SAME(xpu_free_hook, gvmm_xpu_free);
SAME(xpu_record_hook, gvmm_xpu_record_stream);
static_assert(!alike<xpu_free_hook, decltype(gvmm_xpu_alloc)>::value && !alike<xpu_record_hook, decltype(gvmm_xpu_free)>::value);

#endif
