//! All functions as one table.
#![allow(unsafe_code, reason = "exports a symbol; a table of functions is shared by threads")]

use super::entry::entry;
use super::status::gvmm_status;
use super::version::VERSION;
use super::versioned::{Caller, unknown};
use crate::error::{Operation, Result};

/// Every function of this header but `gvmm_get_api` itself, as a table for programs that load the library while they
/// run, if it is there. It is one constant; functions are only ever appended. It begins with `struct_size`, its own size
/// in bytes, and `version`, the library's as `gvmm_version_number` gives it; `reserved` is 0. A function is there if the
/// table is long enough.
pub struct gvmm_api(());

/// Gives the library's functions as a table. A program that loads the library looks up this name only, and goes on without
/// where the library is missing or the answer is a failure:
///
/// ```c
/// void *library = dlopen("libgvmm.so.0", RTLD_NOW | RTLD_LOCAL);
/// gvmm_status (*get)(uint32_t, size_t, const gvmm_api **) = library ? dlsym(library, "gvmm_get_api") : NULL;
/// if (!get || get(GVMM_VERSION_NUMBER, sizeof(gvmm_api), &api) != GVMM_STATUS_SUCCESS) do without;
/// ```
///
/// State: needs none and changes none.
/// Parameters: `version`, GVMM_VERSION_NUMBER of the header that the program was compiled with; `size_bytes`, how much of
/// the table it uses, mostly `sizeof(gvmm_api)`; `out_api`, the table, which lives as long as the process.
/// Statuses: UNKNOWN_VERSION (the library is older than `version`, of another major version, or its table is shorter).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_get_api(
    version: u32,
    size_bytes: usize,
    out_api: *mut *const gvmm_api,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out(out_api)?;
        check(version, size_bytes)?;
        out.write((&raw const TABLE).cast());
        Ok(())
    })
}

fn check(version: u32, size_bytes: usize) -> Result<()> {
    const MAJOR: u32 = 1_000_000;
    if version > VERSION || version / MAJOR != VERSION / MAJOR {
        return Err(unknown("the library is older than the program's header, or of another major version"));
    }
    if size_bytes > size_of::<Table>() {
        return Err(unknown("the library is older: it lacks functions that the program uses"));
    }
    Ok(())
}

/// A function, of whatever type.
#[repr(transparent)]
struct Function(*const ());

// SAFETY: a function's address is a constant.
unsafe impl Sync for Function {}

/// `gvmm_api` as it lies in memory; `tests/header.rs` writes its declaration for C from `NAMES` and the functions'.
#[repr(C)]
struct Table {
    struct_size: usize,
    version: u32,
    reserved: u32,
    functions: [Function; NAMES.len()],
}

macro_rules! table {
    ($($module:ident::$function:ident),* $(,)?) => {
        /// The functions of the table, in its order.
        pub const NAMES: &[&str] = &[$(stringify!($function)),*];

        static TABLE: Table = Table {
            struct_size: size_of::<Table>(),
            version: VERSION,
            reserved: 0,
            functions: [$(Function(super::$module::$function as *const ())),*],
        };
    };
}

// A new function is appended at the end; then `make bless`. Nothing is ever taken out or moved.
table! {
    version::gvmm_version_number,
    version::gvmm_version_string,
    status::gvmm_status_name,
    last_error::gvmm_last_error_message,
    last_error::gvmm_last_error_detail,
    log::gvmm_log_set_callback,
    device::gvmm_device_count,
    device::gvmm_device_open,
    device::gvmm_device_close,
    device::gvmm_device_query,
    device::gvmm_device_memory,
    device::gvmm_device_counters,
    device::gvmm_device_collect,
    device::gvmm_device_drain,
    device::gvmm_device_find,
    stream::gvmm_stream_create,
    stream::gvmm_stream_destroy,
    stream::gvmm_stream_synchronize,
    stream::gvmm_stream_host_function,
    stream::gvmm_stream_capture_begin,
    stream::gvmm_stream_capture_end,
    stream::gvmm_stream_is_capturing,
    stream::gvmm_stream_forget,
    stream::gvmm_graph_launch,
    stream::gvmm_graph_destroy,
    attach::gvmm_device_attach,
    attach::gvmm_stream_wrap_queue,
    block::gvmm_block_create,
    block::gvmm_block_adopt,
    block::gvmm_block_query,
    block::gvmm_block_destroy,
    block::gvmm_block_export,
    block::gvmm_block_import,
    reservation::gvmm_reserve,
    reservation::gvmm_map,
    reservation::gvmm_reservation_unmap,
    reservation::gvmm_reservation_set_access,
    reservation::gvmm_reservation_query,
    reservation::gvmm_reservation_destroy,
    remap::gvmm_remap,
    remap::gvmm_device_retire,
    allocation::gvmm_allocation_create,
    allocation::gvmm_allocation_query,
    allocation::gvmm_allocation_destroy,
    copy::gvmm_shadow_copy,
    slot::gvmm_compute_threshold,
    plan::gvmm_binding_patches,
    plan::gvmm_binding_plan_export,
    plan::gvmm_binding_plan_import,
    plan::gvmm_binding_plan_check,
    plan::gvmm_binding_plan_query,
    plan::gvmm_binding_explain,
    plan::gvmm_binding_replan,
    binding::gvmm_binding_create,
    binding::gvmm_binding_addresses,
    binding::gvmm_binding_actions,
    binding::gvmm_binding_query,
    binding::gvmm_binding_drop_idle,
    binding::gvmm_binding_destroy,
    step::gvmm_binding_begin,
    step::gvmm_binding_end,
    step::gvmm_binding_abort,
    record::gvmm_binding_record_copies,
    record::gvmm_binding_use_graph,
    testing::gvmm_device_fail_calls,
    timeline::gvmm_timeline_create,
    timeline::gvmm_timeline_write,
    timeline::gvmm_timeline_destroy,
    options::gvmm_configure,
    segment::gvmm_segment_create,
    segment::gvmm_segment_query,
    segment::gvmm_segment_map,
    segment::gvmm_segment_unmap,
    segment::gvmm_segment_live_runs,
    segment::gvmm_segment_set_access,
    segment::gvmm_segment_destroy,
    pool::gvmm_pool_create,
    pool::gvmm_pool_destroy,
    pool::gvmm_pool_alloc,
    pool::gvmm_pool_free,
    pool::gvmm_pool_free_on,
    pool::gvmm_pool_record_stream,
    pool::gvmm_pool_forget_stream,
    pool::gvmm_pool_find,
    pool_limits::gvmm_pool_trim,
    pool_limits::gvmm_pool_set_limit,
    pool_limits::gvmm_pool_set_fraction,
    pool_limits::gvmm_pool_set_access,
    pool_limits::gvmm_pool_pin,
    pool_limits::gvmm_pool_unpin,
    pool_limits::gvmm_pool_on_pressure,
    pool_capture::gvmm_pool_capture_begin,
    pool_capture::gvmm_pool_capture_end,
    pool_capture::gvmm_pool_capture_release,
    pool_stats::gvmm_pool_query,
    pool_stats::gvmm_pool_stream_stats,
    pool_stats::gvmm_pool_reset_peaks,
    pool_snapshot::gvmm_pool_snapshot,
    permanent::gvmm_binding_permanent,
    peer::gvmm_device_peer_query,
    peer::gvmm_device_peer_enable,
    peer::gvmm_allocation_set_access,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_newer_or_wants_more_is_refused() {
        assert_eq!(check(VERSION, size_of::<Table>()), Ok(()));
        assert_eq!(check(0, 0), Ok(()), "older and shorter");
        for (version, size) in [(VERSION + 1, 0), (VERSION + 1_000_000, 0), (VERSION, size_of::<Table>() + 1)]
        {
            assert!(check(version, size).is_err(), "{version} {size}");
        }
    }
}
