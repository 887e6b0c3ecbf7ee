//! What went wrong: plain data, put into words only when somebody reads it.

use crate::units::{ByteSize, DevicePtr};
use std::fmt;

/// Either a value or an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure. Each has one status code of the C ABI, the same on every driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(i32)]
pub enum Kind {
    // The caller's.
    /// A value that is not one of those allowed.
    InvalidArgument = 100,
    /// NULL where a pointer is needed.
    NullPointer = 101,
    /// A size that is 0, too large, or no multiple of what it must be.
    InvalidSize = 102,
    /// An address, an offset or an alignment that is not aligned as it must be.
    Misaligned = 103,
    /// An offset, an index or a range that lies outside.
    OutOfRange = 104,
    /// A handle that is stale, doubled, of another type or of another copy of the library.
    InvalidHandle = 105,
    /// The object still has children or users.
    InUse = 106,
    /// The range is mapped already.
    AlreadyMapped = 107,
    /// Nothing is mapped there.
    NotMapped = 108,
    /// The range covers a mapping in part only.
    PartialMapping = 109,
    /// The call does not fit the object's state (begin twice, end without begin).
    WrongState = 110,
    /// Another thread is inside the same object.
    Busy = 111,
    /// One block behind two slots of which one is written.
    Aliased = 112,
    /// Slices of one copy overlap.
    Overlap = 113,
    /// A stream that does not exist, or NULL where the driver has no default stream.
    InvalidStream = 114,
    /// The stream is being captured, and the call must not be.
    StreamCapturing = 115,
    /// The number of elements differs from what the object was made for.
    CountMismatch = 116,
    /// A struct or an array element of a size this version does not know.
    UnknownVersion = 117,
    /// A plan of other slots, or another plan than the one that was agreed on.
    PlanMismatch = 118,

    // Memory.
    /// The host's memory is used up.
    OutOfHostMemory = 200,
    /// The device's memory is used up.
    OutOfDeviceMemory = 201,
    /// No free range of addresses of that size.
    OutOfAddressSpace = 202,
    /// The process has no file descriptor left.
    OutOfFileDescriptors = 203,
    /// The process may hold no more mappings (`vm.max_map_count`).
    MapLimit = 204,

    // The driver's.
    /// No such driver on this machine.
    DriverNotFound = 300,
    /// The driver is older than what is needed.
    DriverTooOld = 301,
    /// No device of that number.
    NoDevice = 302,
    /// This device or driver cannot do that.
    Unsupported = 303,
    /// The device is lost; the process must be restarted.
    DeviceLost = 304,
    /// Work on a stream failed, mostly since it touched memory it had no access to; the stream has stopped.
    DeviceFault = 305,
    /// Any other failure of a driver call; the native code tells.
    DriverError = 306,

    // Ours.
    /// A failed call could not be undone: the entries are unmapped, their blocks are kept, and the next remap
    /// rebuilds them.
    RangeLost = 400,
    /// A defect of this library.
    Internal = 401,
    /// An earlier defect left this object half done; destroy it.
    Poisoned = 402,
    /// The process is a child made by fork after the library was used.
    Forked = 403,
}

impl Kind {
    /// The kind in words, for a message that has neither a hint nor a native code.
    pub const fn words(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid argument",
            Self::NullPointer => "NULL pointer",
            Self::InvalidSize => "invalid size",
            Self::Misaligned => "misaligned",
            Self::OutOfRange => "out of range",
            Self::InvalidHandle => "invalid handle",
            Self::InUse => "in use",
            Self::AlreadyMapped => "already mapped",
            Self::NotMapped => "not mapped",
            Self::PartialMapping => "part of a mapping",
            Self::WrongState => "wrong state",
            Self::Busy => "busy",
            Self::Aliased => "aliased",
            Self::Overlap => "overlap",
            Self::InvalidStream => "invalid stream",
            Self::StreamCapturing => "the stream is being captured",
            Self::CountMismatch => "wrong number of elements",
            Self::UnknownVersion => "unknown version of a struct",
            Self::PlanMismatch => "another plan",
            Self::OutOfHostMemory => "out of host memory",
            Self::OutOfDeviceMemory => "out of device memory",
            Self::OutOfAddressSpace => "out of address space",
            Self::OutOfFileDescriptors => "out of file descriptors",
            Self::MapLimit => "the process may hold no more mappings",
            Self::DriverNotFound => "driver not found",
            Self::DriverTooOld => "driver too old",
            Self::NoDevice => "no such device",
            Self::Unsupported => "unsupported",
            Self::DeviceLost => "device lost",
            Self::DeviceFault => "device fault",
            Self::DriverError => "driver error",
            Self::RangeLost => "range lost",
            Self::Internal => "internal error",
            Self::Poisoned => "poisoned by an earlier defect",
            Self::Forked => "child of a fork",
        }
    }
}

/// The operation that failed, for the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the operations'")]
pub enum Operation {
    None = 0,
    Open = 1,
    Query = 2,
    Reserve = 3,
    Free = 4,
    Create = 5,
    Release = 6,
    Map = 7,
    Unmap = 8,
    SetAccess = 9,
    Allocate = 10,
    Deallocate = 11,
    Copy = 12,
    Timeline = 13,
    Stream = 14,
    Capture = 15,
    Launch = 16,
    Share = 17,
    Remap = 18,
    Retire = 19,
    Bind = 20,
    Begin = 21,
    End = 22,
    Destroy = 23,
}

impl Operation {
    /// The word for it in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "call",
            Self::Open => "open device",
            Self::Query => "query",
            Self::Reserve => "reserve",
            Self::Free => "free",
            Self::Create => "create",
            Self::Release => "release",
            Self::Map => "map",
            Self::Unmap => "unmap",
            Self::SetAccess => "set access",
            Self::Allocate => "allocate",
            Self::Deallocate => "deallocate",
            Self::Copy => "copy",
            Self::Timeline => "timeline",
            Self::Stream => "stream",
            Self::Capture => "capture",
            Self::Launch => "launch",
            Self::Share => "share",
            Self::Remap => "remap",
            Self::Retire => "retire",
            Self::Bind => "bind",
            Self::Begin => "begin",
            Self::End => "end",
            Self::Destroy => "destroy",
        }
    }
}

/// A driver's own code for a failure, kept as it came; the name is empty for a code that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Native {
    /// The driver's number (a `CUresult`, a `hipError_t`, a `ze_result_t`, an `errno`).
    pub code: i64,
    /// The driver's name for it, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: &'static str,
}

/// A failure: what kind, during what, on which bytes, with the driver's own code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error {
    /// The kind, and so the status code.
    pub kind: Kind,
    /// What was being done.
    pub operation: Operation,
    /// Where, or NULL.
    pub address: DevicePtr,
    /// How many bytes, or 0.
    pub size: ByteSize,
    /// The driver's own code, where a driver call failed.
    pub native: Option<Native>,
    /// Which element of the caller's array, where one is to blame.
    pub entry: Option<u64>,
    /// What is wrong and what to do about it, in a few words; may be empty.
    pub hint: &'static str,
}

impl Error {
    /// A failure of `kind` with a hint that tells the caller what to do.
    pub const fn new(kind: Kind, operation: Operation, hint: &'static str) -> Self {
        let (address, size) = (DevicePtr::NULL, ByteSize::ZERO);
        Self { kind, operation, address, size, native: None, entry: None, hint }
    }

    /// The same, on `size` bytes at `address`.
    pub const fn at(mut self, address: DevicePtr, size: ByteSize) -> Self {
        (self.address, self.size) = (address, size);
        self
    }

    /// The same, of `size` bytes.
    pub const fn of(mut self, size: ByteSize) -> Self {
        self.size = size;
        self
    }

    /// The same, with the driver's code.
    pub const fn native(mut self, code: i64, name: &'static str) -> Self {
        self.native = Some(Native { code, name });
        self
    }

    /// The same, blaming element `index` of the caller's array.
    pub const fn entry(mut self, index: u64) -> Self {
        self.entry = Some(index);
        self
    }

    /// The same, as part of `operation`.
    pub const fn during(mut self, operation: Operation) -> Self {
        self.operation = operation;
        self
    }
}

impl fmt::Display for Error {
    /// `map 32 MiB at 0x7f4000000000: CUDA_ERROR_OUT_OF_MEMORY (2): hint`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation.name())?;
        if !self.size.is_zero() {
            write!(f, " {}", self.size)?;
        }
        if !self.address.is_null() {
            write!(f, " at {}", self.address)?;
        }
        if let Some(index) = self.entry {
            write!(f, ", entry {index}")?;
        }
        match self.native {
            Some(Native { code, name: "" }) => write!(f, ": driver error {code}")?,
            Some(Native { code, name }) => write!(f, ": {name} ({code})")?,
            None => {}
        }
        match (self.hint, self.native) {
            ("", Some(_)) => Ok(()),
            ("", None) => write!(f, ": {}", self.kind.words()),
            (hint, _) => write!(f, ": {hint}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_operation_size_address_and_native_code() {
        let e = Error::new(Kind::OutOfDeviceMemory, Operation::Map, "")
            .at(DevicePtr(0x7f40_0000_0000), ByteSize::mib(32))
            .native(2, "CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(e.to_string(), "map 32 MiB at 0x7f4000000000: CUDA_ERROR_OUT_OF_MEMORY (2)");
        let e = Error::new(Kind::DriverError, Operation::Release, "report it").native(-7, "");
        assert_eq!(e.to_string(), "release: driver error -7: report it");
        let e = Error::new(Kind::OutOfDeviceMemory, Operation::Create, "").of(ByteSize::mib(6));
        assert_eq!(e.to_string(), "create 6 MiB: out of device memory");
    }
}
