//! Compares our tables with bindings that others made from HIP's headers, when the library is compiled: what each
//! function takes, the structs' layouts, the numbers. Nothing of those crates is called, and so nothing is linked.
//!
//! The crate `hip-runtime-sys` (HIP 5.x) by the feature of its name, where HIP is installed; `cubecl-hip-sys` (HIP
//! 7.x) in our own tests, anywhere. The properties struct is compared with the second only: the first has the layout
//! of before 6.0.

use super::api::{AccessDesc, AllocationProp, Attribute, Location, SIGNATURES};
use std::ffi::CStr;
use std::mem::offset_of;

/// True where our table has the function, and it takes as much.
const fn takes(name: &CStr, sizes: &[usize]) -> bool {
    let mut at = 0;
    while at < SIGNATURES.len() {
        let (ours, own) = SIGNATURES[at];
        if same_text(ours, name) {
            return same_sizes(own, sizes);
        }
        at += 1;
    }
    false
}

const fn same_text(a: &CStr, b: &CStr) -> bool {
    let (a, b) = (a.to_bytes(), b.to_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

const fn same_sizes(a: &[usize], b: &[usize]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Functions that give the sizes of what a function takes; its answer has 32 bits.
macro_rules! sizes {
    ($($count:literal $name:ident ($($arg:ident)*);)*) => { $(
        const fn $name<R $(, $arg)*>(_: unsafe extern "C" fn($($arg),*) -> R) -> [usize; $count] {
            assert!(size_of::<R>() == 4);
            [$(size_of::<$arg>()),*]
        }
    )* };
}

sizes! {
    0 of0 ();
    1 of1 (A);
    2 of2 (A B);
    3 of3 (A B C);
    4 of4 (A B C D);
    5 of5 (A B C D E);
    11 of11 (A B C D E F G H I J K);
}

/// Compares functions: how many arguments each has, and its name.
macro_rules! compare {
    ($krate:ident: $($of:ident $($name:ident)*;)*) => {
        $($(const _: () = assert!(
            takes(
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero byte"),
                },
                &$of($krate::$name),
            ),
            concat!("our table differs from the header: ", stringify!($name)),
        );)*)*
    };
}

/// What both crates have.
macro_rules! compare_all {
    ($krate:ident) => {
        compare! { $krate:
            of0 hipPeekAtLastError hipGetLastError;
            of1 hipInit hipGetDeviceCount hipGetDevice hipSetDevice hipFree hipHostFree hipMemRelease hipStreamDestroy
                hipStreamSynchronize hipStreamQuery hipThreadExchangeStreamCaptureMode hipEventQuery hipEventDestroy
                hipGraphExecDestroy hipGraphDestroy hipModuleUnload;
            of2 hipDeviceTotalMem hipMemGetInfo hipMalloc hipMemAddressFree hipMemUnmap
                hipMemGetAllocationPropertiesFromHandle hipStreamCreateWithFlags hipStreamIsCapturing
                hipStreamBeginCapture hipStreamEndCapture hipEventCreateWithFlags hipEventRecord hipGraphLaunch
                hipDrvGetErrorName hipModuleLoadData;
            of3 hipDeviceGetName hipDeviceGetAttribute hipDeviceCanAccessPeer hipHostMalloc hipHostGetDevicePointer
                hipMemGetAllocationGranularity hipMemImportFromShareableHandle hipMemGetAddressRange hipMemGetAccess
                hipStreamWaitEvent hipLaunchHostFunc hipGraphInstantiateWithFlags hipModuleGetFunction;
            of4 hipMemCreate hipMemSetAccess hipMemExportToShareableHandle hipMemcpy hipStreamWriteValue64;
            of5 hipMemAddressReserve hipMemMap hipMemcpyAsync hipStreamWaitValue64;
            of11 hipModuleLaunchKernel;
        }

        const _: () = {
            assert!(size_of::<Location>() == size_of::<$krate::hipMemLocation>());
            assert!(offset_of!(Location, kind) == offset_of!($krate::hipMemLocation, type_));
            assert!(offset_of!(Location, id) == offset_of!($krate::hipMemLocation, id));
            assert!(size_of::<AccessDesc>() == size_of::<$krate::hipMemAccessDesc>());
            assert!(offset_of!(AccessDesc, location) == offset_of!($krate::hipMemAccessDesc, location));
            assert!(offset_of!(AccessDesc, flags) == offset_of!($krate::hipMemAccessDesc, flags));
            type Theirs = $krate::hipMemAllocationProp;
            assert!(size_of::<AllocationProp>() == size_of::<Theirs>());
            assert!(offset_of!(AllocationProp, kind) == offset_of!(Theirs, type_));
            assert!(offset_of!(AllocationProp, location) == offset_of!(Theirs, location));
            assert!(offset_of!(AllocationProp, meta_data) == offset_of!(Theirs, win32HandleMetaData));
            assert!(offset_of!(AllocationProp, compression) == offset_of!(Theirs, allocFlags));
        };
    };
}

#[cfg(feature = "hip-runtime-sys")]
mod older {
    use super::*;
    use hip_runtime_sys as hip;
    use hip_runtime_sys::hipDeviceAttribute_t as Theirs;

    compare_all!(hip);

    const _: () = {
        assert!(
            offset_of!(AllocationProp, handle_types)
                == offset_of!(hip::hipMemAllocationProp, requestedHandleType)
        );
        assert!(
            Attribute::VIRTUAL_MEMORY == Theirs::hipDeviceAttributeVirtualMemoryManagementSupported as i32
        );
        assert!(Attribute::COMPUTE_MAJOR == Theirs::hipDeviceAttributeComputeCapabilityMajor as i32);
        assert!(Attribute::COMPUTE_MINOR == Theirs::hipDeviceAttributeComputeCapabilityMinor as i32);
        assert!(Attribute::MEMORY_BUS_BITS == Theirs::hipDeviceAttributeMemoryBusWidth as i32);
        assert!(Attribute::MEMORY_CLOCK_KHZ == Theirs::hipDeviceAttributeMemoryClockRate as i32);
        assert!(Attribute::LARGE_BAR == Theirs::hipDeviceAttributeIsLargeBar as i32);
        assert!(Attribute::STREAM_VALUES == Theirs::hipDeviceAttributeCanUseStreamWaitValue as i32);
    };
}

#[cfg(test)]
mod newer {
    use super::super::api::BatchAttributes;
    use super::*;
    use cubecl_hip_sys as hip;

    sizes! { 9 of9 (A B C D E F G H I); }

    compare_all!(hip);
    compare! { hip:
        of2 hipStreamGetDevice;
        of9 hipMemcpyBatchAsync;
    }

    const _: () = {
        use super::super::api::{ARCH_AT, Properties};
        let names = offset_of!(hip::hipMemAllocationProp, __bindgen_anon_1);
        assert!(offset_of!(AllocationProp, handle_types) == names);
        assert!(size_of::<BatchAttributes>() == size_of::<hip::hipMemcpyAttributes>());
        assert!(offset_of!(BatchAttributes, source) == offset_of!(hip::hipMemcpyAttributes, srcLocHint));
        assert!(offset_of!(BatchAttributes, flags) == offset_of!(hip::hipMemcpyAttributes, flags));
        assert!(offset_of!(hip::hipDeviceProp_tR0600, gcnArchName) == ARCH_AT);
        assert!(size_of::<hip::hipDeviceProp_tR0600>() <= size_of::<Properties>());
    };

    #[test]
    fn numbers_are_those_of_the_header() {
        let attribute = |number: i32| u32::try_from(number).expect("positive");
        assert_eq!(attribute(Attribute::LARGE_BAR), hip::hipDeviceAttribute_t_hipDeviceAttributeIsLargeBar);
        assert_eq!(
            attribute(Attribute::VIRTUAL_MEMORY),
            hip::hipDeviceAttribute_t_hipDeviceAttributeVirtualMemoryManagementSupported
        );
        assert_eq!(
            attribute(Attribute::STREAM_VALUES),
            hip::hipDeviceAttribute_t_hipDeviceAttributeCanUseStreamWaitValue
        );
        assert_eq!(attribute(super::super::api::ON_HOST), hip::hipMemLocationType_hipMemLocationTypeHost);
        assert_eq!(attribute(super::super::api::BY_ADDRESS), hip::hipMemcpyKind_hipMemcpyDefault);
        assert_eq!(super::super::api::NON_BLOCKING, hip::hipStreamNonBlocking);
        assert_eq!(super::super::api::NO_TIMING, hip::hipEventDisableTiming);
        let pinned = hip::hipHostMallocPortable | hip::hipHostMallocMapped | hip::hipHostMallocCoherent;
        assert_eq!(super::super::api::PINNED_HOST, pinned);
    }

    #[test]
    fn every_function_of_the_table_is_compared() {
        let text = include_str!("oracle.rs");
        // Two whose structs and texts are ours alone are compared by their layout above.
        let apart = [c"hipGetDevicePropertiesR0600"];
        for (name, _) in SIGNATURES.iter().filter(|(name, _)| !apart.contains(name)) {
            let name = name.to_str().expect("ASCII");
            assert!(
                text.contains(&format!("{name} "))
                    || text.contains(&format!("{name};"))
                    || text.contains(&format!("{name}\n")),
                "{name}"
            );
        }
    }
}
