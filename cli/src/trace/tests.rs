//! Tests of whole recordings, good and broken.

use super::{Builder, Trace, read_from, source};
use flate2::{Compression, write::GzEncoder};
use std::io::{Cursor, Write};

fn read(text: &[u8]) -> Result<Trace, String> {
    let source = source::decoded(Cursor::new(text.to_vec())).expect("memory can be read");
    let read = read_from(source, "t.csv", Builder::default(), Builder::add_line, Builder::finish);
    read.map_err(|error| error.to_string())
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).expect("memory can be written");
    encoder.finish().expect("memory can be written")
}

const GOOD: &str = "# comment\n0,p,in,8,1\n0,x,in,4,2\n0,p,out,8,1\n0,x,out,4,3\n\
                    1,x,out,4,2\n1,p,in,8,4\n1,p,out,8,4\n1,x,in,4,2\n";

#[test]
fn a_name_in_and_out_with_one_buffer_in_each_step_is_one_slot() {
    let trace = read(GOOD.as_bytes()).expect("a good recording");
    let slots: Vec<_> = trace.slots.iter().map(|s| (s.name.as_str(), s.bytes, s.is_in, s.is_out)).collect();
    assert_eq!(slots, [("p", 8, true, true), ("x", 4, true, false), ("x", 4, false, true)]);
    assert_eq!(trace.steps, [[1, 2, 3], [4, 2, 2]]);
}

#[test]
fn gzip_is_known_by_its_first_bytes() {
    let trace = read(&gzip(GOOD)).expect("a good recording");
    assert_eq!((trace.slots.len(), trace.steps.len()), (3, 2));
}

#[test]
fn line_ends_of_any_kind_are_taken() {
    let text = GOOD.replace('\n', "\r\n");
    assert_eq!(read(text.trim_end().as_bytes()).expect("a good recording").steps.len(), 2);
}

#[test]
fn broken_recordings_name_file_line_expected_and_found() {
    let cases = [
        ("", "t.csv:1: expected step,slot,role,bytes,buffer, found the end of the file"),
        ("# only\n", "t.csv:1: expected step,slot,role,bytes,buffer, found the end of the file"),
        ("#\n\n0,a,on,4,1\n", "t.csv:3: expected the role in or out, found \"on\""),
        ("1,a,in,4,1\n", "t.csv:1: expected step 0, found step 1"),
        ("0,a,in,4,1\n2,a,in,4,1\n", "t.csv:2: expected step 0 or 1, found step 2"),
        ("0,a,in,4,1\n1,a,in,4,1\n0,a,in,4,1\n", "t.csv:3: expected step 1 or 2, found step 0"),
        ("0,a,in,4,1\n0,a,in,4,1\n", "t.csv:2: expected each slot once a step, found slot \"a\" (in) again"),
        ("0,a,in,4,1\n1,a,in,8,1\n", "t.csv:2: expected 4 bytes as in step 0, found 8"),
        ("0,a,in,4,1\n1,b,in,4,1\n", "t.csv:2: expected one of the slots of step 0, found slot \"b\" (in)"),
        (
            "0,a,in,4,1\n0,b,out,4,2\n1,a,in,4,1\n2,a,in,4,1\n",
            "t.csv:4: expected slot \"b\" (out) in step 1, found step 2",
        ),
        (
            "0,a,in,4,1\n0,b,out,4,2\n1,a,in,4,1\n",
            "t.csv:3: expected slot \"b\" (out) in step 1, found the end of the file",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(read(text.as_bytes()).expect_err(text), message);
    }
}

#[test]
fn text_that_is_not_utf8_names_its_byte() {
    let error = read(b"0,a,in,4,1\n0,\xff,in,4,2\n").expect_err("a broken recording");
    assert_eq!(error, "t.csv:2: expected text in UTF-8, found byte 0xff");
}

#[test]
fn gzip_data_that_is_cut_off_says_so() {
    let text: String = (0..2000).map(|step| format!("{step},a,in,4,{}\n", step * step % 97)).collect();
    let whole = gzip(&text);
    let error = read(&whole[..whole.len() / 2]).expect_err("a broken recording");
    assert!(error.ends_with("expected the rest of the gzip data, found the end of the file"), "{error}");
    let mut wrong = whole;
    let end = wrong.len() - 6;
    wrong[end] ^= 1;
    let error = read(&wrong).expect_err("a broken recording");
    assert!(error.contains("expected data that can be read, found"), "{error}");
}

#[test]
fn a_line_without_end_is_refused() {
    let error = read(&[b'0'; 1 << 17]).expect_err("a broken recording");
    assert_eq!(error, "t.csv:1: expected a line of at most 65536 bytes, found a longer one");
}
