/* A graph that somebody has captured, over static buffers that are slots with addresses of their own: memory of malloc, steps in
 * flight, graphs made again, and what does not fit. */
#include "common.h"

enum { SLOTS = 3, WORDS = 64, BYTES = 4 * WORDS, STEPS = 12 };

static gvmm_device *device;
static gvmm_stream *stream;
static uint32_t fixed[SLOTS][WORDS] __attribute__((aligned(256)));
static volatile int gate;

static void wait_for_gate(void *data) {
    (void)data;
    while (!__atomic_load_n(&gate, __ATOMIC_ACQUIRE)) {}
}

/* The graph: the result is the sum of both inputs. */
static void work(void *data) {
    (void)data;
    for (int i = 0; i < WORDS; i++) fixed[2][i] = fixed[0][i] + fixed[1][i];
}

static gvmm_graph *capture(void) {
    gvmm_graph *graph = NULL;
    OK(gvmm_stream_capture_begin(stream));
    OK(gvmm_stream_host_function(stream, work, NULL));
    OK(gvmm_stream_capture_end(stream, &graph));
    return graph;
}

static void fill_slots(gvmm_slot *slots) {
    for (int i = 0; i < SLOTS; i++)
        slots[i] = (gvmm_slot){.size_bytes = BYTES, .direction = i < 2 ? GVMM_DIRECTION_IN : GVMM_DIRECTION_OUT,
                               .flags = GVMM_SLOT_FOREIGN, .shadow_address = (uint64_t)(uintptr_t)fixed[i]};
}

static gvmm_status create(const gvmm_slot *slots, uint32_t mode, gvmm_binding **out) {
    const gvmm_plan_desc plan = {.struct_size = sizeof plan, .mode = mode};
    const gvmm_binding_desc desc = {.struct_size = sizeof desc, .plan = &plan};
    return gvmm_binding_create(device, &desc, slots, SLOTS, sizeof slots[0], out);
}

/* Memory that no driver knows. */
static uint32_t *words[STEPS][SLOTS];

static void give(gvmm_buffer *buffers, int step) {
    for (int i = 0; i < SLOTS; i++) {
        uint64_t address = (uint64_t)(uintptr_t)words[step][i];
        buffers[i] = (gvmm_buffer){.address = address, .size_bytes = BYTES, .allocation_id = address};
    }
}

static gvmm_status begin(gvmm_binding *b, const gvmm_buffer *buffers, uint64_t *generation, gvmm_step_report *report) {
    uint64_t addresses[SLOTS];
    gvmm_status status = gvmm_binding_begin(b, stream, buffers, SLOTS, sizeof buffers[0], *generation, report);
    if (status != GVMM_STATUS_RECORD_AGAIN) return status;
    OK(gvmm_binding_addresses(b, addresses, SLOTS, generation));
    for (int i = 0; i < SLOTS; i++) CHECK(addresses[i] == (uint64_t)(uintptr_t)fixed[i]);
    return gvmm_binding_begin(b, stream, buffers, SLOTS, sizeof buffers[0], *generation, report);
}

/* All steps are enqueued before the first one runs, and the graph is made anew between them. */
static void in_flight(uint32_t mode) {
    gvmm_slot slots[SLOTS];
    gvmm_binding *b = NULL;
    uint64_t generation = 0;
    gvmm_graph *graphs[STEPS];
    fill_slots(slots);
    OK(create(slots, mode, &b));
    for (int step = 0; step < STEPS; step++) graphs[step] = step % 3 == 0 ? capture() : graphs[step - 1];
    gate = 0;
    OK(gvmm_stream_host_function(stream, wait_for_gate, NULL));
    for (int step = 0; step < STEPS; step++) {
        gvmm_buffer buffers[SLOTS];
        gvmm_step_report begun = {.struct_size = sizeof begun}, ended = {.struct_size = sizeof ended};
        for (int i = 0; i < WORDS; i++) words[step][0][i] = 100 * step + i, words[step][1][i] = 7 * step, words[step][2][i] = 0;
        give(buffers, step);
        OK(begin(b, buffers, &generation, &begun));
        OK(gvmm_graph_launch(graphs[step], stream));
        OK(gvmm_binding_end(b, &ended));
        CHECK(begun.copy_launches == 1 && ended.copy_launches == 1 && begun.map_calls == 0 && begun.waited == 0);
        CHECK(begun.copied_slots == 2 && ended.copied_slots == 1 && begun.patched_commands == 0 && generation == 1);
    }
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    OK(gvmm_stream_synchronize(stream));
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < WORDS; i++) CHECK(words[step][2][i] == (uint32_t)(107 * step + i));
    OK(gvmm_binding_destroy(b));
    for (int step = 0; step < STEPS; step += 3) OK(gvmm_graph_destroy(graphs[step]));
}

/* What is between begin and end is the caller's: nothing of it is taken for a step. */
static void steps_that_are_none(void) {
    gvmm_slot slots[SLOTS];
    gvmm_binding *b = NULL;
    gvmm_buffer buffers[SLOTS];
    uint64_t generation = 0;
    gvmm_graph *graph = capture();
    fill_slots(slots);
    OK(create(slots, GVMM_PLAN_DEFAULT, &b));
    for (int i = 0; i < WORDS; i++) words[0][0][i] = 1, words[0][1][i] = 2, words[0][2][i] = 9;
    give(buffers, 0);
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_end(b, NULL));
    OK(gvmm_graph_launch(graph, stream)); /* without begin: the graph's own buffers, and nobody else's */
    OK(gvmm_stream_synchronize(stream));
    CHECK(words[0][2][0] == 9);
    OK(begin(b, buffers, &generation, NULL));
    EXPECT(GVMM_ERROR_WRONG_STATE, begin(b, buffers, &generation, NULL));
    OK(gvmm_binding_abort(b)); /* the launch failed: the results are not copied */
    OK(gvmm_stream_synchronize(stream));
    CHECK(fixed[0][0] == 1 && words[0][2][0] == 9);
    OK(gvmm_graph_destroy(graph));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_graph_launch(graph, stream));
    graph = capture();
    OK(begin(b, buffers, &generation, NULL));
    OK(gvmm_graph_launch(graph, stream));
    OK(gvmm_binding_end(b, NULL));
    OK(gvmm_stream_synchronize(stream));
    CHECK(words[0][2][0] == 3 && generation == 1);
    /* A static buffer that is the step's own needs no copy. */
    gvmm_step_report report = {.struct_size = sizeof report};
    buffers[0] = (gvmm_buffer){.address = slots[0].shadow_address, .size_bytes = BYTES, .allocation_id = 77};
    OK(begin(b, buffers, &generation, &report));
    CHECK(report.copied_slots == 1);
    OK(gvmm_binding_end(b, NULL));
    OK(gvmm_graph_destroy(graph));
    OK(gvmm_binding_destroy(b));
}

static void refused(void) {
    gvmm_slot slots[SLOTS];
    gvmm_binding *b = NULL;
    gvmm_buffer good[SLOTS], buffers[SLOTS];
    uint64_t generation = 0;
    fill_slots(slots);
    slots[1].size_bytes = 0;
    EXPECT(GVMM_ERROR_INVALID_SIZE, create(slots, GVMM_PLAN_DEFAULT, &b));
    CHECK(last_detail().entry == 1);
    fill_slots(slots);
    slots[2].shadow_address = slots[1].shadow_address + BYTES - 4;
    EXPECT(GVMM_ERROR_OVERLAP, create(slots, GVMM_PLAN_DEFAULT, &b));
    slots[2].shadow_address = UINT64_MAX - 8;
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, create(slots, GVMM_PLAN_DEFAULT, &b));
    fill_slots(slots);
    slots[0].alignment_bytes = 4096;
    slots[0].shadow_address += 256;
    EXPECT(GVMM_ERROR_MISALIGNED, create(slots, GVMM_PLAN_DEFAULT, &b));
    CHECK(b == NULL);
    fill_slots(slots);
    OK(create(slots, GVMM_PLAN_AUTO, &b));
    give(good, 0);
    OK(begin(b, good, &generation, NULL));
    OK(gvmm_binding_end(b, NULL));
#define BAD(status, change)                                                                        \
    memcpy(buffers, good, sizeof good);                                                            \
    change;                                                                                        \
    EXPECT(status, begin(b, buffers, &generation, NULL))
    BAD(GVMM_ERROR_INVALID_ARGUMENT, buffers[1].address = 0);
    CHECK(last_detail().entry == 1);
    BAD(GVMM_ERROR_INVALID_SIZE, buffers[2].size_bytes = BYTES - 1);
    BAD(GVMM_ERROR_OUT_OF_RANGE, buffers[0].address = UINT64_MAX - 8);
    BAD(GVMM_ERROR_OVERLAP, buffers[2].address = slots[2].shadow_address + 4); /* over where it comes from */
    BAD(GVMM_ERROR_ALIASED, buffers[2].allocation_id = buffers[0].allocation_id);
    /* Two inputs may be one. */
    memcpy(buffers, good, sizeof good);
    buffers[1] = buffers[0];
    OK(begin(b, buffers, &generation, NULL));
    OK(gvmm_binding_end(b, NULL));
    OK(begin(b, good, &generation, NULL));
    OK(gvmm_binding_end(b, NULL));
    CHECK(generation == 1);
    OK(gvmm_binding_destroy(b));
}

int main(void) {
    device = open_host();
    stream = make_stream(device);
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < SLOTS; i++) CHECK((words[step][i] = malloc(BYTES)) != NULL);
    in_flight(GVMM_PLAN_THRESHOLD);
    in_flight(GVMM_PLAN_AUTO);
    steps_that_are_none();
    refused();
    OK(gvmm_stream_synchronize(stream));
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_device_close(device));
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < SLOTS; i++) free(words[step][i]);
    return 0;
}
