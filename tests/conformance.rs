//! Every check for every driver that is here. For the host driver in each of the shapes that other drivers have.

use gvmm::config::HostConfig;
use gvmm::driver::testing::conformance::{self, Outcome};
use gvmm::driver::testing::{Fault, Trace};
use gvmm::driver::{Driver, DriverKind, Ordinal, open};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A memory that checks may use up.
const MEMORY: u64 = 1 << 30;

fn shape() -> HostConfig {
    HostConfig { memory: MEMORY, ..HostConfig::default() }
}

fn without(names: &[&str]) -> HostConfig {
    HostConfig { caps_off: names.iter().map(|name| (*name).to_owned()).collect(), devices: 2, ..shape() }
}

fn host(config: &HostConfig) -> Arc<dyn Driver> {
    open(Some(DriverKind::HOST), config).expect("a host driver")
}

/// Makes all checks and fails on a mismatch. Gives the names of those that were not skipped.
fn conforms(shape: &str, driver: &Arc<dyn Driver>, device: Ordinal) -> BTreeSet<&'static str> {
    let mut made = BTreeSet::new();
    let mut failed = Vec::new();
    for (name, outcome) in conformance::run(driver, device) {
        match outcome {
            Outcome::Passed => drop(made.insert(name)),
            Outcome::Skipped(reason) => println!("{shape}: skipped: {name}: {reason}"),
            Outcome::Failed(mismatch) => failed.push(format!("{shape}: {name}: {mismatch}")),
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    println!("{shape}: {} checks passed", made.len());
    made
}

fn all_devices(name: &str, config: &HostConfig) -> BTreeSet<&'static str> {
    let driver = host(config);
    (0..config.devices).flat_map(|device| conforms(name, &driver, Ordinal(device))).collect()
}

const CAPABILITIES: [&str; 9] = [
    "virtual_memory",
    "aliasing",
    "device_access",
    "range_access",
    "joined_access",
    "joint_copies",
    "sharing",
    "host_touch",
    "host_functions",
];

#[test]
fn plain() {
    let made = all_devices("plain", &shape());
    assert!(made.len() >= 60, "only {} checks", made.len());
}

#[test]
fn three_devices() {
    all_devices("three devices", &HostConfig { devices: 3, ..shape() });
}

#[test]
fn each_capability_off() {
    for name in CAPABILITIES {
        all_devices(&format!("without {name}"), &without(&[name]));
    }
}

#[test]
fn pairs_of_capabilities_off() {
    for pair in
        [["range_access", "joined_access"], ["aliasing", "device_access"], ["joint_copies", "host_functions"]]
    {
        all_devices(&format!("without {}", pair.join(" and ")), &without(&pair));
    }
}

#[test]
fn all_capabilities_off() {
    all_devices("with nothing", &without(&CAPABILITIES));
}

#[test]
fn huge_pages() {
    all_devices("huge pages", &HostConfig { huge_pages: true, ..shape() });
}

#[test]
fn simulated_costs() {
    for name in ["h200", "h200-peer"] {
        all_devices(name, &HostConfig { costs: Some(name.to_owned()), devices: 2, ..shape() });
    }
}

/// Every check is made in some shape, so that none is dead.
#[test]
fn no_check_is_always_skipped() {
    let mut made = all_devices("two devices", &HostConfig { devices: 2, ..shape() });
    for name in CAPABILITIES {
        made.extend(all_devices(name, &without(&[name])));
    }
    let all: BTreeSet<_> = conformance::checks().iter().map(|check| check.name).collect();
    assert_eq!(all.len(), conformance::checks().len(), "two checks have one name");
    assert_eq!(all.difference(&made).collect::<Vec<_>>(), Vec::<&&str>::new());
}

/// The wrappers behave as what they wrap, and what the checks make they give back.
#[test]
fn wrapped() {
    let trace = Arc::new(Trace::new(Arc::new(Fault::new(host(&HostConfig { devices: 2, ..shape() })))));
    let driver: Arc<dyn Driver> = Arc::clone(&trace) as Arc<dyn Driver>;
    conforms("wrapped", &driver, Ordinal(0));
    assert_eq!(trace.live(), gvmm::driver::testing::Live::default());
}
