/* A step's copies inside the command buffer: many steps in flight, and every way to get it wrong. */
#include "common.h"

enum { STEPS = 80, BYTES = 3000 };

static gvmm_device *device;
static gvmm_stream *stream;
static memory ins[STEPS], outs[STEPS];
static volatile int gate;

static void wait_for_gate(void *data) {
    (void)data;
    while (!__atomic_load_n(&gate, __ATOMIC_ACQUIRE)) {}
}

/* The command buffer: the output is the input and one. */
typedef struct {
    uint64_t in, out;
} command;

static void add_one(void *data) {
    command *c = data;
    *at(c->out) = *at(c->in) + 1;
}

static gvmm_binding *bind(void) {
    gvmm_slot slots[2] = {{.size_bytes = BYTES, .direction = GVMM_DIRECTION_IN},
                          {.size_bytes = BYTES, .direction = GVMM_DIRECTION_OUT}};
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = 4096};
    gvmm_binding *binding = NULL;
    OK(gvmm_binding_create(device, &desc, slots, 2, sizeof slots[0], &binding));
    return binding;
}

static gvmm_status begin(gvmm_binding *b, int step, uint64_t generation, gvmm_step_report *report) {
    gvmm_buffer buffers[2] = {buffer_of(ins[step], BYTES), buffer_of(outs[step], BYTES)};
    return gvmm_binding_begin(b, stream, buffers, 2, sizeof buffers[0], generation, report);
}

static gvmm_graph *record(gvmm_binding *b, command *c, uint64_t *out_generation) {
    uint64_t addresses[2];
    gvmm_graph *graph = NULL;
    OK(gvmm_binding_addresses(b, addresses, 2, out_generation));
    *c = (command){addresses[0], addresses[1]};
    OK(gvmm_stream_capture_begin(stream));
    OK(gvmm_binding_record_copies(b, stream, *out_generation, GVMM_COPIES_IN));
    OK(gvmm_stream_host_function(stream, add_one, c));
    OK(gvmm_binding_record_copies(b, stream, *out_generation, GVMM_COPIES_OUT));
    OK(gvmm_stream_capture_end(stream, &graph));
    return graph;
}

static void in_flight(void) {
    gvmm_binding *b = bind();
    uint64_t generation = 0;
    command c;
    EXPECT(GVMM_STATUS_RECORD_AGAIN, begin(b, 0, 0, NULL));
    gvmm_graph *graph = record(b, &c, &generation);
    OK(gvmm_binding_use_graph(b, graph));
    OK(gvmm_stream_host_function(stream, wait_for_gate, NULL));
    for (int step = 0; step < STEPS; step++) {
        gvmm_step_report report = {.struct_size = sizeof report};
        *at(ins[step].address) = 100 + step;
        OK(begin(b, step, generation, &report));
        CHECK(report.copied_slots == 1 && report.copy_launches == 0);
        OK(gvmm_graph_launch(graph, stream));
        OK(gvmm_binding_end(b, &report));
        CHECK(report.copied_slots == 1 && report.copy_launches == 0);
    }
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    OK(gvmm_stream_synchronize(stream));
    for (int step = 0; step < STEPS; step++) CHECK(*at(outs[step].address) == 101u + step);
    OK(gvmm_binding_destroy(b));
    OK(gvmm_device_drain(device));
    /* Its copies are gone, and this driver can tell. */
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_graph_launch(graph, stream));
    OK(gvmm_graph_destroy(graph));
}

static void misuse(void) {
    gvmm_binding *b = bind();
    uint64_t generation = 0;
    command c;
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_record_copies(b, stream, 0, GVMM_COPIES_IN)); /* no layout */
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_use_graph(b, NULL));
    EXPECT(GVMM_STATUS_RECORD_AGAIN, begin(b, 0, 0, NULL));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_record_copies(b, stream, 1, GVMM_COPIES_IN)); /* no capture */
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_record_copies(b, stream, 2, GVMM_COPIES_IN));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_binding_record_copies(b, stream, 1, 0));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_binding_record_copies(b, stream, 1, 4));
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_binding_record_copies(b, NULL, 1, GVMM_COPIES_IN));
    gvmm_graph *first = record(b, &c, &generation);
    EXPECT(GVMM_ERROR_WRONG_STATE, begin(b, 0, generation, NULL)); /* recorded, and no graph named */
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_binding_use_graph(b, (void *)0x1234));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_binding_use_graph(b, (char *)first + 1));
    /* Recorded again: the first graph does not have the copies that count. */
    gvmm_graph *second = record(b, &c, &generation);
    OK(gvmm_binding_use_graph(b, first));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, begin(b, 0, generation, NULL));
    OK(gvmm_binding_use_graph(b, second));
    OK(begin(b, 0, generation, NULL));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_use_graph(b, second)); /* a step is begun */
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_record_copies(b, stream, generation, GVMM_COPIES_IN));
    *at(ins[0].address) = 7;
    OK(gvmm_graph_launch(second, stream));
    OK(gvmm_graph_launch(second, stream));
    OK(gvmm_binding_end(b, NULL));
    OK(gvmm_stream_synchronize(stream));
    CHECK(*at(outs[0].address) == 8);
    OK(gvmm_graph_destroy(first));
    OK(gvmm_graph_destroy(second));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, begin(b, 1, generation, NULL)); /* the graph that is named is gone */
    OK(gvmm_binding_destroy(b));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_binding_use_graph(b, NULL));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_binding_record_copies(b, stream, 1, GVMM_COPIES_IN));
}

/* Each call of the driver that has to do with it fails once; what was before stays, and the next try works. */
static void failures(void) {
    gvmm_binding *b = bind();
    uint64_t generation = 0;
    command c;
#define INJECT(number, call)                                                                       \
    OK(gvmm_device_fail_calls(device, number, 1, 1, GVMM_ERROR_DRIVER_ERROR));                     \
    EXPECT(GVMM_ERROR_DRIVER_ERROR, call);                                                         \
    OK(gvmm_device_fail_calls(device, 0, 0, 0, 0))
    INJECT(GVMM_CALL_ROUTE_CREATE, begin(b, 0, 0, NULL));
    EXPECT(GVMM_STATUS_RECORD_AGAIN, begin(b, 0, 0, NULL));
    gvmm_graph *graph = NULL, *broken = NULL;
    OK(gvmm_stream_capture_begin(stream));
    INJECT(GVMM_CALL_ROUTE_RECORD, gvmm_binding_record_copies(b, stream, 1, GVMM_COPIES_IN | GVMM_COPIES_OUT));
    OK(gvmm_stream_capture_end(stream, &broken));
    OK(gvmm_graph_destroy(broken));
    graph = record(b, &c, &generation);
    OK(gvmm_binding_use_graph(b, graph));
    INJECT(GVMM_CALL_ROUTE_POINT, begin(b, 2, generation, NULL));
    *at(ins[2].address) = 41;
    OK(begin(b, 2, generation, NULL));
    OK(gvmm_graph_launch(graph, stream));
    OK(gvmm_binding_end(b, NULL));
    OK(gvmm_stream_synchronize(stream));
    CHECK(*at(outs[2].address) == 42);
    OK(gvmm_binding_destroy(b));
    OK(gvmm_graph_destroy(graph));
}

int main(void) {
    device = open_host();
    stream = make_stream(device);
    gvmm_device_info info = {.struct_size = sizeof info};
    OK(gvmm_device_query(device, &info));
    CHECK(info.capabilities & GVMM_CAPABILITY_ROUTES);
    for (int i = 0; i < STEPS; i++) {
        ins[i] = allocate(device, BYTES);
        outs[i] = allocate(device, BYTES);
    }
    in_flight();
    misuse();
    failures();
    for (int i = 0; i < STEPS; i++) {
        OK(gvmm_allocation_destroy(ins[i].allocation));
        OK(gvmm_allocation_destroy(outs[i].allocation));
    }
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_device_close(device));
    return 0;
}
