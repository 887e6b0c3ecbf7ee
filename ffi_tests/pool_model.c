/* Random allocations and frees by eight threads on one pool, on streams that lag, within a limit, so that memory is lent
   all the time. A block gets a word of its own at both ends in stream order, which is looked at before its free, in the
   order of the stream that uses it last. */
#include "common.h"
#include <pthread.h>
#include <unistd.h>

enum { STREAMS = 4, THREADS = 8, HELD = 24 };
#define LIMIT (160ull << 20)

static gvmm_device *device;
static gvmm_pool *pool;
static gvmm_stream *streams[STREAMS];
static _Atomic int wrong, looked, short_of;

typedef struct {
    uint64_t address, bytes, word;
} block;

static void fill(void *user_data) {
    block *b = user_data;
    *at(b->address) = (uint32_t)b->word;
    *at(b->address + b->bytes - 8) = (uint32_t)~b->word;
}

static void look(void *user_data) {
    block *b = user_data;
    if (*at(b->address) != (uint32_t)b->word || *at(b->address + b->bytes - 8) != (uint32_t)~b->word) wrong++;
    looked++;
    free(b);
}

static void lag(void *user_data) {
    (void)user_data;
    usleep(100);
}

static uint64_t next(uint64_t *seed, uint64_t below) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed % below;
}

/* Gives up a block that another stream may have used last. */
static void give_up(block *b, gvmm_stream *own, uint64_t *seed) {
    gvmm_stream *last = own;
    uint64_t address = b->address;
    if (next(seed, 4) == 0) {
        last = streams[next(seed, STREAMS)];
        /* The other stream is behind what the own one has done. */
        OK(gvmm_stream_synchronize(own));
    }
    OK(gvmm_stream_host_function(last, look, b));
    if (last != own) OK(gvmm_pool_record_stream(pool, address + 8, last));
    OK(gvmm_pool_free(pool, address));
}

static void *play(void *argument) {
    uint64_t seed = 77 + (uintptr_t)argument;
    int rounds = under_valgrind() ? 150 : 1500;
    struct {
        block *b;
        gvmm_stream *stream;
    } held[HELD] = {{NULL, NULL}};
    for (int i = 0; i < rounds; i++) {
        uint64_t place = next(&seed, HELD);
        if (held[place].b != NULL) {
            give_up(held[place].b, held[place].stream, &seed);
            held[place].b = NULL;
        }
        uint64_t bytes = 8 * (2 + next(&seed, next(&seed, 8) == 0 ? 1 << 19 : 9000)), address;
        gvmm_stream *stream = streams[next(&seed, STREAMS)];
        gvmm_status status = gvmm_pool_alloc(pool, bytes, stream, &address);
        if (status == GVMM_ERROR_OUT_OF_DEVICE_MEMORY) {
            short_of++;
            continue;
        }
        OK(status);
        block *b = malloc(sizeof *b);
        *b = (block){address, bytes, next(&seed, UINT32_MAX)};
        OK(gvmm_stream_host_function(stream, fill, b));
        held[place].b = b, held[place].stream = stream;
        if (i % 64 == 0) OK(gvmm_stream_host_function(streams[next(&seed, STREAMS)], lag, NULL));
    }
    for (int place = 0; place < HELD; place++)
        if (held[place].b != NULL) give_up(held[place].b, held[place].stream, &seed);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    device = open_host();
    gvmm_pool_desc desc = {.struct_size = sizeof desc, .limit_bytes = LIMIT, .segment_bytes = 4 * LIMIT};
    OK(gvmm_pool_create(device, &desc, &pool));
    for (int i = 0; i < STREAMS; i++) streams[i] = make_stream(device);
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, play, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < STREAMS; i++) OK(gvmm_stream_synchronize(streams[i]));
    gvmm_pool_stats stats = {.struct_size = sizeof stats};
    OK(gvmm_pool_query(pool, &stats));
    CHECK(wrong == 0);
    CHECK(stats.all.blocks.current == 0 && stats.all.requested_bytes.current == 0);
    CHECK(stats.all.blocks.total == (uint64_t)looked && stats.out_of_memory == (uint64_t)short_of);
    CHECK(stats.all.reserved_bytes.peak <= LIMIT);
    CHECK(under_valgrind() || stats.lent_chunks > 0);
    uint64_t given = 0;
    OK(gvmm_pool_trim(pool, &given));
    CHECK(given == stats.all.reserved_bytes.current);
    OK(gvmm_pool_destroy(pool));
    for (int i = 0; i < STREAMS; i++) OK(gvmm_stream_destroy(streams[i]));
    OK(gvmm_device_drain(device));
    OK(gvmm_device_close(device));
    return 0;
}
