//! Driver version and architecture → care to take: data, so that no driver has `if`s scattered about.

use super::DriverKind;

/// Which driver and device it is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Whose driver.
    pub kind: DriverKind,
    /// The driver's version as it gives it (CUDA: 12080 for 12.8; HIP's runtime: 70251831 for 7.2.51831).
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
    /// Unmap mapping by mapping, never several in one call.
    pub const UNMAP_EACH: Self = Self(1 << 3);
    /// Unmap exactly what is mapped, once.
    pub const UNMAP_ONCE: Self = Self(1 << 4);
    /// Release a block after its last mapping is gone.
    pub const RELEASE_LATE: Self = Self(1 << 5);
    /// Never name an address to the driver that it does not know.
    pub const KNOWN_ONLY: Self = Self(1 << 6);
    /// A map that succeeded may have failed: a set-access that fails says so.
    pub const MAP_UNTRUSTED: Self = Self(1 << 7);
    /// Set access again when it fails, then mapping by mapping.
    pub const ACCESS_RETRY: Self = Self(1 << 8);
    /// Where a part is refused, set access for all that is mapped from the reservation's start on.
    pub const ACCESS_WHOLE: Self = Self(1 << 9);
    /// Name peers first and the block's own device last.
    pub const LOCAL_LAST: Self = Self(1 << 10);
    /// One virtual-memory call at a time in this process.
    pub const ONE_LOCK: Self = Self(1 << 11);
    /// Wait for streams before the lock is taken, never under it.
    pub const WAIT_FIRST: Self = Self(1 << 12);
    /// Map and unmap wait for default streams: warn where a process has several devices.
    pub const ONE_DEVICE: Self = Self(1 << 13);
    /// Grant the host what the block's device has, where the device's memory is in the host's reach.
    pub const HOST_ACCESS: Self = Self(1 << 14);
    /// Unmapped memory may be held by its range: free and reserve the range again.
    pub const RETURN_MEMORY: Self = Self(1 << 15);
    /// A failure for want of memory may be one for want of file descriptors: count them.
    pub const COUNT_DESCRIPTORS: Self = Self(1 << 16);
    /// Granules below 2 MiB are not to be used.
    pub const LARGE_GRANULE: Self = Self(1 << 17);
    /// An imported descriptor is passed by pointer, not by value.
    pub const IMPORT_POINTER: Self = Self(1 << 18);
    /// Test when the device opens that a fresh mapping shows its bytes to a kernel.
    pub const CHECK_FRESH: Self = Self(1 << 19);
    /// Test when the device opens that a graph sees what its stream wrote just before.
    pub const CHECK_GRAPH: Self = Self(1 << 20);
    /// Do not change the parameters of a graph that is there.
    pub const NO_PATCH: Self = Self(1 << 21);
    /// Ask for attributes, never for structs whose layout changed between releases.
    pub const NO_STRUCTS: Self = Self(1 << 22);
    /// Do not load copy kernels: slices are copied one by one.
    pub const NO_KERNELS: Self = Self(1 << 23);
    /// Make no blocks that other devices on the bus reach by themselves.
    pub const NO_RDMA: Self = Self(1 << 24);
    /// What our own rules take care of on every driver, switched on or not.
    pub const ALWAYS: Self = Self(
        Self::UNMAP_EACH.0
            | Self::UNMAP_ONCE.0
            | Self::KNOWN_ONLY.0
            | Self::WAIT_FIRST.0
            | Self::NO_STRUCTS.0,
    );

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

fn hip(subject: &Subject<'_>) -> bool {
    subject.kind == DriverKind::HIP
}

/// HIP before a version.
fn below(subject: &Subject<'_>, major: u32, minor: u32) -> bool {
    hip(subject) && subject.version < hip_version(major, minor)
}

/// A version as HIP's runtime gives it, without the patch.
pub const fn hip_version(major: u32, minor: u32) -> u32 {
    major * 10_000_000 + minor * 100_000
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
    Quirk {
        name: "cuda-no-kernels",
        reference: "our own PTX text, which is for sm_50 and later; by hand: what copies one by one cost",
        applies: |s| cuda(s) && sm(s.arch) < 50,
        care: Care::NO_KERNELS,
    },
    Quirk {
        name: "cuda-rdma-aliases",
        reference: "seen with 580.159: a block for RDMA that lost its first mapping while it had others cannot be mapped \
                    again (CUDA_ERROR_UNKNOWN) once their access changed",
        applies: |s| cuda(s),
        care: Care::NO_RDMA,
    },
    Quirk {
        name: "hip-before-6",
        reference: "HIP 5.7 source: set-access does nothing and returns success",
        applies: |s| below(s, 6, 0),
        care: Care::REFUSE,
    },
    Quirk {
        name: "hip-joint-unmap",
        reference: "ROCR-Runtime #285: one unmap over several handles leaves them counted, and freeing the range fails",
        applies: |s| below(s, 7, 0),
        care: Care::UNMAP_EACH,
    },
    Quirk {
        name: "hip-release-mapped",
        reference: "ROCR-Runtime #257: releasing a handle while mapped makes the range unfreeable",
        applies: |s| hip(s),
        care: Care::RELEASE_LATE,
    },
    Quirk {
        name: "hip-unmap-twice",
        reference: "openxla/xla f1961f8a08: unmapping twice is an error",
        applies: |s| hip(s),
        care: Care::UNMAP_ONCE,
    },
    Quirk {
        name: "hip-unknown-address",
        reference: "HIP 6.4 source: unmapping or freeing an address that HIP does not know ends the process",
        applies: |s| below(s, 7, 0),
        care: Care::KNOWN_ONLY,
    },
    Quirk {
        name: "hip-silent-map",
        reference: "HIP 6.4 source, and 7.x builds that queue the command: map succeeds though the mapping failed",
        applies: |s| below(s, 7, 14),
        care: Care::MAP_UNTRUSTED,
    },
    Quirk {
        name: "hip-set-access-fails",
        reference: "rocm-systems #2516, #2667, #3145: set-access fails for some sizes, or at the second or third try",
        applies: |s| hip(s),
        care: Care::ACCESS_RETRY,
    },
    Quirk {
        name: "hip-set-access-part",
        reference: "rocm-systems #6977: set-access fails on a part that is not the start of the reservation",
        applies: |s| hip(s),
        care: Care::ACCESS_WHOLE,
    },
    Quirk {
        name: "hip-peer-after-local",
        reference: "openxla/xla #46576 (ROCm 7.14): granting a peer after the local device corrupts the mapping",
        applies: |s| hip(s),
        care: Care::LOCAL_LAST,
    },
    Quirk {
        name: "hip-calls-race",
        reference: "mori #455: concurrent map and set-access race inside the runtime",
        applies: |s| hip(s),
        care: Care::ONE_LOCK,
    },
    Quirk {
        name: "hip-map-waits",
        reference: "rocm-systems #6982, #6594: map and unmap wait for streams and deadlock with collectives",
        applies: |s| hip(s),
        care: Care::WAIT_FIRST,
    },
    Quirk {
        name: "hip-null-stream",
        reference: "HIP 7.13 source, mori #455: map and unmap wait on the null stream of the block's device",
        applies: |s| below(s, 7, 14),
        care: Care::ONE_DEVICE,
    },
    Quirk {
        name: "hip-large-bar",
        reference: "pytorch #177023, vllm #51369: device scalars are read from the host, which has no access",
        applies: |s| hip(s) && !below(s, 7, 2),
        care: Care::HOST_ACCESS,
    },
    Quirk {
        name: "hip-memory-kept",
        reference: "hip #3781, rocm #6021 (6.4, 7.2): memory is not returned while its range stays reserved",
        applies: |s| hip(s) && !below(s, 6, 4) && below(s, 7, 14),
        care: Care::RETURN_MEMORY,
    },
    Quirk {
        name: "hip-descriptors",
        reference: "rocm-systems #10604 (7.14): each handle holds a file descriptor; used up, it is out of memory",
        applies: |s| hip(s) && !below(s, 7, 14),
        care: Care::COUNT_DESCRIPTORS,
    },
    Quirk {
        name: "hip-small-granule",
        reference: "HIP 7.10 source: both granularities are 4 KiB; RDNA's minimum is 4 KiB later too",
        applies: |s| hip(s),
        care: Care::LARGE_GRANULE,
    },
    Quirk {
        name: "hip-import-pointer",
        reference: "HIP 7.1 source: before, an imported descriptor was passed by pointer",
        applies: |s| below(s, 7, 1),
        care: Care::IMPORT_POINTER,
    },
    Quirk {
        name: "hip-fresh-zeros",
        reference: "rocm-systems #11693: a kernel right after a map reads zeros for about 2 ms",
        applies: |s| hip(s) && s.arch == "gfx1201",
        care: Care::CHECK_FRESH,
    },
    Quirk {
        name: "hip-stale-graph",
        reference: "hip #3902 (7.2): a buffer written just before a graph's launch is read stale",
        applies: |s| hip(s) && !below(s, 7, 2) && below(s, 7, 3) && s.arch == "gfx950",
        care: Care::CHECK_GRAPH,
    },
    Quirk {
        name: "hip-graph-patch",
        reference: "hip #3887, rocm-systems #8776, #11067: updating a graph's parameters is broken or wedges",
        applies: |s| hip(s),
        care: Care::NO_PATCH,
    },
    Quirk {
        name: "hip-stream-values",
        reference: "clr #133: streams that write and wait for 64-bit values deadlock between devices",
        applies: |s| hip(s),
        care: Care::EVENT_TIMELINE,
    },
    Quirk {
        name: "hip-structs",
        reference: "HIP 6.0 release notes: hipGetDeviceProperties and hipPointerGetAttributes changed their structs",
        applies: |s| hip(s),
        care: Care::NO_STRUCTS,
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
        assert_eq!(of(13_000, "sm_90"), Care::NO_RDMA);
        assert!(of(10_020, "sm_70").has(Care::REFUSE));
        assert_eq!(of(12_000, "sm_90"), Care(Care::SMALL_PARAMETERS.0 | Care::NO_RDMA.0));
        assert_eq!(of(12_080, "sm_61"), Care(Care::SMALL_PARAMETERS.0 | Care::NO_RDMA.0));
        assert!(of(11_060, "sm_80").has(Care::EVENT_TIMELINE));
        assert!(of(11_080, "sm_37").has(Care::NO_KERNELS) && !of(11_080, "sm_52").has(Care::NO_KERNELS));
    }

    fn of_hip(major: u32, minor: u32, arch: &str) -> Care {
        let version = hip_version(major, minor) + 43_482;
        care(&Subject { kind: DriverKind::HIP, version, arch }, &[])
    }

    #[test]
    fn hip_versions_and_architectures_choose_their_care() {
        assert!(of_hip(5, 7, "gfx90a").has(Care::REFUSE) && !of_hip(6, 0, "gfx90a").has(Care::REFUSE));
        assert!(
            of_hip(6, 4, "gfx942").has(Care::MAP_UNTRUSTED) && of_hip(6, 4, "gfx942").has(Care::UNMAP_EACH)
        );
        assert!(
            !of_hip(7, 14, "gfx942").has(Care::MAP_UNTRUSTED)
                && !of_hip(7, 14, "gfx942").has(Care::ONE_DEVICE)
        );
        assert!(
            of_hip(7, 0, "gfx942").has(Care::IMPORT_POINTER)
                && !of_hip(7, 1, "gfx942").has(Care::IMPORT_POINTER)
        );
        assert!(
            of_hip(7, 2, "gfx942").has(Care::HOST_ACCESS) && !of_hip(7, 1, "gfx942").has(Care::HOST_ACCESS)
        );
        assert!(
            of_hip(7, 2, "gfx950").has(Care::CHECK_GRAPH) && !of_hip(7, 2, "gfx942").has(Care::CHECK_GRAPH)
        );
        assert!(
            !of_hip(7, 14, "gfx950").has(Care::CHECK_GRAPH) && !of_hip(7, 1, "gfx950").has(Care::CHECK_GRAPH)
        );
        assert!(
            of_hip(7, 14, "gfx1201").has(Care::CHECK_FRESH)
                && !of_hip(7, 14, "gfx1200").has(Care::CHECK_FRESH)
        );
        assert!(of_hip(7, 14, "gfx942").has(Care::COUNT_DESCRIPTORS));
    }

    #[test]
    fn no_quirk_is_of_two_vendors() {
        for quirk in QUIRKS {
            let versions = [
                1,
                10_020,
                12_000,
                hip_version(5, 7),
                hip_version(6, 4),
                hip_version(7, 2),
                hip_version(7, 14),
            ];
            let archs = ["", "sm_61", "sm_90", "gfx942", "gfx950", "gfx1201"];
            let kinds = [DriverKind::CUDA, DriverKind::HIP, DriverKind::LEVEL_ZERO, DriverKind::HOST];
            let touched = kinds.into_iter().filter(|&kind| {
                versions.iter().any(|&version| {
                    archs.iter().any(|&arch| (quirk.applies)(&Subject { kind, version, arch }))
                })
            });
            assert_eq!(touched.count(), 1, "{}", quirk.name);
        }
    }

    #[test]
    fn a_quirk_is_switched_by_name() {
        let subject = Subject { kind: DriverKind::CUDA, version: 13_000, arch: "sm_120a" };
        assert!(care(&subject, &[("cuda-old-stream-values", true)]).has(Care::EVENT_TIMELINE));
        let old = Subject { version: 12_000, ..subject };
        assert!(care(&old, &[]).has(Care::SMALL_PARAMETERS));
        assert!(!care(&old, &[("cuda-small-parameters", false)]).has(Care::SMALL_PARAMETERS));
    }

    #[test]
    fn names_are_distinct_and_references_given() {
        for (at, quirk) in QUIRKS.iter().enumerate() {
            assert!(!quirk.reference.is_empty());
            assert!(QUIRKS[at + 1..].iter().all(|other| other.name != quirk.name));
        }
    }
}
