//! The structs that go through the calls, as `ze_api.h` and `zes_api.h` lay them out on 64-bit Linux. Each starts
//! with its type's number and the address of a further struct, or 0.

use std::mem::offset_of;

/// Writes a struct with the two fields that all have, and a constructor that fills those and zeroes the rest.
macro_rules! chained {
    ($(#[$doc:meta])* $name:ident = $number:literal, $size:literal { $($field:ident: $type:ty = $at:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub(super) struct $name {
            pub(super) stype: u32,
            /// A further struct's address, or 0.
            pub(super) next: u64,
            $(pub(super) $field: $type,)*
        }

        impl $name {
            /// Its type's number.
            const NUMBER: u32 = $number;

            /// One with nothing in it.
            pub(super) fn blank() -> Self {
                Self { stype: Self::NUMBER, next: 0, $($field: blank(),)* }
            }
        }

        const _: () = {
            assert!(size_of::<$name>() == $size && offset_of!($name, next) == 8);
            $(assert!(offset_of!($name, $field) == $at);)*
        };
    };
}

/// What a field starts with.
fn blank<T: Blank>() -> T {
    T::BLANK
}

trait Blank {
    const BLANK: Self;
}

macro_rules! zero {
    ($($type:ty),*) => { $(impl Blank for $type { const BLANK: Self = 0; })* };
}

zero!(u32, i32, u64);

impl<const N: usize> Blank for [u8; N] {
    const BLANK: Self = [0; N];
}

impl Blank for Uuid {
    const BLANK: Self = Self([0; 16]);
}

/// `ze_device_uuid_t` and `zes_uuid_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct Uuid(pub(super) [u8; 16]);

const _: () = assert!(size_of::<Uuid>() == 16 && align_of::<Uuid>() == 1);

chained! {
    /// `ze_init_driver_type_desc_t`.
    InitDesc = 0x20021, 24 { flags: u32 = 16, }
}

chained! {
    /// `ze_device_properties_t`.
    DeviceProperties = 0x3, 368 {
        kind: u32 = 16,
        vendor: u32 = 20,
        number: u32 = 24,
        flags: u32 = 28,
        part: u32 = 32,
        core_mhz: u32 = 36,
        largest: u64 = 40,
        contexts: u32 = 48,
        priorities: u32 = 52,
        threads: u32 = 56,
        simd: u32 = 60,
        units: u32 = 64,
        subslices: u32 = 68,
        slices: u32 = 72,
        timer: u64 = 80,
        timestamp_bits: u32 = 88,
        kernel_timestamp_bits: u32 = 92,
        uuid: Uuid = 96,
        name: [u8; 256] = 112,
    }
}

chained! {
    /// `ze_device_memory_properties_t`.
    MemoryProperties = 0x7, 296 {
        flags: u32 = 16,
        clock_mhz: u32 = 20,
        bus_bits: u32 = 24,
        total: u64 = 32,
        name: [u8; 256] = 40,
    }
}

chained! {
    /// `ze_device_memory_ext_properties_t`.
    Bandwidth = 0x1000e, 48 {
        kind: u32 = 16,
        physical: u64 = 24,
        read: u32 = 32,
        write: u32 = 36,
        unit: u32 = 40,
    }
}

chained! {
    /// `ze_command_queue_group_properties_t`.
    QueueGroup = 0x6, 40 { flags: u32 = 16, pattern: u64 = 24, queues: u32 = 32, }
}

chained! {
    /// `ze_device_external_memory_properties_t`.
    ExternalProperties = 0xc, 32 {
        imports: u32 = 16,
        exports: u32 = 20,
        image_imports: u32 = 24,
        image_exports: u32 = 28,
    }
}

chained! {
    /// `ze_context_desc_t`.
    ContextDesc = 0xd, 24 { flags: u32 = 16, }
}

chained! {
    /// `ze_command_queue_desc_t`.
    CommandQueueDesc = 0xe, 40 {
        group: u32 = 16,
        index: u32 = 20,
        flags: u32 = 24,
        mode: u32 = 28,
        priority: u32 = 32,
    }
}

chained! {
    /// `ze_command_list_desc_t`.
    CommandListDesc = 0xf, 24 { group: u32 = 16, flags: u32 = 20, }
}

chained! {
    /// `ze_event_pool_desc_t`.
    EventPoolDesc = 0x10, 24 { flags: u32 = 16, count: u32 = 20, }
}

chained! {
    /// `ze_event_desc_t`.
    EventDesc = 0x11, 32 { index: u32 = 16, signal: u32 = 20, wait: u32 = 24, }
}

chained! {
    /// `ze_device_mem_alloc_desc_t`.
    DeviceAllocDesc = 0x15, 24 { flags: u32 = 16, ordinal: u32 = 20, }
}

chained! {
    /// `ze_host_mem_alloc_desc_t`.
    HostAllocDesc = 0x16, 24 { flags: u32 = 16, }
}

chained! {
    /// `ze_relaxed_allocation_limits_exp_desc_t`.
    RelaxedLimits = 0x20001, 24 { flags: u32 = 16, }
}

chained! {
    /// `ze_memory_allocation_properties_t`.
    AllocationProperties = 0x17, 40 { kind: u32 = 16, id: u64 = 24, page: u64 = 32, }
}

chained! {
    /// `ze_physical_mem_desc_t`.
    PhysicalDesc = 0x20, 32 { flags: u32 = 16, bytes: u64 = 24, }
}

chained! {
    /// `ze_physical_mem_properties_t`.
    PhysicalProperties = 0x20040, 32 { id: u64 = 16, bytes: u64 = 24, }
}

chained! {
    /// `ze_external_memory_export_desc_t`.
    ExportDesc = 0x18, 24 { flags: u32 = 16, }
}

chained! {
    /// `ze_external_memory_import_fd_t`.
    ImportFd = 0x19, 24 { flags: u32 = 16, descriptor: i32 = 20, }
}

chained! {
    /// `ze_external_memory_export_fd_t`.
    ExportFd = 0x1a, 24 { flags: u32 = 16, descriptor: i32 = 20, }
}

chained! {
    /// `zes_device_properties_t`, of which only the first part is looked at.
    SysmanProperties = 0x1, 776 {
        core: [u8; 368] = 16,
        parts: u32 = 384,
        texts: [u8; 384] = 388,
    }
}

chained! {
    /// `zes_mem_properties_t`.
    ModuleProperties = 0xb, 48 {
        kind: u32 = 16,
        on_part: u32 = 20,
        part: u32 = 24,
        location: u32 = 28,
        physical: u64 = 32,
        bus_bits: i32 = 40,
        channels: i32 = 44,
    }
}

chained! {
    /// `zes_mem_state_t`.
    MemoryState = 0x1e, 40 { health: u32 = 16, free: u64 = 24, total: u64 = 32, }
}

/// `ze_driver_extension_properties_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ExtensionProperties {
    pub(super) name: [u8; 256],
    pub(super) version: u32,
}

const _: () = assert!(size_of::<ExtensionProperties>() == 260);

impl ExtensionProperties {
    /// One with nothing in it.
    pub(super) const BLANK: Self = Self { name: [0; 256], version: 0 };
}

impl InitDesc {
    /// `ZE_INIT_DRIVER_TYPE_FLAG_GPU`.
    pub(super) fn gpus() -> Self {
        Self { flags: 1, ..Self::blank() }
    }
}

impl SysmanProperties {
    /// The device's uuid, which lies where the core's properties have it.
    pub(super) fn uuid(&self) -> Uuid {
        let at = offset_of!(DeviceProperties, uuid);
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&self.core[at..at + 16]);
        Uuid(uuid)
    }
}

/// The address of a struct, to hang it behind another.
pub(super) fn address<T>(of: &T) -> u64 {
    std::ptr::from_ref(of).expose_provenance() as u64
}

/// The same for one that the driver writes to.
pub(super) fn address_mut<T>(of: &mut T) -> u64 {
    std::ptr::from_mut(of).expose_provenance() as u64
}

/// A text that ends at its first zero byte.
pub(super) fn text(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}
