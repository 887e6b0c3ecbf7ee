//! Where a recording comes from: a file or the standard input, plain or gzip.

use super::Unexpected;
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// Longer lines are no recording's.
const MAX_LINE_BYTES: usize = 64 << 10;

/// How gzip data begins.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Opens `path`, `-` being the standard input.
pub(super) fn open(path: &str) -> io::Result<Box<dyn BufRead>> {
    if path == "-" { decoded(io::stdin()) } else { decoded(File::open(path)?) }
}

/// Takes gzip by its first bytes, whatever the file is called.
pub(super) fn decoded(mut source: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut start = Vec::new();
    source.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut start)?;
    let is_gzip = start == GZIP_MAGIC;
    let whole = BufReader::new(Cursor::new(start).chain(source));
    Ok(if is_gzip { Box::new(BufReader::new(MultiGzDecoder::new(whole))) } else { Box::new(whole) })
}

/// The next line without its end, or none after the last.
pub(super) fn next_line<'a>(
    source: &mut impl BufRead,
    bytes: &'a mut Vec<u8>,
) -> Result<Option<&'a str>, Unexpected> {
    bytes.clear();
    let mut limited = source.take(MAX_LINE_BYTES as u64 + 1);
    if limited.read_until(b'\n', bytes).map_err(|error| unreadable(&error))? == 0 {
        return Ok(None);
    }
    if bytes.len() > MAX_LINE_BYTES {
        return Err(Unexpected::new(format!("a line of at most {MAX_LINE_BYTES} bytes"), "a longer one"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Some(text.trim_end_matches(['\n', '\r']))),
        Err(error) => {
            Err(Unexpected::new("text in UTF-8", format!("byte {:#04x}", bytes[error.valid_up_to()])))
        }
    }
}

fn unreadable(error: &io::Error) -> Unexpected {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Unexpected::new("the rest of the gzip data", "the end of the file"),
        _ => Unexpected::new("data that can be read", error.to_string()),
    }
}
