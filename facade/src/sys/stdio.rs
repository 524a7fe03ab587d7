//! Reads and writes on the standard descriptors that never wait, without changing the descriptors.
//!
//! O_NONBLOCK belongs to the open file, which the host and other processes may share; RWF_NOWAIT
//! (preadv2(2), Linux 4.14, for pipes 5.18) belongs to the one call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use bytes::{BufMut, BytesMut};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Standard input, to be registered for readiness.
pub struct Stdin;

/// Standard output, to be registered for readiness.
pub struct Stdout;

impl AsRawFd for Stdin {
    fn as_raw_fd(&self) -> RawFd {
        libc::STDIN_FILENO
    }
}

impl AsRawFd for Stdout {
    fn as_raw_fd(&self) -> RawFd {
        libc::STDOUT_FILENO
    }
}

/// Registers stdin with the runtime for reading, where this platform has reads that never wait.
/// `None` for what cannot be polled, such as a file.
pub fn register_stdin() -> Option<AsyncFd<Stdin>> {
    // SAFETY: descriptor 0 is open from `launch::prepare` on and closed by nobody in this process.
    nowait_works()
        .then(|| unsafe { AsyncFd::register_with_interest(Stdin, Interest::READABLE) }.ok())
        .flatten()
}

/// Registers stdout with the runtime for writing, where this platform has writes that never wait.
/// `None` for what cannot be polled, such as a file.
pub fn register_stdout() -> Option<AsyncFd<Stdout>> {
    // SAFETY: descriptor 1 is open from `launch::prepare` on and closed by nobody in this process.
    nowait_works()
        .then(|| unsafe { AsyncFd::register_with_interest(Stdout, Interest::WRITABLE) }.ok())
        .flatten()
}

/// What a pipe is widened to: the most that an ordinary user may ask for (pipe(7)).
#[cfg(target_os = "linux")]
const PIPE_BYTES: i32 = 1 << 20;

/// Lets long lines pass through stdin and stdout in fewer steps, where these are pipes and the user's
/// share of pipe memory allows it. A kernel that says no leaves them as they were.
pub fn widen_pipes() {
    #[cfg(target_os = "linux")]
    for descriptor in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: the call takes no argument and touches no memory of this process.
        let bytes = unsafe { libc::fcntl(descriptor, libc::F_GETPIPE_SZ) };
        if (0..PIPE_BYTES).contains(&bytes) {
            // SAFETY: the call takes an integer and touches no memory of this process.
            unsafe { libc::fcntl(descriptor, libc::F_SETPIPE_SZ, PIPE_BYTES) };
        }
    }
}

/// Whether this platform has calls that never wait. The kernel may still refuse them for a descriptor.
pub fn nowait_works() -> bool {
    cfg!(target_os = "linux")
}

/// Reads what is waiting on stdin into the buffer's spare room.
///
/// # Errors
/// `WouldBlock` where nothing waits, EOPNOTSUPP where the descriptor does not offer it.
#[cfg(target_os = "linux")]
pub fn read(buffer: &mut BytesMut) -> io::Result<usize> {
    let room = buffer.chunk_mut();
    let part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: `part` describes the spare room of a buffer that is borrowed mutably for the whole call,
    // and one iovec is passed as one.
    let got = unsafe { libc::preadv2(libc::STDIN_FILENO, &raw const part, 1, -1, libc::RWF_NOWAIT) };
    advance(buffer, got)
}

/// Reads what is waiting on stdin; never called where [`nowait_works`] is false.
#[cfg(not(target_os = "linux"))]
pub fn read(_: &mut BytesMut) -> io::Result<usize> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// Reads from stdin into the buffer's spare room, waiting for at least a byte, also where another process
/// that shares the open file (a terminal, say) has made it non-blocking.
///
/// # Errors
/// As read(2).
pub fn read_blocking(buffer: &mut BytesMut) -> io::Result<usize> {
    loop {
        let room = buffer.chunk_mut();
        // SAFETY: pointer and length are the spare room of a buffer that is borrowed mutably for the call.
        let got = unsafe { libc::read(libc::STDIN_FILENO, room.as_mut_ptr().cast(), room.len()) };
        match advance(buffer, got) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_until_ready(libc::STDIN_FILENO, PollFlags::POLLIN)?;
            }
            other => return other,
        }
    }
}

fn wait_until_ready(descriptor: RawFd, events: PollFlags) -> io::Result<()> {
    // SAFETY: only called with this process's own stdin or stdout, which nothing here closes.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    poll(&mut [PollFd::new(descriptor, events)], PollTimeout::NONE)?;
    Ok(())
}

fn advance(buffer: &mut BytesMut, got: isize) -> io::Result<usize> {
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written `got` bytes, at most the room it was given.
    unsafe { buffer.advance_mut(got) };
    Ok(got)
}

/// Writes to stdout as much as fits without waiting.
///
/// # Errors
/// `WouldBlock` where nothing fits, EOPNOTSUPP where the descriptor does not offer it.
#[cfg(target_os = "linux")]
pub fn write(pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
    let count = i32::try_from(pieces.len().min(64)).unwrap_or(64);
    // SAFETY: an IoSlice has the layout of an iovec by its documentation, and `count` is at most the
    // slice's length.
    let put =
        unsafe { libc::pwritev2(libc::STDOUT_FILENO, pieces.as_ptr().cast(), count, -1, libc::RWF_NOWAIT) };
    usize::try_from(put).map_err(|_| io::Error::last_os_error())
}

/// Writes to stdout; never called where [`nowait_works`] is false.
#[cfg(not(target_os = "linux"))]
pub fn write(_: &[io::IoSlice<'_>]) -> io::Result<usize> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// Writes to stdout, waiting until at least a byte is taken, also where stdout was made non-blocking.
///
/// # Errors
/// As write(2).
pub fn write_blocking(bytes: &[u8]) -> io::Result<usize> {
    loop {
        // SAFETY: pointer and length describe a borrowed slice.
        let put = unsafe { libc::write(libc::STDOUT_FILENO, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(put).map_err(|_| io::Error::last_os_error()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_until_ready(libc::STDOUT_FILENO, PollFlags::POLLOUT)?;
            }
            other => return other,
        }
    }
}

/// The most bytes that a ready descriptor takes without waiting (PIPE_BUF, pipe(7)).
const ATOMIC_BYTES: usize = 4096;

/// Writes one short text to stderr if that needs no waiting; false where it was dropped.
pub fn write_stderr(text: &[u8]) -> bool {
    // SAFETY: the descriptor is this process's own stderr, which nothing here closes.
    let stderr = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
    let text = &text[..text.len().min(ATOMIC_BYTES)];
    let mut ready = [PollFd::new(stderr, PollFlags::POLLOUT)];
    if !matches!(poll(&mut ready, PollTimeout::ZERO), Ok(1..)) {
        return false;
    }
    let writable = ready[0].revents().is_some_and(|events| events.contains(PollFlags::POLLOUT));
    writable && nix::unistd::write(stderr, text).is_ok_and(|put| put == text.len())
}
