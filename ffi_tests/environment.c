/* What each variable changes, and that a descriptor wins over the environment. */
#include "common.h"

static void the_device(gvmm_device *device) {
    gvmm_device_info info = {.struct_size = sizeof info};
    gvmm_block *block = NULL;
    OK(gvmm_device_query(device, &info));
    CHECK(info.driver == GVMM_DRIVER_HOST && info.device_count == 3);
    CHECK(info.total_bytes == 3ull << 30);
    CHECK(!(info.capabilities & (GVMM_CAPABILITY_JOINT_COPIES | GVMM_CAPABILITY_SHARING)));
    CHECK(info.capabilities & GVMM_CAPABILITY_ALIASING);
    CHECK(strcmp(info.simulated_costs, "h200") == 0 && info.bandwidth_bytes_per_s > 4000000000000ull);
    EXPECT(GVMM_ERROR_OUT_OF_DEVICE_MEMORY, gvmm_block_create(device, 4ull << 30, 0, &block));
    EXPECT(GVMM_ERROR_UNSUPPORTED, gvmm_block_create(device, GRANULE, GVMM_BLOCK_EXPORTABLE, &block));
}

enum { SLOTS = 3 };
static const gvmm_slot slots[SLOTS] = {{.size_bytes = 4096}, {.size_bytes = 4096}, {.size_bytes = 8192}};

/* A binding, and the threshold that it is created with. */
static gvmm_binding *bind(gvmm_device *device, uint64_t threshold_bytes, uint64_t free_bytes, uint64_t wanted) {
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = threshold_bytes, .free_bytes = free_bytes};
    gvmm_binding_info info = {.struct_size = sizeof info};
    gvmm_binding *binding = NULL;
    OK(gvmm_binding_create(device, &desc, slots, SLOTS, sizeof slots[0], &binding));
    OK(gvmm_binding_query(binding, &info));
    CHECK(info.threshold_bytes == wanted);
    return binding;
}

static void thresholds(gvmm_device *device) {
    OK(gvmm_binding_destroy(bind(device, GVMM_THRESHOLD_DEFAULT, 0, 4096))); /* the variable's */
    OK(gvmm_binding_destroy(bind(device, GVMM_THRESHOLD_AUTO, 0, 8192)));    /* the descriptor's, from here on */
    OK(gvmm_binding_destroy(bind(device, GVMM_THRESHOLD_OFF, 0, GVMM_THRESHOLD_OFF)));
    OK(gvmm_binding_destroy(bind(device, 5000, 0, 5000)));
    /* All shadows, both ways, in 1 % of what is free; without a figure, in 0.5 % of the total. */
    OK(gvmm_binding_destroy(bind(device, GVMM_THRESHOLD_AUTO, 100 * 2 * 16384, 8192)));
    OK(gvmm_binding_destroy(bind(device, GVMM_THRESHOLD_AUTO, 100 * 2 * 16384 - 1, 4096)));
    OK(gvmm_binding_destroy(bind(device, GVMM_THRESHOLD_AUTO, 100 * 2 * 8192 - 1, GVMM_THRESHOLD_OFF)));
}

/* The variable plans, unless a descriptor asks for a threshold or says no. */
static void plans(gvmm_device *device) {
    const gvmm_plan_desc no = {.struct_size = sizeof no, .mode = GVMM_PLAN_THRESHOLD};
    const struct {
        gvmm_binding_desc desc;
        uint32_t has_planner;
    } cases[] = {
        {{.struct_size = sizeof(gvmm_binding_desc)}, 1},
        {{.struct_size = sizeof(gvmm_binding_desc), .threshold_bytes = GVMM_THRESHOLD_AUTO}, 0},
        {{.struct_size = sizeof(gvmm_binding_desc), .plan = &no}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gvmm_binding *binding = NULL;
        gvmm_plan_info info = {.struct_size = sizeof info};
        OK(gvmm_binding_create(device, &cases[i].desc, slots, SLOTS, sizeof slots[0], &binding));
        OK(gvmm_binding_plan_query(binding, &info));
        CHECK(info.has_planner == cases[i].has_planner);
        OK(gvmm_binding_destroy(binding));
    }
}

/* Both bindings ask for 8,192 bytes of shadows, which is all that there are. */
static void one_budget(gvmm_device *device) {
    gvmm_stream *stream = make_stream(device);
    gvmm_binding *bindings[2];
    memory m[SLOTS];
    gvmm_buffer buffers[SLOTS];
    gvmm_binding_info info = {.struct_size = sizeof info};
    for (int i = 0; i < SLOTS; i++) m[i] = allocate(device, GRANULE), buffers[i] = buffer_of(m[i], 8192);
    for (int i = 0; i < 2; i++) {
        bindings[i] = bind(device, GVMM_THRESHOLD_DEFAULT, 0, 4096);
        EXPECT(GVMM_STATUS_RECORD_AGAIN,
               gvmm_binding_begin(bindings[i], stream, buffers, SLOTS, sizeof buffers[0], 0, NULL));
        OK(gvmm_binding_query(bindings[i], &info));
        CHECK(info.copied_slots == (i == 0 ? 2 : 0) && info.shadow_bytes == (i == 0 ? 8192 : 0));
    }
    gvmm_step_report report = {.struct_size = sizeof report};
    OK(gvmm_binding_begin(bindings[0], stream, buffers, SLOTS, sizeof buffers[0], 1, &report));
    CHECK(report.copied_slots == 2 && report.copy_launches == 2); /* no joint copies */
    OK(gvmm_binding_end(bindings[0], NULL));
    for (int i = 0; i < 2; i++) OK(gvmm_binding_destroy(bindings[i]));
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_device_drain(device));
    for (int i = 0; i < SLOTS; i++) OK(gvmm_allocation_destroy(m[i].allocation));
}

static void few_mappings(gvmm_device *device) {
    enum { MOST = 100 };
    gvmm_reservation *ranges[MOST];
    uint64_t address = 0;
    gvmm_status status = GVMM_STATUS_SUCCESS;
    int count = 0;
    while (count < MOST && status == GVMM_STATUS_SUCCESS)
        status = gvmm_reserve(device, GRANULE, NULL, &ranges[count++], &address);
    EXPECT(GVMM_ERROR_MAP_LIMIT, status);
    for (count--; count > 0; count--) OK(gvmm_reservation_destroy(ranges[count - 1]));
}

int main(void) {
    setenv("GVMM_DRIVER", "host", 1);
    setenv("GVMM_HOST_DEVICES", "3", 1);
    setenv("GVMM_HOST_MEMORY", "3G", 1);
    setenv("GVMM_HOST_CAPS", "-joint_copies,-sharing", 1);
    setenv("GVMM_HOST_COSTS", "h200", 1);
    setenv("GVMM_HOST_MAX_MAPS", "64", 1);
    setenv("GVMM_SHADOW_BUDGET", "8K", 1);
    setenv("GVMM_PLAN", "auto", 1);
    setenv("GVMM_PROFILE", "/nowhere/there/is/no/such.profile", 1);
    setenv("XLA_VMM_TMP_COPY_THRESHOLD", "4096", 1);
    gvmm_device *device = NULL;
    OK(gvmm_device_open(NULL, &device));
    the_device(device);
    thresholds(device);
    plans(device);
    one_budget(device);
    few_mappings(device);
    OK(gvmm_device_close(device));
    return 0;
}
