// Drives the code of docs/xla.md on the host driver, against stand-ins for XLA's classes. `xla_page.inc` is that code, as
// the test takes it out of the page.
#include "xla_page.inc"

#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace se = stream_executor;
using se::DeviceAddressBase;
using se::MemoryReservation;
using Allocator = se::gpu::GvmmDeviceAddressVmmAllocator;

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                    \
        }                                                                    \
    } while (0)

template <class R>
static auto ok(R result, int line) {
    if (!result.ok()) std::fprintf(stderr, "line %d: %s\n", line, std::string(result.status().message()).c_str());
    CHECK(result.ok());
    return *std::move(result);
}
template <class S>
static void done(const S &status, int line) {
    if (!status.ok()) std::fprintf(stderr, "line %d: %s\n", line, std::string(status.message()).c_str());
    CHECK(status.ok());
}
#define OK(call) ok((call), __LINE__)
#define DONE(call) done((call), __LINE__)

static volatile std::uint64_t &word(DeviceAddressBase at) { return *static_cast<volatile std::uint64_t *>(at.opaque()); }
static volatile std::uint64_t &word(std::uint64_t at) { return *reinterpret_cast<volatile std::uint64_t *>(at); }

struct Gate {
    int open = 0;
    static void wait(void *gate) {
        while (!__atomic_load_n(&static_cast<Gate *>(gate)->open, __ATOMIC_ACQUIRE)) sched_yield();
    }
};

// Two devices that reach each other, each with a stream, and the allocator of the page over them.
struct World {
    explicit World(gvmm::Api api) : platform(2) {
        for (int i = 0; i < 2; i++) {
            devices.push_back(OK(gvmm::Device::open(api, GVMM_DRIVER_HOST, i)));
            queues.push_back(OK(gvmm::Stream::create(devices[i])));
        }
        for (int i = 0; i < 2; i++) streams.emplace_back(queues[i].get());
        std::vector<Allocator::DeviceConfig> configs;
        for (int i = 0; i < 2; i++) configs.push_back({*platform.ExecutorForDevice(i), &streams[i]});
        allocator = OK(Allocator::Create(api, GVMM_DRIVER_HOST, &platform, configs));
        granule = allocator->GetAllocationGranularity(executor());
    }
    se::StreamExecutor *executor() { return *platform.ExecutorForDevice(0); }
    std::uint64_t free_bytes() {
        std::uint64_t free = 0, total = 0;
        DONE(devices[0].drain());
        CHECK(devices[0].api()->device_memory(devices[0].get(), &free, &total) == GVMM_STATUS_SUCCESS);
        return free;
    }
    void fail(std::uint64_t nth, std::uint64_t count) {
        CHECK(devices[0].api()->device_fail_calls(devices[0].get(), GVMM_CALL_ANY, nth, count, GVMM_ERROR_DRIVER_ERROR) == 0);
    }

    se::Platform platform;
    std::vector<gvmm::Device> devices;
    std::vector<gvmm::Stream> queues;
    std::vector<se::Stream> streams;
    std::unique_ptr<Allocator> allocator;
    std::uint64_t granule = 0;
};

static void freed_once_the_stream_has_passed(World &world) {
    std::uint64_t before = world.free_bytes();
    DeviceAddressBase memory = OK(world.allocator->Allocate(0, 1000));
    CHECK(memory.size() == 1000 && world.granule % 4096 == 0);
    CHECK(world.allocator->GetRawAllocation(0, memory)->address().size() == world.granule);
    Gate gate;
    DONE(world.queues[0].host_function(Gate::wait, &gate));
    word(memory) = 7;
    DONE(world.allocator->Deallocate(0, memory));
    CHECK(world.allocator->pending(0) == 1);
    CHECK(word(memory) == 7);  // the stream may still use it
    CHECK(world.allocator->Deallocate(0, memory).code() == absl::StatusCode::kNotFound);
    __atomic_store_n(&gate.open, 1, __ATOMIC_RELEASE);
    DONE(world.allocator->SynchronizePendingOperations(0));
    CHECK(world.allocator->pending(0) == 0 && world.free_bytes() == before);
}

static void peers_reach_what_is_mapped(World &world) {
    DeviceAddressBase here = OK(world.allocator->Allocate(0, 64)), there = OK(world.allocator->Allocate(1, 64));
    word(here) = 41;
    gvmm_copy_slice slice{reinterpret_cast<std::uint64_t>(there.opaque()), reinterpret_cast<std::uint64_t>(here.opaque()), 64};
    DONE(world.devices[1].shadow_copy(world.queues[1].get(), slice));
    DONE(world.queues[1].synchronize());
    CHECK(word(there) == 41);
    DONE(world.allocator->Deallocate(0, here));
    DONE(world.allocator->Deallocate(1, there));
}

// Three buffers behind two places of one range; XLA's descriptors, and the library's.
static absl::Status remapped(World &world) {
    std::vector<DeviceAddressBase> memory;
    std::vector<se::MemoryAllocation *> raw;
    auto give_back = [&](absl::Status status) {
        for (DeviceAddressBase m : memory)
            if (absl::Status freed = world.allocator->Deallocate(0, m); !freed.ok()) {
                DONE(world.allocator->Deallocate(0, m));  // it lives on, and a retry works
                status = freed;
            }
        return status;
    };
    for (std::uint64_t i = 0; i < 3; i++) {
        auto made = world.allocator->Allocate(0, world.granule);
        if (!made.ok()) return give_back(made.status());
        memory.push_back(*made);
        word(memory[i]) = 100 + i;
        raw.push_back(world.allocator->GetRawAllocation(0, memory[i]));
    }
    std::size_t g = world.granule;
    auto range = world.allocator->CreateReservation(world.executor(), 2 * g);
    if (!range.ok()) return give_back(range.status());
    MemoryReservation::MappingDescriptor both[] = {{0, 0, g, raw[0]}, {g, 0, g, raw[1]}};
    auto mapping = (*range)->MapTo(absl::Span<const MemoryReservation::MappingDescriptor>(both, 2));
    if (!mapping.ok()) return give_back(mapping.status());
    DeviceAddressBase at = mapping->mapped_address();
    CHECK(at.size() == 2 * g && word(at) == 100 && word(at.GetByteSlice(g, g)) == 101);
    word(at) = 200;
    CHECK(word(memory[0]) == 200);
    MemoryReservation::RemappingDescriptor second[] = {{0, 0, g, raw[0], false}, {g, 0, g, raw[2], true}};
    auto moved = (*std::move(mapping)).Remap(absl::Span<const MemoryReservation::RemappingDescriptor>(second, 2));
    if (!moved.ok()) return give_back(moved.status());
    CHECK(word(at) == 200 && word(at.GetByteSlice(g, g)) == 102);
    MemoryReservation::RemappingDescriptor half[] = {{0, 0, g, raw[0], false}};
    auto wrong = (*std::move(moved)).Remap(absl::Span<const MemoryReservation::RemappingDescriptor>(half, 1));
    CHECK(wrong.status().code() == absl::StatusCode::kInvalidArgument);
    moved = MemoryReservation::ScopedMapping();
    return give_back(absl::OkStatus());
}

// The library's own mapping: after a failure all is as before.
static void one_transaction(World &world) {
    std::size_t g = world.granule;
    const gvmm::Device &device = world.allocator->device(0);
    gvmm::Block blocks[3];
    for (gvmm::Block &block : blocks) block = OK(gvmm::Block::create(device, g));
    gvmm::Reservation range = OK(gvmm::Reservation::create(device, 2 * g));
    gvmm::MappingDescriptor both[] = {{0, 0, g, blocks[0].get()}, {g, 0, g, blocks[1].get()}};
    gvmm::ScopedMapping mapping = OK(range.map_to(both));
    CHECK(mapping.mapped_address() == range.address() && mapping.size() == 2 * g);
    word(range.address()) = 1;
    word(range.address() + g) = 2;
    gvmm::RemappingDescriptor next[] = {{0, 0, g, blocks[0].get(), false}, {g, 0, g, blocks[2].get(), true}};
    for (std::uint64_t nth = 1; nth <= 3; nth++) {
        world.fail(nth, 1);
        CHECK(mapping.remap(next).code() == GVMM_ERROR_DRIVER_ERROR);
        world.fail(1, 0);
        CHECK(word(range.address()) == 1 && word(range.address() + g) == 2);
    }
    gvmm_call_counts before = OK(device.counters());
    mapping = OK(std::move(mapping).remap(next));
    gvmm_call_counts after = OK(device.counters());
    CHECK(after.map - before.map == 1 && after.unmap - before.unmap == 1 && after.set_access - before.set_access == 1);
    CHECK(word(range.address() + g) == 0);
    CHECK(mapping.remap(gvmm::View<gvmm::RemappingDescriptor>(next, 1)).code() == GVMM_ERROR_INVALID_ARGUMENT);
    CHECK(range.map_to(g, 4096, g, blocks[1]).status().code() == GVMM_ERROR_INVALID_ARGUMENT);
    CHECK(blocks[2].close().code() == GVMM_ERROR_IN_USE && blocks[2]);  // kept, since it failed
    void *stream = world.queues[0].get();
    DONE(mapping.retire(stream));
    CHECK(mapping.is_null());
    DONE(world.queues[0].synchronize());
    DONE(device.drain());
    CHECK(OK(range.query()).mapped_bytes == 0);
    {
        gvmm::ScopedMapping lost = OK(range.map_to(both));
        CHECK(device.api()->device_fail_calls(device.get(), GVMM_CALL_UNMAP, 1, 1, GVMM_ERROR_DRIVER_ERROR) == 0);
    }
    DONE(device.drain());
    CHECK(OK(range.query()).mapped_bytes == 0);  // what a destructor could not unmap is tried again
}

// An executable: out = in + state, and state goes up by one. Its command buffer is written once.
struct Program {
    gvmm::Api api;
    gvmm::Graph graph;
    std::uint64_t at[3] = {};
    int written = 0, persistent = 0;

    static void run(void *self) {
        auto &at = static_cast<Program *>(self)->at;
        word(at[2]) = word(at[0]) + word(at[1]);
        word(at[1]) = word(at[1]) + 1;
    }
    absl::Status execute(gvmm::Stream &stream, const xla::gpu::BufferAllocations &buffers, bool anew) {
        if (anew) {
            for (int i = 0; i < 3; i++) at[i] = reinterpret_cast<std::uint64_t>(buffers.GetDeviceAddress(i).opaque());
            DONE(stream.capture_begin());
            DONE(stream.host_function(run, this));
            graph = OK(stream.capture_end());
            written++;
        }
        for (int i = 0; i < 3; i++) CHECK(at[i] == reinterpret_cast<std::uint64_t>(buffers.GetDeviceAddress(i).opaque()));
        return se::gpu::ToAbsl(graph.launch(stream.get()));
    }
};

static xla::gpu::GvmmRun make_run(World &world) {
    gvmm_slot slots[3] = {};
    for (gvmm_slot &slot : slots) slot.size_bytes = 8;
    slots[0].size_bytes = 2 * world.granule, slots[0].direction = GVMM_DIRECTION_IN;
    slots[2].direction = GVMM_DIRECTION_OUT;
    return OK(xla::gpu::GvmmRun::Create(world.allocator->device(0), {0, 1, 2}, {slots, slots + 3}));
}

static void an_executable_runs(World &world) {
    Program program;
    xla::gpu::GvmmRun run = make_run(world);
    std::vector<DeviceAddressBase> large, small;
    for (int i = 0; i < 2; i++) large.push_back(OK(world.allocator->Allocate(0, 2 * world.granule)));
    for (int i = 0; i < 4; i++) small.push_back(OK(world.allocator->Allocate(0, 8)));
    word(small[0]) = 10;
    word(small[1]) = 20;
    for (std::uint64_t step = 0; step < 8; step++) {
        DeviceAddressBase in = large[step % 2], state = small[step % 2], out = small[2 + step % 2];
        word(in) = 1000 * step;
        std::uint64_t was = word(state);
        xla::gpu::BufferAllocations owning({in, state, out}, 0, world.allocator.get());
        DONE(run.ExecuteWithBufferAllocations(
            owning, world.queues[0].get(),
            [&](const xla::gpu::BufferAllocations &stable, xla::gpu::GvmmRun::Persistent persistent) {
                program.persistent += persistent.has_value() && persistent->size() == 3;
                return program.execute(world.queues[0], stable, !persistent.has_value());
            }));
        DONE(world.queues[0].synchronize());
        CHECK(word(out) == 1000 * step + was && word(state) == was + 1);  // at the buffers' own addresses
    }
    CHECK(program.written == 1 && program.persistent == 7);

    // A run that fails in the middle is given up, and the next is whole.
    xla::gpu::BufferAllocations owning({large[0], small[0], small[2]}, 0, world.allocator.get());
    std::uint64_t was = word(small[0]);
    absl::Status failed = run.ExecuteWithBufferAllocations(owning, world.queues[0].get(), [](const auto &, auto) {
        return absl::InternalError("a kernel could not be launched");
    });
    DONE(world.queues[0].synchronize());
    CHECK(!failed.ok() && word(small[0]) == was);
    DONE(run.ExecuteWithBufferAllocations(owning, world.queues[0].get(), [&](const auto &stable, auto persistent) {
        return program.execute(world.queues[0], stable, !persistent.has_value());
    }));
    DONE(world.queues[0].synchronize());
    CHECK(word(small[0]) == was + 1);
    for (DeviceAddressBase m : large) DONE(world.allocator->Deallocate(0, m));
    for (DeviceAddressBase m : small) DONE(world.allocator->Deallocate(0, m));
}

// Each driver call of a scenario fails in turn: an answer, nothing lost, and the next try is whole.
template <class F>
static void fail_each_call(World &world, F scenario) {
    DONE(scenario(world));
    DONE(world.allocator->SynchronizePendingOperations(0));
    std::uint64_t before = world.free_bytes(), failures = 0;
    for (std::uint64_t nth = 1;; nth++) {
        world.fail(nth, 1);
        absl::Status status = scenario(world);
        gvmm_call_counts counts = OK(world.devices[0].counters());
        world.fail(1, 0);
        DONE(world.allocator->SynchronizePendingOperations(0));
        CHECK(world.free_bytes() == before);
        failures += !status.ok();
        DONE(scenario(world));
        DONE(world.allocator->SynchronizePendingOperations(0));
        if (status.ok() && nth > 60) break;
        CHECK(counts.map > 0 && nth < 200);
    }
    CHECK(failures > 10);
}

static absl::Status a_run(World &world) {
    Program program;
    xla::gpu::GvmmRun run = make_run(world);
    std::vector<DeviceAddressBase> memory;
    absl::Status status;
    for (int i = 0; i < 6 && status.ok(); i++) {
        auto made = world.allocator->Allocate(0, i % 3 == 0 ? 2 * world.granule : 8);
        if (made.ok()) memory.push_back(*made);
        else status = made.status();
    }
    for (std::size_t step = 0; step < 3 && status.ok(); step++) {
        const DeviceAddressBase *m = &memory[step % 2 * 3];
        xla::gpu::BufferAllocations owning({m[0], m[1], m[2]}, 0, world.allocator.get());
        status = run.ExecuteWithBufferAllocations(owning, world.queues[0].get(), [&](const auto &stable, auto persistent) {
            return program.execute(world.queues[0], stable, !persistent.has_value() || program.written == 0);
        });
    }
    DONE(world.queues[0].synchronize());
    for (DeviceAddressBase m : memory)
        if (absl::Status freed = world.allocator->Deallocate(0, m); !freed.ok()) {
            DONE(world.allocator->Deallocate(0, m));
            status = freed;
        }
    return status;
}

int main() {
    CHECK(!gvmm::Api::load("/nowhere/libgvmm.so.0"));  // absent: XLA does without
    gvmm::Api api = gvmm::Api::load(std::getenv("GVMM_TEST_LIBRARY"));
    CHECK(api && gvmm::Api::linked());
    gvmm_options options = gvmm::sized<gvmm_options>();
    options.host_devices = 2;
    options.host_memory_bytes = 1ull << 30;
    DONE(api.configure(options));
    World world(api);
    freed_once_the_stream_has_passed(world);
    peers_reach_what_is_mapped(world);
    DONE(remapped(world));
    one_transaction(world);
    an_executable_runs(world);
    const char *mode = std::getenv("GVMM_TEST_MODE");
    if (mode && std::strcmp(mode, "Valgrind") == 0) return 0;  // the same again and again would take minutes
    fail_each_call(world, remapped);
    fail_each_call(world, a_run);
    return 0;
}
