/* Structs of older and newer callers, array elements that are embedded or not aligned, and versions. */
#include "common.h"

typedef struct {
    gvmm_device_desc desc;
    uint64_t newer;
} newer_desc;

static void in_structs(void) {
    gvmm_device *device = NULL;
    newer_desc newer = {.desc = {.struct_size = sizeof newer, .driver = GVMM_DRIVER_HOST, .ordinal = 0}, .newer = 0};
    OK(gvmm_device_open(&newer.desc, &device));
    OK(gvmm_device_close(device));
    newer.newer = 1; /* asks for what this library does not know */
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_device_open(&newer.desc, &device));

    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST, .ordinal = 99};
    EXPECT(GVMM_ERROR_NO_DEVICE, gvmm_device_open(&desc, &device));
    desc.struct_size = offsetof(gvmm_device_desc, ordinal); /* older: it had no ordinal, which is 0 then */
    OK(gvmm_device_open(&desc, &device));
    OK(gvmm_device_close(device));
    desc.struct_size = offsetof(gvmm_device_desc, ordinal) + 2; /* half a field is none */
    OK(gvmm_device_open(&desc, &device));
    OK(gvmm_device_close(device));
    const size_t bad[] = {0, 1, sizeof(size_t) - 1, 5000, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        desc.struct_size = bad[i];
        EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_device_open(&desc, &device));
    }
}

static void out_structs(gvmm_device *device) {
    union {
        gvmm_device_info info;
        unsigned char bytes[sizeof(gvmm_device_info) + 64];
    } u;
    memset(&u, 0xee, sizeof u);
    u.info.struct_size = offsetof(gvmm_device_info, device_count); /* older */
    OK(gvmm_device_query(device, &u.info));
    CHECK(u.info.struct_size == offsetof(gvmm_device_info, device_count));
    CHECK(u.info.driver == GVMM_DRIVER_HOST && u.info.ordinal == 0);
    for (size_t i = offsetof(gvmm_device_info, device_count); i < sizeof u; i++) CHECK(u.bytes[i] == 0xee);

    memset(&u, 0xee, sizeof u);
    u.info.struct_size = sizeof u; /* newer; only the size is read, so the rest need not be zero */
    OK(gvmm_device_query(device, &u.info));
    CHECK(u.info.struct_size == sizeof u && u.info.device_count == 1);
    for (size_t i = sizeof(gvmm_device_info); i < sizeof u; i++) CHECK(u.bytes[i] == 0xee);

    u.info.struct_size = 7;
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_device_query(device, &u.info));
    gvmm_error_detail detail = {.struct_size = 0};
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_last_error_detail(&detail));
    CHECK(last_detail().status == GVMM_ERROR_UNKNOWN_VERSION); /* the query's; reading it wrongly left it */
}

typedef struct {
    char mine;
    gvmm_slot slot;
    double also_mine;
} embedded;

static void strides(gvmm_device *device) {
    gvmm_stream *stream = make_stream(device);
    memory m = allocate(device, GRANULE);
    embedded slots[3];
    memset(slots, 0xff, sizeof slots);
    for (int i = 0; i < 3; i++) slots[i].slot = (gvmm_slot){.size_bytes = 4096};
    gvmm_binding_desc desc = {.struct_size = sizeof desc, .threshold_bytes = 4096};
    gvmm_binding *b = NULL;
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_binding_create(device, &desc, &slots[0].slot, 3, sizeof(gvmm_slot) - 1, &b));
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_binding_create(device, &desc, &slots[0].slot, 3, 0, &b));
    OK(gvmm_binding_create(device, &desc, &slots[0].slot, 3, sizeof slots[0], &b));

    /* Elements 33 bytes apart, at an odd address. */
    unsigned char *raw = (unsigned char *)malloc(3 * 33 + 1);
    CHECK(raw != NULL);
    memset(raw, 0xff, 3 * 33 + 1);
    for (int i = 0; i < 3; i++) {
        gvmm_buffer buffer = {.address = m.address + 4096u * (unsigned)i, .size_bytes = 4096,
                              .allocation_id = 1 + (uint64_t)i, .block = NULL};
        memcpy(raw + 1 + 33 * i, &buffer, sizeof buffer);
        *at(buffer.address) = 100 + (uint32_t)i;
    }
    const gvmm_buffer *buffers = (const gvmm_buffer *)(const void *)(raw + 1);
    uint64_t addresses[3], generation = 0;
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_binding_begin(b, stream, buffers, 3, 31, 0, NULL));
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(b, stream, buffers, 3, 33, 0, NULL));
    OK(gvmm_binding_addresses(b, addresses, 3, &generation));
    OK(gvmm_binding_begin(b, stream, buffers, 3, 33, generation, NULL));
    OK(gvmm_stream_synchronize(stream));
    for (int i = 0; i < 3; i++) CHECK(*at(addresses[i]) == 100 + (uint32_t)i);
    OK(gvmm_binding_end(b, NULL));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_binding_begin(b, stream, buffers, 3, SIZE_MAX / 2, generation, NULL));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_binding_begin(b, stream, buffers, SIZE_MAX, 33, generation, NULL));
    OK(gvmm_binding_destroy(b));
    OK(gvmm_allocation_destroy(m.allocation));
    OK(gvmm_stream_destroy(stream));
    free(raw);
}

static void versions(void) {
    CHECK(gvmm_version_number() == GVMM_VERSION_NUMBER);
    unsigned major, minor, patch;
    CHECK(sscanf(gvmm_version_string(), "%u.%u.%u", &major, &minor, &patch) == 3);
    CHECK(major * 1000000 + minor * 1000 + patch == gvmm_version_number());
}

static void messages(gvmm_device *device) {
    char whole[512], cut[8];
    size_t needed = 0, again = 0;
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_block_create(device, GRANULE + 1, 0, &(gvmm_block *){NULL}));
    OK(gvmm_last_error_message(whole, sizeof whole, &needed));
    CHECK(needed == strlen(whole) + 1);
    CHECK(strncmp(whole, "create ", 7) == 0 && strstr(whole, "2097153 B") != NULL);
    OK(gvmm_last_error_message(cut, sizeof cut, &again));
    CHECK(again == needed && strlen(cut) == 7 && strncmp(cut, whole, 7) == 0);
    OK(gvmm_last_error_message(NULL, 0, &again));
    CHECK(again == needed);
    gvmm_error_detail detail = last_detail();
    CHECK(detail.operation == GVMM_OPERATION_CREATE && detail.size_bytes == GRANULE + 1 && !detail.has_native);
    CHECK(detail.entry == GVMM_ENTRY_NONE);
}

int main(void) {
    size_t needed = 0;
    char text[4] = "abc";
    OK(gvmm_last_error_message(text, sizeof text, &needed)); /* nothing has failed */
    CHECK(needed == 1 && text[0] == 0 && last_detail().status == GVMM_STATUS_SUCCESS);
    versions();
    in_structs();
    gvmm_device *device = open_host();
    out_structs(device);
    strides(device);
    messages(device);
    OK(gvmm_device_close(device));
    return 0;
}
