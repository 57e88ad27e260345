//! Connections: accepted, served with HTTP/1.1, and given up where their clients neither send nor read.
//!
//! Invariants: no client can keep another waiting; one that stops midway costs its connection for as long as [`Patience`] and
//! no longer, and its rows are cancelled with it; an error of one connection ends that one alone.

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use std::{future::Future, io, pin::pin, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tokio_io_timeout::TimeoutStream;

/// How long a client may keep the server waiting: for a request's head, for more of its body, until it takes more of an
/// answer. Requests carry it as an extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience(pub(super) Duration);

/// Pause after an accept that failed for want of something, as file descriptors: closing connections give it back.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until `closed` resolves and those that are open have finished the request that they are at.
///
/// # Errors
/// There is none today: what fails, fails for one connection or for a while.
pub(super) async fn serve(
    listener: TcpListener,
    routes: Router,
    patience: Patience,
    closed: impl Future<Output = ()>,
) -> io::Result<()> {
    let routes = routes.layer(Extension(patience));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience.0);
    let open = GracefulShutdown::new();
    let mut closed = pin!(closed);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut closed => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let service = TowerToHyperService::new(routes.clone());
                let connection =
                    http.serve_connection(TokioIo::new(Box::pin(prepared(stream, patience))), service);
                let connection = open.watch(connection);
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "a connection has broken");
                    }
                });
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                tracing::error!(%error, "no connection can be accepted");
                sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    open.shutdown().await;
    Ok(())
}

/// A stream that sends small pieces at once, and fails where nobody takes them.
fn prepared(stream: TcpStream, patience: Patience) -> TimeoutStream<TcpStream> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "small pieces are not sent at once");
    }
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(patience.0));
    stream
}

/// Whether a connection was gone before it was accepted.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
