// PyTorch's functions for Intel GPUs where there is no SYCL library, and none of the pointers is anything: answers, not faults.
#include "xpu_types.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);             \
            std::abort();                                                                    \
        }                                                                                    \
    } while (0)

static bool says(const char *words) {
    char message[512] = "";
    std::size_t needed = 0;
    gvmm_last_error_message(message, sizeof message, &needed);
    if (std::string(message).find(words) != std::string::npos) return true;
    std::fprintf(stderr, "the last error is: %s\n", message);
    return false;
}

static int warnings = 0;
static void count(uint32_t, const char *, const char *, void *) { ++warnings; }

static char garbage[64];
static void *const queue = garbage;

static void refused() {
    CHECK(gvmm_xpu_alloc(0, 0, queue) == nullptr && gvmm_xpu_alloc(0, -3, nullptr) == nullptr && warnings == 0);
    CHECK(gvmm_xpu_alloc(4096, 0, queue) == nullptr && says("no SYCL library") && warnings == 1);
    CHECK(gvmm_xpu_alloc(SIZE_MAX, 0, nullptr) == nullptr && says("no SYCL library"));
    CHECK(gvmm_xpu_alloc(4096, 64, queue) == nullptr && says("no device has this number"));
    int before = warnings;
    gvmm_xpu_free(nullptr, 0, 0, nullptr);
    CHECK(warnings == before);
    gvmm_xpu_free(garbage + 16, 4096, 0, queue); // nobody's: once loudly
    gvmm_xpu_free(garbage + 16, 4096, -9, queue);
    CHECK(warnings == before + 1);
    gvmm_xpu_record_stream(nullptr, queue);
    gvmm_xpu_record_stream(garbage, queue);
    CHECK(says("no block in use holds this address"));
    gvmm_pool *pool = nullptr;
    CHECK(gvmm_xpu_pool(0, &pool) == GVMM_ERROR_WRONG_STATE && gvmm_xpu_pool(-1, &pool) == GVMM_ERROR_NO_DEVICE);
    CHECK(gvmm_xpu_pool(0, nullptr) == GVMM_ERROR_NULL_POINTER && pool == nullptr);
}

static void forked() {
    std::fflush(nullptr);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(120);
        int before = warnings;
        gvmm_xpu_free(garbage, 4096, 0, queue);
        gvmm_xpu_record_stream(garbage, queue);
        if (gvmm_xpu_alloc(4096, 0, queue) != nullptr || warnings != before) _exit(2);
        std::exit(42); // with what runs at exit
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

// A tensor in a static, freed after main.
struct late {
    ~late() {
        gvmm_xpu_free(garbage, 4096, 0, queue);
        if (gvmm_xpu_alloc(4096, 0, queue) != nullptr) std::abort();
    }
};
static late at_exit;

int main() {
    gvmm_log_set_callback(count, nullptr, GVMM_LOG_LEVEL_WARN);
    refused();
    forked();
    return 0;
}
