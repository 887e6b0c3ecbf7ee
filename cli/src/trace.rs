//! A recording: which buffer each slot of a compiled step had, step after step.
//!
//! A name that is both `in` and `out` with one buffer in each step is one slot, in and out (it was donated);
//! otherwise the two are slots of their own.

mod line;
mod source;

use line::{Line, Role};
pub(crate) use line::{MAX_BYTES, number, shown};
use std::collections::HashMap;
use std::fmt;
use std::io::BufRead;

/// What a step reads or writes, by the recording's name for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) is_in: bool,
    pub(crate) is_out: bool,
}

/// All steps of a recording.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The file's name as it was given.
    pub(crate) name: String,
    pub(crate) slots: Vec<Slot>,
    /// For each step the number of each slot's buffer.
    pub(crate) steps: Vec<Vec<u64>>,
}

/// A recording that cannot be read, and why.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct TraceError {
    file: String,
    /// From 1; 0 where no line is to blame.
    line: u64,
    expected: String,
    found: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": expected {}, found {}", self.expected, self.found)
    }
}

impl std::error::Error for TraceError {}

/// What was expected and what was found, where the line is known to the caller.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Unexpected {
    expected: String,
    found: String,
}

impl Unexpected {
    pub(crate) fn new(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { expected: expected.into(), found: found.into() }
    }
}

/// Reads the recording `path`, plain or gzip; `-` is the standard input.
pub(crate) fn read(path: &str) -> Result<Trace, TraceError> {
    read_with(path, Builder::default(), Builder::add_line, Builder::finish)
}

/// Reads a recording of any kind: `add` takes each line that says something, and `finish` what they made and the
/// file's name.
pub(crate) fn read_with<B, R>(
    path: &str,
    builder: B,
    add: impl Fn(&mut B, &str) -> Result<(), Unexpected>,
    finish: impl FnOnce(B, &str) -> Result<R, Unexpected>,
) -> Result<R, TraceError> {
    let name = if path == "-" { "<stdin>" } else { path };
    match source::open(path) {
        Ok(source) => read_from(source, name, builder, add, finish),
        Err(error) => Err(TraceError {
            file: name.into(),
            line: 0,
            expected: "a file that can be read".into(),
            found: error.to_string(),
        }),
    }
}

pub(crate) fn read_from<B, R>(
    mut source: impl BufRead,
    name: &str,
    mut builder: B,
    add: impl Fn(&mut B, &str) -> Result<(), Unexpected>,
    finish: impl FnOnce(B, &str) -> Result<R, Unexpected>,
) -> Result<R, TraceError> {
    let mut number = 0;
    let result = read_lines(&mut source, &mut number, |text| add(&mut builder, text));
    result.and_then(|()| finish(builder, name)).map_err(|Unexpected { expected, found }| TraceError {
        file: name.into(),
        line: number.max(1),
        expected,
        found,
    })
}

fn read_lines(
    source: &mut impl BufRead,
    number: &mut u64,
    mut add: impl FnMut(&str) -> Result<(), Unexpected>,
) -> Result<(), Unexpected> {
    let mut bytes = Vec::new();
    loop {
        // A read that fails does so on the line after the last whole one.
        *number += 1;
        let Some(text) = source::next_line(source, &mut bytes)? else {
            *number -= 1;
            return Ok(());
        };
        if !text.is_empty() && !text.starts_with('#') {
            add(text)?;
        }
    }
}

/// A recording that is being read. A name's `in` and `out` are apart until all steps are known.
#[derive(Default)]
struct Builder {
    slots: Vec<Slot>,
    index: HashMap<Role, HashMap<String, usize>>,
    steps: Vec<Vec<u64>>,
    /// Which slots the step being read has had.
    seen: Vec<bool>,
}

impl Builder {
    fn add_line(&mut self, text: &str) -> Result<(), Unexpected> {
        self.add(&line::parse(text)?)
    }

    fn add(&mut self, line: &Line<'_>) -> Result<(), Unexpected> {
        self.go_to_step(line.step)?;
        let slot = self.slot(line)?;
        if self.seen[slot] {
            return Err(Unexpected::new(
                "each slot once a step",
                format!("{} again", describe(&self.slots[slot])),
            ));
        }
        if self.slots[slot].bytes != line.bytes {
            let expected = format!("{} bytes as in step 0", self.slots[slot].bytes);
            return Err(Unexpected::new(expected, line.bytes.to_string()));
        }
        self.seen[slot] = true;
        if let Some(step) = self.steps.last_mut() {
            step[slot] = line.buffer;
        }
        Ok(())
    }

    /// Ends the step being read where `step` is the next one.
    fn go_to_step(&mut self, step: u64) -> Result<(), Unexpected> {
        let next = self.steps.len() as u64;
        if next > 0 && step == next - 1 {
            return Ok(());
        }
        if step != next {
            let expected = if next == 0 { "step 0".into() } else { format!("step {} or {next}", next - 1) };
            return Err(Unexpected::new(expected, format!("step {step}")));
        }
        self.end_step(|| format!("step {step}"))?;
        self.steps.push(vec![0; self.slots.len()]);
        self.seen.fill(false);
        Ok(())
    }

    /// The index of a line's slot, which step 0 may add.
    fn slot(&mut self, line: &Line<'_>) -> Result<usize, Unexpected> {
        let names = self.index.entry(line.role).or_default();
        if let Some(&slot) = names.get(line.name) {
            return Ok(slot);
        }
        let (is_in, is_out) = (line.role == Role::In, line.role == Role::Out);
        let slot = Slot { name: line.name.into(), bytes: line.bytes, is_in, is_out };
        let [step] = &mut self.steps[..] else {
            return Err(Unexpected::new("one of the slots of step 0", describe(&slot)));
        };
        names.insert(line.name.into(), self.slots.len());
        step.push(0);
        self.seen.push(false);
        self.slots.push(slot);
        Ok(self.slots.len() - 1)
    }

    /// Every slot must have had a line.
    fn end_step(&self, found: impl Fn() -> String) -> Result<(), Unexpected> {
        match self.seen.iter().position(|seen| !seen) {
            Some(slot) => {
                let step = self.steps.len() - 1;
                let expected = format!("{} in step {step}", describe(&self.slots[slot]));
                Err(Unexpected::new(expected, found()))
            }
            None => Ok(()),
        }
    }

    fn finish(self, name: &str) -> Result<Trace, Unexpected> {
        let end = || "the end of the file".to_string();
        if self.steps.is_empty() {
            return Err(Unexpected::new(line::SHAPE, end()));
        }
        self.end_step(end)?;
        Ok(self.join(name))
    }

    /// Makes one slot of an `in` and an `out` of one name that always share a buffer.
    fn join(mut self, name: &str) -> Trace {
        let mut keep = vec![true; self.slots.len()];
        let outs = self.index.remove(&Role::Out).unwrap_or_default();
        for (slot_name, &input) in self.index.get(&Role::In).into_iter().flatten() {
            let Some(&output) = outs.get(slot_name) else { continue };
            let is_donated = self.slots[input].bytes == self.slots[output].bytes
                && self.steps.iter().all(|step| step[input] == step[output]);
            self.slots[input].is_out = is_donated;
            keep[output] = !is_donated;
        }
        let steps = self.steps.into_iter().map(|step| kept(step, &keep)).collect();
        Trace { name: name.into(), slots: kept(self.slots, &keep), steps }
    }
}

fn kept<T>(items: Vec<T>, keep: &[bool]) -> Vec<T> {
    items.into_iter().zip(keep).filter_map(|(item, &keep)| keep.then_some(item)).collect()
}

fn describe(slot: &Slot) -> String {
    format!("slot {} ({})", line::shown(&slot.name), if slot.is_in { "in" } else { "out" })
}

#[cfg(test)]
mod tests;
