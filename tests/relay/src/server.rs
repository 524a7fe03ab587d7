//! The threads: one for each listening address, one for each connection. It reads a request, records it, asks
//! the script, and plays the reply; what the relay itself would answer is decided in [`crate::routes`].

use crate::access::Access;
use crate::answer::Answer;
use crate::clock;
use crate::hostile::Hostile;
use crate::http::{Connection, Duplex, Head, ReadHead};
use crate::http2;
use crate::message;
use crate::nip98::{self, Bound, SeenProofs};
use crate::relay::{AcceptFault, Idle, Options};
use crate::request::{Request, Unread};
use crate::routes;
use crate::script::{Kind, Reply, Script, Step};
use crate::store::Store;
use crate::tls::{self, Tls};
use crate::tools::Table;
use rustls::ServerConfig;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a kept connection may be silent.
const KEEP_ALIVE: Duration = Duration::from_secs(120);
/// The most replies that may be made from one another for a single request.
const REPLY_DEPTH: usize = 8;

/// Everything of one relay that its threads share.
pub(crate) struct Server {
    pub options: Options,
    tls: Option<Arc<ServerConfig>>,
    pub state: Mutex<State>,
    pub script: Mutex<Script>,
    pub log: Mutex<Vec<Arc<Request>>>,
    pub logged: Condvar,
    pub idle: Mutex<Idle>,
    pub accept_faults: Mutex<VecDeque<AcceptFault>>,
    pub connections: Mutex<HashMap<u64, TcpStream>>,
    pub accepted: AtomicU64,
    arrived: AtomicU64,
    proofs: Mutex<SeenProofs>,
    stopped: Mutex<bool>,
    stop_signal: Condvar,
}

/// One listening address and the thread that accepts on it.
pub(crate) struct Listening {
    pub address: SocketAddr,
    thread: JoinHandle<()>,
}

/// What the relay knows and keeps.
pub(crate) struct State {
    pub store: Store,
    pub access: Access,
    pub table: Table,
    pub executed: HashMap<String, u64>,
    pub hostile: Option<Hostile>,
}

/// A lock that a panicking test thread cannot take from the others.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a connection goes on after a reply.
#[derive(PartialEq, Eq)]
enum Flow {
    /// Another request may come.
    Keep,
    /// The connection is to be closed in order.
    Close,
    /// The connection is over already.
    Gone,
}

impl Server {
    pub fn start(options: Options) -> io::Result<(Arc<Server>, Vec<Listening>)> {
        let mut listeners: Vec<TcpListener> = Vec::new();
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for name in &options.listen {
            let mut address =
                name.to_socket_addrs()?.next().ok_or_else(|| io::Error::from(ErrorKind::AddrNotAvailable))?;
            if let (0, Some(first)) = (address.port(), addresses.first()) {
                address.set_port(first.port());
            }
            let listener = TcpListener::bind(address)?;
            addresses.push(listener.local_addr()?);
            listeners.push(listener);
        }
        if listeners.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "there is no address to listen on"));
        }
        let state = State {
            store: Store::seeded(clock::unix_now().saturating_add_signed(options.clock_offset)),
            access: Access {
                owner: options.owner.clone(),
                membership: options.membership,
                enforced: options.grants_enforced,
                roles: HashMap::new(),
                grants: HashMap::new(),
            },
            table: Table::new(&options),
            executed: HashMap::new(),
            hostile: options.hostile.then(|| Hostile::new(options.hostile_seed, options.log)),
        };
        let server = Arc::new(Server {
            tls: options.tls.as_ref().map(Tls::config).transpose()?,
            idle: Mutex::new(options.idle),
            options,
            state: Mutex::new(state),
            script: Mutex::default(),
            log: Mutex::default(),
            logged: Condvar::new(),
            accept_faults: Mutex::default(),
            connections: Mutex::default(),
            accepted: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            proofs: Mutex::default(),
            stopped: Mutex::new(false),
            stop_signal: Condvar::new(),
        });
        let listening = addresses.into_iter().zip(listeners).map(|(address, listener)| {
            let server = server.clone();
            Listening { address, thread: std::thread::spawn(move || server.accept(listener)) }
        });
        let listening = listening.collect();
        Ok((server, listening))
    }

    /// Closes the listeners and every connection.
    pub fn stop(&self, listening: impl Iterator<Item = Listening>) {
        *lock(&self.stopped) = true;
        self.stop_signal.notify_all();
        for Listening { address, thread } in listening {
            // Wakes the accepting thread, which then sees that it is to stop and drops its listener.
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                let _ = thread.join();
            }
        }
        for (_, stream) in lock(&self.connections).drain() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// The relay's own time.
    pub fn now(&self) -> u64 {
        clock::unix_now().saturating_add_signed(self.options.clock_offset)
    }

    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    fn accept(self: Arc<Server>, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // Out of descriptors, most likely; some of them come back when connections end.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            if *lock(&self.stopped) {
                return;
            }
            let id = self.accepted.fetch_add(1, Ordering::SeqCst);
            let _ = stream.set_nodelay(true);
            let Ok(copy) = stream.try_clone() else { continue };
            lock(&self.connections).insert(id, copy);
            let server = self.clone();
            std::thread::spawn(move || {
                server.greet(id, stream);
                lock(&server.connections).remove(&id);
            });
        }
    }

    fn greet(self: &Arc<Server>, id: u64, stream: TcpStream) {
        let fault = lock(&self.accept_faults).pop_front();
        match fault {
            None => {
                // A failed handshake is the client's to report.
                if let Ok(Some(wire)) = self.wire(id, stream) {
                    self.serve(id, Connection::new(wire));
                }
            }
            Some(AcceptFault::Stall) => self.stall(),
            Some(AcceptFault::Close) => Connection::new(Box::new(stream)).close(),
            Some(AcceptFault::Reset) => {
                Connection::new(Box::new(stream)).reset();
                // The registered copy must go first, or the reset waits for it.
                lock(&self.connections).remove(&id);
            }
        }
    }

    /// What carries HTTP/1.1 on this connection; `None` if it carried HTTP/2 and is over.
    fn wire(self: &Arc<Server>, id: u64, stream: TcpStream) -> io::Result<Option<Box<dyn Duplex>>> {
        match (&self.tls, &self.options.tls) {
            (Some(config), Some(Tls { http2: true, .. })) => http2::serve(self, id, config.clone(), stream),
            (Some(config), _) => tls::wrap(config.clone(), stream).map(Some),
            (None, _) => Ok(Some(Box::new(stream))),
        }
    }

    /// One connection from its first request to its end.
    fn serve(&self, id: u64, mut connection: Connection) {
        connection.set_read_timeout(Some(KEEP_ALIVE));
        loop {
            let head = match connection.read_head() {
                ReadHead::Head(head) => head,
                ReadHead::Gone => return,
                ReadHead::Refused(status) => {
                    let _ = self.write(&mut connection, &Answer::new(status).header("Connection", "close"));
                    return connection.close_after_draining();
                }
            };
            let keep_alive = head.keep_alive;
            let flow = self.exchange(id, &mut connection, head);
            match flow {
                Flow::Keep if keep_alive => {}
                Flow::Keep | Flow::Close => return connection.close(),
                Flow::Gone => return,
            }
            if self.idle_ends(id, &mut connection) {
                return;
            }
        }
    }

    /// Waits for the next request as the idle rule says; true if the connection is over.
    fn idle_ends(&self, id: u64, connection: &mut Connection) -> bool {
        let (time, reset) = match *lock(&self.idle) {
            Idle::Keep => return false,
            Idle::Close(time) => (time, false),
            Idle::Reset(time) => (time, true),
        };
        connection.set_read_timeout(Some(time));
        let outcome = connection.wait_for_request();
        connection.set_read_timeout(Some(KEEP_ALIVE));
        match outcome {
            Ok(more) => !more,
            Err(_) if reset => {
                self.reset(id, connection);
                true
            }
            Err(_) => {
                connection.close();
                true
            }
        }
    }

    fn reset(&self, id: u64, connection: &mut Connection) {
        connection.reset();
        // The registered copy must go first, or the reset waits for it.
        lock(&self.connections).remove(&id);
    }

    /// One request and its reply.
    fn exchange(&self, id: u64, connection: &mut Connection, mut head: Head) -> Flow {
        let mut request = Request {
            number: 0,
            connection: id,
            arrived: Instant::now(),
            method: std::mem::take(&mut head.method),
            target: std::mem::take(&mut head.target),
            headers: Vec::new(),
            head: std::mem::take(&mut head.bytes),
            body: Vec::new(),
            unread: None,
            http2: false,
            proof: None,
            proof_error: None,
            rpc: None,
            malformed: None,
        };
        if lock(&self.script).has_head_rules() {
            request.headers = head.headers.clone();
            let reply = lock(&self.script).take(&request, true);
            if !matches!(reply.0, Kind::Normal) {
                request.unread = Some(Unread::Scripted);
                let request = self.record(request);
                return match self.play(id, connection, &request, reply) {
                    Flow::Gone => Flow::Gone,
                    _ => self.end_unread(connection),
                };
            }
        }
        match connection.read_body(&head, self.options.body_limit) {
            Err(_) => return Flow::Gone,
            Ok(Err(unread)) => request.unread = Some(unread),
            Ok(Ok(body)) => request.body = body,
        }
        request.headers = head.headers;
        let request = self.receive(request);
        let reply = lock(&self.script).take(&request, false);
        match self.play(id, connection, &request, reply) {
            Flow::Keep | Flow::Close if request.unread.is_some() => self.end_unread(connection),
            flow => flow,
        }
    }

    /// After an answer to a request whose body was not read there is no telling where the next one begins.
    fn end_unread(&self, connection: &mut Connection) -> Flow {
        connection.close_after_draining();
        Flow::Gone
    }

    /// Reads the proof and the message out of a request, and records it.
    pub fn receive(&self, mut request: Request) -> Arc<Request> {
        request.arrived = Instant::now();
        if request.method == "POST" && request.unread.is_none() {
            let authorization = request.header("authorization");
            let checked = nip98::check(
                authorization,
                &Bound {
                    method: &request.method,
                    scheme: self.scheme(),
                    host: request.header("host").unwrap_or_default(),
                    target: &request.target,
                    body: &request.body,
                    now: self.now(),
                },
                &self.proofs,
            );
            let presented = authorization.is_some();
            match checked {
                Ok(event) => request.proof = Some(event),
                Err(error) => request.proof_error = presented.then_some(error),
            }
            match message::parse(&request.body) {
                Ok(rpc) => request.rpc = Some(rpc),
                Err(malformed) => request.malformed = Some(malformed),
            }
        }
        self.record(request)
    }

    fn record(&self, mut request: Request) -> Arc<Request> {
        if self.options.log {
            eprintln!("{}", request.summary());
        }
        if !self.options.record {
            request.number = self.arrived.fetch_add(1, Ordering::SeqCst) as usize;
            return Arc::new(request);
        }
        let mut log = lock(&self.log);
        request.number = log.len();
        let request = Arc::new(request);
        log.push(request.clone());
        self.logged.notify_all();
        request
    }

    /// What is finally to be sent for a request: an answer, or steps.
    pub fn resolve(&self, request: &Request, mut reply: Reply) -> Result<Answer, Vec<Step>> {
        for _ in 0..REPLY_DEPTH {
            reply = match reply.0 {
                Kind::Normal => return Ok(routes::answer(self, request)),
                Kind::Answer(answer) => return Ok(answer),
                Kind::Steps(steps) => return Err(steps),
                Kind::FromRequest(make) => make(request),
                Kind::FromAnswer(make) => make(request, routes::answer(self, request)),
            };
        }
        Ok(Answer::new(500).body("the script never comes to a reply"))
    }

    fn play(&self, id: u64, connection: &mut Connection, request: &Request, reply: Reply) -> Flow {
        match self.resolve(request, reply) {
            Ok(answer) => match self.write(connection, &answer) {
                Ok(()) if answer.keeps_connection() => Flow::Keep,
                Ok(()) => Flow::Close,
                Err(_) => Flow::Gone,
            },
            Err(steps) => steps
                .into_iter()
                .map(|step| self.step(id, connection, step))
                .find(|flow| *flow != Flow::Keep)
                .unwrap_or(Flow::Keep),
        }
    }

    fn write(&self, connection: &mut Connection, answer: &Answer) -> io::Result<()> {
        connection.write(&answer.to_bytes(&clock::http_date(self.now())))
    }

    fn step(&self, id: u64, connection: &mut Connection, step: Step) -> Flow {
        let written = match step {
            Step::Write(bytes) => connection.write(&bytes),
            Step::Drip { bytes, chunk, every } => bytes.chunks(chunk.max(1)).try_for_each(|piece| {
                connection.write(piece)?;
                std::thread::sleep(every);
                self.going_on()
            }),
            Step::Endless(bytes) => loop {
                if let Err(error) = connection.write(&bytes).and_then(|()| self.going_on()) {
                    break Err(error);
                }
            },
            Step::Sleep(time) => {
                std::thread::sleep(time);
                Ok(())
            }
            Step::Wait(gate) => {
                gate.wait_inside();
                Ok(())
            }
            Step::UntilClientLeaves => {
                connection.until_client_leaves();
                return Flow::Gone;
            }
            Step::Stall => {
                self.stall();
                return Flow::Gone;
            }
            Step::Close => {
                connection.close();
                return Flow::Gone;
            }
            Step::Reset => {
                self.reset(id, connection);
                return Flow::Gone;
            }
            Step::Abandon => {
                connection.abandon();
                return Flow::Gone;
            }
        };
        if written.is_ok() { Flow::Keep } else { Flow::Gone }
    }

    fn going_on(&self) -> io::Result<()> {
        if *lock(&self.stopped) { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// Holds the calling thread until the relay stops.
    fn stall(&self) {
        let stopped = lock(&self.stopped);
        let _stopped = self.stop_signal.wait_while(stopped, |stopped| !*stopped);
    }
}
