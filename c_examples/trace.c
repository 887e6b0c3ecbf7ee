#define _POSIX_C_SOURCE 200809L

#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_BUFFER SIZE_MAX
#define MAX_BYTES ((uint64_t)1 << 46)

struct line {
    uint64_t step;
    uint64_t size_bytes;
    uint64_t buffer;
    char *name; /* points into the text of the line */
    bool is_in;
};

struct reader {
    const char *path;
    size_t line_number;
    size_t last_slot; /* recordings list the slots in the same order in each step */
    uint64_t granule_bytes;
    struct trace *trace;
};

static bool complain(const struct reader *reader, const char *expected, const char *found) {
    size_t line = reader->line_number == 0 ? 1 : reader->line_number;
    fprintf(stderr, "%s:%zu: expected %s, found '%.60s'\n", reader->path, line, expected, found);
    return false;
}

/* Makes room for one more element, at powers of two. */
static void *grow(void *elements, size_t count, size_t element_bytes) {
    if ((count & (count - 1)) != 0) return elements;
    void *more = realloc(elements, (count == 0 ? 1 : 2 * count) * element_bytes);
    if (more == NULL) {
        perror("realloc");
        exit(1);
    }
    return more;
}

static bool read_number(const struct reader *reader, const char *text, const char *what,
                        uint64_t *out) {
    char *end = NULL;
    errno = 0;
    *out = strtoull(text, &end, 10);
    bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
    return is_number || complain(reader, what, text);
}

static size_t count_commas(const char *text) {
    size_t count = 0;
    for (; *text != '\0'; text++) count += *text == ',';
    return count;
}

/* Cuts the last field off `text`, which has a comma, and returns the field. */
static char *cut_last(char *text) {
    char *comma = strrchr(text, ',');
    *comma = '\0';
    return comma + 1;
}

/* Splits a line. The name is all that lies between the first comma and the last three. */
static bool read_line(const struct reader *reader, char *text, struct line *out) {
    if (count_commas(text) < 4) return complain(reader, "step,slot,role,bytes,buffer", text);
    char *buffer = cut_last(text);
    char *bytes = cut_last(text);
    char *role = cut_last(text);
    char *comma = strchr(text, ',');
    *comma = '\0';
    out->name = comma + 1;
    out->is_in = strcmp(role, "in") == 0;
    if (!out->is_in && strcmp(role, "out") != 0)
        return complain(reader, "the role in or out", role);
    if (!read_number(reader, text, "a step's number", &out->step)) return false;
    if (!read_number(reader, bytes, "a number of bytes", &out->size_bytes)) return false;
    if (!read_number(reader, buffer, "a buffer's number", &out->buffer)) return false;
    if (out->size_bytes == 0 || out->size_bytes > MAX_BYTES)
        return complain(reader, "1 to 2^46 bytes", bytes);
    return true;
}

static bool is_slot(const struct trace_slot *slot, const struct line *line) {
    return slot->is_in == line->is_in && strcmp(slot->name, line->name) == 0;
}

/* The slot of a line, or slot_count. */
static size_t find_slot(struct reader *reader, const struct line *line) {
    const struct trace *trace = reader->trace;
    for (size_t i = 0; i < trace->slot_count; i++) {
        size_t slot = (reader->last_slot + 1 + i) % trace->slot_count;
        if (is_slot(&trace->slots[slot], line)) return reader->last_slot = slot;
    }
    return trace->slot_count;
}

static void add_slot(struct trace *trace, const struct line *line) {
    trace->slots = grow(trace->slots, trace->slot_count, sizeof *trace->slots);
    char *name = strdup(line->name);
    if (name == NULL) {
        perror("strdup");
        exit(1);
    }
    struct trace_slot slot = {
        .name = name, .size_bytes = line->size_bytes, .is_in = line->is_in, .is_out = !line->is_in};
    trace->slots[trace->slot_count++] = slot;
}

static size_t find_or_add_buffer(const struct reader *reader, const struct line *line) {
    struct trace *trace = reader->trace;
    uint64_t granule = reader->granule_bytes;
    struct trace_buffer wanted = {line->buffer,
                                  (line->size_bytes + granule - 1) / granule * granule};
    for (size_t i = 0; i < trace->buffer_count; i++) {
        const struct trace_buffer *buffer = &trace->buffers[i];
        if (buffer->number == wanted.number && buffer->size_bytes == wanted.size_bytes) return i;
    }
    trace->buffers = grow(trace->buffers, trace->buffer_count, sizeof *trace->buffers);
    trace->buffers[trace->buffer_count] = wanted;
    return trace->buffer_count++;
}

/* Every slot of the step that ends here must have had its line. */
static bool end_step(const struct reader *reader) {
    const struct trace *trace = reader->trace;
    if (trace->step_count == 0)
        return complain(reader, "step,slot,role,bytes,buffer", "the end of the file");
    const size_t *uses = trace->uses + (trace->step_count - 1) * trace->slot_count;
    for (size_t slot = 0; slot < trace->slot_count; slot++) {
        if (uses[slot] != NO_BUFFER) continue;
        char expected[100];
        snprintf(expected, sizeof expected, "slot %.60s in step %zu", trace->slots[slot].name,
                 trace->step_count - 1);
        return complain(reader, expected, "the end of the step");
    }
    return true;
}

static void begin_step(struct trace *trace) {
    size_t used = trace->step_count * trace->slot_count;
    size_t *more = realloc(trace->uses, (used + trace->slot_count) * sizeof *more);
    if (more == NULL) {
        perror("realloc");
        exit(1);
    }
    for (size_t slot = 0; slot < trace->slot_count; slot++) more[used + slot] = NO_BUFFER;
    trace->uses = more;
    trace->step_count++;
}

/* Step 0 says which slots there are. */
static bool add_to_first_step(struct reader *reader, const struct line *line) {
    struct trace *trace = reader->trace;
    if (line->step != 0) return complain(reader, "step 0 first", "another step");
    if (find_slot(reader, line) != trace->slot_count)
        return complain(reader, "each slot once a step", line->name);
    add_slot(trace, line);
    reader->last_slot = trace->slot_count - 1;
    trace->uses = grow(trace->uses, trace->slot_count - 1, sizeof *trace->uses);
    trace->uses[trace->slot_count - 1] = find_or_add_buffer(reader, line);
    trace->step_count = 1;
    return true;
}

static bool add_line(struct reader *reader, const struct line *line) {
    struct trace *trace = reader->trace;
    if (trace->step_count < 2 && (line->step == 0 || trace->step_count == 0)) {
        return add_to_first_step(reader, line);
    }
    if (line->step == trace->step_count) {
        if (!end_step(reader)) return false;
        begin_step(trace);
    } else if (line->step + 1 != trace->step_count) {
        return complain(reader, "this step or the next", "another step");
    }
    size_t slot = find_slot(reader, line);
    if (slot == trace->slot_count)
        return complain(reader, "one of the slots of step 0", line->name);
    if (trace->slots[slot].size_bytes != line->size_bytes)
        return complain(reader, "the size of step 0", line->name);
    size_t *use = &trace->uses[(trace->step_count - 1) * trace->slot_count + slot];
    if (*use != NO_BUFFER) return complain(reader, "each slot once a step", line->name);
    *use = find_or_add_buffer(reader, line);
    return true;
}

static bool read_lines(struct reader *reader, FILE *file) {
    char *text = NULL;
    size_t capacity = 0;
    bool good = true;
    ssize_t length;
    while (good && (length = getline(&text, &capacity, file)) >= 0) {
        reader->line_number++;
        text[strcspn(text, "\r\n")] = '\0';
        struct line line;
        if (text[0] == '#') continue;
        good = read_line(reader, text, &line) && add_line(reader, &line);
    }
    free(text);
    return good && end_step(reader);
}

static bool share_each_step(const struct trace *trace, size_t one, size_t other) {
    for (size_t step = 0; step < trace->step_count; step++) {
        if (trace_buffer_of(trace, step, one) != trace_buffer_of(trace, step, other)) return false;
    }
    return true;
}

/* Marks an `in` as donated where the `out` of its name is always in the same buffer, and drops that
 * `out`. */
static void join_in_and_out(struct trace *trace, bool *dropped) {
    for (size_t in = 0; in < trace->slot_count; in++) {
        for (size_t out = 0; trace->slots[in].is_in && out < trace->slot_count; out++) {
            if (trace->slots[out].is_in ||
                strcmp(trace->slots[in].name, trace->slots[out].name) != 0)
                continue;
            bool same_size = trace->slots[in].size_bytes == trace->slots[out].size_bytes;
            dropped[out] = trace->slots[in].is_out = same_size && share_each_step(trace, in, out);
        }
    }
}

/* Closes the gaps that dropped slots leave, in the slots and in each step's uses. */
static void remove_dropped(struct trace *trace, const bool *dropped) {
    size_t old_count = trace->slot_count, kept_uses = 0, kept_slots = 0;
    for (size_t i = 0; i < trace->step_count * old_count; i++) {
        if (!dropped[i % old_count]) trace->uses[kept_uses++] = trace->uses[i];
    }
    for (size_t slot = 0; slot < old_count; slot++) {
        if (dropped[slot])
            free(trace->slots[slot].name);
        else
            trace->slots[kept_slots++] = trace->slots[slot];
    }
    trace->slot_count = kept_slots;
}

bool trace_read(const char *path, uint64_t granule_bytes, struct trace *out_trace) {
    *out_trace = (struct trace){0};
    struct reader reader = {.path = path, .granule_bytes = granule_bytes, .trace = out_trace};
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        return false;
    }
    bool good = read_lines(&reader, file);
    fclose(file);
    bool *dropped = calloc(out_trace->slot_count + 1, sizeof *dropped);
    if (!good || dropped == NULL) {
        free(dropped);
        return false;
    }
    join_in_and_out(out_trace, dropped);
    remove_dropped(out_trace, dropped);
    free(dropped);
    return true;
}

size_t trace_buffer_of(const struct trace *trace, size_t step, size_t slot) {
    return trace->uses[step * trace->slot_count + slot];
}

void trace_free(struct trace *trace) {
    for (size_t slot = 0; slot < trace->slot_count; slot++) free(trace->slots[slot].name);
    free(trace->slots);
    free(trace->buffers);
    free(trace->uses);
    *trace = (struct trace){0};
}
