//! Huge pages, where they are asked for and to be had.
//!
//! They make remapping what is touched far cheaper (one fault for 2 MiB instead of 512), and commit a block's
//! memory when it is made.

use super::memory::GRANULE;
use super::sys::{Errno, MemFile, Prot, Window};
use crate::units::DeviceRange;

/// How a block gets huge pages on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Huge {
    /// Not at all.
    Off,
    /// By advice, before the pages are touched.
    Advise,
    /// By collapsing small pages after they were committed, which works where advice is switched off.
    Collapse,
}

impl Huge {
    /// Finds out how, by making one block's worth each way.
    pub(super) fn probe(wanted: bool) -> Self {
        if !wanted {
            return Self::Off;
        }
        let found = [Self::Advise, Self::Collapse].into_iter().find(|way| way.works());
        if found.is_none() {
            log::warn!(
                "this machine gives no huge pages for memory that is mapped from a file: small ones it is"
            );
        }
        found.unwrap_or(Self::Off)
    }

    fn works(self) -> bool {
        let size = GRANULE.size().0;
        let Ok(file) = MemFile::new() else { return false };
        let attempt = || {
            file.resize(size)?;
            let window = window(&file, 0, size)?;
            self.fill(&file, 0, &window)?;
            Ok::<_, Errno>(window)
        };
        attempt().is_ok_and(|window| is_huge(window.range()))
    }

    /// Backs a part of `file` by huge pages. Where the system has none left just now, small ones serve too.
    pub(super) fn back(self, file: &MemFile, offset: u64, size: u64) -> Result<(), Errno> {
        if self == Self::Off {
            return Ok(());
        }
        self.fill(file, offset, &window(file, offset, size)?)
    }

    /// Commits what is mapped at `window`, the bytes of `file` from `offset` on.
    fn fill(self, file: &MemFile, offset: u64, window: &Window) -> Result<(), Errno> {
        match self {
            Self::Off => Ok(()),
            Self::Advise => {
                window.advise(libc::MADV_HUGEPAGE)?;
                window.advise(libc::MADV_POPULATE_WRITE)
            }
            Self::Collapse => {
                file.commit(offset, window.range().size().0)?;
                if let Err(errno) = window.advise(libc::MADV_COLLAPSE) {
                    log::debug!("a block of {} keeps small pages: {errno:?}", window.range().size());
                }
                Ok(())
            }
        }
    }

    /// Asks for huge pages for plain memory.
    pub(super) fn advise(self, window: &Window) {
        if self != Self::Off
            && let Err(errno) = window.advise(libc::MADV_HUGEPAGE)
        {
            log::debug!("plain memory keeps small pages: {errno:?}");
        }
    }
}

/// A view of a part of a file, for filling it.
fn window(file: &MemFile, offset: u64, size: u64) -> Result<Window, Errno> {
    let window = Window::reserve(size, GRANULE.size().0)?;
    window.place(window.range(), file, offset, Prot::ReadWrite)?;
    Ok(window)
}

/// True where the system says that a huge page is mapped at the start of `range`.
fn is_huge(range: DeviceRange) -> bool {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let head = format!("{:x}-", range.start().0);
    let lines = text.lines().skip_while(|line| !line.starts_with(&head)).skip(1);
    // A mapping's lines are "Name:  n kB"; the next mapping's first line has no such name.
    let mut own = lines.take_while(|line| line.split_once(':').is_some_and(|(name, _)| !name.contains('-')));
    let field = own.find_map(|line| line.strip_prefix("ShmemPmdMapped:"));
    field.is_some_and(|value| !value.trim_start().starts_with('0'))
}
