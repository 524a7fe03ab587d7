//! A session of the official Rust client with a fresh relay: how it starts the program, and what it was told
//! without having asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rmcp::model::{CallToolRequestParams, CallToolResult, ClientConfig, Implementation, JsonObject};
use rmcp::model::{ProgressNotificationParam, ProtocolVersion, ServerCapabilities, ServerPeerInfo};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, NotificationContext, Peer, RunningService};
use rmcp::service::{ServiceError, serve_client_with_lifecycle, serve_directly};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tinyagent_harness::{KEY, KEY_VARIABLE, PATIENCE, program, signer_of, wait_gone};
use tinyagent_relay::{Gate, Options, Relay};
use tokio::process::Command;

/// How long this client waits for the program's own end before it sends a signal.
const CLIENT_PATIENCE: Duration = Duration::from_secs(3);

/// The client's side: which revision it asks for, and a count of what it did not ask for.
#[derive(Clone)]
pub struct Client {
    version: ProtocolVersion,
    unasked: Arc<AtomicUsize>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.protocol_version = self.version.clone();
        info.client_info = Implementation::new("rmcp-test", "0");
        info
    }

    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.unasked.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connected client.
pub struct Session {
    pub relay: Relay,
    service: RunningService<RoleClient, Client>,
    unasked: Arc<AtomicUsize>,
    facade: u32,
    signer: u32,
}

/// Starts the program as this client does, with nothing in its environment but the key.
fn start(relay: &Relay, args: &[&str]) -> TokioChildProcess {
    let mut command = Command::new(program("tinyagent"));
    command.args(["mcp", "--relay", &relay.url()]).args(args).env_clear().env(KEY_VARIABLE, KEY);
    TokioChildProcess::new(command).expect("tinyagent starts")
}

fn client(version: ProtocolVersion) -> Client {
    Client { version, unasked: Arc::default() }
}

impl Session {
    /// Connects with the handshake of this revision.
    pub async fn connect(version: ProtocolVersion, args: &[&str]) -> Session {
        Self::with(version, ClientLifecycleMode::Initialize, args).await.expect("a session")
    }

    /// Connects in another way.
    pub async fn with(
        version: ProtocolVersion,
        lifecycle: ClientLifecycleMode,
        args: &[&str],
    ) -> Result<Session, Box<ClientInitializeError>> {
        let relay = Relay::start(Options::default());
        let transport = start(&relay, args);
        let facade = transport.id().expect("a running child");
        let client = client(version);
        let unasked = client.unasked.clone();
        let service = match serve_client_with_lifecycle(client, transport, lifecycle).await {
            Ok(service) => service,
            Err(error) => {
                assert!(
                    wait_gone(facade, CLIENT_PATIENCE),
                    "a client that gave up leaves the program behind"
                );
                return Err(Box::new(error));
            }
        };
        let signer = signer_of(facade).expect("a signer");
        Ok(Session { relay, service, unasked, facade, signer })
    }

    /// Connects without any handshake, as revision 2026-07-28 has it.
    pub async fn stateless(args: &[&str]) -> Session {
        let relay = Relay::start(Options::default());
        let transport = start(&relay, args);
        let facade = transport.id().expect("a running child");
        let client = client(ProtocolVersion::V_2026_07_28);
        let unasked = client.unasked.clone();
        let server = ServerPeerInfo::new(ProtocolVersion::V_2026_07_28, ServerCapabilities::default());
        let service = serve_directly(client, transport, Some(server));
        service.peer().list_all_tools().await.expect("the list of tools");
        let signer = signer_of(facade).expect("a signer");
        Session { relay, service, unasked, facade, signer }
    }

    /// What requests are sent with.
    pub fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// The revision that both sides agreed on.
    pub fn version(&self) -> ProtocolVersion {
        self.peer().peer_info().expect("a handshake").protocol_version.clone()
    }

    /// The names of the offered tools, every page followed.
    pub async fn tools(&self) -> Vec<String> {
        let tools = self.peer().list_all_tools().await.expect("the list of tools");
        tools.into_iter().map(|tool| tool.name.into_owned()).collect()
    }

    /// Calls a tool.
    pub async fn call(&self, tool: &'static str, arguments: Value) -> Result<CallToolResult, ServiceError> {
        self.peer().call_tool(call(tool, arguments)).await
    }

    /// Calls a tool and gives the structured content of what is no error.
    pub async fn answered(&self, tool: &'static str, arguments: Value) -> Value {
        let result = self.call(tool, arguments).await.expect("an answer");
        assert_ne!(result.is_error, Some(true), "{result:?}");
        result.structured_content.expect("structured content")
    }

    /// How many progress notifications came.
    pub fn unasked(&self) -> usize {
        self.unasked.load(Ordering::Relaxed)
    }

    /// Ends the session as this client does, and insists that both processes are gone before it would have
    /// sent a signal.
    pub async fn close(mut self) {
        let began = Instant::now();
        self.service.close().await.expect("an end");
        assert!(began.elapsed() < CLIENT_PATIENCE, "closing took {:?}", began.elapsed());
        for pid in [self.facade, self.signer] {
            assert!(wait_gone(pid, Duration::from_secs(1)), "process {pid} is left behind");
        }
    }
}

/// Waits until a request has come to the gate, while the client goes on working.
pub async fn arrived(gate: &Gate) {
    let gate = gate.clone();
    let arrived = tokio::task::spawn_blocking(move || gate.wait_arrived(1, PATIENCE));
    assert!(arrived.await.expect("a thread"), "the call never reached the relay");
}

/// The parameters of a call.
pub fn call(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let arguments: JsonObject = serde_json::from_value(arguments).expect("an object");
    CallToolRequestParams::new(tool).with_arguments(arguments)
}
