//! What a wrong value does, and a right one.

use super::variables::*;
use super::*;

fn read(set: &[(&str, &str)]) -> (Config, Vec<String>) {
    Config::read(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string()))
}

#[test]
fn nothing_set_is_the_default_without_a_warning() {
    assert_eq!(read(&[]), (Config::default(), vec![]));
}

#[test]
fn right_values_are_taken() {
    let (config, warnings) = read(&[
        (LOG, "debug"),
        (DRIVER, "host"),
        (CUDA_LIBRARY, "/opt/libcuda.so.1"),
        (ZE_LIBRARY, ""),
        (QUIRKS, "+cuda-small-parameters, -some-other"),
        (HOST_DEVICES, "4"),
        (HOST_MEMORY, "8G"),
        (HOST_HUGEPAGES, "on"),
        (HOST_CAPS, "-aliasing, -joint_copies, -patches"),
        (HOST_COSTS, "h200-peer"),
        (HOST_MAX_MAPS, "1000"),
        (SHADOW_BUDGET, "64m"),
        (POOL_CHUNK, "8M"),
        (POOL_SMALL_CHUNK, "4M"),
        (POOL_LIMIT, "70G"),
        (POOL_PEERS, "0, 3"),
        (POOL_HISTORY, "1000"),
        (XPU_STREAMS, "any"),
        (PLAN, "auto"),
        (PROFILE, "/etc/h200.profile"),
        (TMP_COPY_THRESHOLD, "4096"),
    ]);
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.log.as_deref(), Some("debug"));
    assert_eq!(config.driver, Some(4));
    let libraries = Libraries { cuda: Some("/opt/libcuda.so.1".into()), ..Libraries::default() };
    assert_eq!(config.libraries, libraries);
    assert_eq!(config.quirks, [("cuda-small-parameters".into(), true), ("some-other".into(), false)]);
    assert_eq!(config.host.devices, 4);
    assert_eq!(config.host.memory, 8 << 30);
    assert!(config.host.huge_pages);
    assert_eq!(config.host.caps_off, ["aliasing", "joint_copies", "patches"]);
    assert_eq!(config.host.costs.as_deref(), Some("h200-peer"));
    assert_eq!(config.host.max_maps, 1000);
    assert_eq!(config.shadow_budget, Some(64 << 20));
    let pool = PoolConfig {
        chunk: Some(8 << 20),
        small_chunk: Some(4 << 20),
        limit: Some(70 << 30),
        peers: 0b1001,
        history: 1000,
        xpu_any_stream: true,
    };
    assert_eq!(config.pool, pool);
    assert!(config.plan_auto);
    assert_eq!(config.profile, Some("/etc/h200.profile".into()));
    assert_eq!(config.tmp_copy_threshold, Some(4096));
}

#[test]
fn a_wrong_value_is_one_warning_and_the_default() {
    for (name, value) in [
        (LOG, "a=b=c"),
        (LOG, "gvmm=loud"),
        (DRIVER, "metal"),
        (QUIRKS, "cuda-small-parameters"),
        (QUIRKS, "+"),
        (HOST_DEVICES, "0"),
        (HOST_DEVICES, "many"),
        (HOST_MEMORY, "8 Gigs"),
        (HOST_MEMORY, "99999999999999T"),
        (HOST_MEMORY, ""),
        (HOST_HUGEPAGES, "perhaps"),
        (HOST_CAPS, "aliasing"),
        (HOST_CAPS, "-flying"),
        (HOST_COSTS, "h100"),
        (HOST_MAX_MAPS, "-1"),
        (SHADOW_BUDGET, "1%"),
        (POOL_CHUNK, "large"),
        (POOL_SMALL_CHUNK, "-2M"),
        (POOL_LIMIT, "50%"),
        (POOL_LIMIT, "0"),
        (POOL_PEERS, "64"),
        (POOL_PEERS, "0,,1"),
        (POOL_HISTORY, "-1"),
        (XPU_STREAMS, "2"),
        (PLAN, "cheap"),
        (TMP_COPY_THRESHOLD, "-1"),
        (TMP_COPY_THRESHOLD, "big"),
    ] {
        let (config, warnings) = read(&[(name, value)]);
        assert_eq!(config, Config::default(), "{name}={value}");
        assert_eq!(warnings.len(), 1, "{name}={value}");
        assert!(warnings[0].starts_with(&format!("{name}={value}: expected ")), "{}", warnings[0]);
    }
}

#[test]
fn the_automatic_choices_can_be_named() {
    let (config, warnings) = read(&[(DRIVER, "AUTO"), (HOST_COSTS, "none"), (LOG, " ")]);
    assert_eq!((config, warnings), (Config::default(), vec![]));
}

/// A variable that is read but not listed would be missing from the documents.
#[test]
fn every_variable_that_is_read_is_listed() {
    let asked = std::cell::RefCell::new(Vec::new());
    let _ = Config::read(|name| {
        asked.borrow_mut().push(name.to_string());
        None
    });
    let (mut asked, mut listed) = (asked.into_inner(), Vec::new());
    listed.extend(variables().iter().map(|v| v.name.to_string()));
    asked.sort();
    listed.sort();
    assert_eq!(asked, listed);
}
