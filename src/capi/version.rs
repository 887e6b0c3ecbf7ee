//! The version.
#![allow(unsafe_code, reason = "exports symbols")]

use std::ffi::{CStr, c_char};

/// The version as text; its one source is Cargo.toml.
const TEXT: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => c"",
};

/// The version as a number: major * 1,000,000 + minor * 1,000 + patch.
pub const VERSION: u32 = number(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 1_000
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const fn number(digits: &str) -> u32 {
    let (digits, mut value, mut i) = (digits.as_bytes(), 0, 0);
    while i < digits.len() {
        value = value * 10 + (digits[i] - b'0') as u32;
        i += 1;
    }
    value
}

/// Gives the version of the library that is loaded; compare with GVMM_VERSION_NUMBER, the header's.
///
/// State: needs none and changes none; works in a child after fork.
/// Returns: major * 1,000,000 + minor * 1,000 + patch.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gvmm_version_number() -> u32 {
    VERSION
}

/// Gives the version of the library that is loaded, as text such as `0.1.0`.
///
/// State: needs none and changes none; works in a child after fork.
/// Returns: a string that lives as long as the process, never NULL.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gvmm_version_string() -> *const c_char {
    TEXT.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_the_text() {
        let text = TEXT.to_str().expect("ASCII");
        let (major, rest) = (VERSION / 1_000_000, VERSION % 1_000_000);
        assert_eq!(text, format!("{major}.{}.{}", rest / 1_000, rest % 1_000));
    }
}
