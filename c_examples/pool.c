/* A pool: memory by size and stream that lends its free chunks when memory is short.
 *
 * It runs on the host driver, where a device address can be read and written like any pointer. From
 * the top folder:
 *
 *   cargo build --release
 *   ln -sf libgvmm.so target/release/libgvmm.so.0
 *   cc -std=c11 -Wall -Wextra -Iinclude c_examples/pool.c -Ltarget/release -lgvmm \
 *      -Wl,-rpath,$PWD/target/release -o target/pool
 *   target/pool
 */
#include <gvmm.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)

static void show_last_error(const char *call, gvmm_status status) {
    char message[512] = "";
    size_t needed_bytes = 0;
    gvmm_last_error_message(message, sizeof message, &needed_bytes);
    printf("%s: %s: %s\n", call, gvmm_status_name(status), message);
}

static void check(gvmm_status status, const char *call) {
    if (status == GVMM_STATUS_SUCCESS) return;
    show_last_error(call, status);
    exit(1);
}

static uint64_t alloc(gvmm_pool *pool, uint64_t size_bytes, gvmm_stream *stream) {
    uint64_t address = 0;
    check(gvmm_pool_alloc(pool, size_bytes, stream, &address), "gvmm_pool_alloc");
    return address;
}

int main(void) {
    gvmm_device *device = NULL;
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST};
    check(gvmm_device_open(&desc, &device), "gvmm_device_open");
    gvmm_stream *compute = NULL, *copy = NULL;
    check(gvmm_stream_create(device, &compute), "gvmm_stream_create");
    check(gvmm_stream_create(device, &copy), "gvmm_stream_create");

    /* It may hold 64 MiB of the device's memory. */
    gvmm_pool *pool = NULL;
    gvmm_pool_desc limits = {.struct_size = sizeof limits, .limit_bytes = 64 * MIB};
    check(gvmm_pool_create(device, &limits, &pool), "gvmm_pool_create");

    /* The same stream gets the same memory again, at once. */
    uint64_t first = alloc(pool, 40 * MIB, compute);
    check(gvmm_pool_free(pool, first), "gvmm_pool_free");
    uint64_t second = alloc(pool, 40 * MIB, compute);
    printf("used again: %s\n", first == second ? "yes" : "no");

    /* A block that another stream reads, too, waits for that stream once it is freed. */
    check(gvmm_pool_record_stream(pool, second, copy), "gvmm_pool_record_stream");
    check(gvmm_pool_free(pool, second), "gvmm_pool_free");

    /* 24 MiB are not held yet, the rest is lent by the other stream. */
    uint64_t lent = alloc(pool, 60 * MIB, copy);
    gvmm_pool_stats stats = {.struct_size = sizeof stats};
    check(gvmm_pool_query(pool, &stats), "gvmm_pool_query");
    printf("held: %" PRIu64 " MiB, lent: %s\n", stats.all.reserved_bytes.current / MIB,
           stats.lent_chunks > 0 ? "yes" : "no");

    /* When nothing helps, the message says who holds what. */
    uint64_t none = 0;
    gvmm_status status = gvmm_pool_alloc(pool, 8 * MIB, compute, &none);
    if (status == GVMM_ERROR_OUT_OF_DEVICE_MEMORY) show_last_error("gvmm_pool_alloc", status);

    check(gvmm_pool_free(pool, lent), "gvmm_pool_free");
    check(gvmm_pool_destroy(pool), "gvmm_pool_destroy");
    check(gvmm_stream_destroy(compute), "gvmm_stream_destroy");
    check(gvmm_stream_destroy(copy), "gvmm_stream_destroy");
    check(gvmm_device_close(device), "gvmm_device_close");
    return 0;
}
