//! The last error of a thread.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::entry::entry_quiet;
use super::status::{self, gvmm_status};
use super::versioned::{Caller, Versioned, versioned};
use crate::error::{Error, Operation};
use std::cell::RefCell;
use std::ffi::c_char;
use std::fmt::{self, Write};
use std::panic::PanicHookInfo;

/// No element of an array is to blame.
pub const GVMM_ENTRY_NONE: u64 = u64::MAX;

/// Operation of an error detail: none in particular.
pub const GVMM_OPERATION_NONE: u32 = 0;
/// Operation: opening a device.
pub const GVMM_OPERATION_OPEN: u32 = 1;
/// Operation: a query.
pub const GVMM_OPERATION_QUERY: u32 = 2;
/// Operation: reserving a range.
pub const GVMM_OPERATION_RESERVE: u32 = 3;
/// Operation: freeing a range, or a pool's block.
pub const GVMM_OPERATION_FREE: u32 = 4;
/// Operation: creating a block.
pub const GVMM_OPERATION_CREATE: u32 = 5;
/// Operation: releasing a block.
pub const GVMM_OPERATION_RELEASE: u32 = 6;
/// Operation: mapping.
pub const GVMM_OPERATION_MAP: u32 = 7;
/// Operation: unmapping.
pub const GVMM_OPERATION_UNMAP: u32 = 8;
/// Operation: setting access.
pub const GVMM_OPERATION_SET_ACCESS: u32 = 9;
/// Operation: allocating.
pub const GVMM_OPERATION_ALLOCATE: u32 = 10;
/// Operation: giving plain memory back to the driver.
pub const GVMM_OPERATION_DEALLOCATE: u32 = 11;
/// Operation: copying.
pub const GVMM_OPERATION_COPY: u32 = 12;
/// Operation: using a timeline.
pub const GVMM_OPERATION_TIMELINE: u32 = 13;
/// Operation: using a stream.
pub const GVMM_OPERATION_STREAM: u32 = 14;
/// Operation: capturing.
pub const GVMM_OPERATION_CAPTURE: u32 = 15;
/// Operation: launching a graph.
pub const GVMM_OPERATION_LAUNCH: u32 = 16;
/// Operation: exporting or importing.
pub const GVMM_OPERATION_SHARE: u32 = 17;
/// Operation: remapping.
pub const GVMM_OPERATION_REMAP: u32 = 18;
/// Operation: retiring.
pub const GVMM_OPERATION_RETIRE: u32 = 19;
/// Operation: creating a binding.
pub const GVMM_OPERATION_BIND: u32 = 20;
/// Operation: beginning a step.
pub const GVMM_OPERATION_BEGIN: u32 = 21;
/// Operation: ending a step.
pub const GVMM_OPERATION_END: u32 = 22;
/// Operation: destroying.
pub const GVMM_OPERATION_DESTROY: u32 = 23;

/// The last failure of this thread, as numbers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_error_detail {
    /// `sizeof(gvmm_error_detail)`.
    pub struct_size: usize,
    /// What the call answered; GVMM_STATUS_SUCCESS where no call has failed on this thread.
    pub status: gvmm_status,
    /// What was being done: `GVMM_OPERATION_...`.
    pub operation: u32,
    /// The driver's own code (a `CUresult`, a `hipError_t`, a `ze_result_t`, an `errno`).
    pub native_code: i64,
    /// 1 where `native_code` counts.
    pub has_native: u32,
    /// 0.
    pub reserved: u32,
    /// Which element of the caller's array is to blame, or GVMM_ENTRY_NONE.
    pub entry: u64,
    /// Where, or 0.
    pub address: u64,
    /// How many bytes, or 0.
    pub size_bytes: u64,
}

versioned!(gvmm_error_detail {
    status,
    operation,
    native_code,
    has_native,
    reserved,
    entry,
    address,
    size_bytes
});

/// Copies out the message that the last failing call on this thread left. Calls that succeed leave it, and
/// so do this function and `gvmm_last_error_detail` when they fail.
///
/// State: changes none.
/// Parameters: `out_message`, room for `capacity` bytes; a longer message is cut; it ends with a NUL unless
/// `capacity` is 0, and then it may be NULL; `out_needed`, the bytes that the whole message needs, with the
/// NUL; 1 where no call has failed.
/// Statuses: none of its own.
/// Threads: this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_last_error_message(
    out_message: *mut c_char,
    capacity: usize,
    out_needed: *mut usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry_quiet(Operation::Query, || {
        let place = c.out_bytes(out_message, capacity)?;
        let needed = c.out(out_needed)?;
        let message = message();
        place.write_text(message.as_bytes());
        needed.write(message.as_bytes().len() + 1);
        Ok(())
    })
}

/// Gives the last failure on this thread as numbers.
///
/// State: changes none.
/// Parameters: `out_detail`, whose `struct_size` is set.
/// Statuses: UNKNOWN_VERSION.
/// Threads: this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_last_error_detail(out_detail: *mut gvmm_error_detail) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry_quiet(Operation::Query, || {
        c.out_struct(out_detail)?.write(&detail());
        Ok(())
    })
}

/// What a thread keeps: plain data, so that nothing is built on a hot path and nothing is dropped at its
/// end.
#[derive(Clone, Copy)]
struct Last {
    error: Option<Error>,
    /// What there is to say besides: the text of the panic that the error comes from, or who holds memory.
    more: Text,
    /// True where that belongs to the failure that is recorded next.
    is_new: bool,
}

/// Text in a fixed buffer; what does not fit is cut.
#[derive(Clone, Copy)]
struct Text {
    bytes: [u8; CAPACITY],
    length: usize,
}

const CAPACITY: usize = 512;

impl Text {
    const EMPTY: Self = Self { bytes: [0; CAPACITY], length: 0 };

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Cut between characters, and no NUL inside.
        for c in text.chars().map(|c| if c == '\0' { ' ' } else { c }) {
            let end = self.length + c.len_utf8();
            let Some(place) = self.bytes.get_mut(self.length..end) else { return Err(fmt::Error) };
            c.encode_utf8(place);
            self.length = end;
        }
        Ok(())
    }
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { error: None, more: Text::EMPTY, is_new: false }) };
}

/// Keeps a failure for this thread and gives its status.
#[cold]
pub(super) fn record(error: Error) -> gvmm_status {
    LAST.with_borrow_mut(|last| {
        last.error = Some(error);
        if !std::mem::take(&mut last.is_new) {
            last.more = Text::EMPTY;
        }
    });
    status::of(error.kind)
}

/// Keeps what a panic said, for the message of the call that it ends.
pub(super) fn keep_panic(info: &PanicHookInfo<'_>) {
    add(&SingleLine(info));
}

/// Keeps what there is to say besides about a failure, just before the call ends with it.
pub(super) fn add(what: &dyn fmt::Display) {
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            (last.more, last.is_new) = (Text::EMPTY, true);
            let _ = write!(last.more, "{what}");
        }
    });
}

/// A panic's own words and its place, on one line.
struct SingleLine<'a, 'b>(&'a PanicHookInfo<'b>);

impl fmt::Display for SingleLine<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.payload_as_str().unwrap_or("no message"))?;
        self.0.location().map_or(Ok(()), |place| write!(f, " ({}:{})", place.file(), place.line()))
    }
}

/// What the last panic said.
pub(super) fn panic_text() -> String {
    LAST.with_borrow(|last| String::from_utf8_lossy(last.more.as_bytes()).into_owned())
}

/// The last failure in words; empty where there was none.
fn message() -> Text {
    let last = LAST.with_borrow(|last| *last);
    let mut text = Text::EMPTY;
    if let Some(error) = last.error {
        // Cutting a message that is too long is all that can be done.
        let _ = write!(text, "{error}");
        if !last.more.is_empty() {
            let _ = write!(text, ": {}", String::from_utf8_lossy(last.more.as_bytes()));
        }
    }
    text
}

/// The last failure in words.
pub(super) fn text() -> String {
    String::from_utf8_lossy(message().as_bytes()).into_owned()
}

#[cfg(test)]
pub(super) fn message_for_tests() -> String {
    text()
}

fn detail() -> gvmm_error_detail {
    let last = LAST.with_borrow(|last| last.error);
    let mut detail = gvmm_error_detail { entry: GVMM_ENTRY_NONE, ..Versioned::DEFAULT };
    if let Some(error) = last {
        detail.status = status::of(error.kind);
        detail.operation = error.operation as u32;
        detail.native_code = error.native.map_or(0, |native| native.code);
        detail.has_native = u32::from(error.native.is_some());
        detail.entry = error.entry.unwrap_or(GVMM_ENTRY_NONE);
        detail.address = error.address.get();
        detail.size_bytes = error.size.get();
    }
    detail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_operations() {
        let numbers = [
            (GVMM_OPERATION_NONE, Operation::None),
            (GVMM_OPERATION_OPEN, Operation::Open),
            (GVMM_OPERATION_QUERY, Operation::Query),
            (GVMM_OPERATION_RESERVE, Operation::Reserve),
            (GVMM_OPERATION_FREE, Operation::Free),
            (GVMM_OPERATION_CREATE, Operation::Create),
            (GVMM_OPERATION_RELEASE, Operation::Release),
            (GVMM_OPERATION_MAP, Operation::Map),
            (GVMM_OPERATION_UNMAP, Operation::Unmap),
            (GVMM_OPERATION_SET_ACCESS, Operation::SetAccess),
            (GVMM_OPERATION_ALLOCATE, Operation::Allocate),
            (GVMM_OPERATION_DEALLOCATE, Operation::Deallocate),
            (GVMM_OPERATION_COPY, Operation::Copy),
            (GVMM_OPERATION_TIMELINE, Operation::Timeline),
            (GVMM_OPERATION_STREAM, Operation::Stream),
            (GVMM_OPERATION_CAPTURE, Operation::Capture),
            (GVMM_OPERATION_LAUNCH, Operation::Launch),
            (GVMM_OPERATION_SHARE, Operation::Share),
            (GVMM_OPERATION_REMAP, Operation::Remap),
            (GVMM_OPERATION_RETIRE, Operation::Retire),
            (GVMM_OPERATION_BIND, Operation::Bind),
            (GVMM_OPERATION_BEGIN, Operation::Begin),
            (GVMM_OPERATION_END, Operation::End),
            (GVMM_OPERATION_DESTROY, Operation::Destroy),
        ];
        for (number, operation) in numbers {
            assert_eq!(number, operation as u32, "{operation:?}");
        }
    }
}
