//! One page of memory for the key, as far out of reach as the kernel offers; and the allocator's habits.
//!
//! `memfd_secret` pages are unmapped from the kernel itself, so not even root reads them through
//! `/proc` or `process_vm_readv`; elsewhere the page is locked, kept out of dumps and of children.

use std::io;
use std::ptr::NonNull;

use super::curve::KEYPAIR_BYTES;

/// How a [`SecretPage`] is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A `memfd_secret` mapping whose descriptor is closed.
    MemfdSecret,
    /// An anonymous page with `mlock`.
    Locked,
    /// An anonymous page that could not be locked and may be swapped out.
    Unlocked,
}

/// The most that is read of a key file; a key and a line end are 66 bytes at most.
pub const KEY_TEXT_BYTES: usize = 1024;

/// What lies in the page: plain bytes, for which all zeros is a valid value.
#[repr(C)]
pub struct Contents {
    /// libsecp256k1's key pair, for good.
    pub keypair: [u8; KEYPAIR_BYTES],
    /// The decoded scalar, until the key pair has been made of it.
    pub scalar: [u8; 32],
    /// The text of a key file, until it has been decoded.
    pub text: [u8; KEY_TEXT_BYTES],
}

// The smallest page of any supported system has 4096 bytes.
const _: () = assert!(size_of::<Contents>() <= 4096 && align_of::<Contents>() == 1);

/// A private page that is wiped when dropped. It has no Clone, Debug or Serialize.
pub struct SecretPage {
    start: NonNull<u8>,
    length: usize,
    /// How the page is kept.
    pub backing: Backing,
    /// Why it is not `memfd_secret`, or not locked.
    pub shortfall: Option<io::Error>,
    /// Why an ordinary page may show up in a dump or in a child, where that could not be excluded.
    pub unadvised: Option<io::Error>,
}

impl SecretPage {
    /// Maps a zeroed page. Fails only when there is no memory at all.
    pub fn map() -> io::Result<Self> {
        let length = page_size();
        match map_secret_memory(length) {
            Ok(start) => {
                Ok(Self { start, length, backing: Backing::MemfdSecret, shortfall: None, unadvised: None })
            }
            Err(refused) => map_locked_memory(length, refused),
        }
    }

    /// The page, to be filled before [`SecretPage::seal`].
    pub fn contents_mut(&mut self) -> &mut Contents {
        // SAFETY: `start` is a live mapping of at least 4096 bytes owned by `self`, writable until
        // `seal` consumes the page; `Contents` is bytes alone, and `&mut self` is exclusive.
        unsafe { &mut *self.start.as_ptr().cast() }
    }

    /// Makes the page read-only from here on.
    pub fn seal(self) -> io::Result<SealedPage> {
        // SAFETY: the mapping is ours and no reference into it is alive, since `self` was moved in.
        match unsafe { libc::mprotect(self.start.as_ptr().cast(), self.length, libc::PROT_READ) } {
            0 => Ok(SealedPage(self)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A [`SecretPage`] that can only be read.
pub struct SealedPage(SecretPage);

impl SealedPage {
    /// What was written before the page was sealed.
    pub fn contents(&self) -> &Contents {
        // SAFETY: as in `contents_mut`, readable, and nobody can write while `self` is borrowed.
        unsafe { &*self.0.start.as_ptr().cast() }
    }
}

impl Drop for SecretPage {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, made writable again (it may have been sealed), wiped with
        // stores that the compiler must keep, and unmapped; nothing refers to it afterwards.
        unsafe {
            let start = self.start.as_ptr();
            if libc::mprotect(start.cast(), self.length, libc::PROT_READ | libc::PROT_WRITE) == 0 {
                for offset in 0..self.length {
                    start.add(offset).write_volatile(0);
                }
            }
            libc::munmap(start.cast(), self.length);
        }
    }
}

/// Blocks from this size on are mapped on their own and given back when freed, in bytes: glibc's own
/// first value (mallopt(3)), which it otherwise raises to the largest block ever freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BLOCK_BYTES: i32 = 128 * 1024;

/// Makes the allocator return the memory of a large request to the system once it is answered.
pub fn return_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets a number in the allocator, before any other thread could exist.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
    }
}

fn page_size() -> usize {
    // SAFETY: a query without pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

#[cfg(target_os = "linux")]
fn map_secret_memory(length: usize) -> io::Result<NonNull<u8>> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    // SAFETY: a system call without pointers; a non-negative result is a new descriptor that
    // nobody else owns. It is closed when `file` goes out of scope: a kept one could be taken with
    // pidfd_getfd and mapped by another process.
    let file = unsafe {
        let fd = libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd as i32)
    };
    let length_on_disk = length.try_into().map_err(io::Error::other)?;
    // SAFETY: `file` is a descriptor of ours.
    if unsafe { libc::ftruncate(file.as_raw_fd(), length_on_disk) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // MAP_SHARED is the only kind that memfd_secret accepts.
    let start = map(length, libc::MAP_SHARED, file.as_raw_fd())?;
    advise(start, length, libc::MADV_DONTFORK)?;
    Ok(start)
}

#[cfg(not(target_os = "linux"))]
fn map_secret_memory(_: usize) -> io::Result<NonNull<u8>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "memfd_secret needs Linux"))
}

fn map_locked_memory(length: usize, refused: io::Error) -> io::Result<SecretPage> {
    let start = map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    let mut page =
        SecretPage { start, length, backing: Backing::Locked, shortfall: Some(refused), unadvised: None };
    #[cfg(target_os = "linux")]
    for advice in [libc::MADV_DONTDUMP, libc::MADV_WIPEONFORK, libc::MADV_DONTFORK] {
        page.unadvised = advise(start, length, advice).err().or(page.unadvised.take());
    }
    // SAFETY: the mapping is ours.
    if unsafe { libc::mlock(start.as_ptr().cast(), length) } != 0 {
        page.backing = Backing::Unlocked;
        page.shortfall = Some(io::Error::last_os_error());
    }
    Ok(page)
}

fn map(length: usize, flags: i32, fd: i32) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap returned address zero"))
}

#[cfg(target_os = "linux")]
fn advise(start: NonNull<u8>, length: usize, advice: i32) -> io::Result<()> {
    // SAFETY: the range is a mapping of ours, and none of the advices used changes its content in
    // this process.
    match unsafe { libc::madvise(start.as_ptr().cast(), length, advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_what_was_written_after_it_is_sealed() {
        let mut page = SecretPage::map().unwrap();
        page.contents_mut().scalar[..3].copy_from_slice(b"abc");
        let sealed = page.seal().unwrap();
        assert_eq!(&sealed.contents().scalar[..4], b"abc\0");
    }

    #[test]
    fn the_fallback_page_says_why_it_was_needed() {
        let page = map_locked_memory(page_size(), io::Error::from_raw_os_error(libc::ENOSYS)).unwrap();
        assert!(page.backing == Backing::Locked || page.backing == Backing::Unlocked);
        assert!(page.shortfall.is_some());
    }
}
