/* Steps: begin and end out of order, no slots, 100,000 copied ones, a graph, aliased buffers. */
#include "common.h"

static gvmm_binding *bind(gvmm_device *device, uint64_t threshold, const gvmm_slot *slots, size_t count) {
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = threshold};
    gvmm_binding *binding = NULL;
    OK(gvmm_binding_create(device, &desc, slots, count, sizeof slots[0], &binding));
    return binding;
}

static void misuse(gvmm_device *device, gvmm_stream *stream) {
    memory m = allocate(device, GRANULE);
    gvmm_slot slot = {.size_bytes = 4096};
    gvmm_buffer buffer = buffer_of(m, 4096);
    gvmm_binding *b = bind(device, 4096, &slot, 1);
    uint64_t address = 0, generation = 0, unmapped = 0;
    uint32_t action = 0;

    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_end(b, NULL));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_abort(b));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_addresses(b, &address, 1, &generation));
    EXPECT(GVMM_ERROR_COUNT_MISMATCH, gvmm_binding_begin(b, stream, NULL, 0, 0, 0, NULL));
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_binding_begin(b, NULL, &buffer, 1, sizeof buffer, 0, NULL));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_binding_begin(b, stream, &buffer, 1, sizeof buffer, 5, NULL));
    buffer.size_bytes = 4095;
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_binding_begin(b, stream, &buffer, 1, sizeof buffer, 0, NULL));
    buffer = buffer_of(m, 4096);

    gvmm_step_report report = {.struct_size = sizeof report};
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(b, stream, &buffer, 1, sizeof buffer, 0, &report));
    CHECK(report.generation == 1); /* RECORD_AGAIN is a success: its outputs are written */
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(b, stream, &buffer, 1, sizeof buffer, 0, &report));
    CHECK(report.generation == 1);
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_end(b, &report)); /* no step was started */
    EXPECT(GVMM_ERROR_COUNT_MISMATCH, gvmm_binding_addresses(b, &address, 0, &generation));
    EXPECT(GVMM_ERROR_COUNT_MISMATCH, gvmm_binding_actions(b, &action, 0));
    OK(gvmm_binding_addresses(b, &address, 1, &generation));
    OK(gvmm_binding_actions(b, &action, 1));
    CHECK(generation == 1 && address != 0 && action == GVMM_ACTION_COPY);

    *at(m.address) = 7;
    OK(gvmm_binding_begin(b, stream, &buffer, 1, sizeof buffer, generation, &report));
    CHECK(report.copied_slots == 1 && report.copied_bytes == 4096 && report.copy_launches == 1);
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_begin(b, stream, &buffer, 1, sizeof buffer, generation, NULL));
    OK(gvmm_stream_synchronize(stream));
    CHECK(*at(address) == 7);
    *at(address) = 8; /* the command buffer's work */
    OK(gvmm_binding_end(b, &report));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_end(b, &report));
    OK(gvmm_stream_synchronize(stream));
    CHECK(*at(m.address) == 8);

    OK(gvmm_binding_begin(b, stream, &buffer, 1, sizeof buffer, generation, &report));
    OK(gvmm_stream_synchronize(stream));
    *at(address) = 9;
    OK(gvmm_binding_abort(b));
    OK(gvmm_stream_synchronize(stream));
    CHECK(*at(m.address) == 8); /* nothing was copied back */

    OK(gvmm_binding_drop_idle(b, &unmapped));
    CHECK(unmapped == 0); /* nothing is mapped */
    gvmm_binding_info info = {.struct_size = sizeof info};
    OK(gvmm_binding_query(b, &info));
    CHECK(info.slot_count == 1 && info.copied_slots == 1 && info.threshold_bytes == 4096 && info.generation == 1);
    CHECK(info.record_again_count >= 1 && info.shadow_bytes >= 4096);
    OK(gvmm_binding_destroy(b));
    OK(gvmm_allocation_destroy(m.allocation));
}

static void bad_slots(gvmm_device *device) {
    gvmm_binding *b = (gvmm_binding *)0x1234;
    const struct {
        gvmm_slot slot;
        gvmm_status status;
    } cases[] = {
        {{.size_bytes = 0}, GVMM_ERROR_INVALID_SIZE},
        {{.size_bytes = 1, .direction = 3}, GVMM_ERROR_INVALID_ARGUMENT},
        {{.size_bytes = 1, .flags = 8}, GVMM_ERROR_INVALID_ARGUMENT},
        {{.size_bytes = 1, .memory_space = 2}, GVMM_ERROR_INVALID_ARGUMENT},
        {{.size_bytes = 1, .reserved = 1}, GVMM_ERROR_UNKNOWN_VERSION},
        {{.size_bytes = 1, .alignment_bytes = 3}, GVMM_ERROR_MISALIGNED},
        {{.size_bytes = UINT64_MAX, .shadow_address = 4096}, GVMM_ERROR_OUT_OF_RANGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gvmm_slot slots[2] = {{.size_bytes = 1}, cases[i].slot};
        EXPECT(cases[i].status, gvmm_binding_create(device, NULL, slots, 2, sizeof slots[0], &b));
        CHECK(last_detail().entry == 1);
    }
    gvmm_access access = {.device = 0, .mode = 7};
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .access = &access, .access_count = 1,
                              .access_stride_bytes = sizeof access};
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_binding_create(device, &desc, NULL, 0, 0, &b));
    CHECK(b == (gvmm_binding *)0x1234);
}

static void no_slots(gvmm_device *device, gvmm_stream *stream) {
    gvmm_binding *b = NULL;
    OK(gvmm_binding_create(device, NULL, NULL, 0, 0, &b));
    uint64_t generation = 0;
    gvmm_status status = gvmm_binding_begin(b, stream, NULL, 0, 0, 0, NULL);
    if (status == GVMM_STATUS_RECORD_AGAIN) {
        OK(gvmm_binding_addresses(b, NULL, 0, &generation));
        status = gvmm_binding_begin(b, stream, NULL, 0, 0, generation, NULL);
    }
    EXPECT(GVMM_STATUS_SUCCESS, status);
    OK(gvmm_binding_end(b, NULL));
    OK(gvmm_binding_actions(b, NULL, 0));
    OK(gvmm_binding_destroy(b));
}

static void many_slots(gvmm_device *device, gvmm_stream *stream) {
    enum { COUNT = 100000, BYTES = 64 };
    memory m = allocate(device, (uint64_t)COUNT * BYTES);
    gvmm_slot *slots = (gvmm_slot *)calloc(COUNT, sizeof *slots);
    gvmm_buffer *buffers = (gvmm_buffer *)calloc(COUNT, sizeof *buffers);
    uint64_t *addresses = (uint64_t *)calloc(COUNT, sizeof *addresses), generation = 0;
    CHECK(slots && buffers && addresses);
    for (size_t i = 0; i < COUNT; i++) {
        slots[i].size_bytes = BYTES;
        buffers[i] = (gvmm_buffer){.address = m.address + i * BYTES, .size_bytes = BYTES, .allocation_id = i + 1};
        *at(buffers[i].address) = (uint32_t)i;
    }
    gvmm_binding *b = bind(device, 64, slots, COUNT);
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(b, stream, buffers, COUNT, sizeof buffers[0], 0, NULL));
    OK(gvmm_binding_addresses(b, addresses, COUNT, &generation));
    gvmm_step_report report = {.struct_size = sizeof report};
    OK(gvmm_binding_begin(b, stream, buffers, COUNT, sizeof buffers[0], generation, &report));
    CHECK(report.copied_slots == COUNT && report.copy_launches == 1);
    OK(gvmm_stream_synchronize(stream));
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(*at(addresses[i]) == (uint32_t)i);
        *at(addresses[i]) = (uint32_t)i + 1;
    }
    OK(gvmm_binding_end(b, &report));
    OK(gvmm_stream_synchronize(stream));
    for (size_t i = 0; i < COUNT; i++) CHECK(*at(buffers[i].address) == (uint32_t)i + 1);
    OK(gvmm_binding_destroy(b));
    OK(gvmm_allocation_destroy(m.allocation));
    free(slots);
    free(buffers);
    free(addresses);
}

static void aliased(gvmm_device *device, gvmm_stream *stream) {
    memory m = allocate(device, GRANULE);
    gvmm_slot slots[2] = {{.size_bytes = 4096, .direction = GVMM_DIRECTION_IN},
                          {.size_bytes = 4096, .direction = GVMM_DIRECTION_OUT}};
    gvmm_buffer buffers[2] = {buffer_of(m, 4096), buffer_of(m, 4096)};
    gvmm_binding *b = bind(device, GVMM_THRESHOLD_OFF, slots, 2);
    EXPECT(GVMM_ERROR_ALIASED, gvmm_binding_begin(b, stream, buffers, 2, sizeof buffers[0], 0, NULL));
    OK(gvmm_binding_destroy(b));
    OK(gvmm_allocation_destroy(m.allocation));
}

/* A buffer that a binding knows from an earlier step, whose block was destroyed while another stood in its place. */
static void died_meanwhile(gvmm_device *device, gvmm_stream *stream) {
    memory old = allocate(device, GRANULE), other = allocate(device, GRANULE);
    gvmm_slot slot = {.size_bytes = 4096};
    gvmm_buffer was = buffer_of(old, 4096), is = buffer_of(other, 4096);
    gvmm_binding *b = bind(device, 4096, &slot, 1);
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(b, stream, &was, 1, sizeof was, 0, NULL));
    const gvmm_buffer *steps[] = {&was, &is, &was, &is};
    for (int i = 0; i < 4; i++) {
        OK(gvmm_binding_begin(b, stream, steps[i], 1, sizeof was, 1, NULL));
        OK(gvmm_binding_end(b, NULL));
    }
    OK(gvmm_stream_synchronize(stream));
    OK(gvmm_allocation_destroy(old.allocation));
    for (int unchanged = 0; unchanged < 2; unchanged++) {
        OK(gvmm_binding_begin(b, stream, &is, 1, sizeof is, 1, NULL));
        OK(gvmm_binding_end(b, NULL));
        EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_binding_begin(b, stream, &was, 1, sizeof was, 1, NULL));
    }
    OK(gvmm_binding_destroy(b));
    OK(gvmm_stream_synchronize(stream));
    OK(gvmm_allocation_destroy(other.allocation));
}

/* Two results that share bytes under two names: what arrives would depend on the order. */
static void overlapping(gvmm_device *device, gvmm_stream *stream) {
    memory m = allocate(device, GRANULE);
    gvmm_slot slots[2] = {{.size_bytes = 64}, {.size_bytes = 64, .direction = GVMM_DIRECTION_OUT}};
    gvmm_buffer buffers[2] = {{m.address, 64, 1, NULL}, {m.address + 32, 64, 2, NULL}};
    gvmm_binding *b = bind(device, 64, slots, 2);
    EXPECT(GVMM_ERROR_OVERLAP, gvmm_binding_begin(b, stream, buffers, 2, sizeof buffers[0], 0, NULL));
    CHECK(last_detail().entry == 1);
    OK(gvmm_binding_destroy(b));
    /* A shadow of the caller's own that lies where another slot's buffer is. */
    slots[0].shadow_address = m.address + 4096;
    slots[1].direction = GVMM_DIRECTION_IN;
    buffers[1].address = m.address + 4096;
    b = bind(device, 64, slots, 2);
    EXPECT(GVMM_ERROR_OVERLAP, gvmm_binding_begin(b, stream, buffers, 2, sizeof buffers[0], 0, NULL));
    OK(gvmm_binding_destroy(b));
    /* A baked slot's buffer must be aligned as the slot asks. */
    slots[0] = (gvmm_slot){.size_bytes = 64, .alignment_bytes = 256, .flags = GVMM_SLOT_REGISTERED};
    buffers[0].address = m.address + 64;
    b = bind(device, 64, slots, 1);
    EXPECT(GVMM_ERROR_MISALIGNED, gvmm_binding_begin(b, stream, buffers, 1, sizeof buffers[0], 0, NULL));
    OK(gvmm_binding_destroy(b));
    OK(gvmm_stream_synchronize(stream));
    OK(gvmm_allocation_destroy(m.allocation));
}

typedef struct {
    uint64_t address;
    uint32_t add;
} addition;

static void add(void *user_data) {
    const addition *a = (const addition *)user_data;
    *at(a->address) += a->add;
}

/* The whole loop: a graph with baked addresses, buffers that move. */
static void loop(gvmm_device *device, gvmm_stream *stream, uint64_t threshold) {
    enum { SLOTS = 3, STEPS = 6 };
    gvmm_slot slots[SLOTS] = {{.size_bytes = GRANULE}, {.size_bytes = 4096}, {.size_bytes = 65536}};
    gvmm_binding *b = bind(device, threshold, slots, SLOTS);
    memory m[2][SLOTS];
    for (int set = 0; set < 2; set++)
        for (int i = 0; i < SLOTS; i++) {
            m[set][i] = allocate(device, GRANULE);
            *at(m[set][i].address) = 0;
        }
    gvmm_graph *graph = NULL;
    addition additions[SLOTS];
    uint64_t generation = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        gvmm_buffer buffers[SLOTS];
        for (int i = 0; i < SLOTS; i++) buffers[i] = buffer_of(m[step % 2][i], slots[i].size_bytes);
        gvmm_status status =
            gvmm_binding_begin(b, stream, buffers, SLOTS, sizeof buffers[0], generation, NULL);
        if (status == GVMM_STATUS_RECORD_AGAIN) {
            CHECK(step == 0);
            uint64_t addresses[SLOTS];
            OK(gvmm_binding_addresses(b, addresses, SLOTS, &generation));
            OK(gvmm_stream_capture_begin(stream));
            EXPECT(GVMM_ERROR_STREAM_CAPTURING, gvmm_stream_synchronize(stream));
            for (int i = 0; i < SLOTS; i++) {
                additions[i] = (addition){addresses[i], 1 + (uint32_t)i};
                OK(gvmm_stream_host_function(stream, add, &additions[i]));
            }
            OK(gvmm_stream_capture_end(stream, &graph));
            status = gvmm_binding_begin(b, stream, buffers, SLOTS, sizeof buffers[0], generation, NULL);
        }
        EXPECT(GVMM_STATUS_SUCCESS, status);
        OK(gvmm_graph_launch(graph, stream));
        OK(gvmm_binding_end(b, NULL));
    }
    OK(gvmm_stream_synchronize(stream));
    for (int set = 0; set < 2; set++)
        for (int i = 0; i < SLOTS; i++) {
            CHECK(*at(m[set][i].address) == (uint32_t)(STEPS / 2 * (1 + i)));
            OK(gvmm_allocation_destroy(m[set][i].allocation));
        }
    OK(gvmm_graph_destroy(graph));
    OK(gvmm_binding_destroy(b));
}

int main(void) {
    gvmm_device *device = open_host();
    gvmm_stream *stream = make_stream(device);
    misuse(device, stream);
    bad_slots(device);
    no_slots(device, stream);
    many_slots(device, stream);
    aliased(device, stream);
    died_meanwhile(device, stream);
    overlapping(device, stream);
    loop(device, stream, GVMM_THRESHOLD_OFF);
    loop(device, stream, 4096);
    loop(device, stream, GVMM_THRESHOLD_DEFAULT);
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_device_close(device));
    return 0;
}
