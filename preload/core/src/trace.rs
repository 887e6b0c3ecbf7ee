//! The trace: a line a call, each written by itself in one piece, so that nothing is lost or mixed when threads write
//! together, when the process ends in whatever way, or when it forks. The file's length is bounded.
#![allow(unsafe_code, reason = "flock, fcntl, getrlimit, gettid")]

use crate::call::{Args, Call, Place, Vendor};
use crate::memory;
use crate::note::{self, Level};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// What the first lines say.
const HEADER: &str = "time_ns,thread,call,status,took_ns,address,bytes,handle,devices,vendor_calls";
/// How many lines there are at most, unless the environment says otherwise.
const MOST: u64 = 400_000;
/// The least descriptor that is tried: a program that closes all that it does not know gets low ones for its own files.
const HIGH: i32 = 900;

struct Trace {
    // Never closed by us: once the program has closed it, the number is the program's.
    file: ManuallyDrop<File>,
    /// The device and the number of the file behind the descriptor.
    id: (u64, u64),
    since: Instant,
    left: AtomicU64,
    /// Bytes that the file may still have: the system ends a program that writes more.
    room: AtomicU64,
}

static TRACE: OnceLock<Option<Trace>> = OnceLock::new();
/// Set once it was said that nothing more is written.
static ENDED: AtomicBool = AtomicBool::new(false);

/// True where a trace is asked for.
pub fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("GVMM_PRELOAD_TRACE").is_some_and(|path| !path.is_empty()))
}

/// Opened at the first call, so that programs that never call leave the file alone. Where another process writes it, its
/// name is followed by our number.
fn open(vendor: &Vendor) -> Option<Trace> {
    let path = std::env::var("GVMM_PRELOAD_TRACE").ok()?;
    let result = take(&path).or_else(|error| match error.kind() {
        ErrorKind::WouldBlock => take(&format!("{path}.{}", std::process::id())),
        _ => Err(error),
    });
    let (id, file) = result
        .and_then(|file| Ok((id(&file)?, ManuallyDrop::new(file))))
        .inspect_err(|error| note::say(vendor, Level::Warn, &format!("{path}: {error}; no trace is written")))
        .ok()?;
    let most = std::env::var("GVMM_PRELOAD_TRACE_LINES").ok().and_then(|text| text.parse().ok());
    let head = format!("# gvmm vmm-trace 1 {} {}\n{HEADER}\n", vendor.name, std::process::id());
    let (left, room) = (AtomicU64::new(most.unwrap_or(MOST)), AtomicU64::new(limit()));
    let trace = Trace { file, id, since: Instant::now(), left, room };
    write(&trace, vendor, &head);
    Some(trace)
}

/// The longest file that the process may write.
fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the record is ours.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if asked == 0 { limit.rlim_cur } else { u64::MAX }
}

fn take(path: &str) -> std::io::Result<File> {
    // A pipe without a reader would hold the program up.
    let file = OpenOptions::new().create(true).append(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("not a file"));
    }
    // SAFETY: an open descriptor. The lock goes with its last copy.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    file.set_len(0)?;
    Ok(raised(file))
}

/// The same open file under a high number, where the process may have one.
fn raised(file: File) -> File {
    // SAFETY: an open descriptor; the answer is a new one or -1.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH) };
    if high < 0 {
        return file;
    }
    // SAFETY: a descriptor that was just made and that nobody else has.
    unsafe { File::from_raw_fd(high) }
}

fn id(file: &File) -> std::io::Result<(u64, u64)> {
    file.metadata().map(|data| (data.dev(), data.ino()))
}

/// One call that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Which.
    pub call: Call,
    /// With what.
    pub args: Args,
    /// The status.
    pub status: i32,
    /// When it began.
    pub began: Instant,
    /// How long it took.
    pub ns: u64,
    /// How often the vendor was called for it.
    pub vendor_calls: u64,
}

fn figure(place: Place, args: &Args, succeeded: bool) -> u64 {
    match place {
        Place::None => 0,
        Place::Arg(at) => args[at],
        Place::Out(at) if succeeded => memory::word(args[at]).unwrap_or(0),
        Place::Out(_) => 0,
    }
}

/// The devices that a set-access names, as `0+1+2`; a device with less than read and write as `1r` or `1-`.
fn devices(answer: &Answer, line: &mut String) {
    let grants = (answer.call == Call::SetAccess).then(|| memory::grants(answer.args[2], answer.args[3]));
    for (at, grant) in grants.flatten().unwrap_or_default().iter().enumerate() {
        let plus = if at == 0 { "" } else { "+" };
        let host = if grant.location.kind == 1 { "" } else { "h" };
        let less = match grant.flags {
            3 => "",
            1 => "r",
            _ => "-",
        };
        let _ = write!(line, "{plus}{host}{}{less}", grant.location.id);
    }
}

/// Writes a line for a call.
pub fn record(vendor: &Vendor, answer: &Answer) {
    if !wanted() {
        return;
    }
    let Some(trace) = TRACE.get_or_init(|| open(vendor)) else { return };
    if trace.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
        return note::once(&ENDED, vendor, "the trace has as many lines as it may; calls go on unwritten");
    }
    let entry = answer.call.entry();
    let at = |place| figure(place, &answer.args, answer.status == 0);
    let time = answer.began.saturating_duration_since(trace.since).as_nanos();
    // SAFETY: asks for this thread's number.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    let mut line = String::with_capacity(128);
    let _ = write!(
        line,
        "{time},{thread},{},{},{},{:x},{},{:x},",
        entry.word,
        answer.status,
        answer.ns,
        at(entry.address),
        at(entry.bytes),
        at(entry.handle)
    );
    devices(answer, &mut line);
    let _ = writeln!(line, ",{}", answer.vendor_calls);
    write(trace, vendor, &line);
}

fn write(trace: &Trace, vendor: &Vendor, line: &str) {
    if let Err(error) = append(trace, line) {
        note::once(&ENDED, vendor, &format!("the trace: {error}; calls go on unwritten"));
        trace.left.store(0, Ordering::Relaxed);
    }
}

fn append(trace: &Trace, line: &str) -> std::io::Result<()> {
    let less = |room: u64| room.checked_sub(line.len() as u64);
    if trace.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err() {
        return Err(std::io::Error::other("the file is as long as the process may make one"));
    }
    // The program may have closed the descriptor among others, and have a file of its own there now.
    if id(&trace.file).ok() != Some(trace.id) {
        return Err(std::io::Error::other("the program closed it"));
    }
    // One write: the file is appended to, so lines of several threads do not mix.
    (&*trace.file).write_all(line.as_bytes())
}

/// Writes a comment, where a trace is open.
pub fn comment(text: &str) {
    if let Some(Some(trace)) = TRACE.get() {
        let _ = append(trace, &format!("# {text}\n"));
    }
}
