//! The system calls that move memory, made safe: a window of addresses is owned, and every call stays inside it.
#![allow(unsafe_code, reason = "the system calls that the host driver is made of")]

use crate::error::{Error, Kind, Operation};
use crate::units::{ByteSize, DevicePtr, DeviceRange};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// The number of a failed system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Errno(pub(super) i32);

impl Errno {
    /// That of this thread's last call.
    fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    fn name(self) -> &'static str {
        match self.0 {
            libc::ENOMEM => "ENOMEM",
            libc::EMFILE => "EMFILE",
            libc::ENFILE => "ENFILE",
            libc::ENOSPC => "ENOSPC",
            libc::EINVAL => "EINVAL",
            libc::EAGAIN => "EAGAIN",
            libc::EPERM => "EPERM",
            libc::EACCES => "EACCES",
            libc::EFBIG => "EFBIG",
            libc::EFAULT => "EFAULT",
            libc::EBADF => "EBADF",
            _ => "",
        }
    }

    /// The failure of `operation`; `no_memory` is what running out means there.
    pub(super) fn error(self, operation: Operation, no_memory: Kind) -> Error {
        let (kind, hint) = match self.0 {
            libc::ENOMEM if super::budget::system_is_full() => {
                (Kind::MapLimit, "the process holds vm.max_map_count mappings: use larger blocks or raise it")
            }
            libc::ENOMEM | libc::ENOSPC | libc::EAGAIN | libc::EFBIG => (no_memory, ""),
            libc::EMFILE | libc::ENFILE => (Kind::OutOfFileDescriptors, "raise the limit (ulimit -n)"),
            _ => (Kind::DriverError, ""),
        };
        Error::new(kind, operation, hint).native(i64::from(self.0), self.name())
    }
}

fn check(status: libc::c_int) -> Result<(), Errno> {
    if status == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// What the host may do with pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Prot {
    None,
    Read,
    ReadWrite,
}

impl Prot {
    const fn bits(self) -> libc::c_int {
        match self {
            Self::None => libc::PROT_NONE,
            Self::Read => libc::PROT_READ,
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// A file in memory.
#[derive(Debug)]
pub(super) struct MemFile(OwnedFd);

/// What an exported file must carry, so that whoever holds it cannot pull memory away under a mapping.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

impl MemFile {
    /// An empty file that can be sealed later.
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a NUL-terminated constant.
        let fd = unsafe { libc::memfd_create(c"gvmm".as_ptr(), flags) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: memfd_create has just given this descriptor to us and nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the file `size` bytes long.
    pub(super) fn resize(&self, size: u64) -> Result<(), Errno> {
        let size = i64::try_from(size).map_err(|_| Errno(libc::EFBIG))?;
        // SAFETY: plain numbers on a descriptor of ours.
        check(unsafe { libc::ftruncate(self.0.as_raw_fd(), size) })
    }

    fn fallocate(&self, mode: libc::c_int, offset: u64, size: u64) -> Result<(), Errno> {
        let offset = i64::try_from(offset).map_err(|_| Errno(libc::EFBIG))?;
        let size = i64::try_from(size).map_err(|_| Errno(libc::EFBIG))?;
        // SAFETY: plain numbers on a descriptor of ours.
        check(unsafe { libc::fallocate(self.0.as_raw_fd(), mode, offset, size) })
    }

    /// How many bytes of memory the file takes.
    #[cfg(test)]
    pub(super) fn committed(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let file = std::fs::File::from(self.descriptor().expect("a descriptor"));
        file.metadata().expect("its state").blocks() * 512
    }

    /// Gives the memory of a part back to the system; the part reads as zero afterwards.
    pub(super) fn punch(&self, offset: u64, size: u64) -> Result<(), Errno> {
        self.fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, size)
    }

    /// Commits the memory of a part.
    pub(super) fn commit(&self, offset: u64, size: u64) -> Result<(), Errno> {
        self.fallocate(libc::FALLOC_FL_KEEP_SIZE, offset, size)
    }

    /// Fixes the size for good, for whoever gets the descriptor.
    pub(super) fn seal(&self) -> Result<(), Errno> {
        // SAFETY: F_ADD_SEALS takes a plain number.
        check(unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })
    }

    /// Another descriptor of the file.
    pub(super) fn descriptor(&self) -> Result<OwnedFd, Errno> {
        self.0.try_clone().map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EMFILE)))
    }

    /// The file behind a descriptor from outside, and its size; none where it is not a sealed file in memory.
    pub(super) fn adopt(fd: BorrowedFd<'_>) -> Result<Option<(Self, u64)>, Errno> {
        // SAFETY: F_GET_SEALS takes no further argument.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return Ok(None);
        }
        let own = fd.try_clone_to_owned().map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EMFILE)))?;
        let file = std::fs::File::from(own);
        let size = file.metadata().map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EBADF)))?.len();
        Ok(Some((Self(file.into()), size)))
    }
}

/// Addresses that we own: nobody else maps anything there, and no Rust reference points into them. Given back
/// when dropped.
#[derive(Debug)]
pub(super) struct Window(DeviceRange);

impl Window {
    /// `size` addresses at a multiple of `alignment` (both multiples of the page, the latter a power of two)
    /// with nothing behind them.
    pub(super) fn reserve(size: u64, alignment: u64) -> Result<Self, Errno> {
        let slack = alignment.saturating_sub(page());
        let all = Self::anonymous(size.checked_add(slack).ok_or(Errno(libc::ENOMEM))?, Prot::None)?;
        let start = all.0.start().0.next_multiple_of(alignment);
        let head = start - all.0.start().0;
        let tail = slack - head;
        // On a failure the drop of `all` gives everything back.
        if head > 0 {
            unmap_pages(all.0.start().0, head)?;
        }
        if tail > 0 {
            unmap_pages(start + size, tail)?;
        }
        let range = DeviceRange::new(DevicePtr(start), ByteSize(size)).ok_or(Errno(libc::EINVAL))?;
        std::mem::forget(all);
        Ok(Self(range))
    }

    /// `size` bytes (a multiple of the page) of zeroed memory.
    pub(super) fn anonymous(size: u64, prot: Prot) -> Result<Self, Errno> {
        let length = usize::try_from(size).map_err(|_| Errno(libc::ENOMEM))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: without MAP_FIXED the system picks addresses that nobody uses.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, prot.bits(), flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let start = DevicePtr(start.expose_provenance() as u64);
        Ok(Self(DeviceRange::new(start, ByteSize(size)).ok_or(Errno(libc::EINVAL))?))
    }

    /// The addresses.
    pub(super) const fn range(&self) -> DeviceRange {
        self.0
    }

    /// The pointer and length of `part`, which must lie inside.
    fn inside(&self, part: DeviceRange) -> Result<(*mut libc::c_void, usize), Errno> {
        if !self.0.contains_range(part) {
            return Err(Errno(libc::EINVAL));
        }
        Ok((pointer(part.start()).cast(), part.size().0 as usize))
    }

    fn fixed(&self, part: DeviceRange, prot: Prot, flags: i32, fd: i32, offset: i64) -> Result<(), Errno> {
        let (start, length) = self.inside(part)?;
        // SAFETY: the window owns these addresses (checked just above), so what is replaced there is ours.
        let got = unsafe { libc::mmap(start, length, prot.bits(), flags | libc::MAP_FIXED, fd, offset) };
        if got == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(()) }
    }

    /// Puts the bytes of `file` from `offset` on at `part`, replacing what was there in one step.
    pub(super) fn place(
        &self,
        part: DeviceRange,
        file: &MemFile,
        offset: u64,
        prot: Prot,
    ) -> Result<(), Errno> {
        let offset = i64::try_from(offset).map_err(|_| Errno(libc::EFBIG))?;
        self.fixed(part, prot, libc::MAP_SHARED, file.0.as_raw_fd(), offset)
    }

    /// Leaves `part` with nothing behind it, but ours, replacing what was there in one step.
    pub(super) fn clear(&self, part: DeviceRange) -> Result<(), Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        self.fixed(part, Prot::None, flags, -1, 0)
    }

    /// Sets what the host may do in `part`.
    pub(super) fn protect(&self, part: DeviceRange, prot: Prot) -> Result<(), Errno> {
        let (start, length) = self.inside(part)?;
        // SAFETY: the window owns these addresses (checked just above).
        check(unsafe { libc::mprotect(start, length, prot.bits()) })
    }

    /// Advice about the pages of the whole window.
    pub(super) fn advise(&self, advice: libc::c_int) -> Result<(), Errno> {
        let (start, length) = self.inside(self.0)?;
        // SAFETY: the window owns these addresses, and the advice given here (huge pages, filling) keeps their content.
        check(unsafe { libc::madvise(start, length, advice) })
    }

    /// Gives the addresses back; on a failure nothing has changed.
    pub(super) fn close(self) -> Result<(), (Self, Errno)> {
        match unmap_pages(self.0.start().0, self.0.size().0) {
            Ok(()) => {
                std::mem::forget(self);
                Ok(())
            }
            Err(errno) => Err((self, errno)),
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Err(errno) = unmap_pages(self.0.start().0, self.0.size().0) {
            log::error!("{} addresses at {} stay taken: {errno:?}", self.0.size(), self.0.start());
        }
    }
}

/// Gives pages back. Private: only for addresses that a window owns.
fn unmap_pages(start: u64, size: u64) -> Result<(), Errno> {
    let start: *mut libc::c_void = pointer(DevicePtr(start)).cast();
    // SAFETY: both callers own these addresses and forget them after success.
    check(unsafe { libc::munmap(start, size as usize) })
}

/// The pointer for an address of the host's. Making it is safe; using it is what needs a reason.
fn pointer(address: DevicePtr) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address.0 as usize)
}

/// The size of a small page.
pub(super) fn page() -> u64 {
    // SAFETY: sysconf takes a plain number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// The machine's memory in bytes.
pub(super) fn machine_memory() -> u64 {
    // SAFETY: sysconf takes a plain number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(page())
}

/// Copies `bytes` bytes inside memory of ours.
///
/// # Safety
/// Both ranges lie in windows that stay mapped, readable at `src` and writable at `dst`, during the call.
pub(super) unsafe fn move_bytes(dst: DevicePtr, src: DevicePtr, bytes: u64) {
    // SAFETY: the caller vouches for both ranges. Two views of one block may overlap, which `copy` allows.
    // Others may write the same bytes at the same time, as with any device memory: whoever orders work badly
    // reads a mixture of bytes, and nothing here depends on their values.
    unsafe { ptr::copy(pointer(src), pointer(dst), bytes as usize) }
}

/// Copies `bytes` bytes of which some are not ours, so that they may not be there: EFAULT then.
pub(super) fn move_foreign(dst: DevicePtr, src: DevicePtr, bytes: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes {
        let length = (bytes - done) as usize;
        let to = libc::iovec { iov_base: pointer(DevicePtr(dst.0 + done)).cast(), iov_len: length };
        let from = libc::iovec { iov_base: pointer(DevicePtr(src.0 + done)).cast(), iov_len: length };
        // SAFETY: the system checks both ranges and answers EFAULT where they are not there; that the bytes may
        // be overwritten is what the caller of `copy` asked for.
        let moved = unsafe { libc::process_vm_readv(own_id(), &to, 1, &from, 1, 0) };
        match u64::try_from(moved) {
            Ok(0) => return Err(Errno(libc::EFAULT)),
            Ok(moved) => done += moved,
            Err(_) => return Err(Errno::last()),
        }
    }
    Ok(())
}

/// This process's number.
fn own_id() -> libc::pid_t {
    libc::pid_t::try_from(std::process::id()).unwrap_or(0)
}

/// Keeps the process's signals away from this thread, so that they go to threads of the program's own.
pub(super) fn block_signals() {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes the set it is given.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: the set was filled just above; faults of this thread's own are delivered all the same.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) };
}
