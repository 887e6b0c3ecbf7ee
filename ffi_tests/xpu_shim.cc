// The Python module's C++ shim for Intel GPUs, as the module compiled and linked it (its path is the first argument), over PyTorch's
// own class (of which fakes/fake_torch_xpu.cc has what is compiled elsewhere): what PyTorch calls arrives at our functions with
// the types and values that they have, and a failure is PyTorch's exception, caught on its side.
#include <gvmm.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);             \
            std::exit(1);                                                                    \
        }                                                                                    \
    } while (0)

extern "C" void fake_current_queue(void *queue);
extern "C" int fake_tensor(size_t size, int64_t also_used_by, char *says, size_t room);

// What was called last, with what.
static struct {
    int allocs, frees, records;
    size_t size;
    int device;
    void *queue, *address, *other;
    int32_t status;
    uint32_t operation;
} last;
static char memory[64];

static void *alloc(size_t size, int device, void *queue) {
    ++last.allocs;
    last.size = size;
    last.device = device;
    last.queue = queue;
    return size == 0 || last.status != 0 ? nullptr : memory;
}
static void drop(void *address, size_t size, int device, void *queue) {
    ++last.frees;
    CHECK(size == last.size && device == last.device && queue == last.queue);
    last.address = address;
}
static void record(void *address, void *queue) {
    ++last.records;
    last.address = address;
    last.other = queue;
}
static gvmm_status message(char *out, size_t room, size_t *needed) {
    *needed = std::snprintf(out, room, "why it is so") + 1;
    return GVMM_STATUS_SUCCESS;
}
static gvmm_status detail(gvmm_error_detail *out) {
    CHECK(out->struct_size <= sizeof *out);
    out->status = last.status;
    out->operation = last.operation;
    return GVMM_STATUS_SUCCESS;
}

static int tensor(size_t size, int64_t also, std::string &says) {
    char text[2048] = "";
    int kind = fake_tensor(size, also, text, sizeof text);
    says = text;
    return kind;
}

static void *address_of(void (*function)()) { return reinterpret_cast<void *>(function); }
#define ADDRESS(function) address_of(reinterpret_cast<void (*)()>(function))

int main(int count, char **words) {
    CHECK(count == 2);
    void *shim = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (shim == nullptr) std::fprintf(stderr, "%s\n", dlerror());
    CHECK(shim != nullptr);
    auto *install = reinterpret_cast<void (*)(void *const *)>(dlsym(shim, "gvmm_xpu_shim_install"));
    CHECK(install != nullptr);
    void *const functions[] = {ADDRESS(alloc), ADDRESS(drop), ADDRESS(record), ADDRESS(message), ADDRESS(detail)};
    install(functions);

    std::string says;
    char queue = 0;
    fake_current_queue(&queue);
    CHECK(tensor(5000, 0, says) == 0 && last.allocs == 1 && last.frees == 1 && last.records == 0);
    CHECK(last.size == 5000 && last.device == 0 && last.queue == &queue && last.address == memory);
    CHECK(tensor(5000, 0x1234000, says) == 0 && last.records == 1 && last.other == reinterpret_cast<void *>(0x1234000));
    // An empty tensor is no failure.
    CHECK(tensor(0, 0, says) == 0);
    for (gvmm_status status : {GVMM_ERROR_OUT_OF_DEVICE_MEMORY, GVMM_ERROR_INVALID_SIZE, GVMM_ERROR_INVALID_STREAM}) {
        last.status = status;
        last.operation = GVMM_OPERATION_ALLOCATE;
        bool memory_is_short = status != GVMM_ERROR_INVALID_STREAM;
        CHECK(tensor(7000, 0, says) == (memory_is_short ? 1 : 2));
        CHECK(says.find("7000 bytes on device 0") != std::string::npos && says.find("why it is so") != std::string::npos);
        CHECK((says.find("out of memory") != std::string::npos) == memory_is_short);
    }
    // A setting that does not fit the device is no lack of memory.
    last.status = GVMM_ERROR_INVALID_SIZE;
    last.operation = GVMM_OPERATION_OPEN;
    CHECK(tensor(7000, 0, says) == 2 && says.find("out of memory") == std::string::npos);
    last.status = 0;
    CHECK(tensor(7000, 0, says) == 0);

    std::printf("the shim is linked, loaded and called; failures are PyTorch's exceptions\n");
    return 0;
}
