//! Many copies in one launch, by the kernel of `copy.cu`, where hiprtc compiles it; else in one call, or one by one.

use super::api::{Api, BY_ADDRESS, BatchAttributes, SUCCESS};
use super::context::{Core, Kit};
use super::rtc;
use super::selftest::Before;
use crate::driver::lines::Runtime;
use crate::driver::tiles::{THREADS, checked, lay_out};
use crate::driver::{CopySlice, Ordinal, Stream};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::DevicePtr;
use std::ffi::{CStr, c_void};

/// The entries of the kernel's text, by how many slices their table holds: 4 KiB of parameters at most.
const ENTRIES: &[(u32, &CStr)] =
    &[(8, c"gvmm_copy_8"), (32, c"gvmm_copy_32"), (64, c"gvmm_copy_64"), (170, c"gvmm_copy_170")];
/// A slice at least that large, with no other, goes to HIP's own copy, which knows the device's engines.
const LONE: u64 = 4 << 20;

/// The kernels, loaded onto one device.
#[derive(Debug)]
pub(super) struct Kernels {
    /// `hipModule_t`.
    pub(super) module: u64,
    /// `hipFunction_t`s by the slices that their table holds, smallest first; never empty.
    entries: Vec<(u32, u64)>,
}

impl Kernels {
    /// Compiles and loads the kernels for the current device, or none.
    pub(super) fn load(api: &Api, target: &str) -> Option<Self> {
        if !api.has_modules() {
            return None;
        }
        match rtc::compile(api, target).and_then(|code| Self::load_code(api, &code)) {
            Ok(kernels) => Some(kernels),
            Err(reason) => {
                log::warn!("no copy kernel ({reason}): slices are copied without it");
                None
            }
        }
    }

    fn load_code(api: &Api, code: &[u8]) -> std::result::Result<Self, String> {
        let mut module = 0;
        let status = api.module_load(&mut module, code.as_ptr());
        if status != SUCCESS {
            return Err(api.error(status, Operation::Open).to_string());
        }
        let mut entries = Vec::with_capacity(ENTRIES.len());
        for (capacity, name) in ENTRIES {
            let mut function = 0;
            if api.module_function(&mut function, module, name.as_ptr()) != SUCCESS {
                api.module_unload(module);
                return Err(format!("the module lacks {}", name.to_string_lossy()));
            }
            entries.push((*capacity, function));
        }
        Ok(Self { module, entries })
    }

    /// The most slices of one launch.
    fn most(&self) -> usize {
        self.entries.last().map_or(1, |(capacity, _)| *capacity as usize)
    }

    /// The smallest table that holds `count` slices: its capacity and its function.
    fn entry(&self, count: usize) -> Option<(usize, u64)> {
        let fits = |(capacity, _): &&(u32, u64)| *capacity as usize >= count;
        self.entries.iter().find(fits).map(|(capacity, function)| (*capacity as usize, *function))
    }
}

impl Core {
    /// Enqueues all slices, and says in how many launches.
    pub(super) fn copy(&self, device: Ordinal, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        let slices = checked(slices)?;
        if slices.is_empty() {
            return Ok(0);
        }
        self.check_stream(stream, device, Operation::Copy)?;
        let kit = self.kit(device, Operation::Copy)?;
        let _entered = self.enter_device(device, Operation::Copy)?;
        let before = self.device(device, Operation::Copy)?.findings.get().map_or(Before::Seen, |f| f.before);
        if before == Before::Seen {
            return self.enqueue(kit, stream, &slices);
        }
        let captured = self.captures(stream, Operation::Copy)?;
        if before == Before::Stale && !captured {
            let hint = "on this device a graph does not see what its stream wrote just before: record the copy \
                        into the graph";
            return Err(Error::new(Kind::Unsupported, Operation::Copy, hint));
        }
        let launches = self.enqueue(kit, stream, &slices)?;
        // What a graph launched after this would otherwise read stale.
        if !captured {
            self.api.check(self.api.stream_synchronize(stream.0), Operation::Copy)?;
        }
        Ok(launches)
    }

    /// The stream's device is current.
    pub(super) fn enqueue(&self, kit: &Kit, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        let Some(kernels) = &kit.kernels else { return self.without_kernels(stream, slices) };
        let mut launches = 0;
        for part in slices.chunks(kernels.most()) {
            match part {
                [lone] if lone.bytes >= LONE && self.pieces(part).len() == 1 => {
                    launches += self.one_by_one(stream, part)?;
                }
                _ => {
                    self.launch(kernels, stream, part)?;
                    launches += 1;
                }
            }
        }
        Ok(launches)
    }

    fn launch(&self, kernels: &Kernels, stream: Stream, slices: &[CopySlice]) -> Result<()> {
        let missing = || Error::new(Kind::Internal, Operation::Copy, "no kernel holds that many slices");
        let (capacity, function) = kernels.entry(slices.len()).ok_or_else(missing)?;
        let table = lay_out(slices, capacity);
        // HIP copies the parameters before it returns, also into a graph.
        let parameters: [*const c_void; 1] = [table.words.as_ptr().cast()];
        let (grid, block, none) = (table.tiles, THREADS, std::ptr::null());
        let status =
            self.api.launch_kernel(function, grid, 1, 1, block, 1, 1, 0, stream.0, parameters.as_ptr(), none);
        self.api.check(status, Operation::Copy)
    }

    /// The batch call is one call, but not one launch: each slice is a copy of its own to the device.
    fn without_kernels(&self, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        let pieces = self.pieces(slices);
        if pieces.len() == 1 || !self.api.has_batches() || self.captures(stream, Operation::Copy)? {
            return self.one_by_one(stream, &pieces);
        }
        let column = |of: fn(&CopySlice) -> u64| pieces.iter().map(of).collect::<Vec<u64>>();
        let (dsts, srcs) = (column(|s| s.dst.get()), column(|s| s.src.get()));
        let sizes = column(|s| s.bytes);
        let (attributes, start, mut failed) = (BatchAttributes { order: 1, ..Default::default() }, 0, 0);
        let status = self.api.copy_batch(
            dsts.as_ptr(),
            srcs.as_ptr(),
            sizes.as_ptr(),
            pieces.len() as u64,
            &raw const attributes,
            &raw const start,
            1,
            &raw mut failed,
            stream.0,
        );
        match status {
            SUCCESS => Ok(u32::try_from(pieces.len()).unwrap_or(u32::MAX)),
            // Refused as a whole: nothing was enqueued.
            1 | 801 => self.one_by_one(stream, &pieces),
            status => Err(self.api.error(status, Operation::Copy)),
        }
    }

    fn one_by_one(&self, stream: Stream, pieces: &[CopySlice]) -> Result<u32> {
        for (at, piece) in pieces.iter().enumerate() {
            let (dst, src) = (piece.dst.get(), piece.src.get());
            let status = self.api.copy_async(dst, src, piece.bytes, BY_ADDRESS, stream.0);
            self.api.check(status, Operation::Copy).map_err(|e| e.entry(at as u64))?;
        }
        Ok(u32::try_from(pieces.len()).unwrap_or(u32::MAX))
    }

    /// The slices, cut where one mapping ends and the next begins: HIP's own copies do not go across.
    fn pieces(&self, slices: &[CopySlice]) -> Vec<CopySlice> {
        let mut pieces = Vec::with_capacity(slices.len());
        for slice in slices {
            let (mut dst, mut src, mut left) = (slice.dst.get(), slice.src.get(), slice.bytes);
            while left > 0 {
                let bytes = left.min(self.holds.room_at(dst)).min(self.holds.room_at(src));
                pieces.push(CopySlice { dst: DevicePtr(dst), src: DevicePtr(src), bytes });
                (dst, src, left) = (dst + bytes, src + bytes, left - bytes);
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::tiles::{HEADER, SLICE};

    #[test]
    fn parameters_stay_below_the_limit() {
        assert!(ENTRIES.iter().all(|(count, _)| 8 * (HEADER + SLICE * *count as usize) <= 4096));
        let text = include_str!("../cuda/copy.cu");
        assert!(ENTRIES.iter().all(|(count, _)| text.contains(&format!("ENTRY({count})"))));
    }
}
