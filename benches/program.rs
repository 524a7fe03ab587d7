//! The two real programs against the development relay, beside a bare client that posts the same requests
//! over one connection with proofs made in advance. All figures are ratios or slopes of one run, since
//! machines are noisy.
//!
//!   cargo bench --bench program

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use tinyagent_relay::client::Post;
use tinyagent_relay::{Authority, Key, Matcher, Options, Relay, Reply};

const CALLS: usize = 400;
const BLOCK: usize = 40;

struct Host {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl Host {
    fn start(url: &str) -> Host {
        Host::with(url, &["--max-events-per-minute", "1000000"])
    }

    fn with(url: &str, args: &[&str]) -> Host {
        Host::trusting(url, args, "")
    }

    /// `authorities` is a file, or empty for the system's.
    fn trusting(url: &str, args: &[&str], authorities: &str) -> Host {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tinyagent"))
            .args(["mcp", "--relay", url, "--allow-writes"])
            .args(args)
            .env("TINY_PRIVATE_KEY", "07".repeat(32))
            .env("SSL_CERT_FILE", authorities)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("tinyagent starts");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::with_capacity(1 << 20, child.stdout.take().expect("a pipe"));
        Host { child, stdin, stdout, line: Vec::new() }
    }

    fn send(&mut self, line: &str) {
        self.stdin.write_all(line.as_bytes()).expect("tinyagent reads");
    }

    fn receive(&mut self) {
        self.line.clear();
        self.stdout.read_until(b'\n', &mut self.line).expect("tinyagent answers");
        assert!(
            self.line.starts_with(b"{\"jsonrpc\"")
                && !self.line.windows(14).any(|w| w == b"\"isError\":true")
        );
    }

    fn ask(&mut self, line: &str) -> Duration {
        let began = Instant::now();
        self.send(line);
        self.receive();
        began.elapsed()
    }

    fn end(mut self) {
        drop(self.stdin);
        self.child.wait().expect("tinyagent ends");
    }
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Posts over one kept-alive connection.
struct Bare {
    socket: BufReader<Box<dyn Stream>>,
}

impl Bare {
    fn connect(relay: &Relay) -> Bare {
        Bare { socket: BufReader::with_capacity(1 << 20, Box::new(Bare::tcp(relay))) }
    }

    fn connect_tls(relay: &Relay, settings: &Arc<ClientConfig>) -> Bare {
        let name = relay.address().ip().into();
        let session = ClientConnection::new(settings.clone(), name).expect("a TLS session");
        let socket = StreamOwned::new(session, Bare::tcp(relay));
        Bare { socket: BufReader::with_capacity(1 << 20, Box::new(socket)) }
    }

    fn tcp(relay: &Relay) -> TcpStream {
        let socket = TcpStream::connect(relay.address()).expect("the relay listens");
        socket.set_nodelay(true).expect("a socket");
        socket
    }

    fn post(&mut self, post: &Post, host: &str) -> Duration {
        let mut request =
            format!("POST /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n", post.body.len());
        for (name, value) in post.headers.iter().filter(|(name, _)| {
            !["host", "content-length", "connection"].contains(&name.to_ascii_lowercase().as_str())
        }) {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(&post.body);
        let began = Instant::now();
        self.socket.get_mut().write_all(&bytes).expect("the relay reads");
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.socket.read_line(&mut line).expect("the relay answers");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.socket.read_exact(&mut body).expect("a whole answer");
        began.elapsed()
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn call(id: usize, tool: &str, arguments: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{arguments}}}}}\n"
    )
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn main() {
    let relay = Relay::start(Options { record: false, body_limit: 64 << 20, ..Options::default() });
    let url = relay.url();
    let host_name = url.trim_start_matches("http://").to_owned();
    let key = Key::random();
    let hello = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}\n";

    let starts = (0..15).map(|_| {
        let began = Instant::now();
        let mut host = Host::start(&url);
        host.ask(hello);
        let time = micros(began.elapsed());
        host.end();
        time
    });
    println!("start to the initialize answer      {:8.1} ms", median(starts.collect()) / 1e3);

    let mut host = Host::start(&url);
    host.ask(hello);
    let mut bare = Bare::connect(&relay);
    let arguments = "{\"id\":\"general\",\"limit\":1}";
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CALLS / BLOCK {
        let block: Vec<f64> =
            (0..BLOCK).map(|id| micros(host.ask(&call(id, "read_room", arguments)))).collect();
        let posts: Vec<Post> = (0..BLOCK).map(|_| Post::call(&url, &key, "read_room", arguments)).collect();
        let alone: Vec<f64> = posts.iter().map(|post| micros(bare.post(post, &host_name))).collect();
        ratios.push(median(block.clone()) / median(alone.clone()));
        ours.extend(block);
        theirs.extend(alone);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!("a read                              {ours:8.1} us");
    println!("the bare POST                       {theirs:8.1} us");
    println!("a read by the bare POST             {:8.2}", median(ratios));

    let post = |n: usize| format!("{{\"room\":\"general\",\"content\":\"message {n}\"}}");
    let writes = (0..100).map(|n| micros(host.ask(&call(n, "post_message", &post(n)))));
    println!("a write by a read                   {:8.2}", median(writes.collect()) / ours);
    let pings = (0..CALLS)
        .map(|id| micros(host.ask(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n"))));
    println!("a ping by a read                    {:8.2}", median(pings.collect()) / ours);

    println!("\nargument size, time a MiB (linear where the figure stays)");
    for kib in [1, 16, 256, 1024, 4096, 16384] {
        let arguments = format!("{{\"id\":\"general\",\"pad\":\"{}\"}}", "x".repeat(kib << 10));
        let times = (0..7).map(|id| micros(host.ask(&call(id, "read_room", &arguments))));
        let time = median(times.collect());
        println!("  {kib:6} KiB {time:10.0} us {:10.0} us/MiB", time / (kib as f64 / 1024.0));
    }

    println!("\nresult size, time a MiB (linear where the figure stays)");
    for kib in [1, 16, 256, 1024, 4096, 16384] {
        let image =
            json!({"content": [{"type": "image", "mimeType": "image/png", "data": "A".repeat(kib << 10)}]});
        relay.clear_script();
        relay.script_always(Matcher::tool("read_attachment"), Reply::result(image));
        let times = (0..7).map(|id| micros(host.ask(&call(id, "read_attachment", "{}"))));
        let time = median(times.collect());
        println!("  {kib:6} KiB {time:10.0} us {:10.0} us/MiB", time / (kib as f64 / 1024.0));
    }
    relay.clear_script();

    println!("\nqueued calls, time a call (linear where the figure stays)");
    for count in [1, 8, 64, 512] {
        let lines: String = (0..count).map(|id| call(id, "read_room", arguments)).collect();
        let times = (0..5).map(|_| {
            let began = Instant::now();
            host.send(&lines);
            (0..count).for_each(|_| host.receive());
            micros(began.elapsed()) / count as f64
        });
        println!("  {count:6} calls {:10.1} us a call", median(times.collect()));
    }
    host.end();
    encrypted(&key);
    many_agents(&url, ours);
}

/// An https relay with a certificate made for the occasion: what the first answer and a read cost beside a
/// bare client that trusts the same authority.
fn encrypted(key: &Key) {
    let authority = Authority::new();
    let file = std::env::temp_dir().join(format!("tinyagent-bench-{}.pem", std::process::id()));
    std::fs::write(&file, authority.pem()).expect("a temporary file");
    let tls = Some(authority.issue(&["127.0.0.1"]));
    let relay = Relay::start(Options { record: false, tls, ..Options::default() });
    let url = relay.url();
    let host_name = url.trim_start_matches("https://").to_owned();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("a certificate"))
        .expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let settings = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let arguments = "{\"id\":\"general\",\"limit\":1}";
    let hello = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}\n";
    let start = || Host::trusting(&url, &[], file.to_str().expect("a plain path"));

    let (mut whole, mut after_hello, mut bare_first) = (Vec::new(), Vec::new(), Vec::new());
    for id in 1..16 {
        let began = Instant::now();
        let mut host = start();
        host.ask(hello);
        let greeted = began.elapsed();
        host.ask(&call(id, "read_room", arguments));
        whole.push(micros(began.elapsed()));
        after_hello.push(micros(began.elapsed() - greeted));
        host.end();
        let post = Post::call(&url, key, "read_room", arguments);
        // Each time a session of its own, as a fresh process has.
        let began = Instant::now();
        Bare::connect_tls(&relay, &Arc::new(settings.clone())).post(&post, &host_name);
        bare_first.push(micros(began.elapsed()));
    }
    println!("\nhttps");
    println!("  start to the first read's answer  {:8.1} ms", median(whole) / 1e3);
    println!("  of it after the initialize answer {:8.1} ms", median(after_hello) / 1e3);
    println!("  bare: connect and the first POST  {:8.1} ms", median(bare_first) / 1e3);

    let mut host = start();
    host.ask(hello);
    let mut bare = Bare::connect_tls(&relay, &Arc::new(settings));
    let ratios = (0..CALLS / BLOCK).map(|_| {
        let ours = (0..BLOCK).map(|id| micros(host.ask(&call(id, "read_room", arguments)))).collect();
        let posts: Vec<Post> = (0..BLOCK).map(|_| Post::call(&url, key, "read_room", arguments)).collect();
        let alone = posts.iter().map(|post| micros(bare.post(post, &host_name))).collect();
        median(ours) / median(alone)
    });
    println!("  a read by the bare POST           {:8.2}", median(ratios.collect()));
    host.end();
    std::fs::remove_file(&file).expect("the file was ours");
}

/// Fifty facades on one signer: what a read costs each where all call at once, and what the signer needs.
fn many_agents(url: &str, alone: f64) {
    const AGENTS: usize = 50;
    const READS: usize = 20;
    let directory = std::env::temp_dir().join(format!("tinyagent-bench-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o750).create(&directory).expect("a directory");
    let socket = directory.join("signer.sock");
    let socket = socket.to_str().expect("a plain path");
    let mut signer = Command::new(env!("CARGO_BIN_EXE_tinyagent-signer"))
        .args(["--socket", socket, "--relay", url, "--allow-writes"])
        .env("TINY_PRIVATE_KEY", "07".repeat(32))
        .spawn()
        .expect("the signer starts");
    while UnixStream::connect(socket).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let hosts: Vec<Host> = (0..AGENTS).map(|_| Host::with(url, &["--signer", socket])).collect();
    let began = Instant::now();
    let threads: Vec<_> = hosts
        .into_iter()
        .map(|mut host| {
            std::thread::spawn(move || {
                let times =
                    (0..READS).map(|id| micros(host.ask(&call(id, "read_room", "{\"id\":\"general\"}"))));
                let slowest = times.fold(0.0, f64::max);
                host.end();
                slowest
            })
        })
        .collect();
    let slowest: Vec<f64> = threads.into_iter().map(|thread| thread.join().expect("an agent")).collect();
    let each = micros(began.elapsed()) / (AGENTS * READS) as f64;
    let status = std::fs::read_to_string(format!("/proc/{}/status", signer.id())).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or(" unknown").trim();
    println!("\n{AGENTS} agents on one signer, {READS} reads each, all at once");
    println!("  a read by a read alone            {:8.2}", each / alone);
    println!(
        "  the unluckiest agent by the median{:8.2}",
        slowest.iter().copied().fold(0.0, f64::max) / median(slowest.clone())
    );
    println!("  the signer's peak memory          {peak}");
    signer.kill().and_then(|()| signer.wait()).expect("the signer ends");
    std::fs::remove_dir_all(&directory).expect("the directory was ours");
}
