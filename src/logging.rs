//! Where log messages go: to the caller's function, else to standard error where `GVMM_LOG` is set, else
//! nowhere. A logger that the process already has is never replaced; it then gets everything.

use crate::config;
use crate::error::{Error, Kind, Operation, Result};
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock, PoisonError, RwLock};

/// What takes a message: level, target, text.
pub type Callback = Arc<dyn Fn(Level, &CString, &CString) + Send + Sync>;

/// One message, kept until it may be handed over.
struct Message {
    level: Level,
    target: CString,
    text: CString,
}

/// Our logger: a callback and a writer to standard error, either of which may be absent.
struct Router {
    stderr: RwLock<Option<Arc<env_logger::Logger>>>,
    callback: RwLock<Option<(Callback, LevelFilter)>>,
}

static ROUTER: Router = Router { stderr: RwLock::new(None), callback: RwLock::new(None) };

/// How many messages a call may keep; of more, a last one says that they are dropped.
const KEPT: usize = 1000;
const DROPPED: &CStr = c"this call logged too much: the rest of its messages is dropped";

/// Where a thread stands; in one place, since finding it costs something in every call.
pub(crate) struct Thread {
    /// How many calls of this thread are under way.
    holds: Cell<u32>,
    /// True where a message waits for them to end.
    waiting: Cell<bool>,
    in_callback: Cell<bool>,
    /// Its number from 1, or 0 where it has none yet.
    number: Cell<u32>,
}

/// So many of the threads that live have numbers that no other has; the rest share what numbers they get.
pub(crate) const OWN_NUMBERS: u32 = u64::BITS;

/// A bit for each of the first numbers that a thread has.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Thread {
    /// A small number, from 1. Up to [`OWN_NUMBERS`] it is nobody else's while the thread lives, and another's then.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        match self.number.get() {
            0 => self.get_number(),
            number => number,
        }
    }

    #[cold]
    fn get_number(&self) -> u32 {
        // A thread that is ending cannot give a number back any more.
        let own = LENT.try_with(Lent::take).ok().flatten();
        self.number.set(own.unwrap_or_else(shared_number));
        self.number.get()
    }
}

fn shared_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    (NEXT.fetch_add(1, Ordering::Relaxed) & 0xffff) + OWN_NUMBERS + 1
}

/// A number that is the thread's own until it ends; 0 for none.
struct Lent(Cell<u32>);

impl Lent {
    fn take(&self) -> Option<u32> {
        let free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        let before = NUMBERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        self.0.set(before.trailing_ones() + 1);
        Some(self.0.get())
    }
}

impl Drop for Lent {
    /// The thread may go on calling while it ends: with a number that others may have.
    fn drop(&mut self) {
        if let Some(bit) = self.0.get().checked_sub(1) {
            THREAD.with(|thread| thread.number.set(shared_number()));
            NUMBERS.fetch_and(!(1 << bit), Ordering::AcqRel);
        }
    }
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            holds: Cell::new(0),
            waiting: Cell::new(false),
            in_callback: Cell::new(false),
            number: Cell::new(0),
        }
    };
    static WAITING: RefCell<Vec<Message>> = const { RefCell::new(Vec::new()) };
    static LENT: Lent = const { Lent(Cell::new(0)) };
}

/// Begins to log to standard error what `GVMM_LOG` asks for, unless the process has a logger.
pub(crate) fn start() {
    if let Some(filter) = config::log_filter() {
        restart(&filter);
    }
}

/// Logs to standard error what `filter` asks for and nothing else, unless the process has a logger.
pub(crate) fn restart(filter: &str) {
    let logger = env_logger::Builder::new().parse_filters(filter).build();
    *ROUTER.stderr.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(logger));
    if install() {
        adjust();
    }
}

/// Sends messages up to `level` to `callback`, or no longer to any.
///
/// # Errors
/// `InUse` where the process has a logger of its own.
pub(crate) fn set_callback(callback: Option<Callback>, level: LevelFilter) -> Result<()> {
    if callback.is_some() && !install() {
        let hint = "the process has a logger of its own, which gets the messages";
        return Err(Error::new(Kind::InUse, Operation::None, hint));
    }
    let new = callback.map(|callback| (callback, level));
    let old = {
        let mut place = ROUTER.callback.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, new)
    };
    drop(old);
    if install() {
        adjust();
    }
    Ok(())
}

/// Makes ours the process's logger, once; true where it is.
fn install() -> bool {
    static TRY: Once = Once::new();
    static OURS: OnceLock<bool> = OnceLock::new();
    TRY.call_once(|| {
        let _ = OURS.set(log::set_logger(&ROUTER).is_ok());
    });
    OURS.get().copied().unwrap_or(false)
}

/// Lets through what anybody wants to have.
fn adjust() {
    let stderr = ROUTER.stderr().map_or(LevelFilter::Off, |logger| logger.filter());
    let callback = ROUTER.callback().map_or(LevelFilter::Off, |(_, level)| level);
    log::set_max_level(stderr.max(callback));
}

impl Router {
    /// The writer to standard error as it is now; the lock is gone when this returns.
    fn stderr(&self) -> Option<Arc<env_logger::Logger>> {
        self.stderr.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The callback as it is now; the lock is gone when this returns.
    fn callback(&self) -> Option<(Callback, LevelFilter)> {
        self.callback.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Log for Router {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.stderr().is_some_and(|logger| logger.enabled(metadata))
            || self.callback().is_some_and(|(_, level)| metadata.level() <= level)
    }

    fn log(&self, record: &Record<'_>) {
        if let Some(logger) = self.stderr() {
            logger.log(record);
        }
        if self.callback().is_some_and(|(_, level)| record.level() <= level) {
            keep_or_deliver(record);
        }
    }

    fn flush(&self) {}
}

/// Keeps a message while the call that it belongs to may hold locks, else hands it over. What a callback's
/// own calls log is dropped: it would never end.
fn keep_or_deliver(record: &Record<'_>) {
    if THREAD.with(|thread| thread.in_callback.get()) {
        return;
    }
    let message = Message {
        level: record.level(),
        target: text(record.target()),
        text: text(&record.args().to_string()),
    };
    if !is_held() {
        return deliver(&message);
    }
    THREAD.with(|thread| thread.waiting.set(true));
    let _ = WAITING.try_with(|waiting| {
        let mut waiting = waiting.borrow_mut();
        match waiting.len().cmp(&KEPT) {
            Less => waiting.push(message),
            Equal => waiting.push(Message { text: DROPPED.to_owned(), ..message }),
            Greater => {}
        }
    });
}

/// Text for C: what comes before a NUL.
fn text(text: &str) -> CString {
    let end = text.bytes().position(|byte| byte == 0).unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// Calls the callback, with no lock of ours held.
fn deliver(message: &Message) {
    if let Some((callback, _)) = ROUTER.callback() {
        THREAD.with(|thread| thread.in_callback.set(true));
        callback(message.level, &message.target, &message.text);
        THREAD.with(|thread| thread.in_callback.set(false));
    }
}

/// While it lives, this thread's messages for the callback are kept; they are handed over when the
/// outermost goes. Messages to standard error are not kept.
struct Hold<'a>(&'a Thread);

/// Runs a call. This thread's messages are kept until it has ended.
#[inline]
pub(crate) fn in_call<A>(run: impl FnOnce(&Thread) -> A) -> A {
    THREAD.with(|thread| {
        thread.holds.set(thread.holds.get().wrapping_add(1));
        let hold = Hold(thread);
        run(hold.0)
    })
}

/// True while a call of this thread is under way.
pub(crate) fn is_held() -> bool {
    THREAD.with(|thread| thread.holds.get() != 0)
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        let Self(thread) = self;
        thread.holds.set(thread.holds.get().wrapping_sub(1));
        if thread.waiting.get() && thread.holds.get() == 0 {
            thread.waiting.set(false);
            deliver_waiting();
        }
    }
}

#[cold]
fn deliver_waiting() {
    let waiting = WAITING.try_with(RefCell::take);
    waiting.unwrap_or_default().iter().for_each(deliver);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// One test, since the logger is the process's.
    #[test]
    fn messages_wait_for_the_end_of_the_call_and_may_call_back() {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = seen.clone();
        let callback: Callback = Arc::new(move |level, _, text| {
            log::warn!("from inside: dropped");
            let _ = set_callback_again();
            sink.lock().expect("the sink").push(format!("{level} {}", text.to_string_lossy()));
        });
        if set_callback(Some(callback), LevelFilter::Warn).is_err() {
            return; // The test program has a logger.
        }
        in_call(|outer| {
            in_call(|inner| {
                assert_eq!(inner.number(), outer.number());
                log::warn!("one");
            });
            log::info!("too detailed");
            log::error!("two\0cut");
            assert!(seen.lock().expect("the list").is_empty());
        });
        let mine = |list: &[String]| list.iter().filter(|m| m.contains("one") || m.contains("two")).count();
        assert_eq!(mine(&seen.lock().expect("the list")), 2);
        assert!(seen.lock().expect("the list").iter().all(|m| !m.contains("inside") && !m.contains("cut")));
        in_call(|_| (0..KEPT + 100).for_each(|n| log::warn!("many {n}")));
        let many = |word: &str| seen.lock().expect("the list").iter().filter(|m| m.contains(word)).count();
        assert_eq!((many("many"), many("is dropped")), (KEPT, 1));
        set_callback(None, LevelFilter::Off).expect("ours");
        log::error!("three");
        assert!(seen.lock().expect("the list").iter().all(|m| !m.contains("three")));
    }

    #[test]
    fn a_thread_that_ends_leaves_its_number_to_another() {
        let number = || std::thread::spawn(|| in_call(Thread::number)).join().expect("it ends");
        let seen: Vec<u32> = (0..2 * OWN_NUMBERS).map(|_| number()).collect();
        assert!(seen.iter().all(|number| (1..=OWN_NUMBERS).contains(number)), "{seen:?}");
        // While as many live as there are numbers, nobody has another's.
        let (done, all) = (std::sync::Barrier::new(OWN_NUMBERS as usize + 8), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..OWN_NUMBERS + 8 {
                scope.spawn(|| {
                    all.lock().expect("the list").push(in_call(Thread::number));
                    done.wait();
                });
            }
        });
        let mut own = all.into_inner().expect("the list");
        own.retain(|number| *number <= OWN_NUMBERS);
        let count = own.len();
        own.sort_unstable();
        own.dedup();
        assert_eq!(own.len(), count);
        assert!(count > 8, "{count}");
    }

    /// Taking the lock from inside a callback must not deadlock.
    fn set_callback_again() -> bool {
        ROUTER.callback().is_some()
    }
}
