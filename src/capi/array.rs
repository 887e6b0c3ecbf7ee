//! The C caller's arrays: a pointer, a count, and for what comes in the distance of two elements in bytes,
//! so that an element may be embedded in one of the caller's. Nothing is assumed of alignment.
#![allow(unsafe_code, reason = "reads and writes through the caller's pointers")]

use super::versioned::{Caller, null, unknown};
use crate::error::{Error, Kind, Operation, Result};

/// An element of a caller's array.
///
/// # Safety
/// `repr(C)`, of integers and raw pointers only.
pub(super) unsafe trait Element: Copy {}

// SAFETY: a number.
unsafe impl Element for u8 {}
// SAFETY: a number.
unsafe impl Element for u64 {}
// SAFETY: a raw pointer.
unsafe impl Element for *mut std::ffi::c_void {}

impl Caller {
    /// An array coming in, elements `stride` bytes apart.
    pub(super) fn elements<T: Element>(
        self,
        pointer: *const T,
        count: usize,
        stride: usize,
    ) -> Result<Elements<T>> {
        if count == 0 {
            return Ok(Elements { pointer: pointer.cast(), count, stride, element: size_of::<T>() });
        }
        if pointer.is_null() {
            return Err(null("an array is NULL and its count is not 0"));
        }
        if stride < size_of::<T>() {
            return Err(unknown("stride_bytes is smaller than an element: set it to sizeof"));
        }
        spans(pointer.addr(), count, stride)?;
        Ok(Elements { pointer: pointer.cast(), count, stride, element: size_of::<T>() })
    }

    /// An array going out, elements side by side.
    pub(super) fn out_array<T>(self, pointer: *mut T, count: usize) -> Result<OutArray<T>> {
        self.out_elements(pointer, count, size_of::<T>())
    }

    /// An array going out, elements `stride` bytes apart.
    pub(super) fn out_elements<T>(self, pointer: *mut T, count: usize, stride: usize) -> Result<OutArray<T>> {
        if count > 0 && pointer.is_null() {
            return Err(null("an output array is NULL and its count is not 0"));
        }
        if count > 0 && stride < size_of::<T>() {
            return Err(unknown("stride_bytes is smaller than an element: set it to sizeof"));
        }
        spans(pointer.addr(), count, stride)?;
        Ok(OutArray { pointer, count, stride })
    }
}

/// Checks that an array does not pass the end of memory: its count or stride is garbage then.
fn spans(start: usize, count: usize, stride: usize) -> Result<()> {
    let bytes = count.checked_mul(stride).filter(|&bytes| isize::try_from(bytes).is_ok());
    match bytes.and_then(|bytes| start.checked_add(bytes)) {
        Some(_) => Ok(()),
        None => Err(Error::new(Kind::OutOfRange, Operation::None, "an array passes the end of memory")),
    }
}

/// An array coming in.
#[derive(Clone, Copy)]
pub(super) struct Elements<T> {
    pointer: *const T,
    count: usize,
    stride: usize,
    element: usize,
}

impl<T: Element> Elements<T> {
    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Element `i`, which must be below [`Self::len`].
    #[inline]
    pub(super) fn get(&self, i: usize) -> T {
        assert!(i < self.count, "an element beyond the end was asked for");
        debug_assert!(self.stride >= self.element);
        let place = self.pointer.wrapping_byte_add(i * self.stride);
        // SAFETY: the caller vouches for `count` elements `stride` bytes apart, and `i` is below `count`;
        // any bytes are a value of an `Element`; alignment is not assumed.
        unsafe { place.read_unaligned() }
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> + '_ {
        (0..self.count).map(|i| self.get(i))
    }

    /// All of them by `make`; a failure names the element.
    pub(super) fn try_map<U>(&self, make: impl Fn(T) -> Result<U>) -> Result<Vec<U>> {
        let make = |(i, element)| make(element).map_err(|error| error.entry(i as u64));
        self.iter().enumerate().map(make).collect()
    }
}

/// An array going out.
pub(super) struct OutArray<T> {
    pointer: *mut T,
    count: usize,
    stride: usize,
}

impl<T> OutArray<T> {
    /// How many elements there is room for.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Writes as many of `values` as there is room for.
    pub(super) fn write(self, values: impl Iterator<Item = T>) {
        for (i, value) in values.take(self.count).enumerate() {
            let place = self.pointer.wrapping_byte_add(i * self.stride);
            // SAFETY: the caller vouches for room for `count` elements `stride` bytes apart, which `out_elements`
            // found to be no less than an element; alignment is not assumed.
            unsafe { place.write_unaligned(value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        // SAFETY: the tests give pointers to their own values.
        unsafe { Caller::vouches() }
    }

    fn kind<T>(result: Result<T>) -> Option<Kind> {
        result.err().map(|e| e.kind)
    }

    #[test]
    fn arrays_may_be_embedded_and_unaligned() {
        let mut bytes = [0_u8; 3 * 17 + 1];
        for i in 0..3_u8 {
            bytes[1 + usize::from(i) * 17] = i + 1;
        }
        let elements =
            caller().elements(bytes.as_ptr().wrapping_add(1).cast::<u64>(), 3, 17).expect("an array");
        assert_eq!(elements.iter().map(|n| n & 0xff).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn arrays_that_cannot_be_are_refused() {
        let numbers = [1_u64, 2];
        let array = |pointer: *const u64, count, stride| kind(caller().elements(pointer, count, stride));
        assert_eq!(array(std::ptr::null(), 1, 8), Some(Kind::NullPointer));
        assert_eq!(array(std::ptr::null(), 0, 0), None);
        assert_eq!(array(numbers.as_ptr(), 2, 7), Some(Kind::UnknownVersion));
        assert_eq!(array(numbers.as_ptr(), usize::MAX, 8), Some(Kind::OutOfRange));
        assert_eq!(array(numbers.as_ptr(), usize::MAX / 8, 8), Some(Kind::OutOfRange));
        assert_eq!(kind(caller().out_array(std::ptr::null_mut::<u64>(), 1)), Some(Kind::NullPointer));
    }
}
