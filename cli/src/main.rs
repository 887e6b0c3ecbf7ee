//! The companion program of gvmm.

fn main() {}
