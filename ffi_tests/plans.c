/* Plans: watched steps, one RECORD_AGAIN, patches that the caller makes, a plan that goes to another rank, bad input. */
#include "common.h"

enum { SLOTS = 3, HOMES = 2 };

static gvmm_device *device;
static gvmm_stream *stream;
static memory homes[HOMES][SLOTS];
static const gvmm_slot slots[SLOTS] = {{.size_bytes = 64}, {.size_bytes = 4096}, {.size_bytes = GRANULE}};
/* Two slots share a command. */
static const gvmm_command_use uses[] = {{1, 7}, {0, 7}, {2, 9}};

static gvmm_binding *bind_with(gvmm_plan_desc plan) {
    gvmm_binding *binding = NULL;
    plan.struct_size = sizeof plan;
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .plan = &plan};
    OK(gvmm_binding_create(device, &desc, slots, SLOTS, sizeof slots[0], &binding));
    return binding;
}

static gvmm_binding *patching(void) {
    return bind_with((gvmm_plan_desc){.mode = GVMM_PLAN_AUTO, .uses = uses, .use_count = 3,
                                      .use_stride_bytes = sizeof uses[0]});
}

/* The buffers of a step: only the first slot moves. */
static void begin(gvmm_binding *binding, int step, uint64_t *generation, uint64_t *addresses, gvmm_step_report *report) {
    gvmm_buffer buffers[SLOTS];
    for (int i = 0; i < SLOTS; i++) buffers[i] = buffer_of(homes[i == 0 ? step % HOMES : 0][i], slots[i].size_bytes);
    gvmm_status status;
    do {
        *report = (gvmm_step_report){.struct_size = sizeof *report};
        status = gvmm_binding_begin(binding, stream, buffers, SLOTS, sizeof buffers[0], *generation, report);
        if (status == GVMM_STATUS_RECORD_AGAIN) OK(gvmm_binding_addresses(binding, addresses, SLOTS, generation));
    } while (status == GVMM_STATUS_RECORD_AGAIN);
    EXPECT(GVMM_STATUS_SUCCESS, status);
}

/* Patches what was recorded, as an executor would, and does the commands' work. */
static void launch(gvmm_binding *binding, uint64_t *addresses, const gvmm_step_report *report, uint32_t value) {
    gvmm_patch patches[SLOTS];
    size_t count = 99;
    OK(gvmm_binding_patches(binding, NULL, 0, &count));
    CHECK(count == report->patched_commands && count <= SLOTS);
    OK(gvmm_binding_patches(binding, patches, SLOTS, &count));
    for (size_t i = 0; i < count; i++) {
        CHECK(patches[i].command == 7 && patches[i].slot == 0);
        addresses[patches[i].slot] = patches[i].address;
    }
    OK(gvmm_stream_synchronize(stream));
    for (int i = 0; i < SLOTS; i++) *at(addresses[i]) = value + (uint32_t)i;
    OK(gvmm_binding_end(binding, NULL));
    OK(gvmm_stream_synchronize(stream));
}

static gvmm_plan_info query(gvmm_binding *binding) {
    gvmm_plan_info info = {.struct_size = sizeof info};
    OK(gvmm_binding_plan_query(binding, &info));
    return info;
}

static uint64_t run(gvmm_binding *binding, int steps) {
    uint64_t generation = 0, addresses[SLOTS] = {0};
    gvmm_step_report report;
    for (int step = 0; step < steps; step++) {
        begin(binding, step, &generation, addresses, &report);
        launch(binding, addresses, &report, 100u * (uint32_t)step);
        for (int i = 0; i < SLOTS; i++)
            CHECK(*at(homes[i == 0 ? step % HOMES : 0][i].address) == 100u * (uint32_t)step + (uint32_t)i);
    }
    return generation;
}

static void planned(void) {
    gvmm_binding *binding = patching();
    gvmm_plan_info info = query(binding);
    CHECK(info.has_planner == 1 && info.has_plan == 0 && info.digest == 0);
    char bytes[256];
    size_t size = 0;
    gvmm_explanation why[SLOTS];
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_plan_export(binding, bytes, sizeof bytes, &size));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_explain(binding, why, SLOTS));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_plan_check(binding, 1));
    run(binding, 9);
    info = query(binding);
    CHECK(info.has_plan == 1 && info.digest != 0 && info.patched_slots == 1 && info.surprises == 0);
    CHECK(info.counted_ps > 0 && info.shadow_bytes == 0 && info.replan_advised == 0);
    uint32_t actions[SLOTS];
    OK(gvmm_binding_actions(binding, actions, SLOTS));
    CHECK(actions[0] == GVMM_ACTION_PATCH && actions[1] == GVMM_ACTION_BAKE && actions[2] == GVMM_ACTION_BAKE);
    EXPECT(GVMM_ERROR_COUNT_MISMATCH, gvmm_binding_explain(binding, why, SLOTS - 1));
    OK(gvmm_binding_explain(binding, why, SLOTS));
    CHECK(why[0].action == GVMM_ACTION_PATCH && why[0].moved_steps == 4 && why[0].cost_ps < why[0].next_cost_ps);
    CHECK(why[0].next_action != GVMM_ACTION_PATCH && why[1].cost_ps == 0);
    gvmm_patch patch;
    size_t count = 0;
    OK(gvmm_binding_patches(binding, &patch, 1, &count));
    CHECK(count == 1 && patch.slot == 0 && patch.command == 7 && patch.address == homes[0][0].address);

    /* To another rank, which has watched nothing. */
    OK(gvmm_binding_plan_export(binding, NULL, 0, &size));
    CHECK(size > 0 && size <= sizeof bytes);
    EXPECT(GVMM_ERROR_COUNT_MISMATCH, gvmm_binding_plan_export(binding, bytes, size - 1, &size));
    OK(gvmm_binding_plan_export(binding, bytes, sizeof bytes, &size));
    gvmm_binding *other = patching();
    OK(gvmm_binding_plan_import(other, bytes, size));
    OK(gvmm_binding_plan_check(other, info.digest));
    EXPECT(GVMM_ERROR_PLAN_MISMATCH, gvmm_binding_plan_check(other, info.digest + 1));
    CHECK(run(other, 4) == 1 && query(other).patched_slots == 1);
    bytes[size - 1] ^= 1;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_binding_plan_import(other, bytes, size));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_binding_plan_import(other, NULL, 0));
    bytes[8] ^= 1;
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_binding_plan_import(other, bytes, size));
    OK(gvmm_binding_replan(other));
    CHECK(query(other).has_plan == 0);
    CHECK(run(other, 6) == 1); /* what it sees asks for no other addresses */
    OK(gvmm_binding_destroy(other));
    OK(gvmm_binding_destroy(binding));
}

static size_t patches_of(gvmm_binding *binding, gvmm_patch *patches, size_t capacity) {
    size_t count = 99;
    OK(gvmm_binding_patches(binding, patches, capacity, &count));
    return count;
}

/* One slot in two commands: listed in part never, and as often as anybody asks. */
static void patch_lists(void) {
    const gvmm_command_use both[] = {{0, 7}, {0, 8}};
    gvmm_binding *b = bind_with((gvmm_plan_desc){.mode = GVMM_PLAN_AUTO, .uses = both, .use_count = 2,
                                                 .use_stride_bytes = sizeof both[0]});
    gvmm_patch patches[3] = {{.command = 99}, {.command = 99}, {.command = 99}};
    CHECK(patches_of(b, NULL, 0) == 0); /* before any begin */
    uint64_t generation = 0, addresses[SLOTS];
    gvmm_step_report report;
    for (int step = 0; step < 7; step++) {
        begin(b, step, &generation, addresses, &report);
        OK(gvmm_binding_end(b, NULL));
    }
    begin(b, 1, &generation, addresses, &report);
    CHECK(report.patched_commands == 2);
    size_t count = 99;
    EXPECT(GVMM_ERROR_COUNT_MISMATCH, gvmm_binding_patches(b, patches, 1, &count));
    CHECK(count == 99 && patches[0].command == 99);
    for (int again = 0; again < 2; again++) {
        CHECK(patches_of(b, patches, 3) == 2 && patches[2].command == 99);
        CHECK(patches[0].command == 7 && patches[1].command == 8 && patches[0].slot == 0 && patches[1].slot == 0);
        CHECK(patches[0].address == homes[1][0].address && patches[1].address == patches[0].address);
    }
    for (int tries = 0; tries < 2; tries++) {
        OK(gvmm_binding_abort(b));
        begin(b, 1, &generation, addresses, &report);
        CHECK(report.patched_commands == 2 && patches_of(b, patches, 2) == 2);
    }
    OK(gvmm_binding_end(b, NULL));
    begin(b, 1, &generation, addresses, &report);
    CHECK(report.patched_commands == 0 && patches_of(b, NULL, 0) == 0);
    OK(gvmm_binding_end(b, NULL));
    OK(gvmm_binding_destroy(b));
}

/* What a descriptor says is what is planned by. */
static void descriptors(void) {
    gvmm_plan_info infos[3];
    const uint32_t flags[] = {0, GVMM_PLAN_HOST_HIDDEN, GVMM_PLAN_COPIES_RECORDED};
    for (int i = 0; i < 3; i++) {
        gvmm_binding *b = bind_with((gvmm_plan_desc){.mode = GVMM_PLAN_AUTO, .watched_steps = 3, .flags = flags[i]});
        run(b, 2);
        CHECK(query(b).has_plan == 0);
        gvmm_binding *other = bind_with((gvmm_plan_desc){.mode = GVMM_PLAN_AUTO, .watched_steps = 2, .flags = flags[i]});
        run(other, 5);
        infos[i] = query(other);
        CHECK(infos[i].has_plan == 1 && infos[i].patched_slots == 0 && infos[i].host_ps != infos[i].gpu_ps);
        OK(gvmm_binding_destroy(b));
        OK(gvmm_binding_destroy(other));
    }
    CHECK(infos[0].counted_ps > infos[1].counted_ps && infos[1].counted_ps == infos[1].gpu_ps);
    CHECK(infos[2].host_ps < infos[0].host_ps);
}

static void refused(void) {
    gvmm_plan_desc plan = {.struct_size = sizeof plan, .mode = GVMM_PLAN_AUTO};
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .plan = &plan};
    gvmm_binding *b = (gvmm_binding *)0x1234;
    plan.mode = 3;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_binding_create(device, &desc, slots, SLOTS, sizeof slots[0], &b));
    plan.mode = GVMM_PLAN_AUTO;
    plan.watched_steps = 1;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_binding_create(device, &desc, slots, SLOTS, sizeof slots[0], &b));
    plan.watched_steps = 10;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_binding_create(device, &desc, slots, SLOTS, sizeof slots[0], &b));
    plan.watched_steps = 0;
    plan.flags = 4;
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_binding_create(device, &desc, slots, SLOTS, sizeof slots[0], &b));
    plan.flags = 0;
    gvmm_command_use wrong[] = {{0, 1}, {SLOTS, 1}};
    plan.uses = wrong;
    plan.use_count = 2;
    plan.use_stride_bytes = sizeof wrong[0];
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_binding_create(device, &desc, slots, SLOTS, sizeof slots[0], &b));
    CHECK(last_detail().entry == 1 && b == (gvmm_binding *)0x1234);

    /* By threshold, asked for: there is no planner to speak to. */
    b = bind_with((gvmm_plan_desc){.mode = GVMM_PLAN_THRESHOLD});
    run(b, 3);
    CHECK(query(b).has_planner == 0);
    size_t size = 99;
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_replan(b));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_binding_plan_export(b, NULL, 0, &size));
    CHECK(size == 99);
    OK(gvmm_binding_destroy(b));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_binding_replan(b));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_binding_patches(b, NULL, 0, &size));

    /* A plan of other slots. */
    gvmm_slot others[SLOTS] = {slots[0], slots[1], {.size_bytes = 4097}};
    desc.plan = &(gvmm_plan_desc){.struct_size = sizeof plan, .mode = GVMM_PLAN_AUTO, .watched_steps = 2};
    gvmm_binding *one = NULL, *two = NULL;
    OK(gvmm_binding_create(device, &desc, slots, SLOTS, sizeof slots[0], &one));
    OK(gvmm_binding_create(device, &desc, others, SLOTS, sizeof others[0], &two));
    run(one, 2);
    char bytes[256];
    OK(gvmm_binding_plan_export(one, bytes, sizeof bytes, &size));
    EXPECT(GVMM_ERROR_PLAN_MISMATCH, gvmm_binding_plan_import(two, bytes, size));
    CHECK(last_detail().entry == 2);
    OK(gvmm_binding_destroy(one));
    OK(gvmm_binding_destroy(two));
}

int main(void) {
    setenv("GVMM_HOST_COSTS", "h200", 1); /* whose figures the plans go by */
    device = open_host();
    stream = make_stream(device);
    for (int home = 0; home < HOMES; home++)
        for (int i = 0; i < SLOTS; i++) homes[home][i] = allocate(device, GRANULE);
    planned();
    patch_lists();
    descriptors();
    refused();
    OK(gvmm_stream_synchronize(stream));
    for (int home = 0; home < HOMES; home++)
        for (int i = 0; i < SLOTS; i++) OK(gvmm_allocation_destroy(homes[home][i].allocation));
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_device_close(device));
    return 0;
}
