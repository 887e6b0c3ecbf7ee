//! Reads what a preloaded library wrote: a program's virtual-memory calls.

mod line;
mod report;
mod saved;
mod steps;

use crate::failure::Failure;
use clap::Args;
use line::Line;
use report::Report;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::ExitCode;

/// Shows the virtual-memory calls that a program made, as written by `gvmm run --trace`.
///
/// Calls by kind and by size, with the time until their answer; by step, where graphs were launched; how many had a driver
/// call of their own; and what a binding, which keeps addresses and blocks, would not have had to do. Times are of the
/// program's run.
#[derive(Args)]
pub(crate) struct VmmTrace {
    /// The trace; - reads the standard input
    file: String,

    /// Prints one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// No line of a trace is longer; one that is, is not a trace's.
const LONGEST: u64 = 1 << 16;

pub(crate) fn run(options: &VmmTrace) -> Result<ExitCode, Failure> {
    let path = &options.file;
    let failed = |error: std::io::Error| Failure::new(format!("{path}: {error}"));
    let report = if path == "-" {
        read(&mut std::io::stdin().lock())
    } else {
        read(&mut BufReader::new(File::open(path).map_err(failed)?))
    };
    let report = report.map_err(|why| Failure::new(format!("{path}: {why}")))?;
    crate::print(options.json, &report, Report::table)?;
    Ok(ExitCode::SUCCESS)
}

fn read(from: &mut impl BufRead) -> Result<Report, String> {
    let mut report = None;
    let mut text = Vec::new();
    loop {
        text.clear();
        let length = from.take(LONGEST).read_until(b'\n', &mut text).map_err(|error| error.to_string())?;
        if length == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&text);
        let line = line.trim_end();
        match &mut report {
            None => report = Some(Report::begin(line)?),
            Some(report) if !line.starts_with(['#', 't']) => match Line::read(line) {
                Some(line) => report.add(&line),
                None => report.unread += 1,
            },
            Some(_) => {}
        }
    }
    let report = report.ok_or("empty; no call was made, or no trace was written")?;
    Ok(report.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# gvmm vmm-trace 1 cuda 17\ntime_ns,thread,call,status,took_ns,address,bytes,handle,devices,vendor_calls\n";

    fn of(lines: &str) -> Report {
        read(&mut format!("{HEAD}{lines}").as_bytes()).expect("a trace")
    }

    #[test]
    fn calls_are_counted_by_kind_and_size() {
        let report = of(
            "1,5,create,0,1000,0,2097152,a,,1\n2,5,create,2,3000,0,2097152,0,,1\n3,5,get_access,0,50,1000,0,0,,0\n",
        );
        let text = serde_json::to_value(&report).expect("JSON");
        assert_eq!(text["calls"][0]["call"], "create");
        assert_eq!(text["calls"][0]["count"], 2);
        assert_eq!(text["calls"][0]["errors"], 1);
        assert_eq!(text["calls"][1]["spared"], 1);
        assert_eq!(text["sizes"][0]["bytes"], 2_097_152);
        assert!(report.table().contains("create"));
    }

    #[test]
    fn what_comes_again_is_what_a_binding_keeps() {
        let one = "1,5,create,0,10000,0,4096,a,,1\n2,5,reserve,0,1000,f000,4096,0,,1\n3,5,map,0,1000,f000,4096,a,,1\n\
                   4,5,set_access,0,30000,f000,4096,0,0,1\n5,5,set_access,0,40000,f000,4096,0,1,1\n6,5,unmap,0,20000,f000,4096,0,,1\n\
                   7,5,release,0,2000,0,0,a,,1\n8,5,free,0,3000,f000,4096,0,,1\n";
        let saved = |report: &Report| serde_json::to_value(report).expect("JSON")["binding"].clone();
        assert_eq!(saved(&of(one))["calls"], 0);
        let twice = saved(&of(&format!("{one}{one}")));
        assert_eq!(twice["calls"], 8);
        assert_eq!(twice["us"], 107.0);
        assert_eq!(twice["joinable_set_access"], 2);
        // A call that failed made nothing again, and one over more than a mapping is not that mapping's.
        let failed = "9,5,create,2,99000,0,4096,0,,1\n";
        assert_eq!(saved(&of(&format!("{one}{failed}{one}"))), twice);
        let wide = one.replace("6,5,unmap", "6,5,set_access,0,7000,f000,8192,0,0,1\n6,5,unmap");
        assert_eq!(saved(&of(&wide))["joinable_set_access"], 1);
    }

    #[test]
    fn steps_are_told_by_the_graph_that_is_launched_most() {
        let step =
            "1,5,launch,0,5000,77,0,e1,,1\n2,5,map,0,1000,f000,4096,a,,1\n3,5,launch,0,5000,77,0,e2,,1\n";
        let last = "4,5,launch,0,5000,77,0,e1,,1\n";
        let report = of(&[step, step, step, last, last].concat());
        let text = serde_json::to_value(&report).expect("JSON");
        assert_eq!((&text["steps"]["count"], &text["steps"]["quiet"]), (&4.into(), &1.into()));
        assert_eq!((&text["steps"]["calls_mean"], &text["steps"]["calls_max"]), (&0.75.into(), &1.into()));
        assert!(serde_json::to_value(of("")).expect("JSON")["steps"].is_null());
    }

    #[test]
    fn what_is_no_trace_is_refused_and_odd_lines_are_counted() {
        assert!(read(&mut "a,b,c\n".as_bytes()).is_err());
        assert!(read(&mut "".as_bytes()).is_err());
        assert!(read(&mut "# gvmm vmm-trace 2 cuda 1\n".as_bytes()).is_err());
        let most = "1,5,create,0,18446744073709551615,0,1,a,,18446744073709551615\n";
        let launch = "1,5,launch,0,18446744073709551615,1,0,1,,1\n";
        let text = serde_json::to_value(of(&[launch, most, most, launch].concat())).expect("JSON");
        assert_eq!(
            (&text["steps"]["count"], &text["calls"][0]["count"]),
            (&1.into(), &2.into()),
            "no sum passes its end"
        );
        assert_eq!(of("1,5,map,0\nx\n9,5,map,0,zz,f,1,1,,1\n").unread, 3);
    }
}
