//! Reads and writes what a program's pointers point at, with the layouts of CUDA's and HIP's virtual memory.
#![allow(unsafe_code, reason = "the parameters of C calls")]

/// `CUmemLocation`, `hipMemLocation`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
#[repr(C)]
pub struct Location {
    /// 1 for a device, 2 for the host.
    pub kind: i32,
    /// The device's number.
    pub id: i32,
}

/// `CUmemAccessDesc`, `hipMemAccessDesc`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct Grant {
    /// To whom.
    pub location: Location,
    /// 0 none, 1 read, 3 read and write.
    pub flags: i32,
}

const _: () = assert!(size_of::<Location>() == 8 && size_of::<Grant>() == 12);

/// The most grants of one call that are looked at; a longer list goes to the vendor as it is.
const MOST: u64 = 256;

/// The word at an address; none at NULL.
pub fn word(at: u64) -> Option<u64> {
    let pointer = at as *const u64;
    // SAFETY: the program passed it to a call that reads or has just written a word there; NULL gives none.
    (at != 0).then(|| unsafe { pointer.read_unaligned() })
}

/// Writes a word; nothing at NULL.
pub fn set_word(at: u64, value: u64) {
    let pointer = at as *mut u64;
    if at != 0 {
        // SAFETY: the program passed it to a call that has just written a word there.
        unsafe { pointer.write_unaligned(value) }
    }
}

/// A list of grants; none where the list is NULL, empty or long.
pub fn grants(at: u64, count: u64) -> Option<Vec<Grant>> {
    if at == 0 || count == 0 || count > MOST {
        return None;
    }
    let first = at as *const Grant;
    let read = |i: u64| {
        let one = first.wrapping_add(usize::try_from(i).unwrap_or(0));
        // SAFETY: the program says that `count` of them lie there; the vendor's call reads them in the same way.
        unsafe { one.read_unaligned() }
    };
    Some((0..count).map(read).collect())
}

/// A location.
pub fn location(at: u64) -> Option<Location> {
    let pointer = at as *const Location;
    // SAFETY: the program passed it to a call that reads a location there; NULL gives none.
    (at != 0).then(|| unsafe { pointer.read_unaligned() })
}

/// Where a block will live, by the properties given to create: their location is 8 bytes in.
pub fn owner(properties: u64) -> Option<Location> {
    if properties == 0 { None } else { location(properties.wrapping_add(8)) }
}
