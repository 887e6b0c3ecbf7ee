//! One line of a recording: `step,slot,role,bytes,buffer`.

use super::Unexpected;

/// What a line looks like, for messages.
pub(super) const SHAPE: &str = "step,slot,role,bytes,buffer";

/// More than any address space holds.
pub(crate) const MAX_BYTES: u64 = 1 << 46;

/// How much of a wrong text a message shows.
const SHOWN_CHARS: usize = 60;

/// Whether the step reads or writes the slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Role {
    In,
    Out,
}

/// The fields of a line.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Line<'a> {
    pub(super) step: u64,
    pub(super) name: &'a str,
    pub(super) role: Role,
    pub(super) bytes: u64,
    pub(super) buffer: u64,
}

/// Takes a line apart. The name is all that lies between the first comma and the last three, so it may hold
/// commas itself.
pub(super) fn parse(text: &str) -> Result<Line<'_>, Unexpected> {
    let (step, name, role, bytes, buffer) = split(text).ok_or_else(|| Unexpected::new(SHAPE, shown(text)))?;
    let step = number(step, "a step's number")?;
    let role = match role {
        "in" => Role::In,
        "out" => Role::Out,
        other => return Err(Unexpected::new("the role in or out", shown(other))),
    };
    let size = number(bytes, "a number of bytes")?;
    if !(1..=MAX_BYTES).contains(&size) {
        return Err(Unexpected::new(format!("1 to {MAX_BYTES} bytes"), shown(bytes)));
    }
    Ok(Line { step, name, role, bytes: size, buffer: number(buffer, "a buffer's number")? })
}

fn split(text: &str) -> Option<(&str, &str, &str, &str, &str)> {
    let (step, rest) = text.split_once(',')?;
    let mut fields = rest.rsplitn(4, ',');
    let (buffer, bytes, role, name) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    Some((step, name, role, bytes, buffer))
}

/// Digits only: no sign, no blanks.
pub(crate) fn number(text: &str, expected: &str) -> Result<u64, Unexpected> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if is_number => Ok(number),
        _ => Err(Unexpected::new(expected, shown(text))),
    }
}

/// A text from the file as it may stand in a message: quoted, escaped and not too long.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_commas() {
        let line = parse("3,[0],x,out,64,7").expect("a good line");
        assert_eq!(line, Line { step: 3, name: "[0],x", role: Role::Out, bytes: 64, buffer: 7 });
    }

    #[test]
    fn each_broken_field_is_named() {
        let cases = [
            ("", SHAPE, "\"\""),
            ("0,a,in,4", SHAPE, "\"0,a,in,4\""),
            ("x,a,in,4,1", "a step's number", "\"x\""),
            ("-1,a,in,4,1", "a step's number", "\"-1\""),
            ("+1,a,in,4,1", "a step's number", "\"+1\""),
            (",a,in,4,1", "a step's number", "\"\""),
            ("0,a,inout,4,1", "the role in or out", "\"inout\""),
            ("0,a,in,4 ,1", "a number of bytes", "\"4 \""),
            ("0,a,in,99999999999999999999,1", "a number of bytes", "\"99999999999999999999\""),
            ("0,a,in,0,1", "1 to 70368744177664 bytes", "\"0\""),
            ("0,a,in,70368744177665,1", "1 to 70368744177664 bytes", "\"70368744177665\""),
            ("0,a,in,4,0x1", "a buffer's number", "\"0x1\""),
        ];
        for (text, expected, found) in cases {
            assert_eq!(parse(text), Err(Unexpected::new(expected, found)), "{text}");
        }
    }

    #[test]
    fn long_texts_are_cut_and_escaped() {
        assert_eq!(shown("a\u{1b}"), "\"a\\u{1b}\"");
        assert_eq!(shown(&"é".repeat(100)), format!("\"{}\"...", "é".repeat(60)));
    }
}
