//! The one JSON-RPC response within a `text/event-stream` (WHATWG HTML, server-sent events).
//!
//! Chunks go in as they arrive, so that a stream that never ends cannot hold the answer back.

use tinyagent_protocol::json::Json;

/// Collects a stream until its response is whole.
#[derive(Default)]
pub struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    begun: bool,
}

impl Events {
    /// Takes a chunk; gives the response's JSON text once an event holds it. Events without a result
    /// or an error are notifications and passed over.
    pub fn push(&mut self, chunk: &[u8]) -> Option<Vec<u8>> {
        let mut rest = chunk;
        loop {
            // What follows may be in a later chunk.
            if rest.is_empty() {
                return None;
            }
            if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
                rest = &rest[1..];
            }
            let Some(at) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.line.extend_from_slice(rest);
                return None;
            };
            self.line.extend_from_slice(&rest[..at]);
            self.after_cr = rest[at] == b'\r';
            rest = &rest[at + 1..];
            if let Some(response) = self.end_line() {
                return Some(response);
            }
        }
    }

    /// How many bytes are held.
    pub fn held(&self) -> usize {
        self.line.len() + self.data.len()
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        let line = if self.begun { &line[..] } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line) };
        self.begun = true;
        if line.is_empty() {
            self.has_data = false;
            let data = std::mem::take(&mut self.data);
            return is_response(&data).then_some(data);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
            None => (line, &[][..]),
        };
        if field == b"data" {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(value);
        }
        None
    }
}

fn is_response(data: &[u8]) -> bool {
    !data.is_empty()
        && match Json::check(data) {
            Ok((json, _)) => json.get("method").is_none(),
            Err(_) => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: &str) -> Option<String> {
        let whole = Events::default().push(stream.as_bytes());
        let mut bytewise = Events::default();
        let by_byte = stream.bytes().find_map(|byte| bytewise.push(&[byte]));
        assert_eq!(whole, by_byte, "{stream:?}");
        whole.map(|data| String::from_utf8(data).expect("text"))
    }

    #[test]
    fn finds_the_response_in_every_spelling() {
        for stream in [
            "data: {\"id\":1}\n\n",
            "data:{\"id\":1}\n\n",
            "data: {\"id\":1}\r\n\r\n",
            "data: {\"id\":1}\r\r",
            "\u{feff}data: {\"id\":1}\n\n",
            "event: message\nid: 7\nretry: 5\ndata: {\"id\":1}\n\n: bye\n",
            ": comment\n\ndata: {\"method\":\"notifications/progress\"}\n\ndata: {\"id\":1}\n\n",
            "data\n\ndata: {\"id\":1}\n\n",
        ] {
            assert_eq!(read(stream).as_deref(), Some("{\"id\":1}"), "{stream:?}");
        }
        assert_eq!(read("data: {\"id\":\ndata: 1}\n\n").as_deref(), Some("{\"id\":\n1}"));
    }

    #[test]
    fn an_empty_chunk_between_a_carriage_return_and_its_line_feed_ends_no_event() {
        let mut events = Events::default();
        for chunk in ["data: {\"id\":\r", "", "\ndata: 1}\r", "", "\n\r"] {
            let found = events.push(chunk.as_bytes());
            assert_eq!(found.is_some(), chunk == "\n\r", "{chunk:?}");
        }
    }

    #[test]
    fn a_stream_without_a_whole_event_gives_nothing() {
        for stream in
            ["", "data: {\"id\":1}", "data: {\"id\":1}\n", ": ping\n\n", "data:\n\n", "Data: {\"id\":1}\n\n"]
        {
            assert_eq!(read(stream), None, "{stream:?}");
        }
    }
}
