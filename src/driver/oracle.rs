//! Compares a vendor's table of functions with bindings that others made from the vendor's header: what each function
//! takes, by the sizes. Done when the library is compiled; nothing of those bindings is called, and so nothing of
//! theirs is linked.

use std::ffi::CStr;

/// A function's name, and the sizes of what it takes.
pub(in crate::driver) type Signature = (&'static CStr, &'static [usize]);

/// True where the table has the function, and it takes as much.
pub(in crate::driver) const fn takes(table: &[Signature], name: &str, sizes: &[usize]) -> bool {
    let mut at = 0;
    while at < table.len() {
        let (ours, own) = table[at];
        if same_text(ours.to_bytes(), name.as_bytes()) {
            return same_sizes(own, sizes);
        }
        at += 1;
    }
    false
}

const fn same_text(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

const fn same_sizes(a: &[usize], b: &[usize]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Functions that give the sizes of what a function of the kind `$abi` takes; its answer has 32 bits.
macro_rules! sizes {
    (@one [$($abi:tt)*] $count:literal $name:ident ($($arg:ident)*)) => {
        #[allow(dead_code, clippy::allow_attributes, reason = "not every header has functions of each length")]
        const fn $name<R $(, $arg)*>(_: $($abi)* fn($($arg),*) -> R) -> [usize; $count] {
            assert!(size_of::<R>() == 4);
            [$(size_of::<$arg>()),*]
        }
    };
    ($abi:tt) => {
        crate::driver::oracle::sizes! { @one $abi 0 of0 () }
        crate::driver::oracle::sizes! { @one $abi 1 of1 (A) }
        crate::driver::oracle::sizes! { @one $abi 2 of2 (A B) }
        crate::driver::oracle::sizes! { @one $abi 3 of3 (A B C) }
        crate::driver::oracle::sizes! { @one $abi 4 of4 (A B C D) }
        crate::driver::oracle::sizes! { @one $abi 5 of5 (A B C D E) }
        crate::driver::oracle::sizes! { @one $abi 6 of6 (A B C D E F) }
        crate::driver::oracle::sizes! { @one $abi 9 of9 (A B C D E F G H I) }
        crate::driver::oracle::sizes! { @one $abi 11 of11 (A B C D E F G H I J K) }
    };
}

/// Compares functions of a crate: how many arguments each has, and its name.
macro_rules! compare {
    ($krate:ident: $($of:ident $($name:ident)*;)*) => {
        $($(const _: () = assert!(
            crate::driver::oracle::takes(SIGNATURES, stringify!($name), &$of($krate::$name)),
            concat!("our table differs from the header: ", stringify!($name)),
        );)*)*
    };
}

/// Asserts that a struct of ours lies as one of a crate's does.
macro_rules! same_layout {
    ($ours:ty as $theirs:ty { $($field:ident: $theirs_field:ident,)* }) => {
        const _: () = {
            assert!(size_of::<$ours>() == size_of::<$theirs>());
            assert!(align_of::<$ours>() == align_of::<$theirs>());
            $(assert!(std::mem::offset_of!($ours, $field) == std::mem::offset_of!($theirs, $theirs_field));)*
        };
    };
}

pub(in crate::driver) use {compare, same_layout, sizes};

/// The functions of a table whose names stand nowhere in the text of their comparison.
#[cfg(test)]
pub(in crate::driver) fn not_compared<'a>(table: &[Signature], text: &'a str) -> Vec<&'static str> {
    let words: std::collections::HashSet<&'a str> =
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let names = table.iter().map(|(name, _)| name.to_str().expect("ASCII"));
    names.filter(|name| !words.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Signature] = &[(c"one", &[8]), (c"two", &[8, 4])];

    #[test]
    fn a_difference_is_seen() {
        assert!(takes(TABLE, "two", &[8, 4]) && takes(TABLE, "one", &[8]));
        assert!(
            !takes(TABLE, "two", &[4, 8]) && !takes(TABLE, "two", &[8]) && !takes(TABLE, "two", &[8, 4, 4])
        );
        assert!(!takes(TABLE, "tw", &[8, 4]) && !takes(TABLE, "three", &[]));
        assert_eq!(not_compared(TABLE, "of1 one;\n two_more"), ["two"]);
    }
}
