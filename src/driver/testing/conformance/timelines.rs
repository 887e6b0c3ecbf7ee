//! Timelines, and order across streams.
#![allow(unsafe_code, reason = "reads where streams write values")]

use super::rig::{Rig, mismatch, refused, same};
use super::{Check, Checked, Verdict};
use crate::driver::{Capabilities, CopySlice, Driver, TimelineId};
use crate::error::{Kind, Result};
use crate::units::{ByteSize, DevicePtr};
use std::sync::Arc;

const EARLY: Capabilities = Capabilities::EARLY_WAITS;

pub(super) const CHECKS: &[Check] = &[
    Check::new("a timeline starts at 0 and is raised by a stream", raised),
    Check::new("a value that was reached is not waited for", reached),
    Check::new("a write comes after the work before it", after_work),
    Check::new("a stream waits for another one's value", across).needs(EARLY),
    Check::new("a stream that waits holds up no other", alone).needs(EARLY),
    Check::new("one value lets several streams go", several).needs(EARLY),
    Check::new("a wait for what nobody has promised is refused", unpromised).lacks(EARLY),
    Check::new("a thread that waits is woken", woken),
    Check::new("a timeline that is gone is refused", gone),
    Check::new("a timeline with a pending write is in use", pending).needs(EARLY),
    Check::new("a wait for what a failed stream owes ends with its error", owed),
    Check::new("a wait that has begun ends when the stream fails", owed_while_waiting).needs(EARLY),
    Check::new("a stream that waits for a failed one fails too", chained).needs(EARLY),
    Check::new("many timelines at once", many),
];

fn unpromised(rig: &mut Rig) -> Verdict {
    let (stream, other, timeline) = (rig.stream()?, rig.stream()?, rig.timeline()?);
    refused(Kind::Unsupported, "a wait", rig.driver.stream_wait(other, timeline, 1))?;
    rig.driver.timeline_write(stream, timeline, 1)?;
    rig.driver.stream_wait(other, timeline, 1)?;
    rig.streams().synchronize(other)?;
    same("the value", 1, rig.driver.timeline_read(timeline)?)
}

fn raised(rig: &mut Rig) -> Verdict {
    let (stream, timeline) = (rig.stream()?, rig.timeline()?);
    same("the value at first", 0, rig.driver.timeline_read(timeline)?)?;
    for value in [1, 2, 10, 1 << 40] {
        rig.driver.timeline_write(stream, timeline, value)?;
        rig.driver.timeline_wait(timeline, value)?;
        same("the value after a wait", value, rig.driver.timeline_read(timeline)?)?;
        if let Some(cell) = rig.driver.timeline_cell(timeline) {
            // SAFETY: `rig` keeps the driver, and ends the timeline itself.
            same("the value in its cell", value, unsafe { cell.read() })?;
        }
    }
    Ok(())
}

fn reached(rig: &mut Rig) -> Verdict {
    let (stream, timeline) = (rig.stream()?, rig.timeline()?);
    rig.driver.timeline_wait(timeline, 0)?;
    rig.driver.timeline_write(stream, timeline, 7)?;
    rig.streams().synchronize(stream)?;
    for value in [0, 1, 6, 7] {
        rig.driver.timeline_wait(timeline, value)?;
        rig.driver.stream_wait(stream, timeline, value)?;
    }
    Ok(rig.streams().synchronize(stream)?)
}

fn after_work(rig: &mut Rig) -> Verdict {
    let (stream, timeline) = (rig.stream()?, rig.timeline()?);
    let (a, b) = (rig.plain(ByteSize::mib(1))?, rig.plain(ByteSize::mib(1))?);
    for value in 1..=20_u8 {
        rig.write(a, &vec![value; 1 << 20])?;
        rig.driver.copy(rig.device, stream, &[CopySlice { dst: b, src: a, bytes: 1 << 20 }])?;
        rig.driver.timeline_write(stream, timeline, value.into())?;
        rig.driver.timeline_wait(timeline, value.into())?;
        let last = DevicePtr(b.0 + (1 << 20) - 1);
        same("the copy's last byte when the value is there", vec![value], rig.read(last, 1)?)?;
    }
    Ok(())
}

fn across(rig: &mut Rig) -> Verdict {
    let (first, second, timeline) = (rig.stream()?, rig.stream()?, rig.timeline()?);
    let (a, b, c) = (rig.plain(ByteSize::mib(1))?, rig.plain(ByteSize::mib(1))?, rig.plain(ByteSize(256))?);
    for value in 1..=20_u8 {
        rig.write(a, &vec![value; 1 << 20])?;
        let last = DevicePtr(b.0 + (1 << 20) - 1);
        rig.driver.stream_wait(second, timeline, value.into())?;
        rig.driver.copy(rig.device, second, &[CopySlice { dst: c, src: last, bytes: 1 }])?;
        rig.driver.copy(rig.device, first, &[CopySlice { dst: b, src: a, bytes: 1 << 20 }])?;
        rig.driver.timeline_write(first, timeline, value.into())?;
        rig.streams().synchronize(second)?;
        same("what the waiting stream saw", vec![value], rig.read(c, 1)?)?;
    }
    Ok(())
}

fn alone(rig: &mut Rig) -> Verdict {
    let (held, free, gate, done) = (rig.stream()?, rig.stream()?, rig.timeline()?, rig.timeline()?);
    rig.driver.stream_wait(held, gate, 1)?;
    rig.driver.timeline_write(held, done, 1)?;
    rig.driver.timeline_write(free, done, 0)?;
    rig.streams().synchronize(free)?;
    same("the held stream's value", 0, rig.driver.timeline_read(done)?)?;
    rig.driver.timeline_write(free, gate, 1)?;
    Ok(rig.driver.timeline_wait(done, 1)?)
}

fn several(rig: &mut Rig) -> Verdict {
    let (gate, opener) = (rig.timeline()?, rig.stream()?);
    let mut held = Vec::new();
    for value in 1..=4 {
        let stream = rig.stream()?;
        rig.driver.stream_wait(stream, gate, value)?;
        held.push(stream);
    }
    rig.driver.timeline_write(opener, gate, 4)?;
    for stream in held {
        rig.streams().synchronize(stream)?;
    }
    Ok(())
}

/// Lets a thread wait for `value`, does `meanwhile`, and gives what the wait came to.
fn wait_beside(
    rig: &Rig,
    timeline: TimelineId,
    value: u64,
    meanwhile: impl FnOnce(&dyn Driver) -> Result<()> + Send + 'static,
) -> Checked<Result<()>> {
    let late = Arc::clone(&rig.driver);
    let meanwhile = std::thread::spawn(move || {
        // Mostly the other thread waits by then; where it does not, the check is easier, not wrong.
        std::thread::sleep(std::time::Duration::from_millis(2));
        meanwhile(&*late)
    });
    let waited = rig.ends(move |d| d.timeline_wait(timeline, value))?;
    meanwhile.join().map_err(|_| mismatch("no panic", &"one"))??;
    Ok(waited)
}

fn woken(rig: &mut Rig) -> Verdict {
    let (stream, timeline) = (rig.stream()?, rig.timeline()?);
    Ok(wait_beside(rig, timeline, 2, move |d| d.timeline_write(stream, timeline, 3))??)
}

fn gone(rig: &mut Rig) -> Verdict {
    let (stream, timeline) = (rig.stream()?, rig.timeline()?);
    rig.destroy_timeline(timeline)?;
    for timeline in [timeline, TimelineId(0), TimelineId(u64::MAX)] {
        let d = &rig.driver;
        refused(Kind::InvalidHandle, "read", d.timeline_read(timeline))?;
        refused(Kind::InvalidHandle, "wait", d.timeline_wait(timeline, 0))?;
        refused(Kind::InvalidHandle, "write", d.timeline_write(stream, timeline, 1))?;
        refused(Kind::InvalidHandle, "a stream's wait", d.stream_wait(stream, timeline, 1))?;
        refused(Kind::InvalidHandle, "destroy", d.timeline_destroy(timeline))?;
    }
    Ok(())
}

fn pending(rig: &mut Rig) -> Verdict {
    let (stream, opener, gate, timeline) = (rig.stream()?, rig.stream()?, rig.timeline()?, rig.timeline()?);
    rig.driver.stream_wait(stream, gate, 1)?;
    rig.driver.timeline_write(stream, timeline, 1)?;
    refused(Kind::InUse, "with a pending write", rig.driver.timeline_destroy(timeline))?;
    refused(Kind::InUse, "with a pending wait", rig.driver.timeline_destroy(gate))?;
    rig.driver.timeline_write(opener, gate, 1)?;
    rig.driver.timeline_wait(timeline, 1)?;
    rig.destroy_timeline(timeline)?;
    rig.streams().synchronize(stream)?;
    Ok(rig.destroy_timeline(gate)?)
}

/// A copy that no device may make.
const BAD: CopySlice = CopySlice { dst: DevicePtr(64), src: DevicePtr(64), bytes: 1 };

fn owed(rig: &mut Rig) -> Verdict {
    rig.survives_faults()?;
    let (stream, timeline) = (rig.stream()?, rig.timeline()?);
    rig.driver.timeline_write(stream, timeline, 1)?;
    rig.driver.copy(rig.device, stream, &[BAD])?;
    // Either it is enqueued in time and dropped, or refused.
    let _ = rig.driver.timeline_write(stream, timeline, 5);
    refused(Kind::DeviceFault, "a wait for 5", rig.ends(move |d| d.timeline_wait(timeline, 5))?)?;
    refused(Kind::DeviceFault, "a wait for 3", rig.ends(move |d| d.timeline_wait(timeline, 3))?)?;
    rig.driver.timeline_wait(timeline, 1)?;
    refused(Kind::DeviceFault, "one more write", rig.driver.timeline_write(stream, timeline, 6))
}

fn owed_while_waiting(rig: &mut Rig) -> Verdict {
    rig.survives_faults()?;
    let (stream, opener, gate, timeline) = (rig.stream()?, rig.stream()?, rig.timeline()?, rig.timeline()?);
    rig.driver.stream_wait(stream, gate, 1)?;
    rig.driver.copy(rig.device, stream, &[BAD])?;
    rig.driver.timeline_write(stream, timeline, 1)?;
    let waited = wait_beside(rig, timeline, 1, move |d| d.timeline_write(opener, gate, 1))?;
    refused(Kind::DeviceFault, "the wait", waited)
}

fn chained(rig: &mut Rig) -> Verdict {
    rig.survives_faults()?;
    let (bad, good, timeline) = (rig.stream()?, rig.stream()?, rig.timeline()?);
    rig.driver.stream_wait(good, timeline, 1)?;
    rig.driver.copy(rig.device, bad, &[BAD])?;
    let _ = rig.driver.timeline_write(bad, timeline, 1);
    refused(Kind::DeviceFault, "the stream that waits", rig.ends(move |d| d.streams().synchronize(good))?)
}

fn many(rig: &mut Rig) -> Verdict {
    let stream = rig.stream()?;
    let mut all = Vec::new();
    for value in 1..=100 {
        let timeline = rig.timeline()?;
        rig.driver.timeline_write(stream, timeline, value)?;
        all.push((timeline, value));
    }
    for (timeline, value) in all {
        rig.driver.timeline_wait(timeline, value)?;
        same("each has its own value", value, rig.driver.timeline_read(timeline)?)?;
    }
    Ok(())
}
