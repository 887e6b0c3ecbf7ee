//! Reads the small files that an option names.

use std::fs::File;
use std::io::Read;

/// No more than this is read: a profile or a file of costs has a few thousand bytes, a device never ends.
const LARGEST: u64 = 1 << 20;

/// The text of the file at `path`. The error says what is wrong, without the path.
pub(crate) fn read(path: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err("more than 1 MiB, which no such file has".into());
    }
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_never_ends_is_refused() {
        assert!(read("/dev/zero").is_err_and(|error| error.contains("1 MiB")));
        assert!(read("/nowhere").is_err_and(|error| error.contains("No such file")));
        assert!(read("/proc/self/comm").is_ok_and(|text| !text.is_empty()));
    }
}
