//! Devices, their primary contexts, and the rule that a caller's current context is as before on every path.

use super::api::{Api, NO_TIMING, NOT_READY, SUCCESS};
use super::copy::Kernels;
use super::device::{Device, PLAIN};
use crate::driver::library::intern;
use crate::driver::lines::{about_streams, refuse_inside};
use crate::driver::quirks::{self, Care, Subject};
use crate::driver::{DriverKind, Ordinal, Stream};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::Granularity;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(super) const RELAXED: i32 = 2;
/// The streams that belong to whichever context is current: NULL, `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
const LAST_SPECIAL_STREAM: u64 = 2;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
const DESTROYED: i32 = 709;
/// `CU_STREAM_NON_BLOCKING`.
pub(super) const NON_BLOCKING: u32 = 1;

/// A context with what we keep in it.
#[derive(Debug)]
pub(super) struct Context {
    /// `CUcontext`.
    pub(super) handle: u64,
    /// What the driver calls it and nothing else ever; 0 where it does not say.
    id: u64,
    pub(super) device: Ordinal,
    /// The copy kernels, or none where their text could not be loaded.
    pub(super) kernels: Option<Kernels>,
    /// A stream with nothing on it and an event, to ask whether the context still works.
    watch: u64,
    beat: u64,
    /// The stream that was last found to be of this context, or 0.
    stream: AtomicU64,
}

impl Context {
    fn has_seen(&self, stream: Stream) -> bool {
        stream.0 > LAST_SPECIAL_STREAM && self.stream.load(Ordering::Relaxed) == stream.0
    }
}

/// `CUDA_ERROR_INVALID_CONTEXT` and `CUDA_ERROR_INVALID_HANDLE`: what a launch is refused by whose stream is another
/// context's. Nothing was enqueued then.
fn is_about_contexts(e: &Error) -> bool {
    e.native.is_some_and(|native| matches!(native.code, 201 | 400))
}

/// A context is itself alone: its handle may come back for another.
impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// The table of functions, the devices and the contexts.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) api: Api,
    pub(super) version: u32,
    pub(super) devices: Vec<Device>,
    /// Contexts that are not ours, of callers' streams, by handle and, where there is one, unique id.
    foreign: Mutex<HashMap<(u64, u64), Arc<Context>>>,
}

/// While it lives, a context is current on this thread, and no capture forbids what we do.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    api: &'a Api,
    pushed: bool,
    mode: i32,
    this_thread: PhantomData<*const ()>,
}

impl Core {
    pub(super) fn new(api: Api, forced: &[(&str, bool)]) -> Result<Self> {
        let mut version = 0;
        api.check(api.driver_version(&mut version), Operation::Open)?;
        let version = u32::try_from(version).unwrap_or(0);
        let subject = Subject { kind: DriverKind::CUDA, version, arch: "" };
        if quirks::care(&subject, forced).has(Care::REFUSE) {
            let place = api.path().display();
            let hint = intern(&format!("{place} is older than CUDA 11.0: install a newer driver"));
            return Err(
                Error::new(Kind::DriverTooOld, Operation::Open, hint).native(i64::from(version), "version")
            );
        }
        let mut count = 0;
        api.check(api.device_count(&mut count), Operation::Open)?;
        if count < 1 {
            return Err(api.error(100, Operation::Open));
        }
        let devices = (0..count).map(|i| Device::read(&api, version, i, forced)).collect::<Result<_>>()?;
        Ok(Self { api, version, devices, foreign: Mutex::default() })
    }

    pub(super) fn device(&self, device: Ordinal, operation: Operation) -> Result<&Device> {
        let missing = || {
            Error::new(
                Kind::NoDevice,
                operation,
                "no device of that number: gvmm_device_count says how many there are",
            )
        };
        self.devices.get(device.0 as usize).ok_or_else(missing)
    }

    /// What every mapped range is made of: the largest granule of all devices, which is that of each in practice.
    pub(super) fn granule(&self) -> Granularity {
        self.devices.iter().map(|d| d.granularity).max().unwrap_or(PLAIN)
    }

    /// The device's primary context, retained on first use and kept until the driver is dropped.
    pub(super) fn primary(&self, device: Ordinal, operation: Operation) -> Result<&Arc<Context>> {
        let device = self.device(device, operation)?;
        if let Some(context) = device.primary.get() {
            return self.check_alive(device, context, operation).map(|()| context);
        }
        device.primary.get_or_try_init(|| {
            let mut handle = 0;
            self.api.check(self.api.primary_retain(&mut handle, device.handle), operation)?;
            self.furnish(handle, device, operation).inspect_err(|_| {
                self.log_status("release the primary context", self.api.primary_release(device.handle));
            })
        })
    }

    /// An error where somebody has reset the device's primary context: what we have there is gone, and the driver
    /// crashes over handles of it (seen with 580.159).
    fn check_alive(&self, device: &Device, context: &Context, operation: Operation) -> Result<()> {
        if refuse_inside(operation).is_err() {
            // A host function may ask nothing; whatever comes next refuses it.
            return Ok(());
        }
        let (mut flags, mut active, mut id) = (0, 1, context.id);
        let known = self.api.primary_state(device.handle, &mut flags, &mut active) == SUCCESS;
        let gone = known && active == 0;
        // Somebody may have made it anew since.
        let other = !gone && context.id != 0 && self.api.context_id(context.handle, &mut id) == SUCCESS;
        if gone || other && id != context.id { Err(self.api.error(DESTROYED, operation)) } else { Ok(()) }
    }

    /// Makes `context` current until the guard is dropped; nothing is pushed where it is current already.
    pub(super) fn enter(&self, context: u64, operation: Operation) -> Result<Entered<'_>> {
        refuse_inside(operation)?;
        let known =
            self.devices.iter().find_map(|d| d.primary.get().filter(|c| c.handle == context).map(|c| (d, c)));
        if let Some((device, context)) = known {
            self.check_alive(device, context, operation)?;
        }
        self.enter_alive(context, operation)
    }

    /// The same for a context that [`primary`](Self::primary) or [`context_of`](Self::context_of) has just given.
    pub(super) fn enter_alive(&self, context: u64, operation: Operation) -> Result<Entered<'_>> {
        let mut entered = self.make_current(context, operation)?;
        // What we do is never meant for a capture unless a capturing stream is named.
        let mut mode = RELAXED;
        if self.api.exchange_capture_mode(&mut mode) == SUCCESS {
            entered.mode = mode;
        }
        Ok(entered)
    }

    /// The same for what captures of other streams do not forbid: launches, and changes of graphs.
    fn make_current(&self, context: u64, operation: Operation) -> Result<Entered<'_>> {
        refuse_inside(operation)?;
        let mut current = 0;
        self.api.check(self.api.context_current(&mut current), operation)?;
        let pushed = current != context;
        if pushed {
            self.api.check(self.api.context_push(context), operation)?;
        }
        Ok(Entered { api: &self.api, pushed, mode: RELAXED, this_thread: PhantomData })
    }

    /// Makes a context of ours current for changes of graphs, in as few calls as tell that it still is the one.
    pub(super) fn enter_known(&self, context: &Context, operation: Operation) -> Result<Entered<'_>> {
        self.check_same(context, operation)?;
        self.make_current(context.handle, operation)
    }

    /// Runs `launch` in the context that `stream` belongs to, which must be one of `device`. A stream that was seen last
    /// time is not asked for its context: should its number be another context's stream by now, the driver refuses the
    /// launch, and it is asked after all.
    pub(super) fn launching<T>(
        &self,
        stream: Stream,
        device: Ordinal,
        launch: impl Fn(&Context) -> Result<T>,
    ) -> Result<T> {
        let operation = Operation::Copy;
        let primary = self.device(device, operation)?.primary.get();
        if let Some(context) = primary.filter(|context| context.has_seen(stream)) {
            let entered = self.enter_known(context, operation)?;
            match launch(context) {
                Err(e) if is_about_contexts(&e) => drop(entered),
                result => return result,
            }
        }
        let context = self.context_on(stream, device, operation)?;
        let _entered = self.make_current(context.handle, operation)?;
        let result = launch(&context)?;
        if stream.0 > LAST_SPECIAL_STREAM {
            context.stream.store(stream.0, Ordering::Relaxed);
        }
        Ok(result)
    }

    /// An error where what we have in the context is gone: by its id, which is never given again, in one call where
    /// there are ids.
    fn check_same(&self, context: &Context, operation: Operation) -> Result<()> {
        refuse_inside(operation)?;
        if context.id == 0 {
            return self.check_alive(self.device(context.device, operation)?, context, operation);
        }
        let mut id = 0;
        self.api.check(self.api.context_id(context.handle, &mut id), operation)?;
        if id == context.id { Ok(()) } else { Err(self.api.error(DESTROYED, operation)) }
    }

    /// Makes the device's primary context current.
    pub(super) fn enter_primary(&self, device: Ordinal, operation: Operation) -> Result<Entered<'_>> {
        let context = self.primary(device, operation)?.handle;
        self.enter_alive(context, operation)
    }

    /// The context that `stream` belongs to, which may be a framework's own. The default streams belong to the
    /// caller's current context where that is one of `device`, else to the primary one.
    pub(super) fn context_of(
        &self,
        stream: Stream,
        device: Ordinal,
        operation: Operation,
    ) -> Result<Arc<Context>> {
        let primary = self.primary(device, operation)?;
        let handle = if stream.0 <= LAST_SPECIAL_STREAM {
            self.current_of(device, operation)?.unwrap_or(primary.handle)
        } else {
            self.owner_of(stream, primary.handle, operation)?
        };
        if handle == primary.handle {
            return Ok(primary.clone());
        }
        let own = self.devices.iter().filter_map(|d| d.primary.get()).find(|c| c.handle == handle);
        own.map_or_else(|| self.foreign(handle, operation), |context| Ok(context.clone()))
    }

    /// The same, refusing a stream of another device.
    pub(super) fn context_on(
        &self,
        stream: Stream,
        device: Ordinal,
        operation: Operation,
    ) -> Result<Arc<Context>> {
        let context = self.context_of(stream, device, operation)?;
        if context.device == device {
            return Ok(context);
        }
        Err(Error::new(Kind::InvalidStream, operation, "the stream is another device's"))
    }

    /// An error where the context no longer works. Makes no call that could wait for running work.
    pub(super) fn check_context(&self, context: &Context) -> Result<()> {
        let _entered = self.enter(context.handle, Operation::Timeline)?;
        // An idle stream may have nothing to tell; one that is given something to do has.
        let asked = [
            self.api.stream_query(context.watch),
            self.api.event_record(context.beat, context.watch),
            self.api.event_query(context.beat),
        ];
        match asked.into_iter().find(|status| !matches!(*status, SUCCESS | NOT_READY)) {
            None => Ok(()),
            Some(status) => Err(self.api.error(status, Operation::Timeline)),
        }
    }

    /// Writes words to device memory of `context` and waits until they are there. Nothing else is waited for.
    pub(super) fn upload(&self, context: &Context, to: u64, words: &[u64]) -> Result<()> {
        let _entered = self.enter(context.handle, Operation::Copy)?;
        let bytes = size_of_val(words) as u64;
        let status = self.api.upload_async(to, words.as_ptr(), bytes, context.watch);
        self.api.check(status, Operation::Copy)?;
        self.api.check(self.api.stream_synchronize(context.watch), Operation::Copy)
    }

    /// Logs a failed clean-up.
    pub(super) fn log_status(&self, what: &str, status: i32) {
        log_failure(&self.api, what, status);
    }

    /// The caller's current context where it is one of `device`.
    fn current_of(&self, device: Ordinal, operation: Operation) -> Result<Option<u64>> {
        let (mut current, mut of) = (0, -1);
        self.api.check(self.api.context_current(&mut current), operation)?;
        if current == 0 || self.api.context_device(&mut of) != SUCCESS {
            return Ok(None);
        }
        Ok((of == self.device(device, operation)?.handle).then_some(current))
    }

    fn owner_of(&self, stream: Stream, primary: u64, operation: Operation) -> Result<u64> {
        let mut handle = 0;
        let mut status = self.api.stream_context(stream.0, &mut handle);
        if status == 201 {
            let _entered = self.enter(primary, operation)?;
            status = self.api.stream_context(stream.0, &mut handle);
        }
        self.api.check(status, about_streams(operation))?;
        Ok(handle)
    }

    fn foreign(&self, handle: u64, operation: Operation) -> Result<Arc<Context>> {
        let mut id = 0;
        if self.api.has_context_ids() {
            self.api.check(self.api.context_id(handle, &mut id), operation)?;
        }
        if let Some(known) = self.foreign_list().get(&(handle, id)) {
            return Ok(known.clone());
        }
        let device = {
            let _entered = self.enter(handle, operation)?;
            let mut of = 0;
            self.api.check(self.api.context_device(&mut of), operation)?;
            let missing = || Error::new(Kind::NoDevice, operation, "the stream's device is not known");
            self.devices.iter().find(|d| d.handle == of).ok_or_else(missing)?
        };
        let made = self.furnish(handle, device, operation)?;
        Ok(self.foreign_list().entry((handle, id)).or_insert(made).clone())
    }

    fn foreign_list(&self) -> std::sync::MutexGuard<'_, HashMap<(u64, u64), Arc<Context>>> {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts into a context what we need there.
    fn furnish(&self, handle: u64, device: &Device, operation: Operation) -> Result<Arc<Context>> {
        let _entered = self.enter(handle, operation)?;
        let mut id = 0;
        if self.api.has_context_ids() {
            self.api.check(self.api.context_id(handle, &mut id), operation)?;
        }
        let (mut watch, mut beat) = (0, 0);
        self.api.check(self.api.stream_create(&mut watch, NON_BLOCKING), operation)?;
        self.api.check(self.api.event_create(&mut beat, NO_TIMING), operation).inspect_err(|_| {
            self.log_status("destroy a stream", self.api.stream_destroy(watch));
        })?;
        let kernels = Kernels::load(&self.api, device.care);
        let (device, stream) = (device.ordinal, AtomicU64::new(0));
        Ok(Arc::new(Context { handle, id, device, kernels, watch, beat, stream }))
    }
}

/// Contexts that are not ours keep what we put there: their owners may have destroyed them by now.
impl Drop for Core {
    fn drop(&mut self) {
        for device in &self.devices {
            let Some(context) = device.primary.get() else { continue };
            if let Ok(_entered) = self.enter(context.handle, Operation::Destroy) {
                if let Some(kernels) = &context.kernels {
                    self.log_status("unload the copy kernels", self.api.module_unload(kernels.module));
                }
                self.log_status("destroy an event", self.api.event_destroy(context.beat));
                self.log_status("destroy a stream", self.api.stream_destroy(context.watch));
            }
            self.log_status("release the primary context", self.api.primary_release(device.handle));
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.mode != RELAXED {
            let mut mode = self.mode;
            log_failure(self.api, "restore the capture mode", self.api.exchange_capture_mode(&mut mode));
        }
        if self.pushed {
            let mut popped = 0;
            log_failure(self.api, "restore the current context", self.api.context_pop(&mut popped));
        }
    }
}

fn log_failure(api: &Api, what: &str, status: i32) {
    // 4: the process ends, and the driver has cleaned up already.
    if status != SUCCESS && status != 4 {
        log::warn!("could not {what}: {}", api.error(status, Operation::Destroy));
    }
}
