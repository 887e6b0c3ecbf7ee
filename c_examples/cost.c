#define _POSIX_C_SOURCE 200809L

#include "cost.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FIRST_COUNTED_STEP 4

double cost_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

void cost_create(struct cost *cost, size_t step_count) {
    *cost = (struct cost){0};
    cost->bind_us = calloc(step_count + 1, sizeof(double));
    cost->step_us = calloc(step_count + 1, sizeof(double));
    if (cost->bind_us != NULL && cost->step_us != NULL) return;
    perror("calloc");
    exit(1);
}

void cost_free(struct cost *cost) {
    free(cost->bind_us);
    free(cost->step_us);
    *cost = (struct cost){0};
}

static void add_report(struct cost *cost, const gvmm_step_report *report) {
    cost->map_calls += report->map_calls;
    cost->unmap_calls += report->unmap_calls;
    cost->set_access_calls += report->set_access_calls;
    cost->copy_launches += report->copy_launches;
    cost->copied_bytes += report->copied_bytes;
}

void cost_add(struct cost *cost, uint64_t step, const gvmm_step_report *begun,
              const gvmm_step_report *ended, double bind_us, double step_us) {
    if (step < FIRST_COUNTED_STEP) return;
    add_report(cost, begun);
    add_report(cost, ended);
    cost->bind_us[cost->counted_steps] = bind_us;
    cost->step_us[cost->counted_steps] = step_us;
    cost->counted_steps++;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

void cost_print_heading(const char *path, const struct trace *trace, const gvmm_device_info *info) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < trace->buffer_count; i++) bytes += trace->buffers[i].size_bytes;
    printf("%s: %zu steps, %zu slots, %zu buffers of %" PRIu64 " MiB together\n", path,
           trace->step_count, trace->slot_count, trace->buffer_count, bytes >> 20);
    printf("On the host driver (%s): this process's own memory, no GPU.\n", info->name);
    if (info->simulated_costs[0] == '\0') printf("Times are this machine's.\n");
    else printf("Times are simulated: %s.\n", info->simulated_costs);
    printf("Per step from the fifth on, counts are means and times medians; recorded and verified\n"
           "are sums over all steps.\n\n");
    printf("           |      slots      |    driver calls a step    |   copies a step   "
           "|    us a step    | recorded | verified\n");
    printf(" threshold | copied   mapped |     map   unmap    access | launches    bytes "
           "| binding    step |          |\n");
    printf("-----------+-----------------+---------------------------+-------------------"
           "+-----------------+----------+---------\n");
}

/* The threshold in force: `off`, `65536`, or with `auto=` before it. */
static void print_threshold(uint64_t threshold_bytes, bool is_auto) {
    char text[32] = "off";
    if (threshold_bytes != GVMM_THRESHOLD_OFF) {
        snprintf(text, sizeof text, "%" PRIu64, threshold_bytes);
    }
    char name[40];
    snprintf(name, sizeof name, "%s%s", is_auto ? "auto=" : "", text);
    printf("%10s", name);
}

void cost_print_row(const struct cost *cost, const gvmm_binding_info *info, bool is_auto,
                    uint64_t recorded, uint64_t verified) {
    double steps = cost->counted_steps == 0 ? 1 : (double)cost->counted_steps;
    print_threshold(info->threshold_bytes, is_auto);
    printf(" | %6" PRIu64 "   %6" PRIu64, info->copied_slots, info->mapped_slots);
    printf(" | %7.1f %7.1f   %7.1f", (double)cost->map_calls / steps,
           (double)cost->unmap_calls / steps, (double)cost->set_access_calls / steps);
    printf(" | %8.1f %8.0f", (double)cost->copy_launches / steps,
           (double)cost->copied_bytes / steps);
    printf(" | %7.1f %7.0f", median(cost->bind_us, cost->counted_steps),
           median(cost->step_us, cost->counted_steps));
    printf(" | %8" PRIu64 " | %8" PRIu64 "\n", recorded, verified);
}
