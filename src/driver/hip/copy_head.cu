// What of the copy kernel is AMD's own. `rtc.rs` puts this between two parts of `copy.cu`, in place of the
// instructions that are NVIDIA's, and compiles the whole when a device opens. `static_assert`, the table, the
// tiles and the entries are those of `copy.cu`.

typedef u32 Vector __attribute__((ext_vector_type(4)));

// Addresses are global memory (device memory, a peer's, or pinned host memory), never shared or scratch: saying so
// spares the hardware a look at each address.
#define GLOBAL(TYPE, a) (*(__attribute__((address_space(1))) TYPE *)(a))

__device__ __forceinline__ Vector load_vector(u64 a) { return GLOBAL(const Vector, a); }

__device__ __forceinline__ void store_vector(u64 a, Vector v) { GLOBAL(Vector, a) = v; }

__device__ __forceinline__ u32 load_word(u64 a) { return GLOBAL(const u32, a); }

__device__ __forceinline__ void store_word(u64 a, u32 v) { GLOBAL(u32, a) = v; }

__device__ __forceinline__ void copy_byte(u64 dst, u64 src) {
    GLOBAL(unsigned char, dst) = GLOBAL(const unsigned char, src);
}

// `low` and `high` are neighbouring words; the word that starts `bits` into `low`.
__device__ __forceinline__ u32 funnel(u32 low, u32 high, u32 bits) {
    return (u32)(((u64)high << 32 | low) >> bits);
}

