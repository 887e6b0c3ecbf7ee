/* Many small copies as one: brings scattered buffers together in one place and back again.
 *
 * A copy costs the same whether it moves 4 bytes or 64 KiB, so all slices of one call go to the
 * driver together. It runs on the host driver. From the top folder:
 *
 *   cargo build --release
 *   ln -sf libgvmm.so target/release/libgvmm.so.0
 *   cc -std=c11 -Wall -Wextra -Iinclude c_examples/shadow_copy.c -Ltarget/release -lgvmm \
 *      -Wl,-rpath,$PWD/target/release -o target/shadow_copy
 *   target/shadow_copy
 */
#include <gvmm.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define BUFFERS 200
#define SLICE_BYTES 4096

static void check(gvmm_status status, const char *call) {
    char message[512] = "";
    size_t needed_bytes = 0;
    if (status == GVMM_STATUS_SUCCESS) return;
    gvmm_last_error_message(message, sizeof message, &needed_bytes);
    fprintf(stderr, "%s: %s: %s\n", call, gvmm_status_name(status), message);
    exit(1);
}

static unsigned char *at(uint64_t address) {
    return (unsigned char *)(uintptr_t)address;
}

/* What a kernel would do, on the stream and in order with the copies: adds one to each buffer's
 * number. */
static void add_one(void *user_data) {
    const uint64_t *shadow = user_data;
    for (int i = 0; i < BUFFERS; i++) at(*shadow)[i * SLICE_BYTES] += 1;
}

int main(void) {
    gvmm_device *device = NULL;
    gvmm_stream *stream = NULL;
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST};
    check(gvmm_device_open(&desc, &device), "gvmm_device_open");
    check(gvmm_stream_create(device, &stream), "gvmm_stream_create");
    gvmm_device_info info = {.struct_size = sizeof info};
    check(gvmm_device_query(device, &info), "gvmm_device_query");

    /* Memory for all buffers, a page apart, and the shadow, where they shall lie close together. */
    uint64_t granule = info.granularity_bytes, wanted = 2 * BUFFERS * SLICE_BYTES;
    uint64_t size_bytes = (wanted + granule - 1) / granule * granule, buffers = 0, shadow = 0;
    gvmm_allocation *buffer_memory = NULL, *shadow_memory = NULL;
    check(gvmm_allocation_create(device, size_bytes, &buffer_memory, &buffers),
          "gvmm_allocation_create");
    check(gvmm_allocation_create(device, size_bytes, &shadow_memory, &shadow),
          "gvmm_allocation_create");

    gvmm_copy_slice in[BUFFERS], out[BUFFERS];
    for (uint64_t i = 0; i < BUFFERS; i++) {
        uint64_t buffer = buffers + 2 * i * SLICE_BYTES, slice = shadow + i * SLICE_BYTES;
        in[i] = (gvmm_copy_slice){.dst = slice, .src = buffer, .size_bytes = SLICE_BYTES};
        out[i] = (gvmm_copy_slice){.dst = buffer, .src = slice, .size_bytes = SLICE_BYTES};
        at(buffer)[0] = (unsigned char)i;
    }

    uint32_t launches_in = 0, launches_out = 0;
    check(gvmm_shadow_copy(device, stream, in, BUFFERS, sizeof *in, &launches_in),
          "gvmm_shadow_copy");
    check(gvmm_stream_host_function(stream, add_one, &shadow), "gvmm_stream_host_function");
    check(gvmm_shadow_copy(device, stream, out, BUFFERS, sizeof *out, &launches_out),
          "gvmm_shadow_copy");
    check(gvmm_stream_synchronize(stream), "gvmm_stream_synchronize");

    int wrong = 0;
    for (uint64_t i = 0; i < BUFFERS; i++) {
        wrong += at(buffers + 2 * i * SLICE_BYTES)[0] != (unsigned char)(i + 1);
    }
    printf("%d slices: %" PRIu32 " launch in, %" PRIu32 " out, %d wrong\n", BUFFERS, launches_in,
           launches_out, wrong);

    check(gvmm_allocation_destroy(buffer_memory), "gvmm_allocation_destroy");
    check(gvmm_allocation_destroy(shadow_memory), "gvmm_allocation_destroy");
    check(gvmm_stream_destroy(stream), "gvmm_stream_destroy");
    check(gvmm_device_close(device), "gvmm_device_close");
    return wrong == 0 ? 0 : 1;
}
