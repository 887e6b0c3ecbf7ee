// The kernels for routes. `scripts/build_ptx.sh` puts this behind copy.cu, whose `copy_tile` and `BY_VALUE` it uses.
//
// Routes: copies of which one end (near) stays, like the bytes. What stays was put into device memory once, cut into
// tiles; a launch, or a node of a graph, brings the other ends (far), 0 meaning that nothing is copied there.

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

__device__ __forceinline__ Tile load_tile(u64 tiles) {
    const u64 at = tiles + (u64)blockIdx.x * sizeof(Tile);
    return {load_long(at), load_long(at + 8), load_long(at + 16)};
}

__device__ __forceinline__ void follow(const Tile &tile, u64 far, u32 outward) {
    const u64 at = far + tile.start;
    const u64 bytes = tile.extent & 0xffffffff;
    copy_tile(outward ? at : tile.near, outward ? tile.near : at, bytes);
}

// The slices from `first` on, `count` of them; `tiles` are theirs.
struct Head {
    u64 tiles;
    u32 count;
    u32 first;
    u32 outward;
    u32 reserved;
};

template <u32 CAPACITY> struct Route {
    Head head;
    u64 far[CAPACITY];
};

template <u32 CAPACITY> __device__ __forceinline__ void follow_all(const Route<CAPACITY> &route) {
    const Tile tile = load_tile(route.head.tiles);
    const u64 far = route.far[(u32)(tile.extent >> 32) - route.head.first];
    if (far != 0) follow(tile, far, route.head.outward);
}

#define ROUTE(CAPACITY)                                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS) gvmm_route_##CAPACITY(BY_VALUE Route<CAPACITY> r) {   \
        follow_all(r);                                                                                          \
    }

ROUTE(64)
ROUTE(128)
ROUTE(256)
ROUTE(384)
ROUTE(508)
#ifdef GVMM_LARGE_PARAMETERS
ROUTE(1024)
ROUTE(2048)
ROUTE(4092)
#endif
