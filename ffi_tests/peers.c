/* Peers: query, enable, both directions apart, before and after the memory exists, and copies between two devices.
   GVMM_TEST_PEERS=cuda runs it on two GPUs (or on a fake); without a second device it says so and ends well. */
#include "common.h"
#include <dlfcn.h>

#define MIB (1ull << 20)

static gvmm_device *device[2];
static gvmm_stream *stream[2];

/* Bytes of a device's memory, which the host cannot touch on a GPU. */
static int (*copy_in)(uint64_t, const void *, size_t), (*copy_out)(void *, uint64_t, size_t);
static int (*push)(void *), (*pop)(void **);
static void *context[2];

static void open_cuda(void) {
    const char *path = getenv("GVMM_CUDA_LIBRARY");
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
    int (*retain)(void **, int);
    CHECK(library != NULL);
    *(void **)&copy_in = dlsym(library, "cuMemcpyHtoD_v2"), *(void **)&copy_out = dlsym(library, "cuMemcpyDtoH_v2");
    *(void **)&push = dlsym(library, "cuCtxPushCurrent_v2"), *(void **)&pop = dlsym(library, "cuCtxPopCurrent_v2");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    CHECK(copy_in != NULL && copy_out != NULL && push != NULL && pop != NULL && retain != NULL);
    for (int i = 0; i < 2; i++) CHECK(retain(&context[i], i) == 0);
}

static void put(int i, uint64_t address, uint32_t word) {
    if (copy_in == NULL) {
        *at(address) = word;
        return;
    }
    void *was = NULL;
    CHECK(push(context[i]) == 0 && copy_in(address, &word, sizeof word) == 0 && pop(&was) == 0);
}

static uint32_t get(int i, uint64_t address) {
    uint32_t word = 0;
    void *was = NULL;
    if (copy_out == NULL) return *at(address);
    CHECK(push(context[i]) == 0 && copy_out(&word, address, sizeof word) == 0 && pop(&was) == 0);
    return word;
}

/* Device `i` copies a word from `from` to `to`; with the wrong access it stops, on the host driver only. */
static void copy(int i, uint64_t to, uint64_t from) {
    gvmm_copy_slice slice = {to, from, 4};
    OK(gvmm_shadow_copy(device[i], stream[i], &slice, 1, sizeof slice, NULL));
    OK(gvmm_stream_synchronize(stream[i]));
}

static void refused(int i, uint64_t to, uint64_t from) {
    if (copy_in != NULL) return; /* a fault would end the context */
    gvmm_stream *own = make_stream(device[i]);
    gvmm_copy_slice slice = {to, from, 4};
    OK(gvmm_shadow_copy(device[i], own, &slice, 1, sizeof slice, NULL));
    EXPECT(GVMM_ERROR_DEVICE_FAULT, gvmm_stream_synchronize(own));
    OK(gvmm_stream_destroy(own));
}

typedef struct {
    memory allocation;
    gvmm_segment *segment;
    gvmm_pool *pool;
    uint64_t in_segment, in_pool;
} things;

static things make(int i) {
    things t = {.allocation = allocate(device[i], GRANULE)};
    gvmm_segment_desc desc = {.struct_size = sizeof desc, .size_bytes = 8 * GRANULE, .chunk_bytes = GRANULE};
    gvmm_pool_desc limits = {.struct_size = sizeof limits, .limit_bytes = 32 * MIB, .segment_bytes = 64 * MIB};
    OK(gvmm_segment_create(device[i], &desc, &t.segment, &t.in_segment));
    OK(gvmm_segment_map(t.segment, t.in_segment, 1, NULL, NULL));
    OK(gvmm_pool_create(device[i], &limits, &t.pool));
    OK(gvmm_pool_alloc(t.pool, 4096, stream[i], &t.in_pool));
    put(i, t.allocation.address, 1), put(i, t.in_segment, 2), put(i, t.in_pool, 3);
    return t;
}

static void end(int i, things t) {
    uint64_t gone = 0;
    OK(gvmm_segment_unmap(t.segment, t.in_segment, 8 * GRANULE, NULL, 0, &gone));
    OK(gvmm_segment_destroy(t.segment));
    OK(gvmm_pool_free(t.pool, t.in_pool));
    OK(gvmm_pool_destroy(t.pool));
    OK(gvmm_allocation_destroy(t.allocation.allocation));
    OK(gvmm_device_drain(device[i]));
}

/* The owner's things, read by the other device into memory of its own. */
static void read_all(int owner, things t, uint64_t scratch) {
    uint64_t from[3] = {t.allocation.address, t.in_segment, t.in_pool};
    for (uint32_t n = 0; n < 3; n++) {
        copy(!owner, scratch, from[n]);
        CHECK(get(!owner, scratch) == n + 1);
    }
}

static void refuse_all(int owner, things t, uint64_t scratch) {
    refused(!owner, scratch, t.allocation.address);
    refused(!owner, scratch, t.in_segment);
    refused(!owner, scratch, t.in_pool);
}

static void enable(void) {
    things here = make(0), there = make(1);
    memory scratch[2] = {allocate(device[0], GRANULE), allocate(device[1], GRANULE)};
    refuse_all(0, here, scratch[1].address);
    OK(gvmm_device_peer_enable(device[0], 1, GVMM_ACCESS_READ_WRITE));
    read_all(0, here, scratch[1].address);
    refuse_all(1, there, scratch[0].address); /* the other direction is a thing of its own */
    things later = make(0);
    read_all(0, later, scratch[1].address);
    put(1, scratch[1].address, 99); /* and the peer writes */
    copy(1, later.in_pool, scratch[1].address);
    CHECK(get(0, later.in_pool) == 99);
    OK(gvmm_segment_map(later.segment, later.in_segment + GRANULE, 1, NULL, NULL));
    copy(1, later.in_segment + GRANULE, scratch[1].address);
    OK(gvmm_device_peer_enable(device[1], 0, GVMM_ACCESS_READ));
    read_all(1, there, scratch[0].address);
    refused(0, there.in_pool, scratch[0].address);
    /* a list of its own, and no peer any more */
    OK(gvmm_pool_set_access(here.pool, NULL, 0, 0));
    refused(1, scratch[1].address, here.in_pool);
    gvmm_access both[2] = {{0, GVMM_ACCESS_READ_WRITE}, {1, GVMM_ACCESS_READ}};
    OK(gvmm_segment_set_access(here.segment, both, 2, sizeof both[0]));
    OK(gvmm_allocation_set_access(here.allocation.allocation, both, 2, sizeof both[0]));
    OK(gvmm_device_peer_enable(device[0], 1, GVMM_ACCESS_NONE));
    refuse_all(0, later, scratch[1].address);
    copy(1, scratch[1].address, here.in_segment);
    copy(1, scratch[1].address, here.allocation.address);
    CHECK(get(1, scratch[1].address) == 1);
    OK(gvmm_device_peer_enable(device[1], 0, GVMM_ACCESS_NONE));
    end(0, here), end(1, there), end(0, later);
    OK(gvmm_allocation_destroy(scratch[0].allocation));
    OK(gvmm_allocation_destroy(scratch[1].allocation));
}

/* Where a driver call fails, nobody's access has changed. */
static void failures(void) {
    things here = make(0), more = make(0);
    memory scratch = allocate(device[1], GRANULE);
    for (uint64_t nth = 1; nth <= 4; nth++) {
        OK(gvmm_device_fail_calls(device[0], GVMM_CALL_SET_ACCESS, nth, 1, GVMM_ERROR_DRIVER_ERROR));
        EXPECT(GVMM_ERROR_DRIVER_ERROR, gvmm_device_peer_enable(device[0], 1, GVMM_ACCESS_READ));
        OK(gvmm_device_fail_calls(device[0], GVMM_CALL_ANY, 0, 0, 0));
        refuse_all(0, here, scratch.address);
        refuse_all(0, more, scratch.address);
    }
    OK(gvmm_device_peer_enable(device[0], 1, GVMM_ACCESS_READ));
    read_all(0, here, scratch.address);
    read_all(0, more, scratch.address);
    OK(gvmm_device_peer_enable(device[0], 1, GVMM_ACCESS_NONE));
    end(0, here), end(0, more);
    OK(gvmm_allocation_destroy(scratch.allocation));
}

static void bad_input(void) {
    uint32_t reaches = 7;
    EXPECT(GVMM_ERROR_NO_DEVICE, gvmm_device_peer_query(device[0], 9, &reaches));
    CHECK(reaches == 7);
    OK(gvmm_device_peer_query(device[0], 0, &reaches));
    CHECK(reaches == 1);
    EXPECT(GVMM_ERROR_NO_DEVICE, gvmm_device_peer_enable(device[0], 9, GVMM_ACCESS_READ));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_device_peer_enable(device[0], 1, 2));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_device_peer_enable(device[0], 0, GVMM_ACCESS_READ));
    memory m = allocate(device[0], GRANULE);
    gvmm_access access = {9, GVMM_ACCESS_READ};
    EXPECT(GVMM_ERROR_NO_DEVICE, gvmm_allocation_set_access(m.allocation, &access, 1, sizeof access));
    access = (gvmm_access){1, 2};
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_allocation_set_access(m.allocation, &access, 1, sizeof access));
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_allocation_set_access(m.allocation, &access, 1, 3));
    OK(gvmm_allocation_destroy(m.allocation));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_allocation_set_access(m.allocation, NULL, 0, 0));
}

/* A peer that cannot be reached: a status and a hint, and nothing has changed. */
static void out_of_reach(void) {
    things here = make(0);
    gvmm_access both[2] = {{0, GVMM_ACCESS_READ_WRITE}, {1, GVMM_ACCESS_READ_WRITE}};
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_device_peer_enable(device[0], 1, GVMM_ACCESS_READ));
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_pool_set_access(here.pool, both, 2, sizeof both[0]));
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_segment_set_access(here.segment, both, 2, sizeof both[0]));
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_allocation_set_access(here.allocation.allocation, both, 2, sizeof both[0]));
    char message[512] = "";
    size_t needed = 0;
    OK(gvmm_last_error_message(message, sizeof message, &needed));
    CHECK(strstr(message, "cannot reach") != NULL);
    uint64_t more = 0;
    OK(gvmm_pool_alloc(here.pool, 8 * MIB, stream[0], &more)); /* a segment of its own still has the old access */
    OK(gvmm_pool_free(here.pool, more));
    end(0, here);
    printf("the devices cannot reach each other: refused\n");
}

int main(void) {
    const char *driver = getenv("GVMM_TEST_PEERS");
    int cuda = driver != NULL && strcmp(driver, "cuda") == 0;
    setenv("GVMM_HOST_MEMORY", "256M", 1);
    setenv("GVMM_HOST_DEVICES", "2", 1);
    uint32_t count = 0, reaches = 0;
    uint32_t kind = cuda ? GVMM_DRIVER_CUDA : GVMM_DRIVER_HOST;
    OK(gvmm_device_count(kind, &count));
    if (count < 2) {
        printf("skipped: one device only\n");
        return 0;
    }
    for (uint32_t i = 0; i < 2; i++) {
        gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = kind, .ordinal = i};
        OK(gvmm_device_open(&desc, &device[i]));
        stream[i] = make_stream(device[i]);
    }
    if (cuda) open_cuda();
    bad_input();
    OK(gvmm_device_peer_query(device[0], 1, &reaches));
    if (reaches) enable(), failures();
    else out_of_reach();
    for (int i = 0; i < 2; i++) {
        OK(gvmm_stream_destroy(stream[i]));
        OK(gvmm_device_close(device[i]));
    }
    printf("peers: %s\n", reaches ? "both directions right" : "apart");
    return 0;
}
