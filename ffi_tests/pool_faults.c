/* Each driver call fails in turn under a pool: nothing is lost, and trying again works. */
#include "common.h"

#define MIB (1ull << 20)

static gvmm_device *device;
static gvmm_stream *s, *t;

/* Allocates on two streams beyond what the limit holds at once, so that chunks are lent, and shares a block. */
static gvmm_status play(gvmm_pool *pool) {
    uint64_t held[4] = {0}, bytes = 0;
    gvmm_status status = gvmm_pool_alloc(pool, 1000, t, &held[0]);
    if (status == 0) status = gvmm_pool_alloc(pool, 20 * MIB, t, &held[1]);
    if (status == 0) status = gvmm_pool_alloc(pool, 12 * MIB, t, &held[2]);
    if (status == 0) status = gvmm_pool_record_stream(pool, held[2], s);
    for (int i = 0; i < 3; i++)
        if (held[i] != 0) OK(gvmm_pool_free(pool, held[i]));
    if (status == 0) status = gvmm_pool_alloc(pool, 36 * MIB, s, &held[3]);
    if (held[3] != 0) OK(gvmm_pool_free(pool, held[3]));
    if (status == 0) status = gvmm_pool_trim(pool, &bytes);
    return status;
}

static void check(gvmm_pool *pool, uint64_t kept) {
    gvmm_pool_stats stats = {.struct_size = sizeof stats};
    OK(gvmm_pool_query(pool, &stats));
    CHECK(stats.all.blocks.current == 1 && stats.all.requested_bytes.current == 12 * MIB);
    CHECK(stats.all.reserved_bytes.current <= 64 * MIB);
    gvmm_pool_stream streams[4];
    size_t count = 0;
    uint64_t reserved = stats.spare_bytes;
    OK(gvmm_pool_stream_stats(pool, streams, 4, sizeof streams[0], &count));
    for (size_t i = 0; i < count; i++) reserved += streams[i].all.reserved_bytes.current;
    CHECK(reserved == stats.all.reserved_bytes.current); /* every chunk is somewhere */
    CHECK(*at(kept) == 4711);
}

int main(void) {
    setenv("GVMM_HOST_MEMORY", "256M", 1);
    device = open_host();
    s = make_stream(device), t = make_stream(device);
    gvmm_status kinds[] = {GVMM_ERROR_DRIVER_ERROR, GVMM_ERROR_OUT_OF_DEVICE_MEMORY};
    for (int k = 0; k < 2; k++) {
        uint64_t nth = 1, missed = 0;
        int failures = 0;
        for (; missed < 8; nth++) { /* some failures are made good; the last calls are past the scene */
            gvmm_pool_desc desc = {.struct_size = sizeof desc, .limit_bytes = 64 * MIB};
            gvmm_pool *pool = NULL;
            uint64_t kept = 0;
            OK(gvmm_pool_create(device, &desc, &pool));
            OK(gvmm_pool_alloc(pool, 12 * MIB, s, &kept));
            *at(kept) = 4711;
            OK(gvmm_device_fail_calls(device, GVMM_CALL_ANY, nth, 1, kinds[k]));
            gvmm_status status = play(pool);
            OK(gvmm_device_fail_calls(device, GVMM_CALL_ANY, 0, 0, 0));
            /* where lending fails, memory is short; a stream that cannot say may be capturing */
            CHECK(status == GVMM_STATUS_SUCCESS || status == kinds[k] || status == GVMM_ERROR_OUT_OF_DEVICE_MEMORY ||
                  status == GVMM_ERROR_STREAM_CAPTURING);
            failures += status != GVMM_STATUS_SUCCESS;
            missed = status == GVMM_STATUS_SUCCESS ? missed + 1 : 0;
            check(pool, kept);
            OK(play(pool));
            check(pool, kept);
            OK(gvmm_pool_free(pool, kept));
            OK(gvmm_pool_destroy(pool));
            OK(gvmm_device_drain(device));
        }
        CHECK(failures > (k == 0 ? 10 : 0) && nth > 20);
    }
    OK(gvmm_stream_destroy(s));
    OK(gvmm_stream_destroy(t));
    OK(gvmm_device_close(device));
    return 0;
}
