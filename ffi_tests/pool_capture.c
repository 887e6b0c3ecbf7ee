/* Private pools for graphs, and snapshots. */
#include "common.h"

#define MIB (1ull << 20)

static gvmm_stream *s, *t;
static int filtered;

static uint32_t only_s(void *stream, void *user_data) {
    CHECK(user_data == &filtered);
    CHECK(stream == s || stream == t); /* as the caller knows them */
    filtered++;
    return stream == s;
}

static uint64_t alloc(gvmm_pool *pool, uint64_t size, void *stream) {
    uint64_t address = 0;
    OK(gvmm_pool_alloc(pool, size, stream, &address));
    return address;
}

static uint64_t id_of(gvmm_pool *pool, uint64_t address) {
    gvmm_pool_block block = {.struct_size = sizeof block};
    OK(gvmm_pool_find(pool, address, &block));
    return block.id_low;
}

static void fill(void *user_data) { *at(*(uint64_t *)user_data) = 77; }

static void graphs(gvmm_device *device) {
    gvmm_pool_desc desc = {.struct_size = sizeof desc, .limit_bytes = 64 * MIB};
    gvmm_pool *pool = NULL;
    gvmm_graph *graph = NULL;
    uint64_t bytes = 0;
    OK(gvmm_pool_create(device, &desc, &pool));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_capture_begin(pool, 0, 0, NULL, NULL));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_pool_capture_end(pool, 0, 5));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_capture_release(pool, 0, 5));
    OK(gvmm_pool_capture_begin(pool, 0, 5, only_s, &filtered));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_pool_capture_begin(pool, 0, 5, NULL, NULL));
    EXPECT(GVMM_ERROR_WRONG_STATE, gvmm_pool_capture_release(pool, 0, 5));
    EXPECT(GVMM_ERROR_STREAM_CAPTURING, gvmm_pool_trim(pool, &bytes));
    OK(gvmm_stream_capture_begin(s));
    uint64_t in_graph = alloc(pool, 20 * MIB, s), outside = alloc(pool, 4 * MIB, t);
    CHECK(id_of(pool, in_graph) == 5 && id_of(pool, outside) == 0 && filtered == 2);
    OK(gvmm_stream_host_function(s, fill, &in_graph));
    OK(gvmm_pool_free(pool, in_graph)); /* free in the books, and each replay writes there */
    OK(gvmm_stream_capture_end(s, &graph));
    OK(gvmm_pool_capture_end(pool, 0, 5));
    CHECK(id_of(pool, alloc(pool, 512, s)) == 0);
    /* replays, with everything lent that may be between them */
    for (int i = 0; i < 20; i++) {
        uint64_t big = alloc(pool, (30 + (uint64_t)i % 6) * MIB, i % 2 ? s : (void *)t);
        *at(big) = 5;
        OK(gvmm_graph_launch(graph, s));
        OK(gvmm_stream_synchronize(s));
        CHECK(*at(in_graph) == 77 && *at(big) == 5);
        OK(gvmm_pool_free(pool, big));
    }
    gvmm_pool_stats stats = {.struct_size = sizeof stats};
    OK(gvmm_pool_query(pool, &stats));
    CHECK(stats.lent_chunks > 0);
    EXPECT(GVMM_ERROR_OUT_OF_DEVICE_MEMORY, gvmm_pool_alloc(pool, 50 * MIB, t, &bytes));
    char message[600];
    size_t needed = 0;
    OK(gvmm_last_error_message(message, sizeof message, &needed));
    CHECK(strstr(message, "private pool 0:5") != NULL);
    OK(gvmm_pool_free(pool, outside));
    OK(gvmm_graph_destroy(graph));
    gvmm_pool_stream streams[4];
    OK(gvmm_pool_stream_stats(pool, streams, 4, sizeof streams[0], &needed));
    int private = 0;
    for (size_t i = 0; i < needed && i < 4; i++) private += streams[i].id_low == 5 && streams[i].id_high == 0;
    CHECK(private == 1);
    OK(gvmm_pool_capture_release(pool, 0, 5));
    EXPECT(GVMM_ERROR_INVALID_ARGUMENT, gvmm_pool_capture_release(pool, 0, 5));
    bytes = alloc(pool, 50 * MIB, t);
    OK(gvmm_pool_free(pool, bytes));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_pool_destroy(pool)); /* the 512 bytes */
    gvmm_pool_block block = {.struct_size = sizeof block};
    OK(gvmm_pool_stream_stats(pool, streams, 4, sizeof streams[0], &needed));
    (void)block;
    size_t json = 0;
    OK(gvmm_pool_snapshot(pool, NULL, 0, &json));
    char *text = malloc(json);
    CHECK(text != NULL);
    OK(gvmm_pool_snapshot(pool, text, json, &json));
    const char *used = strstr(text, "\"state\": \"active_allocated\"");
    CHECK(used != NULL);
    const char *object = used;
    while (*object != '{') object--;
    unsigned long long address = 0;
    CHECK(sscanf(object, "{\"address\": %llu", &address) == 1);
    OK(gvmm_pool_free(pool, address));
    free(text);
    OK(gvmm_pool_destroy(pool));
}

/* A private pool whose graph still lives keeps the pool. */
static void users(gvmm_device *device) {
    gvmm_pool *pool = NULL;
    OK(gvmm_pool_create(device, NULL, &pool));
    OK(gvmm_pool_capture_begin(pool, 1, 0, NULL, NULL));
    uint64_t one = alloc(pool, 1, s);
    OK(gvmm_pool_capture_end(pool, 1, 0));
    OK(gvmm_pool_capture_begin(pool, 1, 0, NULL, NULL)); /* a second graph of the same pool */
    CHECK(alloc(pool, 1, t) != one);
    OK(gvmm_pool_capture_end(pool, 1, 0));
    OK(gvmm_pool_free(pool, one));
    gvmm_pool_stream stream[2];
    size_t needed = 0;
    OK(gvmm_pool_stream_stats(pool, stream, 2, sizeof stream[0], &needed));
    CHECK(needed == 2 && stream[1].id_high == 1 && stream[1].stream == t);
    OK(gvmm_pool_capture_release(pool, 1, 0));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_pool_destroy(pool));
    size_t json = 0;
    char text[4096];
    OK(gvmm_pool_snapshot(pool, text, sizeof text, &json));
    CHECK(json < sizeof text && json == strlen(text) + 1);
    CHECK(strstr(text, "\"pool\": [1, 0]") != NULL && strstr(text, "\"events\": []") != NULL);
    const char *used = strstr(text, "\"requested_size\": 1, \"state\": \"active_allocated\"");
    CHECK(used != NULL);
    while (*used != '{') used--;
    unsigned long long address = 0;
    CHECK(sscanf(used, "{\"address\": %llu", &address) == 1);
    OK(gvmm_pool_free(pool, address));
    EXPECT(GVMM_ERROR_IN_USE, gvmm_pool_destroy(pool)); /* one user is left */
    OK(gvmm_pool_capture_release(pool, 1, 0));
    OK(gvmm_pool_destroy(pool));
}

/* A filter must not allocate; one that does all the same is not asked about that, and so on without end. */
static uint32_t allocates(void *stream, void *pool) {
    uint64_t block = 0;
    OK(gvmm_pool_alloc(pool, 512, stream, &block));
    OK(gvmm_pool_free(pool, block));
    return 1;
}
static void filters(gvmm_device *device) {
    gvmm_pool *pool = NULL;
    OK(gvmm_pool_create(device, NULL, &pool));
    OK(gvmm_pool_capture_begin(pool, 7, 0, allocates, pool));
    uint64_t block = alloc(pool, 1000, s);
    gvmm_pool_block found = {.struct_size = sizeof found};
    OK(gvmm_pool_find(pool, block, &found));
    CHECK(found.id_high == 7);
    OK(gvmm_pool_capture_end(pool, 7, 0));
    OK(gvmm_pool_capture_release(pool, 7, 0));
    OK(gvmm_pool_free(pool, block));
    OK(gvmm_pool_destroy(pool));
}

static void events(gvmm_device *device) {
    gvmm_pool_desc desc = {.struct_size = sizeof desc, .history = 3};
    gvmm_pool *pool = NULL;
    OK(gvmm_pool_create(device, &desc, &pool));
    uint64_t one = alloc(pool, 1000, s);
    OK(gvmm_pool_free(pool, one));
    char text[4096], cut[20];
    size_t needed = 0, again = 0;
    OK(gvmm_pool_snapshot(pool, text, sizeof text, &needed));
    const char *map = strstr(text, "\"action\": \"segment_map\""), *made = strstr(text, "\"action\": \"alloc\"");
    CHECK(map != NULL && made > map && strstr(made, "\"action\": \"free_completed\"") != NULL);
    CHECK(strstr(made, "\"size\": 1000") != NULL && strstr(text, "\"state\": \"inactive\"") != NULL);
    char stream[64];
    snprintf(stream, sizeof stream, "\"stream\": %llu", (unsigned long long)(uintptr_t)s);
    CHECK(strstr(text, stream) != NULL);
    OK(gvmm_pool_snapshot(pool, cut, sizeof cut, &again));
    CHECK(again == needed && strlen(cut) == sizeof cut - 1 && strncmp(cut, text, sizeof cut - 1) == 0);
    OK(gvmm_pool_destroy(pool));
}

int main(void) {
    setenv("GVMM_HOST_MEMORY", "256M", 1);
    gvmm_device *device = open_host();
    s = make_stream(device), t = make_stream(device);
    graphs(device);
    users(device);
    filters(device);
    events(device);
    OK(gvmm_stream_destroy(s));
    OK(gvmm_stream_destroy(t));
    OK(gvmm_device_close(device));
    return 0;
}
