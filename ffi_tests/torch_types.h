// The types of PyTorch's pluggable allocator, from its headers where they are there (GVMM_TORCH_HEADERS), else written down;
// and the check that our functions match them at the level of the calling convention.
#ifndef TORCH_TYPES_H
#define TORCH_TYPES_H

#include <gvmm.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#ifdef GVMM_TORCH_HEADERS
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

// The function type F of a setter `void (C::*)(std::function<F>)`.
template <class T> struct set_by;
template <class C, class F> struct set_by<void (C::*)(std::function<F>)> { using type = F; };
using torch_allocator = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;
template <auto setter> using hook = typename set_by<decltype(setter)>::type;
using pool_id = c10::cuda::MempoolId_t;
using init_hook = hook<&torch_allocator::set_init_fn>;
using reset_hook = hook<&torch_allocator::set_reset_fn>;
using fraction_hook = hook<&torch_allocator::set_memory_fraction_fn>;
using base_hook = hook<&torch_allocator::set_base_alloc_fn>;
using record_hook = hook<&torch_allocator::set_record_stream_fn>;
using begin_hook = hook<&torch_allocator::set_begin_allocate_to_pool>;
using end_hook = hook<&torch_allocator::set_end_allocate_to_pool_fn>;
using release_hook = hook<&torch_allocator::set_release_pool>;
// What the constructor takes.
using alloc_hook = void *(std::size_t, int, cudaStream_t);
using free_hook = void(void *, std::size_t, int, cudaStream_t);
static_assert(std::is_constructible_v<torch_allocator, std::function<alloc_hook>, std::function<free_hook>>);
static_assert(!std::is_constructible_v<torch_allocator, void *, std::function<free_hook>>);
#else
struct CUstream_st;
using cudaStream_t = CUstream_st *;
using pool_id = std::pair<unsigned long long, unsigned long long>;
using alloc_hook = void *(std::size_t, int, cudaStream_t);
using free_hook = void(void *, std::size_t, int, cudaStream_t);
using init_hook = void(int);
using reset_hook = void();
using fraction_hook = void(double, int);
using base_hook = void *(void *, std::size_t *);
using record_hook = void(void *, cudaStream_t);
using begin_hook = void(int, pool_id, std::function<bool(cudaStream_t)>);
using end_hook = void(int, pool_id);
using release_hook = void(int, pool_id);
#endif

// Whether `Ours` is passed as `Theirs`: the same type; pointers; integers of one size; the pair, which is passed in registers
// as its two numbers; and an object with a copy constructor of its own, of which the address is passed.
template <class Theirs, class Ours> constexpr bool passed_alike() {
    if constexpr (std::is_same_v<Theirs, Ours> || (std::is_pointer_v<Theirs> && std::is_pointer_v<Ours>))
        return true;
    else if constexpr (std::is_integral_v<Theirs> && std::is_integral_v<Ours>)
        return sizeof(Theirs) == sizeof(Ours) && std::is_signed_v<Theirs> == std::is_signed_v<Ours>;
    else if constexpr (std::is_same_v<Theirs, pool_id> && std::is_same_v<Ours, gvmm_torch_pool_id>)
        return sizeof(Theirs) == sizeof(Ours) && alignof(Theirs) == alignof(Ours) &&
               sizeof(typename Theirs::first_type) == 8 && std::is_trivially_copy_constructible_v<Theirs> &&
               std::is_trivially_destructible_v<Theirs>;
    else
        return std::is_class_v<Theirs> && !std::is_trivially_copy_constructible_v<Theirs> && std::is_pointer_v<Ours>;
}

template <class Theirs, class Ours> struct alike : std::false_type {};
template <class R, class... A, class S, class... B> struct alike<R(A...), S(B...)> {
    static constexpr bool count = sizeof...(A) == sizeof...(B);
    static constexpr bool value = [] {
        if constexpr (count) return (passed_alike<R, S>() && ... && passed_alike<A, B>());
        return false;
    }();
};
#define SAME(theirs, ours) static_assert(alike<theirs, std::remove_reference_t<decltype(ours)>>::value, #ours)

SAME(alloc_hook, gvmm_torch_alloc);
SAME(free_hook, gvmm_torch_free);
SAME(init_hook, gvmm_torch_init);
SAME(reset_hook, gvmm_torch_reset);
SAME(fraction_hook, gvmm_torch_memory_fraction);
SAME(base_hook, gvmm_torch_base_alloc);
SAME(record_hook, gvmm_torch_record_stream);
SAME(begin_hook, gvmm_torch_begin_allocate_to_pool);
SAME(end_hook, gvmm_torch_end_allocate_to_pool);
SAME(release_hook, gvmm_torch_release_pool);
// The check can say no.
static_assert(!alike<free_hook, decltype(gvmm_torch_alloc)>::value && !alike<end_hook, decltype(gvmm_torch_init)>::value);
static_assert(!alike<fraction_hook, decltype(gvmm_torch_end_allocate_to_pool)>::value);
static_assert(!alike<void(int, int), decltype(gvmm_torch_end_allocate_to_pool)>::value);

#endif
