//! A vendor's error numbers → [`Error`]: the number and its name are kept, the kind is the same event's kind on every
//! driver.

use crate::error::{Error, Kind, Operation};

/// What a known number means: its name, its kind and what to do.
pub(in crate::driver) struct Row<S>(
    pub(in crate::driver) S,
    pub(in crate::driver) &'static str,
    pub(in crate::driver) Kind,
    pub(in crate::driver) &'static str,
);

/// The failure that `status` stands for. The same number means another thing in some operations, which `kind_of`
/// says; `name_of` names a number that is in no row, or gives "".
pub(in crate::driver) fn failure<S: Copy + PartialEq + Into<i64>>(
    rows: &[Row<S>],
    status: S,
    operation: Operation,
    kind_of: impl FnOnce(Kind, S, Operation) -> Kind,
    name_of: impl FnOnce(S) -> &'static str,
) -> Error {
    match rows.iter().find(|row| row.0 == status) {
        Some(Row(_, name, kind, hint)) => {
            Error::new(kind_of(*kind, status, operation), operation, hint).native(status.into(), name)
        }
        None => Error::new(Kind::DriverError, operation, "").native(status.into(), name_of(status)),
    }
}

/// True where this process can open no further file: drivers report that as one of several errors.
pub(in crate::driver) fn no_descriptor_left() -> bool {
    match std::fs::File::open("/dev/null") {
        Ok(_) => false,
        Err(error) => matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)),
    }
}
