//! What the calls of an H200's driver take (driver 580, CUDA 13.0, 2026-11-30; docs/H200.md): the one source of what the
//! host driver simulates and of what plans reckon with.

/// Times by a block's MiB: ns, and how far other runs of that day lay from that.
pub type Table = &'static [(u64, u64, u64)];

/// Making a block.
pub const CREATE: Table =
    &[(2, 7_700, 2_300), (64, 13_200, 6_000), (256, 27_200, 5_000), (1024, 50_700, 100_000)];
/// Giving one up.
pub const RELEASE: Table =
    &[(2, 11_000, 2_300), (64, 28_500, 15_000), (256, 142_500, 50_000), (1024, 302_500, 237_000)];
/// Mapping one.
pub const MAP: Table = &[(2, 1_640, 5_000), (64, 1_000, 5_600), (256, 1_100, 7_300), (1024, 1_160, 6_400)];
/// Unmapping one; 8 GiB from calls in a loop.
pub const UNMAP: Table = &[
    (2, 21_200, 2_900),
    (64, 21_600, 6_300),
    (256, 30_900, 6_300),
    (1024, 33_300, 11_100),
    (8192, 105_000, 0),
];
/// Each block whose access is set; 8 GiB from calls in a loop.
pub const SET_ACCESS: Table = &[
    (2, 33_500, 8_500),
    (64, 25_700, 6_200),
    (256, 49_000, 6_500),
    (1024, 62_800, 18_600),
    (8192, 324_000, 0),
];
/// The same of a block that one peer can reach, among others.
pub const PEER_UNMAP: Table =
    &[(2, 41_500, 4_800), (64, 47_200, 6_000), (256, 66_400, 10_000), (1024, 87_000, 5_000)];
/// The same of a block that one peer gets access to, among others.
pub const PEER_SET_ACCESS: Table =
    &[(2, 58_300, 6_000), (64, 67_000, 9_000), (256, 100_000, 20_000), (1024, 138_000, 34_000)];
/// What a set-access takes once more where a peer reached nothing before.
pub const FIRST_PEER_SET_ACCESS: Table =
    &[(2, 1_399_000, 0), (64, 2_207_000, 0), (256, 2_321_000, 0), (1024, 18_876_000, 0)];
/// What an unmap takes once more where a peer reaches nothing else.
pub const LAST_PEER_UNMAP: Table =
    &[(2, 472_000, 0), (64, 771_000, 0), (256, 779_000, 0), (1024, 1_083_000, 0)];

/// One launch of a joint copy on the host, and each slice: ns.
pub const COPY_HOST: [u64; 2] = [3_500, 3];
/// The same on the GPU behind other work, bytes aside.
pub const COPY_GPU: [u64; 2] = [2_000, 5];
/// Bytes a second, reads and writes both counted: 1 GiB in 504 µs.
pub const BANDWIDTH: u64 = 4_260_000_000_000;
