//! Every check for every driver that is here. For the host driver in each of the shapes that other drivers have.

use gvmm::config::{Config, HostConfig};
use gvmm::driver::host::HostDriver;
use gvmm::driver::testing::conformance::{self, Outcome};
use gvmm::driver::testing::{Fault, Trace};
use gvmm::driver::{Capabilities, CopySlice, CreateOptions, Driver, Ordinal};
use gvmm::error::Kind;
use gvmm::units::{ByteSize, DevicePtr};
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
    Arc::new(HostDriver::new(config.clone(), None).expect("a host driver"))
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

const CAPABILITIES: [&str; 12] = [
    "virtual_memory",
    "aliasing",
    "device_access",
    "range_access",
    "joined_access",
    "joint_copies",
    "sharing",
    "host_touch",
    "host_functions",
    "routes",
    "early_waits",
    "patches",
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

/// The variable's names are the driver's.
#[test]
fn the_variable_takes_each_of_its_capabilities_away() {
    let all = host(&shape()).device_info(Ordinal(0)).expect("a device").capabilities;
    for (name, bit) in [
        ("virtual_memory", Capabilities::VIRTUAL_MEMORY),
        ("aliasing", Capabilities::ALIASING),
        ("device_access", Capabilities::DEVICE_ACCESS),
        ("range_access", Capabilities::RANGE_ACCESS),
        ("joined_access", Capabilities::JOINED_ACCESS),
        ("joint_copies", Capabilities::JOINT_COPIES),
        ("sharing", Capabilities::SHARING),
        ("routes", Capabilities::ROUTES),
    ] {
        let value = |variable: &str| (variable == "GVMM_HOST_CAPS").then(|| format!("-{name}"));
        let (config, warnings) = Config::read(value);
        assert_eq!(warnings, Vec::<String>::new());
        let left = host(&config.host).device_info(Ordinal(0)).expect("a device").capabilities;
        assert!(all.has(bit) && !left.has(bit), "{name}");
        assert!(name == "virtual_memory" || left.with(bit) == all, "{name} takes others with it");
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

/// Tells this program that it is the child of one of the tests below, and must do what that test is about.
const CHILD: &str = "GVMM_TEST_CHILD";

/// Runs `body` in a process of its own, after the shell commands `limits`, and expects it to end with 7.
fn in_a_child(test: &str, limits: &str, body: fn()) {
    if std::env::var_os(CHILD).is_some() {
        body();
        std::process::exit(7);
    }
    let own = std::env::current_exe().expect("this program");
    let mut child = std::process::Command::new("sh");
    child.args(["-c", &format!("{limits} exec \"$0\" --exact {test} --nocapture")]).arg(own).env(CHILD, "1");
    let status = child.status().expect("the child runs");
    assert_eq!(status.code(), Some(7), "{status}");
}

#[test]
fn a_process_can_end_with_work_pending() {
    in_a_child("a_process_can_end_with_work_pending", "", || {
        static DRIVER: std::sync::OnceLock<Arc<dyn Driver>> = std::sync::OnceLock::new();
        let driver = DRIVER.get_or_init(|| host(&shape()));
        let memory = driver.allocate(Ordinal(0), ByteSize::mib(64)).expect("memory");
        let gate = driver.timeline_create(Ordinal(0)).expect("a timeline");
        for _ in 0..4 {
            let stream = driver.streams().create(Ordinal(0)).expect("a stream");
            let dst = DevicePtr(memory.0 + (32 << 20));
            for _ in 0..100 {
                let slice = CopySlice { dst, src: memory, bytes: 32 << 20 };
                driver.copy(Ordinal(0), stream, &[slice]).expect("enqueued");
            }
            driver.streams().enqueue(stream, Arc::new(std::thread::yield_now)).expect("enqueued");
            driver.stream_wait(stream, gate, 1).expect("enqueued");
        }
    });
}

#[test]
fn no_descriptor_left_is_an_error_of_its_own() {
    in_a_child("no_descriptor_left_is_an_error_of_its_own", "ulimit -n 40;", || {
        let (driver, device, size) = (host(&shape()), Ordinal(0), ByteSize::mib(2));
        let options = CreateOptions { exportable: true, ..CreateOptions::default() };
        let mut blocks = Vec::new();
        let error = loop {
            match driver.create(device, size, options) {
                Ok(block) => blocks.push(block),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, Kind::OutOfFileDescriptors, "{error}");
        assert_eq!(driver.export(blocks[0]).map_err(|e| e.kind).err(), Some(Kind::OutOfFileDescriptors));
        let free = driver.memory(device).expect("figures").free;
        assert_eq!(free, Some(ByteSize(MEMORY - blocks.len() as u64 * size.0)), "what failed took nothing");
        driver.release(blocks[0]).expect("a block");
        driver.create(device, size, options).expect("one descriptor is free again");
        driver.create(device, size, CreateOptions::default()).expect("others need none");
    });
}

#[test]
fn no_addresses_left_is_an_error_of_its_own() {
    in_a_child("no_addresses_left_is_an_error_of_its_own", "ulimit -v 4000000;", || {
        let (driver, device) = (host(&shape()), Ordinal(0));
        let granule = driver.granularity(device, ByteSize(1)).expect("a granule");
        let error = driver.reserve(device, ByteSize::gib(8), granule).expect_err("4 GB are all there is");
        assert_eq!(error.kind, Kind::OutOfAddressSpace, "{error}");
        driver.reserve(device, ByteSize::gib(1), granule).expect("there is room for less");
    });
}

/// Where somebody else used up the mappings that the driver counted on, the system's refusal says the same.
#[test]
fn the_system_s_own_limit_of_mappings_is_told_apart() {
    in_a_child("the_system_s_own_limit_of_mappings_is_told_apart", "", || {
        let driver = host(&HostConfig { max_maps: 1 << 40, ..shape() });
        let (device, size, count) = (Ordinal(0), ByteSize::mib(2), 100_000_u64);
        let granule = driver.granularity(device, size).expect("a granule");
        let range = driver.reserve(device, ByteSize::mib(2 * count), granule).expect("a range");
        let block = driver.create(device, size, CreateOptions::default()).expect("a block");
        let part = |i| range.slice(ByteSize::mib(2 * i), size).expect("inside");
        let mut failed =
            (0..count).step_by(2).filter_map(|i| driver.map(part(i), block).err().map(|e| (i, e)));
        let Some((at, error)) = failed.next() else { return println!("skipped: this system has no limit") };
        assert_eq!(error.kind, Kind::MapLimit, "{error}");
        assert_eq!(driver.unmap(part(at)).map_err(|e| e.kind), Err(Kind::NotMapped), "nothing changed");
        for i in (0..at).step_by(2) {
            driver.unmap(part(i)).expect("what is mapped can be unmapped");
        }
        driver.free(range).expect("nothing is mapped");
    });
}
