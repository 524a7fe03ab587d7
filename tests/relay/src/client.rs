//! A plain blocking client for tests of the relay itself and for tests that need a second participant: one
//! connection a request, signed with a test key. It follows nothing and retries nothing.

use crate::event::{Event, Key, Template};
use crate::mcp::PROTOCOL_VERSION;
use crate::nip98::authorization;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// An answer as the client read it.
#[derive(Clone, Debug)]
pub struct Received {
    /// The status; 0 where no answer came.
    pub status: u16,
    /// The head without its first line, as one text.
    pub head: String,
    /// The body, chunked framing left in place.
    pub body: Vec<u8>,
}

impl Received {
    /// The body as JSON, or null.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The `structuredContent` of a tool result, or null.
    pub fn structured(&self) -> Value {
        self.json()["result"]["structuredContent"].clone()
    }
}

/// A POST that may be changed before it is sent.
#[derive(Clone, Debug)]
pub struct Post {
    /// The whole URL, `http` only.
    pub url: String,
    /// The method.
    pub method: String,
    /// The headers in order, without `Host` and `Content-Length`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Post {
    /// A `tools/call` with every header and a valid proof.
    pub fn call(relay_url: &str, key: &Key, tool: &str, arguments: &str) -> Post {
        let params = format!(r#""name":{},"arguments":{arguments},"#, json!(tool));
        Post::rpc(relay_url, key, "tools/call", &params, Some(tool))
    }

    /// A `tools/list` with every header and a valid proof.
    pub fn list(relay_url: &str, key: &Key, cursor: Option<&str>) -> Post {
        let params = cursor.map(|cursor| format!(r#""cursor":{},"#, json!(cursor))).unwrap_or_default();
        Post::rpc(relay_url, key, "tools/list", &params, None)
    }

    /// Any request; `params` are members that each end in a comma, before `_meta`.
    pub fn rpc(relay_url: &str, key: &Key, method: &str, params: &str, name: Option<&str>) -> Post {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": PROTOCOL_VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}"_meta":{meta}}}}}"#);
        let mut headers = vec![
            ("Content-Type".to_owned(), "application/json".to_owned()),
            ("Accept".to_owned(), "application/json, text/event-stream".to_owned()),
            ("MCP-Protocol-Version".to_owned(), PROTOCOL_VERSION.to_owned()),
            ("Mcp-Method".to_owned(), method.to_owned()),
        ];
        headers.extend(name.map(|name| ("Mcp-Name".to_owned(), name.to_owned())));
        let url = format!("{relay_url}/mcp");
        Post { url, method: "POST".into(), headers, body: body.into_bytes() }.signed(key)
    }

    /// A call of the management endpoint with a valid proof.
    pub fn manage(relay_url: &str, key: &Key, body: &Value) -> Post {
        let headers = vec![("Content-Type".to_owned(), "application/nostr+json+rpc".to_owned())];
        let (url, body) = (format!("{relay_url}/manage/rpc"), body.to_string().into_bytes());
        Post { url, method: "POST".into(), headers, body }.signed(key)
    }

    /// The same with a proof of this key for what it is now.
    pub fn signed(self, key: &Key) -> Post {
        let token = authorization(key, &self.method, &self.url, &self.body);
        self.header("Authorization", &token)
    }

    /// The same with this header, replacing others of the name.
    pub fn header(mut self, name: &str, value: &str) -> Post {
        self = self.without(name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same without headers of this name.
    pub fn without(mut self, name: &str) -> Post {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    /// Sends it on a connection of its own and reads until the relay closes or the answer is whole.
    pub fn send(&self) -> Received {
        self.try_send().unwrap_or(Received { status: 0, head: String::new(), body: Vec::new() })
    }

    fn try_send(&self) -> std::io::Result<Received> {
        let (host, target) =
            self.url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap_or_default();
        let mut stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut bytes = format!("{} /{target} HTTP/1.1\r\nHost: {host}\r\n", self.method).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend(format!("{name}: {value}\r\n").bytes());
        }
        bytes.extend(format!("Content-Length: {}\r\nConnection: close\r\n\r\n", self.body.len()).bytes());
        bytes.extend(&self.body);
        // A relay that refuses early may close before it has read everything; its answer still counts.
        let _ = stream.write_all(&bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or(0);
        Ok(Received { status, head, body: answer.split_off(end + 4) })
    }
}

/// Calls a tool.
pub fn call(relay_url: &str, key: &Key, tool: &str, arguments: &str) -> Received {
    Post::call(relay_url, key, tool, arguments).send()
}

/// Calls a write tool, signs the template that comes back as it is, and calls it again with the event.
/// The event is `None` where no template came back.
pub fn publish(relay_url: &str, key: &Key, tool: &str, arguments: &Value) -> (Option<Event>, Received) {
    let first = call(relay_url, key, tool, &arguments.to_string());
    let Ok(template) = serde_json::from_value::<Template>(first.structured()["unsigned"].clone()) else {
        return (None, first);
    };
    let event = key.sign(template);
    let mut arguments = arguments.clone();
    arguments["event"] = json!(event);
    let second = call(relay_url, key, tool, &arguments.to_string());
    (Some(event), second)
}
