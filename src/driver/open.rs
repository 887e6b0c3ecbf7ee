//! Which driver: the one that is named, or the best that this machine has; and what each says about itself.

use super::cuda::CudaDriver;
use super::hip::HipDriver;
use super::host::HostDriver;
use super::level_zero::LevelZeroDriver;
use super::library;
use super::quirks::{self, QUIRKS, Quirk, Subject};
use super::{DeviceInfo, Driver, DriverKind, MemoryInfo, Ordinal, unsupported};
use crate::config::Config;
use crate::error::{Error, Kind, Operation, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// All drivers, in the order in which they are tried where none is named.
pub const ORDER: [DriverKind; 4] =
    [DriverKind::CUDA, DriverKind::HIP, DriverKind::LEVEL_ZERO, DriverKind::HOST];

/// What a driver that is there says about itself.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The vendor's library that was opened; the host driver has none.
    pub library: Option<PathBuf>,
    /// The driver's version in the vendor's words; the host driver has none.
    pub version: Option<String>,
    /// Its devices, by ordinal.
    pub devices: Vec<DeviceSummary>,
}

/// What a driver says about one device.
#[derive(Clone, Debug)]
pub struct DeviceSummary {
    /// What it is.
    pub info: DeviceInfo,
    /// Its memory now.
    pub memory: MemoryInfo,
    /// Its architecture in the vendor's word, such as `sm_90`.
    pub architecture: Option<String>,
    /// The quirks in force.
    pub quirks: Vec<QuirkInForce>,
    /// What was tried when the device opened, and how that ended.
    pub self_tests: Vec<(&'static str, String)>,
    /// What people should know about it.
    pub notes: Vec<&'static str>,
}

/// A quirk that is in force.
#[derive(Clone, Debug)]
pub struct QuirkInForce {
    /// Its name.
    pub name: &'static str,
    /// Where it is written down.
    pub reference: &'static str,
    /// Why it is in force: the version and the architecture that it is about, or the variable that says so.
    pub why: String,
}

/// Opens the driver of `kind`, or without one that of `GVMM_DRIVER`, or the first of [`ORDER`] that is there: the
/// host's own always is.
///
/// # Errors
///
/// `DriverNotFound`, `DriverTooOld` or `NoDevice` where a driver that is named cannot be had; the hint says why.
/// `InvalidArgument` for a kind that does not exist.
pub fn open(kind: Option<DriverKind>, config: &Config) -> Result<Arc<dyn Driver>> {
    if let Some(kind) = kind.or(config.driver.map(DriverKind)) {
        return open_one(kind, config);
    }
    let mut last = absent("no driver was found");
    for kind in ORDER {
        match open_one(kind, config) {
            Ok(driver) => return Ok(driver),
            Err(error) => {
                note_absence(kind, &error);
                last = error;
            }
        }
    }
    Err(last)
}

/// Opens the driver of `kind` for the device that a framework uses: a context of its own (0 where it has none) and a
/// device, in the driver's own handles. Level Zero's memory is of use in its own context only, so a context that is
/// not ours gets a driver of its own. The handles must be live, and outlive the driver.
///
/// # Errors
///
/// As [`open`]; `NoDevice` where no device is meant; `InvalidArgument` for handles that are none.
pub fn attach(
    kind: DriverKind,
    context: u64,
    device: u64,
    config: &Config,
) -> Result<(Arc<dyn Driver>, Ordinal)> {
    if kind == DriverKind::LEVEL_ZERO {
        let path = config.libraries.level_zero.as_deref();
        return Ok((Arc::new(LevelZeroDriver::attach(path, context, device)?), Ordinal(0)));
    }
    let driver = open_one(kind, config)?;
    let ordinal = driver.locate(context, device)?;
    Ok((driver, ordinal))
}

/// Opens Level Zero for a framework that hands our memory to its libraries: as [`attach`] does, without virtual memory
/// where they would refuse it.
///
/// # Errors
///
/// As [`attach`].
pub fn attach_for_libraries(
    context: u64,
    device: u64,
    config: &Config,
) -> Result<(Arc<dyn Driver>, Ordinal)> {
    let path = config.libraries.level_zero.as_deref();
    let driver = LevelZeroDriver::attach(path, context, device)?.for_libraries();
    Ok((Arc::new(driver), Ordinal(0)))
}

/// Opens a driver once more for a framework that would fault on a device's mapped memory
/// ([`faults_hosts`](Driver::faults_hosts)): without virtual memory there.
///
/// # Errors
///
/// As [`open`]; `Unsupported` for a driver on which that does not happen.
pub fn open_plain(kind: DriverKind, device: Ordinal, config: &Config) -> Result<Arc<dyn Driver>> {
    if kind != DriverKind::HIP {
        return Err(unsupported(Operation::Open, "only HIP's memory is hidden from the host"));
    }
    Ok(Arc::new(hip(config)?.plain_only(device)))
}

/// The driver of a framework that lives in this process, CUDA's or HIP's: HIP's where its library is loaded.
pub fn of_framework() -> DriverKind {
    if library::is_loaded("libamdhip64.so") { DriverKind::HIP } else { DriverKind::CUDA }
}

/// Logs that `kind` is passed over: no news where there is none, a warning where there is one of no use.
pub(crate) fn note_absence(kind: DriverKind, error: &Error) {
    let level = if error.kind == Kind::DriverNotFound { log::Level::Debug } else { log::Level::Warn };
    log::log!(level, "the {} driver is passed over: {error}", kind.name());
}

/// What every driver says about itself, or why it is not there. Opens each once more.
pub fn survey(config: &Config) -> Vec<(DriverKind, Result<Summary>)> {
    ORDER.map(|kind| (kind, summary(kind, config))).into()
}

fn open_one(kind: DriverKind, config: &Config) -> Result<Arc<dyn Driver>> {
    match kind {
        DriverKind::CUDA => Ok(Arc::new(cuda(config)?)),
        DriverKind::HIP => Ok(Arc::new(hip(config)?)),
        DriverKind::LEVEL_ZERO => Ok(Arc::new(level_zero(config)?)),
        DriverKind::HOST => Ok(Arc::new(HostDriver::new(config.host.clone(), None)?)),
        _ => Err(Error::new(Kind::InvalidArgument, Operation::Open, "no driver has this number")),
    }
}

fn summary(kind: DriverKind, config: &Config) -> Result<Summary> {
    match kind {
        DriverKind::CUDA => cuda_summary(&cuda(config)?, config),
        DriverKind::HIP => hip_summary(&hip(config)?, config),
        DriverKind::LEVEL_ZERO => {
            let driver = level_zero(config)?;
            let devices = each_device(&driver, |device| describe(&driver, device, None, Vec::new()))?;
            Ok(Summary { library: Some(driver.library().to_owned()), version: None, devices })
        }
        _ => {
            let driver = open_one(kind, config)?;
            let devices = each_device(&*driver, |device| describe(&*driver, device, None, Vec::new()))?;
            Ok(Summary { library: None, version: None, devices })
        }
    }
}

fn cuda_summary(driver: &CudaDriver, config: &Config) -> Result<Summary> {
    let version = driver.version_in_words().unwrap_or_default();
    let devices = each_device(driver, |device| {
        let arch = driver.architecture(device)?;
        let subject = Subject { kind: DriverKind::CUDA, version: driver.version(), arch };
        let quirks = in_force(&subject, &version, config);
        describe(driver, device, Some(arch.to_owned()), quirks)
    })?;
    Ok(Summary { library: Some(driver.library().to_owned()), version: Some(version), devices })
}

fn hip_summary(driver: &HipDriver, config: &Config) -> Result<Summary> {
    let (version, forced) = (driver.version_in_words().unwrap_or_default(), forced(config));
    let devices = each_device(driver, |device| {
        let arch = driver.architecture(device)?;
        let quirks = driver.quirks(device)?.iter().map(|quirk| because(quirk, &forced, &version, arch));
        let tests = driver.self_tests(device)?.iter();
        Ok(DeviceSummary {
            self_tests: tests.map(|test| (test.name, test.verdict.to_string())).collect(),
            notes: driver.notes(device)?,
            ..describe(driver, device, Some(arch.to_owned()), quirks.collect())?
        })
    })?;
    Ok(Summary { library: Some(driver.library().to_owned()), version: Some(version), devices })
}

fn each_device(
    driver: &dyn Driver,
    describe: impl FnMut(Ordinal) -> Result<DeviceSummary>,
) -> Result<Vec<DeviceSummary>> {
    (0..driver.device_count()).map(Ordinal).map(describe).collect()
}

fn describe(
    driver: &dyn Driver,
    device: Ordinal,
    architecture: Option<String>,
    quirks: Vec<QuirkInForce>,
) -> Result<DeviceSummary> {
    let (info, memory) = (driver.device_info(device)?, driver.memory(device)?);
    Ok(DeviceSummary { info, memory, architecture, quirks, self_tests: Vec::new(), notes: Vec::new() })
}

/// The quirks in force for `subject`, each with the reason.
fn in_force(subject: &Subject<'_>, version: &str, config: &Config) -> Vec<QuirkInForce> {
    let forced = forced(config);
    quirks::in_force(subject, &forced).map(|quirk| because(quirk, &forced, version, subject.arch)).collect()
}

fn because(quirk: &Quirk, forced: &[(&str, bool)], version: &str, arch: &str) -> QuirkInForce {
    let why = match forced.iter().any(|(by_hand, _)| *by_hand == quirk.name) {
        true => "GVMM_QUIRKS says so".to_owned(),
        false => format!("{version} on {arch}"),
    };
    QuirkInForce { name: quirk.name, reference: quirk.reference, why }
}

/// The quirks that `GVMM_QUIRKS` switches; a name that no quirk has is warned of.
fn forced(config: &Config) -> Vec<(&str, bool)> {
    for (name, _) in &config.quirks {
        if !QUIRKS.iter().any(|quirk| quirk.name == name) {
            log::warn!("GVMM_QUIRKS: no quirk is named {name}");
        }
    }
    config.quirks.iter().map(|(name, on)| (name.as_str(), *on)).collect()
}

fn cuda(config: &Config) -> Result<CudaDriver> {
    CudaDriver::with_quirks(config.libraries.cuda.as_deref(), &forced(config))
}

fn hip(config: &Config) -> Result<HipDriver> {
    HipDriver::open(config.libraries.hip.as_deref(), &forced(config))
}

fn level_zero(config: &Config) -> Result<LevelZeroDriver> {
    LevelZeroDriver::open(config.libraries.level_zero.as_deref())
}

const fn absent(hint: &'static str) -> Error {
    Error::new(Kind::DriverNotFound, Operation::Open, hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Libraries;

    /// A machine without any vendor's library, wherever this runs.
    fn bare() -> Config {
        let nowhere = || Some(PathBuf::from("/nowhere/lib.so"));
        let libraries = Libraries { cuda: nowhere(), hip: nowhere(), level_zero: nowhere() };
        Config { libraries, ..Config::default() }
    }

    #[test]
    fn without_a_vendor_the_host_is_what_is_found() {
        assert_eq!(open(None, &bare()).expect("the host").kind(), DriverKind::HOST);
        let named = Config { driver: Some(DriverKind::CUDA.0), ..bare() };
        let error = open(None, &named).expect_err("named and absent");
        assert_eq!(error.kind, Kind::DriverNotFound);
        assert!(error.hint.contains("/nowhere/lib.so"), "{error}");
        assert_eq!(open(Some(DriverKind::HOST), &named).expect("the host").kind(), DriverKind::HOST);
        let none = open(Some(DriverKind(77)), &bare()).expect_err("no such number");
        assert_eq!(none.kind, Kind::InvalidArgument);
    }

    #[test]
    fn a_survey_has_every_driver_with_devices_or_a_reason() {
        let survey = survey(&bare());
        assert_eq!(survey.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), ORDER);
        for (kind, result) in survey {
            match result {
                Ok(summary) => assert!(kind == DriverKind::HOST && !summary.devices.is_empty()),
                Err(error) => assert!(!error.hint.is_empty(), "{error}"),
            }
        }
    }

    #[test]
    fn a_quirk_says_why_it_is_in_force() {
        let subject = Subject { kind: DriverKind::CUDA, version: 12_000, arch: "sm_90" };
        let quirks = [("cuda-old-stream-values".to_owned(), true)].into();
        let found = in_force(&subject, "CUDA 12.0", &Config { quirks, ..bare() });
        let seen: Vec<_> = found.iter().map(|q| (q.name, q.why.as_str())).collect();
        let by_hand = ("cuda-old-stream-values", "GVMM_QUIRKS says so");
        let old = ("cuda-small-parameters", "CUDA 12.0 on sm_90");
        assert_eq!(seen, [old, by_hand, ("cuda-rdma-aliases", "CUDA 12.0 on sm_90")]);
    }
}
