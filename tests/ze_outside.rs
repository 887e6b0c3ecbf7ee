//! What comes to the Level Zero driver from outside: descriptors, blocks, contexts and lists of others.

mod ze_common;

use gvmm::driver::level_zero::LevelZeroDriver;
use gvmm::driver::{Access, Capabilities, CopySlice, CreateOptions, Driver, NativeBlock, Stream};
use gvmm::error::{Error, Kind};
use gvmm::units::{ByteSize, DevicePtr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use ze_common::{Fake, LARGE, RW, ZERO, mapped, noise, unmapped};

fn kind<T>(result: Result<T, Error>) -> Option<Kind> {
    result.err().map(|e| e.kind)
}

#[test]
fn blocks_are_shared() {
    let fake = Fake::build("shared", &[]);
    let driver = fake.driver();
    let native = driver.native(ZERO).expect("a device");
    let (size, double) = (ByteSize(LARGE), ByteSize(2 * LARGE));
    let granule = driver.granularity(ZERO, size).expect("a granule");
    let block = driver
        .create(ZERO, size, CreateOptions { exportable: true, ..CreateOptions::default() })
        .expect("a block");
    let range = driver.reserve(ZERO, size, granule).expect("a range");
    let open = || driver.set_access(range, &[Access { device: ZERO, mode: RW }]).expect("accessible");
    driver.map(range, block).expect("mapped");
    open();
    assert!(fake.poke(native, range.start(), &noise(100, 3)));
    driver.unmap(range).expect("unmapped");
    let (first, second) = (driver.export(block).expect("exported"), driver.export(block).expect("again"));
    drop(first);
    assert_eq!(kind(driver.import(ZERO, second.as_fd(), double)), Some(Kind::InvalidSize));
    let again = driver.import(ZERO, second.as_fd(), size).expect("imported");
    let free = driver.memory(ZERO).expect("figures").free;
    driver.release(block).expect("released");
    driver.map(range, again).expect("mapped");
    open();
    assert_eq!(fake.peek(native, range.start(), 100), Some(noise(100, 3)));
    unmapped(&driver, range, again);
    assert!(driver.memory(ZERO).expect("figures").free >= free);
    drop(driver);
    fake.clean();
}

#[test]
fn a_block_of_somebody_else_in_the_context_is_adopted() {
    let fake = Fake::build("adopt", &[]);
    let (context, device) = (fake.context(), fake.device());
    let driver = LevelZeroDriver::attach(Some(&fake.path), context, device).expect("attached");
    let (desc, mut theirs) = ([0x20_u64, 0, 0, LARGE], 0_u64);
    fake.must("zePhysicalMemCreate", &[context, device, desc.as_ptr() as u64, &raw mut theirs as u64]);
    let block = NativeBlock(theirs);
    assert_eq!(kind(driver.check_native(ZERO, block, ByteSize(2 * LARGE))), Some(Kind::InvalidSize));
    assert_eq!(
        kind(driver.check_native(ZERO, NativeBlock(0x1000), ByteSize(LARGE))),
        Some(Kind::InvalidHandle)
    );
    driver.check_native(ZERO, block, ByteSize(LARGE)).expect("the right size");
    let granule = driver.granularity(ZERO, ByteSize(LARGE)).expect("a granule");
    let range = driver.reserve(ZERO, ByteSize(LARGE), granule).expect("a range");
    driver.map(range, block).expect("mapped");
    driver.set_access(range, &[Access { device: ZERO, mode: RW }]).expect("accessible");
    assert!(fake.poke((context, device), range.start(), b"theirs"));
    driver.unmap(range).expect("unmapped");
    driver.free(range).expect("freed");
    fake.must("zePhysicalMemDestroy", &[context, theirs]);
    drop(driver);
    fake.must("zeContextDestroy", &[context]);
    fake.clean();
}

/// What is made in an attached context is the framework's too, which keeps the context.
#[test]
fn a_context_from_outside_is_used_and_left() {
    let fake = Fake::build("attach", &[]);
    let (context, device) = (fake.context(), fake.device());
    let attach = |context, device| LevelZeroDriver::attach(Some(&fake.path), context, device);
    assert_eq!(kind(attach(0, device)), Some(Kind::InvalidArgument));
    let driver = attach(context, device).expect("attached");
    assert_eq!((driver.device_count(), driver.native(ZERO).expect("one")), (1, (context, device)));
    let (range, block) = mapped(&driver, ByteSize(LARGE));
    assert!(fake.poke((context, device), range.start(), b"for the framework"));
    let all = Capabilities::VIRTUAL_MEMORY.with(Capabilities::JOINT_COPIES).with(Capabilities::SHARING);
    let all = all.with(Capabilities::PATCHES);
    assert_eq!(driver.device_info(ZERO).expect("a device").capabilities, all);
    assert!(driver.memory(ZERO).expect("figures").free.is_some());
    unmapped(&driver, range, block);
    let slice = CopySlice { dst: DevicePtr(4096), src: DevicePtr(8192), bytes: 1 };
    let (elsewhere, stranger) = (fake.context(), fake.list("zeCommandListCreateImmediate", context, device));
    let theirs = fake.list("zeCommandListCreateImmediate", elsewhere, device);
    let refused = driver.copy(ZERO, Stream(theirs), &[slice]).expect_err("another context's");
    assert!(refused.kind == Kind::InvalidStream && refused.hint.contains("another context"), "{refused}");
    driver.streams().synchronize(Stream(stranger)).expect("a list of the same context");
    drop(driver);
    fake.must("zeContextGetStatus", &[context]);
    for (list, context) in [(stranger, context), (theirs, elsewhere)] {
        fake.must("zeCommandListDestroy", &[list]);
        fake.must("zeContextDestroy", &[context]);
    }
    fake.clean();
}

/// By the C ABI: the framework's context and queue, which are the framework's again afterwards.
#[test]
fn the_c_program_works_in_a_context_of_somebody_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ze_attach");
    std::fs::create_dir_all(&folder).expect("a folder");
    // The library that was built with this test lies beside it.
    let built = std::env::current_exe().expect("this program").with_file_name("libgvmm.so");
    for name in ["libgvmm.so", "libgvmm.so.0"] {
        std::fs::copy(&built, folder.join(name)).expect("copied");
    }
    let program = folder.join("attach");
    let mut compile = Command::new("cc");
    compile
        .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root.join("include"));
    compile.arg(root.join("ffi_tests/attach.c")).arg("-L").arg(&folder);
    compile.args(["-lgvmm", "-ldl", "-o"]).arg(&program).arg(format!("-Wl,-rpath,{}", folder.display()));
    assert!(compile.status().expect("a C compiler").success(), "it compiles");
    let fake = Fake::build("attach-in-c", &[]);
    let mut run = Command::new(program);
    run.arg(&fake.path)
        .env("GVMM_ZE_LIBRARY", &fake.path)
        .env("GVMM_LOG", "warn")
        .env_remove("LD_LIBRARY_PATH");
    let output = run.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
