/* Reads a recording of which buffers a compiled step binds, step after step.
 *
 * A line is `step,slot,role,bytes,buffer`: in that step the executable's argument (role `in`) or
 * result (`out`) was so many bytes long and lived in that buffer. Lines that start with # are
 * comments.
 *
 * A name that is both `in` and `out`, with one buffer in each step, is one slot, in and out (it was
 * donated). Otherwise the two are slots of their own. A buffer is (number, size rounded up to the
 * granule): the numbers are addresses, so one number with several sizes was several buffers.
 */
#ifndef TRACE_H
#define TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace_slot {
    char *name;
    uint64_t size_bytes;
    bool is_in;
    bool is_out;
};

struct trace_buffer {
    uint64_t number;
    uint64_t size_bytes; /* a multiple of the granule */
};

struct trace {
    size_t step_count;
    size_t slot_count;
    size_t buffer_count;
    struct trace_slot *slots;
    struct trace_buffer *buffers;
    size_t *uses; /* for each step and slot an index of `buffers` */
};

/* Reads `path`. On a broken line it prints `FILE:LINE: expected ..., found ...` and returns false.
 * What was read is given up with trace_free in both cases. */
bool trace_read(const char *path, uint64_t granule_bytes, struct trace *out_trace);

/* The buffer that `slot` has in `step`, as an index of `buffers`. */
size_t trace_buffer_of(const struct trace *trace, size_t step, size_t slot);

void trace_free(struct trace *trace);

#endif
