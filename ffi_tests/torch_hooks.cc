// PyTorch's hooks as PyTorch calls them: by function pointers of its own types, with function objects and pairs by value.
#include "torch_types.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

static void fail(int line, const char *what) {
    std::fprintf(stderr, "torch_hooks.cc:%d: %s\n", line, what);
    std::exit(1);
}
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) fail(__LINE__, #condition);                                              \
    } while (0)

template <class F> static F *as(void (*function)()) { return reinterpret_cast<F *>(function); }
#define AS(hook, function) as<hook>(reinterpret_cast<void (*)()>(function))
static const auto alloc = AS(alloc_hook, gvmm_torch_alloc);
static const auto release = AS(free_hook, gvmm_torch_free);
static const auto init = AS(init_hook, gvmm_torch_init);
static const auto reset = AS(reset_hook, gvmm_torch_reset);
static const auto fraction = AS(fraction_hook, gvmm_torch_memory_fraction);
static const auto base = AS(base_hook, gvmm_torch_base_alloc);
static const auto record = AS(record_hook, gvmm_torch_record_stream);
static const auto begin_pool = AS(begin_hook, gvmm_torch_begin_allocate_to_pool);
static const auto end_pool = AS(end_hook, gvmm_torch_end_allocate_to_pool);
static const auto release_pool = AS(release_hook, gvmm_torch_release_pool);

static std::string last_error() {
    char message[512] = "";
    std::size_t needed = 0;
    gvmm_last_error_message(message, sizeof message, &needed);
    return message;
}

static bool says(const char *words) {
    std::string message = last_error();
    if (message.find(words) != std::string::npos) return true;
    std::fprintf(stderr, "the last error is: %s\n", message.c_str());
    return false;
}

static int warnings = 0;
static void count(uint32_t, const char *, const char *message, void *) {
    ++warnings;
    if (std::getenv("SHOW") != nullptr) std::fprintf(stderr, "%s\n", message);
}

static gvmm_device *device = nullptr;
static cudaStream_t make_stream() {
    gvmm_stream *stream = nullptr;
    CHECK(gvmm_stream_create(device, &stream) == GVMM_STATUS_SUCCESS);
    return reinterpret_cast<cudaStream_t>(stream);
}
static void finish(cudaStream_t stream) {
    CHECK(gvmm_stream_synchronize(reinterpret_cast<gvmm_stream *>(stream)) == GVMM_STATUS_SUCCESS);
}

constexpr std::size_t MIB = 1 << 20;

static void memory(cudaStream_t s) {
    CHECK(alloc(0, 0, s) == nullptr && alloc(0, 77, s) == nullptr);
    void *p = alloc(3 * MIB, 0, s);
    CHECK(p != nullptr);
    std::memset(p, 1, 3 * MIB);
    std::size_t size = 0;
    CHECK(base(static_cast<char *>(p) + 1000, &size) == p && size == 3 * MIB);
    CHECK(base(p, nullptr) == p);
    release(p, 3 * MIB, 0, s);
    CHECK(alloc(3 * MIB, 0, s) == p); // the stream's own, at once
    release(p, 3 * MIB, 0, s);
    CHECK(base(p, &size) == nullptr && says("no block in use"));
    // Near 2^64, and devices that are not there.
    CHECK(alloc(SIZE_MAX, 0, s) == nullptr && says("larger than a segment"));
    CHECK(alloc(SIZE_MAX - 4095, 0, s) == nullptr);
    for (int none : {-1, 64, 1000000}) CHECK(alloc(MIB, none, s) == nullptr && says("no device has this number"));
    CHECK(alloc(MIB, 63, s) == nullptr && says("fewer devices"));
    CHECK(alloc(MIB, 0, nullptr) == nullptr && says("NULL is no stream here"));
}

static void bad_frees(cudaStream_t s) {
    int on_stack = 0, before = warnings;
    void *p = alloc(1000, 0, s);
    release(nullptr, 0, 0, s);
    CHECK(warnings == before);
    release(&on_stack, 4, 0, s); // nobody's: once loudly
    CHECK(warnings == before + 1);
    release(static_cast<char *>(p) + 512, 4, 0, s);
    release(p, 1000, -7, s); // ours, for a device that is not there: still freed
    release(p, 1000, 0, s);  // and so twice
    CHECK(warnings == before + 1);
    CHECK(alloc(1000, 0, s) == p);
    release(p, 1000, 0, nullptr); // a stream that is none
    CHECK(alloc(1000, 0, s) == p);
    release(p, 1000, 0, s);
    p = alloc(1000, 0, s);
    gvmm_torch_delete(p);
    gvmm_torch_delete(p);
    gvmm_torch_delete(&on_stack);
    gvmm_torch_delete(nullptr);
    CHECK(warnings == before + 1 && alloc(1000, 0, s) == p);
    release(p, 1000, 0, s);
    record(&on_stack, s);
    record(nullptr, s);
}

// A block that another stream uses comes back only when that stream has passed.
static void streams(cudaStream_t s, cudaStream_t other) {
    struct gate {
        volatile int open = 0;
        static void wait(void *self) {
            while (static_cast<gate *>(self)->open == 0) usleep(200);
        }
    };
    for (bool on_free : {false, true}) {
        gate g;
        void *p = alloc(5 * MIB, 0, s);
        CHECK(gvmm_stream_host_function(reinterpret_cast<gvmm_stream *>(other), gate::wait, &g) == GVMM_STATUS_SUCCESS);
        if (!on_free) record(static_cast<char *>(p) + 512, other);
        release(p, 5 * MIB, 0, on_free ? other : s);
        void *q = alloc(5 * MIB, 0, s);
        CHECK(q != nullptr && q != p);
        g.open = 1;
        finish(other);
        release(q, 5 * MIB, 0, s);
        reset(); // looks at what waits
        void *r = alloc(5 * MIB, 0, s);
        CHECK(r == p || r == q);
        release(r, 5 * MIB, 0, s);
    }
}

// A stream that ends while blocks of it are in use: they are freed like others, also by a stream that uses them then.
static void ended_streams(cudaStream_t s) {
    cudaStream_t ended = make_stream();
    void *mine = alloc(6 * MIB, 0, ended), *other = alloc(6 * MIB, 0, s);
    CHECK(mine != nullptr && other != nullptr);
    record(other, ended);
    CHECK(gvmm_stream_destroy(reinterpret_cast<gvmm_stream *>(ended)) == GVMM_STATUS_SUCCESS);
    int before = warnings;
    record(mine, ended);
    CHECK(says("stream"));
    CHECK(alloc(MIB, 0, ended) == nullptr && says("stream"));
    release(mine, 6 * MIB, 0, ended);
    release(other, 6 * MIB, 0, s);
    std::size_t size = 0;
    CHECK(base(mine, &size) == nullptr && base(other, &size) == nullptr);
    CHECK(warnings > before); // said, and not only kept as the last error
    reset();
    void *again = alloc(6 * MIB, 0, s);
    CHECK(again != nullptr);
    release(again, 6 * MIB, 0, s);
}

// The filter is PyTorch's own object, which is gone after the call; ours is asked, and destroyed at the end.
static void pools(cudaStream_t s, cudaStream_t other) {
    auto alive = std::make_shared<int>(0);
    const pool_id id{7, 9};
    {
        std::function<bool(cudaStream_t)> filter = [alive, s, padding = std::vector<int>(100, 1)](cudaStream_t asked) {
            ++*alive;
            // Also what is asked is a stream as the driver knows it.
            return asked != nullptr && padding[99] == 1 && s != nullptr;
        };
        begin_pool(0, id, filter);
    }
    CHECK(alive.use_count() == 2);
    void *inside = alloc(2 * MIB, 0, s);
    CHECK(inside != nullptr && *alive == 1);
    begin_pool(0, id, [](cudaStream_t) { return true; });
    CHECK(says("allocated to already"));
    end_pool(0, id);
    CHECK(alive.use_count() == 1);
    release(inside, 2 * MIB, 0, s);
    // Free in the books, and yet its graph's: nobody else gets it.
    void *outside = alloc(2 * MIB, 0, s), *elsewhere = alloc(2 * MIB, 0, other);
    CHECK(outside != inside && elsewhere != inside);
    end_pool(0, id);
    CHECK(says("nothing was begun"));
    release_pool(0, id);
    release_pool(0, id);
    CHECK(says("no such pool"));
    begin_pool(0, {0, 0}, [](cudaStream_t) { return true; });
    CHECK(says("the default pool"));
    begin_pool(0, id, std::function<bool(cudaStream_t)>());
    CHECK(says("an empty function"));
    gvmm_torch_begin_allocate_to_pool(0, {7, 9}, nullptr);
    CHECK(says("NULL"));
    // One that takes nothing.
    begin_pool(0, id, [](cudaStream_t) { return false; });
    void *plain = alloc(100, 0, s);
    end_pool(0, id);
    release_pool(0, id);
    release(plain, 100, 0, s);
    release(outside, 2 * MIB, 0, s);
    release(elsewhere, 2 * MIB, 0, other);
}

static void short_memory(cudaStream_t s) {
    for (double wrong : {0.0, -1.0, 1.5}) {
        fraction(wrong, 0);
        CHECK(says("above 0 and at most 1"));
    }
    fraction(0.5, 99);
    CHECK(says("no device"));
    fraction(0.5, 0); // of 256 MiB
    void *most = alloc(100 * MIB, 0, s);
    CHECK(most != nullptr);
    CHECK(alloc(100 * MIB, 0, s) == nullptr);
    CHECK(says("100 MiB asked") && says("held of 128 MiB") && says("100 MiB in use"));
    fraction(0.25, 0);
    CHECK(says("take more than that"));
    void *more = alloc(20 * MIB, 0, s);
    CHECK(more != nullptr);
    release(more, 20 * MIB, 0, s);
    release(most, 100 * MIB, 0, s);
    fraction(1.0, 0);
    void *again = alloc(200 * MIB, 0, s);
    CHECK(again != nullptr);
    release(again, 200 * MIB, 0, s);
}

static void threads(cudaStream_t s) {
    std::vector<std::thread> all;
    for (int i = 0; i < 4; ++i)
        all.emplace_back([s, i] {
            cudaStream_t own = i % 2 ? s : make_stream();
            for (int n = 0; n < 200; ++n) {
                void *p = alloc(1000 + 1000 * static_cast<std::size_t>(n % 7), 0, own);
                CHECK(p != nullptr);
                std::memset(p, i, 1000);
                release(p, 1000, 0, own);
            }
            if (own != s) {
                finish(own);
                CHECK(gvmm_stream_destroy(reinterpret_cast<gvmm_stream *>(own)) == GVMM_STATUS_SUCCESS);
            }
        });
    for (auto &thread : all) thread.join();
}

static void forked(void *p, cudaStream_t s) {
    std::fflush(nullptr);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(120);
        int before = warnings;
        release(p, 1000, 0, s);
        record(p, s);
        reset();
        fraction(0.5, 0);
        end_pool(0, {7, 9});
        if (alloc(1000, 0, s) != nullptr || base(p, nullptr) != nullptr || warnings != before) _exit(2);
        std::exit(42); // with what runs at exit
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

// A handle of the pool tells what the hooks did, and ends without the pool.
static void handle(cudaStream_t s) {
    gvmm_pool *pool = nullptr;
    CHECK(gvmm_torch_pool(-1, &pool) == GVMM_ERROR_NO_DEVICE && gvmm_torch_pool(1, &pool) == GVMM_ERROR_WRONG_STATE);
    CHECK(gvmm_torch_pool(0, &pool) == GVMM_STATUS_SUCCESS);
    gvmm_pool_stats before{}, after{};
    before.struct_size = after.struct_size = sizeof before;
    CHECK(gvmm_pool_query(pool, &before) == GVMM_STATUS_SUCCESS);
    void *p = alloc(700, 0, s);
    CHECK(gvmm_pool_query(pool, &after) == GVMM_STATUS_SUCCESS);
    CHECK(after.all.requested_bytes.current == before.all.requested_bytes.current + 700);
    release(p, 700, 0, s);
    CHECK(after.all.reserved_bytes.current > 0);
    reset(); // PyTorch's empty_cache: nothing is in use
    CHECK(gvmm_pool_query(pool, &after) == GVMM_STATUS_SUCCESS && after.all.reserved_bytes.current == 0);
    CHECK(gvmm_pool_destroy(pool) == GVMM_STATUS_SUCCESS);
    CHECK(gvmm_pool_query(pool, &after) == GVMM_ERROR_INVALID_HANDLE);
}

// A tensor in a static, freed after main.
struct late {
    void *p = nullptr;
    cudaStream_t s = nullptr;
    ~late() {
        release(p, 1000, 0, s);
        release(p, 1000, 0, s);
        if (alloc(0, 0, s) != nullptr) std::abort();
        void *q = alloc(3000, 0, s);
        release(q, 3000, 0, s);
        reset();
    }
};
static late at_exit;

int main() {
    setenv("GVMM_HOST_MEMORY", "256M", 1);
    setenv("GVMM_POOL_HISTORY", "100", 1);
    gvmm_log_set_callback(count, nullptr, GVMM_LOG_LEVEL_WARN);
    init(1);
    fraction(0.9, 0); // before there is a pool
    gvmm_device_desc desc{};
    desc.struct_size = sizeof desc;
    desc.driver = GVMM_DRIVER_HOST;
    CHECK(gvmm_device_open(&desc, &device) == GVMM_STATUS_SUCCESS);
    cudaStream_t s = make_stream(), other = make_stream();
    memory(s);
    bad_frees(s);
    streams(s, other);
    ended_streams(s);
    pools(s, other);
    short_memory(s);
    threads(s);
    handle(s);
    at_exit.s = s;
    at_exit.p = alloc(1000, 0, s);
    forked(at_exit.p, s);
    return 0;
}
