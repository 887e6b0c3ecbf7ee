/* What the test programs share: checks that say where they failed, and the usual objects. */
#ifndef COMMON_H
#define COMMON_H

#include <gvmm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRANULE (2ull << 20)
#define SIZEOF_MEMBER(type, member) sizeof(((type *)0)->member)

static inline void fail(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    exit(1);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) fail(__FILE__, __LINE__, #condition);                                    \
    } while (0)

static inline gvmm_status expect(const char *file, int line, gvmm_status wanted, gvmm_status got,
                                 const char *call) {
    if (got == wanted) return got;
    char message[512] = "";
    size_t needed = 0;
    gvmm_last_error_message(message, sizeof message, &needed);
    fprintf(stderr, "%s:%d: %s\n  expected %s, seen %s (%s)\n", file, line, call, gvmm_status_name(wanted),
            gvmm_status_name(got), got < 100 ? "" : message);
    exit(1);
}

/* The call must answer exactly this status. */
#define EXPECT(wanted, call) expect(__FILE__, __LINE__, (wanted), (call), #call)
#define OK(call) EXPECT(GVMM_STATUS_SUCCESS, call)

static inline int mode_is(const char *mode) {
    const char *is = getenv("GVMM_TEST_MODE");
    return is != NULL && strcmp(is, mode) == 0;
}

static inline int under_valgrind(void) { return mode_is("Valgrind"); }

static inline gvmm_device *open_host(void) {
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST, .ordinal = 0};
    gvmm_device *device = NULL;
    OK(gvmm_device_open(&desc, &device));
    return device;
}

static inline gvmm_block *make_block(gvmm_device *device, uint64_t size) {
    gvmm_block *block = NULL;
    OK(gvmm_block_create(device, size, 0, &block));
    return block;
}

static inline gvmm_stream *make_stream(gvmm_device *device) {
    gvmm_stream *stream = NULL;
    OK(gvmm_stream_create(device, &stream));
    return stream;
}

static inline gvmm_reservation *reserve(gvmm_device *device, uint64_t size, uint64_t *address) {
    gvmm_reservation *reservation = NULL;
    OK(gvmm_reserve(device, size, NULL, &reservation, address));
    return reservation;
}

static inline gvmm_error_detail last_detail(void) {
    gvmm_error_detail detail = {.struct_size = sizeof detail};
    OK(gvmm_last_error_detail(&detail));
    return detail;
}

/* Memory of a buffer: an allocation and its block. */
typedef struct {
    gvmm_allocation *allocation;
    gvmm_block *block;
    uint64_t address;
    uint64_t size;
} memory;

static inline memory allocate(gvmm_device *device, uint64_t size) {
    memory m = {0};
    OK(gvmm_allocation_create(device, size, &m.allocation, &m.address));
    gvmm_allocation_info info = {.struct_size = sizeof info};
    OK(gvmm_allocation_query(m.allocation, &info));
    CHECK(info.address == m.address && info.size_bytes >= size);
    m.block = info.block;
    m.size = info.size_bytes;
    return m;
}

static inline gvmm_buffer buffer_of(memory m, uint64_t size) {
    gvmm_buffer buffer = {.address = m.address, .size_bytes = size, .block = m.block};
    return buffer;
}

/* The host can touch the host driver's addresses. */
static inline uint32_t *at(uint64_t address) { return (uint32_t *)(uintptr_t)address; }

#endif
