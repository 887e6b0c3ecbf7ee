/* The log callback: it gets messages, may call back, can be taken away; and wrong variables are warned of, once. */
#include "common.h"

typedef struct {
    int messages;
    int warnings;
    char all[8192];
} sink;

static gvmm_device *opened;

static void listen(uint32_t level, const char *target, const char *message, void *user_data) {
    sink *s = (sink *)user_data;
    s->messages++;
    s->warnings += level == GVMM_LOG_LEVEL_WARN;
    CHECK(level >= GVMM_LOG_LEVEL_ERROR && level <= GVMM_LOG_LEVEL_TRACE);
    CHECK(strncmp(target, "gvmm", 4) == 0);
    strncat(s->all, message, sizeof s->all - strlen(s->all) - 2);
    strcat(s->all, "\n");
    /* Calling back must not deadlock, nor disturb the call that logged. */
    gvmm_block *block = NULL;
    EXPECT(GVMM_ERROR_NULL_POINTER, gvmm_block_create(NULL, 0, 0, &block));
    if (opened != NULL) {
        OK(gvmm_block_create(opened, GRANULE, 0, &block));
        OK(gvmm_block_destroy(block));
    }
    OK(gvmm_log_set_callback(listen, s, GVMM_LOG_LEVEL_TRACE));
}

int main(void) {
    static sink s;
    setenv("GVMM_HOST_DEVICES", "lots", 1);
    setenv("XLA_VMM_TMP_COPY_THRESHOLD", "big", 1);
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_log_set_callback(listen, &s, 6));
    OK(gvmm_log_set_callback(listen, &s, GVMM_LOG_LEVEL_TRACE));
    gvmm_device *device = open_host();
    CHECK(strstr(s.all, "GVMM_HOST_DEVICES=lots") != NULL);
    CHECK(strstr(s.all, "XLA_VMM_TMP_COPY_THRESHOLD=big") != NULL);
    int warnings = s.warnings;
    CHECK(warnings >= 2);
    gvmm_device_info info = {.struct_size = sizeof info};
    OK(gvmm_device_query(device, &info));
    CHECK(info.device_count == 1); /* the default */
    gvmm_device *again = open_host();
    CHECK(s.warnings == warnings); /* once */
    OK(gvmm_device_close(again));

    /* Clean-up that fails is logged, while the call may hold locks; the callback calls back all the same. */
    opened = device;
    gvmm_reservation *r = reserve(device, GRANULE, &(uint64_t){0});
    OK(gvmm_device_fail_calls(device, GVMM_CALL_FREE, 1, 1, GVMM_ERROR_DRIVER_ERROR));
    int before = s.messages;
    OK(gvmm_reservation_destroy(r));
    CHECK(s.messages > before);
    gvmm_block *block = NULL;
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_block_create(device, 5, 0, &block));
    CHECK(last_detail().status == GVMM_ERROR_INVALID_SIZE); /* not the callback's own failures */
    OK(gvmm_device_drain(device));

    OK(gvmm_log_set_callback(NULL, NULL, GVMM_LOG_LEVEL_OFF));
    before = s.messages;
    r = reserve(device, GRANULE, &(uint64_t){0});
    OK(gvmm_device_fail_calls(device, GVMM_CALL_FREE, 1, 1, GVMM_ERROR_DRIVER_ERROR));
    OK(gvmm_reservation_destroy(r));
    OK(gvmm_device_drain(device));
    CHECK(s.messages == before);
    OK(gvmm_device_close(device));
    return 0;
}
