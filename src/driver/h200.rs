//! What the calls of an H200's driver take (driver 580, CUDA 13.0, 2026-11-30; docs/H200.md): the one source of what the
//! host driver simulates and of what plans reckon with.

/// Times by a block's MiB: ns, and how far runs of that day lay from that. Host times differ by a third from run to run;
/// these are what steps with many remaps took.
pub type Table = &'static [(u64, u64, u64)];

/// Making a block.
pub const CREATE: Table =
    &[(2, 7_700, 2_300), (64, 13_200, 6_000), (256, 27_200, 5_000), (1024, 50_700, 100_000)];
/// Giving one up.
pub const RELEASE: Table =
    &[(2, 11_000, 2_300), (64, 28_500, 15_000), (256, 142_500, 50_000), (1024, 302_500, 237_000)];
/// Mapping one.
pub const MAP: Table = &[(2, 1_000, 700), (64, 950, 100), (256, 1_000, 400), (1024, 1_100, 400)];
/// Unmapping one; 8 GiB from calls in a loop.
pub const UNMAP: Table = &[
    (2, 18_000, 3_200),
    (64, 16_500, 1_800),
    (256, 18_500, 3_000),
    (1024, 28_000, 2_500),
    (8192, 105_000, 0),
];
/// Each block whose access is set; 8 GiB from calls in a loop.
pub const SET_ACCESS: Table = &[
    (2, 28_000, 5_500),
    (64, 25_000, 1_500),
    (256, 31_000, 5_000),
    (1024, 56_000, 9_900),
    (8192, 324_000, 0),
];
/// The same of a block that one peer can reach, among others.
pub const PEER_UNMAP: Table =
    &[(2, 37_000, 4_800), (64, 38_000, 5_000), (256, 45_000, 10_000), (1024, 66_000, 15_000)];
/// The same of a block that one peer gets access to, among others.
pub const PEER_SET_ACCESS: Table =
    &[(2, 53_000, 6_000), (64, 60_000, 5_000), (256, 75_000, 20_000), (1024, 110_000, 20_000)];
/// What a set-access takes once more where a peer reached nothing before.
pub const FIRST_PEER_SET_ACCESS: Table =
    &[(2, 1_399_000, 0), (64, 2_207_000, 0), (256, 2_321_000, 0), (1024, 18_876_000, 0)];
/// What an unmap takes once more where a peer reaches nothing else.
pub const LAST_PEER_UNMAP: Table =
    &[(2, 472_000, 0), (64, 771_000, 0), (256, 779_000, 0), (1024, 1_083_000, 0)];

/// One launch of a joint copy on the host, and each slice: ns.
pub const COPY_HOST: [u64; 2] = [3_500, 6];
/// The same on the GPU behind other work, bytes aside.
pub const COPY_GPU: [u64; 2] = [2_500, 14];

/// What each of so many slots takes on the host whose buffer changed: ns.
pub const CHANGED_SLOT: Sizes = &[(256, 32), (1000, 40)];
/// And each window that is remapped, its driver calls aside.
pub const REMAP_SLOT: Sizes = &[(8, 300), (512, 9_000)];

/// Times by a slot's bytes, or by how many slots there are: ns.
pub type Sizes = &'static [(u64, u64)];

/// What a slice that is copied in takes on the GPU besides its bytes, what reads it afterwards included: it is where the
/// copy left it and not where the last step did.
pub const SLICE_IN: Sizes = &[(4, 13), (4 << 10, 43), (64 << 10, 389), (2 << 20, 314), (32 << 20, 1_350)];
/// The same of one that is copied out.
pub const SLICE_OUT: Sizes = &[(4, 1), (64 << 10, 1), (2 << 20, 160), (32 << 20, 740)];
/// Bytes that copies may read and write before they push out of the L2 (50 MB) what the kernels use: with 8 MiB that these
/// use, 16 MiB cost a twelfth of the whole effect, 24 MiB a third.
pub const CACHE_BYTES: u64 = 16 << 20;
/// What each slot then takes longer. Kernels look at all of up to 64 KiB, and at a part of larger ones.
pub const COLD_SLOT: Sizes =
    &[(4, 218), (4 << 10, 375), (64 << 10, 3_610), (128 << 10, 232), (2 << 20, 281), (256 << 20, 3_370)];
/// What each slot that is not copied takes longer in a step that remaps anything: means of three runs of `gvmm bench profile`
/// on 2026-12-01.
pub const ANEW_SLOT: Sizes =
    &[(4, 97), (4 << 10, 62), (64 << 10, 645), (128 << 10, 263), (1 << 20, 456), (16 << 20, 209)];
/// What each takes longer then that is copied in.
pub const ANEW_IN: Sizes =
    &[(4, 50), (4 << 10, 272), (64 << 10, 521), (128 << 10, 122), (1 << 20, 365), (16 << 20, 2_985)];
/// Or out.
pub const ANEW_OUT: Sizes =
    &[(4, 127), (4 << 10, 106), (64 << 10, 627), (128 << 10, 194), (1 << 20, 513), (16 << 20, 3_774)];

/// Bytes a second, reads and writes both counted: 1 GiB in 504 µs.
pub const BANDWIDTH: u64 = 4_260_000_000_000;
