//! Options of the process.
#![allow(unsafe_code, reason = "exports a symbol; says that the caller vouches for its pointers")]

use super::device::GVMM_DRIVER_AUTO;
use super::entry::entry;
use super::plan::GVMM_PLAN_DEFAULT;
use super::slot::{GVMM_THRESHOLD_AUTO, GVMM_THRESHOLD_DEFAULT, GVMM_THRESHOLD_OFF};
use super::status::gvmm_status;
use super::versioned::{Caller, versioned};
use crate::error::{Error, Kind, Operation, Result};
use crate::{config, logging};
use std::ffi::c_char;

/// A switch of `gvmm_options`: as its variable says.
pub const GVMM_SWITCH_DEFAULT: u32 = 0;
/// A switch of `gvmm_options`: on.
pub const GVMM_SWITCH_ON: u32 = 1;
/// A switch of `gvmm_options`: off.
pub const GVMM_SWITCH_OFF: u32 = 2;

/// What the environment says too; a field that is 0 or NULL leaves it to its variable, which the README explains.
/// Texts have the form of the variable's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_options {
    /// `sizeof(gvmm_options)`.
    pub struct_size: usize,
    /// What GVMM_DRIVER_AUTO is, a `GVMM_DRIVER_...` (`GVMM_DRIVER`).
    pub driver: u32,
    /// How bindings that ask for nothing decide, a `GVMM_PLAN_...` (`GVMM_PLAN`).
    pub plan: u32,
    /// What is logged to standard error, such as `warn` (`GVMM_LOG`).
    pub log: *const c_char,
    /// Path of the file with the device's costs (`GVMM_PROFILE`).
    pub profile: *const c_char,
    /// Threshold of bindings that ask for the default: bytes or `GVMM_THRESHOLD_...` (`XLA_VMM_TMP_COPY_THRESHOLD`).
    pub threshold_bytes: u64,
    /// Shadows of all bindings of a device, in bytes (`GVMM_SHADOW_BUDGET`).
    pub shadow_budget_bytes: u64,
    /// A pool's chunks, in bytes (`GVMM_POOL_CHUNK`).
    pub pool_chunk_bytes: u64,
    /// A pool's chunks for small requests, in bytes (`GVMM_POOL_SMALL_CHUNK`).
    pub pool_small_chunk_bytes: u64,
    /// The most that a pool reserves, in bytes (`GVMM_POOL_LIMIT`).
    pub pool_limit_bytes: u64,
    /// Path of NVIDIA's driver library (`GVMM_CUDA_LIBRARY`).
    pub cuda_library: *const c_char,
    /// Path of AMD's HIP library (`GVMM_HIP_LIBRARY`).
    pub hip_library: *const c_char,
    /// Path of the Level Zero loader (`GVMM_ZE_LIBRARY`).
    pub level_zero_library: *const c_char,
    /// Care for driver faults, as `+name,-name` (`GVMM_QUIRKS`).
    pub quirks: *const c_char,
    /// How many devices the host driver has (`GVMM_HOST_DEVICES`).
    pub host_devices: u32,
    /// Whether the host driver's blocks have huge pages, a `GVMM_SWITCH_...` (`GVMM_HOST_HUGEPAGES`).
    pub host_huge_pages: u32,
    /// Memory of each host device, in bytes (`GVMM_HOST_MEMORY`).
    pub host_memory_bytes: u64,
    /// How many mappings the host driver may hold (`GVMM_HOST_MAX_MAPS`).
    pub host_max_maps: u64,
    /// Capabilities that the host driver shall lack, as `-aliasing` (`GVMM_HOST_CAPS`).
    pub host_capabilities: *const c_char,
    /// Simulated costs of the host driver, such as `h200` (`GVMM_HOST_COSTS`).
    pub host_costs: *const c_char,
    /// Which devices may use a framework's pools on others, such as `all` or `0,1` (`GVMM_POOL_PEERS`).
    pub pool_peers: *const c_char,
    /// How many events a pool keeps for snapshots, for each stream (`GVMM_POOL_HISTORY`).
    pub pool_history: u64,
    /// Whether PyTorch allocates for `one` stream of an Intel GPU or `any` (`GVMM_XPU_STREAMS`).
    pub xpu_streams: *const c_char,
}

/// Sets options of the process in the place of environment variables, for a program that is embedded where it cannot
/// set those. Each that is set wins over its variable.
///
/// State: before, no driver has been opened (by `gvmm_device_open`, `gvmm_device_attach` or `gvmm_device_count`) and no
/// options were set; after success they hold for the life of the process. After a failure nothing is set.
/// Parameters: `options`; texts are copied.
/// Statuses: WRONG_STATE (too late, or a second time), INVALID_ARGUMENT (a value that its variable cannot have, as the
/// log says, or no UTF-8), UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_configure(options: *const gvmm_options) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Open, || {
        let texts = texts(c, &c.in_struct(options)?)?;
        let log = texts.iter().find(|(name, _)| *name == "GVMM_LOG").map(|(_, text)| text.clone());
        config::give(texts)?;
        if let Some(filter) = log {
            logging::restart(&filter);
        }
        Ok(())
    })
}

versioned!(gvmm_options {
    driver,
    plan,
    log,
    profile,
    threshold_bytes,
    shadow_budget_bytes,
    pool_chunk_bytes,
    pool_small_chunk_bytes,
    pool_limit_bytes,
    cuda_library,
    hip_library,
    level_zero_library,
    quirks,
    host_devices,
    host_huge_pages,
    host_memory_bytes,
    host_max_maps,
    host_capabilities,
    host_costs,
    pool_peers,
    pool_history,
    xpu_streams,
});

type Text = (&'static str, String);

/// What the fields that are set say, as texts of their variables. A new variable is a new field here, unless only the
/// environment can have it.
fn texts(c: Caller, options: &gvmm_options) -> Result<Vec<Text>> {
    let mut texts = numbers(options)?;
    for (name, text) in [
        ("GVMM_LOG", options.log),
        ("GVMM_PROFILE", options.profile),
        ("GVMM_CUDA_LIBRARY", options.cuda_library),
        ("GVMM_HIP_LIBRARY", options.hip_library),
        ("GVMM_ZE_LIBRARY", options.level_zero_library),
        ("GVMM_QUIRKS", options.quirks),
        ("GVMM_HOST_CAPS", options.host_capabilities),
        ("GVMM_HOST_COSTS", options.host_costs),
        ("GVMM_POOL_PEERS", options.pool_peers),
        ("GVMM_XPU_STREAMS", options.xpu_streams),
    ] {
        texts.extend(c.text_or_null(text)?.map(|text| (name, text)));
    }
    Ok(texts)
}

fn numbers(options: &gvmm_options) -> Result<Vec<Text>> {
    let named = [
        ("GVMM_DRIVER", name_of(options.driver, GVMM_DRIVER_AUTO, &["cuda", "hip", "level_zero", "host"])?),
        ("GVMM_PLAN", name_of(options.plan, GVMM_PLAN_DEFAULT, &["threshold", "auto"])?),
        ("GVMM_HOST_HUGEPAGES", name_of(options.host_huge_pages, GVMM_SWITCH_DEFAULT, &["on", "off"])?),
        ("XLA_VMM_TMP_COPY_THRESHOLD", threshold(options.threshold_bytes)),
    ];
    let counted = [
        ("GVMM_SHADOW_BUDGET", options.shadow_budget_bytes),
        ("GVMM_POOL_CHUNK", options.pool_chunk_bytes),
        ("GVMM_POOL_SMALL_CHUNK", options.pool_small_chunk_bytes),
        ("GVMM_POOL_LIMIT", options.pool_limit_bytes),
        ("GVMM_HOST_DEVICES", u64::from(options.host_devices)),
        ("GVMM_HOST_MEMORY", options.host_memory_bytes),
        ("GVMM_HOST_MAX_MAPS", options.host_max_maps),
        ("GVMM_POOL_HISTORY", options.pool_history),
    ];
    let named = named.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let counted =
        counted.into_iter().filter(|&(_, number)| number > 0).map(|(name, n)| (name, n.to_string()));
    Ok(named.chain(counted).collect())
}

/// The text of a choice: that after `default` is the first of `names`.
fn name_of(choice: u32, default: u32, names: &[&str]) -> Result<Option<String>> {
    if choice == default {
        return Ok(None);
    }
    let name = usize::try_from(choice - 1).ok().and_then(|index| names.get(index));
    let hint = "an option is none of its choices";
    name.map(|name| Some((*name).to_owned())).ok_or(Error::new(Kind::InvalidArgument, Operation::Open, hint))
}

fn threshold(bytes: u64) -> Option<String> {
    match bytes {
        GVMM_THRESHOLD_DEFAULT => None,
        GVMM_THRESHOLD_AUTO => Some("1".to_owned()),
        GVMM_THRESHOLD_OFF => Some("0".to_owned()),
        bytes => Some(bytes.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::versioned::Versioned;
    use super::*;
    use std::collections::BTreeSet;

    /// Variables that are no options: why stands beside each.
    const ENVIRONMENT_ONLY: [&str; 0] = [];

    fn full() -> gvmm_options {
        let text = c"text".as_ptr();
        gvmm_options {
            struct_size: size_of::<gvmm_options>(),
            driver: 4,
            plan: 2,
            log: text,
            profile: text,
            threshold_bytes: 4096,
            shadow_budget_bytes: 1,
            pool_chunk_bytes: 2,
            pool_small_chunk_bytes: 3,
            pool_limit_bytes: 4,
            cuda_library: text,
            hip_library: text,
            level_zero_library: text,
            quirks: text,
            host_devices: 5,
            host_huge_pages: GVMM_SWITCH_OFF,
            host_memory_bytes: 6,
            host_max_maps: 7,
            host_capabilities: text,
            host_costs: text,
            pool_peers: text,
            pool_history: 8,
            xpu_streams: text,
        }
    }

    fn of(options: &gvmm_options) -> Vec<Text> {
        // SAFETY: the texts are constants.
        let c = unsafe { Caller::vouches() };
        texts(c, options).expect("options")
    }

    #[test]
    fn every_variable_is_an_option() {
        let given: BTreeSet<&str> = of(&full()).iter().map(|(name, _)| *name).collect();
        for variable in config::variables() {
            assert!(
                given.contains(variable.name) || ENVIRONMENT_ONLY.contains(&variable.name),
                "{}: append a field to gvmm_options, name it in `versioned!` and `texts` of src/capi/options.rs and in \
                 this test's `full`, or list it in ENVIRONMENT_ONLY with the reason",
                variable.name
            );
        }
    }

    #[test]
    fn choices_are_named_and_zero_says_nothing() {
        let texts = of(&full());
        for wanted in [("GVMM_DRIVER", "host"), ("GVMM_PLAN", "auto"), ("GVMM_HOST_HUGEPAGES", "off")] {
            assert!(texts.contains(&(wanted.0, wanted.1.to_owned())), "{wanted:?}");
        }
        assert_eq!(of(&gvmm_options::DEFAULT), []);
        let wrong = gvmm_options { driver: 5, ..gvmm_options::DEFAULT };
        assert_eq!(numbers(&wrong).err().map(|e| e.kind), Some(Kind::InvalidArgument));
        let values = [0, 1, 2, u64::MAX].map(threshold);
        assert_eq!(values, [None, Some("1".into()), Some("2".into()), Some("0".into())]);
    }
}
