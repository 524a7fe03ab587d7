//! The connection that is made while the host still shakes hands (design, performance).

use std::thread;
use std::time::{Duration, Instant};

use tinyagent_harness::{Host, HostOptions, INITIALIZE, PATIENCE};
use tinyagent_relay::{AcceptFault, Authority, Options, Relay};

use crate::network::{TempFile, trusting};
use crate::support::{assert_answered, silent};

const HELLO: &str =
    r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#;

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn assert_warmed(relay: &Relay, host: &mut Host) {
    host.assert_alive();
    assert_eq!(relay.connections(), 0, "connected before the host began");
    host.ask("initialize", HELLO);
    wait_until("no connection was made", || relay.connections() == 1);
    assert!(relay.requests().is_empty());
    assert_answered(&host.call("list_rooms", "{}"));
    assert_eq!((relay.connections(), relay.calls_of("list_rooms").len()), (1, 1));
}

#[test]
fn the_relay_is_connected_to_while_the_host_shakes_hands_and_asked_nothing() {
    let relay = Relay::start(Options::default());
    assert_warmed(&relay, &mut Host::with(&relay, silent()));
    let authority = Authority::new();
    let ca = TempFile::new("ca.pem", authority.pem());
    for http2 in [false, true] {
        let tls = authority.issue(&["127.0.0.1"]);
        let tls = Some(if http2 { tls.with_http2() } else { tls });
        let relay = Relay::start(Options { tls, ..Options::default() });
        let options = HostOptions { silent: true, ..trusting(&ca, &[]) };
        assert_warmed(&relay, &mut Host::at(&relay.url(), options));
    }
}

#[test]
fn a_call_that_comes_while_the_connection_is_made_waits_for_it() {
    let authority = Authority::new();
    let ca = TempFile::new("ca.pem", authority.pem());
    let relay = Relay::start(Options { tls: Some(authority.issue(&["127.0.0.1"])), ..Options::default() });
    let options = HostOptions { silent: true, ..trusting(&ca, &[]) };
    let mut host = Host::at(&relay.url(), options);
    host.send(INITIALIZE);
    let call = host.begin_call("list_rooms", "{}");
    assert_answered(&host.answer(call));
    assert_eq!(relay.connections(), 1);
}

#[test]
fn a_connection_that_the_relay_gave_up_before_the_first_call_costs_that_call_nothing() {
    for fault in [AcceptFault::Close, AcceptFault::Reset] {
        let relay = Relay::start(Options::default());
        relay.on_accept(fault);
        let mut host = Host::with(&relay, silent());
        host.ask("initialize", HELLO);
        wait_until("no connection was made", || relay.faults_to_come() == 0);
        assert_answered(&host.call("list_rooms", "{}"));
        assert_eq!(relay.calls_of("list_rooms").len(), 1);
    }
}

#[test]
fn a_relay_that_is_not_there_yet_holds_nothing_up() {
    let relay = Relay::start(Options::default());
    let (url, port) = (relay.url(), relay.port());
    drop(relay);
    let mut host = Host::at(&url, silent());
    host.ask("initialize", HELLO);
    host.assert_alive();
    let listen = vec![format!("127.0.0.1:{port}")];
    let relay = Relay::start(Options { listen, ..Options::default() });
    assert_answered(&host.call("list_rooms", "{}"));
    assert_eq!(relay.connections(), 1);
}

/// The kernel lists a socket's timer: 2 is that which asks a silent other end for a sign of life (proc(5)).
#[test]
fn an_idle_connection_is_asked_for_a_sign_of_life() {
    let relay = Relay::start(Options::default());
    let _host = Host::start(&relay);
    let ends_at_relay = format!("0100007F:{:04X} 01 ", relay.port());
    let timer = || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's list of sockets");
        let line = table.lines().find(|line| line.contains(&ends_at_relay))?;
        line.split_whitespace().nth(5).map(|timer| timer[..2].to_owned())
    };
    wait_until("no timer that keeps the connection alive", || timer().as_deref() == Some("02"));
}
