//! An HTTP answer as a value: status, headers, body and how the body is framed. It knows how to write itself
//! down for HTTP/1.1 and adds nothing that it was not told but the length and a date.

use serde_json::Value;

/// An HTTP answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers in order; a `Date` is added where there is none.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How the body's end is marked.
    pub framing: Framing,
}

/// How the end of an answer's body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `Content-Length` with the true length.
    Length,
    /// `Content-Length` with this number, whatever the body's length is.
    ClaimedLength(u64),
    /// Chunked, in pieces of this many bytes (at least one).
    Chunked(usize),
    /// Chunked like the other, but without the last chunk.
    ChunkedUnfinished(usize),
    /// No length at all; the connection is closed after it.
    UntilClose,
}

impl Answer {
    /// An answer with this status, without headers or body.
    pub fn new(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: Vec::new(), framing: Framing::Length }
    }

    /// The same with one more header.
    pub fn header(mut self, name: &str, value: &str) -> Answer {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same with every header of this name replaced.
    pub fn set_header(mut self, name: &str, value: &str) -> Answer {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self.header(name, value)
    }

    /// The same with this body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Answer {
        self.body = body.into();
        self
    }

    /// The same with this framing.
    pub fn framing(mut self, framing: Framing) -> Answer {
        self.framing = framing;
        self
    }

    /// An `application/json` answer with this text as the body.
    pub fn json_text(status: u16, text: impl Into<Vec<u8>>) -> Answer {
        Answer::new(status).header("Content-Type", "application/json").body(text)
    }

    /// An `application/json` answer.
    pub fn json(status: u16, value: &Value) -> Answer {
        Answer::json_text(status, value.to_string())
    }

    /// A `text/html` answer.
    pub fn html(status: u16, text: &str) -> Answer {
        Answer::new(status).header("Content-Type", "text/html; charset=utf-8").body(text)
    }

    /// A JSON-RPC error in an `application/json` answer; without an id where `id` is `None`.
    pub(crate) fn rpc_error(
        status: u16,
        id: Option<&str>,
        code: i64,
        message: &str,
        data: Option<Value>,
    ) -> Answer {
        let mut error = serde_json::json!({"code": code, "message": message});
        if let Some(data) = data {
            error["data"] = data;
        }
        let id = id.map(|id| format!(r#""id":{id},"#)).unwrap_or_default();
        Answer::json_text(status, format!(r#"{{"jsonrpc":"2.0",{id}"error":{error}}}"#))
    }

    /// Whether the connection can carry another request after this answer.
    pub(crate) fn keeps_connection(&self) -> bool {
        let closes = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close")
        };
        matches!(self.framing, Framing::Length | Framing::Chunked(_)) && !self.headers.iter().any(closes)
    }

    /// The head and the framed body as HTTP/1.1 bytes.
    pub fn to_bytes(&self, date: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.body.len() + 512);
        let line = |name: &str, value: &str| format!("{name}: {value}\r\n");
        out.extend(format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status)).bytes());
        for (name, value) in &self.headers {
            out.extend(line(name, value).bytes());
        }
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("date")) {
            out.extend(line("Date", date).bytes());
        }
        match self.framing {
            Framing::Length if bodiless(self.status) => {}
            Framing::Length => out.extend(line("Content-Length", &self.body.len().to_string()).bytes()),
            Framing::ClaimedLength(length) => out.extend(line("Content-Length", &length.to_string()).bytes()),
            Framing::Chunked(_) | Framing::ChunkedUnfinished(_) => {
                out.extend(line("Transfer-Encoding", "chunked").bytes());
            }
            Framing::UntilClose => out.extend(line("Connection", "close").bytes()),
        }
        out.extend(b"\r\n");
        match self.framing {
            Framing::Chunked(size) | Framing::ChunkedUnfinished(size) => {
                for chunk in self.body.chunks(size.max(1)) {
                    out.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    out.extend(chunk);
                    out.extend(b"\r\n");
                }
                if matches!(self.framing, Framing::Chunked(_)) {
                    out.extend(b"0\r\n\r\n");
                }
            }
            _ => out.extend(&self.body),
        }
        out
    }
}

/// Whether an answer of this status has no body by definition (RFC 9110, 6.4.1).
fn bodiless(status: u16) -> bool {
    status < 200 || status == 204 || status == 304
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        418 => "I'm a teapot",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Status",
    }
}
