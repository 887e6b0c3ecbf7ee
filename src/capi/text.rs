//! Text in the fields of C structs.

use std::ffi::c_char;

/// Text in a field of fixed size, cut between characters, with a NUL behind.
pub(super) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    let mut length = text.len().min(N.saturating_sub(1));
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    for (place, byte) in field.iter_mut().zip(text.bytes().take(length)) {
        *place = byte as c_char;
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(text::<4>("ab").map(|c| c as u8), *b"ab\0\0");
        assert_eq!(text::<4>("abcd").map(|c| c as u8), *b"abc\0");
        assert_eq!(text::<4>("ab\u{e9}").map(|c| c as u8), *b"ab\0\0");
    }
}
