//! Routes: copies of which one end stays, launched and recorded in graphs.

use super::rig::{Rig, refused, same};
use super::{Check, Checked, Verdict};
use crate::driver::{Capabilities, CopySlice, Graph, RecordId, RouteId, RouteSlice, Stream, Way};
use crate::error::Kind;
use crate::units::{ByteSize, DevicePtr};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

const ROUTES: Capabilities = Capabilities::ROUTES;
pub(super) const CAPTURED: Capabilities = ROUTES.with(Capabilities::HOST_FUNCTIONS);

pub(super) const CHECKS: &[Check] = &[
    Check::new("a route copies what a copy copies, both ways", both_ways).needs(ROUTES),
    Check::new("a route of 5000 slices copies all", very_many).needs(ROUTES),
    Check::new("a slice that is left out copies nothing", left_out).needs(ROUTES),
    Check::new("launches of a route keep their far ends", run_ahead).needs(CAPTURED),
    Check::new("recorded copies go where their launch was pointed", recorded).needs(CAPTURED),
    Check::new("recorded copies that were not pointed copy nothing", not_pointed).needs(CAPTURED),
    Check::new("copies are recorded in captures only", captures_only).needs(CAPTURED),
    Check::new("only a graph that has them points copies", other_graph).needs(CAPTURED),
    Check::new("slices that are not the route's are refused", wrong_slices).needs(ROUTES),
    Check::new("a destroyed route is refused", destroyed).needs(CAPTURED),
    Check::new("routes that are not there are refused", none).lacks(ROUTES),
];

/// Sizes around the kernel's steps, some of several tiles.
const SIZES: [u64; 8] = [1, 7, 256, 4096, 16 << 10, (16 << 10) + 1, 70_001, 300_000];
/// How far slices' starts are apart.
const STRIDE: u64 = 300_032;

fn at(base: DevicePtr, i: usize, skew: u64) -> DevicePtr {
    DevicePtr(base.0 + i as u64 * STRIDE + skew)
}

/// Slices between two buffers, and what a route of them keeps.
struct Plan {
    way: Way,
    near: DevicePtr,
    far: DevicePtr,
}

impl Plan {
    fn stays(&self) -> Vec<RouteSlice> {
        let slice = |(i, bytes): (usize, &u64)| RouteSlice { near: at(self.near, i, 0), bytes: *bytes };
        SIZES.iter().enumerate().map(slice).collect()
    }

    fn slices(&self) -> Vec<CopySlice> {
        let slice = |(i, bytes): (usize, &u64)| {
            // Each slice has its far end at another place of a line.
            let (near, far) = (at(self.near, i, 0), at(self.far, i, i as u64));
            let (dst, src) = if self.way == Way::In { (near, far) } else { (far, near) };
            CopySlice { dst, src, bytes: *bytes }
        };
        SIZES.iter().enumerate().map(slice).collect()
    }
}

pub(super) fn bytes_of(seed: u64, size: u64) -> Vec<u8> {
    (0..size).map(|i| ((i ^ i >> 8).wrapping_mul(31) ^ seed) as u8).collect()
}

fn room(rig: &mut Rig) -> Checked<DevicePtr> {
    Ok(rig.plain(ByteSize(STRIDE * SIZES.len() as u64))?)
}

fn both_ways(rig: &mut Rig) -> Verdict {
    let (near, far, stream) = (room(rig)?, room(rig)?, rig.stream()?);
    for way in [Way::In, Way::Out] {
        let plan = Plan { way, near, far };
        let (route, slices) = (rig.route(way, &plan.stays())?, plan.slices());
        for (i, slice) in slices.iter().enumerate() {
            rig.write(slice.src, &bytes_of(i as u64, slice.bytes))?;
            rig.write(slice.dst, &bytes_of(77, slice.bytes))?;
            rig.write(DevicePtr(slice.dst.0 + slice.bytes), &[99])?;
        }
        let launches = rig.driver.route_copy(rig.device, stream, route, &slices)?;
        rig.streams().synchronize(stream)?;
        let joint = rig.has(Capabilities::JOINT_COPIES);
        same("launches", if joint { 1 } else { slices.len() as u32 }, launches)?;
        for (i, slice) in slices.iter().enumerate() {
            let mut expected = bytes_of(i as u64, slice.bytes);
            expected.push(99);
            let seen = rig.read(slice.dst, expected.len())?;
            same(&format!("slice {i} and the byte behind it, {way:?}"), true, expected == seen)?;
        }
    }
    Ok(())
}

fn very_many(rig: &mut Rig) -> Verdict {
    const COUNT: u64 = 5000;
    let (near, far) = (rig.plain(ByteSize(64 * COUNT))?, rig.plain(ByteSize(64 * COUNT))?);
    let stream = rig.stream()?;
    let place = |base: DevicePtr, i: u64| DevicePtr(base.0 + 64 * i);
    let stays: Vec<_> = (0..COUNT).map(|i| RouteSlice { near: place(near, i), bytes: 1 + i % 60 }).collect();
    let route = rig.route(Way::In, &stays)?;
    let slices: Vec<_> = (0..COUNT)
        .map(|i| CopySlice { dst: place(near, i), src: place(far, COUNT - 1 - i), bytes: 1 + i % 60 })
        .collect();
    let source = bytes_of(3, 64 * COUNT);
    rig.write(far, &source)?;
    rig.write(near, &vec![0; source.len()])?;
    rig.driver.route_copy(rig.device, stream, route, &slices)?;
    rig.streams().synchronize(stream)?;
    let mut expected = vec![0; source.len()];
    for (i, slice) in slices.iter().enumerate() {
        let (to, from) = (64 * i, (slice.src.0 - far.0) as usize);
        expected[to..to + slice.bytes as usize].copy_from_slice(&source[from..from + slice.bytes as usize]);
    }
    same("the bytes", true, rig.read(near, expected.len())? == expected)
}

fn left_out(rig: &mut Rig) -> Verdict {
    let (near, far, stream) = (room(rig)?, room(rig)?, rig.stream()?);
    let plan = Plan { way: Way::In, near, far };
    let (route, mut slices) = (rig.route(Way::In, &plan.stays())?, plan.slices());
    rig.write(slices[3].src, &[5; 64])?;
    rig.write(slices[3].dst, &[6; 64])?;
    rig.write(slices[2].src, &[7; 64])?;
    (slices[3].bytes, slices[3].src) = (0, DevicePtr::NULL);
    rig.driver.route_copy(rig.device, stream, route, &slices)?;
    rig.streams().synchronize(stream)?;
    same("what is left out", vec![6; 64], rig.read(slices[3].dst, 64)?)?;
    same("its neighbour", vec![7; 64], rig.read(slices[2].dst, 64)?)?;
    slices.iter_mut().for_each(|slice| slice.bytes = 0);
    same("launches of nothing", 0, rig.driver.route_copy(rig.device, stream, route, &slices)?)
}

/// Holds a stream until the answer is dropped.
pub(super) fn hold(rig: &Rig, stream: Stream) -> Checked<Sender<()>> {
    let (gate, opened) = channel::<()>();
    let opened = Mutex::new(opened);
    let wait = move || {
        // An error is the gate that was dropped.
        let _ = opened.lock().unwrap_or_else(PoisonError::into_inner).recv();
    };
    rig.streams().enqueue(stream, Arc::new(wait))?;
    Ok(gate)
}

/// A shadow with buffers around it: four to copy in from, and one of each step to copy out to.
struct Steps {
    shadow: DevicePtr,
    sources: DevicePtr,
    targets: DevicePtr,
    routes: [RouteId; 2],
    stream: Stream,
}

const STEPS: u64 = 200;
const SIZE: u64 = 96;

impl Steps {
    fn new(rig: &mut Rig) -> Checked<Self> {
        let (shadow, sources) = (rig.plain(ByteSize(SIZE))?, rig.plain(ByteSize(4 * 256))?);
        let targets = rig.plain(ByteSize(STEPS * 256))?;
        for i in 0..4 {
            rig.write(DevicePtr(sources.0 + 256 * i), &bytes_of(i, SIZE))?;
        }
        rig.write(targets, &vec![0; STEPS as usize * 256])?;
        rig.write(shadow, &[0; SIZE as usize])?;
        let stays = [RouteSlice { near: shadow, bytes: SIZE }];
        let routes = [rig.route(Way::In, &stays)?, rig.route(Way::Out, &stays)?];
        Ok(Self { shadow, sources, targets, routes, stream: rig.stream()? })
    }

    fn slices(&self, step: u64) -> [[CopySlice; 1]; 2] {
        let source = DevicePtr(self.sources.0 + 256 * (step % 4));
        let target = DevicePtr(self.targets.0 + 256 * step);
        [
            [CopySlice { dst: self.shadow, src: source, bytes: SIZE }],
            [CopySlice { dst: target, src: self.shadow, bytes: SIZE }],
        ]
    }

    fn launch(&self, rig: &Rig, way: usize, step: u64) -> Verdict {
        rig.driver.route_copy(rig.device, self.stream, self.routes[way], &self.slices(step)[way])?;
        Ok(())
    }

    /// Captures both copies.
    fn capture(&self, rig: &mut Rig) -> Checked<(Graph, [RecordId; 2])> {
        rig.streams().capture_begin(self.stream)?;
        let records = self.routes.map(|route| rig.driver.route_record(self.stream, route));
        let graph = rig.capture_end(self.stream)?;
        let [copied_in, copied_out] = records;
        Ok((graph, [copied_in?, copied_out?]))
    }

    fn check(&self, rig: &Rig, steps: u64) -> Verdict {
        rig.streams().synchronize(self.stream)?;
        for step in 0..steps {
            let seen = rig.read(self.slices(step)[1][0].dst, SIZE as usize)?;
            same(&format!("step {step}"), bytes_of(step % 4, SIZE), seen)?;
        }
        Ok(())
    }
}

fn run_ahead(rig: &mut Rig) -> Verdict {
    let steps = Steps::new(rig)?;
    let gate = hold(rig, steps.stream)?;
    for step in 0..STEPS {
        steps.launch(rig, 0, step)?;
        steps.launch(rig, 1, step)?;
    }
    drop(gate);
    steps.check(rig, STEPS)
}

/// Many steps in the stream, some launched twice.
fn recorded(rig: &mut Rig) -> Verdict {
    let steps = Steps::new(rig)?;
    let (graph, records) = steps.capture(rig)?;
    for (from, to, held) in [(0, 20, false), (20, STEPS - 20, true), (STEPS - 20, STEPS, false)] {
        let gate = if held { Some(hold(rig, steps.stream)?) } else { None };
        for step in from..to {
            let slices = steps.slices(step);
            let point = |way: usize| rig.driver.route_point(records[way], graph, &slices[way]);
            point(0)?;
            point(1)?;
            for _ in 0..1 + u32::from(step % 5 == 0) {
                rig.streams().launch(graph, steps.stream)?;
            }
        }
        drop(gate);
        rig.streams().synchronize(steps.stream)?;
    }
    steps.check(rig, STEPS)
}

fn not_pointed(rig: &mut Rig) -> Verdict {
    let steps = Steps::new(rig)?;
    let (graph, _) = steps.capture(rig)?;
    rig.streams().launch(graph, steps.stream)?;
    rig.streams().synchronize(steps.stream)?;
    same("the shadow", vec![0; SIZE as usize], rig.read(steps.shadow, SIZE as usize)?)
}

fn captures_only(rig: &mut Rig) -> Verdict {
    let steps = Steps::new(rig)?;
    let (stream, route) = (steps.stream, steps.routes[0]);
    refused(Kind::WrongState, "recording", rig.driver.route_record(stream, route))?;
    rig.streams().capture_begin(stream)?;
    let copied = rig.driver.route_copy(rig.device, stream, route, &steps.slices(0)[0]);
    refused(Kind::StreamCapturing, "a copy", copied)?;
    let graph = rig.capture_end(stream)?;
    rig.streams().launch(graph, stream)?;
    steps.launch(rig, 0, 0)?;
    steps.launch(rig, 1, 0)?;
    steps.check(rig, 1)
}

fn other_graph(rig: &mut Rig) -> Verdict {
    let steps = Steps::new(rig)?;
    let ((graph, records), (other, _)) = (steps.capture(rig)?, steps.capture(rig)?);
    let slices = steps.slices(0);
    let point = |graph| rig.driver.route_point(records[0], graph, &slices[0]);
    refused(Kind::InvalidArgument, "another graph", point(other))?;
    Ok(point(graph)?)
}

fn wrong_slices(rig: &mut Rig) -> Verdict {
    let (near, far, stream) = (room(rig)?, room(rig)?, rig.stream()?);
    let plan = Plan { way: Way::In, near, far };
    let (route, mut slices) = (rig.route(Way::In, &plan.stays())?, plan.slices());
    let copy = |slices: &[CopySlice]| rig.driver.route_copy(rig.device, stream, route, slices);
    refused(Kind::CountMismatch, "one is missing", copy(&slices[1..]))?;
    slices[2].src = DevicePtr(u64::MAX);
    let copied = copy(&slices);
    same("the slice to blame", Some(2), copied.as_ref().err().and_then(|e| e.entry))?;
    refused(Kind::OutOfRange, "past the last address", copied)?;
    for stays in [RouteSlice { near, bytes: 0 }, RouteSlice { near: DevicePtr(u64::MAX), bytes: 2 }] {
        let made = rig.driver.route_create(rig.device, Way::In, &[RouteSlice { near, bytes: 1 }, stays]);
        same("the slice to blame", Some(1), made.err().and_then(|e| e.entry))?;
    }
    Ok(())
}

fn destroyed(rig: &mut Rig) -> Verdict {
    let steps = Steps::new(rig)?;
    let (graph, records) = steps.capture(rig)?;
    rig.destroy_route(steps.routes[0])?;
    let slices = steps.slices(0);
    let copied = rig.driver.route_copy(rig.device, steps.stream, steps.routes[0], &slices[0]);
    refused(Kind::InvalidHandle, "a copy", copied)?;
    let pointed = rig.driver.route_point(records[0], graph, &slices[0]);
    refused(Kind::InvalidHandle, "a point", pointed)?;
    refused(Kind::InvalidHandle, "destroying twice", rig.driver.route_destroy(steps.routes[0]))?;
    steps.launch(rig, 1, 0)?;
    Ok(rig.streams().synchronize(steps.stream)?)
}

fn none(rig: &mut Rig) -> Verdict {
    let near = room(rig)?;
    let plan = Plan { way: Way::In, near, far: near };
    refused(Kind::Unsupported, "a route", rig.driver.route_create(rig.device, Way::In, &plan.stays()))
}
