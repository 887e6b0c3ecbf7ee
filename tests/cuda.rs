//! The CUDA driver on a real GPU: the conformance checks and what only a GPU shows. Without one, each is skipped
//! visibly; with `GVMM_NO_SKIP=1` that is a failure.

mod cuda_common;

use cuda_common::{Bench, contexts, copies, memory, timelines};
use gvmm::driver::cuda::CudaDriver;
use gvmm::driver::{CreateOptions, Driver, Ordinal};
use gvmm::units::ByteSize;
use std::path::PathBuf;

const SMALL: &[(&str, bool)] = &[("cuda-small-parameters", true)];
const EVENTS: &[(&str, bool)] = &[("cuda-old-stream-values", true)];

fn no_skip() -> bool {
    std::env::var_os("GVMM_NO_SKIP").is_some_and(|v| v == "1")
}

fn skip(reason: &str) {
    println!("skipped: {reason}");
    assert!(!no_skip(), "GVMM_NO_SKIP=1 and skipped: {reason}");
}

/// The driver with quirks forced, or none where there is no GPU.
fn driver(forced: &[(&str, bool)]) -> Option<CudaDriver> {
    let path = std::env::var_os("GVMM_CUDA_LIBRARY").map(PathBuf::from);
    match CudaDriver::with_quirks(path.as_deref(), forced) {
        Ok(driver) => Some(driver),
        Err(error) => {
            skip(&error.to_string());
            None
        }
    }
}

fn with(forced: &[(&str, bool)], body: impl FnOnce(&Bench)) {
    if let Some(driver) = driver(forced) {
        body(&Bench::new(driver));
    }
}

#[test]
fn the_devices_are_described() {
    let Some(driver) = driver(&[]) else { return };
    println!("{}: CUDA {}", driver.library().display(), driver.version());
    for device in (0..driver.device_count()).map(Ordinal) {
        let info = driver.device_info(device).expect("a device");
        println!("{device:?}: {} {info:?}", driver.architecture(device).expect("a device"));
        let memory = driver.memory(device).expect("memory");
        assert!(memory.free.is_some_and(|free| free <= memory.total && !free.is_zero()));
    }
}

/// Whether the driver gives a released handle's number again: then a stale handle of a program's cannot be told
/// from a new one.
#[test]
fn handles_may_come_back() {
    let Some(driver) = driver(&[]) else { return };
    let granule = driver.granularity(Ordinal(0), ByteSize(1)).expect("a granule");
    let mut seen: Vec<u64> = Vec::new();
    for _ in 0..100 {
        let block = driver.create(Ordinal(0), granule.size(), CreateOptions::default()).expect("a block");
        driver.release(block).expect("a block");
        seen.push(block.0);
    }
    println!("handles: {:#x} {:#x} {:#x} ...", seen[0], seen[1], seen[2]);
    seen.sort_unstable();
    seen.dedup();
    println!("100 blocks made one after the other had {} handles", seen.len());
}

#[test]
fn the_driver_conforms() {
    let Some(driver) = driver(&[]) else { return };
    cuda_common::conforms(driver, (&[], ""));
}

#[test]
fn copies_of_every_alignment() {
    with(&[], copies::copies_of_every_alignment);
    with(SMALL, copies::copies_of_every_alignment);
}

#[test]
fn copies_of_large_slices() {
    with(&[], copies::copies_of_large_slices);
    with(SMALL, copies::copies_of_large_slices);
}

#[test]
fn copies_share_launches() {
    with(&[], |bench| copies::copies_share_launches(bench, 1364));
    with(SMALL, |bench| copies::copies_share_launches(bench, 170));
}

#[test]
fn copies_are_captured() {
    with(&[], copies::copies_are_captured);
    with(SMALL, copies::copies_are_captured);
}

#[test]
fn contexts_are_left_alone() {
    with(&[], |bench| {
        std::thread::scope(|scope| {
            scope.spawn(|| contexts::contexts_are_left_alone(bench)).join().expect("the check holds");
        });
    });
}

#[test]
fn memory_moves_behind_an_address() {
    with(&[], memory::memory_moves_behind_an_address);
}

#[test]
fn blocks_are_shared() {
    with(&[], memory::blocks_are_shared);
}

#[test]
fn foreign_blocks_are_adopted() {
    with(&[], memory::foreign_blocks_are_adopted);
}

#[test]
fn peers_reach_blocks() {
    with(&[], |bench| {
        if let Err(reason) = memory::peers_reach_blocks(bench) {
            println!("skipped: {reason}");
        }
    });
}

#[test]
fn timelines_order_streams() {
    with(&[], |bench| timelines::timelines_order_streams(bench, true));
    with(&[], timelines::late_waits_are_let_go);
    with(&[], timelines::counters_are_seen_without_a_call);
    with(EVENTS, |bench| timelines::timelines_order_streams(bench, false));
}

#[test]
fn the_layer_above_works() {
    with(&[], timelines::the_layer_above_works);
}
