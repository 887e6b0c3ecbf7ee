//! A vendor's table of functions: a field for each symbol, and a method of the same name that calls it.

/// Writes a struct `Api` with the functions of the two lists. All of them answer a `$status`; a call of an optional
/// function that is missing answers `$missing`.
macro_rules! table {
    (answers $status:ty; missing $missing:expr;
     required { $($name:ident = $symbol:literal ($($arg:ident: $type:ty),*);)* }
     optional { $($oname:ident = $osymbol:literal ($($oarg:ident: $otype:ty),*);)* }) => {
        /// The table of functions.
        #[derive(Debug)]
        pub(super) struct Api {
            pub(super) library: $crate::driver::library::Library,
            $($name: unsafe extern "C" fn($($type),*) -> $status,)*
            $($oname: Option<unsafe extern "C" fn($($otype),*) -> $status>,)*
        }

        /// Each function's name, and the sizes of what it takes, for comparison with the vendor's own declarations.
        #[cfg(any(test, feature = "hip-runtime-sys"))]
        #[allow(dead_code, clippy::allow_attributes, reason = "not every table has an oracle")]
        pub(super) const SIGNATURES: &[$crate::driver::oracle::Signature] = &[
            $(($symbol, &[$(size_of::<$type>()),*]),)*
            $(($osymbol, &[$(size_of::<$otype>()),*]),)*
        ];

        impl Api {
            /// Looks every symbol up. A required one that is missing makes the library useless: its name is given.
            pub(super) fn load(library: $crate::driver::library::Library) -> Result<Self, &'static std::ffi::CStr> {
                Ok(Self {
                    $($name: {
                        let address = library.symbol($symbol).ok_or($symbol)?.as_ptr();
                        // SAFETY: the symbol has the signature that the vendor's header gives it, which the table
                        // repeats.
                        unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($type),*) -> $status>(address) }
                    },)*
                    $($oname: library.symbol($osymbol).map(|address| {
                        let address = address.as_ptr();
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($otype),*) -> $status>(address) }
                    }),)*
                    library,
                })
            }

            $(
                #[expect(clippy::too_many_arguments, clippy::allow_attributes, reason = "the vendor's signature")]
                #[allow(unfulfilled_lint_expectations, reason = "most have few")]
                pub(super) fn $name(&self, $($arg: $type),*) -> $status {
                    // SAFETY: references are valid for the call, pointers are to arrays of the length passed
                    // beside them, and handles are those that the driver gave (the books of each driver establish
                    // that) or the caller's, who vouches for them.
                    unsafe { (self.$name)($($arg),*) }
                }
            )*
            $(
                #[expect(clippy::too_many_arguments, clippy::allow_attributes, reason = "the vendor's signature")]
                #[allow(unfulfilled_lint_expectations, reason = "most have few")]
                pub(super) fn $oname(&self, $($oarg: $otype),*) -> $status {
                    match self.$oname {
                        // SAFETY: as for the required ones.
                        Some(function) => unsafe { function($($oarg),*) },
                        None => $missing,
                    }
                }
            )*
        }
    };
}

pub(in crate::driver) use table;
