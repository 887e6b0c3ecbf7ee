/* The tutorial of the C ABI: a small executor, as XLA has one, that runs a recorded training run.
 *
 * A compiled program is recorded once, as a command buffer with the addresses of its buffers baked
 * in. But the buffers move: the recording says which buffer each argument and result ("slot") lived
 * in, step after step. So each slot gets an address that stays, from a binding, and the binding
 * brings each step's buffers there: large ones are mapped there, small ones copied. Which are small
 * is the threshold; this program tries several.
 *
 * It runs on the host driver, which needs no GPU: "device" memory is the process's own, streams are
 * threads, and a command buffer is a graph of host functions.
 *
 *   make demo
 *
 * or by hand, from the top folder:
 *
 *   cargo build --release
 *   ln -sf libgvmm.so target/release/libgvmm.so.0
 *   cc -std=c11 -O2 -Wall -Wextra -Iinclude -o target/step_loop \
 *      c_examples/step_loop.c c_examples/trace.c c_examples/pattern.c c_examples/cost.c \
 *      -Ltarget/release -lgvmm -Wl,-rpath,$PWD/target/release
 *   gzip -dc tests/data/steps/llama_donate.csv.gz > target/llama_donate.csv
 *   target/step_loop target/llama_donate.csv
 *
 * It exits with 1 when any data was not where it should have been.
 */
#include <gvmm.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cost.h"
#include "pattern.h"
#include "trace.h"

/* One function of the command buffer: it reads and writes one slot, at an address that stays. */
struct function {
    uint64_t address;
    uint64_t size_bytes;
    uint64_t slot;
    bool is_in;
    bool is_out;
    const uint64_t *tick; /* which step runs now */
    bool saw_its_data;
};

/* What all runs share: the recording, and for each of its buffers one of our own. */
struct program {
    gvmm_device *device;
    gvmm_stream *stream;
    struct trace trace;
    gvmm_allocation **allocations;
    gvmm_buffer *own; /* one for each recorded buffer */
};

/* One run over all steps with one threshold. */
struct run {
    const struct program *program;
    gvmm_binding *binding;
    gvmm_graph *graph;
    gvmm_buffer *buffers;       /* one for each slot: this step's */
    struct function *functions; /* one for each slot */
    uint64_t *addresses;        /* one for each slot: the baked ones */
    uint64_t generation;
    uint64_t step;
    uint64_t tick; /* counts the steps of all runs, so that no two have the same data */
    uint64_t records;
    uint64_t verified;
    uint64_t mismatches;
};

/* Ends the program when a call failed. The message says what was being done, and what the driver
 * said. */
static void check(gvmm_status status, const char *call) {
    char message[512] = "";
    size_t needed_bytes = 0;
    if (status == GVMM_STATUS_SUCCESS) return;
    gvmm_last_error_message(message, sizeof message, &needed_bytes);
    fprintf(stderr, "%s: %s: %s\n", call, gvmm_status_name(status), message);
    exit(1);
}

static void *allocate(size_t count, size_t element_bytes) {
    void *memory = calloc(count == 0 ? 1 : count, element_bytes);
    if (memory != NULL) return memory;
    perror("calloc");
    exit(1);
}

/* ---- 1. Open the device ---- */

static gvmm_device_info open_device(struct program *program) {
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST, .ordinal = 0};
    gvmm_device_info info = {.struct_size = sizeof info};
    check(gvmm_device_open(&desc, &program->device), "gvmm_device_open");
    check(gvmm_device_query(program->device, &info), "gvmm_device_query");
    check(gvmm_stream_create(program->device, &program->stream), "gvmm_stream_create");
    return info;
}

/* ---- 2. Give each recorded buffer memory and an address of its own ---- */

/* An executor's allocator does this. The buffer carries its block, so that it can be mapped
 * elsewhere too. */
static void create_buffers(struct program *program) {
    size_t count = program->trace.buffer_count;
    program->allocations = allocate(count, sizeof *program->allocations);
    program->own = allocate(count, sizeof *program->own);
    for (size_t i = 0; i < count; i++) {
        gvmm_allocation_info info = {.struct_size = sizeof info};
        uint64_t address = 0;
        uint64_t size_bytes = program->trace.buffers[i].size_bytes;
        check(
            gvmm_allocation_create(program->device, size_bytes, &program->allocations[i], &address),
            "gvmm_allocation_create");
        check(gvmm_allocation_query(program->allocations[i], &info), "gvmm_allocation_query");
        program->own[i] =
            (gvmm_buffer){.address = address, .size_bytes = size_bytes, .block = info.block};
    }
}

/* ---- 3. Describe the slots ---- */

static void create_binding(struct run *run, uint64_t threshold_bytes) {
    const struct trace *trace = &run->program->trace;
    gvmm_slot *slots = allocate(trace->slot_count, sizeof *slots);
    for (size_t i = 0; i < trace->slot_count; i++) {
        const struct trace_slot *slot = &trace->slots[i];
        slots[i].size_bytes = slot->size_bytes;
        slots[i].direction = !slot->is_out  ? GVMM_DIRECTION_IN
                             : !slot->is_in ? GVMM_DIRECTION_OUT
                                            : GVMM_DIRECTION_IN_OUT;
    }
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = threshold_bytes};
    check(gvmm_binding_create(run->program->device, &desc, slots, trace->slot_count, sizeof *slots,
                              &run->binding),
          "gvmm_binding_create");
    free(slots);
}

/* ---- 4. Record the command buffer, with the addresses of the binding baked in ---- */

/* What the "kernel" of one slot does: look at the input, write the output, both at the baked
 * address. */
static void run_function(void *user_data) {
    struct function *f = user_data;
    f->saw_its_data =
        !f->is_in || pattern_matches(f->address, f->size_bytes, pattern_in(*f->tick, f->slot));
    if (f->is_out) pattern_write(f->address, f->size_bytes, pattern_out(*f->tick, f->slot));
}

static void record(struct run *run) {
    const struct program *program = run->program;
    const struct trace *trace = &program->trace;
    check(gvmm_binding_addresses(run->binding, run->addresses, trace->slot_count, &run->generation),
          "gvmm_binding_addresses");
    if (run->graph != NULL) check(gvmm_graph_destroy(run->graph), "gvmm_graph_destroy");
    check(gvmm_stream_capture_begin(program->stream), "gvmm_stream_capture_begin");
    for (size_t i = 0; i < trace->slot_count; i++) {
        const struct trace_slot *slot = &trace->slots[i];
        run->functions[i] = (struct function){.address = run->addresses[i],
                                              .size_bytes = slot->size_bytes,
                                              .slot = i,
                                              .is_in = slot->is_in,
                                              .is_out = slot->is_out,
                                              .tick = &run->tick};
        check(gvmm_stream_host_function(program->stream, run_function, &run->functions[i]),
              "gvmm_stream_host_function");
    }
    check(gvmm_stream_capture_end(program->stream, &run->graph), "gvmm_stream_capture_end");
    run->records++;
}

/* ---- 5. Run one step ---- */

/* Picks this step's buffers and fills those that the step reads. */
static void prepare_step(struct run *run) {
    const struct trace *trace = &run->program->trace;
    for (size_t i = 0; i < trace->slot_count; i++) {
        run->buffers[i] = run->program->own[trace_buffer_of(trace, run->step, i)];
        if (!trace->slots[i].is_in) continue;
        pattern_write(run->buffers[i].address, trace->slots[i].size_bytes,
                      pattern_in(run->tick, i));
    }
}

/* Asks the binding to bring this step's buffers to the baked addresses. When it cannot do so at the
 * addresses that we recorded (at the first step: there are none), we record and ask again. */
static void begin(struct run *run, gvmm_step_report *out_report) {
    size_t count = run->program->trace.slot_count;
    for (;;) {
        gvmm_status status =
            gvmm_binding_begin(run->binding, run->program->stream, run->buffers, count,
                               sizeof *run->buffers, run->generation, out_report);
        if (status != GVMM_STATUS_RECORD_AGAIN) {
            check(status, "gvmm_binding_begin");
            return;
        }
        record(run);
    }
}

/* Brings the results to the caller's buffers. */
static void end(struct run *run, gvmm_step_report *out_report) {
#ifdef STEP_LOOP_SKIP_END
    /* For the test of this program's own checks: results that were copied must then be found
     * missing. */
    (void)out_report;
    check(gvmm_binding_abort(run->binding), "gvmm_binding_abort");
#else
    check(gvmm_binding_end(run->binding, out_report), "gvmm_binding_end");
#endif
}

static void run_step(struct run *run, struct cost *cost) {
    gvmm_step_report begun = {.struct_size = sizeof begun};
    gvmm_step_report ended = {.struct_size = sizeof ended};
    gvmm_stream *stream = run->program->stream;
    double start = cost_now_us();
    begin(run, &begun);
    double launch = cost_now_us();
    check(gvmm_graph_launch(run->graph, stream), "gvmm_graph_launch");
    double launched = cost_now_us();
    end(run, &ended);
    double done = cost_now_us();
    check(gvmm_stream_synchronize(stream), "gvmm_stream_synchronize");
    double bind_us = (launch - start) + (done - launched);
    cost_add(cost, run->step, &begun, &ended, bind_us, cost_now_us() - start);
}

/* ---- 6. Check that all data was where it should have been ---- */

/* After the step, the caller's own buffer holds the result, or the input as it was. */
static void check_step(struct run *run) {
    const struct trace *trace = &run->program->trace;
    for (size_t i = 0; i < trace->slot_count; i++) {
        const struct trace_slot *slot = &trace->slots[i];
        uint64_t seed = slot->is_out ? pattern_out(run->tick, i) : pattern_in(run->tick, i);
        bool saw = run->functions[i].saw_its_data;
        bool holds = pattern_matches(run->buffers[i].address, slot->size_bytes, seed);
        if (saw && holds) {
            run->verified++;
            continue;
        }
        if (run->mismatches++ > 0) continue;
        fprintf(stderr, "step %" PRIu64 ", slot %s: %s\n", run->step, slot->name,
                saw ? "the caller's buffer does not hold what it should"
                    : "not this step's data at the address");
    }
}

/* ---- All steps with one threshold ---- */

/* Returns how many slots, summed over the steps, did not hold what they should. */
static uint64_t run_all_steps(const struct program *program, uint64_t threshold_bytes,
                              uint64_t first_tick) {
    size_t slots = program->trace.slot_count, steps = program->trace.step_count;
    struct run run = {.program = program};
    run.buffers = allocate(slots, sizeof *run.buffers);
    run.functions = allocate(slots, sizeof *run.functions);
    run.addresses = allocate(slots, sizeof *run.addresses);
    struct cost cost;
    cost_create(&cost, steps);

    create_binding(&run, threshold_bytes);
    for (run.step = 0; run.step < steps; run.step++) {
        run.tick = first_tick + run.step;
        prepare_step(&run);
        run_step(&run, &cost);
        check_step(&run);
    }
    gvmm_binding_info info = {.struct_size = sizeof info};
    check(gvmm_binding_query(run.binding, &info), "gvmm_binding_query");
    bool is_auto = threshold_bytes == GVMM_THRESHOLD_AUTO;
    cost_print_row(&cost, &info, is_auto, run.records, run.verified);

    check(gvmm_graph_destroy(run.graph), "gvmm_graph_destroy");
    check(gvmm_binding_destroy(run.binding), "gvmm_binding_destroy");
    free(run.buffers);
    free(run.functions);
    free(run.addresses);
    cost_free(&cost);
    return run.mismatches;
}

/* Children first: what has users cannot be destroyed. */
static void close_program(struct program *program) {
    for (size_t i = 0; i < program->trace.buffer_count; i++) {
        check(gvmm_allocation_destroy(program->allocations[i]), "gvmm_allocation_destroy");
    }
    check(gvmm_stream_destroy(program->stream), "gvmm_stream_destroy");
    check(gvmm_device_close(program->device), "gvmm_device_close");
    free(program->allocations);
    free(program->own);
    trace_free(&program->trace);
}

int main(int argc, char **argv) {
    const uint64_t thresholds[] = {GVMM_THRESHOLD_OFF, 4096, 65536, GVMM_THRESHOLD_AUTO};
    struct program program = {0};
    uint64_t mismatches = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: %s RECORDING.csv\n", argv[0]);
        return 2;
    }
    gvmm_device_info info = open_device(&program);
    if (!trace_read(argv[1], info.granularity_bytes, &program.trace)) return 2;
    create_buffers(&program);
    cost_print_heading(argv[1], &program.trace, &info);
    for (size_t i = 0; i < sizeof thresholds / sizeof *thresholds; i++) {
        mismatches += run_all_steps(&program, thresholds[i], i * program.trace.step_count);
    }
    close_program(&program);
    if (mismatches > 0)
        fprintf(stderr, "%" PRIu64 " slots did not hold what they should\n", mismatches);
    return mismatches > 0 ? 1 : 0;
}
