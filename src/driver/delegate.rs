//! What the drivers that keep the same books (`core`, `books`, `timelines`, `lines`) say alike.

use crate::error::{Error, Kind, Operation, Result};
use crate::units::{DeviceRange, Granularity};

/// The calls of `Driver` that only hand on.
macro_rules! driver_calls {
    () => {
        fn device_count(&self) -> u32 {
            u32::try_from(self.core.devices.len()).unwrap_or(u32::MAX)
        }

        fn device_info(&self, device: Ordinal) -> Result<DeviceInfo> {
            let found = self.core.device(device, Operation::Query)?;
            Ok(DeviceInfo {
                name: found.name.clone(),
                capabilities: self.capabilities(found)?,
                granularity: self.core.granularity(device)?,
                total: found.total,
                bandwidth: found.bandwidth(&self.core.api),
                simulated_costs: None,
            })
        }

        fn memory(&self, device: Ordinal) -> Result<MemoryInfo> {
            self.core.memory(device)
        }

        fn granularity(&self, device: Ordinal, _: ByteSize) -> Result<Granularity> {
            self.core.granularity(device)
        }

        fn reserve(&self, device: Ordinal, size: ByteSize, alignment: Granularity) -> Result<DeviceRange> {
            self.core.reserve(&self.books, device, size, alignment)
        }

        fn free(&self, range: DeviceRange) -> Result<()> {
            self.core.free(&self.books, range)
        }

        fn create(&self, device: Ordinal, size: ByteSize, options: CreateOptions) -> Result<NativeBlock> {
            self.core.create(&self.books, device, size, options)
        }

        fn release(&self, block: NativeBlock) -> Result<()> {
            self.core.release(&self.books, block)
        }

        fn map(&self, range: DeviceRange, block: NativeBlock) -> Result<()> {
            check_range(range, self.core.granule(), Operation::Map)?;
            self.core.map(&self.books, range, block)
        }

        fn unmap(&self, range: DeviceRange) -> Result<()> {
            self.core.unmap(&self.books, range)
        }

        fn set_access(&self, range: DeviceRange, access: &[Access]) -> Result<()> {
            check_range(range, self.core.granule(), Operation::SetAccess)?;
            self.core.set_access(&self.books, range, access)
        }

        fn allocate(&self, device: Ordinal, size: ByteSize) -> Result<DevicePtr> {
            self.core.allocate(&self.books, device, size)
        }

        fn deallocate(&self, device: Ordinal, address: DevicePtr) -> Result<()> {
            self.core.deallocate(&self.books, device, address)
        }

        fn timeline_create(&self, device: Ordinal) -> Result<TimelineId> {
            self.timelines.create(&self.core, device)
        }

        fn counter_create(&self, device: Ordinal) -> Result<(TimelineId, u64)> {
            self.timelines.create_counter(&self.core, device)
        }

        fn timeline_destroy(&self, timeline: TimelineId) -> Result<()> {
            self.timelines.destroy(&self.core, timeline)
        }

        fn timeline_write(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
            self.timelines.write(&self.core, stream, timeline, value)
        }

        fn timeline_read(&self, timeline: TimelineId) -> Result<u64> {
            self.timelines.read(&self.core, timeline)
        }

        fn timeline_cell(&self, timeline: TimelineId) -> Option<crate::driver::TimelineCell> {
            self.timelines.cell(timeline)
        }

        fn timeline_wait(&self, timeline: TimelineId, value: u64) -> Result<()> {
            self.timelines.wait(&self.core, timeline, value)
        }

        fn stream_wait(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
            self.timelines.stream_wait(&self.core, stream, timeline, value)
        }

        fn is_capturing(&self, device: Ordinal, stream: Stream) -> Result<bool> {
            self.core.is_capturing(device, stream)
        }

        fn export(&self, block: NativeBlock) -> Result<OwnedFd> {
            self.core.export(&self.books, block)
        }

        fn import(&self, device: Ordinal, fd: BorrowedFd<'_>, size: ByteSize) -> Result<NativeBlock> {
            self.core.import(&self.books, device, fd, size)
        }

        fn check_native(&self, device: Ordinal, block: NativeBlock, size: ByteSize) -> Result<()> {
            self.core.check_native(&self.books, device, block, size)
        }

        fn read(&self, device: Ordinal, from: DevicePtr, bytes: &mut [u8]) -> Result<()> {
            self.core.read(device, from, bytes)
        }

        fn write(&self, device: Ordinal, to: DevicePtr, bytes: &[u8]) -> Result<()> {
            self.core.write(device, to, bytes)
        }

        fn access_at(&self, device: Ordinal, address: DevicePtr) -> Result<AccessMode> {
            self.core.access_at(device, address)
        }

        fn reaches(&self, device: Ordinal, owner: Ordinal) -> Result<bool> {
            let known = |device| self.core.device(device, Operation::Query).map(|_| ());
            known(device).and(known(owner)).map(|()| self.core.reaches(device, owner))
        }

        fn locate(&self, context: u64, device: u64) -> Result<Ordinal> {
            self.core.locate(context, device)
        }

        fn streams(&self) -> &dyn Streams {
            self
        }
    };
}

/// All of `Streams`.
macro_rules! stream_calls {
    () => {
        fn create(&self, device: Ordinal) -> Result<Stream> {
            self.lines.create(&self.core, device)
        }

        fn destroy(&self, stream: Stream) -> Result<()> {
            self.lines.destroy(&self.core, stream)
        }

        fn synchronize(&self, stream: Stream) -> Result<()> {
            self.lines.synchronize(&self.core, stream)
        }

        fn enqueue(&self, stream: Stream, function: HostFunction) -> Result<()> {
            self.lines.enqueue(&self.core, stream, function)
        }

        fn capture_begin(&self, stream: Stream) -> Result<()> {
            self.lines.capture_begin(&self.core, stream)
        }

        fn capture_end(&self, stream: Stream) -> Result<Graph> {
            self.lines.capture_end(&self.core, stream)
        }

        fn launch(&self, graph: Graph, stream: Stream) -> Result<()> {
            self.lines.launch(&self.core, graph, stream)
        }

        fn destroy_graph(&self, graph: Graph) -> Result<()> {
            self.lines.destroy_graph(&self.core, graph)
        }
    };
}

/// The calls of `Runtime` that only hand on.
macro_rules! runtime_calls {
    () => {
        fn captures(&self, stream: Stream, operation: Operation) -> Result<bool> {
            let mut status = 0;
            self.api.check(self.api.stream_is_capturing(stream.0, &mut status), operation)?;
            Ok(status != 0)
        }

        fn log(&self, what: &str, result: Result<()>) {
            if let Err(error) = result {
                log::warn!("could not {what}: {error}");
            }
        }

        fn stream_create(&self) -> Result<u64> {
            let mut stream = 0;
            self.api.check(self.api.stream_create(&mut stream, NON_BLOCKING), Operation::Stream)?;
            Ok(stream)
        }

        fn stream_destroy(&self, stream: u64) -> Result<()> {
            self.api.check(self.api.stream_destroy(stream), Operation::Stream)
        }

        fn stream_synchronize(&self, stream: u64) -> Result<()> {
            self.api.check(self.api.stream_synchronize(stream), Operation::Stream)
        }

        fn host_function(&self, stream: u64, function: HostFn, data: u64) -> Result<()> {
            self.api.check(self.api.launch_host(stream, function, data), Operation::Stream)
        }

        fn capture_begin(&self, stream: u64) -> Result<()> {
            self.api.check(self.api.capture_begin(stream, RELAXED), Operation::Capture)
        }

        fn capture_end(&self, stream: u64) -> Result<u64> {
            let mut graph = 0;
            self.api.check(self.api.capture_end(stream, &mut graph), Operation::Capture)?;
            Ok(graph)
        }

        fn graph_launch(&self, exec: u64, stream: u64) -> Result<()> {
            self.api.check(self.api.graph_launch(exec, stream), Operation::Launch)
        }

        fn exec_destroy(&self, exec: u64) -> Result<()> {
            self.api.check(self.api.graph_exec_destroy(exec), Operation::Destroy)
        }

        fn graph_destroy(&self, graph: u64) -> Result<()> {
            self.api.check(self.api.graph_destroy(graph), Operation::Destroy)
        }
    };
}

/// The calls of `Clock` that are the same.
macro_rules! clock_calls {
    () => {
        fn has_values(&self, device: Ordinal) -> Result<bool> {
            self.device(device, Operation::Timeline).map(|found| found.stream_values)
        }

        fn pinned(&self, bytes: u64) -> Result<(u64, u64)> {
            let (mut host, mut address) = (0, 0);
            let status = self.api.host_alloc(&mut host, bytes, PINNED_HOST);
            self.api.check(status, Operation::Timeline).map_err(|e| match e.kind {
                Kind::OutOfDeviceMemory => Error { kind: Kind::OutOfHostMemory, ..e },
                _ => e,
            })?;
            let status = self.api.host_device_pointer(&mut address, host, 0);
            self.api.check(status, Operation::Timeline).inspect_err(|_| {
                self.log_status("free pinned memory", self.api.host_free(host));
            })?;
            Ok((host, address))
        }

        fn pinned_free(&self, host: u64) -> Result<()> {
            self.api.check(self.api.host_free(host), Operation::Destroy)
        }

        fn write_value(&self, stream: u64, address: u64, value: u64) -> Result<()> {
            self.api.check(self.api.stream_write_value(stream, address, value, 0), Operation::Timeline)
        }

        fn event(&self, stream: u64) -> Result<u64> {
            let mut event = 0;
            self.api.check(self.api.event_create(&mut event, NO_TIMING), Operation::Timeline)?;
            self.api.check(self.api.event_record(event, stream), Operation::Timeline).inspect_err(|_| {
                self.event_destroy(event);
            })?;
            Ok(event)
        }

        fn event_passed(&self, event: u64) -> Result<bool> {
            match self.api.event_query(event) {
                SUCCESS => Ok(true),
                NOT_READY => Ok(false),
                status => Err(self.api.error(status, Operation::Timeline)),
            }
        }

        fn event_wait(&self, stream: u64, event: u64) -> Result<()> {
            self.api.check(self.api.stream_wait_event(stream, event, 0), Operation::Timeline)
        }

        fn event_destroy(&self, event: u64) {
            self.log_status("destroy an event", self.api.event_destroy(event));
        }
    };
}

/// What a vendor's table of functions says of its numbers, by `ROWS` and `kind_of`.
macro_rules! error_calls {
    () => {
        impl Api {
            /// The failure that `status` stands for.
            pub(super) fn error(&self, status: Status, operation: Operation) -> Error {
                failure(ROWS, status, operation, kind_of, |status| self.name_of(status))
            }

            /// `Ok` for success, else the failure.
            pub(super) fn check(&self, status: Status, operation: Operation) -> Result<()> {
                if status == SUCCESS { Ok(()) } else { Err(self.error(status, operation)) }
            }

            /// The driver's own name for a number that is not in the table, or "".
            fn name_of(&self, status: Status) -> &'static str {
                let mut name: *const c_char = std::ptr::null();
                if self.error_name(status, &mut name) != SUCCESS || name.is_null() {
                    return "";
                }
                // SAFETY: on success the driver points to a text that ends in a zero byte.
                let name = unsafe { CStr::from_ptr(name) };
                intern(&name.to_string_lossy())
            }
        }
    };
}

pub(in crate::driver) use {clock_calls, driver_calls, error_calls, runtime_calls, stream_calls};

/// Refuses a range that is not made of whole granules.
pub(in crate::driver) fn check_range(
    range: DeviceRange,
    granularity: Granularity,
    operation: Operation,
) -> Result<()> {
    let refuse = |kind, hint| Err(Error::new(kind, operation, hint).at(range.start(), range.size()));
    if !granularity.divides(range.size()) {
        return refuse(Kind::InvalidSize, "the size is not a multiple of the granularity");
    }
    if !range.start().is_aligned(granularity) {
        return refuse(Kind::Misaligned, "the address is not a multiple of the granularity");
    }
    Ok(())
}
