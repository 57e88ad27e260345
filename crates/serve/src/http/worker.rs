//! Work that takes long, outside the threads that take and answer requests.
//!
//! Invariant: no more of it runs at once than there are workers, and whoever waits for one waits without a thread.

use super::error::ApiError;
use axum::http::StatusCode;
use std::{sync::Arc, thread};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// Workers, on machines with fewer cores.
const WORKERS: usize = 4;

/// As many workers as there are cores. Cheap to clone; clones share them.
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
    /// 500: it panicked.
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
            tracing::error!(%error, "a request's work panicked");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be processed")
        })
    }

    /// Those that have nothing to do.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.0.available_permits()
    }
}
