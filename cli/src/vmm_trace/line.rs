//! One line of a trace.

/// One call. Numbers are as written; times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) call: &'a str,
    pub(super) status: i32,
    pub(super) took_ns: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) handle: u64,
    pub(super) vendor_calls: u64,
}

impl<'a> Line<'a> {
    /// None where it is not a line of a trace.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let fields: Vec<&str> = text.split(',').collect();
        let [time, thread, call, status, took, address, bytes, handle, _devices, vendor_calls] =
            fields.as_slice()
        else {
            return None;
        };
        let _: (u64, u64) = (time.parse().ok()?, thread.parse().ok()?);
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        Some(Self {
            call,
            status: status.parse().ok()?,
            took_ns: took.parse().ok()?,
            address: hex(address)?,
            bytes: bytes.parse().ok()?,
            handle: hex(handle)?,
            vendor_calls: vendor_calls.parse().ok()?,
        })
    }
}
