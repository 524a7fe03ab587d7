//! Log lines on stderr that never hold the process up.
//!
//! A host may close stderr, let it fill up, or never read it. A line that does not fit at once is
//! dropped and counted, and the count is told with the next line that fits. No line holds a secret.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::{Level, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::sys::stdio;

/// The longest line, in bytes; what a pipe takes at once.
const MAX_LINE_BYTES: usize = 4000;

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Starts logging: warnings and the start line, each call with `verbose`, or what `RUST_LOG` says.
pub fn start(verbose: bool) {
    let level = if verbose { Level::DEBUG } else { Level::INFO };
    let ours = Targets::new().with_target("tinyagent", level).with_default(Level::WARN);
    let asked = std::env::var("RUST_LOG").ok().filter(|spec| !spec.is_empty()).map(|spec| spec.parse());
    let is_understood = !matches!(asked, Some(Err(_)));
    let lines = tracing_subscriber::fmt::layer()
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_writer(Stderr);
    // A second start in one process is a test's; the first one's settings then hold.
    let _ = tracing_subscriber::registry()
        .with(lines)
        .with(asked.and_then(Result::ok).unwrap_or(ours))
        .try_init();
    if !is_understood {
        warn!("RUST_LOG is left aside: it is no list such as warn,tinyagent=debug");
    }
}

/// Makes a writer for each line.
struct Stderr;

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter(Vec::with_capacity(128))
    }
}

/// Collects one line and writes it whole or not at all.
struct LineWriter(Vec<u8>);

impl io::Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        write_line(&self.0);
    }
}

/// Writes one line to stderr if that needs no waiting.
fn write_line(line: &[u8]) {
    let dropped = DROPPED.swap(0, Ordering::Relaxed);
    let mut text = b"tinyagent: ".to_vec();
    if dropped > 0 {
        text.extend_from_slice(format!("({dropped} log lines dropped) ").as_bytes());
    }
    text.extend_from_slice(line.trim_ascii());
    text.truncate(MAX_LINE_BYTES);
    text.push(b'\n');
    if !stdio::write_stderr(&text) {
        DROPPED.fetch_add(dropped + 1, Ordering::Relaxed);
    }
}

/// Tells the person who started the program something on one line: mostly why it does not go on.
pub fn tell(message: &dyn std::fmt::Display) {
    write_line(crate::failure::one_line_of_any_length(&message.to_string()).as_bytes());
}
