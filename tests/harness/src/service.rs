//! A signer that listens at a socket, as a service manager would run it for facades of other users.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{KEY, KEY_VARIABLE, PATIENCE, copy_program, program};

/// A running signer with a directory of its own; both are gone with the value.
pub struct Service {
    child: Child,
    directory: PathBuf,
}

impl Service {
    /// Starts it for this relay with the tests' key and an audit log, and waits until it listens.
    pub fn start(relay: &str, arguments: &[&str]) -> Self {
        Self::under(nix::unistd::getuid().as_raw(), relay, arguments)
    }

    /// The same under another user, which needs root.
    pub fn under(uid: u32, relay: &str, arguments: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("tinyagent-service-{}-{number}", std::process::id()));
        fs::create_dir(&directory).expect("a temporary directory");
        // The program's own directory may be closed to that user.
        let signer = directory.join("tinyagent-signer");
        copy_program(&program("tinyagent-signer"), &signer, 0o755);
        chown(&directory, Some(uid), None).expect("our directory");
        let mut command = Command::new(signer);
        command.uid(uid).args(["--relay", relay]).args(arguments);
        command.arg("--socket").arg(directory.join("signer.sock"));
        command.arg("--audit-log").arg(directory.join("audit.jsonl"));
        command.env_clear().env(KEY_VARIABLE, KEY).stdin(Stdio::null()).stderr(Stdio::null());
        let service = Self { child: command.spawn().expect("the signer starts"), directory };
        drop(service.connect());
        service
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its directory, which is its user's.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The socket's path.
    pub fn socket(&self) -> String {
        self.directory.join("signer.sock").to_str().expect("a path of text").into()
    }

    /// Another connection to it.
    pub fn connect(&self) -> UnixStream {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match UnixStream::connect(self.socket()) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                    return stream;
                }
                Err(error) => assert!(Instant::now() < deadline, "the signer does not listen: {error}"),
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// What stands in its audit log.
    pub fn records(&self) -> Vec<serde_json::Value> {
        let log = fs::read_to_string(self.directory.join("audit.jsonl")).expect("a log");
        log.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
