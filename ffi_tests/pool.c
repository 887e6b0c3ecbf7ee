/* A pool: the good case, every status once, and bad input. */
#include "common.h"
#include <math.h>
#include <pthread.h>

#define MIB (1ull << 20)

static gvmm_device *device, *other_device;
static gvmm_stream *s, *t;

static gvmm_pool *make_pool(gvmm_pool_desc desc) {
    gvmm_pool *pool = NULL;
    desc.struct_size = sizeof desc;
    OK(gvmm_pool_create(device, &desc, &pool));
    return pool;
}

static uint64_t alloc(gvmm_pool *pool, uint64_t size, void *stream) {
    uint64_t address = 0;
    OK(gvmm_pool_alloc(pool, size, stream, &address));
    CHECK(address % 512 == 0);
    return address;
}

static gvmm_pool_stats stats_of(gvmm_pool *pool) {
    gvmm_pool_stats stats = {.struct_size = sizeof stats};
    OK(gvmm_pool_query(pool, &stats));
    return stats;
}

static void message_has(const char *words) {
    char message[600] = "";
    size_t needed = 0;
    OK(gvmm_last_error_message(message, sizeof message, &needed));
    if (strstr(message, words) == NULL) fprintf(stderr, "no '%s' in: %s\n", words, message);
    CHECK(strstr(message, words) != NULL);
}

static void blocks_are_used_again(void) {
    gvmm_pool *pool = make_pool((gvmm_pool_desc){0});
    uint64_t one = alloc(pool, 1000, s), two = alloc(pool, 3 * MIB, s);
    *at(one) = 1, *at(two) = 2;
    gvmm_pool_block block = {.struct_size = sizeof block};
    OK(gvmm_pool_find(pool, one + 999, &block));
    CHECK(block.address == one && block.size_bytes == 1024 && block.stream == s && block.id_high == 0);
    gvmm_pool_stats stats = stats_of(pool);
    CHECK(stats.all.allocated_bytes.current == 1024 + 3 * MIB && stats.all.requested_bytes.current == 1000 + 3 * MIB);
    CHECK(stats.small.allocated_bytes.current == 1024 && stats.large.blocks.current == 1);
    CHECK(stats.all.blocks.current == 2 && stats.all.blocks.total == 2 && stats.all.chunks.current == 2);
    CHECK(stats.all.reserved_bytes.current == 18 * MIB && stats.create_calls == 2 && stats.device_syncs == 0);
    OK(gvmm_pool_free(pool, one));
    CHECK(alloc(pool, 1000, s) == one);
    uint64_t three = alloc(pool, 1000, t);
    CHECK(three != one);
    stats = stats_of(pool);
    CHECK(stats.all.blocks.current == 3 && stats.all.blocks.total == 4 && stats.all.blocks.peak == 3);
    gvmm_pool_stream streams[3] = {{0}};
    size_t needed = 0;
    OK(gvmm_pool_stream_stats(pool, NULL, 0, 0, &needed));
    CHECK(needed == 2);
    OK(gvmm_pool_stream_stats(pool, streams, 3, sizeof streams[0], &needed));
    CHECK(needed == 2 && streams[0].stream == s && streams[1].stream == t && streams[2].stream == NULL);
    CHECK(streams[0].all.blocks.total == 3 && streams[1].small.allocated_bytes.current == 1024);
    OK(gvmm_pool_free(pool, two));
    CHECK(stats_of(pool).large.allocated_bytes.peak == 3 * MIB);
    OK(gvmm_pool_reset_peaks(pool));
    CHECK(stats_of(pool).large.allocated_bytes.peak == 0);
    EXPECT(GVMM_ERROR_IN_USE, gvmm_pool_destroy(pool));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_device_close(device));
    OK(gvmm_pool_free(pool, one));
    OK(gvmm_pool_free(pool, three));
    OK(gvmm_pool_destroy(pool));
}

static void unknown_addresses(void) {
    gvmm_pool *pool = make_pool((gvmm_pool_desc){0}), *other = make_pool((gvmm_pool_desc){0}), *abroad = NULL;
    OK(gvmm_pool_create(other_device, NULL, &abroad));
    uint64_t sizes[] = {1000, 3 * MIB};
    for (int i = 0; i < 2; i++) {
        uint64_t block = alloc(pool, sizes[i], s);
        uint64_t wrong[] = {0, UINT64_MAX, block + 1, block + 512, block - 512, (uint64_t)(uintptr_t)&block};
        for (size_t n = 0; n < sizeof wrong / sizeof wrong[0]; n++) {
            EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_free(pool, wrong[n]));
            CHECK(last_detail().address == wrong[n] || wrong[n] == 0);
        }
        EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_free(other, block));
        EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_free(abroad, block));
        EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_pool_free_on(abroad, block, s));
        OK(gvmm_pool_free(pool, block));
        EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_free(pool, block));
        EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_free_on(pool, block, t));
        EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_record_stream(pool, block, t));
        gvmm_pool_block found = {.struct_size = sizeof found};
        EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_find(pool, block, &found));
        CHECK(found.address == 0);
    }
    CHECK(stats_of(pool).all.blocks.current == 0 && stats_of(pool).all.blocks.total == 2);
    OK(gvmm_pool_destroy(abroad));
    OK(gvmm_pool_destroy(other));
    OK(gvmm_pool_destroy(pool));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_pool_free(pool, 512));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_pool_destroy(pool));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_pool_destroy((gvmm_pool *)device));
}

static void sizes_and_streams(void) {
    gvmm_pool *pool = make_pool((gvmm_pool_desc){0});
    uint64_t address = 7;
    uint64_t sizes[] = {0, UINT64_MAX, UINT64_MAX - 511, UINT64_MAX - 512, 1ull << 63, 1ull << 41};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_pool_alloc(pool, sizes[i], s, &address));
    EXPECT(GVMM_ERROR_OUT_OF_ADDRESS_SPACE, gvmm_pool_alloc(pool, 1ull << 40, s, &address));
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_pool_alloc(pool, 1, NULL, &address));
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_pool_alloc(pool, 1, device, &address));
    EXPECT(GVMM_ERROR_NULL_POINTER, gvmm_pool_alloc(pool, 1, s, NULL));
    CHECK(address == 7);
    gvmm_stream *abroad = make_stream(other_device), *gone = make_stream(device);
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_pool_alloc(pool, 1, abroad, &address));
    uint64_t block = alloc(pool, 4 * MIB, gone);
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_pool_record_stream(pool, block, abroad));
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_pool_free_on(pool, block, abroad));
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_pool_forget_stream(pool, abroad));
    OK(gvmm_pool_forget_stream(pool, gone));
    OK(gvmm_stream_destroy(gone));
    EXPECT(GVMM_ERROR_INVALID_STREAM, gvmm_pool_alloc(pool, 1, gone, &address));
    *at(block) = 3; /* the block outlives its stream */
    gvmm_pool_stream streams[2] = {{0}}; /* the first is s, which got nothing */
    size_t needed = 0;
    OK(gvmm_pool_stream_stats(pool, streams, 2, sizeof streams[0], &needed));
    CHECK(needed == 2 && streams[0].stream == s && streams[0].all.blocks.total == 0);
    CHECK(streams[1].has_ended == 1 && streams[1].stream == NULL && streams[1].all.blocks.current == 1);
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_pool_stream_stats(pool, streams, 2, sizeof streams[0] - 1, &needed));
    OK(gvmm_pool_free(pool, block));
    /* destroyed without a word, with a block in use */
    gone = make_stream(device);
    block = alloc(pool, 4 * MIB, gone);
    OK(gvmm_stream_destroy(gone));
    OK(gvmm_pool_free(pool, block));
    OK(gvmm_pool_trim(pool, &address));
    CHECK(address == stats_of(pool).all.reserved_bytes.peak && stats_of(pool).all.reserved_bytes.current == 0);
    OK(gvmm_pool_destroy(pool));
    OK(gvmm_stream_destroy(abroad));
}

static void wait_for_flag(void *user_data) {
    while (*(_Atomic int *)user_data == 0) {
    }
}

static void other_streams(void) {
    gvmm_pool *pool = make_pool((gvmm_pool_desc){0});
    _Atomic int go = 0;
    uint64_t one = alloc(pool, 4 * MIB, s), two = alloc(pool, 4 * MIB, s);
    OK(gvmm_stream_host_function(t, wait_for_flag, &go));
    OK(gvmm_pool_record_stream(pool, one + 5, t));
    OK(gvmm_pool_free(pool, one));
    OK(gvmm_pool_free_on(pool, two, t));
    gvmm_pool_stats stats = stats_of(pool);
    CHECK(stats.all.allocated_bytes.current == 0 && stats.all.active_bytes.current == 8 * MIB);
    CHECK(stats.all.active_blocks.current == 2 && stats.all.blocks.current == 0);
    uint64_t three = alloc(pool, 4 * MIB, s);
    CHECK(three != one && three != two);
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_free(pool, one));
    go = 1;
    OK(gvmm_stream_synchronize(t));
    OK(gvmm_pool_free(pool, three));
    uint64_t bytes = 0;
    OK(gvmm_pool_trim(pool, &bytes));
    CHECK(bytes > 0 && stats_of(pool).all.active_bytes.current == 0);
    OK(gvmm_pool_destroy(pool));
}

static int asked;
static gvmm_pool *pressed;
static uint64_t relief;
static void press(uint64_t size, void *user_data) {
    uint64_t address = 0;
    CHECK(size == 50 * MIB && user_data == &asked);
    asked++;
    if (relief != 0) OK(gvmm_pool_free(pressed, relief));
    relief = 0;
    /* allocating here is an error of the caller's, and ends */
    CHECK(gvmm_pool_alloc(pressed, 70 * MIB, s, &address) == GVMM_ERROR_OUT_OF_DEVICE_MEMORY);
}

static void limits(void) {
    gvmm_pool *pool = make_pool((gvmm_pool_desc){.limit_bytes = 64 * MIB});
    uint64_t address = 0, held = alloc(pool, 40 * MIB, s);
    EXPECT(GVMM_ERROR_OUT_OF_DEVICE_MEMORY, gvmm_pool_alloc(pool, 50 * MIB, t, &address));
    message_has("50 MiB");
    message_has("of 64 MiB");
    message_has("40 MiB in use");
    message_has("chunks lent");
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_free(pool, 3));
    char message[512] = "";
    size_t needed = 0;
    OK(gvmm_last_error_message(message, sizeof message, &needed));
    CHECK(strstr(message, "in use,") == NULL); /* the next failure's message has nothing of the last one's */
    pressed = pool, relief = held;
    OK(gvmm_pool_on_pressure(pool, press, &asked));
    EXPECT(GVMM_ERROR_NULL_POINTER, gvmm_pool_on_pressure(pool, NULL, NULL));
    held = alloc(pool, 50 * MIB, t);
    CHECK(asked == 1 && stats_of(pool).out_of_memory == 2);
    double wrong[] = {0.0, -1.0, 1.5, NAN, INFINITY};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_set_fraction(pool, wrong[i]));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_pool_set_fraction(pool, 0.01));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_pool_set_limit(pool, 49 * MIB));
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_pool_set_limit(pool, 0));
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_pool_set_fraction(pool, 1e-30));
    CHECK(stats_of(pool).limit_bytes == 64 * MIB);
    OK(gvmm_pool_set_fraction(pool, 0.5));
    CHECK(stats_of(pool).limit_bytes == 128 * MIB);
    OK(gvmm_pool_set_limit(pool, GVMM_POOL_NO_LIMIT));
    CHECK(stats_of(pool).limit_bytes == GVMM_POOL_NO_LIMIT);
    OK(gvmm_pool_pin(pool, held, 50 * MIB));
    OK(gvmm_pool_free(pool, held));
    OK(gvmm_pool_trim(pool, &address));
    CHECK(address <= 12 * MIB);
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_pin(pool, 3, 1));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_unpin(pool, 3, 1));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_pool_pin(pool, held, UINT64_MAX));
    EXPECT(GVMM_ERROR_OUT_OF_RANGE, gvmm_pool_unpin(pool, held, UINT64_MAX));
    OK(gvmm_pool_unpin(pool, held, 50 * MIB));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_pool_unpin(pool, held, 50 * MIB));
    OK(gvmm_pool_trim(pool, &address));
    CHECK(stats_of(pool).all.reserved_bytes.current == 0);
    OK(gvmm_pool_destroy(pool));
}

static void descriptions(void) {
    gvmm_pool *pool = NULL;
    gvmm_access access[2] = {{0, GVMM_ACCESS_READ_WRITE}, {9, GVMM_ACCESS_READ_WRITE}};
    gvmm_pool_desc desc = {.struct_size = sizeof desc, .large_chunk_bytes = 5};
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_pool_create(device, &desc, &pool));
    desc = (gvmm_pool_desc){.struct_size = sizeof desc, .segment_bytes = UINT64_MAX, .small_chunk_bytes = 1ull << 62};
    EXPECT(GVMM_ERROR_INVALID_SIZE, gvmm_pool_create(device, &desc, &pool));
    desc = (gvmm_pool_desc){.struct_size = sizeof desc, .access = access, .access_count = 2, .access_stride_bytes = 8};
    EXPECT(GVMM_ERROR_NO_DEVICE, gvmm_pool_create(device, &desc, &pool));
    access[1].device = 1, access[1].mode = 2;
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_create(device, &desc, &pool));
    desc.access_stride_bytes = 7;
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_pool_create(device, &desc, &pool));
    desc.struct_size = 3;
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_pool_create(device, &desc, &pool));
    CHECK(pool == NULL);
    /* a short struct gets defaults, a small address limit is held */
    desc = (gvmm_pool_desc){.struct_size = sizeof desc, .address_limit_bytes = 64 * MIB, .segment_bytes = 32 * MIB};
    OK(gvmm_pool_create(device, &desc, &pool));
    uint64_t address = 0, held = alloc(pool, 4096, s);
    EXPECT(GVMM_ERROR_OUT_OF_ADDRESS_SPACE, gvmm_pool_alloc(pool, 4096, t, &address));
    message_has("4 KiB asked for stream");
    message_has("64 MiB of 64 MiB of addresses reserved, 64 MiB for a stream; stream ");
    message_has("4 KiB in use");
    EXPECT(GVMM_ERROR_OUT_OF_ADDRESS_SPACE, gvmm_pool_alloc(pool, 33 * MIB, s, &address));
    message_has("33 MiB asked for stream");
    CHECK(stats_of(pool).address_space.current == 64 * MIB);
    OK(gvmm_pool_free(pool, held));
    OK(gvmm_pool_destroy(pool));
}

/* Eight threads on one pool and two streams, whose bytes stay apart, and eight that destroy the same pool. */
enum { THREADS = 8, ROUNDS = 1500 };
static gvmm_pool *shared;
static _Atomic int destroyed;
static void *work(void *argument) {
    uint64_t held[8] = {0}, id = (uint64_t)(uintptr_t)argument, size = 1000 + 300000 * id;
    for (int i = 0; i < ROUNDS; i++) {
        int place = i % 8;
        if (held[place] != 0) {
            CHECK(*at(held[place]) == (uint32_t)size + (uint32_t)place);
            OK(gvmm_pool_free(shared, held[place]));
        }
        held[place] = alloc(shared, size + (uint64_t)(i % 3) * 4096, id % 2 ? s : t);
        *at(held[place]) = (uint32_t)size + (uint32_t)place;
    }
    for (int place = 0; place < 8; place++) OK(gvmm_pool_free(shared, held[place]));
    return NULL;
}
static void *destroy(void *unused) {
    gvmm_status status = gvmm_pool_destroy(shared);
    if (status == GVMM_STATUS_SUCCESS) destroyed++;
    else CHECK(status == GVMM_ERROR_INVALID_HANDLE);
    return unused;
}
static void eight_threads(void) {
    pthread_t threads[THREADS];
    shared = make_pool((gvmm_pool_desc){0});
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(stats_of(shared).all.blocks.current == 0 && stats_of(shared).all.blocks.total == THREADS * ROUNDS);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, destroy, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(destroyed == 1);
}

/* Destroyed while a block is on its way: that would go with the pool, and is not given. */
static void end_it(uint64_t size, void *pool) {
    (void)size;
    OK(gvmm_pool_set_limit(pool, GVMM_POOL_NO_LIMIT));
    OK(gvmm_pool_destroy(pool));
}
static void ends_meanwhile(void) {
    gvmm_pool *pool = make_pool((gvmm_pool_desc){.limit_bytes = 4 * MIB});
    OK(gvmm_pool_on_pressure(pool, end_it, pool));
    uint64_t address = 0;
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_pool_alloc(pool, 8 * MIB, s, &address));
    CHECK(address == 0);
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_pool_destroy(pool));
}

int main(void) {
    setenv("GVMM_HOST_MEMORY", "256M", 1);
    setenv("GVMM_HOST_DEVICES", "2", 1);
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST, .ordinal = 1};
    device = open_host();
    OK(gvmm_device_open(&desc, &other_device));
    s = make_stream(device), t = make_stream(device);
    blocks_are_used_again();
    unknown_addresses();
    sizes_and_streams();
    other_streams();
    limits();
    descriptions();
    eight_threads();
    ends_meanwhile();
    OK(gvmm_stream_destroy(s));
    OK(gvmm_stream_destroy(t));
    OK(gvmm_device_close(other_device));
    OK(gvmm_device_close(device));
    return 0;
}
