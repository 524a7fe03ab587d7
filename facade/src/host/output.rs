//! Lines to the host: written at once where stdout takes them, queued where it does not.
//!
//! A host that reads late never blocks the process: what stdout does not take waits here, and whoever
//! produces large lines asks for room first. Only whole lines are ever queued.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::thread;

use bytes::{Buf, Bytes};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc};

use crate::sys::stdio::{self, Stdout};

/// While more than this waits for the host, no further relay call is begun.
const FULL_BYTES: usize = 16 << 20;

/// The host's stdout.
pub struct Output {
    queue: RefCell<VecDeque<Bytes>>,
    queued: Cell<usize>,
    /// Whether lines may be written at once, or only by the writing thread.
    direct: Cell<bool>,
    closed: Cell<bool>,
    waiting: Notify,
    drained: Notify,
    ended: Notify,
}

impl Default for Output {
    /// Takes stdout over. [`Output::run`] must run beside.
    fn default() -> Self {
        Self {
            queue: RefCell::default(),
            queued: Cell::new(0),
            direct: Cell::new(stdio::nowait_works()),
            closed: Cell::new(false),
            waiting: Notify::new(),
            drained: Notify::new(),
            ended: Notify::new(),
        }
    }
}

impl Output {
    /// Sends one line, given in pieces without its end.
    pub fn send(&self, pieces: impl IntoIterator<Item = Bytes>) {
        if self.closed.get() {
            return;
        }
        let mut queue = self.queue.borrow_mut();
        let idle = queue.is_empty() && self.queued.get() == 0;
        for piece in pieces.into_iter().chain([Bytes::from_static(b"\n")]) {
            if !piece.is_empty() {
                self.queued.set(self.queued.get() + piece.len());
                queue.push_back(piece);
            }
        }
        if idle && self.direct.get() {
            match self.write_some(&mut queue) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => self.direct.set(false),
                Err(_) => self.close(),
            }
        }
        if !queue.is_empty() {
            self.waiting.notify_one();
        }
    }

    /// Whether the host has closed its end.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Waits until the host has closed its end.
    pub async fn closed(&self) {
        while !self.closed.get() {
            self.ended.notified().await;
        }
    }

    /// Waits until there is room for a large line.
    pub async fn room(&self) {
        while self.queued.get() > FULL_BYTES && !self.closed.get() {
            self.drained.notified().await;
        }
    }

    /// Waits until everything was written or stdout is closed.
    pub async fn flushed(&self) {
        while self.queued.get() > 0 && !self.closed.get() {
            self.drained.notified().await;
        }
    }

    /// Writes what is queued, whenever stdout takes it. Runs for the life of the process.
    pub async fn run(&self) {
        if let Some(stdout) = stdio::register_stdout() {
            self.write_when_ready(&stdout).await;
        }
        if !self.closed.get() {
            self.direct.set(false);
            self.write_on_a_thread().await;
        }
    }

    /// Returns when the descriptor turns out not to offer writes without waiting.
    async fn write_when_ready(&self, stdout: &AsyncFd<Stdout>) {
        while !self.closed.get() {
            if self.queue.borrow().is_empty() {
                self.waiting.notified().await;
                continue;
            }
            let Ok(mut guard) = stdout.writable().await else { return };
            let written = self.write_some(&mut self.queue.borrow_mut());
            match written {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return,
                Err(_) => self.close(),
            }
        }
    }

    async fn write_on_a_thread(&self) {
        let (lines, mut inbox) = mpsc::channel::<Bytes>(1);
        let (report, mut written) = mpsc::channel::<bool>(1);
        let writer = thread::Builder::new().name("stdout".into()).stack_size(64 << 10).spawn(move || {
            while let Some(mut piece) = inbox.blocking_recv() {
                let done = write_whole(&mut piece);
                if report.blocking_send(done).is_err() || !done {
                    return;
                }
            }
        });
        if writer.is_err() {
            self.close();
        }
        while !self.closed.get() {
            let next = self.queue.borrow_mut().pop_front();
            let Some(piece) = next else {
                self.waiting.notified().await;
                continue;
            };
            let length = piece.len();
            if lines.send(piece).await.is_err() || written.recv().await != Some(true) {
                self.close();
            }
            self.took(length);
        }
    }

    /// Writes from the queue until it is empty or stdout takes no more.
    fn write_some(&self, queue: &mut VecDeque<Bytes>) -> io::Result<()> {
        while !queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); 16];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(queue.iter()) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            let mut put = match stdio::write(&slices[..count]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            self.took(put);
            while let Some(first) = queue.front_mut().filter(|_| put > 0) {
                let part = put.min(first.len());
                first.advance(part);
                put -= part;
                if first.is_empty() {
                    queue.pop_front();
                }
            }
        }
        Ok(())
    }

    fn took(&self, bytes: usize) {
        self.queued.set(self.queued.get() - bytes);
        if self.queued.get() <= FULL_BYTES {
            self.drained.notify_waiters();
        }
    }

    fn close(&self) {
        self.closed.set(true);
        self.ended.notify_waiters();
        self.drained.notify_waiters();
        self.waiting.notify_one();
    }
}

fn write_whole(piece: &mut Bytes) -> bool {
    while !piece.is_empty() {
        match stdio::write_blocking(piece) {
            Ok(put) => piece.advance(put),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}
