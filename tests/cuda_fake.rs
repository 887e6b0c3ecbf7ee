//! The CUDA driver against a fake library that is stricter than the real one and counts breaches of its rules.

mod cuda_common;

use cuda_common::fake::Fake;
use cuda_common::{contexts, copies, memory, timelines};
use gvmm::driver::cuda::CudaDriver;
use gvmm::driver::testing::conformance::{self, Outcome};
use gvmm::driver::{Access, AccessMode, Capabilities, CreateOptions, Driver, Ordinal, Stream};
use gvmm::error::{Error, Kind};
use gvmm::units::{ByteSize, Granularity};
use gvmm::vm::{Device, Owner};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// What timelines of events cannot do.
const EVENTS: (&[&str], &str) = (
    &[
        "a stream waits for another one's value",
        "a stream that waits holds up no other",
        "one value lets several streams go",
        "a timeline with a pending write is in use",
    ],
    "a stream can wait only for a value whose write is enqueued already",
);

fn on_a_fresh_thread(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(body).join().expect("the check holds"));
}

#[test]
fn the_driver_conforms() {
    let fake = Fake::build("conforms", &[]);
    let driver = fake.open().expect("the fake opens");
    let info = driver.device_info(Ordinal(1)).expect("a device");
    assert!(info.capabilities.has(Capabilities::JOINT_COPIES.with(Capabilities::VIRTUAL_MEMORY)));
    assert_eq!(info.bandwidth, 2 * 3_201_000_000 * 768);
    cuda_common::conforms(driver, (&[], ""));
    fake.clean();
}

/// Blocks for RDMA have a fault when they lose their first mapping: what keeps it is made for RDMA, other blocks are
/// not.
#[test]
fn memory_that_stays_is_made_for_rdma() {
    let fake = Fake::build("rdma_stays", &[]).set("FAKE_CUDA_DEVICES", 1);
    let device = Device::open(Arc::new(fake.open().expect("the fake opens")), Ordinal(0)).expect("a device");
    let block = device.create_block(ByteSize::mib(2), CreateOptions::default()).expect("a block");
    assert_eq!(fake.number("fake_cuda_rdma_blocks"), 0);
    let memory = device.allocate(ByteSize::mib(2), &[], Owner::Caller).expect("an allocation");
    assert_eq!(fake.number("fake_cuda_rdma_blocks"), 1);
    drop((memory, block, device));
    fake.clean();
}

/// They are made all the same where somebody switches the care off, and then the fault is there.
#[test]
fn all_blocks_are_for_rdma_by_hand_and_have_their_fault() {
    let fake = Fake::build("rdma", &[]).set("FAKE_CUDA_DEVICES", 1);
    let driver = CudaDriver::with_quirks(Some(&fake.path), &[("cuda-rdma-aliases", false)]).expect("opens");
    let driver: Arc<dyn Driver> = Arc::new(driver);
    let name = "a block whose first view is gone is mapped again after its access changed";
    let check = conformance::checks().into_iter().find(|check| check.name == name).expect("a check");
    let Outcome::Failed(mismatch) = check.run(&driver, Ordinal(0)) else { panic!("the fault is not there") };
    assert!(mismatch.seen.contains("CUDA_ERROR_UNKNOWN (999)"), "{mismatch}");
    drop(driver);
    fake.clean();
}

#[test]
fn the_driver_conforms_without_what_older_ones_lack() {
    let fake =
        Fake::build("older", &["-DcuStreamWriteValue64_v2=hidden", "-DcuStreamGetCaptureInfo_v2=hidden_too"]);
    let fake = fake.set("FAKE_CUDA_VERSION", 11_040).set("FAKE_CUDA_SM", 61).set("FAKE_CUDA_DEVICES", 1);
    let driver = fake.open().expect("the fake opens");
    cuda_common::conforms(driver, EVENTS);
    fake.clean();
}

#[test]
fn the_driver_conforms_without_virtual_memory_and_kernels() {
    let fake = Fake::build("plain", &[]).set("FAKE_CUDA_VMM", 0).set("FAKE_CUDA_PTX", 0);
    let driver = fake.open().expect("the fake opens");
    let capabilities = driver.device_info(Ordinal(0)).expect("a device").capabilities;
    assert!(!capabilities.has(Capabilities::VIRTUAL_MEMORY) && !capabilities.has(Capabilities::JOINT_COPIES));
    cuda_common::conforms(driver, (&[], ""));
    fake.clean();
}

#[test]
fn the_extra_checks_hold() {
    let fake = Fake::build("extra", &[]);
    let bench = fake.bench();
    copies::copies_of_every_alignment(&bench);
    copies::copies_of_large_slices(&bench);
    copies::copies_share_launches(&bench, 1364);
    copies::copies_are_captured(&bench);
    memory::memory_moves_behind_an_address(&bench);
    memory::blocks_are_shared(&bench);
    memory::foreign_blocks_are_adopted(&bench);
    memory::peers_reach_blocks(&bench).expect("two devices");
    timelines::timelines_order_streams(&bench, true);
    timelines::late_waits_are_let_go(&bench);
    timelines::counters_are_seen_without_a_call(&bench);
    timelines::the_layer_above_works(&bench);
    on_a_fresh_thread(|| contexts::contexts_are_left_alone(&bench));
    drop(bench);
    fake.clean();
}

#[test]
fn an_old_driver_has_small_tables_and_events() {
    let fake = Fake::build("old", &[]).set("FAKE_CUDA_VERSION", 11_000).set("FAKE_CUDA_SM", 50);
    let bench = fake.bench();
    copies::copies_of_large_slices(&bench);
    copies::copies_share_launches(&bench, 170);
    timelines::timelines_order_streams(&bench, false);
    copies::copies_are_captured(&bench);
    on_a_fresh_thread(|| contexts::contexts_are_left_alone(&bench));
    drop(bench);
    fake.clean();
}

#[test]
fn without_kernels_slices_are_copied_one_by_one() {
    let fake = Fake::build("ptx", &[]).set("FAKE_CUDA_PTX", 0);
    let bench = fake.bench();
    copies::copies_of_large_slices(&bench);
    copies::copies_are_captured(&bench);
    drop(bench);
    fake.clean();
}

#[test]
fn absence_has_a_reason() {
    let kind_and_hint = |fake: Fake| {
        let error = fake.open().expect_err("absent");
        (error.kind, error.hint, error.native.map(|n| n.code))
    };
    let (kind, hint, _) = kind_and_hint(Fake::build("lacks", &["-DcuMemMap=hidden"]));
    assert_eq!(kind, Kind::DriverTooOld);
    assert!(hint.contains("cuMemMap") && hint.contains("libcuda-lacks.so"), "{hint}");
    let (kind, hint, code) = kind_and_hint(Fake::build("stub", &[]).set("FAKE_CUDA_INIT", 34));
    assert_eq!((kind, code), (Kind::DriverNotFound, Some(34)));
    assert!(hint.contains("stub"), "{hint}");
    let (kind, hint, code) = kind_and_hint(Fake::build("nodevice", &[]).set("FAKE_CUDA_INIT", 100));
    assert_eq!((kind, code), (Kind::NoDevice, Some(100)));
    assert!(!hint.is_empty());
    let (kind, _, code) = kind_and_hint(Fake::build("ancient", &[]).set("FAKE_CUDA_VERSION", 10_020));
    assert_eq!((kind, code), (Kind::DriverTooOld, Some(10_020)));
    let (kind, hint, _) = kind_and_hint(Fake::build("front", &["-DFAKE_IN_FRONT"]));
    assert_eq!(kind, Kind::DriverNotFound);
    assert!(hint.contains("in front"), "{hint}");
}

#[test]
fn nothing_of_a_vendor_is_linked() {
    let this = std::env::current_exe().expect("this program");
    let Ok(output) = Command::new("readelf").arg("-d").arg(this).output() else {
        return println!("skipped: no readelf");
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let needed: Vec<&str> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.iter().any(|line| line.contains("[libc.so")), "readelf was understood: {text}");
    let plain = ["[libc.so", "[libgcc_s.so", "[ld-linux", "[libm.so", "[libdl.so", "[libpthread.so"];
    for line in needed {
        assert!(plain.iter().any(|name| line.contains(name)), "linked: {line}");
    }
}

/// The library that was built with this test, in a folder where the C programs find it.
fn library() -> PathBuf {
    let this = std::env::current_exe().expect("this program");
    let built = this.parent().expect("a folder").join("libgvmm.so");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["libgvmm.so", "libgvmm.so.0"] {
        std::fs::copy(&built, folder.join(name)).expect("copied");
    }
    folder
}

/// The C program, by the C ABI alone, captures once and is right in every step.
#[test]
fn the_c_program_captures_a_graph_once() {
    let (root, folder) = (Path::new(env!("CARGO_MANIFEST_DIR")), library());
    let program = folder.join("cuda_graph");
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("include"));
    compile.arg(root.join("c_examples/cuda_graph.c")).arg("-L").arg(&folder);
    compile.args(["-lgvmm", "-ldl", "-o"]).arg(&program).arg(format!("-Wl,-rpath,{}", folder.display()));
    assert!(compile.status().expect("a C compiler").success(), "it compiles");
    let fake = Fake::build("program", &[]);
    let mut run = Command::new(program);
    run.env("GVMM_CUDA_LIBRARY", &fake.path).env("FAKE_CUDA_TRACE", "1").env("GVMM_LOG", "warn");
    // cargo sets it to its own folders, where an older library may lie.
    run.env_remove("LD_LIBRARY_PATH");
    let output = run.output().expect("it runs");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && errors.is_empty(), "{text}{errors}");
    assert!(text.contains("recorded 1 time, 0 of 8 steps were wrong"), "{text}");
    assert!(text.contains("step 7: 1 map, 1 unmap, 1 set access, 0 copy launches"), "{text}");
}

/// The program about peers, by the C ABI alone, where devices reach each other and where they do not.
#[test]
fn peers_by_the_c_abi() {
    let (root, folder) = (Path::new(env!("CARGO_MANIFEST_DIR")), library());
    let program = folder.join("peers");
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("include"));
    compile.arg(root.join("ffi_tests/peers.c")).arg("-L").arg(&folder);
    compile.args(["-lgvmm", "-ldl", "-o"]).arg(&program).arg(format!("-Wl,-rpath,{}", folder.display()));
    assert!(compile.status().expect("a C compiler").success(), "it compiles");
    for (peers, wanted) in [(1, "both directions right"), (0, "peers: apart")] {
        let fake = Fake::build(&format!("peers{peers}"), &[]);
        let mut run = Command::new(&program);
        run.env("GVMM_CUDA_LIBRARY", &fake.path).env("GVMM_TEST_PEERS", "cuda").env("GVMM_LOG", "warn");
        run.env("FAKE_CUDA_DEVICES", "2")
            .env("FAKE_CUDA_PEERS", peers.to_string())
            .env_remove("LD_LIBRARY_PATH");
        let output = run.output().expect("it runs");
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains(wanted), "{text}{errors}");
    }
}

#[test]
fn peers_out_of_reach_are_refused_with_a_hint() {
    let fake = Fake::build("apart", &[]).set("FAKE_CUDA_PEERS", 0);
    let bench = fake.bench();
    assert_eq!(memory::peers_reach_blocks(&bench), Err("the devices cannot reach each other"));
    assert_eq!(fake.number("fake_cuda_breaches"), 0, "{}", fake.last_breach());
}

#[test]
fn failures_keep_their_number_and_change_nothing() {
    let fake = Fake::build("fails", &[]);
    let driver = fake.open().expect("the fake opens");
    let granule = driver.granularity(Ordinal(0), ByteSize(1)).expect("a granule");
    let reserve = || driver.reserve(Ordinal(0), granule.size(), granule);
    let create = || driver.create(Ordinal(0), granule.size(), gvmm::driver::CreateOptions::default());
    fake.fail("cuMemAddressReserve", 1, 2);
    assert_eq!(reserve().expect_err("failed").kind, Kind::OutOfAddressSpace);
    fake.fail("cuMemCreate", 1, 2);
    assert_eq!(create().expect_err("failed").kind, Kind::OutOfDeviceMemory);
    let (range, block) = (reserve().expect("a range"), create().expect("a block"));
    fake.fail("cuMemMap", 1, 4242);
    let error = driver.map(range, block).expect_err("failed");
    assert_eq!(error.to_string(), format!("map 2 MiB at {}: CUDA_ERROR_OF_THE_FAKE (4242)", range.start()));
    driver.map(range, block).expect("nothing was mapped");
    fake.fail("cuMemUnmap", 1, 999);
    assert_eq!(driver.unmap(range).expect_err("failed").kind, Kind::DriverError);
    driver.unmap(range).expect("it was still mapped");
    fake.fail("cuMemAddressFree", 1, 1);
    driver.free(range).expect_err("failed");
    driver.free(range).expect("it was still reserved");
    fake.fail("cuMemRelease", 1, 1);
    driver.release(block).expect_err("failed");
    driver.release(block).expect("it was still there");
    drop(driver);
    fake.clean();
}

/// A reservation with a hole takes two calls; where the second fails, the first is taken back.
#[test]
fn access_over_holes_is_all_or_none() {
    let fake = Fake::build("holes", &[]);
    let driver = fake.open().expect("the fake opens");
    let granule = driver.granularity(Ordinal(0), ByteSize(1)).expect("a granule");
    let at = |n: u64| ByteSize(granule.size().get() * n);
    let range = driver.reserve(Ordinal(0), at(4), granule).expect("a range");
    let parts = [1, 3].map(|n| range.slice(at(n), granule.size()).expect("a part"));
    let blocks = parts.map(|part| {
        let block = driver.create(Ordinal(0), granule.size(), CreateOptions::default()).expect("a block");
        driver.map(part, block).expect("mapped");
        block
    });
    let set = |mode| driver.set_access(range, &[Access { device: Ordinal(0), mode }]);
    let flags = || {
        parts.map(|part| {
            let (mut flags, location) = (0_u64, [1_u32, 0]);
            let (out, location) = (&raw mut flags as u64, location.as_ptr() as u64);
            fake.native.must("cuMemGetAccess", out, location, part.start().get());
            flags
        })
    };
    set(AccessMode::READ_WRITE).expect("both");
    assert_eq!(flags(), [3, 3]);
    fake.fail("cuMemSetAccess", 2, 2);
    assert_eq!(set(AccessMode::READ).expect_err("the second failed").kind, Kind::OutOfDeviceMemory);
    assert_eq!(flags(), [3, 3]);
    set(AccessMode::READ).expect("both");
    assert_eq!(flags(), [1, 1]);
    for (part, block) in parts.into_iter().zip(blocks) {
        driver.unmap(part).expect("unmapped");
        driver.release(block).expect("released");
    }
    driver.free(range).expect("freed");
    drop(driver);
    fake.clean();
}

#[test]
fn a_destroyed_context_is_told_as_such() {
    let fake = Fake::build("destroyed", &[]);
    let bench = fake.bench();
    on_a_fresh_thread(|| {
        let own = bench.native.own_context(0);
        let stream = bench.native.stream();
        let timeline = bench.driver.timeline_create(Ordinal(0)).expect("a timeline");
        bench.driver.timeline_write(stream, timeline, 1).expect("written");
        bench.driver.timeline_wait(timeline, 1).expect("reached");
        bench.native.call("cuCtxDestroy_v2", own, 0, 0);
        let error = bench.driver.timeline_write(stream, timeline, 2).expect_err("its context is gone");
        assert_eq!((error.kind, error.native.map(|n| n.code)), (Kind::WrongState, Some(709)));
        assert!(error.hint.contains("destroyed"), "{error}");
    });
}

#[test]
fn a_global_capture_of_somebody_else_goes_on() {
    let fake = Fake::build("global", &[]);
    let bench = fake.bench();
    bench.native.enter(0);
    let theirs = bench.native.stream();
    assert_eq!(bench.native.call("cuStreamBeginCapture_v2", theirs.0, 0, 0), 0);
    let buffer = bench.driver.allocate(Ordinal(0), ByteSize(64)).expect("also during a capture");
    let timeline = bench.driver.timeline_create(Ordinal(0)).expect("also during a capture");
    assert!(bench.driver.is_capturing(Ordinal(0), theirs).expect("asked"));
    let refused = bench.driver.timeline_write(theirs, timeline, 1).expect_err("captured");
    assert_eq!(refused.kind, Kind::StreamCapturing);
    let mut graph = 0_u64;
    assert_eq!(bench.native.call("cuStreamEndCapture", theirs.0, &raw mut graph as u64, 0), 0);
    bench.driver.deallocate(Ordinal(0), buffer).expect("freed");
    bench.driver.timeline_destroy(timeline).expect("destroyed");
    bench.native.leave();
    drop(bench);
    fake.clean();
}

#[test]
fn wrong_sizes_and_numbers_never_reach_the_driver() {
    let fake = Fake::build("wrong", &[]);
    let driver = fake.open().expect("the fake opens");
    let granule = driver.granularity(Ordinal(0), ByteSize(1)).expect("a granule");
    let small = Granularity::new(4096).expect("a power of two");
    let kind = |r: Result<_, Error>| r.expect_err("refused").kind;
    assert_eq!(kind(driver.reserve(Ordinal(9), granule.size(), granule).map(|_| ())), Kind::NoDevice);
    assert_eq!(kind(driver.reserve(Ordinal(0), ByteSize(4096), granule).map(|_| ())), Kind::InvalidSize);
    assert_eq!(kind(driver.reserve(Ordinal(0), granule.size(), small).map(|_| ())), Kind::Misaligned);
    assert_eq!(kind(driver.allocate(Ordinal(0), ByteSize::ZERO).map(|_| ())), Kind::InvalidSize);
    assert_eq!(kind(driver.timeline_read(gvmm::driver::TimelineId(99)).map(|_| ())), Kind::InvalidHandle);
    assert_eq!(kind(driver.streams().synchronize(Stream(0x1234_5678))), Kind::InvalidStream);
    drop(driver);
    fake.clean();
}
