/* Devices and queues of a framework: what the host driver says to them, and, given the path of a Level Zero loader, memory
   in a context that is not the library's. */
#include "common.h"
#include <dlfcn.h>

static void host(void) {
    gvmm_attach_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST};
    gvmm_device *none = NULL, *device = open_host();
    gvmm_stream *stream = NULL;
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_device_attach(&desc, &none));
    desc.reserved = 1;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_device_attach(&desc, &none));
    desc.reserved = 0, desc.driver = 77;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_device_attach(&desc, &none));
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_stream_wrap_queue(device, 1, GVMM_QUEUE_GROUP_UNKNOWN, &stream));
    CHECK(none == NULL && stream == NULL);
    OK(gvmm_device_close(device));
}

/* The framework's part: a context, its first device, and a queue of the group that computes. */
typedef struct {
    uint64_t context, device, queue;
} framework;

static uint32_t call(void *loader, const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint32_t (*function)(uint64_t, uint64_t, uint64_t, uint64_t);
    *(void **)&function = dlsym(loader, name);
    CHECK(function != NULL);
    return function(a, b, c, d);
}

static uint64_t to(void *pointer) { return (uint64_t)(uintptr_t)pointer; }

static framework start(void *loader) {
    framework f = {0};
    uint64_t driver = 0, context_desc[3] = {0xd, 0, 0};
    uint32_t count = 1, queue_desc[10] = {0xe, 0, 0, 0, 1, 0, 2, 2, 0, 0};
    CHECK(call(loader, "zeInit", 1, 0, 0, 0) == 0);
    CHECK(call(loader, "zeDriverGet", to(&count), to(&driver), 0, 0) == 0);
    CHECK(call(loader, "zeDeviceGet", driver, to(&count), to(&f.device), 0) == 0);
    CHECK(call(loader, "zeContextCreate", driver, to(context_desc), to(&f.context), 0) == 0);
    CHECK(call(loader, "zeCommandQueueCreate", f.context, f.device, to(queue_desc), to(&f.queue)) == 0);
    return f;
}

static void level_zero(const char *path) {
    void *loader = dlopen(path, RTLD_NOW);
    CHECK(loader != NULL);
    framework f = start(loader);
    gvmm_attach_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_LEVEL_ZERO};
    gvmm_device *device = NULL, *again = NULL;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_device_attach(&desc, &device)); /* no handles */
    desc.native_context = f.context, desc.native_device = f.device;
    OK(gvmm_device_attach(&desc, &device));
    OK(gvmm_device_attach(&desc, &again)); /* the same device */
    gvmm_block *block = make_block(device, GRANULE);
    gvmm_block_info info = {.struct_size = sizeof info};
    OK(gvmm_block_query(block, &info));
    OK(gvmm_block_destroy(block));

    gvmm_stream *stream = NULL;
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_stream_wrap_queue(device, 0, 0, &stream));
    OK(gvmm_stream_wrap_queue(device, f.queue, GVMM_QUEUE_GROUP_UNKNOWN, &stream));
    memory one = allocate(device, 4096), two = allocate(again, 4096);
    gvmm_copy_slice slice = {two.address, one.address, 4096};
    OK(gvmm_shadow_copy(device, stream, &slice, 1, sizeof slice, NULL));
    OK(gvmm_stream_synchronize(stream));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_device_close(device));
    OK(gvmm_allocation_destroy(one.allocation));
    OK(gvmm_allocation_destroy(two.allocation));
    OK(gvmm_stream_destroy(stream));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_stream_synchronize(stream));
    OK(gvmm_device_close(device));
    OK(gvmm_device_close(again));
    /* The framework's own are as they were. */
    CHECK(call(loader, "zeCommandQueueDestroy", f.queue, 0, 0, 0) == 0);
    CHECK(call(loader, "zeContextDestroy", f.context, 0, 0, 0) == 0);
}

int main(int count, char **arguments) {
    if (count > 1) {
        level_zero(arguments[1]);
    } else {
        host();
    }
    return 0;
}
