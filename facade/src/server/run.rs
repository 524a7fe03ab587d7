//! The life of the server: from the first line of the host to the last answer.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;
use tracing::{error, info};

use super::Server;
use crate::host::input::{Input, Line};
use crate::host::message;
use crate::sys::stdio;

/// How long answers may take once stdin has ended (contract 2).
const END_LIMIT: Duration = Duration::from_millis(1500);

/// How long the last lines may take to be read.
const FLUSH_LIMIT: Duration = Duration::from_millis(300);

/// The exit status where the signer has ended, so that the host starts a fresh one (contract 2).
pub const SIGNER_GONE: i32 = 70;

/// Why the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The host closed stdin.
    Input,
    /// The host closed stdout.
    Output,
    /// A signal asked for it.
    Signal,
    /// The signer has ended and nothing is unanswered.
    Signer,
}

/// Serves until the end; gives the exit status.
///
/// # Errors
/// When stdin or the signals cannot be taken over.
pub async fn serve(server: Rc<Server>) -> io::Result<i32> {
    stdio::widen_pipes();
    let mut input = Input::new()?;
    let mut ended = start_tasks(&server, Signals::new()?);
    let end = serve_lines(&server, &mut input, &mut ended).await;
    match end {
        End::Output | End::Signal => return Ok(0),
        End::Input => {
            tokio::select! {
                _ = timeout(END_LIMIT, server.pending.empty()) => {}
                _ = &mut ended => {}
            }
        }
        End::Signer => {
            error!("the signing process has ended; exiting so that the host can start a fresh server")
        }
    }
    let _ = timeout(FLUSH_LIMIT, server.output.flushed()).await;
    Ok(if end == End::Signer { SIGNER_GONE } else { 0 })
}

/// Starts what runs beside the lines; the task that is returned says when it is time to end.
#[cold]
fn start_tasks(server: &Rc<Server>, signals: Signals) -> JoinHandle<End> {
    let writer = server.clone();
    spawn_local(async move { writer.output.run().await });
    spawn_local(server.clone().forward_calls());
    // A task of its own, so that what hardly ever happens is not looked at with every line.
    spawn_local(end_of(server.clone(), signals))
}

/// Waits for an end that is not the input's.
async fn end_of(server: Rc<Server>, mut signals: Signals) -> End {
    let signer_is_done = async {
        server.bridge.signer.gone().await;
        server.pending.empty().await;
    };
    tokio::select! {
        biased;
        () = server.output.closed() => End::Output,
        () = signals.any() => {
            info!("ended by a signal");
            End::Signal
        }
        () = signer_is_done => End::Signer,
    }
}

async fn serve_lines(server: &Rc<Server>, input: &mut Input, ended: &mut JoinHandle<End>) -> End {
    loop {
        if server.output.is_closed() {
            return End::Output;
        }
        tokio::select! {
            biased;
            line = next_line(server, input) => match line {
                Line::Text(line) => server.take(&line),
                Line::TooLong => {
                    let limit = crate::host::input::MAX_LINE_BYTES >> 20;
                    let text = format!("Parse error: the line exceeds {limit} MiB");
                    server.send_error(None, message::PARSE_ERROR, &text);
                }
                // Half a line is nobody's message, but a whole one may lack its line end.
                Line::Unfinished(line) => {
                    if tinyagent_protocol::json::Json::check(&line).is_ok() {
                        server.take(&line);
                    }
                }
                Line::End => return End::Input,
            },
            // The task ends in no other way than with its result, or with the runtime and this task.
            end = &mut *ended => return end.unwrap_or(End::Signal),
        }
    }
}

/// The next line, once what waits for the host leaves room for its answer.
async fn next_line(server: &Server, input: &mut Input) -> Line {
    server.output.room().await;
    input.next().await
}

struct Signals([Signal; 3]);

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self([
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    async fn any(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
