//! One mapping kept in hand. Where the process holds as many as it may, Linux refuses even to replace one, so
//! that nothing could be unmapped any more; giving this one up makes the room that an unmap needs.

use super::sys::{Errno, MemFile, Prot, Window, page};
use std::sync::{Mutex, PoisonError};

/// Far behind the end of the file, so that the system joins the mapping with no other. Nobody touches it.
const NOWHERE: u64 = 1 << 60;

/// The mapping in hand, or none where there was no room for it last time.
#[derive(Debug)]
pub(super) struct Spare(Mutex<Option<Window>>);

impl Spare {
    pub(super) fn new(file: &MemFile) -> Self {
        Self(Mutex::new(make(file)))
    }

    /// Does what frees something, again with the mapping in hand given up if memory or mappings had run out.
    pub(super) fn help<R>(
        &self,
        file: &MemFile,
        mut run: impl FnMut() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let first = run();
        if !matches!(first, Err(Errno(libc::ENOMEM))) {
            return first;
        }
        // Held across the system calls, so that nobody else takes the room that is made here.
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(spare.take());
        let second = run();
        *spare = make(file);
        second
    }
}

fn make(file: &MemFile) -> Option<Window> {
    let window = Window::anonymous(page(), Prot::None).ok()?;
    window.place(window.range(), file, NOWHERE, Prot::None).ok()?;
    Some(window)
}
