//! The copy kernel's text through a real hiprtc, which needs no GPU; skipped visibly where there is none (Debian's
//! `libamdhip64-dev` has one in its runtime).
#![allow(unsafe_code, reason = "calls a vendor's compiler")]

use std::ffi::{CString, c_char, c_void};

type Create = unsafe extern "C" fn(*mut u64, *const c_char, *const c_char, i32, u64, u64) -> i32;
type Compile = unsafe extern "C" fn(u64, i32, *const *const c_char) -> i32;
type Size = unsafe extern "C" fn(u64, *mut u64) -> i32;
type Text = unsafe extern "C" fn(u64, *mut u8) -> i32;

struct Compiler(*mut c_void);

impl Compiler {
    fn find() -> Option<Self> {
        let names = [
            c"libhiprtc.so.7",
            c"libhiprtc.so.6",
            c"libhiprtc.so.5",
            c"libamdhip64.so.6",
            c"libamdhip64.so.5",
        ];
        names.into_iter().find_map(|name| {
            // SAFETY: a name that ends in a zero byte.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            let found = Self(handle);
            (!handle.is_null() && !found.symbol("hiprtcCreateProgram").is_null()).then_some(found)
        })
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("no zero byte");
        // SAFETY: the handle is open for ever.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    /// Compiles for an architecture: the status and the code, or the compiler's log.
    fn compile(&self, source: &str, arch: &str) -> Result<Vec<u8>, String> {
        // SAFETY: these and the following have the signatures of hiprtc.h.
        let create =
            unsafe { std::mem::transmute::<*mut c_void, Create>(self.symbol("hiprtcCreateProgram")) };
        // SAFETY: as above.
        let compile =
            unsafe { std::mem::transmute::<*mut c_void, Compile>(self.symbol("hiprtcCompileProgram")) };
        let size = |name: &str| {
            // SAFETY: as above.
            unsafe { std::mem::transmute::<*mut c_void, Size>(self.symbol(name)) }
        };
        let text = |name: &str| {
            // SAFETY: as above.
            unsafe { std::mem::transmute::<*mut c_void, Text>(self.symbol(name)) }
        };
        let source = CString::new(source).expect("no zero byte");
        let target = CString::new(format!("--offload-arch={arch}")).expect("no zero byte");
        let options = [c"-O3".as_ptr(), target.as_ptr()];
        let (mut program, mut bytes) = (0, 0);
        // SAFETY: all pointers are to live locals.
        assert_eq!(unsafe { create(&raw mut program, source.as_ptr(), c"copy".as_ptr(), 0, 0, 0) }, 0);
        // SAFETY: as above.
        let compiled = unsafe { compile(program, 2, options.as_ptr()) } == 0;
        let what = if compiled { "hiprtcGetCode" } else { "hiprtcGetProgramLog" };
        // SAFETY: as above.
        assert_eq!(unsafe { size(&format!("{what}Size"))(program, &raw mut bytes) }, 0);
        let mut out = vec![0; bytes as usize];
        // SAFETY: the text has the size asked for.
        assert_eq!(unsafe { text(what)(program, out.as_mut_ptr()) }, 0);
        if compiled { Ok(out) } else { Err(String::from_utf8_lossy(&out).into_owned()) }
    }
}

/// As the driver puts it together.
fn source() -> String {
    let (shared, own) =
        (include_str!("../src/driver/cuda/copy.cu"), include_str!("../src/driver/hip/copy_head.cu"));
    let (first, last) = (shared.find("struct Vector {"), shared.find("// Both sides have the same offset"));
    format!("{}{own}{}", &shared[..first.expect("a mark")], &shared[last.expect("a mark")..])
}

#[test]
fn the_kernel_compiles() {
    let Some(compiler) = Compiler::find() else {
        return println!("skipped: no hiprtc on this machine");
    };
    for arch in ["gfx90a", "gfx1030"] {
        let code = compiler.compile(&source(), arch).unwrap_or_else(|log| panic!("{arch}: {log}"));
        let has = |name: &str| code.windows(name.len()).any(|window| window == name.as_bytes());
        for count in [8, 32, 64, 170] {
            assert!(has(&format!("gvmm_copy_{count}.kd")), "{arch} lacks the entry for {count}");
        }
        println!("{arch}: {} bytes", code.len());
    }
}
