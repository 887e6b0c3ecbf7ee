// Many copies in one launch. The table of slices comes by value in the kernel's parameters, so that a captured
// launch carries its own table and nothing has to outlive it.
//
// `scripts/build_ptx.sh` makes copy_old.ptx and copy_new.ptx, which the library carries, from this one source.
// It needs no header: NVRTC and nvcc both take it as it is.
//
// The work: slices are cut into tiles of 2^tile_shift bytes (16 KiB at least), one block of threads a tile. The
// host numbers the tiles through; a block finds its slice by the number of the slice's first tile.

typedef unsigned int u32;
typedef unsigned long long u64;

static_assert(sizeof(u64) == 8, "the host lays the table out with 64-bit words");

// Threads of a block, and bytes that a block moves at one go: 4 vectors of 16 bytes a thread.
#define THREADS 256u

// `extent`: the bytes in the low 40 bits, the number of the first tile in the high 24.
struct Slice {
    u64 dst;
    u64 src;
    u64 extent;
};

// `direct` is 1 where every slice is one tile, so that tile i is slice i.
template <u32 CAPACITY> struct Table {
    u32 count;
    u32 tile_shift;
    u32 direct;
    u32 reserved;
    Slice slices[CAPACITY];
};

struct Vector {
    u32 x, y, z, w;
};

// Addresses are global memory (device memory, a peer's, or pinned host memory), never shared or local: saying so
// spares the hardware a look at each address. Nothing here reads what it writes, so loads may move.
__device__ __forceinline__ Vector load_vector(u64 a) {
    Vector v;
    asm("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(a));
    return v;
}

__device__ __forceinline__ void store_vector(u64 a, Vector v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

__device__ __forceinline__ u32 load_word(u64 a) {
    u32 v;
    asm("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(a));
    return v;
}

__device__ __forceinline__ void store_word(u64 a, u32 v) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(a), "r"(v) : "memory");
}

__device__ __forceinline__ void copy_byte(u64 dst, u64 src) {
    u32 v;
    asm("ld.global.u8 %0, [%1];" : "=r"(v) : "l"(src));
    asm volatile("st.global.u8 [%0], %1;" ::"l"(dst), "r"(v) : "memory");
}

// `low` and `high` are neighbouring words; the word that starts `bits` into `low`.
__device__ __forceinline__ u32 funnel(u32 low, u32 high, u32 bits) {
    u32 v;
    asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(low), "r"(high), "r"(bits));
    return v;
}

// Both sides have the same offset within 16 bytes: whole vectors, and single bytes at the ends, which the last
// and the first threads do.
__device__ __forceinline__ void copy_vectors(u64 dst, u64 src, u64 bytes, u32 thread) {
    u64 head = (0 - dst) & 15;
    head = head < bytes ? head : bytes;
    if (thread < head) copy_byte(dst + thread, src + thread);
    const u64 vectors = (bytes - head) >> 4;
    const u64 tail = (bytes - head) & 15;
    if (THREADS - 1 - thread < tail) {
        const u64 at = bytes - 1 - (THREADS - 1 - thread);
        copy_byte(dst + at, src + at);
    }
    dst += head;
    src += head;
    u64 i = thread;
    for (; i + 3 * THREADS < vectors; i += 4 * THREADS) {
        Vector v[4];
#pragma unroll
        for (u32 k = 0; k < 4; ++k) v[k] = load_vector(src + ((i + k * THREADS) << 4));
#pragma unroll
        for (u32 k = 0; k < 4; ++k) store_vector(dst + ((i + k * THREADS) << 4), v[k]);
    }
    for (; i < vectors; i += THREADS) store_vector(dst + (i << 4), load_vector(src + (i << 4)));
}

// Any other pair of addresses: aligned words are read and written, shifted on the way. No byte outside the slice
// is read: where the first or the last word would need one, its bytes are copied one by one.
__device__ __forceinline__ void copy_words(u64 dst, u64 src, u64 bytes, u32 thread) {
    u64 head = (0 - dst) & 3;
    head = head < bytes ? head : bytes;
    const u64 skew = (src + head) & 3;
    u64 words = (bytes - head) >> 2;
    u64 tail = (bytes - head) & 3;
    if (skew != 0) {
        if (head < skew && words != 0) {
            head += 4;
            words -= 1;
        }
        if (tail < 4 - skew && words != 0) {
            tail += 4;
            words -= 1;
        }
    }
    if (thread < head) copy_byte(dst + thread, src + thread);
    if (THREADS - 1 - thread < tail) {
        const u64 at = bytes - 1 - (THREADS - 1 - thread);
        copy_byte(dst + at, src + at);
    }
    dst += head;
    src += head - skew;
    const u32 bits = (u32)skew * 8;
    // Without a skew the word beyond is not needed, and might lie outside.
    const u64 beyond = skew != 0 ? 4 : 0;
    u64 i = thread;
    for (; i + 3 * THREADS < words; i += 4 * THREADS) {
        u32 low[4], high[4];
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            low[k] = load_word(src + ((i + k * THREADS) << 2));
            high[k] = load_word(src + ((i + k * THREADS) << 2) + beyond);
        }
#pragma unroll
        for (u32 k = 0; k < 4; ++k) store_word(dst + ((i + k * THREADS) << 2), funnel(low[k], high[k], bits));
    }
    for (; i < words; i += THREADS) {
        const u64 at = src + (i << 2);
        store_word(dst + (i << 2), funnel(load_word(at), load_word(at + beyond), bits));
    }
}

// Not inlined, so that the text has it once for all entries.
__device__ __noinline__ void copy_tile(u64 dst, u64 src, u64 bytes) {
    if (((dst ^ src) & 15) == 0) {
        copy_vectors(dst, src, bytes, threadIdx.x);
    } else {
        copy_words(dst, src, bytes, threadIdx.x);
    }
}

// The last slice whose first tile is not after `tile`.
template <u32 CAPACITY> __device__ __forceinline__ u32 find(const Table<CAPACITY> &table, u32 tile) {
    u32 low = 0, high = table.count;
    while (high - low > 1) {
        const u32 middle = (low + high) >> 1;
        if ((u32)(table.slices[middle].extent >> 40) <= tile) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

template <u32 CAPACITY> __device__ __forceinline__ void copy(const Table<CAPACITY> &table) {
    const u32 tile = blockIdx.x;
    const u32 index = table.direct ? tile : find(table, tile);
    const Slice slice = table.slices[index];
    const u64 bytes = slice.extent & ((1ull << 40) - 1);
    const u64 start = (u64)(tile - (u32)(slice.extent >> 40)) << table.tile_shift;
    const u64 left = bytes - start;
    const u64 most = 1ull << table.tile_shift;
    const u64 size = left < most ? left : most;
    copy_tile(slice.dst + start, slice.src + start, size);
}

// A launch costs by the bytes of parameters that its kernel declares, so there is one for each size of table.
#ifdef GVMM_LARGE_PARAMETERS
#define BY_VALUE const __grid_constant__
#else
#define BY_VALUE const
#endif
#define ENTRY(CAPACITY)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS) gvmm_copy_##CAPACITY(BY_VALUE Table<CAPACITY> t) {   \
        copy(t);                                                                                               \
    }

ENTRY(8)
ENTRY(32)
ENTRY(64)
ENTRY(170)
#ifdef GVMM_LARGE_PARAMETERS
// More than 4,096 bytes of parameters: sm_70 and CUDA 12.1 or later. 32,764 bytes hold 1,364 slices.
ENTRY(256)
ENTRY(512)
ENTRY(1024)
ENTRY(1364)
#endif
