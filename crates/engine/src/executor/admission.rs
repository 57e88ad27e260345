//! Which requests start, and when: strictly in order, while the bytes of all fit the device's budget.

use super::{
    Course, Executor, Parts,
    fault::{Fault, guard},
};
use crate::{
    config::Config,
    row::{Boundary, Row, failed, longest},
};
use tandem_contracts::{model::Slot, request::Outcome, tensor::ErrorKind};

/// Whether a request can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// With it the rows take so many bytes.
    Fits(usize),
    /// Others hold the bytes now.
    Wait,
    /// The whole budget would not do, or the session cannot keep so long a row; alone it takes so many bytes.
    Never(Option<usize>),
}

impl Executor {
    /// Tokens that a row may come to: the more of them, the more bytes it needs.
    pub(crate) fn longest(&self) -> usize {
        let fits = |length| matches!(self.admit(length), Ok(Admission::Fits(_)));
        let (mut fitting, mut end) = (0, self.capabilities.context.saturating_add(1));
        while fitting + 1 < end {
            let middle = fitting + (end - fitting) / 2;
            if fits(middle) { fitting = middle } else { end = middle }
        }
        fitting
    }

    /// Lets cancelled rows go and gives free rows to the queue, in order.
    pub(super) fn prepare(&mut self) {
        self.retire(|row| row.cancelled.then_some(Outcome::Cancelled));
        while self.course == Course::Open && self.rows.len() < self.parts.config.max_rows.max(1) {
            let Some(head) = self.queue.values().next() else { break };
            let (prompt, answer) = (head.request.prompt.len(), head.request.max_tokens);
            let length = longest((prompt, answer), self.capabilities.context);
            let admission = self.admit(length);
            if matches!(admission, Ok(Admission::Wait)) {
                break;
            }
            let Some((_, submission)) = self.queue.pop_first() else { break };
            match admission {
                Ok(Admission::Never(bytes)) => self.turn_away(*submission, failed(self.too_large(bytes))),
                Ok(Admission::Fits(bytes)) => {
                    self.projected = bytes;
                    let row = Row::new(*submission, self.free_slot(), self.boundary(prompt));
                    self.rows.push(row);
                }
                Ok(Admission::Wait) => {}
                Err(fault) => self.turn_away(*submission, failed(fault.message)),
            }
        }
        self.make_room();
        self.open_rows();
    }

    /// Where a prompt of so many tokens is cut before its last one.
    fn boundary(&self, prompt: usize) -> Option<Boundary> {
        let end = prompt.checked_sub(1).filter(|end| *end > 0)?;
        let Config { prefix: limits, state, .. } = &self.parts.config;
        // Where precision changes behind the prompt, the row cannot be shortened to before that either.
        let passed = !self.capabilities.trimmable || state.limit(end).is_some();
        let kept = passed && prompt >= limits.boundary && self.prefix.wants(end);
        // Where the number of tokens in a step shows in its numbers, first tokens are to come from steps as later ones do.
        let apart = !self.parts.device.traits().batch_invariant;
        (kept || apart).then_some(Boundary { tokens: end, kept })
    }

    /// Whether a row of `length` tokens fits beside those that live.
    fn admit(&self, length: usize) -> std::result::Result<Admission, Fault> {
        let limit = self.parts.config.cache_bytes.unwrap_or(usize::MAX);
        match self.project(self.lengths().chain([length]))? {
            Some(together) if together <= limit => return Ok(Admission::Fits(together)),
            _ => {}
        }
        Ok(match self.project([length])? {
            Some(alone) if alone <= limit => Admission::Wait,
            alone => Admission::Never(alone),
        })
    }

    /// Bytes that rows on their way to these lengths take together at most; none where they cannot be kept together.
    pub(super) fn project(
        &self,
        lengths: impl IntoIterator<Item = usize>,
    ) -> std::result::Result<Option<usize>, Fault> {
        let Parts { session, config, .. } = &self.parts;
        let lengths: Vec<usize> = lengths.into_iter().collect();
        let step = config.prompt_chunk.min(config.step_tokens);
        guard("project", || match session.project_bytes(&config.state, &lengths, step) {
            Err(error) if error.kind() == ErrorKind::Memory => Ok(None),
            bytes => bytes.map(Some),
        })
    }

    /// The lengths that the rows may come to.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|row| row.longest(self.capabilities.context))
    }

    fn too_large(&self, bytes: Option<usize>) -> String {
        let limit = self.parts.config.cache_bytes.unwrap_or(usize::MAX);
        match bytes {
            Some(bytes) => format!(
                "the request's cache may take {bytes} bytes, a shorter prompt or a lower max_tokens takes less, \
                 the device's budget is: {limit}"
            ),
            None => "the request is longer than all that can be cached, \
                     a shorter prompt or a lower max_tokens takes less"
                .to_owned(),
        }
    }

    pub(super) fn free_slot(&self) -> Slot {
        let mut slot = 0;
        while self.rows.iter().any(|row| row.slot == Slot(slot)) {
            slot += 1;
        }
        Slot(slot)
    }
}
