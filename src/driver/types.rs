//! The words of the trait: kinds, devices, capabilities, access, and the names of what a driver keeps.

use crate::units::{ByteSize, DevicePtr, Granularity};

/// Whose driver it is. A number, since a newer library may know more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DriverKind(pub u32);

impl DriverKind {
    /// NVIDIA's.
    pub const CUDA: Self = Self(1);
    /// AMD's.
    pub const HIP: Self = Self(2);
    /// Intel's.
    pub const LEVEL_ZERO: Self = Self(3);
    /// The host's own memory.
    pub const HOST: Self = Self(4);

    /// The name for people and for `GVMM_DRIVER`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CUDA => "cuda",
            Self::HIP => "hip",
            Self::LEVEL_ZERO => "level_zero",
            Self::HOST => "host",
            _ => "unknown",
        }
    }
}

/// The number of a device of one driver, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ordinal(pub u32);

/// What a device and its driver can do, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Reserve, map, set access and unmap are there at all.
    pub const VIRTUAL_MEMORY: Self = Self(1 << 0);
    /// A block may be mapped at several addresses at once.
    pub const ALIASING: Self = Self(1 << 1);
    /// Access is given to single devices; without it, to all at once.
    pub const DEVICE_ACCESS: Self = Self(1 << 2);
    /// Set-access may name a part of a reservation; without it, only the whole reservation, whatever is mapped
    /// there.
    pub const RANGE_ACCESS: Self = Self(1 << 3);
    /// One set-access may span several neighbouring mappings; without it, exactly one mapping.
    pub const JOINED_ACCESS: Self = Self(1 << 4);
    /// Many copies cost one launch; without it, each its own.
    pub const JOINT_COPIES: Self = Self(1 << 5);
    /// Blocks can be exported to and imported from other processes as file descriptors.
    pub const SHARING: Self = Self(1 << 6);
    /// The host can read and write device addresses.
    pub const HOST_TOUCH: Self = Self(1 << 7);
    /// Host functions can be enqueued on a stream of ours, and streams of ours captured into graphs.
    pub const HOST_FUNCTIONS: Self = Self(1 << 8);
    /// Blocks are backed by huge pages (of the host driver).
    pub const HUGE_PAGES: Self = Self(1 << 9);
    /// NULL names the device's default stream.
    pub const NULL_STREAM: Self = Self(1 << 10);
    /// Routes are there: what stays of repeated copies is kept, and copies in a graph can be pointed elsewhere.
    pub const ROUTES: Self = Self(1 << 11);
    /// A stream may wait for a value whose write is enqueued later; without it, only for one enqueued already.
    pub const EARLY_WAITS: Self = Self(1 << 12);
    /// Nothing speaks against changing addresses in a command buffer that is there already; without it, nobody is asked to.
    pub const PATCHES: Self = Self(1 << 13);

    /// True where every bit of `wanted` is there.
    pub const fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// These and `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// What may be done at an address. The numbers are CUDA's and HIP's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AccessMode(pub u32);

impl AccessMode {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Reading.
    pub const READ: Self = Self(1);
    /// Reading and writing.
    pub const READ_WRITE: Self = Self(3);

    /// True for the three modes that exist.
    pub const fn is_known(self) -> bool {
        matches!(self, Self::NONE | Self::READ | Self::READ_WRITE)
    }
}

/// One line of an access list: what one device may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// The device.
    pub device: Ordinal,
    /// What it may do.
    pub mode: AccessMode,
}

/// A driver's own handle of a block (`CUmemGenericAllocationHandle` and the like); 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NativeBlock(pub u64);

/// A driver's own stream (`CUstream`, `hipStream_t`, an immediate command list, a host stream's number).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stream(pub u64);

/// A timeline: a 64-bit value in memory that streams raise and others wait for. It starts at 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimelineId(pub u64);

/// A captured graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Graph(pub u64);

/// One slice of a copy. Source and destination do not overlap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct CopySlice {
    /// Where to.
    pub dst: DevicePtr,
    /// Where from.
    pub src: DevicePtr,
    /// How many bytes; 0 copies nothing.
    pub bytes: u64,
}

/// How a block is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CreateOptions {
    /// It will be exported to another process.
    pub exportable: bool,
    /// Its first mapping will last as long as it does: it can be made for what does not bear a move (GPUDirect RDMA).
    pub stays: bool,
}

/// What a device is.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// The smallest unit that it maps.
    pub granularity: Granularity,
    /// Its memory, or 0 where unknown.
    pub total: ByteSize,
    /// Bytes a second that its memory moves (reads and writes both counted), or 0 where unknown.
    pub bandwidth: u64,
    /// The name of the cost table whose times each call is made to take, where times are simulated.
    pub simulated_costs: Option<String>,
}

/// A device's memory at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryInfo {
    /// Free bytes, or none where the driver cannot tell.
    pub free: Option<ByteSize>,
    /// All bytes, or 0 where unknown.
    pub total: ByteSize,
}
