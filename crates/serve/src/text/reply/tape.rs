//! The text of a reply as a tape that a parser reads, one character at a time, and what the parser has made of it.
//!
//! A parser is a future that waits where the text has not come yet. As it sees characters and never pieces, what it
//! makes cannot depend on how the text was split.
//!
//! Invariant: what is read while the tape holds comes out as text or was taken for a call, so nothing is lost.

use std::{
    collections::VecDeque,
    future::poll_fn,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

/// Most bytes of a function's name.
const NAME: usize = 256;

/// A piece of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the assistant says.
    Text(String),
    /// What it thinks.
    Reasoning(String),
    /// A call begins; calls are counted from 0.
    Call {
        /// Which call of the reply.
        index: usize,
        /// The function that it calls.
        name: String,
    },
    /// More of a call's arguments, which are JSON once they are whole, unless the model broke them.
    Arguments {
        /// Which call of the reply.
        index: usize,
        /// The piece.
        text: String,
    },
}

#[derive(Debug, Default)]
struct State {
    input: VecDeque<char>,
    ended: bool,
    /// Bytes that were read.
    read: usize,
    held: Option<String>,
    parts: Vec<Part>,
    calls: usize,
    /// Most calls that are handed out.
    limit: usize,
    /// Where reasoning stood in the text, in bytes.
    reasoning: Vec<Range<usize>>,
}

/// One tape; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Tape(Arc<Mutex<State>>);

impl Tape {
    /// An empty tape that hands out at most `limit` calls.
    pub(super) fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(State { limit, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts more text on.
    pub(super) fn feed(&self, text: &str) {
        self.state().input.extend(text.chars());
    }

    /// No more text comes.
    pub(super) fn end(&self) {
        self.state().ended = true;
    }

    /// What has been made since the last time.
    pub(super) fn parts(&self) -> Vec<Part> {
        std::mem::take(&mut self.state().parts)
    }

    /// Where reasoning stood in the text so far, tags included, in bytes.
    pub(super) fn reasoning(&self) -> Vec<Range<usize>> {
        self.state().reasoning.clone()
    }

    /// The next character, which stays; `None` at the end.
    pub(super) async fn peek(&self) -> Option<char> {
        poll_fn(|_| {
            let state = self.state();
            match state.input.front() {
                None if !state.ended => Poll::Pending,
                next => Poll::Ready(next.copied()),
            }
        })
        .await
    }

    /// Takes the next character.
    pub(super) async fn next(&self) -> Option<char> {
        let next = self.peek().await?;
        let mut state = self.state();
        state.input.pop_front();
        state.read += next.len_utf8();
        if let Some(held) = &mut state.held {
            held.push(next);
        }
        Some(next)
    }

    /// Takes white space.
    pub(super) async fn space(&self) {
        while self.peek().await.is_some_and(char::is_whitespace) {
            self.next().await;
        }
    }

    /// Takes this text, or `None` where another stands.
    pub(super) async fn literal(&self, text: &str) -> Option<()> {
        for wanted in text.chars() {
            if self.peek().await? != wanted {
                return None;
            }
            self.next().await;
        }
        Some(())
    }

    /// Takes this text if its first character comes next. Returns whether it was there; `None` where it breaks off.
    pub(super) async fn option(&self, text: &str) -> Option<bool> {
        if self.peek().await != text.chars().next() {
            return Some(false);
        }
        self.literal(text).await.map(|()| true)
    }

    /// Takes one of several texts, none of which begins another. Returns which.
    pub(super) async fn choice(&self, options: &[&str]) -> Option<usize> {
        let mut seen = String::new();
        loop {
            seen.push(self.peek().await?);
            let mut fitting = options.iter().enumerate().filter(|(_, option)| option.starts_with(&seen));
            let (first, option) = fitting.next()?;
            self.next().await;
            if *option == seen {
                return Some(first);
            }
        }
    }

    /// Takes a name as functions have it: letters, digits, and `_ - . : / $`.
    pub(super) async fn name(&self) -> Option<String> {
        let mut name = String::new();
        while let Some(next) = self.peek().await
            && (next.is_alphanumeric() || "_-.:/$".contains(next))
        {
            name.push(next);
            if name.len() > NAME {
                return None;
            }
            self.next().await;
        }
        (!name.is_empty()).then_some(name)
    }

    /// Gives everything up to the next of some markers away, and takes the marker. White space is given with what
    /// follows it where there are markers; what stands before the marker, or the end, is returned with it. Text that may begin a marker waits.
    pub(super) async fn until(
        &self,
        markers: &[&str],
        mut give: impl FnMut(&str) + Send,
    ) -> (String, Option<usize>) {
        let (mut blank, mut open) = (String::new(), String::new());
        loop {
            let Some(next) = self.next().await else {
                if !open.is_empty() {
                    give(&(std::mem::take(&mut blank) + &open));
                }
                return (blank, None);
            };
            open.push(next);
            if let Some(index) = markers.iter().position(|marker| *marker == open) {
                return (blank, Some(index));
            }
            while let Some(first) = open.chars().next()
                && !markers.iter().any(|marker| marker.starts_with(&open))
            {
                open.drain(..first.len_utf8());
                blank.push(first);
                if !first.is_whitespace() || markers.is_empty() {
                    give(&std::mem::take(&mut blank));
                }
            }
        }
    }

    /// From here on what is read may turn out to be text; `before` was read already.
    pub(super) fn hold(&self, before: String) {
        self.state().held = Some(before);
    }

    /// What was held is text, but for white space behind a call.
    pub(super) fn release(&self) {
        let held = self.take();
        if self.state().calls == 0 || !held.trim().is_empty() {
            self.text(&held);
        }
    }

    /// What was held, which is held no more.
    pub(super) fn take(&self) -> String {
        self.state().held.take().unwrap_or_default()
    }

    /// What was held is part of a call.
    pub(super) fn forget(&self) {
        self.state().held = None;
    }

    /// Hands text out.
    pub(super) fn text(&self, more: &str) {
        let mut state = self.state();
        match state.parts.last_mut() {
            _ if more.is_empty() => {}
            Some(Part::Text(text)) => text.push_str(more),
            _ => state.parts.push(Part::Text(more.to_owned())),
        }
    }

    /// Hands reasoning out.
    pub(super) fn think(&self, more: &str) {
        let mut state = self.state();
        match state.parts.last_mut() {
            _ if more.is_empty() => {}
            Some(Part::Reasoning(text)) => text.push_str(more),
            _ => state.parts.push(Part::Reasoning(more.to_owned())),
        }
    }

    /// Bytes that were read so far.
    pub(super) fn position(&self) -> usize {
        self.state().read
    }

    /// Notes that reasoning began at `start` and has reached the tape's place.
    pub(super) fn reasoned(&self, start: usize) {
        let mut state = self.state();
        let end = state.read;
        match state.reasoning.last_mut() {
            Some(last) if last.start == start => last.end = end,
            _ => state.reasoning.push(start..end),
        }
    }

    /// A call begins, and what was held is part of it.
    pub(super) fn call(&self, name: &str) {
        let mut state = self.state();
        state.held = None;
        let index = state.calls;
        state.calls += 1;
        if index < state.limit {
            state.parts.push(Part::Call { index, name: name.to_owned() });
        }
    }

    /// Hands out more of the arguments of the last call.
    pub(super) fn arguments(&self, more: &str) {
        let mut state = self.state();
        let index = state.calls.saturating_sub(1);
        if more.is_empty() || index >= state.limit {
            return;
        }
        match state.parts.last_mut() {
            Some(Part::Arguments { text, .. }) => text.push_str(more),
            _ => state.parts.push(Part::Arguments { index, text: more.to_owned() }),
        }
    }
}
