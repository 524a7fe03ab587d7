//! Ready-made faults and odd but valid answers, so that a test names what it means and does not build bytes.

use crate::answer::{Answer, Framing};
use crate::clock;
use crate::script::{Reply, Step};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::time::Duration;

/// How an answer is written as `text/event-stream`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sse {
    /// `event: message`, `data: …`, an empty line.
    Plain,
    /// `data:…` without the space.
    NoSpace,
    /// Lines end in CRLF.
    Crlf,
    /// Lines end in CR alone.
    Cr,
    /// The JSON is spread over two `data:` lines.
    TwoDataLines,
    /// A comment, an id, a retry time and a notification come first.
    NoiseFirst,
    /// A byte order mark comes first.
    Bom,
    /// Another event follows the answer.
    NoiseAfter,
    /// The answer is not ended by an empty line before the stream ends, so it is no event.
    NoEmptyLine,
    /// The stream ends without an answer.
    NoAnswer,
}

impl Sse {
    /// Every spelling from which the answer can be read.
    pub const READABLE: [Sse; 8] = [
        Sse::Plain,
        Sse::NoSpace,
        Sse::Crlf,
        Sse::Cr,
        Sse::TwoDataLines,
        Sse::NoiseFirst,
        Sse::Bom,
        Sse::NoiseAfter,
    ];

    /// The stream that carries this JSON text.
    pub fn spell(self, json: &str) -> String {
        const NOTIFICATION: &str =
            "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n";
        let plain = format!("event: message\ndata: {json}\n\n");
        match self {
            Sse::Plain => plain,
            Sse::NoSpace => format!("data:{json}\n\n"),
            Sse::Crlf => plain.replace('\n', "\r\n"),
            Sse::Cr => plain.replace('\n', "\r"),
            Sse::TwoDataLines => format!("data: {}\n\n", json.replacen(',', ",\ndata: ", 1)),
            Sse::NoiseFirst => format!(": hello\n\nid: 7\nretry: 10\n{NOTIFICATION}{plain}"),
            Sse::Bom => format!("\u{feff}{plain}"),
            Sse::NoiseAfter => plain + NOTIFICATION,
            Sse::NoEmptyLine => format!("data: {json}"),
            Sse::NoAnswer => format!(": hello\n\n{NOTIFICATION}"),
        }
    }
}

impl Reply {
    /// Executes the request and sends its answer as an event stream.
    pub fn sse(spelling: Sse) -> Reply {
        Reply::map(move |_, answer| event_stream(spelling, answer))
    }

    /// Executes the request, sends its answer as an event stream, and then never ends the stream.
    pub fn sse_never_ends() -> Reply {
        Reply::from_answer(|_, answer| {
            let answer = event_stream(Sse::Plain, answer).framing(Framing::ChunkedUnfinished(usize::MAX));
            Reply::steps([Step::Write(written(&answer)), Step::UntilClientLeaves])
        })
    }

    /// Executes the request and sends its answer with this `Content-Encoding`: really compressed for `gzip`,
    /// with a body that is not what it says for any other name.
    pub fn encoded(coding: &str) -> Reply {
        let coding = coding.to_owned();
        Reply::map(move |_, answer| {
            let body = if coding == "gzip" { gzip(&answer.body) } else { answer.body.clone() };
            answer.set_header("Content-Encoding", &coding).body(body)
        })
    }

    /// A JSON-RPC result whose text decodes from gzip to this many bytes and some.
    pub fn gzip_bomb(decoded: usize) -> Reply {
        Reply::with(move |request| {
            let whole = request.result_text(r#"{"content":[{"type":"text","text":"@"}]}"#);
            let (head, tail) = whole.split_once('@').unwrap_or_default();
            // Piece by piece, so that the bomb does not go off here.
            let piece = vec![b'a'; 64 * 1024];
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            let mut write = |bytes: &[u8]| encoder.write_all(bytes).unwrap_or_default();
            write(head.as_bytes());
            (0..decoded.div_ceil(piece.len())).for_each(|_| write(&piece));
            write(tail.as_bytes());
            let answer = Answer::json_text(200, encoder.finish().unwrap_or_default());
            Reply::http(answer.header("Content-Encoding", "gzip"))
        })
    }

    /// Executes the request, claims the answer's length, sends this many bytes of the body, then closes.
    pub fn truncated(kept: usize) -> Reply {
        Reply::from_answer(move |_, answer| {
            let length = answer.body.len();
            let body = answer.body[..kept.min(length)].to_vec();
            let cut = answer.body(body).framing(Framing::ClaimedLength(length as u64));
            Reply::steps([Step::Write(written(&cut)), Step::Close])
        })
    }

    /// The same, but ended by a reset.
    pub fn truncated_by_reset(kept: usize) -> Reply {
        Reply::from_answer(move |_, answer| {
            let length = answer.body.len();
            let body = answer.body[..kept.min(length)].to_vec();
            let cut = answer.body(body).framing(Framing::ClaimedLength(length as u64));
            Reply::steps([Step::Write(written(&cut)), Step::Sleep(Duration::from_millis(50)), Step::Reset])
        })
    }

    /// Executes the request and sends a chunked answer whose last chunk never comes; then closes.
    pub fn chunked_unfinished() -> Reply {
        Reply::from_answer(|_, answer| {
            let answer = answer.framing(Framing::ChunkedUnfinished(512));
            Reply::steps([Step::Write(written(&answer)), Step::Close])
        })
    }

    /// Executes the request and sends the answer, head included, a few bytes at a time.
    pub fn drip(chunk: usize, every: Duration) -> Reply {
        Reply::from_answer(move |_, answer| {
            Reply::steps([Step::Drip { bytes: written(&answer), chunk, every }])
        })
    }

    /// Executes the request, sends the head at once and the body a few bytes at a time.
    pub fn drip_body(chunk: usize, every: Duration) -> Reply {
        Reply::from_answer(move |_, answer| {
            let mut head = written(&answer);
            let bytes = head.split_off(head.len() - answer.body.len());
            Reply::steps([Step::Write(head), Step::Drip { bytes, chunk, every }])
        })
    }

    /// A `200` whose JSON body never ends.
    pub fn endless_body() -> Reply {
        let head = Answer::json_text(200, "{\"jsonrpc\":\"2.0\",\"x\":\"").framing(Framing::UntilClose);
        Reply::steps([Step::Write(written(&head)), Step::Endless(vec![b'a'; 64 * 1024])])
    }

    /// A head that never ends.
    pub fn endless_head() -> Reply {
        Reply::steps([
            Step::Write(b"HTTP/1.1 200 OK\r\n".to_vec()),
            Step::Endless(b"X-Filler: aaaaaaaaaaaaaaaa\r\n".to_vec()),
        ])
    }

    /// Executes the request, and closes the connection without the answer.
    pub fn lose_answer() -> Reply {
        Reply::execute_then([Step::Close])
    }

    /// A JSON-RPC result under this id, written as given (`"2"`, `"\"1\""`, `"null"`).
    pub fn result_with_id(id: &str, result: &str) -> Reply {
        Reply::json(200, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
    }

    /// An `application/json` answer with this text, in which `$ID` stands for the request's id.
    pub fn json(status: u16, text: &str) -> Reply {
        let text = text.to_owned();
        Reply::with(move |request| {
            Reply::http(Answer::json_text(status, text.replace("$ID", request.rpc_id())))
        })
    }

    /// A redirect to this location.
    pub fn redirect(status: u16, location: &str) -> Reply {
        Reply::http(Answer::new(status).header("Location", location))
    }

    /// A write's first answer: this template, as JSON text, in `structuredContent.unsigned`.
    pub fn template(unsigned: &str) -> Reply {
        Reply::result_text(&format!(
            r#"{{"resultType":"complete","content":[{{"type":"text","text":"sign"}}],"structuredContent":{{"unsigned":{unsigned},"next":"sign"}},"isError":false}}"#
        ))
    }

    /// A tool result with `isError` and this text.
    pub fn tool_error(text: &str) -> Reply {
        let content = serde_json::json!([{"type": "text", "text": text}]);
        Reply::result(serde_json::json!({"resultType": "complete", "content": content, "isError": true}))
    }
}

fn event_stream(spelling: Sse, answer: Answer) -> Answer {
    let body = spelling.spell(&String::from_utf8_lossy(&answer.body));
    answer.set_header("Content-Type", "text/event-stream").body(body)
}

fn written(answer: &Answer) -> Vec<u8> {
    answer.to_bytes(&clock::http_date(clock::unix_now()))
}

/// These bytes compressed with gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default()
}
