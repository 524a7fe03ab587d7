//! Receiving and sending on sockets without clearing buffers first.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::MsgFlags;

/// Receives once, appending to the unused capacity of `buffer`; 0 is the end of the stream.
/// Descriptors sent along are dropped by the kernel, as no space for them is offered.
pub fn receive(socket: impl AsFd, buffer: &mut Vec<u8>, flags: MsgFlags) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    // SAFETY: the kernel writes at most `spare.len()` bytes to `spare`, which is borrowed for the call.
    let received = unsafe {
        libc::recv(socket.as_fd().as_raw_fd(), spare.as_mut_ptr().cast(), spare.len(), flags.bits())
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has just written the `received` bytes after the current length, which lie
    // within the capacity.
    unsafe { buffer.set_len(buffer.len() + received) };
    Ok(received)
}

/// As [`receive`], from a file or pipe.
pub fn read(file: impl AsFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    // SAFETY: as in `receive`.
    let read = unsafe { libc::read(file.as_fd().as_raw_fd(), spare.as_mut_ptr().cast(), spare.len()) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: as in `receive`.
    unsafe { buffer.set_len(buffer.len() + read) };
    Ok(read)
}
