/* NULL in every pointer position of every function: a status, no crash. Prints `function parameter status` for each, and
   the test compares that with the header's prototypes. */
#include "common.h"

static gvmm_device *d;
static gvmm_stream *s;
static gvmm_graph *g;
static gvmm_block *b;
static gvmm_reservation *r;
static gvmm_allocation *a;
static gvmm_binding *n;
static gvmm_segment *e;
static gvmm_pool *p;
static memory m;
static gvmm_buffer buffer;
static uint64_t u, v;
static uint32_t w;

static void said(int line, const char *function, const char *parameter, gvmm_status wanted, gvmm_status got) {
    expect(__FILE__, line, wanted, got, function);
    printf("%s %s %s\n", function, parameter, gvmm_status_name(got));
}
#define NUL(function, parameter, ...)                                                              \
    said(__LINE__, #function, #parameter, GVMM_ERROR_NULL_POINTER, function(__VA_ARGS__))
/* Where NULL means something. */
#define MAY(function, parameter, wanted, ...) said(__LINE__, #function, #parameter, wanted, function(__VA_ARGS__))

/* Of PyTorch's hooks, which answer nothing: what the library has to say afterwards. */
#define HOOK(function, parameter, wanted, ...)                                                     \
    do {                                                                                           \
        OK(gvmm_torch_alloc(8, -1, NULL) == NULL ? GVMM_STATUS_SUCCESS : GVMM_ERROR_INTERNAL);     \
        function(__VA_ARGS__);                                                                     \
        said(__LINE__, #function, #parameter, wanted, last_detail().status);                       \
    } while (0)

static void function(void *user_data) { (void)user_data; }
static void callback(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)message, (void)user_data;
}

static void setup(void) {
    d = open_host();
    s = make_stream(d);
    b = make_block(d, GRANULE);
    r = reserve(d, GRANULE, &u);
    OK(gvmm_stream_capture_begin(s));
    OK(gvmm_stream_capture_end(s, &g));
    m = allocate(d, GRANULE);
    a = m.allocation;
    gvmm_slot slot = {.size_bytes = 4096};
    OK(gvmm_binding_create(d, NULL, &slot, 1, sizeof slot, &n));
    buffer = buffer_of(m, 4096);
    OK(gvmm_segment_create(d, NULL, &e, &u));
    OK(gvmm_pool_create(d, NULL, &p));
}

static void messages(void) {
    size_t needed = 0;
    char text[8];
    MAY(gvmm_last_error_message, out_message, GVMM_STATUS_SUCCESS, NULL, 0, &needed);
    NUL(gvmm_last_error_message, out_message, NULL, 1, &needed);
    NUL(gvmm_last_error_message, out_needed, text, sizeof text, NULL);
    NUL(gvmm_last_error_detail, out_detail, NULL);
    MAY(gvmm_log_set_callback, user_data, GVMM_STATUS_SUCCESS, callback, NULL, GVMM_LOG_LEVEL_ERROR);
    MAY(gvmm_log_set_callback, callback, GVMM_STATUS_SUCCESS, NULL, NULL, GVMM_LOG_LEVEL_OFF);
}

static void devices(void) {
    gvmm_device *other = NULL;
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = 0, .ordinal = 0};
    NUL(gvmm_device_count, out_count, GVMM_DRIVER_HOST, NULL);
    NUL(gvmm_device_open, out_device, &desc, NULL);
    MAY(gvmm_device_open, desc, GVMM_STATUS_SUCCESS, NULL, &other);
    gvmm_attach_desc native = {.struct_size = sizeof native, .driver = GVMM_DRIVER_HOST};
    NUL(gvmm_device_attach, desc, NULL, &other);
    NUL(gvmm_device_attach, out_device, &native, NULL);
    OK(gvmm_device_close(other));
    NUL(gvmm_device_close, device, NULL);
    NUL(gvmm_device_peer_query, device, NULL, 0, &w);
    NUL(gvmm_device_peer_query, out_reaches, d, 0, NULL);
    NUL(gvmm_device_peer_enable, device, NULL, 0, GVMM_ACCESS_READ);
    gvmm_device_info info = {.struct_size = sizeof info};
    NUL(gvmm_device_query, device, NULL, &info);
    NUL(gvmm_device_query, out_info, d, NULL);
    NUL(gvmm_device_memory, device, NULL, &u, &v);
    NUL(gvmm_device_memory, out_free_bytes, d, NULL, &v);
    NUL(gvmm_device_memory, out_total_bytes, d, &u, NULL);
    gvmm_call_counts counts = {.struct_size = sizeof counts};
    NUL(gvmm_device_counters, device, NULL, &counts);
    NUL(gvmm_device_counters, out_counts, d, NULL);
    NUL(gvmm_device_collect, device, NULL, &u);
    NUL(gvmm_device_collect, out_collected, d, NULL);
    NUL(gvmm_device_drain, device, NULL);
    gvmm_block *found = NULL;
    NUL(gvmm_device_find, device, NULL, m.address, &found, &u);
    NUL(gvmm_device_find, out_block, d, m.address, NULL, &u);
    NUL(gvmm_device_find, out_offset_bytes, d, m.address, &found, NULL);
    NUL(gvmm_device_fail_calls, device, NULL, 0, 1, 1, GVMM_ERROR_INTERNAL);
}

static void tables_and_options(void) {
    const gvmm_api *api = NULL;
    NUL(gvmm_get_api, out_api, GVMM_VERSION_NUMBER, sizeof *api, NULL);
    NUL(gvmm_configure, options, NULL);
}

static void timelines(void) {
    gvmm_timeline *timeline = NULL;
    const uint64_t *value = NULL;
    NUL(gvmm_timeline_create, device, NULL, &timeline, &value);
    NUL(gvmm_timeline_create, out_timeline, d, NULL, &value);
    NUL(gvmm_timeline_create, out_value, d, &timeline, NULL);
    OK(gvmm_timeline_create(d, &timeline, &value));
    NUL(gvmm_timeline_write, timeline, NULL, s, 1);
    MAY(gvmm_timeline_write, stream, GVMM_ERROR_INVALID_STREAM, timeline, NULL, 1);
    NUL(gvmm_timeline_destroy, timeline, NULL);
    OK(gvmm_timeline_destroy(timeline));
}

static void streams_and_graphs(void) {
    gvmm_stream *stream = NULL;
    NUL(gvmm_stream_create, device, NULL, &stream);
    NUL(gvmm_stream_create, out_stream, d, NULL);
    NUL(gvmm_stream_wrap_queue, device, NULL, 1, GVMM_QUEUE_GROUP_UNKNOWN, &stream);
    NUL(gvmm_stream_wrap_queue, out_stream, d, 1, GVMM_QUEUE_GROUP_UNKNOWN, NULL);
    NUL(gvmm_stream_destroy, stream, NULL);
    NUL(gvmm_stream_synchronize, stream, NULL);
    NUL(gvmm_stream_host_function, stream, NULL, function, NULL);
    NUL(gvmm_stream_host_function, function, s, NULL, NULL);
    MAY(gvmm_stream_host_function, user_data, GVMM_STATUS_SUCCESS, s, function, NULL);
    NUL(gvmm_stream_capture_begin, stream, NULL);
    gvmm_graph *graph = NULL;
    NUL(gvmm_stream_capture_end, stream, NULL, &graph);
    NUL(gvmm_stream_capture_end, out_graph, s, NULL);
    NUL(gvmm_stream_is_capturing, device, NULL, s, &w);
    MAY(gvmm_stream_is_capturing, stream, GVMM_ERROR_INVALID_STREAM, d, NULL, &w);
    NUL(gvmm_stream_is_capturing, out_capturing, d, s, NULL);
    NUL(gvmm_stream_forget, device, NULL, s);
    MAY(gvmm_stream_forget, stream, GVMM_ERROR_INVALID_STREAM, d, NULL);
    NUL(gvmm_graph_launch, graph, NULL, s);
    NUL(gvmm_graph_launch, stream, g, NULL);
    NUL(gvmm_graph_destroy, graph, NULL);
}

static void blocks(void) {
    int fd = 0;
    gvmm_block *block = NULL;
    NUL(gvmm_block_create, device, NULL, GRANULE, 0, &block);
    NUL(gvmm_block_create, out_block, d, GRANULE, 0, NULL);
    NUL(gvmm_block_adopt, device, NULL, 1, GRANULE, 0, &block);
    NUL(gvmm_block_adopt, out_block, d, 1, GRANULE, 0, NULL);
    gvmm_block_info block_info = {.struct_size = sizeof block_info};
    NUL(gvmm_block_query, block, NULL, &block_info);
    NUL(gvmm_block_query, out_info, b, NULL);
    NUL(gvmm_block_destroy, block, NULL);
    NUL(gvmm_block_export, block, NULL, &fd);
    NUL(gvmm_block_export, out_fd, b, NULL);
    NUL(gvmm_block_import, device, NULL, 0, GRANULE, &block);
    NUL(gvmm_block_import, out_block, d, 0, GRANULE, NULL);
}

static void reservations(void) {
    gvmm_remap_entry entry = {r, 0, b};
    gvmm_access access = {0, 3};
    void *streams[1] = {s};
    gvmm_reservation *range = NULL;
    gvmm_reserve_desc reserve_desc = {.struct_size = sizeof reserve_desc, .access_count = 1, .access_stride_bytes = 8};
    NUL(gvmm_reserve, device, NULL, GRANULE, NULL, &range, &u);
    NUL(gvmm_reserve, desc->access, d, GRANULE, &reserve_desc, &range, &u);
    NUL(gvmm_reserve, out_reservation, d, GRANULE, NULL, NULL, &u);
    NUL(gvmm_reserve, out_address, d, GRANULE, NULL, &range, NULL);
    MAY(gvmm_reserve, desc, GVMM_STATUS_SUCCESS, d, GRANULE, NULL, &range, &u);
    OK(gvmm_reservation_destroy(range));
    NUL(gvmm_map, reservation, NULL, 0, b);
    NUL(gvmm_map, block, r, 0, NULL);
    NUL(gvmm_remap, device, NULL, &entry, 1, sizeof entry, streams, 1, NULL);
    NUL(gvmm_remap, entries, d, NULL, 1, sizeof entry, streams, 1, NULL);
    NUL(gvmm_remap, streams, d, &entry, 1, sizeof entry, NULL, 1, NULL);
    MAY(gvmm_remap, out_report, GVMM_STATUS_SUCCESS, d, &entry, 1, sizeof entry, streams, 1, NULL);
    entry.block = NULL;
    MAY(gvmm_remap, entries->block, GVMM_STATUS_SUCCESS, d, &entry, 1, sizeof entry, streams, 1, NULL);
    entry.reservation = NULL;
    NUL(gvmm_remap, entries->reservation, d, &entry, 1, sizeof entry, streams, 1, NULL);
    NUL(gvmm_device_retire, entries->reservation, d, &entry, 1, sizeof entry, streams, 1);
    entry.reservation = r;
    NUL(gvmm_device_retire, device, NULL, &entry, 1, sizeof entry, streams, 1);
    NUL(gvmm_device_retire, entries, d, NULL, 1, sizeof entry, streams, 1);
    NUL(gvmm_device_retire, streams, d, &entry, 1, sizeof entry, NULL, 1);
    NUL(gvmm_reservation_unmap, reservation, NULL, 0, GRANULE);
    NUL(gvmm_reservation_set_access, reservation, NULL, 0, GRANULE, &access, 1, sizeof access);
    NUL(gvmm_reservation_set_access, access, r, 0, GRANULE, NULL, 1, sizeof access);
    gvmm_reservation_info range_info = {.struct_size = sizeof range_info};
    NUL(gvmm_reservation_query, reservation, NULL, &range_info);
    NUL(gvmm_reservation_query, out_info, r, NULL);
    NUL(gvmm_reservation_destroy, reservation, NULL);
}

static void allocations(void) {
    gvmm_allocation *allocation = NULL;
    NUL(gvmm_allocation_create, device, NULL, GRANULE, &allocation, &u);
    NUL(gvmm_allocation_create, out_allocation, d, GRANULE, NULL, &u);
    NUL(gvmm_allocation_create, out_address, d, GRANULE, &allocation, NULL);
    gvmm_allocation_info allocation_info = {.struct_size = sizeof allocation_info};
    NUL(gvmm_allocation_query, allocation, NULL, &allocation_info);
    NUL(gvmm_allocation_query, out_info, a, NULL);
    gvmm_access access = {0, 3};
    NUL(gvmm_allocation_set_access, allocation, NULL, &access, 1, sizeof access);
    NUL(gvmm_allocation_set_access, access, a, NULL, 1, sizeof access);
    NUL(gvmm_allocation_destroy, allocation, NULL);
}

static void copies(void) {
    gvmm_copy_slice slice = {m.address, m.address + 4096, 8};
    NUL(gvmm_shadow_copy, device, NULL, s, &slice, 1, sizeof slice, NULL);
    MAY(gvmm_shadow_copy, stream, GVMM_ERROR_INVALID_STREAM, d, NULL, &slice, 1, sizeof slice, NULL);
    NUL(gvmm_shadow_copy, slices, d, s, NULL, 1, sizeof slice, NULL);
    MAY(gvmm_shadow_copy, out_launches, GVMM_STATUS_SUCCESS, d, s, &slice, 1, sizeof slice, NULL);
}

static void bindings(void) {
    uint64_t permanent = 0;
    NUL(gvmm_binding_permanent, binding, NULL, 0, &permanent);
    NUL(gvmm_binding_permanent, out_address, n, 0, NULL);
    uint64_t sizes[1] = {1};
    gvmm_slot slot = {.size_bytes = 4096};
    gvmm_binding *binding = NULL;
    NUL(gvmm_compute_threshold, size_bytes, NULL, 1, 1, 1, 1, &u);
    NUL(gvmm_compute_threshold, out_threshold_bytes, sizes, 1, 1, 1, 1, NULL);
    NUL(gvmm_binding_create, device, NULL, NULL, &slot, 1, sizeof slot, &binding);
    NUL(gvmm_binding_create, slots, d, NULL, NULL, 1, sizeof slot, &binding);
    NUL(gvmm_binding_create, out_binding, d, NULL, &slot, 1, sizeof slot, NULL);
    gvmm_binding_desc binding_desc = {.struct_size = sizeof binding_desc, .access_count = 1, .access_stride_bytes = 8};
    NUL(gvmm_binding_create, desc->access, d, &binding_desc, &slot, 1, sizeof slot, &binding);
    MAY(gvmm_binding_create, desc, GVMM_STATUS_SUCCESS, d, NULL, &slot, 1, sizeof slot, &binding);
    OK(gvmm_binding_destroy(binding));
    NUL(gvmm_binding_begin, binding, NULL, s, &buffer, 1, sizeof buffer, 0, NULL);
    MAY(gvmm_binding_begin, stream, GVMM_ERROR_INVALID_STREAM, n, NULL, &buffer, 1, sizeof buffer, 0, NULL);
    NUL(gvmm_binding_begin, buffers, n, s, NULL, 1, sizeof buffer, 0, NULL);
    MAY(gvmm_binding_begin, out_report, GVMM_STATUS_RECORD_AGAIN, n, s, &buffer, 1, sizeof buffer, 0, NULL);
    OK(gvmm_binding_addresses(n, &u, 1, &v));
    OK(gvmm_binding_begin(n, s, &buffer, 1, sizeof buffer, v, NULL));
    NUL(gvmm_binding_record_copies, binding, NULL, s, v, GVMM_COPIES_IN);
    MAY(gvmm_binding_record_copies, stream, GVMM_ERROR_INVALID_STREAM, n, NULL, v, GVMM_COPIES_IN);
    NUL(gvmm_binding_use_graph, binding, NULL, g);
    NUL(gvmm_binding_end, binding, NULL, NULL);
    MAY(gvmm_binding_end, out_report, GVMM_STATUS_SUCCESS, n, NULL);
    MAY(gvmm_binding_use_graph, graph, GVMM_STATUS_SUCCESS, n, NULL);
    NUL(gvmm_binding_abort, binding, NULL);
    NUL(gvmm_binding_addresses, binding, NULL, &u, 1, &v);
    NUL(gvmm_binding_addresses, out_addresses, n, NULL, 1, &v);
    NUL(gvmm_binding_addresses, out_generation, n, &u, 1, NULL);
    NUL(gvmm_binding_actions, binding, NULL, &w, 1);
    NUL(gvmm_binding_actions, out_actions, n, NULL, 1);
    size_t size = 0;
    char bytes[8];
    gvmm_patch patch;
    gvmm_explanation explanation;
    NUL(gvmm_binding_patches, binding, NULL, &patch, 1, &size);
    MAY(gvmm_binding_patches, out_patches, GVMM_STATUS_SUCCESS, n, NULL, 0, &size);
    NUL(gvmm_binding_patches, out_patches, n, NULL, 1, &size);
    NUL(gvmm_binding_patches, out_count, n, &patch, 1, NULL);
    NUL(gvmm_binding_plan_export, binding, NULL, bytes, sizeof bytes, &size);
    NUL(gvmm_binding_plan_export, out_bytes, n, NULL, 1, &size);
    NUL(gvmm_binding_plan_export, out_size_bytes, n, bytes, sizeof bytes, NULL);
    NUL(gvmm_binding_plan_import, binding, NULL, bytes, sizeof bytes);
    NUL(gvmm_binding_plan_import, bytes, n, NULL, 1);
    NUL(gvmm_binding_plan_check, binding, NULL, 0);
    gvmm_plan_info plan_info = {.struct_size = sizeof plan_info};
    NUL(gvmm_binding_plan_query, binding, NULL, &plan_info);
    NUL(gvmm_binding_plan_query, out_info, n, NULL);
    NUL(gvmm_binding_explain, binding, NULL, &explanation, 1);
    NUL(gvmm_binding_explain, out_explanations, n, NULL, 1);
    NUL(gvmm_binding_replan, binding, NULL);
    gvmm_plan_desc plan_desc = {.struct_size = sizeof plan_desc, .mode = GVMM_PLAN_AUTO, .use_count = 1,
                                .use_stride_bytes = sizeof(gvmm_command_use)};
    binding_desc = (gvmm_binding_desc){.struct_size = sizeof binding_desc, .plan = &plan_desc};
    NUL(gvmm_binding_create, desc->plan->uses, d, &binding_desc, &slot, 1, sizeof slot, &binding);
    gvmm_binding_info binding_info = {.struct_size = sizeof binding_info};
    NUL(gvmm_binding_query, binding, NULL, &binding_info);
    NUL(gvmm_binding_query, out_info, n, NULL);
    NUL(gvmm_binding_drop_idle, binding, NULL, &u);
    NUL(gvmm_binding_drop_idle, out_unmapped, n, NULL);
    NUL(gvmm_binding_destroy, binding, NULL);
}

static void segments(void) {
    gvmm_segment *segment = NULL;
    gvmm_segment_desc desc = {.struct_size = sizeof desc, .access_count = 1, .access_stride_bytes = 8};
    gvmm_access access = {0, 3};
    void *streams[1] = {s};
    size_t count = 0;
    gvmm_chunk_run run;
    NUL(gvmm_segment_create, device, NULL, NULL, &segment, &u);
    MAY(gvmm_segment_create, desc, GVMM_STATUS_SUCCESS, d, NULL, &segment, &u);
    OK(gvmm_segment_destroy(segment));
    NUL(gvmm_segment_create, desc->access, d, &desc, &segment, &u);
    NUL(gvmm_segment_create, out_segment, d, NULL, NULL, &u);
    NUL(gvmm_segment_create, out_address, d, NULL, &segment, NULL);
    gvmm_segment_info info = {.struct_size = sizeof info};
    NUL(gvmm_segment_query, segment, NULL, &info);
    NUL(gvmm_segment_query, out_info, e, NULL);
    OK(gvmm_segment_query(e, &info));
    NUL(gvmm_segment_map, segment, NULL, info.address, 1, &u, &v);
    MAY(gvmm_segment_map, out_address, GVMM_STATUS_SUCCESS, e, info.address, 1, NULL, &v);
    MAY(gvmm_segment_map, out_size_bytes, GVMM_STATUS_SUCCESS, e, info.address, 1, &u, NULL);
    NUL(gvmm_segment_unmap, segment, NULL, info.address, info.size_bytes, streams, 1, &u);
    NUL(gvmm_segment_unmap, streams, e, info.address, info.size_bytes, NULL, 1, &u);
    NUL(gvmm_segment_unmap, out_bytes, e, info.address, info.size_bytes, streams, 1, NULL);
    OK(gvmm_segment_unmap(e, info.address, info.size_bytes, streams, 1, &u));
    NUL(gvmm_segment_live_runs, segment, NULL, &run, 1, sizeof run, &count);
    NUL(gvmm_segment_live_runs, out_runs, e, NULL, 1, sizeof run, &count);
    NUL(gvmm_segment_live_runs, out_needed, e, &run, 1, sizeof run, NULL);
    NUL(gvmm_segment_set_access, segment, NULL, &access, 1, sizeof access);
    NUL(gvmm_segment_set_access, access, e, NULL, 1, sizeof access);
    NUL(gvmm_segment_destroy, segment, NULL);
    OK(gvmm_segment_destroy(e));
}

static uint32_t filter(void *stream, void *user_data) { return stream == s && user_data == NULL; }
static void press(uint64_t size, void *user_data) { (void)size, (void)user_data; }

static void pools(void) {
    gvmm_pool *pool = NULL;
    gvmm_pool_desc desc = {.struct_size = sizeof desc, .access_count = 1, .access_stride_bytes = 8};
    gvmm_access access = {0, 3};
    size_t count = 0;
    uint64_t block = 0;
    NUL(gvmm_pool_create, device, NULL, NULL, &pool);
    NUL(gvmm_pool_create, desc->access, d, &desc, &pool);
    NUL(gvmm_pool_create, out_pool, d, NULL, NULL);
    MAY(gvmm_pool_create, desc, GVMM_STATUS_SUCCESS, d, NULL, &pool);
    OK(gvmm_pool_destroy(pool));
    NUL(gvmm_pool_alloc, pool, NULL, 1, s, &block);
    NUL(gvmm_pool_alloc, out_address, p, 1, s, NULL);
    MAY(gvmm_pool_alloc, stream, GVMM_ERROR_INVALID_STREAM, p, 1, NULL, &block);
    OK(gvmm_pool_alloc(p, 1, s, &block));
    NUL(gvmm_pool_record_stream, pool, NULL, block, s);
    MAY(gvmm_pool_record_stream, stream, GVMM_ERROR_INVALID_STREAM, p, block, NULL);
    gvmm_pool_block place = {.struct_size = sizeof place};
    NUL(gvmm_pool_find, pool, NULL, block, &place);
    NUL(gvmm_pool_find, out_block, p, block, NULL);
    NUL(gvmm_pool_free, pool, NULL, block);
    NUL(gvmm_pool_free_on, pool, NULL, block, s);
    MAY(gvmm_pool_free_on, stream, GVMM_ERROR_INVALID_STREAM, p, block, NULL);
    NUL(gvmm_pool_forget_stream, pool, NULL, s);
    MAY(gvmm_pool_forget_stream, stream, GVMM_ERROR_INVALID_STREAM, p, NULL);
    NUL(gvmm_pool_pin, pool, NULL, block, 1);
    NUL(gvmm_pool_unpin, pool, NULL, block, 1);
    OK(gvmm_pool_free(p, block));
    NUL(gvmm_pool_trim, pool, NULL, &u);
    NUL(gvmm_pool_trim, out_bytes, p, NULL);
    NUL(gvmm_pool_set_limit, pool, NULL, 1 << 20);
    NUL(gvmm_pool_set_fraction, pool, NULL, 0.5);
    NUL(gvmm_pool_set_access, pool, NULL, &access, 1, sizeof access);
    NUL(gvmm_pool_set_access, access, p, NULL, 1, sizeof access);
    NUL(gvmm_pool_on_pressure, pool, NULL, press, NULL);
    NUL(gvmm_pool_on_pressure, function, p, NULL, NULL);
    MAY(gvmm_pool_on_pressure, user_data, GVMM_STATUS_SUCCESS, p, press, NULL);
    NUL(gvmm_pool_capture_begin, pool, NULL, 1, 2, filter, NULL);
    MAY(gvmm_pool_capture_begin, filter, GVMM_STATUS_SUCCESS, p, 1, 2, NULL, NULL);
    NUL(gvmm_pool_capture_end, pool, NULL, 1, 2);
    OK(gvmm_pool_capture_end(p, 1, 2));
    MAY(gvmm_pool_capture_begin, user_data, GVMM_STATUS_SUCCESS, p, 1, 2, filter, NULL);
    OK(gvmm_pool_alloc(p, 1, s, &block)); /* the filter sees NULL */
    OK(gvmm_pool_find(p, block, &place));
    CHECK(place.id_high == 1 && place.id_low == 2);
    OK(gvmm_pool_free(p, block));
    OK(gvmm_pool_capture_end(p, 1, 2));
    NUL(gvmm_pool_capture_release, pool, NULL, 1, 2);
    OK(gvmm_pool_capture_release(p, 1, 2));
    OK(gvmm_pool_capture_release(p, 1, 2));
    gvmm_pool_stats stats = {.struct_size = sizeof stats};
    NUL(gvmm_pool_query, pool, NULL, &stats);
    NUL(gvmm_pool_query, out_stats, p, NULL);
    gvmm_pool_stream one;
    NUL(gvmm_pool_stream_stats, pool, NULL, &one, 1, sizeof one, &count);
    NUL(gvmm_pool_stream_stats, out_streams, p, NULL, 1, sizeof one, &count);
    NUL(gvmm_pool_stream_stats, out_needed, p, &one, 1, sizeof one, NULL);
    NUL(gvmm_pool_reset_peaks, pool, NULL);
    char text[8];
    NUL(gvmm_pool_snapshot, pool, NULL, text, sizeof text, &count);
    NUL(gvmm_pool_snapshot, out_json, p, NULL, 1, &count);
    MAY(gvmm_pool_snapshot, out_json, GVMM_STATUS_SUCCESS, p, NULL, 0, &count);
    NUL(gvmm_pool_snapshot, out_needed, p, text, sizeof text, NULL);
    NUL(gvmm_pool_destroy, pool, NULL);
    OK(gvmm_pool_destroy(p));
}

static void teardown(void) {
    OK(gvmm_binding_destroy(n));
    OK(gvmm_stream_synchronize(s));
    OK(gvmm_graph_destroy(g));
    OK(gvmm_allocation_destroy(a));
    OK(gvmm_reservation_destroy(r));
    OK(gvmm_block_destroy(b));
    OK(gvmm_stream_destroy(s));
    OK(gvmm_device_close(d));
}

/* Before each, the last error is NO_DEVICE. */
static void torch(void) {
    gvmm_torch_pool_id id = {1, 2};
    void *p = gvmm_torch_alloc(8, 0, s);
    CHECK(p != NULL);
    HOOK(gvmm_torch_alloc, stream, GVMM_ERROR_INVALID_STREAM, 8, 0, NULL);
    HOOK(gvmm_torch_free, address, GVMM_ERROR_NO_DEVICE, NULL, 8, 0, s);
    HOOK(gvmm_torch_delete, address, GVMM_ERROR_NO_DEVICE, NULL);
    HOOK(gvmm_torch_record_stream, address, GVMM_ERROR_NO_DEVICE, NULL, s);
    HOOK(gvmm_torch_record_stream, stream, GVMM_ERROR_INVALID_STREAM, p, NULL);
    HOOK(gvmm_torch_base_alloc, address, GVMM_ERROR_INVALID_ARGUMENT, NULL, NULL);
    HOOK(gvmm_torch_base_alloc, out_size_bytes, GVMM_ERROR_NO_DEVICE, p, NULL);
    HOOK(gvmm_torch_begin_allocate_to_pool, filter, GVMM_ERROR_NULL_POINTER, 0, id, NULL);
    NUL(gvmm_torch_pool, out_pool, 0, NULL);
    HOOK(gvmm_torch_free, stream, GVMM_ERROR_NO_DEVICE, p, 8, 0, NULL);
}

static void xpu(void) {
    HOOK(gvmm_xpu_alloc, queue, GVMM_ERROR_DRIVER_NOT_FOUND, 8, 0, NULL); /* no SYCL library here */
    HOOK(gvmm_xpu_free, address, GVMM_ERROR_NO_DEVICE, NULL, 8, 0, NULL);
    HOOK(gvmm_xpu_free, queue, GVMM_ERROR_NO_DEVICE, &d, 8, 0, NULL);
    HOOK(gvmm_xpu_record_stream, address, GVMM_ERROR_NO_DEVICE, NULL, s);
    HOOK(gvmm_xpu_record_stream, queue, GVMM_ERROR_INVALID_ARGUMENT, &d, NULL);
    NUL(gvmm_xpu_pool, out_pool, 0, NULL);
}

int main(void) {
    setenv("GVMM_HOST_MEMORY", "256M", 1); /* valgrind has few addresses to give */
    setup();
    tables_and_options();
    messages();
    devices();
    streams_and_graphs();
    timelines();
    blocks();
    reservations();
    allocations();
    copies();
    bindings();
    torch();
    xpu();
    segments();
    pools();
    teardown();
    return 0;
}
