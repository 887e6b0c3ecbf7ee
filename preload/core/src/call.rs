//! The calls that are answered: one table, for both vendors. Their virtual memory has the same calls with the same
//! parameters in the same order.

use crate::driver::DriverKind;
use std::ffi::CStr;
use std::ops::RangeInclusive;

/// The parameters of a call. All are integers or pointers; those that a call does not have are whatever the registers
/// held, and are passed on like the others.
pub type Args = [u64; 6];

/// Where a figure of a call is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The call has none.
    None,
    /// A parameter.
    Arg(usize),
    /// What a parameter points at once the call succeeded.
    Out(usize),
}

/// One of the calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Call {
    /// Makes a block.
    Create,
    /// Gives back a reference to a block.
    Release,
    /// Reserves a range of addresses.
    Reserve,
    /// Gives a range back.
    Free,
    /// Maps a block.
    Map,
    /// Unmaps a range.
    Unmap,
    /// Sets access.
    SetAccess,
    /// Asks for access.
    GetAccess,
    /// Takes a reference to the block that is mapped at an address.
    Retain,
    /// Makes a descriptor of a block.
    Export,
    /// Makes a block of a descriptor.
    Import,
    /// Asks for the granularity.
    Granularity,
    /// Launches a graph: seen only while a trace is written, as the mark of a step.
    GraphLaunch,
    /// The same, with a default stream for each thread.
    GraphLaunchThread,
    /// Looks a function up.
    Lookup,
    /// The same, with an answer that says why.
    LookupStatus,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Which call.
    pub call: Call,
    /// Its word in traces and reports.
    pub word: &'static str,
    /// What CUDA exports it as.
    pub cuda: &'static CStr,
    /// What HIP exports it as.
    pub hip: &'static CStr,
    /// What CUDA's lookup calls it, where that differs.
    pub base: &'static CStr,
    /// The address it is about.
    pub address: Place,
    /// Its size in bytes.
    pub bytes: Place,
    /// The handle it is about.
    pub handle: Place,
}

const fn entry(
    call: Call,
    word: &'static str,
    names: [&'static CStr; 2],
    address: Place,
    bytes: Place,
    handle: Place,
) -> Entry {
    Entry { call, word, cuda: names[0], hip: names[1], base: names[0], address, bytes, handle }
}

use Place::{Arg, None as No, Out};

/// Every call, at its own number.
pub const TABLE: [Entry; 16] = [
    entry(Call::Create, "create", [c"cuMemCreate", c"hipMemCreate"], No, Arg(1), Out(0)),
    entry(Call::Release, "release", [c"cuMemRelease", c"hipMemRelease"], No, No, Arg(0)),
    entry(Call::Reserve, "reserve", [c"cuMemAddressReserve", c"hipMemAddressReserve"], Out(0), Arg(1), No),
    entry(Call::Free, "free", [c"cuMemAddressFree", c"hipMemAddressFree"], Arg(0), Arg(1), No),
    entry(Call::Map, "map", [c"cuMemMap", c"hipMemMap"], Arg(0), Arg(1), Arg(3)),
    entry(Call::Unmap, "unmap", [c"cuMemUnmap", c"hipMemUnmap"], Arg(0), Arg(1), No),
    entry(Call::SetAccess, "set_access", [c"cuMemSetAccess", c"hipMemSetAccess"], Arg(0), Arg(1), No),
    entry(Call::GetAccess, "get_access", [c"cuMemGetAccess", c"hipMemGetAccess"], Arg(2), No, No),
    entry(
        Call::Retain,
        "retain",
        [c"cuMemRetainAllocationHandle", c"hipMemRetainAllocationHandle"],
        Arg(1),
        No,
        Out(0),
    ),
    entry(
        Call::Export,
        "export",
        [c"cuMemExportToShareableHandle", c"hipMemExportToShareableHandle"],
        No,
        No,
        Arg(1),
    ),
    entry(
        Call::Import,
        "import",
        [c"cuMemImportFromShareableHandle", c"hipMemImportFromShareableHandle"],
        No,
        No,
        Out(0),
    ),
    entry(
        Call::Granularity,
        "granularity",
        [c"cuMemGetAllocationGranularity", c"hipMemGetAllocationGranularity"],
        No,
        Out(0),
        No,
    ),
    entry(Call::GraphLaunch, "launch", [c"cuGraphLaunch", c"hipGraphLaunch"], Arg(1), No, Arg(0)),
    Entry {
        base: c"cuGraphLaunch",
        ..entry(
            Call::GraphLaunchThread,
            "launch",
            [c"cuGraphLaunch_ptsz", c"hipGraphLaunch_spt"],
            Arg(1),
            No,
            Arg(0),
        )
    },
    entry(Call::Lookup, "lookup", [c"cuGetProcAddress", c"hipGetProcAddress"], No, No, No),
    Entry {
        base: c"cuGetProcAddress",
        ..entry(Call::LookupStatus, "lookup", [c"cuGetProcAddress_v2", c""], No, No, No)
    },
];

/// How many calls there are.
pub const CALLS: usize = TABLE.len();

impl Call {
    /// Its line of the table.
    pub const fn entry(self) -> &'static Entry {
        &TABLE[self as usize]
    }

    /// True for those that only mark a step.
    pub const fn is_launch(self) -> bool {
        matches!(self, Self::GraphLaunch | Self::GraphLaunchThread)
    }
}

/// A vendor, for whom one library is made.
#[derive(Debug)]
pub struct Vendor {
    /// Whose driver.
    pub kind: DriverKind,
    /// The name for people.
    pub name: &'static str,
    /// What the file name of the vendor's library starts with.
    pub base: &'static str,
    /// Its sonames, best first.
    pub sonames: &'static [&'static CStr],
    /// The function that gives its version.
    pub version: &'static CStr,
    /// The versions whose structs and rules are known.
    pub known: RangeInclusive<i32>,
    /// The exported function by which the loader's choice is checked: it is ours only where we were loaded in time.
    pub key: &'static CStr,
}

impl Vendor {
    /// The name under which the vendor exports a call; empty where it has none.
    pub fn symbol(&self, call: Call) -> &'static CStr {
        if self.kind == DriverKind::HIP { call.entry().hip } else { call.entry().cuda }
    }
}

/// NVIDIA's driver.
pub static CUDA: Vendor = Vendor {
    kind: DriverKind::CUDA,
    name: "cuda",
    base: "libcuda.so",
    sonames: &[c"libcuda.so.1"],
    version: c"cuDriverGetVersion",
    known: 11_000..=13_990,
    key: c"dlsym",
};

/// AMD's runtime.
pub static HIP: Vendor = Vendor {
    kind: DriverKind::HIP,
    name: "hip",
    base: "libamdhip64.so",
    sonames: &[c"libamdhip64.so.7", c"libamdhip64.so.6", c"libamdhip64.so"],
    version: c"hipRuntimeGetVersion",
    known: 60_000_000..=79_999_999,
    key: c"hipMemMap",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_stands_at_its_number_and_names_are_distinct() {
        for (at, line) in TABLE.iter().enumerate() {
            assert_eq!(line.call as usize, at);
            assert!(TABLE[at + 1..].iter().all(|other| other.cuda != line.cuda && other.hip != line.hip));
        }
    }
}
