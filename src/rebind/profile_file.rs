//! Which profile a device has: the one of the file that `GVMM_PROFILE` names, or a built-in one.

use super::profile::{Profile, Subject};
use crate::config;
use crate::driver::{DeviceInfo, DriverKind};
use crate::vm::Device;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Read once a device, so that a wrong file is warned of once and all bindings plan alike.
#[derive(Debug, Default)]
struct Known(OnceLock<Arc<Profile>>);

/// What slots cost on `device`: what the file says that `GVMM_PROFILE` names; where there is none, or it is wrong or
/// about another device, a warning says so, and it is what [`Profile::for_device`] says.
pub fn profile_of(device: &Device) -> Arc<Profile> {
    let known = device.extension::<Known>();
    if let Some(profile) = known.0.get() {
        return Arc::clone(profile);
    }
    let (driver, file) = (device.driver(), config::get().profile.as_deref());
    let (profile, warning) = choose(file, device.info(), driver.kind(), driver.version_in_words().as_deref());
    let profile = Arc::new(profile);
    // Not from inside the cell: a logger may call this again.
    if known.0.set(Arc::clone(&profile)).is_ok()
        && let Some(warning) = warning
    {
        log::warn!("{warning}");
    }
    known.0.get().map_or(profile, Arc::clone)
}

/// The profile, and what to warn of.
fn choose(
    file: Option<&Path>,
    info: &DeviceInfo,
    driver: DriverKind,
    version: Option<&str>,
) -> (Profile, Option<String>) {
    let built_in = || Profile::for_device(info, driver);
    let Some(file) = file else { return (built_in(), None) };
    match read(file, &Subject { device: &info.name, driver, driver_version: version }) {
        Ok(profile) => (profile, None),
        Err(fault) => {
            let warning = format!("GVMM_PROFILE={}: {fault}; the built-in figures are used", file.display());
            (built_in(), Some(warning))
        }
    }
}

/// No more than this is read of a file: a profile has a few thousand bytes.
const LARGEST: u64 = 1 << 20;

/// The text of a file that is one: a pipe may never answer, a device never end.
fn read_text(file: &Path) -> std::io::Result<String> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut text = String::new();
    File::open(file)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "it is too large to be a profile"));
    }
    Ok(text)
}

fn read(file: &Path, subject: &Subject<'_>) -> Result<Profile, String> {
    let text = read_text(file).map_err(|e| e.to_string())?;
    let profile = Profile::parse(&text)?;
    profile.check(subject).map(|()| profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Capabilities;
    use crate::rebind::profile::Origin;
    use crate::units::{ByteSize, Granularity};

    fn device(name: &str, bandwidth: u64, simulated: Option<&str>) -> DeviceInfo {
        DeviceInfo {
            name: name.into(),
            capabilities: Capabilities::default(),
            granularity: Granularity::new(2 << 20).expect("a power of two"),
            total: ByteSize::gib(1),
            bandwidth,
            simulated_costs: simulated.map(str::to_owned),
        }
    }

    #[test]
    fn a_device_that_was_measured_has_its_own_figures() {
        let h200 = Profile::builtin("h200").expect("built in");
        for info in [device("NVIDIA H200", 0, None), device("a host", 7, Some("h200-peer"))] {
            let (profile, warning) = choose(None, &info, DriverKind::HOST, None);
            assert_eq!((&profile.origin.device, profile.origin.driver.as_str()), (&info.name, "host"));
            assert_eq!(
                (profile.unmap, profile.bandwidth, warning),
                (h200.unmap.clone(), h200.bandwidth, None)
            );
        }
    }

    #[test]
    fn another_device_is_taken_to_be_slow_and_dear() {
        let (known, _) = choose(None, &device("MI300X", 10_600_000_000_000, None), DriverKind::HIP, None);
        let (unknown, _) = choose(None, &device("?", 0, None), DriverKind::CUDA, None);
        assert_eq!((known.bandwidth, unknown.bandwidth), (10_600_000_000_000, 100_000_000_000));
        assert!(known.remap.median > unknown.remap.median);
        let h200 = Profile::builtin("h200").expect("built in");
        assert!(unknown.remap.median > h200.remap.median && unknown.bandwidth < h200.bandwidth);
    }

    #[test]
    fn a_file_is_used_where_it_is_right_and_warned_of_where_not() {
        let file = std::env::temp_dir().join(format!("gvmm-profile-{}", std::process::id()));
        let info = device("NVIDIA H200", 0, None);
        let mut wanted = Profile::builtin("h200").expect("built in");
        wanted.host_hidden = true;
        let choose = |text: &str| {
            std::fs::write(&file, text).expect("a temporary file");
            choose(Some(&file), &info, DriverKind::CUDA, Some("CUDA 13.0"))
        };
        assert_eq!(choose(&wanted.to_text()), (wanted.clone(), None));
        let built_in = Profile::for_device(&info, DriverKind::CUDA);
        wanted.origin.device = "NVIDIA H100".into();
        let older = Origin { driver_version: "CUDA 12.8".into(), ..built_in.origin.clone() };
        let older = Profile { origin: older, ..built_in.clone() };
        let negative = built_in.to_text().replace("remap_us = ", "remap_us = -");
        let endless = wanted.to_text() + &"#".repeat(1 << 20);
        for (text, part) in [
            (wanted.to_text(), "NVIDIA H100"),
            (older.to_text(), "CUDA 12.8"),
            (negative, "expected microseconds"),
            (String::new(), "`format` is missing"),
            (endless, "too large"),
        ] {
            let (profile, warning) = choose(&text);
            assert_eq!(profile, built_in);
            assert!(warning.is_some_and(|w| w.contains(part) && w.contains("built-in")), "{part}");
        }
        std::fs::remove_file(&file).expect("it was written");
        let (profile, warning) = super::choose(Some(&file), &info, DriverKind::CUDA, None);
        assert!(profile == built_in && warning.is_some());
        // One that never ends.
        let (profile, warning) = super::choose(Some(Path::new("/dev/zero")), &info, DriverKind::CUDA, None);
        assert!(profile == built_in && warning.is_some_and(|w| w.contains("not a file")));
    }
}
