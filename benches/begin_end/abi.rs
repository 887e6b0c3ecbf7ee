//! The recorded steps through the C ABI, on the host driver.
#![allow(unsafe_code, reason = "calls the C ABI")]

use crate::measure::Cost;
use crate::null::MIB2;
use crate::steps::Recorded;
use gvmm::capi::allocation::{gvmm_allocation_create, gvmm_allocation_info, gvmm_allocation_query};
use gvmm::capi::binding::{gvmm_binding_create, gvmm_binding_desc};
use gvmm::capi::device::{gvmm_device_desc, gvmm_device_open};
use gvmm::capi::slot::gvmm_slot;
use gvmm::capi::status::{GVMM_STATUS_RECORD_AGAIN, GVMM_STATUS_SUCCESS, gvmm_status};
use gvmm::capi::step::{gvmm_binding_begin, gvmm_binding_end, gvmm_buffer, gvmm_step_report};
use gvmm::capi::stream::{gvmm_stream_create, gvmm_stream_synchronize};
use gvmm::capi::types::{gvmm_binding, gvmm_device, gvmm_stream};
use gvmm::driver::DriverKind;
use std::collections::BTreeMap;
use std::mem::{size_of, zeroed};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// What a C program has.
pub(crate) struct Program {
    binding: *mut gvmm_binding,
    stream: *mut gvmm_stream,
    steps: Vec<Vec<gvmm_buffer>>,
}

fn check(status: gvmm_status) {
    assert_eq!(status, GVMM_STATUS_SUCCESS);
}

/// The slots as C gives them.
fn slots(recorded: &Recorded) -> Vec<gvmm_slot> {
    let slot = |slot: &gvmm::rebind::Slot| gvmm_slot {
        size_bytes: slot.bytes.get(),
        direction: slot.direction.0,
        flags: 0,
        alignment_bytes: 0,
        memory_space: 0,
        reserved: 0,
        shadow_address: 0,
    };
    recorded.slots.iter().map(slot).collect()
}

/// An allocation as a buffer.
fn buffer(device: *mut gvmm_device) -> gvmm_buffer {
    let (mut allocation, mut address) = (null_mut(), 0);
    // SAFETY: the pointers are to locals.
    check(unsafe { gvmm_allocation_create(device, MIB2, &raw mut allocation, &raw mut address) });
    // SAFETY: numbers and a pointer, for which zero is a value.
    let mut info: gvmm_allocation_info = unsafe { zeroed() };
    info.struct_size = size_of::<gvmm_allocation_info>();
    // SAFETY: as above.
    check(unsafe { gvmm_allocation_query(allocation, &raw mut info) });
    gvmm_buffer { address, size_bytes: MIB2, allocation_id: 0, block: info.block }
}

impl Program {
    pub(crate) fn new(recorded: &Recorded, threshold_bytes: u64) -> Self {
        let (mut device, mut stream, mut binding) = (null_mut(), null_mut(), null_mut());
        let driver = DriverKind::HOST.0;
        let desc = gvmm_device_desc { struct_size: size_of::<gvmm_device_desc>(), driver, ordinal: 0 };
        // SAFETY: the pointers are to locals.
        check(unsafe { gvmm_device_open(&raw const desc, &raw mut device) });
        // SAFETY: as above.
        check(unsafe { gvmm_stream_create(device, &raw mut stream) });
        // SAFETY: numbers and a pointer, for which zero is a value.
        let mut desc: gvmm_binding_desc = unsafe { zeroed() };
        (desc.struct_size, desc.threshold_bytes) = (size_of::<gvmm_binding_desc>(), threshold_bytes);
        let slots = slots(recorded);
        let (first, stride) = (slots.as_ptr(), size_of::<gvmm_slot>());
        // SAFETY: as above, and as many slots as there are.
        check(unsafe {
            gvmm_binding_create(device, &raw const desc, first, slots.len(), stride, &raw mut binding)
        });
        let mut buffers = BTreeMap::new();
        let mut of = |number: &u64| *buffers.entry(*number).or_insert_with(|| buffer(device));
        let steps = recorded.steps.iter().map(|step| step.iter().map(&mut of).collect()).collect();
        let program = Self { binding, stream, steps };
        assert_eq!(program.begin(0, 0).0, GVMM_STATUS_RECORD_AGAIN);
        program
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    fn begin(&self, step: usize, generation: u64) -> (gvmm_status, gvmm_step_report) {
        let (buffers, stride) = (&self.steps[step], size_of::<gvmm_buffer>());
        let (first, count, stream) = (buffers.as_ptr(), buffers.len(), self.stream.cast());
        let mut report = report();
        // SAFETY: `buffers` lives, and the report is a local.
        let status = unsafe {
            gvmm_binding_begin(self.binding, stream, first, count, stride, generation, &raw mut report)
        };
        (status, report)
    }

    /// One step, with what begin and end cost.
    pub(crate) fn run(&self, step: usize) -> [Cost; 2] {
        let start = Instant::now();
        let (status, begun) = self.begin(step, 1);
        let took = start.elapsed();
        check(status);
        let mut ended = report();
        let start = Instant::now();
        // SAFETY: the report is a local.
        check(unsafe { gvmm_binding_end(self.binding, &raw mut ended) });
        let costs = [cost(&begun, took), cost(&ended, start.elapsed())];
        // SAFETY: a handle is looked up, never dereferenced.
        check(unsafe { gvmm_stream_synchronize(self.stream) });
        costs
    }
}

fn report() -> gvmm_step_report {
    // SAFETY: numbers, for which zero is a value.
    let zero: gvmm_step_report = unsafe { zeroed() };
    gvmm_step_report { struct_size: size_of::<gvmm_step_report>(), ..zero }
}

fn cost(report: &gvmm_step_report, took: Duration) -> Cost {
    Cost {
        own: took.saturating_sub(Duration::from_nanos(report.driver_ns + report.wait_ns)),
        changed: report.changed_slots,
        copied: report.copied_slots,
        calls: [report.map_calls, report.unmap_calls, report.set_access_calls, report.copy_launches],
    }
}
