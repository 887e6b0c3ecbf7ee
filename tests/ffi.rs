//! C and C++ programs against the header and the built library: plain, under the address and undefined-behaviour
//! sanitizers, and under valgrind. `GVMM_NO_SKIP=1` makes a missing tool a failure.

#[path = "ffi/cpp.rs"]
mod cpp;
#[path = "ffi/golden.rs"]
mod golden;
#[path = "ffi/logger.rs"]
mod logger;
#[path = "ffi/python.rs"]
mod python;
#[path = "ffi/toolbox.rs"]
mod toolbox;

use toolbox::{Mode, check, root};

/// Every program with its modes, each a test.
macro_rules! programs {
    ($($name:ident $file:literal),* $(,)?) => {
        const FILES: &[&str] = &[$($file),*];
        $(mod $name {
            use super::{Mode, check};
            #[test]
            fn plain() {
                check($file, Mode::Plain);
            }
            #[test]
            fn sanitized() {
                check($file, Mode::Sanitized);
            }
            #[test]
            fn valgrind() {
                check($file, Mode::Valgrind);
            }
        })*
    };
}

programs! {
    sizes "sizes.c",
    handles "handles.c",
    steps "steps.c",
    plans "plans.c",
    nulls "nulls.c",
    broken "broken.c",
    devices "devices.c",
    attach "attach.c",
    plain_memory "plain_memory.c",
    versions "versions.c",
    environment "environment.c",
    threads "threads.c",
    faults "faults.c",
    logs "logs.c",
    forks "forks.c",
    copies "copies.c",
    graph_copies "graph_copies.c",
    captured "captured.c",
    reload "reload.c",
    pending "pending.c",
    retire "retire.c",
    segment "segment.c",
    peers "peers.c",
    pool "pool.c",
    pool_model "pool_model.c",
    pool_faults "pool_faults.c",
    pool_capture "pool_capture.c",
    cplusplus "cplusplus.cc",
    torch_hooks "torch_hooks.cc",
    xpu_hooks "xpu_hooks.cc",
    tables "tables.c",
    options "options.c",
    timelines "timelines.c",
    permanent "permanent.c",
    sandbox "sandbox.c",
}

/// Programs that need more than being run; `golden`, `cpp`, `python`, the proofs and `scripts/sycl_check.sh` run them.
const OTHERS: &[&str] = &[
    "hpp.cc",
    "xla_page.cc",
    "torch_shim.cc",
    "xpu_shim.cc",
    "xpu_sycl.cc",
    "statuses.c",
    "proof_address.c",
    "proof_undefined.c",
    "proof_valgrind.c",
];

#[test]
fn every_program_is_listed() {
    for entry in std::fs::read_dir(root().join("ffi_tests")).expect("ffi_tests") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        let program = name.ends_with(".c") || name.ends_with(".cc");
        assert!(!program || FILES.contains(&&*name) || OTHERS.contains(&&*name), "{name} is not run");
    }
}
