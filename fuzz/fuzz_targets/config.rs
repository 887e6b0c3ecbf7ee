//! Variables of the environment: any value is taken, or is one warning and the default.
#![no_main]

use gvmm::config::{Config, variables};
use libfuzzer_sys::fuzz_target;

// The first byte says which variable.
fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let set = variables()[usize::from(*first) % variables().len()].name;
    let Ok(value) = std::str::from_utf8(rest) else { return };
    let (config, warnings) = Config::read(|name| (name == set).then(|| value.to_owned()));
    assert!(warnings.len() <= 1, "{warnings:?}");
    assert!(warnings.is_empty() || config == Config::default(), "{set}={value}");
});
