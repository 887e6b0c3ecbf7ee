//! The core's table of known driver faults, read from the same file.

/// Whose driver, as in the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
}

#[path = "../../../src/driver/quirks.rs"]
pub mod quirks;
