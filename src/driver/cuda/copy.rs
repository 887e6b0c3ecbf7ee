//! Many copies in one launch, by the kernel of `copy.cu`.

use super::api::{Api, SUCCESS};
use super::context::{Context, Core};
use crate::driver::quirks::Care;
use crate::driver::tiles::{THREADS, checked, lay_out};
use crate::driver::{CopySlice, Ordinal, Stream};
use crate::error::{Error, Kind, Operation, Result};
use std::ffi::{CStr, c_void};

/// For CUDA 11.0 and sm_50 or later.
const OLD: &CStr = text(concat!(include_str!("copy_old.ptx"), "\0"));
/// For CUDA 12.1 and sm_70 or later.
const NEW: &CStr = text(concat!(include_str!("copy_new.ptx"), "\0"));

/// The entries of each text, by how many slices their table holds.
const OLD_ENTRIES: &[(u32, &CStr)] =
    &[(8, c"gvmm_copy_8"), (32, c"gvmm_copy_32"), (64, c"gvmm_copy_64"), (170, c"gvmm_copy_170")];
const NEW_ENTRIES: &[(u32, &CStr)] = &[
    (8, c"gvmm_copy_8"),
    (32, c"gvmm_copy_32"),
    (64, c"gvmm_copy_64"),
    (170, c"gvmm_copy_170"),
    (256, c"gvmm_copy_256"),
    (512, c"gvmm_copy_512"),
    (1024, c"gvmm_copy_1024"),
    (1364, c"gvmm_copy_1364"),
];

/// Those for routes, by how many far ends they take.
const OLD_ROUTES: &[(u32, &CStr)] = &[
    (64, c"gvmm_route_64"),
    (136, c"gvmm_route_136"),
    (264, c"gvmm_route_264"),
    (392, c"gvmm_route_392"),
    (508, c"gvmm_route_508"),
];
const NEW_ROUTES: &[(u32, &CStr)] = &[
    (64, c"gvmm_route_64"),
    (136, c"gvmm_route_136"),
    (264, c"gvmm_route_264"),
    (392, c"gvmm_route_392"),
    (508, c"gvmm_route_508"),
    (520, c"gvmm_route_520"),
    (776, c"gvmm_route_776"),
    (1032, c"gvmm_route_1032"),
    (1544, c"gvmm_route_1544"),
    (2056, c"gvmm_route_2056"),
    (3080, c"gvmm_route_3080"),
    (4092, c"gvmm_route_4092"),
];

/// A slice at least that large, with no other, goes to the driver's own copy, which knows the device's engines.
pub(super) const LONE: u64 = 4 << 20;

const fn text(text: &str) -> &CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a PTX text has no zero byte inside"),
    }
}

type Names = &'static [(u32, &'static CStr)];

/// The kernels, loaded into one context.
#[derive(Debug)]
pub(super) struct Kernels {
    /// `CUmodule`.
    pub(super) module: u64,
    /// `CUfunction`s by the slices that their table holds, smallest first; never empty.
    entries: Vec<(u32, u64)>,
    /// The same for routes, by their far ends.
    routes: Vec<(u32, u64)>,
}

impl Kernels {
    /// Loads the better text that the driver takes into the current context, or none.
    pub(super) fn load(api: &Api, care: Care) -> Option<Self> {
        if care.has(Care::NO_KERNELS) {
            return None;
        }
        let newer =
            (!care.has(Care::SMALL_PARAMETERS)).then(|| Self::load_text(api, NEW, NEW_ENTRIES, NEW_ROUTES));
        let loaded = newer.flatten().or_else(|| Self::load_text(api, OLD, OLD_ENTRIES, OLD_ROUTES));
        if loaded.is_none() {
            log::warn!("the copy kernel could not be loaded: slices are copied one by one");
        }
        loaded
    }

    fn load_text(api: &Api, text: &CStr, tables: Names, routes: Names) -> Option<Self> {
        let mut module = 0;
        let status = api.module_load(&mut module, text.as_ptr().cast());
        if status != SUCCESS {
            log::info!("a copy kernel's text is refused: {}", api.error(status, Operation::Open));
            return None;
        }
        let find = |names: Names| names.iter().map(|(n, name)| Some((*n, function(api, module, name)?)));
        let found = find(tables).collect::<Option<_>>();
        let found = found.zip(find(routes).collect::<Option<_>>());
        if found.is_none() {
            api.module_unload(module);
        }
        let (entries, routes) = found?;
        Some(Self { module, entries, routes })
    }

    /// The most slices of one launch.
    fn most(&self) -> usize {
        self.entries.last().map_or(1, |(capacity, _)| *capacity as usize)
    }

    /// The smallest table that holds `count` slices: its capacity and its function.
    fn entry(&self, count: usize) -> Option<(usize, u64)> {
        smallest(&self.entries, count)
    }

    /// The most far ends of one launch of a route.
    pub(super) fn most_of_route(&self) -> usize {
        self.routes.last().map_or(1, |(capacity, _)| *capacity as usize)
    }

    /// The kernel of a route for `count` far ends at least: their number and its function.
    pub(super) fn of_route(&self, count: usize) -> Option<(usize, u64)> {
        smallest(&self.routes, count)
    }
}

fn function(api: &Api, module: u64, name: &CStr) -> Option<u64> {
    let mut function = 0;
    (api.module_function(&mut function, module, name.as_ptr()) == SUCCESS).then_some(function)
}

fn smallest(entries: &[(u32, u64)], count: usize) -> Option<(usize, u64)> {
    let fits = |(capacity, _): &&(u32, u64)| *capacity as usize >= count;
    entries.iter().find(fits).map(|(capacity, function)| (*capacity as usize, *function))
}

impl Core {
    /// Enqueues all slices, and says in how many launches.
    pub(super) fn copy(&self, device: Ordinal, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        let slices = checked(slices)?;
        if slices.is_empty() {
            return Ok(0);
        }
        self.launching(stream, device, |context| self.enqueue(context, stream, &slices))
    }

    /// The stream's context is current.
    pub(super) fn enqueue(&self, context: &Context, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        let Some(kernels) = &context.kernels else { return self.one_by_one(stream, slices) };
        let mut launches = 0;
        for part in slices.chunks(kernels.most()) {
            match part {
                [lone] if lone.bytes >= LONE => launches += self.one_by_one(stream, part)?,
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
        // The driver copies the parameters before it returns, also into a graph.
        let parameters: [*const c_void; 1] = [table.words.as_ptr().cast()];
        let (grid, block, none) = (table.tiles, THREADS, std::ptr::null());
        let status =
            self.api.launch_kernel(function, grid, 1, 1, block, 1, 1, 0, stream.0, parameters.as_ptr(), none);
        self.api.check(status, Operation::Copy)
    }

    fn one_by_one(&self, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        for (at, slice) in slices.iter().enumerate() {
            let status = self.api.copy_async(slice.dst.get(), slice.src.get(), slice.bytes, stream.0);
            self.api.check(status, Operation::Copy).map_err(|e| e.entry(at as u64))?;
        }
        Ok(u32::try_from(slices.len()).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::tiles::{HEADER, ROUTE_HEADER, SLICE};

    #[test]
    fn a_routes_parameters_stay_below_the_limits() {
        for (text, routes, most) in [(OLD, OLD_ROUTES, 4096), (NEW, NEW_ROUTES, 32_764)] {
            let text = text.to_str().expect("PTX is ASCII");
            for (count, name) in routes {
                let bytes = 8 * (ROUTE_HEADER + *count as usize);
                let parameter = format!("{}_param_0[{bytes}]", name.to_str().expect("ASCII"));
                assert!(bytes <= most && text.contains(&parameter), "{parameter} is not in the text");
            }
        }
    }

    #[test]
    fn parameters_stay_below_the_limits() {
        let bytes = |count: u32| 8 * (HEADER + SLICE * count as usize);
        assert!(OLD_ENTRIES.iter().all(|(count, _)| bytes(*count) <= 4096));
        assert!(NEW_ENTRIES.iter().all(|(count, _)| bytes(*count) <= 32_764));
        for (text, entries) in [(OLD, OLD_ENTRIES), (NEW, NEW_ENTRIES)] {
            let text = text.to_str().expect("PTX is ASCII");
            for (count, name) in entries {
                let name = name.to_str().expect("ASCII");
                let parameter = format!("{name}_param_0[{}]", bytes(*count));
                assert!(text.contains(&parameter), "{parameter} is not in the text");
            }
        }
    }
}
