//! Copies of every shape, in launches that are counted, and in graphs.

use super::{Bench, noise};
use gvmm::driver::{Capabilities, CopySlice};
use gvmm::error::Kind;
use gvmm::units::DevicePtr;

/// One copy with the slices that `layout` gives as (to, from, bytes) offsets, against a plain model.
fn copy_as_modelled(bench: &Bench, size: usize, layout: &[(usize, usize, usize)]) -> u32 {
    let (source, mut model) = (noise(size, 77), noise(size, 78));
    let (src, dst) = (bench.buffer(&source), bench.buffer(&model));
    let at = |base: DevicePtr, offset: usize| DevicePtr(base.get() + offset as u64);
    let slices: Vec<CopySlice> = layout
        .iter()
        .map(|&(to, from, bytes)| CopySlice { dst: at(dst, to), src: at(src, from), bytes: bytes as u64 })
        .collect();
    let stream = bench.stream();
    let launches = bench.driver.copy(bench.device, stream, &slices).expect("copied");
    bench.wait(stream);
    for &(to, from, bytes) in layout {
        model[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
    }
    let seen = bench.native.read(bench.device.0, dst, size);
    if let Some(first) = seen.iter().zip(&model).position(|(a, b)| a != b) {
        let blame = layout.iter().find(|(to, _, bytes)| (*to..to + bytes).contains(&first));
        panic!("byte {first} is wrong; the slice: {blame:?}");
    }
    bench.driver.streams().destroy(stream).expect("destroyed");
    bench.give_back(&[src, dst]);
    launches
}

/// Every alignment of both sides with sizes around every step of the kernel; every byte of the target is compared,
/// so that a byte too many is seen as well.
pub(crate) fn copies_of_every_alignment(bench: &Bench) {
    const SIZES: [usize; 22] =
        [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000, 1023, 4096, 4099, 4113];
    for skew in 0..16 {
        let (mut layout, mut at) = (Vec::new(), 64);
        for to in 0..16 {
            for bytes in SIZES {
                layout.push((at + to, at + (to + skew) % 16, bytes));
                at += (bytes + 64).next_multiple_of(32);
            }
        }
        copy_as_modelled(bench, at + 64, &layout);
    }
}

/// Slices larger than a tile, aligned and not, beside small ones.
pub(crate) fn copies_of_large_slices(bench: &Bench) {
    let step = 6 << 20;
    let mut layout = Vec::new();
    for (i, skew) in [0, 1, 4, 6, 8, 15].into_iter().enumerate() {
        layout.push((i * step + 16, i * step + 16 + skew, (5 << 20) + 12_345 + i));
        layout.push(((i + 1) * step - 200, (i + 1) * step - 180, 100));
    }
    let launches = copy_as_modelled(bench, 6 * step, &layout);
    if bench.capabilities().has(Capabilities::JOINT_COPIES) {
        assert_eq!(launches, 1);
    }
    copy_as_modelled(bench, 12 << 20, &[(5, 3, (11 << 20) + 7)]);
}

/// As many launches as tables are needed.
pub(crate) fn copies_share_launches(bench: &Bench, most: usize) {
    let layout = |count: usize| (0..count).map(|i| (i * 64, i * 64, 48)).collect::<Vec<_>>();
    for count in [1, 2, 8, 9, 64, 170, most] {
        assert_eq!(copy_as_modelled(bench, count * 64, &layout(count)), 1, "{count} slices");
    }
    assert_eq!(copy_as_modelled(bench, (most + 1) * 64, &layout(most + 1)), 2);
    let stream = bench.stream();
    assert_eq!(bench.driver.copy(bench.device, stream, &[]).expect("nothing"), 0);
    bench.driver.streams().destroy(stream).expect("destroyed");
}

/// A captured copy carries its table, and reads the bytes that are there when the graph runs.
pub(crate) fn copies_are_captured(bench: &Bench) {
    let (driver, stream) = (&bench.driver, bench.stream());
    let (src, dst) = (bench.buffer(&noise(4096, 1)), bench.buffer(&[0; 4096]));
    let mut slices: Vec<CopySlice> = (0..16)
        .map(|i| CopySlice {
            dst: DevicePtr(dst.get() + i * 256),
            src: DevicePtr(src.get() + i * 256),
            bytes: 256,
        })
        .collect();
    driver.streams().capture_begin(stream).expect("captured");
    assert!(driver.is_capturing(bench.device, stream).expect("asked"));
    driver.copy(bench.device, stream, &slices).expect("copied");
    let timeline = driver.timeline_create(bench.device).expect("also while a stream is captured");
    let refused = driver.timeline_write(stream, timeline, 1).expect_err("not into a graph");
    assert_eq!(refused.kind, Kind::StreamCapturing);
    let graph = driver.streams().capture_end(stream).expect("a graph");
    slices.clear();
    for seed in [11, 12] {
        let bytes = noise(4096, seed);
        bench.native.write(bench.device.0, src, &bytes);
        driver.streams().launch(graph, stream).expect("launched");
        bench.wait(stream);
        assert_eq!(bench.native.read(bench.device.0, dst, 4096), bytes);
    }
    driver.streams().destroy_graph(graph).expect("destroyed");
    driver.timeline_destroy(timeline).expect("destroyed");
    driver.streams().destroy(stream).expect("destroyed");
    bench.give_back(&[src, dst]);
}
