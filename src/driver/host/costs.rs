//! What driver calls cost on real hardware, so that the host driver can take as long.
//!
//! The built-in tables were measured on H200 GPUs (driver 580, CUDA 13.0).

/// One measured point of a table that is interpolated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// At which size: bytes of a block, or slices of a copy.
    pub at: u64,
    /// How long it takes there, in µs.
    pub us: f64,
}

/// How long each driver call takes, in µs. A cost of 0 and an empty table add no waiting.
#[derive(Clone, PartialEq, Debug)]
pub struct Costs {
    /// The table's name, which whatever prints a time shows after "simulated".
    pub name: String,
    /// One `reserve`.
    pub reserve_us: f64,
    /// One `free`.
    pub free_us: f64,
    /// One `create`, by the block's bytes.
    pub create: Vec<Point>,
    /// One `release`.
    pub release_us: f64,
    /// One `map`, whatever the size.
    pub map_us: f64,
    /// `unmap`, by the block's bytes.
    pub unmap: Vec<Point>,
    /// `set_access` for each mapping in the range, by the block's bytes.
    pub set_access: Vec<Point>,
    /// What a `set_access` takes once more when it names another device than a block's own.
    pub peer_set_access_us: f64,
    /// What each mapping takes in such a call, instead of what `set_access` says.
    pub peer_set_access_mapping_us: f64,
    /// The least that an `unmap` takes where another device than the block's own has access.
    pub peer_unmap_us: f64,
    /// One `allocate`.
    pub allocate_us: f64,
    /// One `deallocate`.
    pub deallocate_us: f64,
    /// What the caller of a joint copy pays, by the number of slices.
    pub copy_joint_host: Vec<Point>,
    /// What the stream takes for a joint copy besides moving the bytes, by the number of slices.
    pub copy_joint_device: Vec<Point>,
    /// What the caller pays for each slice where copies are not joined.
    pub copy_single_host_us: f64,
    /// What the stream takes for each such slice besides moving the bytes.
    pub copy_single_device_us: f64,
    /// Bytes a second that the device's memory moves, reads and writes both counted; 0 is unknown, and moving
    /// bytes then adds no waiting.
    pub bandwidth: u64,
}

impl Costs {
    /// The built-in table of that name: `h200` or `h200-peer`.
    pub fn builtin(name: &str) -> Option<Self> {
        let _ = name;
        todo!()
    }
}
