//! Requests on their way in: from the first byte of a body to a place in the engine's queue.
//!
//! The queue bounds what waits for a row; this bounds what comes before it.
//!
//! Invariants: the bodies that are being read and worked at weigh no more together than [`Intake`] has, beside the first
//! [`FREE`] of each, so that large ones keep no small one out; copies are made only of as many as there are workers; a
//! request has a place from when its body is there, so that slow senders keep nobody out; work on bodies takes a bounded
//! number of threads, and whoever waits for one waits without any; what a request holds is given back when its work has
//! ended, also if its client has left before.

use super::{error::ApiError, worker::Workers};
use axum::http::StatusCode;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that bodies weigh at once, where nobody says otherwise: eight texts of the largest size, or a prompt of a million
/// tokens by their numbers.
pub(super) const BYTES: usize = 256 << 20;
/// Bytes of each body that are not counted.
const FREE: usize = 64 << 10;
/// Requests at once whose bodies are there: far more than any engine's queue takes.
const PLACES: usize = 1024;
/// They are counted in pieces of so many.
const PIECE: usize = 1 << 10;

/// What is free. Cheap to clone; requests carry it as an extension.
#[derive(Clone, Debug)]
pub(super) struct Intake {
    places: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    /// How many there are of them, in pieces.
    all: usize,
    workers: Workers,
}

/// A body that is coming, and what it holds.
#[derive(Debug)]
pub(super) struct Coming {
    intake: Intake,
    /// Pieces beyond what is free.
    pieces: Vec<OwnedSemaphorePermit>,
    counted: usize,
}

/// A request whose body is there, and what it holds.
#[derive(Debug)]
pub(crate) struct Place {
    came: Coming,
    _place: OwnedSemaphorePermit,
}

impl Default for Intake {
    fn default() -> Self {
        Self::new(BYTES)
    }
}

impl Intake {
    /// Room for so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let all = (bytes / PIECE).min(Semaphore::MAX_PERMITS);
        let of = |count| Arc::new(Semaphore::new(count));
        Self { places: of(PLACES), bytes: of(all), all, workers: Workers::default() }
    }

    /// What a body holds that begins to come.
    pub(super) fn begin(&self) -> Coming {
        Coming { intake: self.clone(), pieces: Vec::new(), counted: 0 }
    }
}

/// 429, with the time to come back.
fn full(why: &str) -> ApiError {
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, format!("{why}, and no more can be held; try again"))
}

/// 413: there is no use in coming back.
fn too_heavy(most: usize) -> ApiError {
    let message = format!("the body would take more than {most} bytes in memory");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

impl Coming {
    /// A place for the request, whose body is there.
    ///
    /// # Errors
    /// 429: there is none.
    pub(super) fn enter(self) -> Result<Place, ApiError> {
        let place = Arc::clone(&self.intake.places).try_acquire_owned();
        let full = |_| full(&format!("{PLACES} requests are being read"));
        Ok(Place { _place: place.map_err(full)?, came: self })
    }

    /// Holds a body that weighs so many bytes.
    ///
    /// # Errors
    /// 429: others hold too many; 413: it could not be held alone.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), ApiError> {
        let wanted = bytes.saturating_sub(FREE).div_ceil(PIECE);
        if wanted > self.intake.all {
            return Err(too_heavy(self.intake.all * PIECE + FREE));
        }
        let more = u32::try_from(wanted.saturating_sub(self.counted)).unwrap_or(u32::MAX);
        if more == 0 {
            return Ok(());
        }
        let held = Arc::clone(&self.intake.bytes).try_acquire_many_owned(more);
        self.pieces.push(held.map_err(|_| full("large bodies are being read"))?);
        self.counted = wanted;
        Ok(())
    }
}

impl Place {
    /// Whether the body weighs so little that work on it takes no time.
    pub(super) fn is_light(&self) -> bool {
        self.came.counted == 0
    }

    /// Does what may take long outside the runtime's own threads, and gives the place back.
    ///
    /// # Errors
    /// Those of the work; 500 where it panics.
    pub(crate) async fn work<T: Send + 'static>(
        self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, Self), ApiError> {
        let workers = self.came.intake.workers.clone();
        workers.run(move || work().map(|done| (done, self))).await?
    }

    /// Does the last of the work, after which nothing is held.
    ///
    /// # Errors
    /// As [`Self::work`].
    pub(crate) async fn finish<T: Send + 'static>(
        self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.work(work).await.map(|(done, _)| done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bodies_share_what_there_is_and_small_ones_are_free() {
        let intake = Intake::new(1 << 20);
        let (mut one, mut another) = (intake.begin(), intake.begin());
        one.hold(FREE + (1 << 20) - 1).expect("room");
        assert_eq!(another.hold(FREE), Ok(()));
        let error = another.hold(FREE + 1).expect_err("no room");
        assert_eq!(error.status, StatusCode::TOO_MANY_REQUESTS);
        let error = another.hold(FREE + (1 << 20) + 1).expect_err("never room");
        assert_eq!(error.status, StatusCode::PAYLOAD_TOO_LARGE);
        // 64 KiB and 1 MiB.
        assert_eq!(error.message, "the body would take more than 1114112 bytes in memory");
        // What is held already is not counted twice.
        assert_eq!(one.hold(FREE + (1 << 20)), Ok(()));
        // With a place it holds the same.
        let one = one.enter().expect("a place");
        assert_eq!(another.hold(FREE + 1).map_err(|error| error.status), Err(StatusCode::TOO_MANY_REQUESTS));
        drop(one);
        assert_eq!(another.hold(FREE + 1), Ok(()));
    }

    #[test]
    fn places_are_for_bodies_that_are_there_and_given_back() {
        let intake = Intake::default();
        let slow: Vec<_> = (0..=PLACES).map(|_| intake.begin()).collect();
        let all: Vec<_> = (0..PLACES).map(|_| intake.begin().enter().expect("a place")).collect();
        assert_eq!(intake.begin().enter().map(drop).map_err(|error| error.status.as_u16()), Err(429));
        drop(all);
        assert!(slow.into_iter().take(PLACES).all(|slow| slow.enter().is_ok()));
    }

    #[tokio::test]
    async fn work_holds_its_place_until_it_has_ended_though_nobody_waits() {
        let intake = Intake::new(PIECE);
        let mut coming = intake.begin();
        coming.hold(FREE + PIECE).expect("room");
        let place = coming.enter().expect("a place");
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let working = tokio::spawn(place.finish(move || Ok(wait.recv().is_ok())));
        while intake.workers.idle() == Workers::default().idle() {
            tokio::task::yield_now().await;
        }
        working.abort();
        assert!(working.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(intake.bytes.available_permits(), 0);
        drop(go);
        while intake.bytes.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(intake.workers.idle(), Workers::default().idle());
    }

    #[tokio::test]
    async fn a_panic_is_500_and_gives_everything_back() {
        let intake = Intake::default();
        let place = intake.begin().enter().expect("a place");
        let worked = place.finish::<()>(|| panic!("as asked")).await;
        assert_eq!(worked.map_err(|error| error.status.as_u16()), Err(500));
        assert_eq!(intake.places.available_permits(), PLACES);
    }
}
