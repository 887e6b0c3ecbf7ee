//! A profile as text: `key = value` lines.

use super::{Charge, Curve, Figure, JointCopy, Origin, Picos, Point, Profile};
use std::collections::HashMap;
use std::fmt::Write;

/// One value of a profile, wherever it is kept.
enum Field<'a> {
    Text(&'a mut String),
    /// Bytes a second.
    Rate(&'a mut u64),
    Bytes(&'a mut u64),
    Time(&'a mut Figure),
    Curve(&'a mut Curve),
    Switch(&'a mut bool),
}

/// Calls `each` with every key and its field, in the file's order; reading and writing share this list.
fn visit(profile: &mut Profile, each: &mut dyn FnMut(&str, Field<'_>)) {
    let p = profile;
    each("device", Field::Text(&mut p.origin.device));
    each("driver", Field::Text(&mut p.origin.driver));
    each("driver_version", Field::Text(&mut p.origin.driver_version));
    each("date", Field::Text(&mut p.origin.date));
    each("reference_us", Field::Time(&mut p.origin.reference));
    each("bandwidth_bytes_per_s", Field::Rate(&mut p.bandwidth));
    each("create_us", Field::Curve(&mut p.create));
    each("release_us", Field::Curve(&mut p.release));
    each("map_us", Field::Curve(&mut p.map));
    each("unmap_us", Field::Curve(&mut p.unmap));
    each("set_access_us", Field::Curve(&mut p.set_access));
    each("set_access_call_us", Field::Time(&mut p.set_access_call));
    each("peer_set_access_call_us", Field::Time(&mut p.peer_set_access_call));
    each("peer_set_access_us", Field::Curve(&mut p.peer_set_access));
    each("peer_unmap_us", Field::Curve(&mut p.peer_unmap));
    each("further_peer_set_access_us", Field::Curve(&mut p.further_peer_set_access));
    each("further_peer_unmap_us", Field::Curve(&mut p.further_peer_unmap));
    each("first_peer_set_access_us", Field::Curve(&mut p.first_peer_set_access));
    each("remap_us", Field::Time(&mut p.remap));
    each("remap_slot_us", Field::Curve(&mut p.remap_slot));
    each("remap_wait_us", Field::Time(&mut p.remap_wait));
    visit_copy("copy_in", &mut p.copy_in, each);
    visit_copy("copy_out", &mut p.copy_out, each);
    visit_copy("plan_in", &mut p.plan_in, each);
    visit_copy("plan_out", &mut p.plan_out, each);
    each("cache_bytes", Field::Bytes(&mut p.cache_bytes));
    each("cold_slot_gpu_us", Field::Curve(&mut p.cold_slot));
    each("anew_slot_gpu_us", Field::Curve(&mut p.anew_slot));
    each("anew_in_gpu_us", Field::Curve(&mut p.anew_in));
    each("anew_out_gpu_us", Field::Curve(&mut p.anew_out));
    each("step_us", Field::Time(&mut p.step));
    each("slot_us", Field::Time(&mut p.slot));
    each("changed_slot_us", Field::Curve(&mut p.changed_slot));
    visit_charge("patch", &mut p.patch, each);
    each("patch_slot_us", Field::Time(&mut p.patch_slot));
    visit_charge("patch_command", &mut p.patch_command, each);
    visit_charge("patch_single", &mut p.patch_single, each);
    each("host_hidden", Field::Switch(&mut p.host_hidden));
}

fn visit_copy(name: &str, copy: &mut JointCopy, each: &mut dyn FnMut(&str, Field<'_>)) {
    visit_charge(&format!("{name}_launch"), &mut copy.launch, each);
    each(&format!("{name}_slice_host_us"), Field::Time(&mut copy.slice_host));
    each(&format!("{name}_slice_gpu_us"), Field::Curve(&mut copy.slice_gpu));
}

fn visit_charge(name: &str, charge: &mut Charge, each: &mut dyn FnMut(&str, Field<'_>)) {
    each(&format!("{name}_host_us"), Field::Time(&mut charge.host));
    each(&format!("{name}_gpu_us"), Field::Time(&mut charge.gpu));
}

pub(super) fn write(profile: &Profile) -> String {
    let mut text = format!("{HEAD}format = {}\n", Profile::FORMAT);
    visit(&mut profile.clone(), &mut |key, field| {
        let value = match field {
            Field::Text(value) => one_line(value),
            Field::Rate(value) | Field::Bytes(value) => value.to_string(),
            Field::Time(value) => figure(value),
            Field::Curve(value) => curve(value),
            Field::Switch(value) => if *value { "yes" } else { "no" }.to_owned(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", format!("{key} = {value}").trim_end());
    });
    text
}

const HEAD: &str = "# What serving slots costs on a device, for GVMM_PROFILE.
# Times in microseconds, as `median` or `median +- spread`; by a block's bytes as `bytes: time, bytes: time`, and those of
# remap_slot and changed_slot by the number of a binding's slots.
# Host times are the calling thread's, gpu times what the stream takes longer.
";

/// A name as it can be read again.
fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() || c == '#' { ' ' } else { c }).collect();
    line.trim().to_owned()
}

fn figure(value: &Figure) -> String {
    match value.spread {
        Picos::ZERO => value.median.to_string(),
        spread => format!("{} +- {spread}", value.median),
    }
}

fn curve(value: &Curve) -> String {
    let points = value.points().iter().map(|point| format!("{}: {}", point.bytes, figure(&point.time)));
    points.collect::<Vec<_>>().join(", ")
}

pub(super) fn parse(text: &str) -> Result<Profile, String> {
    let mut values = values(text)?;
    match values.remove("format") {
        Some((_, format)) if format.parse() == Ok(Profile::FORMAT) => {}
        Some((line, other)) => {
            let ours = Profile::FORMAT;
            return Err(format!(
                "line {line}: format {other} is not known; this library reads {ours}: measure again"
            ));
        }
        None => return Err("the key `format` is missing".to_owned()),
    }
    let (mut profile, mut fault) = (empty(), None);
    visit(&mut profile, &mut |key, field| {
        let read = match values.remove(key) {
            Some((line, value)) => fill(field, value)
                .map_err(|wanted| format!("line {line}: {key} = {value}: expected {wanted}")),
            None => Err(format!("the key `{key}` is missing")),
        };
        if let Err(what) = read {
            fault.get_or_insert(what);
        }
    });
    // The first line's, so that the message is always the same.
    let unknown = values.into_iter().min_by_key(|(_, (line, _))| *line);
    let unknown = unknown.map(|(key, (line, _))| format!("line {line}: the key `{key}` is not known"));
    fault.or(unknown).map_or(Ok(profile), Err)
}

/// Each key's line and value.
fn values(text: &str) -> Result<HashMap<&str, (usize, &str)>, String> {
    let mut values = HashMap::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (key, value) =
            line.split_once('=').ok_or_else(|| format!("line {}: expected `key = value`", i + 1))?;
        if values.insert(key.trim(), (i + 1, value.trim())).is_some() {
            return Err(format!("line {}: the key `{}` is there twice", i + 1, key.trim()));
        }
    }
    Ok(values)
}

/// Puts `value` into `field`, or says what is expected instead.
fn fill(field: Field<'_>, value: &str) -> Result<(), &'static str> {
    match field {
        Field::Text(text) => value.clone_into(text),
        Field::Rate(rate) => *rate = read_rate(value).ok_or("bytes a second, from 1000000 to 10^15")?,
        Field::Bytes(bytes) => *bytes = read_bytes(value).ok_or("bytes, from 0 to 2^40")?,
        Field::Time(time) => {
            *time = read_figure(value).ok_or("microseconds from 0 to 10000000, such as 1.15 +- 0.2")?
        }
        Field::Curve(curve) => {
            *curve = read_curve(value).ok_or("`size: microseconds, ...`, the sizes growing, at most 64")?;
        }
        Field::Switch(switch) => {
            *switch = match value {
                "yes" => true,
                "no" => false,
                _ => return Err("yes or no"),
            }
        }
    }
    Ok(())
}

fn read_rate(text: &str) -> Option<u64> {
    text.parse().ok().filter(|rate| (1_000_000..=1_000_000_000_000_000).contains(rate))
}

fn read_bytes(text: &str) -> Option<u64> {
    text.parse().ok().filter(|bytes| *bytes <= 1 << 40)
}

fn read_figure(text: &str) -> Option<Figure> {
    let (median, spread) = text.split_once("+-").unwrap_or((text, "0"));
    Some(Figure { median: Picos::parse_us(median.trim())?, spread: Picos::parse_us(spread.trim())? })
}

fn read_curve(text: &str) -> Option<Curve> {
    let point = |text: &str| {
        let (bytes, time) = text.split_once(':')?;
        Some(Point { bytes: bytes.trim().parse().ok()?, time: read_figure(time)? })
    };
    Curve::new(text.split(',').map(point).collect::<Option<Vec<_>>>()?)
}

/// A profile of nothing, to be filled.
fn empty() -> Profile {
    let (time, charge, copy) = (Figure::default(), Charge::default(), JointCopy::default);
    Profile {
        origin: Origin::default(),
        bandwidth: 0,
        create: Curve::default(),
        release: Curve::default(),
        map: Curve::default(),
        unmap: Curve::default(),
        set_access: Curve::default(),
        set_access_call: time,
        peer_set_access_call: time,
        peer_set_access: Curve::default(),
        peer_unmap: Curve::default(),
        further_peer_set_access: Curve::default(),
        further_peer_unmap: Curve::default(),
        first_peer_set_access: Curve::default(),
        remap: time,
        remap_slot: Curve::default(),
        remap_wait: time,
        copy_in: copy(),
        copy_out: copy(),
        plan_in: copy(),
        plan_out: copy(),
        cache_bytes: 0,
        cold_slot: Curve::default(),
        anew_slot: Curve::default(),
        anew_in: Curve::default(),
        anew_out: Curve::default(),
        step: time,
        slot: time,
        changed_slot: Curve::default(),
        patch: charge,
        patch_slot: time,
        patch_command: charge,
        patch_single: charge,
        host_hidden: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::DriverKind;

    fn h200() -> Profile {
        Profile::builtin("h200").expect("built in")
    }

    /// The H200's text with the line of `key` replaced.
    fn with(key: &str, line: &str) -> Result<Profile, String> {
        let replace = |old: &str| match old.split(" =").next() == Some(key) {
            true => line.to_owned(),
            false => old.to_owned(),
        };
        let lines: Vec<String> = h200().to_text().lines().map(replace).collect();
        assert_ne!(lines.join("\n") + "\n", h200().to_text(), "{key} is a key");
        Profile::parse(&lines.join("\n"))
    }

    #[test]
    fn what_is_written_can_be_read() {
        for mut profile in [h200(), Profile::builtin("cautious").expect("built in")] {
            assert_eq!(Profile::parse(&profile.to_text()), Ok(profile.clone()));
            (profile.host_hidden, profile.remap.spread) = (true, Picos(1));
            assert_eq!(Profile::parse(&profile.to_text()), Ok(profile));
        }
    }

    /// Who changes this list counts `Profile::FORMAT` up, so that an old file is refused for its version.
    const KEYS_OF_FORMAT_6: &str = "format device driver driver_version date reference_us bandwidth_bytes_per_s create_us release_us \
        map_us unmap_us set_access_us set_access_call_us peer_set_access_call_us peer_set_access_us peer_unmap_us \
        further_peer_set_access_us further_peer_unmap_us first_peer_set_access_us remap_us remap_slot_us remap_wait_us \
        copy_in_launch_host_us copy_in_launch_gpu_us copy_in_slice_host_us copy_in_slice_gpu_us \
        copy_out_launch_host_us copy_out_launch_gpu_us copy_out_slice_host_us copy_out_slice_gpu_us \
        plan_in_launch_host_us plan_in_launch_gpu_us plan_in_slice_host_us plan_in_slice_gpu_us \
        plan_out_launch_host_us plan_out_launch_gpu_us plan_out_slice_host_us plan_out_slice_gpu_us \
        cache_bytes cold_slot_gpu_us anew_slot_gpu_us anew_in_gpu_us anew_out_gpu_us step_us slot_us changed_slot_us \
        patch_host_us patch_gpu_us patch_slot_us patch_command_host_us patch_command_gpu_us patch_single_host_us patch_single_gpu_us host_hidden";

    #[test]
    fn a_format_has_its_keys_and_no_others() {
        let text = h200().to_text();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let keys: Vec<&str> = lines.filter_map(|line| Some(line.split_once('=')?.0.trim())).collect();
        assert_eq!(keys, KEYS_OF_FORMAT_6.split_whitespace().collect::<Vec<_>>());
        assert_eq!(Profile::FORMAT, 6);
    }

    #[test]
    fn each_key_is_needed() {
        for key in KEYS_OF_FORMAT_6.split_whitespace() {
            let fault = with(key, "").expect_err(key);
            assert!(fault.contains(&format!("the key `{key}` is missing")), "{fault}");
        }
    }

    #[test]
    fn a_name_stays_on_its_line() {
        let mut profile = h200();
        profile.origin.device = "a # b\nremap_us = 0".into();
        assert_eq!(
            Profile::parse(&profile.to_text()).map(|p| p.origin.device),
            Ok("a   b remap_us = 0".into())
        );
    }

    #[test]
    fn a_value_is_put_where_its_key_says() {
        let changed =
            with("patch_command_gpu_us", "patch_command_gpu_us=0.75 +- 0.25# a comment").expect("right");
        assert_eq!(changed.patch_command.gpu, Figure::ns(750).spread_ns(250));
        assert_eq!(Profile { patch_command: h200().patch_command, ..changed }, h200());
    }

    #[test]
    fn each_wrong_line_is_named() {
        for (key, line, part) in [
            ("remap_us", "", "`remap_us` is missing"),
            ("format", "", "`format` is missing"),
            ("format", "format = 5", "format 5 is not known; this library reads 6: measure again"),
            ("remap_us", "remap_us = -1", "expected microseconds"),
            ("remap_us", "remap_us = NaN", "expected microseconds"),
            ("remap_us", "remap_us = 1e99", "expected microseconds"),
            ("remap_us", "remap_us = 10000001", "expected microseconds"),
            ("remap_us", "remap_us = 1 +- -1", "expected microseconds"),
            ("remap_us", "remap_us =", "expected microseconds"),
            ("remap_us", "remap_us", "expected `key = value`"),
            ("remap_us", "remap_us = 1\nremap_us = 1", "is there twice"),
            ("remap_us", "remap_us = 1\nremapped_us = 1", "`remapped_us` is not known"),
            ("bandwidth_bytes_per_s", "bandwidth_bytes_per_s = 0", "expected bytes a second"),
            ("bandwidth_bytes_per_s", "bandwidth_bytes_per_s = 99999999999999999", "expected bytes a second"),
            ("cache_bytes", "cache_bytes = -1", "expected bytes, from 0"),
            ("cache_bytes", "cache_bytes = 99999999999999", "expected bytes, from 0"),
            ("cold_slot_gpu_us", "cold_slot_gpu_us = 4: 0.3, 8: -1", "the sizes growing"),
            ("copy_in_slice_gpu_us", "copy_in_slice_gpu_us = 0.04", "the sizes growing"),
            ("map_us", "map_us = 4: 1, 2: 1", "the sizes growing"),
            ("map_us", "map_us = 1.15", "the sizes growing"),
            ("changed_slot_us", "changed_slot_us = 0.037", "the sizes growing"),
            ("host_hidden", "host_hidden = perhaps", "expected yes or no"),
        ] {
            let fault = with(key, line).expect_err(line);
            assert!(fault.contains(part), "{line}: {fault}");
        }
    }

    #[test]
    fn another_device_or_driver_is_named() {
        let profile = h200();
        let subject = super::super::Subject {
            device: "NVIDIA H200",
            driver: DriverKind::CUDA,
            driver_version: Some("CUDA 13.0"),
        };
        assert_eq!(profile.check(&subject), Ok(()));
        for (other, part) in [
            (super::super::Subject { device: "NVIDIA H100", ..subject }, "this is `NVIDIA H100`"),
            (super::super::Subject { driver: DriverKind::HIP, ..subject }, "this is `hip`"),
            (super::super::Subject { driver_version: Some("CUDA 12.0"), ..subject }, "this is `CUDA 12.0`"),
        ] {
            assert!(profile.check(&other).expect_err("another").contains(part), "{part}");
        }
        assert_eq!(profile.check(&super::super::Subject { driver_version: None, ..subject }), Ok(()));
    }
}
