//! Contract 4: connections that break off, dry up or never speak. A read names the cause; a write whose
//! outcome is open says so, with the id of the event that was sent, and is never sent again.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use tinyagent_harness::{Host, HostOptions};
use tinyagent_relay::{AcceptFault, Answer, Framing, Gate, Matcher, Options, Relay, Reply, Step};

use crate::outcome::{assert_answered, error_text, failed_read, failed_submission, impatient};

/// Executes the request and breaks its answer off in each way that there is.
fn broken_answers() -> Vec<Reply> {
    let cut = |framing: Framing, kept: usize| {
        Reply::from_answer(move |_, answer| {
            let body = answer.body[..kept.min(answer.body.len())].to_vec();
            let bytes = answer.body(body).framing(framing).to_bytes("");
            Reply::steps([Step::Write(bytes), Step::Close])
        })
    };
    vec![
        Reply::truncated(0),
        Reply::truncated(20),
        Reply::truncated_by_reset(0),
        Reply::truncated_by_reset(20),
        Reply::chunked_unfinished(),
        cut(Framing::ClaimedLength(1000), 50),
        cut(Framing::ChunkedUnfinished(7), 21),
        cut(Framing::UntilClose, 12),
        Reply::execute_then([
            Step::Write(b"HTTP/1.1 200 OK\r\nContent-Type: application/js".to_vec()),
            Step::Close,
        ]),
        Reply::execute_then([
            Step::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n5\r\n{\"jso".to_vec()),
            Step::Reset,
        ]),
    ]
}

#[test]
fn case_101_an_answer_that_breaks_off_is_a_transport_error_after_one_post() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for reply in broken_answers() {
        let text = failed_read(&relay, &mut host, reply);
        assert!(text.starts_with("transport: "), "{text}");
        host.assert_alive();
    }
    assert_answered(&host.call("list_rooms", "{}"));
}

#[test]
fn cases_101_and_106_a_submission_whose_answer_breaks_off_is_said_to_be_open_with_its_event() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let count = broken_answers().len();
    for reply in broken_answers() {
        let (text, event) = failed_submission(&relay, &mut host, reply);
        assert!(text.starts_with("transport: "), "{text}");
        assert!(text.ends_with(&format!("; the call may have taken effect (event {event})")), "{text}");
        assert!(relay.published().iter().any(|published| published.id == event), "it was published");
    }
    assert_eq!(relay.published().len(), count);
}

#[test]
fn case_106_a_submission_that_is_executed_and_never_answered_is_one_post_and_said_to_be_open() {
    let relay = Relay::start(Options::default());
    let mut host = impatient(&relay, 4, &["--allow-writes"]);
    for reply in [
        Reply::execute_then([Step::UntilClientLeaves]),
        Reply::lose_answer(),
        Reply::execute_then([Step::Reset]),
    ] {
        let (text, event) = failed_submission(&relay, &mut host, reply);
        assert!(text.ends_with(&format!("; the call may have taken effect (event {event})")), "{text}");
    }
    assert_eq!(relay.published().len(), 3);
}

#[test]
fn a_submission_that_is_answered_with_nonsense_is_said_to_be_open_too() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let nonsense = |body: &'static str| Reply::map(move |_, _| Answer::json_text(200, body));
    for body in [
        "",
        "{",
        "[]",
        "<html>",
        r#"{"jsonrpc":"2.0","id":0,"result":{}}"#,
        r#"{"jsonrpc":"2.0","result":{}}"#,
    ] {
        let (text, event) = failed_submission(&relay, &mut host, nonsense(body));
        assert!(text.ends_with(&format!("; the call may have taken effect (event {event})")), "{text}");
    }
    for result in [r#"{"content":5}"#, r#"{"content":[5]}"#, r#"{"resultType":"input_required"}"#] {
        let (text, event) = failed_submission(&relay, &mut host, Reply::result_text(result));
        assert!(text.ends_with(&format!("; the call may have taken effect (event {event})")), "{text}");
    }
    for error in [Reply::error(200, -32000, "duplicate"), Reply::error(400, -32602, "duplicate")] {
        let (text, _) = failed_submission(&relay, &mut host, error);
        assert_eq!(text, "relay: duplicate");
    }
}

#[test]
fn case_102_the_bound_on_a_call_holds_for_every_kind_of_slowness_and_ping_goes_on() {
    let relay = Relay::start(Options::default());
    let mut host = impatient(&relay, 1, &[]);
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n";
    for reply in [
        Reply::hang(),
        Reply::drip(1, Duration::from_millis(100)),
        Reply::drip_body(1, Duration::from_millis(100)),
        Reply::steps([Step::Write(b"HTTP/1.1 200 OK\r\n".to_vec()), Step::UntilClientLeaves]),
        Reply::steps([Step::Write(head.to_vec()), Step::UntilClientLeaves]),
        Reply::steps([Step::Write([&head[..], b"{\"jsonrpc\":"].concat()), Step::UntilClientLeaves]),
        Reply::steps([Step::Write(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()), Step::UntilClientLeaves]),
        Reply::steps([Step::Endless(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".to_vec())]),
    ] {
        let before = relay.posts().len();
        relay.script(Matcher::tool("list_rooms"), reply);
        let call = host.begin_call("list_rooms", "{}");
        host.assert_alive();
        assert_eq!(error_text(&host.answer(call)), "transport: 127.0.0.1 did not answer in time");
        assert_eq!(relay.posts().len(), before + 1);
    }
}

#[test]
fn case_102_a_relay_that_accepts_and_never_reads_is_given_up_in_time() {
    let relay = Relay::start(Options::default());
    relay.on_accept(AcceptFault::Stall);
    let mut host = impatient(&relay, 1, &[]);
    let call = host.begin_call("list_rooms", "{}");
    host.assert_alive();
    assert_eq!(error_text(&host.answer(call)), "transport: 127.0.0.1 did not answer in time");
    host.assert_alive();
    assert!(relay.posts().is_empty());
}

#[test]
fn a_body_that_the_relay_stops_reading_is_given_up_in_time() {
    let relay = Relay::start(Options { body_limit: 64 << 20, ..Options::default() });
    relay.script(Matcher::path("/mcp").before_body(), Reply::steps([Step::Stall]));
    let mut host = impatient(&relay, 1, &[]);
    let large = format!(r#"{{"q":"{}"}}"#, "a".repeat(20 << 20));
    assert_eq!(error_text(&host.call("list_rooms", &large)), "transport: 127.0.0.1 did not answer in time");
    host.assert_alive();
}

#[test]
fn a_refusal_that_comes_before_the_body_was_read_is_understood() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let large = format!(r#"{{"q":"{}"}}"#, "a".repeat(8 << 20));
    let text = error_text(&host.call("list_rooms", &large)).to_owned();
    assert_eq!(text, "relay: the body is larger than the relay accepts");
    assert_answered(&host.call("list_rooms", "{}"));
}

#[test]
fn a_relay_that_is_not_there_is_named_and_a_write_to_it_is_not_said_to_be_open() {
    let relay = Relay::start(Options::default());
    let (url, address) = (relay.url(), relay.address());
    drop(relay);
    let mut host = Host::at(&url, HostOptions::args(&["--allow-writes"]));
    let expected = format!("transport: cannot connect to {address}: Connection refused");
    assert_eq!(error_text(&host.call("list_rooms", "{}")), expected);
    assert_eq!(error_text(&host.call("post_message", r#"{"room":"general","content":"x"}"#)), expected);
    host.assert_alive();
}

#[test]
fn a_write_that_could_not_even_connect_in_time_is_not_said_to_be_open() {
    let full = FullBacklog::new("127.0.0.1:0");
    let url = format!("http://127.0.0.1:{}", full.port());
    let mut host = Host::at(&url, HostOptions::args(&["--allow-writes", "--timeout", "1"]));
    let call = host.begin_call("post_message", r#"{"room":"general","content":"x"}"#);
    host.assert_alive();
    assert_eq!(error_text(&host.answer(call)), "transport: 127.0.0.1 did not answer in time");
}

#[test]
fn a_template_that_is_never_answered_leaves_a_write_open_without_an_event() {
    let relay = Relay::start(Options::default());
    let mut host = impatient(&relay, 1, &["--allow-writes"]);
    relay.script(Matcher::tool("post_message"), Reply::hang());
    let answer = host.call("post_message", r#"{"room":"general","content":"x"}"#);
    assert_eq!(
        error_text(&answer),
        "transport: 127.0.0.1 did not answer in time; the call may have taken effect"
    );
    assert_eq!(relay.calls_of("post_message").len(), 1);
}

#[test]
fn the_bound_on_a_host_call_includes_its_wait_in_the_queue() {
    let relay = Relay::start(Options::default());
    let mut host = impatient(&relay, 1, &[]);
    let gate = Gate::new();
    relay.script(Matcher::tool("list_rooms"), Reply::hold(&gate));
    let calls: Vec<u64> = (0..3).map(|_| host.begin_call("list_rooms", "{}")).collect();
    assert_eq!(error_text(&host.answer(calls[0])), "transport: 127.0.0.1 did not answer in time");
    for call in &calls[1..] {
        let text = "transport: 1 s passed while earlier calls were waited for; the call was not sent";
        assert_eq!(error_text(&host.answer(*call)), text);
    }
    gate.open();
    host.assert_alive();
    assert_eq!(relay.calls_of("list_rooms").len(), 1);
}

/// A listener that never accepts and whose queue is full, so that the kernel lets further connections hang.
pub struct FullBacklog {
    listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl FullBacklog {
    /// Fills the queue of a listener on this address.
    pub fn new(address: &str) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
        let waiting: Vec<TcpStream> = std::iter::from_fn(connect).take(10_000).collect();
        assert!(waiting.len() < 10_000, "the queue is never full");
        FullBacklog { listener, _waiting: waiting }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.listener.local_addr().expect("bound").port()
    }
}
