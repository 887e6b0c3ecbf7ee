/* Options by a struct: each wins over its variable, they are set once, and not after a driver was opened. */
#include "common.h"

static gvmm_options none(void) {
    gvmm_options options = {.struct_size = sizeof options};
    return options;
}

/* What is refused sets nothing, so that a later call may still set something. */
static void refused(void) {
    gvmm_options wrong = none();
    wrong.driver = 5;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_configure(&wrong));
    wrong = none();
    wrong.host_costs = "h1000";
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_configure(&wrong));
    wrong = none();
    wrong.host_devices = 65;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_configure(&wrong));
    wrong = none();
    wrong.profile = "\xff\xfe";
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_configure(&wrong));
    wrong = none();
    wrong.struct_size = 0;
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_configure(&wrong));
}

static int warnings;
static void listen(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)target, (void)user_data;
    warnings += level == GVMM_LOG_LEVEL_WARN && strstr(message, "GVMM_HOST_MAX_MAPS") != NULL;
}

static void budget(gvmm_device *device) {
    gvmm_slot slots[2] = {{.size_bytes = 4096}, {.size_bytes = 4096}};
    memory m = allocate(device, 2 * GRANULE);
    gvmm_buffer buffers[2] = {buffer_of(m, 4096), buffer_of(m, 4096)};
    buffers[1].address += GRANULE;
    buffers[0].block = buffers[1].block = NULL;
    buffers[0].allocation_id = 1, buffers[1].allocation_id = 2;
    gvmm_binding *binding = NULL;
    gvmm_stream *stream = make_stream(device);
    OK(gvmm_binding_create(device, NULL, slots, 2, sizeof slots[0], &binding));
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(binding, stream, buffers, 2, sizeof buffers[0], 0, NULL));
    gvmm_binding_info info = {.struct_size = sizeof info};
    OK(gvmm_binding_query(binding, &info));
    CHECK(info.copied_slots == 2 && info.threshold_bytes == 4096 && info.shadow_bytes == 8192);
    OK(gvmm_binding_destroy(binding));
    OK(gvmm_allocation_destroy(m.allocation));
    OK(gvmm_stream_destroy(stream));
}

int main(void) {
    setenv("GVMM_DRIVER", "level_zero", 1);
    setenv("GVMM_HOST_DEVICES", "1", 1);
    setenv("GVMM_HOST_MEMORY", "1G", 1);
    setenv("GVMM_SHADOW_BUDGET", "0", 1);
    setenv("GVMM_HOST_MAX_MAPS", "none of it", 1); /* stays, and is warned of */
    setenv("XLA_VMM_TMP_COPY_THRESHOLD", "0", 1);
    OK(gvmm_log_set_callback(listen, NULL, GVMM_LOG_LEVEL_WARN));
    refused();

    char costs[] = "h200";
    gvmm_options options = none();
    options.driver = GVMM_DRIVER_HOST;
    options.log = "off";
    options.host_devices = 3;
    options.host_memory_bytes = 3ull << 30;
    options.host_capabilities = "-sharing";
    options.host_costs = costs;
    options.shadow_budget_bytes = 8192;
    options.threshold_bytes = 4096;
    OK(gvmm_configure(&options));
    memset(costs, 'x', sizeof costs - 1); /* the text was copied */
    options.host_costs = "none";
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_configure(&options));

    gvmm_device *device = NULL;
    OK(gvmm_device_open(NULL, &device));
    gvmm_device_info info = {.struct_size = sizeof info};
    OK(gvmm_device_query(device, &info));
    CHECK(info.driver == GVMM_DRIVER_HOST && info.device_count == 3 && info.total_bytes == 3ull << 30);
    CHECK(!(info.capabilities & GVMM_CAPABILITY_SHARING) && strcmp(info.simulated_costs, "h200") == 0);
    CHECK(warnings == 1);
    budget(device);
    options = none();
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_configure(&options));
    OK(gvmm_device_close(device));
    return 0;
}
