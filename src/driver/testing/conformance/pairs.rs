//! Copies in and out of one graph that are pointed together.

use super::rig::{Rig, same};
use super::routes::{CAPTURED, bytes_of, hold};
use super::{Check, Checked, Verdict};
use crate::driver::{CopySlice, Graph, Point, RecordId, RouteId, RouteSlice, Stream, Way};
use crate::units::{ByteSize, DevicePtr};

pub(super) const CHECKS: &[Check] = &[
    Check::new("copies recorded ahead and behind are pointed together", together).needs(CAPTURED),
    Check::new("graphs of the same copies go each to its own places", two_graphs).needs(CAPTURED),
];

/// Copies in and behind them copies out, of other counts, in one graph.
struct Pair {
    near: DevicePtr,
    sources: DevicePtr,
    targets: DevicePtr,
    counts: [u64; 2],
    routes: [RouteId; 2],
    stream: Stream,
}

const TURNS: u64 = 5;
const PIECE: u64 = 64;

fn piece(base: DevicePtr, i: u64) -> DevicePtr {
    DevicePtr(base.0 + PIECE * i)
}

impl Pair {
    fn new(rig: &mut Rig, counts: [u64; 2]) -> Checked<Self> {
        let [ins, outs] = counts;
        let most = ins.max(outs);
        let (near, sources) = (rig.plain(ByteSize(PIECE * most))?, rig.plain(ByteSize(PIECE * ins * TURNS))?);
        let targets = rig.plain(ByteSize(PIECE * outs * TURNS))?;
        rig.write(near, &bytes_of(50, PIECE * most))?;
        rig.write(targets, &vec![0; (PIECE * outs * TURNS) as usize])?;
        for turn in 0..TURNS {
            rig.write(piece(sources, ins * turn), &bytes_of(turn, PIECE * ins))?;
        }
        let mut route = |way, count| {
            let slice = |i| RouteSlice { near: piece(near, i), bytes: PIECE };
            rig.route(way, &(0..count).map(slice).collect::<Vec<_>>())
        };
        let routes = [route(Way::In, ins)?, route(Way::Out, outs)?];
        Ok(Self { near, sources, targets, counts, routes, stream: rig.stream()? })
    }

    fn capture(&self, rig: &mut Rig) -> Checked<(Graph, [RecordId; 2])> {
        let [inward, outward] = self.routes;
        rig.streams().capture_begin(self.stream)?;
        let ahead = rig.driver.route_record_ahead(self.stream, inward, outward);
        let behind = ahead.and_then(|id| rig.driver.route_record_behind(self.stream, outward, id));
        let graph = rig.capture_end(self.stream)?;
        Ok((graph, [ahead?, behind?.0]))
    }

    fn point(&self, rig: &Rig, graph: Graph, records: [RecordId; 2], turn: u64) -> Verdict {
        let [ins, outs] = self.counts;
        let slice = |dst, src| CopySlice { dst, src, bytes: PIECE };
        let (sources, targets) = (piece(self.sources, ins * turn), piece(self.targets, outs * turn));
        let ins: Vec<_> = (0..ins).map(|i| slice(piece(self.near, i), piece(sources, i))).collect();
        let outs: Vec<_> = (0..outs).map(|i| slice(piece(targets, i), piece(self.near, i))).collect();
        let points: [Point<'_>; 2] = [(records[0], &ins), (records[1], &outs)];
        Ok(rig.driver.route_point_all(graph, &points).map_err(|(_, e)| e)?)
    }

    fn launch(&self, rig: &Rig, graph: Graph) -> Verdict {
        Ok(rig.streams().launch(graph, self.stream)?)
    }

    /// What a turn has copied out: all of its sources, and behind them what was there before.
    fn check(&self, rig: &Rig, turn: u64, launched: bool) -> Verdict {
        rig.streams().synchronize(self.stream)?;
        let [ins, outs] = self.counts.map(|count| (PIECE * count) as usize);
        let mut expected = bytes_of(50, (ins.max(outs)) as u64);
        expected[..ins].copy_from_slice(&bytes_of(turn, ins as u64));
        expected.truncate(outs);
        if !launched {
            expected.fill(0);
        }
        let seen = rig.read(piece(self.targets, self.counts[1] * turn), outs)?;
        same(&format!("turn {turn} of {:?}", self.counts), true, seen == expected)
    }
}

fn together(rig: &mut Rig) -> Verdict {
    for counts in [[1, 1], [2, 700], [700, 2], [256, 256], [3000, 3000]] {
        let pair = Pair::new(rig, counts)?;
        let (graph, records) = pair.capture(rig)?;
        pair.launch(rig, graph)?;
        let gate = hold(rig, pair.stream)?;
        for turn in 0..TURNS - 1 {
            pair.point(rig, graph, records, turn)?;
            (0..=turn % 2).try_for_each(|_| pair.launch(rig, graph))?;
        }
        // What is pointed at after the last launch is nobody's.
        pair.point(rig, graph, records, TURNS - 1)?;
        drop(gate);
        (0..TURNS).try_for_each(|turn| pair.check(rig, turn, turn != TURNS - 1))?;
    }
    Ok(())
}

/// Launched in turn, pointed anew or not; one that was never pointed copies nothing, whatever others did.
fn two_graphs(rig: &mut Rig) -> Verdict {
    let pair = Pair::new(rig, [20, 30])?;
    let (one, two, never) = (pair.capture(rig)?, pair.capture(rig)?, pair.capture(rig)?);
    let (launch, zeros) = (|graph| pair.launch(rig, graph), vec![0; (PIECE * 30) as usize]);
    pair.point(rig, one.0, one.1, 0)?;
    pair.point(rig, two.0, two.1, 1)?;
    [one.0, two.0, one.0, never.0].into_iter().try_for_each(launch)?;
    pair.check(rig, 0, true)?;
    pair.check(rig, 1, true)?;
    for turn in [0, 1] {
        rig.write(piece(pair.targets, 30 * turn), &zeros)?;
    }
    launch(never.0)?;
    pair.check(rig, 0, false)?;
    launch(two.0)?;
    pair.check(rig, 0, false)?;
    pair.check(rig, 1, true)?;
    pair.point(rig, one.0, one.1, 2)?;
    [two.0, one.0].into_iter().try_for_each(launch)?;
    pair.check(rig, 2, true)
}
