//! A device, as read when the driver is opened.

use super::api::{Api, Attribute, Properties, SUCCESS, number};
use super::context::Kit;
use super::selftest::Findings;
use crate::driver::Ordinal;
use crate::driver::quirks::{self, Care, Quirk, Subject};
use crate::driver::structs::AllocationProp;
use crate::driver::{DriverKind, library::intern};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, Granularity};
use once_cell::sync::OnceCell;
use std::sync::atomic::AtomicBool;

const fn granularity(bytes: u64) -> Granularity {
    match Granularity::new(bytes) {
        Some(granularity) => granularity,
        None => unreachable!(),
    }
}

/// What `hipMalloc` aligns to, the unit where there is no virtual memory.
pub(super) const PLAIN: Granularity = granularity(256);
/// The least unit of virtual memory: HIP may say 4 KiB, which is slow or not true.
const LEAST: Granularity = granularity(2 << 20);

/// One device, as read when the driver was opened.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) ordinal: Ordinal,
    pub(super) name: String,
    pub(super) total: ByteSize,
    /// `gfx942`; without the last digits (`gfx94`) where HIP gives no more than the version.
    pub(super) arch: String,
    /// The same with its features, for the compiler; "" unknown.
    pub(super) target: String,
    pub(super) quirks: Vec<&'static Quirk>,
    pub(super) care: Care,
    /// It has virtual memory.
    pub(super) virtual_memory: bool,
    /// All of its memory is in the host's reach.
    pub(super) large_bar: bool,
    /// The host was refused access once: it is not asked for again.
    pub(super) host_refused: AtomicBool,
    /// Streams write and wait for 64-bit values.
    pub(super) stream_values: bool,
    pub(super) granularity: Granularity,
    /// What we keep on it, once needed.
    pub(super) kit: OnceCell<Kit>,
    /// What the self-tests found, once they ran.
    pub(super) findings: OnceCell<Findings>,
}

impl Device {
    pub(super) fn read(api: &Api, version: u32, ordinal: Ordinal, forced: &[(&str, bool)]) -> Result<Self> {
        let handle = number(ordinal);
        let mut total = 0;
        api.check(api.device_total(&mut total, handle), Operation::Open)?;
        let has = |attribute| value_of(api, handle, attribute) == 1;
        let (arch, target) = arch_of(api, handle);
        let subject = Subject { kind: DriverKind::HIP, version, arch: &arch };
        let quirks: Vec<_> = quirks::in_force(&subject, forced).collect();
        let care = quirks::care(&subject, forced);
        let virtual_memory = has(Attribute::VIRTUAL_MEMORY);
        Ok(Self {
            ordinal,
            name: name_of(api, handle)?,
            total: ByteSize(total),
            quirks,
            care,
            virtual_memory,
            large_bar: has(Attribute::LARGE_BAR),
            host_refused: AtomicBool::new(false),
            stream_values: has(Attribute::STREAM_VALUES)
                && api.has_stream_values()
                && !care.has(Care::EVENT_TIMELINE),
            granularity: if virtual_memory { granularity_of(api, ordinal, care)? } else { PLAIN },
            arch,
            target,
            kit: OnceCell::new(),
            findings: OnceCell::new(),
        })
    }

    /// Without virtual memory from here on.
    pub(super) fn plain_only(&mut self) {
        (self.virtual_memory, self.granularity) = (false, PLAIN);
    }

    /// Bytes a second that memory moves, by its clock (two transfers a cycle) and the width of its bus; 0 unknown.
    pub(super) fn bandwidth(&self, api: &Api) -> u64 {
        let read = |attribute| u64::try_from(value_of(api, number(self.ordinal), attribute)).unwrap_or(0);
        let (clock_khz, bits) = (read(Attribute::MEMORY_CLOCK_KHZ), read(Attribute::MEMORY_BUS_BITS));
        clock_khz.saturating_mul(2_000).saturating_mul(bits / 8)
    }
}

/// An attribute, or 0 where HIP does not know it.
fn value_of(api: &Api, handle: i32, attribute: i32) -> i32 {
    let mut value = 0;
    if api.device_attribute(&mut value, attribute, handle) == SUCCESS { value } else { 0 }
}

/// The architecture, plain and with its features. No attribute has the name; it stands in a struct whose layout is
/// pinned by the function's name. It is believed where it agrees with the version that the attributes give.
fn arch_of(api: &Api, handle: i32) -> (String, String) {
    let [major, minor] =
        [Attribute::COMPUTE_MAJOR, Attribute::COMPUTE_MINOR].map(|a| value_of(api, handle, a));
    let family = format!("gfx{major}{minor}");
    let mut properties = Properties::zeroed();
    let read = api.properties(&mut properties, handle) == SUCCESS;
    let target = if read { properties.arch() } else { "" };
    let plain = target.split(':').next().unwrap_or_default();
    // One more letter: the stepping, a hexadecimal digit.
    if plain.len() == family.len() + 1 && plain.starts_with(&family) {
        (plain.to_owned(), target.to_owned())
    } else {
        (family, String::new())
    }
}

/// The smallest unit that the device maps.
fn granularity_of(api: &Api, device: Ordinal, care: Care) -> Result<Granularity> {
    let mut bytes = 0;
    let status = api.granularity(&mut bytes, &AllocationProp::pinned(number(device), false), 0);
    api.check(status, Operation::Open)?;
    let hint = "the driver's granularity is no power of two";
    let odd = || Error::new(Kind::DriverError, Operation::Open, hint);
    let given = Granularity::new(bytes).ok_or_else(odd)?;
    Ok(if care.has(Care::LARGE_GRANULE) { given.max(LEAST) } else { given })
}

fn name_of(api: &Api, handle: i32) -> Result<String> {
    let mut name = [0_u8; 256];
    api.check(api.device_name(name.as_mut_ptr(), 255, handle), Operation::Open)?;
    let length = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..length]).into_owned())
}

/// The refusal of virtual memory on a device that lacks it.
pub(super) fn no_virtual_memory(reason: &str) -> &'static str {
    intern(&format!("{reason}: use allocations"))
}
