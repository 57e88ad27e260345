//! `tandem serve`: the HTTP server.
//!
//! The socket listens while the weights are loaded, so that whoever asks is told; the address is printed once requests are
//! taken.

use super::choose;
use crate::{
    cli,
    error::{Error, Result},
    wiring::{self, unstartable},
};
use std::{
    net::{IpAddr, SocketAddr},
    pin::pin,
    thread,
    time::Duration,
};
use tandem_engine::Starting;
use tandem_serve::{
    http::{Compat, Keys, Server, runtime},
    model::{Filling, ServedModel},
};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// Runs the command until it is asked to end.
pub(crate) fn run(arguments: &cli::Serve) -> Result<()> {
    let keys = arguments.access.keys()?;
    check_host(arguments.host, &keys, arguments.access.insecure_no_auth)?;
    let (mut model, starting) = wiring::begin(&arguments.model, arguments.sharing.config())?;
    if let Some(name) = &arguments.model_name {
        model.name.clone_from(name);
    }
    model.fill = filling(arguments.fill);
    model.defaults.max_tokens = arguments.max_tokens;
    let mut defaults = model.defaults.clone();
    choose(&mut defaults, &arguments.choice, &model)?;
    model.defaults = defaults;
    let runtime = runtime().map_err(|error| Error::new("no runtime could be started").because(error))?;
    let served = runtime.block_on(serve(arguments, (model, starting), keys));
    // Whoever still waits for weights waits for nothing.
    Runtime::shutdown_background(runtime);
    served
}

fn filling(typed: cli::Fill) -> Filling {
    match typed {
        cli::Fill::Off => Filling::Off,
        cli::Fill::Strict => Filling::Strict,
        cli::Fill::Echo => Filling::Echo,
    }
}

/// Refuses to be reached from other machines by everybody.
fn check_host(host: IpAddr, keys: &Keys, insecure: bool) -> Result<()> {
    if host.is_loopback() || insecure || !keys.is_empty() {
        return Ok(());
    }
    Err(Error::new(format!("{host} can be reached from other machines, and there is no key")).hint(
        "set TANDEM_API_KEY or --api-key-file, leave --host away to serve this machine only, or add --insecure-no-auth",
    ))
}

async fn serve(arguments: &cli::Serve, (model, starting): (ServedModel, Starting), keys: Keys) -> Result<()> {
    let wanted = SocketAddr::new(arguments.host, arguments.port);
    let listener = TcpListener::bind(wanted).await.map_err(|error| {
        Error::new(wanted.to_string()).because(error).hint("another program may listen there; try --port 0")
    })?;
    let address = listener.local_addr().map_err(|error| Error::new(wanted.to_string()).because(error))?;
    let mut signals = Signals::new()?;
    // Each connection is a file, and most systems allow few unless they are asked.
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::debug!(%error, "no more files may be open than before");
    }
    let name = model.name.clone();
    let server = Server::new(vec![model], Duration::from_secs(arguments.drain_timeout))
        .keys(keys)
        .hosts(arguments.access.allow_host.clone())
        .origins(arguments.access.cors_origin.clone())
        .compat(arguments.compat.map(|cli::Compat::MlxLm| Compat::MlxLm));
    let (end, told) = oneshot::channel::<()>();
    let mut serving = pin!(server.run(listener, async { drop(told.await) }));
    let mut loading = pin!(loaded(starting));
    let failed = |error| Error::new("the server failed").because(error);
    tokio::select! {
        served = &mut serving => return served.map_err(failed),
        loaded = &mut loading => loaded?,
        // Nothing runs yet that could be finished.
        () = signals.next() => return Ok(()),
    }
    println!("serving {name} at http://{address}");
    tokio::select! {
        served = &mut serving => return served.map_err(failed),
        () = signals.next() => {}
    }
    tracing::info!(timeout_s = arguments.drain_timeout, "draining; asked once more, the server ends at once");
    drop(end);
    tokio::select! {
        served = &mut serving => served.map_err(failed),
        () = signals.next() => Err(Error::new("ended before all answers had")),
    }
}

/// Waits for the weights, on a thread that nobody has to wait for.
async fn loaded(starting: Starting) -> Result<()> {
    let (done, loaded) = oneshot::channel();
    let wait = move || {
        // Whoever asked may have ended.
        let _ = done.send(starting.wait().map(drop));
    };
    let thread = thread::Builder::new().name("tandem-loading".to_owned()).spawn(wait);
    thread.map_err(|error| Error::new("no thread could be started").because(error))?;
    let lost = |error| Error::new("the model could not be started").because(error);
    loaded.await.map_err(lost)?.map_err(unstartable)
}

/// The ways in which a program is asked to end.
#[derive(Debug)]
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let handle =
            |kind| signal(kind).map_err(|error| Error::new("signals cannot be handled").because(error));
        Ok(Self { interrupt: handle(SignalKind::interrupt())?, terminate: handle(SignalKind::terminate())? })
    }

    /// The next one.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_need_a_key_or_a_word_that_they_need_none() {
        let (none, one) = (Keys::default(), Keys::new(["k"]));
        for (host, keys, insecure, allowed) in [
            ("127.0.0.1", &none, false, true),
            ("127.8.0.1", &none, false, true),
            ("::1", &none, false, true),
            ("0.0.0.0", &none, false, false),
            ("::", &none, false, false),
            ("192.168.1.7", &none, false, false),
            ("0.0.0.0", &one, false, true),
            ("0.0.0.0", &none, true, true),
        ] {
            let host: IpAddr = host.parse().expect("an address");
            assert_eq!(check_host(host, keys, insecure).is_ok(), allowed, "{host} {keys:?} {insecure}");
        }
    }
}
