//! Gives the shared library its soname and keeps it loaded once loaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    // 0 until the ABI is stable (1.0).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgvmm.so.0");
    // Threads of ours and driver callbacks may outlive a dlclose, so the code must stay mapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
