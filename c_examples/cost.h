/* What the steps cost, and the table that says so. */
#ifndef COST_H
#define COST_H

#include <gvmm.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace.h"

/* Sums over the counted steps, the fifth and later (by then everything has settled), and times. */
struct cost {
    uint64_t map_calls;
    uint64_t unmap_calls;
    uint64_t set_access_calls;
    uint64_t copy_launches;
    uint64_t copied_bytes;
    size_t counted_steps;
    double *bind_us; /* begin and end */
    double *step_us; /* begin, launch, end, and waiting for the stream */
};

double cost_now_us(void);

void cost_create(struct cost *cost, size_t step_count);
void cost_free(struct cost *cost);

/* Adds what begin and end of `step` reported, and how long they and the whole step took. */
void cost_add(struct cost *cost, uint64_t step, const gvmm_step_report *begun,
              const gvmm_step_report *ended, double bind_us, double step_us);

void cost_print_heading(const char *path, const struct trace *trace, const gvmm_device_info *info);

/* Prints a row. `recorded` is how often the command buffer was recorded, `verified` how many slots
 * were right, summed over the steps. */
void cost_print_row(const struct cost *cost, const gvmm_binding_info *info, bool is_auto,
                    uint64_t recorded, uint64_t verified);

#endif
