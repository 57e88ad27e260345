//! What only people at a terminal see: the line they type, bars for what takes long, dimmed text. Where a stream is no
//! terminal nothing of it is written.

mod line;
mod progress;

pub(crate) use line::Lines;
pub(crate) use progress::Progress;

use std::io::{self, IsTerminal, Write};

/// Writes text dimmed on standard error, if that is a terminal.
pub(crate) fn dimmed(text: &str) {
    let mut out = io::stderr();
    if out.is_terminal() {
        // A terminal that cannot be written to is met at the next write of the answer.
        let _ = write!(out, "\x1b[2m{text}\x1b[0m").and_then(|()| out.flush());
    }
}
