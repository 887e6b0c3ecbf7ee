// A stand-in, written from the documented interface: an allocator that frees what a stream may still use once a number
// written behind it has come. Its subclass gives the device's state, memory, ranges, and the write of that number.
#ifndef STANDIN_XLA_DEVICE_ADDRESS_VMM_ALLOCATOR_H
#define STANDIN_XLA_DEVICE_ADDRESS_VMM_ALLOCATOR_H

#include <sched.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "xla/stream_executor/memory_reservation.h"

namespace stream_executor {

class Stream {
   public:
    struct PlatformSpecificHandle {
        void *stream;
    };
    explicit Stream(void *native) : native_(native) {}
    PlatformSpecificHandle platform_specific_handle() const { return {native_}; }

   private:
    void *native_;
};

class Platform;

class StreamExecutor {
   public:
    StreamExecutor(Platform *platform, int ordinal) : platform_(platform), ordinal_(ordinal) {}
    int device_ordinal() const { return ordinal_; }
    const Platform *GetPlatform() const { return platform_; }
    bool CanEnablePeerAccessTo(StreamExecutor *other) { return other != this; }

   private:
    Platform *platform_;
    int ordinal_;
};

class Platform {
   public:
    explicit Platform(int devices) {
        for (int i = 0; i < devices; i++) executors_.push_back(std::make_unique<StreamExecutor>(this, i));
    }
    int VisibleDeviceCount() const { return static_cast<int>(executors_.size()); }
    absl::StatusOr<StreamExecutor *> ExecutorForDevice(int ordinal) {
        if (ordinal < 0 || ordinal >= VisibleDeviceCount()) return absl::NotFoundError("no such device");
        return executors_[ordinal].get();
    }

   private:
    std::vector<std::unique_ptr<StreamExecutor>> executors_;
};

class DeviceAddressVmmAllocator {
   public:
    struct DeviceConfig {
        StreamExecutor *executor;
        Stream *stream;
        std::uint64_t pa_budget = UINT64_MAX;
    };

    virtual ~DeviceAddressVmmAllocator() {
        for (auto &[ordinal, state] : per_device_) {
            (void)SynchronizePendingOperations(ordinal);
            state->live.clear();
            if (state->destroy_fn) state->destroy_fn();
        }
    }

    // Memory in a range of its own.
    absl::StatusOr<DeviceAddressBase> Allocate(int ordinal, std::uint64_t size) {
        PerDeviceState &state = *per_device_.at(ordinal);
        std::lock_guard<std::mutex> lock(state.mu);
        Collect(state);
        Record record;
        ASSIGN_OR_RETURN(record.memory, CreateAllocation(state.executor, Rounded(state, size)));
        ASSIGN_OR_RETURN(record.reservation, CreateReservation(state.executor, Rounded(state, size)));
        ASSIGN_OR_RETURN(record.mapping, record.reservation->MapTo(0, 0, Rounded(state, size), *record.memory));
        void *at = record.mapping.mapped_address().opaque();
        state.live[at] = std::move(record);
        return DeviceAddressBase(at, size);
    }

    // Frees it once the stream has passed what is enqueued now. After a failure it lives on.
    absl::Status Deallocate(int ordinal, DeviceAddressBase memory) {
        PerDeviceState &state = *per_device_.at(ordinal);
        std::lock_guard<std::mutex> lock(state.mu);
        auto found = state.live.find(memory.opaque());
        if (found == state.live.end()) return absl::NotFoundError("not of this allocator");
        RETURN_IF_ERROR(EnqueueDeferredDeallocation(state, state.next_seqno));
        state.pending.push_back({state.next_seqno++, std::move(found->second)});
        state.live.erase(found);
        Collect(state);
        return absl::OkStatus();
    }

    absl::Status SynchronizePendingOperations(int ordinal) {
        PerDeviceState &state = *per_device_.at(ordinal);
        std::lock_guard<std::mutex> lock(state.mu);
        while (!state.pending.empty()) {
            Collect(state);
            sched_yield();
        }
        return absl::OkStatus();
    }

    MemoryAllocation *GetRawAllocation(int ordinal, DeviceAddressBase memory) {
        PerDeviceState &state = *per_device_.at(ordinal);
        std::lock_guard<std::mutex> lock(state.mu);
        auto found = state.live.find(memory.opaque());
        return found == state.live.end() ? nullptr : found->second.memory.get();
    }

    std::size_t pending(int ordinal) {
        PerDeviceState &state = *per_device_.at(ordinal);
        std::lock_guard<std::mutex> lock(state.mu);
        Collect(state);
        return state.pending.size();
    }
    std::uint64_t GetAllocationGranularity(StreamExecutor *executor) const {
        return per_device_.at(executor->device_ordinal())->allocation_granularity;
    }
    virtual absl::StatusOr<std::unique_ptr<MemoryReservation>> CreateReservation(StreamExecutor *executor,
                                                                                 std::uint64_t size) = 0;

   protected:
    // What goes first is destroyed last: the mapping goes before its range and its memory.
    struct Record {
        std::unique_ptr<MemoryAllocation> memory;
        std::unique_ptr<MemoryReservation> reservation;
        MemoryReservation::ScopedMapping mapping;
    };
    struct PerDeviceState {
        StreamExecutor *executor = nullptr;
        Stream *stream = nullptr;
        std::uint64_t pa_budget = 0;
        std::uint64_t allocation_granularity = 0;
        volatile std::uint64_t *pinned_timeline = nullptr;
        std::uint64_t timeline_dev_ptr = 0;
        std::function<void()> destroy_fn;
        std::mutex mu;
        std::uint64_t next_seqno = 1;
        std::map<void *, Record> live;
        std::deque<std::pair<std::uint64_t, Record>> pending;
    };

    explicit DeviceAddressVmmAllocator(const Platform *) {}
    static absl::Status PopulateDevices(DeviceAddressVmmAllocator *allocator, absl::Span<const DeviceConfig> devices) {
        for (const DeviceConfig &config : devices) {
            auto state = std::make_unique<PerDeviceState>();
            state->executor = config.executor, state->stream = config.stream, state->pa_budget = config.pa_budget;
            RETURN_IF_ERROR(allocator->InitializeDeviceState(*state));
            allocator->per_device_[config.executor->device_ordinal()] = std::move(state);
        }
        return absl::OkStatus();
    }
    absl::Status SynchronizeAllPendingOperations() {
        for (auto &entry : per_device_) RETURN_IF_ERROR(SynchronizePendingOperations(entry.first));
        return absl::OkStatus();
    }
    virtual absl::Status InitializeDeviceState(PerDeviceState &state) = 0;
    virtual absl::StatusOr<std::unique_ptr<MemoryAllocation>> CreateAllocation(StreamExecutor *executor,
                                                                              std::uint64_t size) = 0;
    virtual absl::Status EnqueueDeferredDeallocation(PerDeviceState &state, std::uint64_t seqno) = 0;

   private:
    static std::uint64_t Rounded(const PerDeviceState &state, std::uint64_t size) {
        std::uint64_t unit = state.allocation_granularity;
        return (size + unit - 1) / unit * unit;
    }
    static void Collect(PerDeviceState &state) {
        std::uint64_t passed = __atomic_load_n(state.pinned_timeline, __ATOMIC_ACQUIRE);
        while (!state.pending.empty() && state.pending.front().first <= passed) state.pending.pop_front();
    }
    std::map<int, std::unique_ptr<PerDeviceState>> per_device_;
};

}  // namespace stream_executor

#endif
