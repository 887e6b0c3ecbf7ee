//! Recorded steps: which buffers a compiled step bound.

use super::{Given, Home, World};
use flate2::read::GzDecoder;
use gvmm::rebind::{Direction, Slot};
use gvmm::units::ByteSize;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// A buffer of a recording: its address's number and its bytes.
pub type Use = (u64, u64);

/// All steps of one program.
pub struct Recording {
    pub slots: Vec<Slot>,
    /// What each slot used, step by step.
    pub steps: Vec<Vec<Use>>,
}

/// One slot's line.
struct Line {
    step: usize,
    name: String,
    out: bool,
    used: Use,
}

impl Recording {
    /// One of those in `tests/data/steps`.
    pub fn load(name: &str) -> Self {
        let path = format!("{}/tests/data/steps/{name}.csv.gz", env!("CARGO_MANIFEST_DIR"));
        let file = BufReader::new(GzDecoder::new(File::open(path).expect("a recording")));
        let lines: Vec<String> = file.lines().map(|line| line.expect("text")).collect();
        Self::join(lines.iter().filter(|line| !line.starts_with('#')).map(|line| parse(line)).collect())
    }

    /// Makes one slot, in and out, of two lines with one name and one buffer in each step.
    fn join(lines: Vec<Line>) -> Self {
        let mut tracks: Vec<(String, bool, Vec<Use>)> = Vec::new();
        let mut index: HashMap<(String, bool), usize> = HashMap::new();
        for line in lines {
            let at = *index.entry((line.name.clone(), line.out)).or_insert_with(|| {
                tracks.push((line.name.clone(), line.out, Vec::new()));
                tracks.len() - 1
            });
            assert_eq!(tracks[at].2.len(), line.step, "each slot is used once a step");
            tracks[at].2.push(line.used);
        }
        let both = |name: &String, out: bool| {
            let (Some(a), Some(b)) = (index.get(&(name.clone(), false)), index.get(&(name.clone(), true)))
            else {
                return None;
            };
            (tracks[*a].2 == tracks[*b].2).then_some(out)
        };
        let mut slots = Vec::new();
        let mut kept: Vec<&Vec<Use>> = Vec::new();
        for (name, out, uses) in &tracks {
            let direction = match both(name, *out) {
                Some(true) => continue,
                Some(false) => Direction::IN_OUT,
                None if *out => Direction::OUT,
                None => Direction::IN,
            };
            let bytes = uses.iter().map(|used| used.1).max().unwrap_or(0);
            slots.push(Slot::new(ByteSize(bytes)).direction(direction));
            kept.push(uses);
        }
        let steps = kept.first().map_or(0, |uses| uses.len());
        let steps = (0..steps).map(|step| kept.iter().map(|uses| uses[step]).collect()).collect();
        Self { slots, steps }
    }

    /// How many slots used another buffer in `step` than in the one before.
    pub fn moved(&self, step: usize) -> u64 {
        self.steps[step].iter().zip(&self.steps[step - 1]).filter(|(a, b)| a != b).count() as u64
    }
}

fn parse(line: &str) -> Line {
    let fields: Vec<&str> = line.split(',').collect();
    let [step, name, role, bytes, buffer] = fields[..] else { panic!("five fields: {line}") };
    let number = |field: &str| field.parse::<u64>().unwrap_or_else(|_| panic!("a number: {line}"));
    Line {
        step: number(step) as usize,
        name: name.to_owned(),
        out: role == "out",
        used: (number(buffer), number(bytes)),
    }
}

/// The memory behind a recording: a block for each buffer and size in granules, made when first used and kept.
pub struct Homes<'a> {
    world: &'a World,
    homes: HashMap<(u64, u64), Home>,
}

impl<'a> Homes<'a> {
    pub fn new(world: &'a World) -> Self {
        Self { world, homes: HashMap::new() }
    }

    /// The buffers of one step.
    pub fn step(&mut self, uses: &[Use]) -> Given {
        let granularity = self.world.device.granularity();
        let mut given = Given::default();
        for (id, bytes) in uses {
            let size = granularity.round_up(ByteSize(*bytes)).expect("a size").get();
            let home = self.homes.entry((*id, size)).or_insert_with(|| self.world.home(size));
            let (mut buffer, block) = home.buffer();
            buffer.bytes = ByteSize(*bytes);
            given.buffers.push((buffer, block));
        }
        given
    }
}
