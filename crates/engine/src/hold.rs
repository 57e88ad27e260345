//! The device for somebody alone, for as long as they need it.
//!
//! Invariant: a hold is given back exactly once, in `Drop`; while there is one, or somebody waits for one, no request starts.

use crate::command::Command;
use std::sync::mpsc::Sender;

/// No row lives and none starts until this is dropped. Requests are taken meanwhile, and wait.
#[derive(Debug)]
pub struct Hold {
    pub(crate) number: u64,
    pub(crate) commands: Sender<Command>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A thread that is gone starts nothing that could wait for this.
        let _ = self.commands.send(Command::Release(self.number));
    }
}
