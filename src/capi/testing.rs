//! The fault switch.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::drivers::DeviceObject;
use super::entry::entry;
use super::handle;
use super::status::{self, gvmm_status};
use super::types::gvmm_device;
use crate::driver::testing::Call;
use crate::error::{Error, Kind, Operation, Result};

/// Any call of the driver.
pub const GVMM_CALL_ANY: u32 = 0;
/// Driver call: reserve a range.
pub const GVMM_CALL_RESERVE: u32 = 1;
/// Driver call: free a range.
pub const GVMM_CALL_FREE: u32 = 2;
/// Driver call: create a block.
pub const GVMM_CALL_CREATE: u32 = 3;
/// Driver call: release a block.
pub const GVMM_CALL_RELEASE: u32 = 4;
/// Driver call: map.
pub const GVMM_CALL_MAP: u32 = 5;
/// Driver call: unmap.
pub const GVMM_CALL_UNMAP: u32 = 6;
/// Driver call: set access.
pub const GVMM_CALL_SET_ACCESS: u32 = 7;
/// Driver call: allocate plain memory.
pub const GVMM_CALL_ALLOCATE: u32 = 8;
/// Driver call: give plain memory back.
pub const GVMM_CALL_DEALLOCATE: u32 = 9;
/// Driver call: copy.
pub const GVMM_CALL_COPY: u32 = 10;
/// Driver call: make a timeline.
pub const GVMM_CALL_TIMELINE_CREATE: u32 = 11;
/// Driver call: give a timeline up.
pub const GVMM_CALL_TIMELINE_DESTROY: u32 = 12;
/// Driver call: enqueue a write of a timeline.
pub const GVMM_CALL_TIMELINE_WRITE: u32 = 13;
/// Driver call: read a timeline.
pub const GVMM_CALL_TIMELINE_READ: u32 = 14;
/// Driver call: wait for a timeline on the host.
pub const GVMM_CALL_TIMELINE_WAIT: u32 = 15;
/// Driver call: let a stream wait for a timeline.
pub const GVMM_CALL_STREAM_WAIT: u32 = 16;
/// Driver call: ask whether a stream captures.
pub const GVMM_CALL_IS_CAPTURING: u32 = 17;
/// Driver call: export a block.
pub const GVMM_CALL_EXPORT: u32 = 18;
/// Driver call: import a block.
pub const GVMM_CALL_IMPORT: u32 = 19;
/// Driver call: read the memory figures.
pub const GVMM_CALL_MEMORY: u32 = 20;
/// Driver call: keep what stays of a binding's copies.
pub const GVMM_CALL_ROUTE_CREATE: u32 = 21;
/// Driver call: give that up.
pub const GVMM_CALL_ROUTE_DESTROY: u32 = 22;
/// Driver call: record copies into a graph.
pub const GVMM_CALL_ROUTE_RECORD: u32 = 23;
/// Driver call: point a graph's recorded copies at buffers.
pub const GVMM_CALL_ROUTE_POINT: u32 = 24;

/// For tests: makes driver calls fail, without making them. It holds for all devices of the device's driver
/// and replaces what was set before.
///
/// State: after success the `nth` such call from now on fails, and the `count - 1` after it.
/// Parameters: `device`; `call`, `GVMM_CALL_...`; `nth`, 1 being the next; `count`, how many fail in a row,
/// 0: none, the switch is off; `status`, a `GVMM_ERROR_...` that they fail with.
/// Statuses: INVALID_ARGUMENT (`call`, `status`, or `nth` 0 while `count` is not).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_fail_calls(
    device: *mut gvmm_device,
    call: u32,
    nth: u64,
    count: u64,
    status: gvmm_status,
) -> gvmm_status {
    entry(Operation::None, || {
        let device = handle::get::<DeviceObject>(device)?;
        let call = chosen(call)?;
        if count == 0 {
            device.fault.clear();
            return Ok(());
        }
        let hint = "nth counts from 1, and the status is one of GVMM_ERROR_...";
        let kind = status::kind(status).filter(|_| nth > 0);
        let kind = kind.ok_or(Error::new(Kind::InvalidArgument, Operation::None, hint))?;
        device.fault.clear();
        device.fault.fail(call, nth, count, Error::new(kind, operation(call), "asked for by a test"));
        Ok(())
    })
}

/// The call of a number, or none for any.
fn chosen(number: u32) -> Result<Option<Call>> {
    match Call(number) {
        Call(GVMM_CALL_ANY) => Ok(None),
        call if call.is_known() => Ok(Some(call)),
        _ => Err(Error::new(Kind::InvalidArgument, Operation::None, "call is none of GVMM_CALL_...")),
    }
}

/// What a failing call was doing.
fn operation(call: Option<Call>) -> Operation {
    match call {
        Some(Call::RESERVE) => Operation::Reserve,
        Some(Call::FREE) => Operation::Free,
        Some(Call::CREATE) => Operation::Create,
        Some(Call::RELEASE) => Operation::Release,
        Some(Call::MAP) => Operation::Map,
        Some(Call::UNMAP) => Operation::Unmap,
        Some(Call::SET_ACCESS) => Operation::SetAccess,
        Some(Call::ALLOCATE) => Operation::Allocate,
        Some(Call::DEALLOCATE) => Operation::Deallocate,
        Some(
            Call::COPY | Call::ROUTE_CREATE | Call::ROUTE_DESTROY | Call::ROUTE_RECORD | Call::ROUTE_POINT,
        ) => Operation::Copy,
        Some(Call::STREAM_WAIT | Call::IS_CAPTURING) => Operation::Stream,
        Some(Call::EXPORT | Call::IMPORT) => Operation::Share,
        Some(Call::MEMORY) => Operation::Query,
        Some(_) => Operation::Timeline,
        None => Operation::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_calls() {
        let names = [
            (GVMM_CALL_RESERVE, "reserve"),
            (GVMM_CALL_FREE, "free"),
            (GVMM_CALL_CREATE, "create"),
            (GVMM_CALL_RELEASE, "release"),
            (GVMM_CALL_MAP, "map"),
            (GVMM_CALL_UNMAP, "unmap"),
            (GVMM_CALL_SET_ACCESS, "set_access"),
            (GVMM_CALL_ALLOCATE, "allocate"),
            (GVMM_CALL_DEALLOCATE, "deallocate"),
            (GVMM_CALL_COPY, "copy"),
            (GVMM_CALL_TIMELINE_CREATE, "timeline_create"),
            (GVMM_CALL_TIMELINE_DESTROY, "timeline_destroy"),
            (GVMM_CALL_TIMELINE_WRITE, "timeline_write"),
            (GVMM_CALL_TIMELINE_READ, "timeline_read"),
            (GVMM_CALL_TIMELINE_WAIT, "timeline_wait"),
            (GVMM_CALL_STREAM_WAIT, "stream_wait"),
            (GVMM_CALL_IS_CAPTURING, "is_capturing"),
            (GVMM_CALL_EXPORT, "export"),
            (GVMM_CALL_IMPORT, "import"),
            (GVMM_CALL_MEMORY, "memory"),
            (GVMM_CALL_ROUTE_CREATE, "route_create"),
            (GVMM_CALL_ROUTE_DESTROY, "route_destroy"),
            (GVMM_CALL_ROUTE_RECORD, "route_record"),
            (GVMM_CALL_ROUTE_POINT, "route_point"),
        ];
        assert_eq!(names.len(), Call::COUNT as usize, "a call has no constant");
        for (number, name) in names {
            assert_eq!(Call(number).name(), name);
            assert_eq!(chosen(number), Ok(Some(Call(number))));
        }
        assert_eq!(chosen(0), Ok(None));
        assert!(chosen(Call::COUNT + 1).is_err());
    }
}
