//! Compares our tables with the bindings of `cudarc`, made from CUDA's own header, when our tests are compiled: what
//! each function takes, the structs' layouts, the numbers.

use super::api::{Attribute, KernelNode, NO_TIMING, NOT_FOUND, NOT_READY, SIGNATURES, SUCCESS};
use crate::driver::oracle::{compare, not_compared, same_layout, sizes};
use crate::driver::structs::{AccessDesc, AllocationProp, Location, ON_DEVICE, PINNED, POSIX_FD};
use cudarc::driver::sys as cuda;
use cudarc::driver::sys::CUdevice_attribute_enum as Theirs;
use std::mem::offset_of;

sizes! { [unsafe] }
compare! { cuda:
    of1 cuInit cuDriverGetVersion cuDeviceGetCount cuDevicePrimaryCtxRelease_v2 cuCtxGetCurrent cuCtxPushCurrent_v2
        cuCtxPopCurrent_v2 cuCtxGetDevice cuMemFree_v2 cuMemFreeHost cuMemRelease cuStreamDestroy_v2
        cuStreamSynchronize cuStreamQuery cuThreadExchangeStreamCaptureMode cuEventQuery cuEventDestroy_v2
        cuModuleUnload cuGraphExecDestroy cuGraphDestroy;
    of2 cuDeviceGet cuDeviceTotalMem_v2 cuDevicePrimaryCtxRetain cuMemGetInfo_v2 cuMemAlloc_v2 cuMemAddressFree
        cuMemUnmap cuMemGetAllocationPropertiesFromHandle cuStreamCreate cuStreamGetCtx cuStreamIsCapturing
        cuStreamBeginCapture_v2 cuStreamEndCapture cuEventCreate cuEventRecord cuModuleLoadData cuGraphLaunch
        cuGetErrorName cuCtxGetId;
    of3 cuDeviceGetName cuDeviceGetAttribute cuDeviceCanAccessPeer cuDevicePrimaryCtxGetState cuMemHostAlloc
        cuMemHostGetDevicePointer_v2
        cuMemGetAllocationGranularity cuMemImportFromShareableHandle cuStreamWaitEvent cuModuleGetFunction
        cuLaunchHostFunc cuMemcpyDtoH_v2 cuMemcpyHtoD_v2 cuMemGetAccess cuGraphInstantiateWithFlags;
    of4 cuMemcpyHtoDAsync_v2 cuMemCreate cuMemSetAccess cuMemExportToShareableHandle cuMemcpyAsync cuStreamWriteValue64_v2
        cuStreamWaitValue64_v2;
    of5 cuMemAddressReserve cuMemMap;
    of6 cuStreamGetCaptureInfo_v2;
    of11 cuLaunchKernel;
}

/// Functions that newer headers lack; what they take is written in CUDA 11.0's.
const APART: &[&str] = &["cuGraphInstantiate_v2", "cuGraphExecKernelNodeSetParams"];

same_layout! { KernelNode as cuda::CUDA_KERNEL_NODE_PARAMS_st { function: func, parameters: kernelParams, extra: extra, } }
const _: () = {
    use cuda::CUDA_KERNEL_NODE_PARAMS_st as Theirs;
    assert!(offset_of!(KernelNode, grid) == offset_of!(Theirs, gridDimX));
    assert!(offset_of!(KernelNode, block) == offset_of!(Theirs, blockDimX));
    assert!(offset_of!(KernelNode, shared) == offset_of!(Theirs, sharedMemBytes));
};

same_layout! { Location as cuda::CUmemLocation_st { kind: type_, id: id, } }
same_layout! { AccessDesc as cuda::CUmemAccessDesc_st { location: location, flags: flags, } }
same_layout! { AllocationProp as cuda::CUmemAllocationProp_st {
    kind: type_, handle_types: requestedHandleTypes, location: location, meta_data: win32HandleMetaData,
    compression: allocFlags,
} }
type AllocFlags = cuda::CUmemAllocationProp_st__bindgen_ty_1;
const _: () = {
    let base = offset_of!(AllocationProp, compression);
    assert!(offset_of!(AllocationProp, rdma) - base == offset_of!(AllocFlags, gpuDirectRDMACapable));
    assert!(offset_of!(AllocationProp, usage) - base == offset_of!(AllocFlags, usage));
    assert!(offset_of!(AllocationProp, reserved) - base == offset_of!(AllocFlags, reserved));
};

/// Pairs of a number of ours and one of the header's.
macro_rules! same {
    ($($ours:expr => $theirs:expr;)*) => { $(assert_eq!(i64::from($ours), $theirs as i64, stringify!($theirs));)* };
}

#[test]
fn numbers_are_those_of_the_header() {
    same! {
        Attribute::MEMORY_CLOCK_KHZ => Theirs::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE;
        Attribute::MEMORY_BUS_BITS => Theirs::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH;
        Attribute::COMPUTE_MAJOR => Theirs::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
        Attribute::COMPUTE_MINOR => Theirs::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
        Attribute::VIRTUAL_MEMORY => Theirs::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        Attribute::POSIX_FD => Theirs::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
        Attribute::RDMA_WITH_VIRTUAL_MEMORY => Theirs::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
        Attribute::STREAM_VALUES_64 => Theirs::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS;
        ON_DEVICE => cuda::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
        PINNED => cuda::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
        POSIX_FD => cuda::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;
        NO_TIMING => cuda::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING;
        super::context::NON_BLOCKING => cuda::CUstream_flags_enum::CU_STREAM_NON_BLOCKING;
        super::context::RELAXED => cuda::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        super::timeline::AT_LEAST => cuda::CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_GEQ;
        SUCCESS => cuda::CUresult::CUDA_SUCCESS;
        NOT_FOUND => cuda::CUresult::CUDA_ERROR_NOT_FOUND;
        NOT_READY => cuda::CUresult::CUDA_ERROR_NOT_READY;
    }
    for (mode, flag) in [
        (crate::driver::AccessMode::NONE, cuda::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_NONE),
        (crate::driver::AccessMode::READ, cuda::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READ),
        (
            crate::driver::AccessMode::READ_WRITE,
            cuda::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        ),
    ] {
        assert_eq!(mode.0, flag as u32);
    }
}

#[test]
fn every_function_of_the_table_is_compared() {
    assert_eq!(not_compared(SIGNATURES, include_str!("oracle.rs")), Vec::<&str>::new());
    assert!(APART.iter().all(|name| SIGNATURES.iter().any(|(ours, _)| ours.to_str() == Ok(name))));
}

/// Each name in the list of errors, with the header's number.
macro_rules! codes {
    ($($name:ident)*) => { &[$((stringify!($name), cuda::CUresult::$name as i32)),*] };
}

#[test]
fn error_numbers_are_those_of_the_header() {
    const CODES: &[(&str, i32)] = codes! {
        CUDA_ERROR_INVALID_VALUE CUDA_ERROR_OUT_OF_MEMORY CUDA_ERROR_NOT_INITIALIZED CUDA_ERROR_DEINITIALIZED
        CUDA_ERROR_STUB_LIBRARY CUDA_ERROR_DEVICE_UNAVAILABLE CUDA_ERROR_NO_DEVICE CUDA_ERROR_INVALID_DEVICE
        CUDA_ERROR_INVALID_IMAGE CUDA_ERROR_INVALID_CONTEXT CUDA_ERROR_NO_BINARY_FOR_GPU
        CUDA_ERROR_ECC_UNCORRECTABLE CUDA_ERROR_PEER_ACCESS_UNSUPPORTED CUDA_ERROR_INVALID_PTX
        CUDA_ERROR_NVLINK_UNCORRECTABLE CUDA_ERROR_UNSUPPORTED_PTX_VERSION CUDA_ERROR_CONTAINED
        CUDA_ERROR_OPERATING_SYSTEM CUDA_ERROR_INVALID_HANDLE CUDA_ERROR_ILLEGAL_STATE CUDA_ERROR_NOT_FOUND
        CUDA_ERROR_NOT_READY CUDA_ERROR_ILLEGAL_ADDRESS CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        CUDA_ERROR_LAUNCH_TIMEOUT CUDA_ERROR_CONTEXT_IS_DESTROYED CUDA_ERROR_ASSERT
        CUDA_ERROR_HARDWARE_STACK_ERROR CUDA_ERROR_ILLEGAL_INSTRUCTION CUDA_ERROR_MISALIGNED_ADDRESS
        CUDA_ERROR_INVALID_ADDRESS_SPACE CUDA_ERROR_INVALID_PC CUDA_ERROR_LAUNCH_FAILED
        CUDA_ERROR_NOT_PERMITTED CUDA_ERROR_NOT_SUPPORTED CUDA_ERROR_SYSTEM_NOT_READY
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        CUDA_ERROR_STREAM_CAPTURE_MERGE CUDA_ERROR_STREAM_CAPTURE_UNMATCHED CUDA_ERROR_STREAM_CAPTURE_UNJOINED
        CUDA_ERROR_STREAM_CAPTURE_ISOLATION CUDA_ERROR_STREAM_CAPTURE_IMPLICIT CUDA_ERROR_CAPTURED_EVENT
        CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD CUDA_ERROR_UNKNOWN
    };
    for row in super::error::ROWS {
        assert_eq!(CODES.iter().find(|(name, _)| *name == row.1), Some(&(row.1, row.0)), "{}", row.1);
    }
}
