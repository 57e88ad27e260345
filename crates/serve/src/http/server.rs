//! The server as a whole: what it is told, and its life from the first connection to the end of its engines.
//!
//! Invariants: whatever ends the server, its engines have ended when [`Server::run`] returns; while it drains, health is
//! still answered, and nothing new is taken.

use super::{
    Compat,
    connection::{self, Patience},
    dialect,
    guard::{self, Keys, Origin},
    host::{self, Host},
    intake::{self, Intake},
    metrics, router,
    state::App,
};
use crate::{
    error::{Error, ErrorKind},
    model::ServedModel,
};
use axum::Extension;
use std::{future::Future, io, num::NonZeroUsize, pin::pin, sync::Arc, thread, time::Duration};
use tandem_engine::EngineHandle;
use tokio::{
    net::TcpListener,
    runtime::{self, Runtime},
    sync::oneshot,
    task::spawn_blocking,
    time::timeout,
};

/// Threads that take and answer requests at most.
const THREADS: usize = 2;

/// Time that clients have to read the end of their answers once everything has ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// What runs a server: a thread or two, and others for work on requests that takes long.
///
/// Of two, each token wakes both: one to take it, the other to watch the sockets meanwhile. Where there are cores for
/// that, what one is at, such as a large answer, holds nobody up; where there are few, each wake-up takes one from the
/// engine.
///
/// # Errors
/// The system's, where it gives what a runtime needs to none.
pub fn runtime() -> io::Result<Runtime> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    runtime::Builder::new_multi_thread().worker_threads(threads(cores)).enable_all().build()
}

/// Threads beside an engine that computes on so many cores.
fn threads(cores: usize) -> usize {
    (cores / 2).clamp(1, THREADS)
}

/// The server of some models.
///
/// ```no_run
/// # async fn run(model: tandem_serve::model::ServedModel) -> Result<(), Box<dyn std::error::Error>> {
/// let server = tandem_serve::http::Server::new(vec![model], std::time::Duration::from_secs(30));
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// server.run(listener, async { drop(tokio::signal::ctrl_c().await) }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    models: Vec<ServedModel>,
    drain_timeout: Duration,
    keep_alive: Duration,
    patience: Patience,
    bodies: usize,
    keys: Keys,
    hosts: Vec<Host>,
    origins: Vec<Origin>,
    compat: Option<Compat>,
}

impl Server {
    /// A server of `models`, which may still be loading: until they are loaded requests are answered with 503. At
    /// shutdown running answers have `drain_timeout` to finish. Everybody may ask, and no page of another origin.
    pub fn new(models: Vec<ServedModel>, drain_timeout: Duration) -> Self {
        Self {
            models,
            drain_timeout,
            keep_alive: Duration::from_secs(10),
            patience: Patience(Duration::from_secs(60)),
            bodies: intake::BYTES,
            keys: Keys::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
            compat: None,
        }
    }

    /// Changes after how much silence a stream sends a comment line; ten seconds otherwise.
    #[must_use]
    pub fn keep_alive(self, keep_alive: Duration) -> Self {
        Self { keep_alive, ..self }
    }

    /// Changes how long a client may take to send a request's head, to go on with its body, or to take more of an answer
    /// that waits for it; a minute otherwise. A whole body has four times as long, and a second for each 64 KiB. Connections on
    /// which nothing is asked for so long are closed.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience: Patience(patience), ..self }
    }

    /// Changes how many bytes large bodies may take at once as JSON's values, from their coming until their requests wait for a
    /// row; 256 MiB otherwise. A text takes what it is long, each value of a list and each part of an object a few hundred bytes.
    /// Requests beyond them are answered with 429, one that could not be held alone with 413.
    #[must_use]
    pub fn bodies(self, bytes: usize) -> Self {
        Self { bodies: bytes, ..self }
    }

    /// Answers under these names too. A server without keys that listens to this machine alone is known under no name but this
    /// machine's, so that no page on the web can lead a browser to it; with a `*`, every name will do.
    #[must_use]
    pub fn hosts(self, hosts: Vec<Host>) -> Self {
        Self { hosts, ..self }
    }

    /// Answers only those who have one of these keys, if there are any.
    #[must_use]
    pub fn keys(self, keys: Keys) -> Self {
        Self { keys, ..self }
    }

    /// Lets pages of these origins ask from browsers.
    #[must_use]
    pub fn origins(self, origins: Vec<Origin>) -> Self {
        Self { origins, ..self }
    }

    /// Answers on the paths of another server as that one does.
    #[must_use]
    pub fn compat(self, compat: Option<Compat>) -> Self {
        Self { compat, ..self }
    }

    /// Serves connections of `listener` until `shutdown` resolves, then drains: nothing new is taken, running
    /// answers finish or the time for that runs out, and `/health` says so meanwhile. The engines have ended when
    /// this returns.
    ///
    /// # Errors
    /// [`ErrorKind::Network`]: the listener failed.
    pub async fn run(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let failed = |error: io::Error| Error::new(ErrorKind::Network, error.to_string());
        let bound = listener.local_addr().map_err(failed)?.ip();
        let app = App::new(self.models, self.keep_alive);
        let routes = router(app.clone(), self.compat).layer(Extension(Intake::new(self.bodies)));
        let guarded = host::known(guard::protect(routes, self.keys.clone()), bound, &self.keys, self.hosts);
        let spoken = dialect::spoken(guarded, self.compat);
        let routes = guard::open_to(metrics::counted(spoken, &app), self.origins);
        let (close, closed) = oneshot::channel::<()>();
        let until = async {
            // An error would mean that the sender is gone, and then it is time too.
            let _ = closed.await;
        };
        let mut serving = pin!(connection::serve(listener, routes, self.patience, until));
        let ended = async {
            shutdown.await;
            app.begin_drain();
            // Whether in time or not, what is left ends then.
            let _ = timeout(self.drain_timeout, on_engines(&app, EngineHandle::drain)).await;
            on_engines(&app, EngineHandle::shutdown).await;
        };
        let served = tokio::select! {
            served = &mut serving => served,
            () = ended => {
                // A receiver that is gone has nothing to close.
                let _ = close.send(());
                timeout(FAREWELL, serving).await.unwrap_or(Ok(()))
            }
        };
        on_engines(&app, EngineHandle::shutdown).await;
        served.map_err(failed)
    }
}

/// Calls something that blocks on all engines at once, outside the runtime's own threads, and waits for all of it.
async fn on_engines(app: &App, act: fn(&EngineHandle)) {
    let begin = |model: &Arc<ServedModel>| {
        let engine = model.engine.clone();
        spawn_blocking(move || act(&engine))
    };
    let acting: Vec<_> = app.models().iter().map(begin).collect();
    for acting in acting {
        // A panic there has ended the engine too.
        let _ = acting.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_cores_are_few_one_thread_answers() {
        assert_eq!([1, 2, 3, 4, 64].map(threads), [1, 1, 1, 2, 2]);
    }
}
