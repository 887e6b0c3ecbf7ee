//! Driver version and architecture → care to take: data, so that no driver has `if`s scattered about.

use super::DriverKind;

/// Which driver and device it is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Whose driver.
    pub kind: DriverKind,
    /// The driver's version as it gives it (CUDA: 12080 for 12.8).
    pub version: u32,
    /// The device's architecture in the vendor's word (`sm_90`, `gfx942`).
    pub arch: &'a str,
}

/// What to do about it, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Care(pub u64);

impl Care {
    /// Refuse the driver: it is too old.
    pub const REFUSE: Self = Self(1 << 0);
    /// Kernels take 4,096 bytes of parameters at most.
    pub const SMALL_PARAMETERS: Self = Self(1 << 1);
    /// Streams do not write or wait for values in memory; use events.
    pub const EVENT_TIMELINE: Self = Self(1 << 2);

    /// True where every bit of `wanted` is there.
    pub const fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

/// One known fault or limit.
#[derive(Clone, Copy, Debug)]
pub struct Quirk {
    /// Its name, for people and for switching it by hand.
    pub name: &'static str,
    /// Where it is written down.
    pub reference: &'static str,
    /// Whether it concerns this driver and device.
    pub applies: fn(&Subject<'_>) -> bool,
    /// What to do.
    pub care: Care,
}

/// The number in an architecture's name: 90 of `sm_90` and of `sm_90a`; 0 where there is none.
fn sm(arch: &str) -> u32 {
    let digits = arch.strip_prefix("sm_").unwrap_or_default();
    digits.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
}

fn cuda(subject: &Subject<'_>) -> bool {
    subject.kind == DriverKind::CUDA
}

/// Every known quirk.
pub const QUIRKS: &[Quirk] = &[
    Quirk {
        name: "cuda-before-11",
        reference: "CUDA 11.0 release notes; virtual memory as used here and stream-ordered capture",
        applies: |s| cuda(s) && s.version < 11_000,
        care: Care::REFUSE,
    },
    Quirk {
        name: "cuda-small-parameters",
        reference: "CUDA 12.1 release notes: 32,764 bytes of kernel parameters, sm_70 and later",
        applies: |s| cuda(s) && (s.version < 12_010 || sm(s.arch) < 70),
        care: Care::SMALL_PARAMETERS,
    },
    Quirk {
        name: "cuda-old-stream-values",
        reference: "CUDA 11.7 release notes: stream memory operations, version 2, need no kernel module option",
        applies: |s| cuda(s) && s.version < 11_070,
        care: Care::EVENT_TIMELINE,
    },
];

/// The quirks in force for `subject`: those that apply, but for those that `forced` switches on or off by name.
pub fn in_force<'a>(
    subject: &'a Subject<'_>,
    forced: &'a [(&'a str, bool)],
) -> impl Iterator<Item = &'static Quirk> + 'a {
    QUIRKS.iter().filter(move |quirk| {
        let by_hand = forced.iter().find(|(name, _)| *name == quirk.name).map(|(_, on)| *on);
        by_hand.unwrap_or_else(|| (quirk.applies)(subject))
    })
}

/// All that must be taken care of for `subject`.
pub fn care(subject: &Subject<'_>, forced: &[(&str, bool)]) -> Care {
    Care(in_force(subject, forced).fold(0, |bits, quirk| bits | quirk.care.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: u32, arch: &str) -> Care {
        care(&Subject { kind: DriverKind::CUDA, version, arch }, &[])
    }

    #[test]
    fn cuda_versions_and_architectures_choose_their_care() {
        assert_eq!(of(13_000, "sm_90"), Care::default());
        assert!(of(10_020, "sm_70").has(Care::REFUSE));
        assert_eq!(of(12_000, "sm_90"), Care::SMALL_PARAMETERS);
        assert_eq!(of(12_080, "sm_61"), Care::SMALL_PARAMETERS);
        assert!(of(11_060, "sm_80").has(Care::EVENT_TIMELINE));
    }

    #[test]
    fn a_quirk_is_switched_by_name() {
        let subject = Subject { kind: DriverKind::CUDA, version: 13_000, arch: "sm_120a" };
        assert!(care(&subject, &[("cuda-old-stream-values", true)]).has(Care::EVENT_TIMELINE));
        let old = Subject { version: 12_000, ..subject };
        assert_eq!(care(&old, &[("cuda-small-parameters", false)]), Care::default());
    }

    #[test]
    fn names_are_distinct_and_references_given() {
        for (at, quirk) in QUIRKS.iter().enumerate() {
            assert!(!quirk.reference.is_empty());
            assert!(QUIRKS[at + 1..].iter().all(|other| other.name != quirk.name));
        }
    }
}
