//! A file of costs: what is read is written and read as the same.
#![no_main]

use gvmm::rebind::profile::Profile;
use libfuzzer_sys::fuzz_target;

// What is changed is a good file, since the keys are many: a byte says from which line on, and the rest stands there.
fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let good = Profile::builtin("h200").expect("built in").to_text();
    let at = usize::from(*first) % good.lines().count();
    let changed: Vec<&str> = good.lines().take(at).chain([text]).chain(good.lines().skip(at + 1)).collect();
    for text in [text, &changed.join("\n")] {
        if let Ok(profile) = Profile::parse(text) {
            assert_eq!(Profile::parse(&profile.to_text()), Ok(profile));
        }
    }
});
