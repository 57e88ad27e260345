//! Work that takes long, outside the threads that take and answer requests.
//!
//! Invariant: no more of it runs at once than its pool has workers, and whoever waits for one waits without a thread. One
//! pool works at what comes in, another at what goes out.

use super::error::ApiError;
use axum::http::StatusCode;
use std::{sync::Arc, thread};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// Workers of a pool at least.
const WORKERS: usize = 4;

/// A pool of as many workers as there are cores, but at least [`WORKERS`]. Cheap to clone; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Workers(Arc<Semaphore>);

impl Default for Workers {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(WORKERS, |cores| cores.get().max(WORKERS));
        Self(Arc::new(Semaphore::new(cores)))
    }
}

impl Workers {
    /// Does work that may take more than a millisecond.
    ///
    /// # Errors
    /// 500: it panicked, or the server's end came before its turn.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let worker = Arc::clone(&self.0).acquire_owned().await;
        let working = spawn_blocking(move || {
            let _worker = worker;
            work()
        });
        working.await.map_err(|error| {
            let what = if error.is_panic() { "panicked" } else { "was given up" };
            tracing::error!(%error, "a request's work {what}");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be processed")
        })
    }

    /// Those that have nothing to do.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.0.available_permits()
    }
}
