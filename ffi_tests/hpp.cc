// gvmm.hpp: what its classes own and give away, and how a failing call ends: answered, or thrown where GVMM_HPP_THROW is.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>

static int logged;
#define GVMM_HPP_LOG(text) ((void)(text), logged++)
#include <gvmm.hpp>

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                    \
        }                                                                    \
    } while (0)

using namespace gvmm;

// The status of a call that must fail.
#ifdef GVMM_HPP_THROW
#define FAILS(wanted, call)                 \
    do {                                    \
        gvmm_status code = 0;               \
        try {                               \
            (void)(call);                   \
        } catch (const gvmm::Error &error) { \
            code = error.code();            \
            CHECK(error.what()[0] != 0);    \
        }                                   \
        CHECK(code == wanted);              \
    } while (0)
#else
static const Status &status_of(const Status &status) { return status; }
template <class T>
static const Status &status_of(const StatusOr<T> &result) {
    return result.status();
}
#define FAILS(wanted, call)                             \
    do {                                                \
        auto result = (call);                           \
        CHECK(status_of(result).code() == wanted);      \
        CHECK(!status_of(result).message().empty());    \
    } while (0)
#endif
#define VALUE(call) (call).value()
#define DONE(call) CHECK((call).ok())

static void owners(Api api) {
    Device device = VALUE(Device::open(api, GVMM_DRIVER_HOST));
    std::uint64_t granule = VALUE(device.query()).granularity_bytes;
    FAILS(GVMM_ERROR_NO_DEVICE, Device::open(api, GVMM_DRIVER_HOST, 99));
    Block block = VALUE(Block::create(device, granule));
    FAILS(GVMM_ERROR_INVALID_SIZE, Block::create(device, granule + 1));
    FAILS(GVMM_ERROR_IN_USE, device.close());
    CHECK(device);  // kept

    // A move leaves nothing behind, and assigning destroys what was there.
    gvmm_block *handle = block.get();
    Block other = std::move(block);
    CHECK(!block && other.get() == handle);
    Block second = VALUE(Block::create(device, granule));
    gvmm_call_counts before = VALUE(device.counters());
    other = std::move(second);
    CHECK(VALUE(device.counters()).release == before.release + 1);
    Block &same = other;
    other = std::move(same);
    CHECK(other);
    gvmm_block *given = other.release();
    CHECK(!other && Block(api, given));
    DONE(other.close());  // nothing to close

    // A destructor that cannot destroy says so.
    Reservation range = VALUE(Reservation::create(device, granule));
    Block mapped = VALUE(Block::create(device, granule));
    DONE(range.map(0, mapped.get()));
    gvmm_block *kept = mapped.get();
    CHECK(logged == 0);
    { Block gone = std::move(mapped); }
    CHECK(logged == 1);
    DONE(range.unmap(0, granule));
    { Block gone(api, kept); }
    CHECK(logged == 1);
}

static void sharing_and_copies(Api api) {
    Device device = VALUE(Device::open(api, GVMM_DRIVER_HOST));
    std::uint64_t granule = VALUE(device.query()).granularity_bytes;
    Stream stream = VALUE(Stream::create(device));
    Allocation from = VALUE(Allocation::create(device, 64)), to = VALUE(Allocation::create(device, 64));
    *reinterpret_cast<std::uint64_t *>(from.address()) = 5;
    gvmm_copy_slice slices[] = {{to.address(), from.address(), 8}, {to.address() + 8, from.address(), 8}};
    DONE(device.shadow_copy(stream.get(), slices));
    DONE(stream.synchronize());
    CHECK(reinterpret_cast<std::uint64_t *>(to.address())[1] == 5);
    slices[1].dst = to.address();
    FAILS(GVMM_ERROR_OVERLAP, device.shadow_copy(stream.get(), slices));

    Block shared = VALUE(Block::create(device, granule, GVMM_BLOCK_EXPORTABLE));
    int fd = VALUE(shared.export_fd());
    Block again = VALUE(Block::import(device, fd, granule));
    ::close(fd);
    CHECK(VALUE(again.query()).allocation_id != VALUE(shared.query()).allocation_id);
    Timeline timeline = VALUE(Timeline::create(device));
    DONE(timeline.write(stream.get(), 3));
    DONE(stream.synchronize());
    CHECK(timeline.value() == 3);
    FAILS(GVMM_ERROR_INVALID_STREAM, timeline.write(nullptr, 4));
    DONE(device.forget(stream.get()));
}

static void bindings(Api api) {
#ifdef GVMM_HPP_THROW
    Device device = Device::open(api, GVMM_DRIVER_HOST);  // what is left is what was wanted
    Stream stream = Stream::create(device);
#else
    Device device = VALUE(Device::open(api, GVMM_DRIVER_HOST));
    Stream stream = VALUE(Stream::create(device));
#endif
    Allocation memory = VALUE(Allocation::create(device, 4096));
    gvmm_slot slot{};
    slot.size_bytes = 4096;
    Binding binding = VALUE(Binding::create(device, slot));
    gvmm_buffer buffer{memory.address(), 4096, 0, VALUE(memory.query()).block};
    FAILS(GVMM_ERROR_WRONG_STATE, binding.addresses());
    CHECK(!VALUE(binding.begin(stream.get(), buffer)));  // record
    std::vector<std::uint64_t> addresses = VALUE(binding.addresses());
    CHECK(addresses.size() == 1 && VALUE(binding.actions()).size() == 1);
    CHECK(VALUE(binding.begin(stream.get(), buffer)));
    CHECK(VALUE(binding.patches()).empty());
    DONE(binding.abort());
    CHECK(VALUE(binding.begin(stream.get(), buffer)));
    gvmm_step_report report = sized<gvmm_step_report>();
    DONE(binding.end(&report));
    FAILS(GVMM_ERROR_WRONG_STATE, binding.end());
    FAILS(GVMM_ERROR_COUNT_MISMATCH, binding.begin(stream.get(), {}));
    CHECK(VALUE(binding.query()).record_again_count == 1 && VALUE(binding.plan()).has_planner == 0);
    DONE(stream.synchronize());
}

static void pools(Api api) {
    Device device = VALUE(Device::open(api, GVMM_DRIVER_HOST));
    Stream stream = VALUE(Stream::create(device));
    Pool pool = VALUE(Pool::create(device));
    std::uint64_t address = VALUE(pool.alloc(1000, stream.get()));
    *reinterpret_cast<std::uint64_t *>(address) = 6;
    DONE(pool.record_stream(address, stream.get()));
    DONE(pool.free_on(address, stream.get()));
    FAILS(GVMM_ERROR_INVALID_ARGUMENT, pool.free(address));
    DONE(stream.synchronize());
    CHECK(VALUE(pool.trim()) > 0);
    FAILS(GVMM_ERROR_INVALID_ARGUMENT, pool.set_fraction(-1));
    (void)VALUE(pool.query());
    gvmm_segment_desc desc = sized<gvmm_segment_desc>();
    desc.size_bytes = 64 << 20;
    desc.chunk_bytes = 4 << 20;
    Segment segment = VALUE(Segment::create(device, desc));
    DONE(segment.map(segment.address(), 4096));
    *reinterpret_cast<std::uint64_t *>(segment.address()) = 6;
    CHECK(VALUE(segment.query()).live_chunks == 1);
    FAILS(GVMM_ERROR_IN_USE, segment.close());
    CHECK(VALUE(segment.unmap(segment.address(), 4 << 20)) == 4 << 20);
    DONE(segment.close());
    DONE(pool.close());
}

int main() {
    CHECK(!Api());
    CHECK(!Api::load("/nowhere/libgvmm.so.0"));
    CHECK(!Api::load("libc.so.6"));  // a library that is another
    Api loaded = Api::load(std::getenv("GVMM_TEST_LIBRARY"));
    CHECK(loaded && loaded->version == GVMM_VERSION_NUMBER);
    for (Api api : {Api::linked(), loaded}) {
        logged = 0;
        owners(api);
        sharing_and_copies(api);
        bindings(api);
        pools(api);
    }
    return 0;
}
