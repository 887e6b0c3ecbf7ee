//! A file of simulated costs: what a device's owner measured, as JSON.

use crate::small;
use gvmm::driver::host::{Costs, Point};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How the file looks, for `--help`.
pub(crate) const HELP: &str = "\
A file of costs is what `gvmm bench vmm --save` writes, or its field `costs` alone: JSON, all times in \
microseconds. Every field may be left out; a call without a cost takes as \
long as it takes here. A cost \"by bytes\" or \"by slices\" is a number, or a table [[at, us], ...] with rising \
\"at\", between whose points costs are interpolated.

  name                        shown as \"simulated: NAME\"; the file's name if left out
  reserve_us, free_us         one reserve, one free of addresses
  create                      one block, by bytes
  release                     one release of a block, by bytes
  map_us                      one map
  unmap, set_access           each mapping, by bytes
  peer_set_access_us          once more for a set access that names a peer (another device)
  peer_set_access_mapping     each mapping in such a call, by bytes, instead of set_access
  first_peer_set_access       once more where no peer could reach a mapping of the device before, by bytes
  peer_unmap                  the least for a mapping that a peer can reach, by bytes
  last_peer_unmap             once more where a peer can reach no other mapping of the device, by bytes
  further_peer_set_access_us, further_peer_set_access_mapping_us, further_first_peer_set_access_us,
  further_peer_unmap_us, further_last_peer_unmap_us
                              once more for each peer after the first
  allocate_us, deallocate_us  plain device memory
  copy_joint_host             what the caller pays for a joint copy, by slices
  copy_joint_device           what the stream takes for it besides moving the bytes, by slices
  copy_single_host_us         the same for each slice where copies are not joined
  copy_single_device_us
  bandwidth                   bytes a second, reads and writes both counted";

/// The file's fields: those of [`Costs`].
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct File {
    name: Option<String>,
    reserve_us: f64,
    free_us: f64,
    create: Table,
    release: Table,
    map_us: f64,
    unmap: Table,
    set_access: Table,
    peer_set_access_us: f64,
    further_peer_set_access_us: f64,
    first_peer_set_access: Table,
    further_first_peer_set_access_us: f64,
    peer_set_access_mapping: Table,
    further_peer_set_access_mapping_us: f64,
    peer_unmap: Table,
    further_peer_unmap_us: f64,
    last_peer_unmap: Table,
    further_last_peer_unmap_us: f64,
    allocate_us: f64,
    deallocate_us: f64,
    copy_joint_host: Table,
    copy_joint_device: Table,
    copy_single_host_us: f64,
    copy_single_device_us: f64,
    bandwidth: u64,
}

/// The same at every size, or points to interpolate between.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number or a table [[at, us], ...]")]
enum Table {
    Constant(f64),
    Points(Vec<(u64, f64)>),
}

/// What a benchmark saved, as far as it is about costs.
#[derive(Deserialize)]
struct Saved {
    costs: Option<File>,
}

impl From<Costs> for File {
    fn from(costs: Costs) -> Self {
        let table = |points: Vec<Point>| Table::Points(points.iter().map(|p| (p.at, p.us)).collect());
        Self {
            name: Some(costs.name),
            reserve_us: costs.reserve_us,
            free_us: costs.free_us,
            create: table(costs.create),
            release: table(costs.release),
            map_us: costs.map_us,
            unmap: table(costs.unmap),
            set_access: table(costs.set_access),
            peer_set_access_us: costs.peer_set_access_us,
            further_peer_set_access_us: costs.further_peer_set_access_us,
            first_peer_set_access: table(costs.first_peer_set_access),
            further_first_peer_set_access_us: costs.further_first_peer_set_access_us,
            peer_set_access_mapping: table(costs.peer_set_access_mapping),
            further_peer_set_access_mapping_us: costs.further_peer_set_access_mapping_us,
            peer_unmap: table(costs.peer_unmap),
            further_peer_unmap_us: costs.further_peer_unmap_us,
            last_peer_unmap: table(costs.last_peer_unmap),
            further_last_peer_unmap_us: costs.further_last_peer_unmap_us,
            allocate_us: costs.allocate_us,
            deallocate_us: costs.deallocate_us,
            copy_joint_host: table(costs.copy_joint_host),
            copy_joint_device: table(costs.copy_joint_device),
            copy_single_host_us: costs.copy_single_host_us,
            copy_single_device_us: costs.copy_single_device_us,
            bandwidth: costs.bandwidth,
        }
    }
}

impl File {
    /// Bytes a second, reads and writes both counted.
    pub(crate) const fn bandwidth(&self) -> u64 {
        self.bandwidth
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::Points(Vec::new())
    }
}

/// Reads a file of costs. The error says file, place and field.
pub(crate) fn read(path: &str) -> Result<Costs, String> {
    let text = small::read(path).map_err(|error| {
        format!("{path}: expected none, h200, h200-peer or a file of costs that can be read, found {error}")
    })?;
    let stem = Path::new(path).file_stem().map_or_else(|| path.into(), |stem| stem.to_string_lossy());
    parse(&text, &stem).map_err(|problem| format!("{path}:{problem}"))
}

fn parse(text: &str, name: &str) -> Result<Costs, String> {
    let bad = |error: serde_json::Error| format!("{}: {error}", error.line());
    let file = match serde_json::from_str(text).map_err(bad)? {
        Saved { costs: Some(file) } => file,
        Saved { costs: None } => serde_json::from_str(text).map_err(bad)?,
    };
    let costs = Costs {
        reserve_us: time("reserve_us", file.reserve_us)?,
        free_us: time("free_us", file.free_us)?,
        create: table("create", file.create)?,
        release: table("release", file.release)?,
        map_us: time("map_us", file.map_us)?,
        unmap: table("unmap", file.unmap)?,
        set_access: table("set_access", file.set_access)?,
        peer_set_access_us: time("peer_set_access_us", file.peer_set_access_us)?,
        further_peer_set_access_us: time("further_peer_set_access_us", file.further_peer_set_access_us)?,
        first_peer_set_access: table("first_peer_set_access", file.first_peer_set_access)?,
        further_first_peer_set_access_us: time(
            "further_first_peer_set_access_us",
            file.further_first_peer_set_access_us,
        )?,
        peer_set_access_mapping: table("peer_set_access_mapping", file.peer_set_access_mapping)?,
        further_peer_set_access_mapping_us: time(
            "further_peer_set_access_mapping_us",
            file.further_peer_set_access_mapping_us,
        )?,
        peer_unmap: table("peer_unmap", file.peer_unmap)?,
        further_peer_unmap_us: time("further_peer_unmap_us", file.further_peer_unmap_us)?,
        last_peer_unmap: table("last_peer_unmap", file.last_peer_unmap)?,
        further_last_peer_unmap_us: time("further_last_peer_unmap_us", file.further_last_peer_unmap_us)?,
        allocate_us: time("allocate_us", file.allocate_us)?,
        deallocate_us: time("deallocate_us", file.deallocate_us)?,
        copy_joint_host: table("copy_joint_host", file.copy_joint_host)?,
        copy_joint_device: table("copy_joint_device", file.copy_joint_device)?,
        copy_single_host_us: time("copy_single_host_us", file.copy_single_host_us)?,
        copy_single_device_us: time("copy_single_device_us", file.copy_single_device_us)?,
        bandwidth: file.bandwidth,
        name: file.name.unwrap_or_else(|| name.into()),
    };
    Ok(costs)
}

/// The longest that a single call may be made to take.
const MAX_US: f64 = 60e6;

fn time(field: &str, us: f64) -> Result<f64, String> {
    if (0.0..=MAX_US).contains(&us) {
        return Ok(us);
    }
    Err(format!(" expected 0 to {MAX_US} µs as {field}, found {us}"))
}

fn table(field: &str, table: Table) -> Result<Vec<Point>, String> {
    let points = match table {
        Table::Constant(us) => vec![(0, us)],
        Table::Points(points) => points,
    };
    if let Some(pair) = points.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        return Err(format!(" expected rising sizes in {field}, found {} after {}", pair[1].0, pair[0].0));
    }
    points.into_iter().map(|(at, us)| Ok(Point { at, us: time(field, us)? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_taken_and_what_is_left_out_costs_nothing() {
        let text = r#"{"map_us": 1.5, "unmap": 20, "create": [[1, 2], [4096, 8.5]], "bandwidth": 7}"#;
        let costs = parse(text, "mine").expect("good costs");
        assert_eq!(
            (costs.name.as_str(), costs.map_us, costs.free_us, costs.bandwidth),
            ("mine", 1.5, 0.0, 7)
        );
        assert_eq!(costs.unmap, [Point { at: 0, us: 20.0 }]);
        assert_eq!(costs.create, [Point { at: 1, us: 2.0 }, Point { at: 4096, us: 8.5 }]);
        assert!(costs.set_access.is_empty());
        assert_eq!(parse(r#"{"name": "n"}"#, "mine").expect("good costs").name, "n");
    }

    #[test]
    fn what_was_saved_is_read_again() {
        let costs = Costs { further_peer_unmap_us: 3.5, ..Costs::builtin("h200-peer").expect("built in") };
        let report = serde_json::json!({"date": "today", "costs": File::from(costs.clone()), "rows": [1, 2]});
        assert_eq!(parse(&report.to_string(), "mine").expect("good costs"), costs);
        let error = parse(r#"{"date": "today", "costs": {"x": 1}}"#, "mine").expect_err("bad costs");
        assert!(error.contains("unknown field `x`"), "{error}");
    }

    #[test]
    fn wrong_fields_are_named() {
        let cases = [
            (r#"{"map_us": -1}"#, "map_us, found -1"),
            (r#"{"map_us": 1e300}"#, "map_us"),
            (r#"{"unmap": [[1, -2]]}"#, "unmap, found -2"),
            (r#"{"unmap": [[4, 1], [4, 2]]}"#, "expected rising sizes in unmap, found 4 after 4"),
            (r#"{"mapp_us": 1}"#, "unknown field `mapp_us`"),
            (r#"{"create": "x"}"#, "expected a number or a table"),
            ("{\n\"map_us\": x}", "2: expected value"),
            ("", "EOF while parsing"),
        ];
        for (text, part) in cases {
            let error = parse(text, "mine").expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_help_names_every_field() {
        let error = parse(r#"{"?": 0}"#, "mine").expect_err("unknown field");
        let fields: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert!(fields.len() >= 18, "{error}");
        for field in fields {
            assert!(HELP.contains(field), "{field}");
        }
    }
}
