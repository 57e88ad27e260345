//! `tandem serve`: the HTTP server.

use super::choose;
use crate::{
    cli,
    error::{Error, Result},
    wiring,
};
use std::{net::SocketAddr, time::Duration};
use tandem_serve::http::Server;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};

/// Runs the command until it is asked to end.
pub(crate) fn run(arguments: &cli::Serve) -> Result<()> {
    if !arguments.host.is_loopback() && !arguments.insecure_no_auth {
        return Err(Error::new(format!(
            "{} can be reached from other machines, without authentication",
            arguments.host
        ))
        .hint("leave --host away to serve this machine only, or add --insecure-no-auth"));
    }
    let mut model = wiring::start(&arguments.model, arguments.sharing.config())?;
    if let Some(name) = &arguments.model_name {
        model.name.clone_from(name);
    }
    model.defaults.max_tokens = arguments.max_tokens;
    let mut defaults = model.defaults.clone();
    choose(&mut defaults, &arguments.choice, &model)?;
    model.defaults = defaults;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Error::new("no runtime could be started").because(error))?;
    runtime.block_on(async {
        let wanted = SocketAddr::new(arguments.host, arguments.port);
        let listener = TcpListener::bind(wanted).await.map_err(|error| {
            Error::new(wanted.to_string())
                .because(error)
                .hint("another program may listen there; try --port 0")
        })?;
        let address = listener.local_addr().map_err(|error| Error::new(wanted.to_string()).because(error))?;
        let (interrupt, terminate) = (handle(SignalKind::interrupt())?, handle(SignalKind::terminate())?);
        println!("serving {} at http://{address}", model.name);
        let server = Server::new(vec![model], Duration::from_secs(arguments.drain_timeout));
        let served = server.run(listener, asked_to_end(interrupt, terminate)).await;
        served.map_err(|error| Error::new("the server failed").because(error))
    })
}

fn handle(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| Error::new("signals cannot be handled").because(error))
}

async fn asked_to_end(mut interrupt: Signal, mut terminate: Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("draining");
}
