//! The C caller's pointers, made values. This file and `array` are the two of this layer that read and
//! write through them.
//!
//! Structs carry their size. Coming in, a shorter one is filled with defaults and a longer one must be zero
//! beyond what is known; going out, only the size is read, and what both sides know is written. Nothing is
//! assumed of alignment.
#![allow(unsafe_code, reason = "reads and writes through the caller's pointers")]

use crate::error::{Error, Kind, Operation, Result};
use std::ffi::{CStr, c_char};
use std::mem::size_of;

/// A struct that begins with its size.
///
/// # Safety
/// `repr(C)`, of integers, arrays of them and raw pointers only; its first field is `struct_size: usize`; `ENDS` are
/// the ends of its fields in order.
pub(super) unsafe trait Versioned: Copy {
    /// What holds for fields that the caller does not have.
    const DEFAULT: Self;
    /// Where each field after the size ends, in bytes.
    const ENDS: &'static [usize];
}

/// Implements [`Versioned`] for a struct by the names of its fields after the size.
macro_rules! versioned {
    ($name:ident { $($field:ident),* $(,)? }) => {
        // SAFETY: the struct is of this module's C ABI: `repr(C)`, the size first, numbers and raw pointers
        // only (a test checks that the last end is the struct's own).
        unsafe impl $crate::capi::versioned::Versioned for $name {
            // SAFETY: zero is a value of every number and raw pointer.
            const DEFAULT: Self = unsafe { std::mem::zeroed() };
            const ENDS: &'static [usize] = &[
                $(std::mem::offset_of!($name, $field)
                    + $crate::capi::versioned::size_of_field(|s: &$name| &s.$field)),*
            ];
        }
    };
}
pub(super) use versioned;

/// The size of the field that `field` picks.
pub(super) const fn size_of_field<T, F>(_field: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Sizes above this are taken for garbage: no struct will be so large.
const LARGEST: usize = 4096;

const SIZE: usize = size_of::<usize>();

pub(super) fn null(what: &'static str) -> Error {
    Error::new(Kind::NullPointer, Operation::None, what)
}

pub(super) fn unknown(what: &'static str) -> Error {
    Error::new(Kind::UnknownVersion, Operation::None, what)
}

/// Says that the pointers of this call are as the header asks: NULL, or good for what the function's
/// comment says.
#[derive(Clone, Copy)]
pub(super) struct Caller(());

impl Caller {
    /// # Safety
    /// Only in an exported function, for the pointers that it was given, which must live until it returns.
    pub(super) const unsafe fn vouches() -> Self {
        Self(())
    }

    /// A struct coming in.
    pub(super) fn in_struct<T: Versioned>(self, pointer: *const T) -> Result<T> {
        let size = self.struct_size(pointer)?;
        if size > LARGEST {
            return Err(unknown("struct_size is too large: set it to sizeof"));
        }
        if size > size_of::<T>() && !self.zero(pointer, size_of::<T>(), size) {
            return Err(unknown("a field that this version of the library does not know is set"));
        }
        let mut value = T::DEFAULT;
        let known = known::<T>(size);
        // SAFETY: both are good for `known` bytes: `value` as that is at most its size, the caller's as
        // that is at most the size it states; any bytes are a value of a `Versioned`, of which whole fields
        // are copied.
        unsafe { std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut value).cast::<u8>(), known) };
        Ok(value)
    }

    /// A struct coming in that may be NULL, which is all defaults.
    pub(super) fn in_struct_or_default<T: Versioned>(self, pointer: *const T) -> Result<T> {
        if pointer.is_null() { Ok(T::DEFAULT) } else { self.in_struct(pointer) }
    }

    /// The size that a struct states.
    fn struct_size<T: Versioned>(self, pointer: *const T) -> Result<usize> {
        if pointer.is_null() {
            return Err(null("a struct is NULL"));
        }
        // SAFETY: the caller vouches for a struct, which begins with its size; alignment is not assumed.
        let size = unsafe { pointer.cast::<usize>().read_unaligned() };
        if size < SIZE { Err(unknown("struct_size is not set: set it to sizeof")) } else { Ok(size) }
    }

    /// True where the struct's bytes from `from` to `to`, its stated size, are zero.
    fn zero<T: Versioned>(self, pointer: *const T, from: usize, to: usize) -> bool {
        (from..to).all(|i| {
            // SAFETY: below the size that the caller states for its struct.
            let byte = unsafe { pointer.cast::<u8>().wrapping_add(i).read() };
            byte == 0
        })
    }

    /// A value going out.
    pub(super) fn out<T>(self, pointer: *mut T) -> Result<Out<T>> {
        if pointer.is_null() { Err(null("an output is NULL")) } else { Ok(Out(pointer)) }
    }

    /// A value going out that the caller may not want.
    pub(super) fn out_or_null<T>(self, pointer: *mut T) -> Option<Out<T>> {
        if pointer.is_null() { None } else { Some(Out(pointer)) }
    }

    /// A struct going out.
    pub(super) fn out_struct<T: Versioned>(self, pointer: *mut T) -> Result<OutStruct<T>> {
        let size = self.struct_size(pointer.cast_const())?;
        Ok(OutStruct { pointer, known: known::<T>(size) })
    }

    /// A struct going out that the caller may not want.
    pub(super) fn out_struct_or_null<T: Versioned>(self, pointer: *mut T) -> Result<Option<OutStruct<T>>> {
        if pointer.is_null() { Ok(None) } else { self.out_struct(pointer).map(Some) }
    }

    /// Text coming in that may be NULL, which is none.
    pub(super) fn text_or_null(self, pointer: *const c_char) -> Result<Option<String>> {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller vouches for a text that ends in a NUL.
        let text = unsafe { CStr::from_ptr(pointer) };
        let text = text
            .to_str()
            .map_err(|_| Error::new(Kind::InvalidArgument, Operation::None, "a text is not UTF-8"))?;
        Ok(Some(text.to_owned()))
    }

    /// Room for text going out.
    pub(super) fn out_bytes(self, pointer: *mut c_char, capacity: usize) -> Result<OutBytes> {
        if pointer.is_null() && capacity > 0 {
            return Err(null("the buffer is NULL"));
        }
        Ok(OutBytes { pointer: pointer.cast(), capacity })
    }
}

/// How many bytes of a struct that the caller says has `size` are whole fields of `T`.
fn known<T: Versioned>(size: usize) -> usize {
    if size >= size_of::<T>() {
        return size_of::<T>();
    }
    T::ENDS.iter().copied().take_while(|&end| end <= size).last().unwrap_or(SIZE)
}

/// Where a value goes; never NULL.
pub(super) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes it.
    pub(super) fn write(self, value: T) {
        // SAFETY: the caller vouches for room for a `T`; alignment is not assumed.
        unsafe { self.0.write_unaligned(value) };
    }
}

/// Where a struct goes.
pub(super) struct OutStruct<T> {
    pointer: *mut T,
    known: usize,
}

impl<T: Versioned> OutStruct<T> {
    /// Writes what both sides know, but for the size, which stays the caller's.
    pub(super) fn write(self, value: &T) {
        let from = std::ptr::from_ref(value).cast::<u8>().wrapping_add(SIZE);
        let to = self.pointer.cast::<u8>().wrapping_add(SIZE);
        // SAFETY: `known` is at most the size of `T` and the size that the caller states, and at least
        // `SIZE`.
        unsafe { std::ptr::copy_nonoverlapping(from, to, self.known - SIZE) };
    }
}

/// Where text goes.
pub(super) struct OutBytes {
    pointer: *mut u8,
    capacity: usize,
}

impl OutBytes {
    /// Writes what fits of `text` (cut between characters), and a NUL where there is room at all.
    pub(super) fn write_text(self, text: &[u8]) {
        let Some(room) = self.capacity.checked_sub(1) else { return };
        let mut length = text.len().min(room);
        while length < text.len() && length > 0 && text[length] & 0xc0 == 0x80 {
            length -= 1;
        }
        // SAFETY: the caller vouches for `capacity` bytes, and `length` is below that.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.pointer, length) };
        // SAFETY: the same.
        unsafe { self.pointer.wrapping_add(length).write(0) };
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Thing {
        struct_size: usize,
        small: u32,
        other: u32,
        large: u64,
    }
    versioned!(Thing { small, other, large });

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Longer {
        thing: Thing,
        beyond: u64,
    }

    fn caller() -> Caller {
        // SAFETY: the tests give pointers to their own values.
        unsafe { Caller::vouches() }
    }

    fn kind<T>(result: Result<T>) -> Option<Kind> {
        result.err().map(|e| e.kind)
    }

    #[test]
    fn a_shorter_struct_gets_defaults_and_no_half_fields() {
        let thing = Thing { struct_size: 12, small: 7, other: 8, large: 9 };
        let read = |size| {
            let thing = Thing { struct_size: size, ..thing };
            caller().in_struct(&raw const thing).expect("a thing")
        };
        assert_eq!((read(12).small, read(12).other, read(12).large), (7, 0, 0));
        assert_eq!((read(8).small, read(8).other), (0, 0));
        assert_eq!((read(20).other, read(20).large), (8, 0), "half a field is none");
        assert_eq!(read(24).large, 9);
    }

    #[test]
    fn a_longer_struct_must_be_zero_beyond() {
        let size = size_of::<Longer>();
        let mut longer =
            Longer { thing: Thing { struct_size: size, small: 1, other: 2, large: 3 }, beyond: 0 };
        let read = |l: &Longer| caller().in_struct(std::ptr::from_ref(l).cast::<Thing>());
        assert_eq!(read(&longer).expect("a thing").large, 3);
        longer.beyond = 1 << 40;
        assert_eq!(kind(read(&longer)), Some(Kind::UnknownVersion));
    }

    #[test]
    fn sizes_that_no_struct_has_are_refused() {
        for size in [0, 1, 7, LARGEST + 1, usize::MAX] {
            let thing = Thing { struct_size: size, small: 0, other: 0, large: 0 };
            assert_eq!(kind(caller().in_struct(&raw const thing)), Some(Kind::UnknownVersion), "{size}");
        }
        assert_eq!(kind(caller().in_struct(std::ptr::null::<Thing>())), Some(Kind::NullPointer));
        assert_eq!(caller().in_struct_or_default(std::ptr::null::<Thing>()), Ok(Thing::DEFAULT));
    }

    #[test]
    fn an_out_struct_keeps_its_size_and_what_the_caller_does_not_have() {
        let mut mine = Thing { struct_size: 16, small: 0, other: 0, large: 99 };
        let theirs = Thing { struct_size: 5, small: 1, other: 2, large: 3 };
        caller().out_struct(&raw mut mine).expect("room").write(&theirs);
        assert_eq!(mine, Thing { struct_size: 16, small: 1, other: 2, large: 99 });
        mine.struct_size = 1 << 40;
        caller().out_struct(&raw mut mine).expect("room").write(&theirs);
        assert_eq!(mine.large, 3);
    }

    /// A field that the macro was not given would be left out of every copy.
    #[test]
    fn no_field_is_missing() {
        fn check<T: Versioned>() {
            let name = std::any::type_name::<T>();
            assert_eq!(T::ENDS.last(), Some(&size_of::<T>()), "{name}");
            assert!(T::ENDS.windows(2).all(|pair| pair[0] < pair[1]), "{name}: not in order");
        }
        use crate::capi::*;
        check::<device::gvmm_device_desc>();
        check::<device::gvmm_device_info>();
        check::<device::gvmm_call_counts>();
        check::<reservation::gvmm_reserve_desc>();
        check::<block::gvmm_block_info>();
        check::<reservation::gvmm_reservation_info>();
        check::<allocation::gvmm_allocation_info>();
        check::<remap::gvmm_remap_report>();
        check::<binding::gvmm_binding_desc>();
        check::<binding::gvmm_binding_info>();
        check::<step::gvmm_step_report>();
        check::<segment::gvmm_segment_desc>();
        check::<segment::gvmm_segment_info>();
        check::<pool::gvmm_pool_desc>();
        check::<pool::gvmm_pool_block>();
        check::<pool_stats::gvmm_pool_stats>();
        check::<last_error::gvmm_error_detail>();
        check::<options::gvmm_options>();
    }

    #[test]
    fn text_is_cut_between_characters() {
        let mut room = [1 as c_char; 4];
        caller().out_bytes(room.as_mut_ptr(), 4).expect("room").write_text("abé".as_bytes());
        assert_eq!(room, [b'a' as c_char, b'b' as c_char, 0, 1]);
        caller().out_bytes(std::ptr::null_mut(), 0).expect("no room asked for").write_text(b"abc");
        assert_eq!(kind(caller().out_bytes(std::ptr::null_mut(), 1)), Some(Kind::NullPointer));
    }
}
