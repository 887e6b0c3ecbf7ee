//! Gives the library its soname and keeps it loaded once loaded: programs keep its functions' addresses.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgvmm_preload_cuda.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
