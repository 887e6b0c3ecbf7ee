/* An executor on an NVIDIA GPU: a CUDA graph is captured once and launched in each step, while the
 * buffers that it works on are other ones from step to step. The copies of the small ones are
 * recorded in the graph too, where the driver can, so that a step launches the graph and nothing
 * else. No CUDA header is needed: the few functions of libcuda.so.1 are looked up here. From the
 * top folder:
 *
 *   cargo build --release
 *   ln -sf libgvmm.so target/release/libgvmm.so.0
 *   cc -std=c11 -Wall -Wextra -Iinclude c_examples/cuda_graph.c -Ltarget/release -lgvmm -ldl \
 *      -Wl,-rpath,$PWD/target/release -o target/cuda_graph
 *   target/cuda_graph
 *
 * GVMM_CUDA_LIBRARY may name another library, here as in gvmm. Without one the program says so and
 * ends with 77.
 */
#include <gvmm.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_BYTES = 1000, STEPS = 8 };

/* The functions of the driver that this program uses, by the names that cuda.h maps them to. */
static struct {
    int (*init)(unsigned flags);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_synchronize)(void *stream);
    int (*copy_async)(uint64_t dst, uint64_t src, size_t bytes, void *stream);
    int (*copy_in)(uint64_t dst, const void *src, size_t bytes);
    int (*copy_out)(void *dst, uint64_t src, size_t bytes);
    int (*capture_begin)(void *stream, int mode);
    int (*capture_end)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*launch)(void *exec, void *stream);
    int (*exec_destroy)(void *exec);
    int (*graph_destroy)(void *graph);
    int (*stream_destroy)(void *stream);
} cu;

static void driver(int status, const char *call) {
    if (status == 0) return;
    fprintf(stderr, "%s: CUDA error %d\n", call, status);
    exit(1);
}
#define CU(call) driver(cu.call, #call)

static void check(gvmm_status status, const char *call) {
    char message[512] = "";
    size_t needed_bytes = 0;
    if (status == GVMM_STATUS_SUCCESS) return;
    gvmm_last_error_message(message, sizeof message, &needed_bytes);
    fprintf(stderr, "%s: %s: %s\n", call, gvmm_status_name(status), message);
    exit(1);
}

static void find(void *library, void *function, const char *symbol) {
    *(void **)function = dlsym(library, symbol);
    if (*(void **)function) return;
    fprintf(stderr, "the driver lacks %s\n", symbol);
    exit(1);
}

/* Finds the driver, makes a stream of our own and the primary context current; 0 where there is none. */
static int open_driver(void **stream) {
    const char *path = getenv("GVMM_CUDA_LIBRARY");
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW), *context = NULL;
    if (!library) return 0;
    find(library, &cu.init, "cuInit");
    find(library, &cu.retain, "cuDevicePrimaryCtxRetain");
    find(library, &cu.push, "cuCtxPushCurrent_v2");
    find(library, &cu.stream_create, "cuStreamCreate");
    find(library, &cu.stream_synchronize, "cuStreamSynchronize");
    find(library, &cu.copy_async, "cuMemcpyAsync");
    find(library, &cu.copy_in, "cuMemcpyHtoD_v2");
    find(library, &cu.copy_out, "cuMemcpyDtoH_v2");
    find(library, &cu.capture_begin, "cuStreamBeginCapture_v2");
    find(library, &cu.capture_end, "cuStreamEndCapture");
    find(library, &cu.instantiate, "cuGraphInstantiateWithFlags");
    find(library, &cu.launch, "cuGraphLaunch");
    find(library, &cu.exec_destroy, "cuGraphExecDestroy");
    find(library, &cu.graph_destroy, "cuGraphDestroy");
    find(library, &cu.stream_destroy, "cuStreamDestroy_v2");
    if (cu.init(0) != 0) return 0;
    CU(retain(&context, 0));
    CU(push(context));
    CU(stream_create(stream, 1)); /* non-blocking */
    return 1;
}

/* A buffer of the caller's, and what a step says of it. */
static gvmm_buffer buffer(gvmm_device *device, uint64_t size_bytes, gvmm_allocation **out_allocation) {
    uint64_t address = 0;
    gvmm_allocation_info info = {.struct_size = sizeof info};
    gvmm_block_info block = {.struct_size = sizeof block};
    check(gvmm_allocation_create(device, size_bytes, out_allocation, &address), "gvmm_allocation_create");
    check(gvmm_allocation_query(*out_allocation, &info), "gvmm_allocation_query");
    check(gvmm_block_query(info.block, &block), "gvmm_block_query");
    return (gvmm_buffer){address, info.size_bytes, block.allocation_id, info.block};
}

/* A captured step. The graph stays with what was made of it: its nodes name the recorded copies. */
typedef struct {
    void *graph, *exec;
} recording;

static void forget(recording *old) {
    if (old->exec) CU(exec_destroy(old->exec));
    if (old->graph) CU(graph_destroy(old->graph));
    *old = (recording){NULL, NULL};
}

/* Captures the step: the small result is the first bytes of the large input. */
static recording record(gvmm_binding *binding, void *stream, int copies, uint64_t *out_generation) {
    uint64_t addresses[2];
    recording made = {NULL, NULL};
    check(gvmm_binding_addresses(binding, addresses, 2, out_generation), "gvmm_binding_addresses");
    CU(capture_begin(stream, 2)); /* relaxed */
    if (copies)
        check(gvmm_binding_record_copies(binding, stream, *out_generation, GVMM_COPIES_IN),
              "gvmm_binding_record_copies");
    CU(copy_async(addresses[1], addresses[0], SMALL_BYTES, stream));
    if (copies)
        check(gvmm_binding_record_copies(binding, stream, *out_generation, GVMM_COPIES_OUT),
              "gvmm_binding_record_copies");
    CU(capture_end(stream, &made.graph));
    CU(instantiate(&made.exec, made.graph, 0));
    if (copies) check(gvmm_binding_use_graph(binding, made.exec), "gvmm_binding_use_graph");
    return made;
}

int main(void) {
    void *stream = NULL;
    recording recorded = {NULL, NULL};
    if (!open_driver(&stream)) {
        printf("skipped: no CUDA driver\n");
        return 77;
    }
    gvmm_device *device = NULL;
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_CUDA};
    check(gvmm_device_open(&desc, &device), "gvmm_device_open");
    gvmm_device_info info = {.struct_size = sizeof info};
    check(gvmm_device_query(device, &info), "gvmm_device_query");

    /* A large input that is remapped when it moves, and a small result that is copied. */
    uint64_t large_bytes = 2 * info.granularity_bytes, generation = 0;
    gvmm_slot slots[2] = {{.size_bytes = large_bytes, .direction = GVMM_DIRECTION_IN},
                          {.size_bytes = SMALL_BYTES, .direction = GVMM_DIRECTION_OUT}};
    gvmm_binding_desc options = {.struct_size = sizeof options, .threshold_bytes = 65536};
    gvmm_binding *binding = NULL;
    check(gvmm_binding_create(device, &options, slots, 2, sizeof slots[0], &binding), "gvmm_binding_create");
    gvmm_allocation *allocations[4];
    gvmm_buffer buffers[4];
    for (int i = 0; i < 4; i++)
        buffers[i] = buffer(device, i % 2 ? SMALL_BYTES : large_bytes, &allocations[i]);

    int records = 0, wrong = 0, copies = (info.capabilities & GVMM_CAPABILITY_ROUTES) != 0;
    for (int step = 0; step < STEPS; step++) {
        gvmm_buffer *used = &buffers[step % 2 * 2];
        char in[SMALL_BYTES], out[SMALL_BYTES] = "";
        memset(in, 'a' + step, sizeof in);
        CU(copy_in(used[0].address, in, sizeof in));
        CU(stream_synchronize(NULL)); /* such a copy may return before its last bytes are there */
        gvmm_step_report report = {.struct_size = sizeof report}, ended = {.struct_size = sizeof ended};
        gvmm_status status;
        while ((status = gvmm_binding_begin(binding, stream, used, 2, sizeof used[0], generation, &report)) ==
               GVMM_STATUS_RECORD_AGAIN) {
            forget(&recorded);
            recorded = record(binding, stream, copies, &generation);
            records++;
        }
        check(status, "gvmm_binding_begin");
        CU(launch(recorded.exec, stream));
        check(gvmm_binding_end(binding, &ended), "gvmm_binding_end");
        CU(stream_synchronize(stream));
        CU(copy_out(out, used[1].address, sizeof out));
        wrong += memcmp(in, out, sizeof out) != 0;
        printf("step %d: %" PRIu64 " map, %" PRIu64 " unmap, %" PRIu64 " set access, %" PRIu64 " copy launches\n",
               step, report.map_calls, report.unmap_calls, report.set_access_calls,
               report.copy_launches + ended.copy_launches);
    }
    printf("%s: recorded %d time, %d of %d steps were wrong\n", info.name, records, wrong, STEPS);

    check(gvmm_binding_destroy(binding), "gvmm_binding_destroy");
    for (int i = 0; i < 4; i++) check(gvmm_allocation_destroy(allocations[i]), "gvmm_allocation_destroy");
    check(gvmm_stream_forget(device, stream), "gvmm_stream_forget");
    check(gvmm_device_close(device), "gvmm_device_close");
    forget(&recorded);
    CU(stream_destroy(stream));
    return wrong != 0;
}
