/* After fork a child gets a status from every call, not a crash and not a hang; the parent goes on. */
#include "common.h"
#include <sys/wait.h>
#include <unistd.h>

static void spin(void *user_data) {
    while (!*(volatile int *)user_data) usleep(1000);
}

#define FORKED(call)                                                                               \
    do {                                                                                           \
        gvmm_status got = (call);                                                                  \
        if (got != GVMM_ERROR_FORKED) {                                                            \
            fprintf(stderr, "%s: %s\n", #call, gvmm_status_name(got));                             \
            _exit(2);                                                                              \
        }                                                                                          \
    } while (0)

int main(void) {
    gvmm_device *device = open_host();
    gvmm_stream *stream = make_stream(device);
    memory m = allocate(device, GRANULE);
    gvmm_slot slot = {.size_bytes = 4096};
    gvmm_binding *b = NULL;
    OK(gvmm_binding_create(device, NULL, &slot, 1, sizeof slot, &b));
    gvmm_buffer buffer = buffer_of(m, 4096);
    uint64_t address = 0, generation = 0;
    EXPECT(GVMM_STATUS_RECORD_AGAIN, gvmm_binding_begin(b, stream, &buffer, 1, sizeof buffer, 0, NULL));
    OK(gvmm_binding_addresses(b, &address, 1, &generation));
    OK(gvmm_binding_begin(b, stream, &buffer, 1, sizeof buffer, generation, NULL));
    int stop = 0;
    OK(gvmm_stream_host_function(stream, spin, &stop)); /* work is pending while we fork */

    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(under_valgrind() ? 120 : 20); /* a hang ends in a signal, which the parent sees */
        gvmm_device *none = NULL;
        gvmm_block *block = NULL;
        uint64_t u = 0;
        uint32_t w = 0;
        size_t needed = 0;
        char text[128];
        FORKED(gvmm_device_open(NULL, &none));
        FORKED(gvmm_device_count(GVMM_DRIVER_HOST, &w));
        FORKED(gvmm_device_drain(device));
        FORKED(gvmm_device_collect(device, &u));
        FORKED(gvmm_block_create(device, GRANULE, 0, &block));
        FORKED(gvmm_stream_synchronize(stream));
        FORKED(gvmm_stream_destroy(stream));
        FORKED(gvmm_binding_end(b, NULL));
        FORKED(gvmm_binding_destroy(b));
        FORKED(gvmm_allocation_destroy(m.allocation));
        FORKED(gvmm_device_close(device));
        FORKED(gvmm_device_close(NULL));
        FORKED(gvmm_log_set_callback(NULL, NULL, 0));
        FORKED(gvmm_compute_threshold(NULL, 0, 0, 0, 0, &u));
        if (gvmm_last_error_message(text, sizeof text, &needed) || !strstr(text, "made by fork")) _exit(4);
        if (gvmm_version_number() != GVMM_VERSION_NUMBER) _exit(3);
        exit(42); /* runs what a program runs at its end: none of ours may hang */
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 42) fprintf(stderr, "the child ended with %#x\n", (unsigned)status);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);

    *(volatile int *)&stop = 1; /* the parent is as before */
    OK(gvmm_binding_end(b, NULL));
    OK(gvmm_stream_synchronize(stream));
    OK(gvmm_binding_destroy(b));
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_allocation_destroy(m.allocation));
    OK(gvmm_device_close(device));
    return 0;
}
