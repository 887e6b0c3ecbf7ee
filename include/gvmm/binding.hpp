// Bindings. Part of gvmm.hpp: include that.
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef GVMM_BINDING_HPP
#define GVMM_BINDING_HPP

#include "objects.hpp"

namespace gvmm {
inline namespace GVMM_HPP_VARIANT {

/// The slots of one command buffer. Begin answers false where the command buffer must be recorded (again) with
/// addresses(), and then begun once more.
class Binding : public Owned<gvmm_binding, &gvmm_api::binding_destroy> {
   public:
    using Owned::Owned;
    static StatusOr<Binding> create(const Device &device, View<gvmm_slot> slots,
                                    gvmm_binding_desc desc = sized<gvmm_binding_desc>()) {
        StatusOr<Binding> made = make<Binding>(device.api(), &gvmm_api::binding_create, device.get(), &desc, slots.data(),
                                               slots.size(), sizeof(gvmm_slot));
        if (made.ok()) made->count_ = slots.size();
        return made;
    }
    StatusOr<bool> begin(void *stream, View<gvmm_buffer> buffers, gvmm_step_report *report = nullptr) {
        Status status = call(&gvmm_api::binding_begin, get(), stream, buffers.data(), buffers.size(),
                             sizeof(gvmm_buffer), generation_, report);
        return status.ok() ? StatusOr<bool>(status.code() == GVMM_STATUS_SUCCESS) : status;
    }
    /// The slots' addresses, to be recorded; the next begin is told that they are.
    StatusOr<std::vector<std::uint64_t>> addresses() {
        std::vector<std::uint64_t> addresses(count_);
        Status status = call(&gvmm_api::binding_addresses, get(), addresses.data(), count_, &generation_);
        if (!status.ok()) return status;
        return addresses;
    }
    /// The address of a slot with GVMM_SLOT_PERMANENT.
    StatusOr<std::uint64_t> permanent(std::size_t slot) const {
        std::uint64_t address = 0;
        Status status = call(&gvmm_api::binding_permanent, get(), slot, &address);
        return status.ok() ? StatusOr<std::uint64_t>(address) : status;
    }
    Status end(gvmm_step_report *report = nullptr) const { return call(&gvmm_api::binding_end, get(), report); }
    Status abort() const { return call(&gvmm_api::binding_abort, get()); }
    Status record_copies(void *stream, std::uint32_t ways) const {
        return call(&gvmm_api::binding_record_copies, get(), stream, generation_, ways);
    }
    Status use_graph(void *graph) const { return call(&gvmm_api::binding_use_graph, get(), graph); }
    StatusOr<std::vector<std::uint32_t>> actions() const {
        std::vector<std::uint32_t> actions(count_);
        Status status = call(&gvmm_api::binding_actions, get(), actions.data(), count_);
        if (!status.ok()) return status;
        return actions;
    }
    /// What must be patched in the command buffer of the step that has begun.
    StatusOr<std::vector<gvmm_patch>> patches() const {
        std::size_t count = 0;
        Status status = call(&gvmm_api::binding_patches, get(), nullptr, 0, &count);
        if (!status.ok()) return status;
        std::vector<gvmm_patch> patches(count);
        status = call(&gvmm_api::binding_patches, get(), patches.data(), count, &count);
        if (!status.ok()) return status;
        return patches;
    }
    StatusOr<gvmm_binding_info> query() const {
        gvmm_binding_info info = sized<gvmm_binding_info>();
        Status status = call(&gvmm_api::binding_query, get(), &info);
        return status.ok() ? StatusOr<gvmm_binding_info>(info) : status;
    }
    /// The plan's digest, which the ranks of a job compare.
    StatusOr<gvmm_plan_info> plan() const {
        gvmm_plan_info info = sized<gvmm_plan_info>();
        Status status = call(&gvmm_api::binding_plan_query, get(), &info);
        return status.ok() ? StatusOr<gvmm_plan_info>(info) : status;
    }

   private:
    std::size_t count_ = 0;
    std::uint64_t generation_ = 0;
};

}  // namespace GVMM_HPP_VARIANT
}  // namespace gvmm

#endif
