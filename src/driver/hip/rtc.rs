//! `hiprtc`, which compiles the copy kernel for the device at hand. It comes with ROCm, in a library of its own or
//! in the runtime's; where it is missing, nothing is compiled.

use super::api::Api;
use crate::driver::library::{Library, Places};
use std::ffi::{CStr, CString, c_char};
use std::path::PathBuf;

/// Where the library may be; the runtime's own folder comes first.
const PLACES: Places = Places { base: "libhiprtc.so", sonames: &["libhiprtc.so.7", "libhiprtc.so.6"] };

/// The text that NVIDIA's and AMD's kernels share, but for the part between the two marks.
const SHARED: &str = include_str!("../cuda/copy.cu");
const FIRST_MARK: &str = "struct Vector {";
const LAST_MARK: &str = "// Both sides have the same offset";
/// What stands between them here.
const OWN: &str = include_str!("copy_head.cu");

mod table {
    //! The functions of `hiprtc.h`.
    #![allow(unsafe_code, reason = "calls through the addresses that dlsym gave")]

    use crate::driver::table::table;
    use std::ffi::c_char;

    table! {
        answers i32; missing -1;
        required {
            create = c"hiprtcCreateProgram" (program: &mut u64, source: *const c_char, name: *const c_char,
                headers: i32, texts: *const *const c_char, names: *const *const c_char);
            compile = c"hiprtcCompileProgram" (program: u64, count: i32, options: *const *const c_char);
            log_size = c"hiprtcGetProgramLogSize" (program: u64, bytes: &mut u64);
            log = c"hiprtcGetProgramLog" (program: u64, text: *mut u8);
            code_size = c"hiprtcGetCodeSize" (program: u64, bytes: &mut u64);
            code = c"hiprtcGetCode" (program: u64, code: *mut u8);
            destroy = c"hiprtcDestroyProgram" (program: &mut u64);
        }
        optional {}
    }
}

/// The whole text of the kernel, or none where the shared part has lost its marks (a test sees that it has not).
fn source() -> Option<CString> {
    let (first, last) = (SHARED.find(FIRST_MARK)?, SHARED.find(LAST_MARK)?);
    CString::new(format!("{}{OWN}{}", SHARED.get(..first)?, SHARED.get(last..)?)).ok()
}

/// Compiles the copy kernel for `target` (`gfx90a:xnack-`), or for the current device where that is "".
///
/// # Errors
///
/// What was missing or wrong, for the log.
pub(super) fn compile(api: &Api, target: &str) -> Result<Vec<u8>, String> {
    let rtc = open(api)?;
    log::debug!("the copy kernel is compiled by {}", rtc.library.path().display());
    let source = source().ok_or("the kernel's text has lost its marks")?;
    let mut program = 0;
    let none = std::ptr::null();
    match rtc.create(&mut program, source.as_ptr(), c"gvmm_copy".as_ptr(), 0, none, none) {
        0 => {}
        status => return Err(format!("hiprtcCreateProgram: {status}")),
    }
    let code = build(&rtc, program, target);
    rtc.destroy(&mut program);
    code
}

fn build(rtc: &table::Api, program: u64, target: &str) -> Result<Vec<u8>, String> {
    let target = CString::new(format!("--offload-arch={target}")).unwrap_or_default();
    let mut options: Vec<*const c_char> = vec![c"-O3".as_ptr()];
    // Without it, hiprtc asks the runtime for the current device, and may load a second runtime to do so.
    if target.to_bytes().last() != Some(&b'=') {
        options.push(target.as_ptr());
    }
    let count = i32::try_from(options.len()).unwrap_or(0);
    match rtc.compile(program, count, options.as_ptr()) {
        0 => {}
        status => return Err(format!("hiprtcCompileProgram: {status}: {}", log_of(rtc, program))),
    }
    let mut bytes = 0;
    match rtc.code_size(program, &mut bytes) {
        0 if bytes > 0 => {}
        status => return Err(format!("hiprtcGetCodeSize: {status}")),
    }
    let mut code = vec![0_u8; usize::try_from(bytes).unwrap_or(0)];
    match rtc.code(program, code.as_mut_ptr()) {
        0 => Ok(code),
        status => Err(format!("hiprtcGetCode: {status}")),
    }
}

fn log_of(rtc: &table::Api, program: u64) -> String {
    let mut bytes = 0;
    if rtc.log_size(program, &mut bytes) != 0 {
        return String::new();
    }
    // One more, should the text lack its last zero byte.
    let mut text = vec![0_u8; usize::try_from(bytes).unwrap_or(0) + 1];
    if rtc.log(program, text.as_mut_ptr()) != 0 {
        return String::new();
    }
    CStr::from_bytes_until_nul(&text).map(|t| t.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The functions from the runtime itself where it has them, which is sure to fit; else from beside it, or from
/// wherever the loader has it.
fn open(api: &Api) -> Result<table::Api, String> {
    let runtime = api.library().path();
    if api.library().symbol(c"hiprtcCreateProgram").is_some()
        && let Ok(own) = Library::open(super::api::PLACES, Some(runtime))
        && let Ok(table) = table::Api::load(own)
    {
        return Ok(table);
    }
    let beside = |name: &&str| runtime.parent().map(|folder| folder.join(name)).filter(|p| p.is_absolute());
    let candidates: Vec<PathBuf> = PLACES.sonames.iter().filter_map(beside).collect();
    let near = candidates.iter().find_map(|path| Library::open(PLACES, Some(path)).ok());
    let library = match near {
        Some(library) => library,
        None => Library::open(PLACES, None).map_err(|e| e.hint.to_owned())?,
    };
    table::Api::load(library).map_err(|symbol| format!("libhiprtc lacks {}", symbol.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_whole_and_free_of_nvidias_instructions() {
        let text = source().expect("the marks are there");
        let text = text.to_str().expect("ASCII");
        assert!(!text.contains("asm") && text.contains("ext_vector_type(4)"));
        for part in ["struct Slice", "load_vector(u64 a)", "copy_words(u64 dst", "ENTRY(170)"] {
            assert_eq!(text.matches(part).count(), 1, "{part}");
        }
    }
}
