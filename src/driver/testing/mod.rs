//! For tests of what lies above a driver, and of drivers: a driver that fails on demand ([`Fault`]), one that
//! counts what lives ([`Trace`]), one that counts and times calls ([`Meter`]), and named checks for any driver ([`conformance`]).

pub mod conformance;
mod fault;
mod meter;
mod tap;
mod touch;
mod trace;

pub use fault::Fault;
pub use meter::{Meter, Metered};
pub use trace::{Counts, Live, Record, Trace};

/// A driver call, by a number that C uses too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Call(pub u32);

impl Call {
    /// `reserve`.
    pub const RESERVE: Self = Self(1);
    /// `free`.
    pub const FREE: Self = Self(2);
    /// `create`.
    pub const CREATE: Self = Self(3);
    /// `release`.
    pub const RELEASE: Self = Self(4);
    /// `map`.
    pub const MAP: Self = Self(5);
    /// `unmap`.
    pub const UNMAP: Self = Self(6);
    /// `set_access`.
    pub const SET_ACCESS: Self = Self(7);
    /// `allocate`.
    pub const ALLOCATE: Self = Self(8);
    /// `deallocate`.
    pub const DEALLOCATE: Self = Self(9);
    /// `copy`, and `route_copy`.
    pub const COPY: Self = Self(10);
    /// `timeline_create`.
    pub const TIMELINE_CREATE: Self = Self(11);
    /// `timeline_destroy`.
    pub const TIMELINE_DESTROY: Self = Self(12);
    /// `timeline_write`.
    pub const TIMELINE_WRITE: Self = Self(13);
    /// `timeline_read`.
    pub const TIMELINE_READ: Self = Self(14);
    /// `timeline_wait`.
    pub const TIMELINE_WAIT: Self = Self(15);
    /// `stream_wait`.
    pub const STREAM_WAIT: Self = Self(16);
    /// `is_capturing`.
    pub const IS_CAPTURING: Self = Self(17);
    /// `export`.
    pub const EXPORT: Self = Self(18);
    /// `import`.
    pub const IMPORT: Self = Self(19);
    /// `memory`.
    pub const MEMORY: Self = Self(20);

    /// `route_create`.
    pub const ROUTE_CREATE: Self = Self(21);
    /// `route_destroy`.
    pub const ROUTE_DESTROY: Self = Self(22);
    /// `route_record`.
    pub const ROUTE_RECORD: Self = Self(23);
    /// `route_point`.
    pub const ROUTE_POINT: Self = Self(24);

    /// How many calls there are.
    pub const COUNT: u32 = 24;

    /// Every call.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=Self::COUNT).map(Self)
    }

    /// True for a call that exists.
    pub const fn is_known(self) -> bool {
        1 <= self.0 && self.0 <= Self::COUNT
    }

    /// The call's name in the trait.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; Call::COUNT as usize] = [
            "reserve",
            "free",
            "create",
            "release",
            "map",
            "unmap",
            "set_access",
            "allocate",
            "deallocate",
            "copy",
            "timeline_create",
            "timeline_destroy",
            "timeline_write",
            "timeline_read",
            "timeline_wait",
            "stream_wait",
            "is_capturing",
            "export",
            "import",
            "memory",
            "route_create",
            "route_destroy",
            "route_record",
            "route_point",
        ];
        NAMES.get((self.0 as usize).wrapping_sub(1)).copied().unwrap_or("unknown")
    }

    /// Its place in an array of all calls. Private: only for the constants above.
    const fn index(self) -> usize {
        self.0 as usize - 1
    }
}
