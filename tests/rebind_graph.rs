//! A step's copies inside the command buffer: recorded once, pointed at each step's buffers, right however many steps
//! are in flight.

mod rebind_support;

use gvmm::driver::testing::Call;
use gvmm::driver::{CopySlice, Driver, Graph};
use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::rebind::{Binding, CopyWays, Direction, Outcome, Slot, StepReport, Threshold};
use gvmm::units::ByteSize;
use rebind_support::{Gate, Given, Home, World, addresses, fill, holds};

const SIZE: u64 = 3000;
const SLOTS: [Slot; 2] =
    [Slot::new(ByteSize(SIZE)).direction(Direction::IN), Slot::new(ByteSize(SIZE)).direction(Direction::OUT)];

/// A binding whose command buffer copies its input to its output.
struct Program<'a> {
    world: &'a World,
    binding: Binding,
    generation: u64,
    graph: Option<Graph>,
    /// What is recorded.
    ways: CopyWays,
}

impl<'a> Program<'a> {
    fn new(world: &'a World, ways: CopyWays) -> Self {
        let binding = world.binding(SLOTS.to_vec(), Threshold(4096));
        Self { world, binding, generation: 0, graph: None, ways }
    }

    fn streams(&self) -> &dyn gvmm::driver::Streams {
        self.world.fault.streams()
    }

    /// Captures the command buffer with the copies before and after it.
    fn record(&mut self) -> Result<()> {
        let mut at = [gvmm::units::DevicePtr::NULL; 2];
        let generation = self.binding.addresses(&mut at)?;
        let (world, stream) = (self.world, self.world.stream);
        self.streams().capture_begin(stream)?;
        let record = |way: CopyWays| {
            let wanted = self.ways.0 & way.0 != 0;
            if wanted { self.binding.record_copies(stream, generation, way) } else { Ok(()) }
        };
        let recorded = record(CopyWays::IN).and_then(|()| {
            let slice = CopySlice { dst: at[1], src: at[0], bytes: SIZE };
            world.fault.copy(world.device.ordinal(), stream, &[slice])?;
            record(CopyWays::OUT)
        });
        let graph = self.streams().capture_end(stream)?;
        if let Err(e) = recorded {
            self.streams().destroy_graph(graph)?;
            return Err(e);
        }
        if let Some(old) = self.graph.replace(graph) {
            self.streams().destroy_graph(old)?;
        }
        self.generation = generation;
        self.binding.use_graph(Some(graph))
    }

    fn begin(&mut self, given: &Given) -> Result<StepReport> {
        loop {
            match self.binding.begin(self.world.stream, given, self.generation)? {
                (Outcome::Started, report) => return Ok(report),
                (Outcome::RecordAgain, _) => self.record()?,
            }
        }
    }

    fn launch(&self) {
        let graph = self.graph.expect("a graph was recorded");
        self.streams().launch(graph, self.world.stream).expect("launched");
    }

    fn step(&mut self, given: &Given) -> [StepReport; 2] {
        let begun = self.begin(given).expect("begin");
        self.launch();
        [begun, self.binding.end().expect("end")]
    }
}

/// Pairs of buffers, each input with its own data.
fn pairs(world: &World, count: u64) -> Vec<[Home; 2]> {
    (0..count)
        .map(|i| {
            let pair = [world.home(SIZE), world.home(SIZE)];
            fill(pair[0].address(), ByteSize(SIZE), i + 1);
            pair
        })
        .collect()
}

fn given(pair: &[Home; 2]) -> Given {
    Given::of(&[&pair[0], &pair[1]])
}

fn arrived(pairs: &[[Home; 2]]) {
    for (i, pair) in pairs.iter().enumerate() {
        assert!(holds(pair[1].address(), ByteSize(SIZE), i as u64 + 1), "step {i}");
    }
}

#[test]
fn a_step_in_flight_keeps_its_buffers() {
    for ways in [CopyWays::BOTH, CopyWays::IN, CopyWays::OUT] {
        let world = World::new();
        let pairs = pairs(&world, 100);
        let mut program = Program::new(&world, ways);
        program.step(&given(&pairs[0]));
        let gate = Gate::close(&world, world.stream);
        let before = world.trace.counts();
        for pair in &pairs[1..] {
            let [begun, ended] = program.step(&given(pair));
            assert_eq!((begun.copied_slots, ended.copied_slots), (1, 1));
            let launches = (begun.calls.copy_launches, ended.calls.copy_launches);
            let left = |way: CopyWays| u64::from(ways.0 & way.0 == 0);
            assert_eq!(launches, (left(CopyWays::IN), left(CopyWays::OUT)), "{ways:?}");
        }
        let made = world.trace.counts().since(&before);
        assert_eq!(made.of(Call::ROUTE_POINT), 99, "one call points both ways");
        assert_eq!(made.of(Call::TIMELINE_WRITE), 0);
        gate.open();
        world.synchronize();
        arrived(&pairs);
    }
}

/// Whether other launches copy at all, and the same in each.
#[test]
fn a_graph_launched_twice_copies_twice_and_one_aborted_spoils_nothing() {
    let world = World::new();
    let pairs = pairs(&world, 6);
    let mut program = Program::new(&world, CopyWays::BOTH);
    for (i, pair) in pairs.iter().enumerate() {
        program.begin(&given(pair)).expect("begin");
        if i == 3 {
            program.binding.abort().expect("abort");
            program.begin(&given(pair)).expect("begin again");
        }
        program.launch();
        program.launch();
        program.binding.end().expect("end");
    }
    world.synchronize();
    arrived(&pairs);
}

#[test]
fn the_same_buffers_again_need_no_call() {
    let world = World::new();
    let pairs = pairs(&world, 2);
    let mut program = Program::new(&world, CopyWays::BOTH);
    program.step(&given(&pairs[0]));
    let before = world.fault.calls();
    for _ in 0..5 {
        program.step(&given(&pairs[0]));
    }
    assert_eq!(world.fault.calls(), before, "no driver call but the launch");
    // A graph that is named again may be another one under the same number, or have been updated.
    let before = world.trace.counts();
    program.binding.use_graph(program.graph).expect("named");
    program.step(&given(&pairs[0]));
    assert_eq!(world.trace.counts().since(&before).of(Call::ROUTE_POINT), 1);
    // A buffer that changes is pointed to alone: the output's way stays.
    let mixed = Given::of(&[&pairs[1][0], &pairs[0][1]]);
    let before = world.trace.counts();
    program.step(&mixed);
    assert_eq!(world.trace.counts().since(&before).of(Call::ROUTE_POINT), 1);
    world.synchronize();
    assert!(holds(pairs[0][1].address(), ByteSize(SIZE), 2));
}

#[test]
fn a_new_generation_forgets_what_was_recorded() {
    let world = World::new();
    let pairs = pairs(&world, 2);
    let mut program = Program::new(&world, CopyWays::BOTH);
    program.step(&given(&pairs[0]));
    let old = program.graph.expect("recorded");
    // An address that must be baked changes the layout.
    let slots = [SLOTS[0], SLOTS[1], Slot::new(ByteSize(64)).flags(gvmm::rebind::SlotFlags::REGISTERED)];
    let binding = world.binding(slots.to_vec(), Threshold(4096));
    let baked = [world.home(64), world.home(64)];
    let of = |i: usize| Given::of(&[&pairs[i][0], &pairs[i][1], &baked[i]]);
    let begin = |generation, i| binding.begin(world.stream, &of(i), generation).expect("begin");
    assert_eq!(begin(0, 0).0, Outcome::RecordAgain);
    let streams = world.fault.streams();
    streams.capture_begin(world.stream).expect("a capture");
    binding.record_copies(world.stream, 1, CopyWays::BOTH).expect("recorded");
    let graph = streams.capture_end(world.stream).expect("a graph");
    binding.use_graph(Some(graph)).expect("named");
    assert_eq!(begin(1, 0).0, Outcome::Started);
    streams.launch(graph, world.stream).expect("launched");
    binding.end().expect("end");
    assert_eq!(begin(1, 1).0, Outcome::RecordAgain);
    // Begin and end launch the copies until they are recorded again.
    let (outcome, begun) = begin(2, 1);
    assert_eq!((outcome, begun.calls.copy_launches), (Outcome::Started, 1));
    assert_eq!(binding.end().expect("end").calls.copy_launches, 1);
    let refused = binding.record_copies(world.stream, 1, CopyWays::BOTH).expect_err("an old generation");
    assert_eq!(refused.kind, Kind::WrongState);
    // Once the old layout is gone, the host driver refuses its graph; a GPU would not know.
    world.device.drain().expect("drained");
    assert_eq!(streams.launch(graph, world.stream).expect_err("stale").kind, Kind::WrongState);
    drop(program);
    world.device.drain().expect("drained");
    assert_eq!(streams.launch(old, world.stream).expect_err("stale").kind, Kind::WrongState);
    assert_eq!(world.trace.live().routes, 2, "the binding that lives has two");
}

#[test]
fn recording_again_replaces_and_another_graph_is_pointed_afresh() {
    let world = World::new();
    let pairs = pairs(&world, 4);
    let mut program = Program::new(&world, CopyWays::BOTH);
    program.step(&given(&pairs[0]));
    program.record().expect("recorded again");
    program.step(&given(&pairs[1]));
    // The same record cannot be in another graph of the host's; a graph without it is refused, and the step is not begun.
    let first = program.graph.expect("recorded");
    let streams = world.fault.streams();
    streams.capture_begin(world.stream).expect("a capture");
    let empty = streams.capture_end(world.stream).expect("a graph");
    program.binding.use_graph(Some(empty)).expect("named");
    let begun = program.binding.begin(world.stream, &given(&pairs[2]), program.generation);
    assert_eq!(begun.expect_err("not there").kind, Kind::InvalidArgument);
    program.binding.use_graph(Some(first)).expect("named");
    program.step(&given(&pairs[2]));
    program.step(&given(&pairs[3]));
    world.synchronize();
    arrived(&pairs);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let world = World::new();
    let pairs = pairs(&world, 2);
    let mut program = Program::new(&world, CopyWays::BOTH);
    let (stream, kind) = (world.stream, |r: Result<()>| r.expect_err("refused").kind);
    let record = |p: &Program<'_>, generation, ways| kind(p.binding.record_copies(stream, generation, ways));
    assert_eq!(record(&program, 0, CopyWays::IN), Kind::WrongState, "nothing is laid out");
    assert_eq!(kind(program.binding.use_graph(None)), Kind::WrongState, "nothing is laid out");
    program.step(&given(&pairs[0]));
    assert_eq!(record(&program, 1, CopyWays::IN), Kind::WrongState, "the stream is not being captured");
    assert_eq!(record(&program, 2, CopyWays::IN), Kind::WrongState, "another generation");
    assert_eq!(record(&program, 1, CopyWays(0)), Kind::InvalidArgument);
    assert_eq!(record(&program, 1, CopyWays(4)), Kind::InvalidArgument);
    let graph = program.graph;
    program.binding.use_graph(None).expect("named");
    let begun = program.binding.begin(stream, &given(&pairs[1]), 1).expect_err("no graph");
    assert_eq!(begun.kind, Kind::WrongState);
    program.binding.use_graph(graph).expect("named");
    program.begin(&given(&pairs[1])).expect("begin");
    assert_eq!(record(&program, 1, CopyWays::IN), Kind::WrongState, "a step is in progress");
    assert_eq!(kind(program.binding.use_graph(graph)), Kind::WrongState, "a step is in progress");
    program.launch();
    program.binding.end().expect("end");
    world.synchronize();
    arrived(&pairs);
}

#[test]
fn without_routes_begin_and_end_go_on_copying() {
    let world = World::without(&["routes"]);
    let pairs = pairs(&world, 3);
    let mut program = Program::new(&world, CopyWays::BOTH);
    program.begin(&given(&pairs[0])).expect_err("it records");
    let streams = world.fault.streams();
    streams.capture_begin(world.stream).expect("a capture");
    let refused = program.binding.record_copies(world.stream, 1, CopyWays::BOTH).expect_err("refused");
    assert_eq!(refused.kind, Kind::Unsupported);
    streams.destroy_graph(streams.capture_end(world.stream).expect("a graph")).expect("destroyed");
    program.ways = CopyWays(0);
    program.generation = 0;
    for pair in &pairs {
        program.step(&given(pair));
    }
    world.synchronize();
    arrived(&pairs);
}

/// Fails each driver call of a life with recorded copies in turn.
#[test]
fn each_driver_call_may_fail_and_is_tried_again() {
    const INJECTED: Error = Error::new(Kind::DriverError, Operation::None, "injected");
    let mut failed = 0;
    for nth in 1.. {
        let world = World::new();
        let pairs = pairs(&world, 5);
        let live = world.trace.live();
        world.fault.fail(None, nth, 1, INJECTED);
        let before = failed;
        {
            let mut program = Program::new(&world, CopyWays::BOTH);
            for pair in &pairs {
                for attempt in 0.. {
                    match program.begin(&given(pair)) {
                        Ok(_) => break,
                        Err(e) => assert_eq!((e.kind, attempt), (Kind::DriverError, 0), "call {nth}: {e}"),
                    }
                    failed += 1;
                }
                program.launch();
                program.binding.end().expect("nothing is launched");
            }
            world.synchronize();
            arrived(&pairs);
            assert_eq!(addresses(&program.binding, 2).len(), 2);
            if program.binding.destroy().is_err() {
                failed += 1;
                program.binding.destroy().expect("destroyed");
            }
        }
        world.fault.clear();
        for _ in 0..3 {
            let _ = world.device.drain();
        }
        let after = world.trace.live();
        assert_eq!(
            (after.routes, after.blocks, after.mappings),
            (0, live.blocks, live.mappings),
            "call {nth}"
        );
        if failed == before && nth > 20 {
            break;
        }
    }
    assert!(failed > 10, "{failed}");
}
