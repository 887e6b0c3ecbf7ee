// The kernels for routes. `scripts/build_ptx.sh` puts this behind copy.cu, whose `copy_tile` and `BY_VALUE` it uses.
//
// Routes: copies of which one end (near) stays, like the bytes. What stays was put into device memory once, cut into
// tiles; a launch, or a node of a graph, brings the other ends (far), 0 meaning that nothing is copied there.
//
// In a graph the node that copies in may bring the far ends of the one that copies out too, so that one update does for
// both: it leaves them in a table in device memory, which the other, behind it in the graph, reads.

// `start`: where the tile begins in its slice. `extent`: the tile's bytes in the low 32 bits, the number of the slice
// in the high 32.
struct Tile {
    u64 near;
    u64 start;
    u64 extent;
};

__device__ __forceinline__ u64 load_long(u64 a) {
    u64 v;
    asm("ld.global.u64 %0, [%1];" : "=l"(v) : "l"(a));
    return v;
}

__device__ __forceinline__ void store_long(u64 a, u64 v) {
    asm volatile("st.global.u64 [%0], %1;" ::"l"(a), "l"(v) : "memory");
}

__device__ __forceinline__ Tile load_tile(u64 tiles) {
    const u64 at = tiles + (u64)blockIdx.x * sizeof(Tile);
    return {load_long(at), load_long(at + 8), load_long(at + 16)};
}

__device__ __forceinline__ void follow(const Tile &tile, u64 far, bool outward) {
    const u64 at = far + tile.start;
    const u64 bytes = tile.extent & 0xffffffff;
    copy_tile(outward ? at : tile.near, outward ? tile.near : at, bytes);
}

// `flags`: the copies go from near to far; and the far ends are in the table whose address is `far[0]`.
#define OUTWARD 1u
#define BEHIND 2u

// The slices from `first` on, `count` of them; `tiles` are theirs. `others` far ends behind them are those of another
// route, and go to the table whose address is behind those.
struct Head {
    u64 tiles;
    u32 count;
    u32 first;
    u32 flags;
    u32 others;
};

template <u32 CAPACITY> struct Route {
    Head head;
    u64 far[CAPACITY];
};

// Shared among the blocks as evenly as may be: where there are as many tiles as others, each block leaves one.
template <u32 CAPACITY> __device__ __forceinline__ void leave_others(const Route<CAPACITY> &route) {
    const u32 count = route.head.count, others = route.head.others;
#pragma unroll 1
    for (u32 i = blockIdx.x + gridDim.x * threadIdx.x; i < others; i += gridDim.x * THREADS) {
        store_long(route.far[count + others] + (u64)i * 8, route.far[count + i]);
    }
}

template <u32 CAPACITY> __device__ __forceinline__ void follow_all(const Route<CAPACITY> &route) {
    const Tile tile = load_tile(route.head.tiles);
    leave_others(route);
    const u32 slice = (u32)(tile.extent >> 32) - route.head.first;
    const u64 far = route.head.flags & BEHIND ? load_long(route.far[0] + (u64)slice * 8) : route.far[slice];
    if (far != 0) follow(tile, far, route.head.flags & OUTWARD);
}

#define ROUTE(CAPACITY)                                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS) gvmm_route_##CAPACITY(BY_VALUE Route<CAPACITY> r) {   \
        follow_all(r);                                                                                          \
    }

ROUTE(64)
ROUTE(136)
ROUTE(264)
ROUTE(392)
ROUTE(508)
#ifdef GVMM_LARGE_PARAMETERS
ROUTE(520)
ROUTE(776)
ROUTE(1032)
ROUTE(1544)
ROUTE(2056)
ROUTE(3080)
ROUTE(4092)
#endif
