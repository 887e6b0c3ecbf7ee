/* The tutorial of the C ABI: a small executor, as XLA has one, that runs a recorded training run.
 *
 * A compiled program is recorded once, as a command buffer with the addresses of its buffers baked in. But the
 * buffers move: the recording says which buffer each argument and result ("slot") lived in, step after step. So
 * each slot gets an address that stays, from a binding, and the binding brings each step's buffers there: large
 * ones are mapped there, small ones copied. Which are small is the threshold; this program tries several.
 *
 * It runs on the host driver, which needs no GPU: "device" memory is the process's own, streams are threads, and
 * a command buffer is a graph of host functions.
 *
 *   make demo
 *
 * or by hand, from the top folder:
 *
 *   cargo build --release
 *   ln -sf libgvmm.so target/release/libgvmm.so.0
 *   cc -std=c11 -O2 -Wall -Wextra -Iinclude c_examples/step_loop.c c_examples/trace.c c_examples/pattern.c \
 *      -Ltarget/release -lgvmm -Wl,-rpath,$PWD/target/release -o target/step_loop
 *   gzip -dc tests/data/steps/llama_donate.csv.gz > target/llama_donate.csv
 *   target/step_loop target/llama_donate.csv
 *
 * It exits with 1 when any data was not where it should have been.
 */
#define _POSIX_C_SOURCE 200809L

#include <gvmm.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pattern.h"
#include "trace.h"

/* Means are taken from this step on (the fifth): by then everything has settled. */
#define FIRST_COUNTED_STEP 4

/* One function of the command buffer: it reads and writes one slot, at an address that never changes. */
struct function {
    uint64_t address;
    uint64_t size_bytes;
    uint64_t slot;
    bool is_in;
    bool is_out;
    const uint64_t *step; /* which step runs now */
    bool saw_its_data;
};

/* What all runs share: the recording, and a buffer with an address of its own for each recorded one. */
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
    uint64_t records;
    uint64_t verified;
    uint64_t mismatches;
};

/* What the steps cost. */
struct cost {
    uint64_t map_calls, unmap_calls, set_access_calls, copy_launches, copied_bytes, steps;
    double *bind_us; /* one for each step: begin and end */
    double *step_us; /* one for each step: begin, launch, end, and waiting for the stream */
};

/* Ends the program when a call failed. The message says what was being done, and what the driver said. */
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

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* ---- 1. Open the device ---------------------------------------------------------------------------------- */

static gvmm_device_info open_device(struct program *program) {
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST, .ordinal = 0};
    gvmm_device_info info = {.struct_size = sizeof info};
    check(gvmm_device_open(&desc, &program->device), "gvmm_device_open");
    check(gvmm_device_query(program->device, &info), "gvmm_device_query");
    check(gvmm_stream_create(program->device, &program->stream), "gvmm_stream_create");
    return info;
}

/* ---- 2. Give each recorded buffer memory and an address of its own ---------------------------------------- */

/* An executor's allocator does this. The buffer carries its block, so that it can be mapped elsewhere too. */
static void create_buffers(struct program *program) {
    size_t count = program->trace.buffer_count;
    program->allocations = allocate(count, sizeof *program->allocations);
    program->own = allocate(count, sizeof *program->own);
    for (size_t i = 0; i < count; i++) {
        gvmm_allocation_info info = {.struct_size = sizeof info};
        uint64_t address = 0;
        uint64_t size_bytes = program->trace.buffers[i].size_bytes;
        check(gvmm_allocation_create(program->device, size_bytes, &program->allocations[i], &address),
              "gvmm_allocation_create");
        check(gvmm_allocation_query(program->allocations[i], &info), "gvmm_allocation_query");
        program->own[i] = (gvmm_buffer){.address = address, .size_bytes = size_bytes, .block = info.block};
    }
}

/* ---- 3. Describe the slots -------------------------------------------------------------------------------- */

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
    check(gvmm_binding_create(run->program->device, &desc, slots, trace->slot_count, sizeof *slots, &run->binding),
          "gvmm_binding_create");
    free(slots);
}

/* ---- 4. Record the command buffer, with the addresses of the binding baked in ----------------------------- */

/* What the "kernel" of one slot does: look at the input, write the output, both at the baked address. */
static void run_function(void *user_data) {
    struct function *f = user_data;
    f->saw_its_data = !f->is_in || pattern_matches(f->address, f->size_bytes, pattern_in(*f->step, f->slot));
    if (f->is_out) pattern_write(f->address, f->size_bytes, pattern_out(*f->step, f->slot));
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
        run->functions[i] = (struct function){.address = run->addresses[i], .size_bytes = slot->size_bytes, .slot = i,
                                              .is_in = slot->is_in, .is_out = slot->is_out, .step = &run->step};
        check(gvmm_stream_host_function(program->stream, run_function, &run->functions[i]),
              "gvmm_stream_host_function");
    }
    check(gvmm_stream_capture_end(program->stream, &run->graph), "gvmm_stream_capture_end");
    run->records++;
}

/* ---- 5. Run one step -------------------------------------------------------------------------------------- */

/* Picks this step's buffers and fills those that the step reads. */
static void prepare_step(struct run *run) {
    const struct trace *trace = &run->program->trace;
    for (size_t i = 0; i < trace->slot_count; i++) {
        run->buffers[i] = run->program->own[trace_buffer_of(trace, run->step, i)];
        if (!trace->slots[i].is_in) continue;
        pattern_write(run->buffers[i].address, trace->slots[i].size_bytes, pattern_in(run->step, i));
    }
}

/* Asks the binding to bring this step's buffers to the baked addresses. When it cannot do so at the addresses
 * that we recorded (at the first step: there are none), we record and ask again. */
static void begin(struct run *run, gvmm_step_report *out_report) {
    size_t count = run->program->trace.slot_count;
    for (;;) {
        gvmm_status status = gvmm_binding_begin(run->binding, run->program->stream, run->buffers, count,
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
    /* For the test of this program's own checks: results that were copied must then be found missing. */
    (void)out_report;
    check(gvmm_binding_abort(run->binding), "gvmm_binding_abort");
#else
    check(gvmm_binding_end(run->binding, out_report), "gvmm_binding_end");
#endif
}

static void add_report(struct cost *cost, const gvmm_step_report *report) {
    cost->map_calls += report->map_calls;
    cost->unmap_calls += report->unmap_calls;
    cost->set_access_calls += report->set_access_calls;
    cost->copy_launches += report->copy_launches;
    cost->copied_bytes += report->copied_bytes;
}

static void run_step(struct run *run, struct cost *cost) {
    gvmm_step_report begun = {.struct_size = sizeof begun};
    gvmm_step_report ended = {.struct_size = sizeof ended};
    gvmm_stream *stream = run->program->stream;
    double start = now_us();
    begin(run, &begun);
    double launch = now_us();
    check(gvmm_graph_launch(run->graph, stream), "gvmm_graph_launch");
    double launched = now_us();
    end(run, &ended);
    double done = now_us();
    check(gvmm_stream_synchronize(stream), "gvmm_stream_synchronize");
    cost->bind_us[run->step] = (launch - start) + (done - launched);
    cost->step_us[run->step] = now_us() - start;
    if (run->step < FIRST_COUNTED_STEP) return;
    add_report(cost, &begun);
    add_report(cost, &ended);
    cost->steps++;
}

/* ---- 6. Check that all data was where it should have been -------------------------------------------------- */

/* After the step, the caller's own buffer holds the result, or the input as it was. */
static void check_step(struct run *run) {
    const struct trace *trace = &run->program->trace;
    for (size_t i = 0; i < trace->slot_count; i++) {
        const struct trace_slot *slot = &trace->slots[i];
        uint64_t seed = slot->is_out ? pattern_out(run->step, i) : pattern_in(run->step, i);
        bool saw = run->functions[i].saw_its_data;
        bool holds = pattern_matches(run->buffers[i].address, slot->size_bytes, seed);
        if (saw && holds) {
            run->verified++;
            continue;
        }
        if (run->mismatches++ > 0) continue;
        fprintf(stderr, "step %" PRIu64 ", slot %s: %s\n", run->step, slot->name,
                saw ? "the caller's buffer does not hold what it should" : "not this step's data at the address");
    }
}

/* ---- The table --------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the counted steps. */
static double median(double *values, size_t count) {
    size_t skipped = count > FIRST_COUNTED_STEP ? FIRST_COUNTED_STEP : 0;
    qsort(values + skipped, count - skipped, sizeof *values, compare);
    return values[skipped + (count - skipped) / 2];
}

static void print_heading(const struct program *program, const gvmm_device_info *info, const char *path) {
    uint64_t memory_bytes = 0;
    for (size_t i = 0; i < program->trace.buffer_count; i++) memory_bytes += program->trace.buffers[i].size_bytes;
    printf("%s: %zu steps, %zu slots, %zu buffers of %" PRIu64 " MiB together\n", path, program->trace.step_count,
           program->trace.slot_count, program->trace.buffer_count, memory_bytes >> 20);
    printf("On the host driver (%s): this process's own memory, no GPU. ", info->name);
    if (info->simulated_costs[0] == '\0') printf("Times are this machine's.\n");
    else printf("Times are simulated: %s.\n", info->simulated_costs);
    printf("Counts are means a step and times medians, both from the fifth step on; recorded and verified are sums.\n\n");
    printf("             |     slots     |  driver calls a step    |   copies a step    |    us a step    |          |\n");
    printf("   threshold | copied mapped |    map   unmap  access  | launches     bytes | binding    step | recorded | verified\n");
    printf("-------------+---------------+-------------------------+--------------------+-----------------+----------+---------\n");
}

static void print_row(struct run *run, struct cost *cost, uint64_t threshold_bytes) {
    gvmm_binding_info info = {.struct_size = sizeof info};
    check(gvmm_binding_query(run->binding, &info), "gvmm_binding_query");
    char name[32] = "off";
    bool is_auto = threshold_bytes == GVMM_THRESHOLD_AUTO;
    if (is_auto && info.threshold_bytes == GVMM_THRESHOLD_OFF) snprintf(name, sizeof name, "auto=off");
    else if (info.threshold_bytes != GVMM_THRESHOLD_OFF)
        snprintf(name, sizeof name, "%s%" PRIu64, is_auto ? "auto=" : "", info.threshold_bytes);
    double steps = cost->steps == 0 ? 1 : (double)cost->steps;
    size_t count = run->program->trace.step_count;
    printf("%12s | %6" PRIu64 " %6" PRIu64 " | %6.1f  %6.1f  %6.1f  | %8.1f %9.1f | %7.1f %7.0f | %8" PRIu64 " | %8" PRIu64 "\n",
           name, info.copied_slots, info.mapped_slots, (double)cost->map_calls / steps,
           (double)cost->unmap_calls / steps, (double)cost->set_access_calls / steps,
           (double)cost->copy_launches / steps, (double)cost->copied_bytes / steps, median(cost->bind_us, count),
           median(cost->step_us, count), run->records, run->verified);
}

/* ---- All steps with one threshold --------------------------------------------------------------------------- */

/* Returns how many slots, summed over the steps, did not hold what they should. */
static uint64_t run_all_steps(const struct program *program, uint64_t threshold_bytes) {
    size_t slots = program->trace.slot_count, steps = program->trace.step_count;
    struct run run = {.program = program};
    run.buffers = allocate(slots, sizeof *run.buffers);
    run.functions = allocate(slots, sizeof *run.functions);
    run.addresses = allocate(slots, sizeof *run.addresses);
    struct cost cost = {.bind_us = allocate(steps, sizeof(double)), .step_us = allocate(steps, sizeof(double))};

    create_binding(&run, threshold_bytes);
    for (run.step = 0; run.step < steps; run.step++) {
        prepare_step(&run);
        run_step(&run, &cost);
        check_step(&run);
    }
    print_row(&run, &cost, threshold_bytes);

    check(gvmm_graph_destroy(run.graph), "gvmm_graph_destroy");
    check(gvmm_binding_destroy(run.binding), "gvmm_binding_destroy");
    free(run.buffers);
    free(run.functions);
    free(run.addresses);
    free(cost.bind_us);
    free(cost.step_us);
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
    print_heading(&program, &info, argv[1]);
    for (size_t i = 0; i < sizeof thresholds / sizeof *thresholds; i++) {
        mismatches += run_all_steps(&program, thresholds[i]);
    }
    close_program(&program);
    if (mismatches > 0) fprintf(stderr, "%" PRIu64 " slots did not hold what they should\n", mismatches);
    return mismatches > 0 ? 1 : 0;
}
