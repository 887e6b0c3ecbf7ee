//! Compares our tables with bindings that others made from HIP's headers, when the library is compiled: what each
//! function takes, the structs' layouts, the numbers. Nothing of those crates is called, and so nothing is linked.
//!
//! The crate `hip-runtime-sys` (HIP 5.x) by the feature of its name, where HIP is installed; `cubecl-hip-sys` (HIP
//! 7.x) in our own tests, anywhere. The properties struct is compared with the second only: the first has the layout
//! of before 6.0.

use super::api::{Attribute, SIGNATURES};
use crate::driver::oracle::{compare, same_layout, sizes};
use crate::driver::structs::{AccessDesc, AllocationProp, Location};
use std::mem::offset_of;

sizes! { [unsafe extern "C"] }

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

        same_layout! { Location as $krate::hipMemLocation { kind: type_, id: id, } }
        same_layout! { AccessDesc as $krate::hipMemAccessDesc { location: location, flags: flags, } }
        same_layout! { AllocationProp as $krate::hipMemAllocationProp {
            kind: type_, location: location, meta_data: win32HandleMetaData, compression: allocFlags,
        } }
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
    use crate::driver::oracle::not_compared;
    use cubecl_hip_sys as hip;

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
        assert_eq!(
            attribute(crate::driver::structs::ON_HOST),
            hip::hipMemLocationType_hipMemLocationTypeHost
        );
        assert_eq!(attribute(super::super::api::BY_ADDRESS), hip::hipMemcpyKind_hipMemcpyDefault);
        assert_eq!(super::super::api::NON_BLOCKING, hip::hipStreamNonBlocking);
        assert_eq!(super::super::api::NO_TIMING, hip::hipEventDisableTiming);
        let pinned = hip::hipHostMallocPortable | hip::hipHostMallocMapped | hip::hipHostMallocCoherent;
        assert_eq!(super::super::api::PINNED_HOST, pinned);
    }

    #[test]
    fn every_function_of_the_table_is_compared() {
        // One whose struct is ours alone is compared by its layout above.
        const APART: &[&str] = &["hipGetDevicePropertiesR0600"];
        let missing = not_compared(SIGNATURES, include_str!("oracle.rs"));
        assert!(missing.iter().all(|name| APART.contains(name)), "{missing:?}");
    }
}
