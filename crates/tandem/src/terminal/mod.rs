//! What only people at a terminal see: the line they type, bars for what takes long, dimmed text. Where a stream is no
//! terminal nothing of it is written.

mod line;
mod progress;

pub(crate) use line::Lines;
pub(crate) use progress::Progress;

use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
};

/// Writes text dimmed on standard error, if that is a terminal.
pub(crate) fn dimmed(text: &str) {
    let mut out = io::stderr();
    if out.is_terminal() {
        // A terminal that cannot be written to is met at the next write of the answer.
        let _ = write!(out, "\x1b[2m{}\x1b[0m", harmless(text)).and_then(|()| out.flush());
    }
}

/// What a terminal is given of a text that a model wrote. Control characters could move its cursor, set its title or
/// have it type: but for line breaks and tabs each is shown as U+FFFD.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let harms = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    if text.contains(harms) { text.replace(harms, "\u{fffd}").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_does_not_steer_the_terminal() {
        for (written, shown) in [
            ("\x1b]0;title\x07\x1b[2J", "\u{fffd}]0;title\u{fffd}\u{fffd}[2J"),
            ("\u{9b}2J \u{80}\u{9f} \x7f \0 \x08", "\u{fffd}2J \u{fffd}\u{fffd} \u{fffd} \u{fffd} \u{fffd}"),
            ("over\rwritten", "over\u{fffd}written"),
            ("a\tb\n\u{a0}é 日本 \u{1f989}", "a\tb\n\u{a0}é 日本 \u{1f989}"),
        ] {
            assert_eq!(harmless(written), shown, "{written:?}");
        }
    }
}
