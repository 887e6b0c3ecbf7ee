/* What a pair of gvmm_pool_alloc and gvmm_pool_free of one size costs through the C ABI, on one thread and on several
   with streams of their own, with the driver calls that the pairs made (none) beside the times. Times are the median of
   rounds, for several threads that of the slowest; rounds before them, while the processor wakes up, are not counted.
   "a locked add" is what one takes on memory of the thread's own, measured after each round on the first thread: where it is
   slower than elsewhere on such a processor, the core was not the thread's alone (its sibling was at work), and so are pairs.

   make pool_pair && target/release/pool_pair [host|cuda|hip] [THREADS] */
#define _GNU_SOURCE
#include <gvmm.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 15, WARM = 5, MOST = 64 };

#define OK(call)                                                                                   \
    do {                                                                                           \
        gvmm_status status_ = (call);                                                              \
        if (status_ != GVMM_STATUS_SUCCESS) {                                                      \
            char message_[512];                                                                    \
            size_t needed_;                                                                        \
            gvmm_last_error_message(message_, sizeof message_, &needed_);                          \
            fprintf(stderr, "%s: %s: %s\n", #call, gvmm_status_name(status_), message_);           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

typedef struct {
    gvmm_pool *pool;
    void *stream;
    uint64_t size;
    long pairs;
    pthread_barrier_t *start;
    double ns[ROUNDS], locked_ns[ROUNDS];
} job;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

static double locked_add(void) {
    enum { TIMES = 20000 };
    _Alignas(128) long own[16] = {0};
    double begin = now();
    for (int i = 0; i < TIMES; i++) __atomic_fetch_add(&own[0], 1, __ATOMIC_SEQ_CST);
    return (now() - begin) / TIMES;
}

static void *work(void *argument) {
    job *mine = argument;
    for (int round = -WARM; round < ROUNDS; round++) {
        pthread_barrier_wait(mine->start);
        double begin = now();
        for (long i = 0; i < mine->pairs; i++) {
            uint64_t address;
            OK(gvmm_pool_alloc(mine->pool, mine->size, mine->stream, &address));
            OK(gvmm_pool_free(mine->pool, address));
        }
        double ns = (now() - begin) / (double)mine->pairs, locked_ns = locked_add();
        if (round >= 0) mine->ns[round] = ns, mine->locked_ns[round] = locked_ns;
    }
    return NULL;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint64_t driver_calls(gvmm_device *device) {
    gvmm_call_counts c = {.struct_size = sizeof c};
    OK(gvmm_device_counters(device, &c));
    return c.reserve + c.free + c.create + c.release + c.map + c.unmap + c.set_access + c.copy_launches +
           c.timeline_writes;
}

static void measure(gvmm_device *device, uint64_t size, int threads, long pairs) {
    gvmm_pool *pool;
    job jobs[MOST];
    pthread_t running[MOST];
    pthread_barrier_t start;
    OK(gvmm_pool_create(device, NULL, &pool));
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        gvmm_stream *stream;
        uint64_t address;
        OK(gvmm_stream_create(device, &stream));
        jobs[i] = (job){.pool = pool, .stream = stream, .size = size, .pairs = pairs, .start = &start};
        OK(gvmm_pool_alloc(pool, size, stream, &address));
        OK(gvmm_pool_free(pool, address));
    }
    uint64_t before = driver_calls(device);
    for (int i = 0; i < threads; i++) pthread_create(&running[i], NULL, work, &jobs[i]);
    for (int i = 0; i < threads; i++) pthread_join(running[i], NULL);
    uint64_t calls = driver_calls(device) - before;
    double slowest[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        slowest[round] = 0;
        for (int i = 0; i < threads; i++)
            if (jobs[i].ns[round] > slowest[round]) slowest[round] = jobs[i].ns[round];
    }
    double *locked = jobs[0].locked_ns;
    qsort(slowest, ROUNDS, sizeof slowest[0], by_value);
    qsort(locked, ROUNDS, sizeof locked[0], by_value);
    printf("| %8llu | %7d | %8ld | %12llu | %11.1f | %9.1f | %9.1f | %9.2f | %9.2f |\n", (unsigned long long)size,
           threads, pairs * (WARM + ROUNDS), (unsigned long long)calls, slowest[ROUNDS / 2], slowest[0],
           slowest[ROUNDS - 1], locked[ROUNDS / 2], locked[0]);
    OK(gvmm_pool_destroy(pool));
    for (int i = 0; i < threads; i++) OK(gvmm_stream_destroy(jobs[i].stream));
    pthread_barrier_destroy(&start);
    if (calls != 0) exit(1);
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "host";
    int threads = count > 2 ? atoi(arguments[2]) : 4;
    long pairs = count > 3 ? atol(arguments[3]) : 200000;
    uint32_t driver = strcmp(name, "cuda") == 0 ? GVMM_DRIVER_CUDA
                      : strcmp(name, "hip") == 0 ? GVMM_DRIVER_HIP
                                                 : GVMM_DRIVER_HOST;
    if (threads < 1 || threads > MOST || pairs < 1) return 2;
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = driver};
    gvmm_device *device;
    OK(gvmm_device_open(&desc, &device));
    printf("|     size | threads |    pairs | driver calls | ns a pair   | least     | most      | a locked  | least     |\n"
           "|          |         |          |              |             |           |           | add, ns   |           |\n");
    printf("|----------|---------|----------|--------------|-------------|-----------|-----------|-----------|-----------|\n");
    measure(device, 4096, 1, pairs);
    measure(device, 8 << 20, 1, pairs);
    if (threads > 1) {
        measure(device, 4096, threads, pairs);
        measure(device, 8 << 20, threads, pairs);
    }
    OK(gvmm_device_close(device));
    return 0;
}
