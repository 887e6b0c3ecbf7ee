/* A first program: one address that stays while the memory behind it changes.
 *
 * It runs on the host driver, where a device address can be read and written like any pointer. From
 * the top folder:
 *
 *   cargo build --release
 *   ln -sf libgvmm.so target/release/libgvmm.so.0
 *   cc -std=c11 -Wall -Wextra -Iinclude c_examples/first.c -Ltarget/release -lgvmm \
 *      -Wl,-rpath,$PWD/target/release -o target/first
 *   target/first
 */
#include <gvmm.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(gvmm_status status, const char *call) {
    char message[512] = "";
    size_t needed_bytes = 0;
    if (status == GVMM_STATUS_SUCCESS) return;
    gvmm_last_error_message(message, sizeof message, &needed_bytes);
    fprintf(stderr, "%s: %s: %s\n", call, gvmm_status_name(status), message);
    exit(1);
}

/* Puts `block` behind the address, in place of what was there; NULL only takes that away. No stream
 * is named to wait for: nothing is running. */
static void put(gvmm_device *device, gvmm_reservation *reservation, gvmm_block *block) {
    gvmm_remap_entry entry = {.reservation = reservation, .offset_bytes = 0, .block = block};
    gvmm_remap_report report = {.struct_size = sizeof report};
    check(gvmm_remap(device, &entry, 1, sizeof entry, NULL, 0, &report), "gvmm_remap");
    printf("remapped: %" PRIu64 " unmap, %" PRIu64 " map, %" PRIu64 " set access\n",
           report.unmap_calls, report.map_calls, report.set_access_calls);
}

int main(void) {
    gvmm_device *device = NULL;
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST};
    check(gvmm_device_open(&desc, &device), "gvmm_device_open");
    gvmm_device_info info = {.struct_size = sizeof info};
    check(gvmm_device_query(device, &info), "gvmm_device_query");

    /* An address, and two blocks of memory. Sizes are multiples of the granule. */
    uint64_t size_bytes = info.granularity_bytes, address = 0;
    gvmm_reservation *reservation = NULL;
    gvmm_block *red = NULL, *blue = NULL;
    check(gvmm_reserve(device, size_bytes, NULL, &reservation, &address), "gvmm_reserve");
    check(gvmm_block_create(device, size_bytes, 0, &red), "gvmm_block_create");
    check(gvmm_block_create(device, size_bytes, 0, &blue), "gvmm_block_create");

    char *data = (char *)(uintptr_t)address;
    put(device, reservation, red);
    strcpy(data, "red");
    put(device, reservation, blue);
    strcpy(data, "blue");
    printf("the address shows %s\n", data);
    put(device, reservation, red);
    printf("the same address shows %s\n", data);

    /* Children first: a block that is mapped, or a range with a mapping, cannot be destroyed. */
    put(device, reservation, NULL);
    check(gvmm_block_destroy(red), "gvmm_block_destroy");
    check(gvmm_block_destroy(blue), "gvmm_block_destroy");
    check(gvmm_reservation_destroy(reservation), "gvmm_reservation_destroy");
    check(gvmm_device_close(device), "gvmm_device_close");
    return 0;
}
