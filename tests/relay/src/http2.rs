//! HTTP/2 on a TLS connection whose client chose it. Requests are recorded and scripted like the others; of a
//! scripted reply's steps only those that mean something for one stream are played.

use crate::clock;
use crate::request::{Request, Unread};
use crate::script::Step;
use crate::server::{Server, lock};
use crate::tls;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::Response;
use rustls::ServerConfig;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What is left to do when a connection turns out to speak HTTP/1.1.
type Remaining = Option<Box<dyn crate::http::Duplex>>;

/// Serves a connection to its end if it speaks HTTP/2, else hands it back after the handshake.
pub(crate) fn serve(
    server: &Arc<Server>,
    id: u64,
    config: Arc<ServerConfig>,
    stream: TcpStream,
) -> io::Result<Remaining> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        stream.set_nonblocking(true)?;
        let stream = TlsAcceptor::from(config).accept(tokio::net::TcpStream::from_std(stream)?).await?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            // A connection that ends in an error was ended by its client or by the test.
            let _ = streams(server, id, stream).await;
            return Ok(None);
        }
        let (stream, session) = stream.into_inner();
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        Ok(Some(tls::resume(session, stream)))
    });
    runtime.shutdown_background();
    served
}

async fn streams(
    server: &Arc<Server>,
    id: u64,
    stream: TlsStream<tokio::net::TcpStream>,
) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        let server = server.clone();
        tokio::spawn(async move { exchange(server, id, request, respond).await });
    }
    Ok(())
}

/// One request and its reply.
async fn exchange(
    server: Arc<Server>,
    id: u64,
    incoming: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let (parts, body) = incoming.into_parts();
    let body = match read_body(body, server.options.body_limit).await {
        Ok(body) => body,
        Err(_) => return,
    };
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let authority = parts.uri.authority().map(|authority| ("host".to_owned(), authority.to_string()));
    let headers = parts.headers.iter().map(|(name, value)| (name.to_string(), text(value)));
    let request = Request {
        number: 0,
        connection: id,
        arrived: Instant::now(),
        method: parts.method.to_string(),
        target: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        headers: authority.into_iter().chain(headers).collect(),
        head: Vec::new(),
        unread: body.is_none().then_some(Unread::TooLarge),
        body: body.unwrap_or_default(),
        http2: true,
        proof: None,
        proof_error: None,
        rpc: None,
        malformed: None,
    };
    let decided = tokio::task::spawn_blocking(move || {
        let request = server.receive(request);
        let reply = lock(&server.script).take(&request, false);
        (server.resolve(&request, reply), clock::http_date(server.now()))
    });
    match decided.await {
        Ok((Ok(answer), date)) => {
            let mut response = Response::builder().status(answer.status).header("date", date);
            for (name, value) in &answer.headers {
                if !name.eq_ignore_ascii_case("connection") {
                    response = response.header(name, value);
                }
            }
            let Ok(response) = response.body(()) else { return };
            if let Ok(mut stream) = respond.send_response(response, answer.body.is_empty()) {
                let _ = stream.send_data(answer.body.into(), true);
            }
        }
        Ok((Err(steps), _)) => refuse(steps, respond).await,
        Err(_) => respond.send_reset(Reason::INTERNAL_ERROR),
    }
}

/// Plays steps on a stream: waits are waited, a close cancels the stream, a reset refuses it, which tells the
/// client that nothing was processed; a stream that is left hanging stays so until the client leaves.
async fn refuse(steps: Vec<Step>, mut respond: SendResponse<Bytes>) {
    for step in steps {
        match step {
            Step::Sleep(time) => tokio::time::sleep(time).await,
            Step::Wait(gate) => {
                let _ = tokio::task::spawn_blocking(move || gate.wait_inside()).await;
            }
            Step::Reset => return respond.send_reset(Reason::REFUSED_STREAM),
            Step::UntilClientLeaves | Step::Stall => {
                let _ = std::future::poll_fn(|context| respond.poll_reset(context)).await;
                return;
            }
            _ => break,
        }
    }
    respond.send_reset(Reason::CANCEL);
}

/// The whole body, or `None` if it is larger than the limit.
async fn read_body(mut stream: RecvStream, limit: u64) -> Result<Option<Vec<u8>>, h2::Error> {
    let mut body = Vec::new();
    while let Some(piece) = stream.data().await {
        let piece = piece?;
        if (body.len() + piece.len()) as u64 > limit {
            return Ok(None);
        }
        body.extend(&piece);
        stream.flow_control().release_capacity(piece.len())?;
    }
    Ok(Some(body))
}
