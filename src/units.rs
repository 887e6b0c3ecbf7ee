//! Sizes and addresses as types. Arithmetic is checked: there is no `+` or `-`, so an overflow cannot pass
//! unseen, and a size in bytes cannot be taken for a number of granules.

use std::fmt;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// True for no bytes.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, or none past 2^64 − 1.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The difference, or none below 0.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The size as the host's `usize`, or none where it does not fit.
    pub fn to_usize(self) -> Option<usize> {
        usize::try_from(self.0).ok()
    }
}

impl fmt::Display for ByteSize {
    /// The largest binary unit that leaves a whole number: `32 MiB`, `4097 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        for (shift, unit) in UNITS {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{} {unit}", self.0 >> shift);
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl fmt::Debug for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The smallest unit that a driver maps: a power of two, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Granularity(u64);

impl Granularity {
    /// A granularity of `bytes`, or none where that is no power of two.
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() { Some(Self(bytes)) } else { None }
    }

    /// One granule's size.
    pub const fn size(self) -> ByteSize {
        ByteSize(self.0)
    }

    /// log2 of the size in bytes.
    pub const fn shift(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// True where `size` is a whole number of granules.
    pub const fn divides(self, size: ByteSize) -> bool {
        size.0 & (self.0 - 1) == 0
    }

    /// `size` rounded up to whole granules, or none past 2^64 − 1.
    pub const fn round_up(self, size: ByteSize) -> Option<ByteSize> {
        match size.0.checked_add(self.0 - 1) {
            Some(n) => Some(ByteSize(n & !(self.0 - 1))),
            None => None,
        }
    }

    /// `size` rounded down to whole granules.
    pub const fn round_down(self, size: ByteSize) -> ByteSize {
        ByteSize(size.0 & !(self.0 - 1))
    }

    /// `size` as granules, or none where it is no whole number of them.
    pub const fn granules(self, size: ByteSize) -> Option<Granules> {
        if self.divides(size) { Some(Granules(size.0 >> self.shift())) } else { None }
    }
}

/// A number of granules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Granules(pub u64);

impl Granules {
    /// The size in bytes, or none past 2^64 − 1.
    pub const fn bytes(self, granularity: Granularity) -> Option<ByteSize> {
        match self.0.checked_mul(granularity.0) {
            Some(n) => Some(ByteSize(n)),
            None => None,
        }
    }
}

/// An address of a device. Never dereferenced; 0 is no address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// No address.
    pub const NULL: Self = Self(0);

    /// The address as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// True for no address.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on, or none past 2^64 − 1.
    pub const fn checked_add(self, bytes: ByteSize) -> Option<Self> {
        match self.0.checked_add(bytes.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The bytes from `origin` to here, or none where `origin` lies beyond.
    pub const fn offset_from(self, origin: Self) -> Option<ByteSize> {
        match self.0.checked_sub(origin.0) {
            Some(n) => Some(ByteSize(n)),
            None => None,
        }
    }

    /// True where the address is a multiple of `alignment`, a power of two.
    pub const fn is_aligned(self, alignment: Granularity) -> bool {
        self.0 & (alignment.0 - 1) == 0
    }
}

impl fmt::Display for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A range of device addresses that is not empty and does not wrap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceRange {
    start: DevicePtr,
    size: ByteSize,
}

impl DeviceRange {
    /// The range of `size` bytes from `start`, or none where it is empty or passes 2^64 − 1.
    pub const fn new(start: DevicePtr, size: ByteSize) -> Option<Self> {
        if size.is_zero() || start.checked_add(size).is_none() { None } else { Some(Self { start, size }) }
    }

    /// The first address.
    pub const fn start(self) -> DevicePtr {
        self.start
    }

    /// The number of bytes, never 0.
    pub const fn size(self) -> ByteSize {
        self.size
    }

    /// The address after the last.
    pub const fn end(self) -> DevicePtr {
        DevicePtr(self.start.0 + self.size.0)
    }

    /// True where `address` lies inside.
    pub const fn contains(self, address: DevicePtr) -> bool {
        self.start.0 <= address.0 && address.0 < self.end().0
    }

    /// True where all of `other` lies inside.
    pub const fn contains_range(self, other: Self) -> bool {
        self.start.0 <= other.start.0 && other.end().0 <= self.end().0
    }

    /// True where the two share an address.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.0 < other.end().0 && other.start.0 < self.end().0
    }

    /// The part of `size` bytes from `offset` on, or none where it does not lie inside.
    pub const fn slice(self, offset: ByteSize, size: ByteSize) -> Option<Self> {
        let Some(start) = self.start.checked_add(offset) else { return None };
        let Some(part) = Self::new(start, size) else { return None };
        if self.contains_range(part) { Some(part) } else { None }
    }
}

impl fmt::Display for DeviceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.size, self.start)
    }
}

impl fmt::Debug for DeviceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_in_the_largest_whole_unit() {
        assert_eq!(ByteSize::mib(32).to_string(), "32 MiB");
        assert_eq!(ByteSize(4097).to_string(), "4097 B");
        assert_eq!(ByteSize(0).to_string(), "0 B");
        assert_eq!(ByteSize::gib(3).to_string(), "3 GiB");
    }

    #[test]
    fn arithmetic_near_the_end_gives_none() {
        let top = ByteSize(u64::MAX);
        assert_eq!(top.checked_add(ByteSize(1)), None);
        let g = Granularity::new(2 << 20).expect("a power of two");
        assert_eq!(g.round_up(top), None);
        assert_eq!(g.round_up(ByteSize(1)), Some(ByteSize::mib(2)));
        assert_eq!(Granules(u64::MAX).bytes(g), None);
        assert!(DeviceRange::new(DevicePtr(u64::MAX), ByteSize(1)).is_none());
        assert!(DeviceRange::new(DevicePtr(4), ByteSize(0)).is_none());
    }

    #[test]
    fn slices_stay_inside() {
        let r = DeviceRange::new(DevicePtr(0x1000), ByteSize(0x100)).expect("a range");
        assert!(r.slice(ByteSize(0xff), ByteSize(1)).is_some());
        assert!(r.slice(ByteSize(0xff), ByteSize(2)).is_none());
        assert!(r.slice(ByteSize(u64::MAX), ByteSize(1)).is_none());
    }
}
