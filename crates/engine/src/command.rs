//! What handles ask of the engine thread: one closed enum, sent over one channel.
//!
//! Invariant: a command that the thread never sees still settles when it is dropped: a submission's publisher
//! ends its request as failed, and a drain's reply hangs up.

use crate::{status::Place, subscription::Publisher};
use std::sync::{Arc, mpsc::Sender};
use tandem_contracts::{
    execution::Execution,
    request::{Request, RequestId},
};

/// A request that has been accepted and waits for its row.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) id: RequestId,
    pub(crate) request: Request,
    /// How its keys and values are kept, by its number in the engine's configuration.
    pub(crate) policy: usize,
    /// How it is run.
    pub(crate) execution: Arc<Execution>,
    pub(crate) publisher: Publisher,
    /// Its place in the bounded queue, given back when it is dropped.
    pub(crate) place: Place,
}

/// Somebody who waits for the device to be theirs alone.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) number: u64,
    /// Told once no row lives; dropped where that will not be.
    pub(crate) granted: Sender<()>,
}

/// One message to the engine thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run this.
    Submit(Box<Submission>),
    /// Stop this, whatever state it is in; unknown and ended requests are no error.
    Cancel(RequestId),
    /// Start nothing more, and hang up when the last row has ended.
    Drain(Sender<()>),
    /// Start nothing more, say so when the last row has ended, and go on when it is given back.
    Hold(Waiter),
    /// The hold of this number is given back.
    Release(u64),
    /// End everything now.
    Shutdown,
}
