/* A graph that somebody has captured already, over static buffers: in each step its inputs come from
 * other buffers and its results go to others. Each static buffer is a slot with an address of its
 * own, so all inputs are copied in by one launch and all results out by another, whatever memory
 * they lie in and whoever allocated it: nothing is mapped. Runs on the host driver; on a GPU the
 * same calls take a CUDA or HIP stream (torch_graph.py does so with PyTorch). From the top folder:
 *
 *   cargo build --release
 *   ln -sf libgvmm.so target/release/libgvmm.so.0
 *   cc -std=c11 -Wall -Wextra -Iinclude c_examples/captured_graph.c -Ltarget/release -lgvmm \
 *      -Wl,-rpath,$PWD/target/release -o target/captured_graph
 *   target/captured_graph
 */
#include <gvmm.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { INPUTS = 64, RESULTS = 32, SLOTS = INPUTS + RESULTS, WORDS = 100, STEPS = 10 };

static void check(gvmm_status status, const char *call) {
    char message[512] = "";
    size_t needed_bytes = 0;
    if (status == GVMM_STATUS_SUCCESS) return;
    gvmm_last_error_message(message, sizeof message, &needed_bytes);
    fprintf(stderr, "%s: %s: %s\n", call, gvmm_status_name(status), message);
    exit(1);
}

/* The graph's work: each result is the sum of two inputs. The static buffers are all that it knows. */
static uint64_t fixed[SLOTS];

static uint32_t *words(uint64_t address) { return (uint32_t *)(uintptr_t)address; }

static void work(void *user_data) {
    (void)user_data;
    for (int r = 0; r < RESULTS; r++)
        for (int i = 0; i < WORDS; i++)
            words(fixed[INPUTS + r])[i] = words(fixed[2 * r])[i] + words(fixed[2 * r + 1])[i];
}

/* Memory for all slots, apart from each other. */
static void memory(gvmm_device *device, gvmm_allocation **out_allocation, uint64_t *out_addresses) {
    uint64_t stride_bytes = 512, address = 0;
    check(gvmm_allocation_create(device, SLOTS * stride_bytes, out_allocation, &address), "gvmm_allocation_create");
    for (int i = 0; i < SLOTS; i++) out_addresses[i] = address + i * stride_bytes;
}

int main(void) {
    gvmm_device *device = NULL;
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST};
    check(gvmm_device_open(&desc, &device), "gvmm_device_open");
    gvmm_stream *stream = NULL;
    check(gvmm_stream_create(device, &stream), "gvmm_stream_create");

    /* What the framework has done: static buffers and a captured graph. */
    gvmm_allocation *allocations[3];
    uint64_t buffers[2][SLOTS];
    memory(device, &allocations[2], fixed);
    gvmm_graph *graph = NULL;
    check(gvmm_stream_capture_begin(stream), "gvmm_stream_capture_begin");
    check(gvmm_stream_host_function(stream, work, NULL), "gvmm_stream_host_function");
    check(gvmm_stream_capture_end(stream, &graph), "gvmm_stream_capture_end");

    /* The slots: each is copied to or from its static buffer. */
    gvmm_slot slots[SLOTS];
    for (int i = 0; i < SLOTS; i++)
        slots[i] = (gvmm_slot){.size_bytes = 4 * WORDS,
                               .direction = i < INPUTS ? GVMM_DIRECTION_IN : GVMM_DIRECTION_OUT,
                               .flags = GVMM_SLOT_FOREIGN,
                               .shadow_address = fixed[i]};
    gvmm_binding *binding = NULL;
    check(gvmm_binding_create(device, NULL, slots, SLOTS, sizeof slots[0], &binding), "gvmm_binding_create");
    for (int i = 0; i < 2; i++) memory(device, &allocations[i], buffers[i]);

    uint64_t generation = 0, launches = 0, addresses[SLOTS];
    int wrong = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        gvmm_buffer bound[SLOTS];
        for (int i = 0; i < SLOTS; i++)
            bound[i] = (gvmm_buffer){.address = buffers[step % 2][i], .size_bytes = 4 * WORDS, .allocation_id = 1 + step % 2 * SLOTS + i};
        for (int i = 0; i < INPUTS; i++)
            for (int w = 0; w < WORDS; w++) words(bound[i].address)[w] = step * 1000 + i + w;
        gvmm_step_report begun = {.struct_size = sizeof begun}, ended = {.struct_size = sizeof ended};
        gvmm_status status;
        /* Once: the addresses are those that the graph has, so nothing is recorded again. */
        while ((status = gvmm_binding_begin(binding, stream, bound, SLOTS, sizeof bound[0], generation, &begun)) ==
               GVMM_STATUS_RECORD_AGAIN) {
            check(gvmm_binding_addresses(binding, addresses, SLOTS, &generation), "gvmm_binding_addresses");
            for (int i = 0; i < SLOTS; i++) wrong += addresses[i] != fixed[i];
        }
        check(status, "gvmm_binding_begin");
        check(gvmm_graph_launch(graph, stream), "gvmm_graph_launch");
        check(gvmm_binding_end(binding, &ended), "gvmm_binding_end");
        check(gvmm_stream_synchronize(stream), "gvmm_stream_synchronize");
        for (int r = 0; r < RESULTS; r++)
            for (uint32_t w = 0; w < WORDS; w++)
                wrong += words(bound[INPUTS + r].address)[w] != 2 * (step * 1000 + w) + 4u * (uint32_t)r + 1;
        launches += begun.copy_launches + ended.copy_launches;
    }
    printf("%d inputs and %d results a step: %" PRIu64 " copy launches in %d steps, %d words were wrong\n", INPUTS,
           RESULTS, launches, STEPS, wrong);

    check(gvmm_binding_destroy(binding), "gvmm_binding_destroy");
    check(gvmm_graph_destroy(graph), "gvmm_graph_destroy");
    for (int i = 0; i < 3; i++) check(gvmm_allocation_destroy(allocations[i]), "gvmm_allocation_destroy");
    check(gvmm_stream_destroy(stream), "gvmm_stream_destroy");
    check(gvmm_device_close(device), "gvmm_device_close");
    return wrong != 0;
}
