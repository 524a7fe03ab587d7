//! What can go wrong before the facade serves, in the words that its one line on stderr has.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use thiserror::Error;

/// Why the launcher, or the second stage, cannot go on.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The program's own path is unknown.
    #[error("cannot find out where this program is installed: {0}; is /proc mounted?")]
    OwnPath(#[source] io::Error),
    /// The program file was replaced or removed after its start.
    #[error("the program at {} was replaced or removed while it started; start it again", .0.display())]
    Replaced(PathBuf),
    /// The signer's program is not beside this one.
    #[error("no signer program at {}; install tinyagent and tinyagent-signer into one directory", .0.display())]
    NoSigner(PathBuf),
    /// The signer's program cannot be run.
    #[error("cannot run the signer program {}: {errno}", .path.display())]
    Spawn {
        /// The path that was tried.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// Nobody listens at the path given with `--signer`.
    #[error(
        "cannot connect to the signer at {}: {source}; is tinyagent-signer running with --socket, and may this user connect?",
        .path.display()
    )]
    NoSocket {
        /// The path that was tried.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Someone else could be listening at the path given with `--signer`.
    #[error("the signer's socket {} is not trusted: {why}", .path.display())]
    DistrustedSocket {
        /// The path that was tried.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The socket between the two processes cannot be made.
    #[error("cannot make the socket to the signer: {0}")]
    Socket(#[source] io::Error),
    /// The standard descriptors cannot be put in order.
    #[error("cannot put the inherited descriptors in order: {0}; are /dev/null and /proc there?")]
    Descriptors(#[source] io::Error),
    /// Signal dispositions cannot be reset.
    #[error("cannot reset signal handling: {0}")]
    Signals(#[source] io::Error),
    /// Another thread could be reading the environment.
    #[error("cannot erase the key from the environment: {0}")]
    NotAlone(#[source] io::Error),
    /// The second execve failed.
    #[error("cannot start again without the key: {0}; is /proc mounted?")]
    Exec(#[source] io::Error),
    /// The hidden second-stage option was used by something else than the launcher.
    #[error("--second-stage is used by tinyagent itself; start it as `tinyagent mcp --relay URL`")]
    NotSecondStage,
    /// The key came through to the second stage.
    #[error(
        "the variable {0} is still set after it was erased; tinyagent does not go on with the key in reach"
    )]
    KeyStillSet(String),
}
