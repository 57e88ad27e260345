//! Which requests start, and when: strictly in order, while the bytes of all fit the device's budget.

use super::{
    Course, Executor, Parts,
    fault::{Fault, guard},
};
use crate::row::{Boundary, Row, failed, longest};
use tandem_contracts::{
    model::{Slot, StatePolicy},
    request::Outcome,
    tensor::ErrorKind,
};

/// A row's way to be kept, by its number, and the tokens that it may come to.
pub(super) type Length = (usize, usize);

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
    /// Tokens that a row may come to, for each way to keep it: the more of them, the more bytes it needs.
    pub(crate) fn longest(&self) -> Vec<usize> {
        let count = self.parts.config.policies().count();
        (0..count).map(|policy| self.longest_by(policy)).collect()
    }

    fn longest_by(&self, policy: usize) -> usize {
        let fits = |length| matches!(self.admit((policy, length)), Ok(Admission::Fits(_)));
        let (mut fitting, mut end) = (0, self.capabilities.context.saturating_add(1));
        while fitting + 1 < end {
            let middle = fitting + (end - fitting) / 2;
            if fits(middle) { fitting = middle } else { end = middle }
        }
        fitting
    }

    /// A way to keep rows, by its number.
    pub(super) fn policy(&self, number: usize) -> &StatePolicy {
        // Requests that ask for another than these are not accepted.
        self.parts.config.policies().nth(number).unwrap_or(&self.parts.config.state)
    }

    /// Lets cancelled rows go and gives free rows to the queue, in order.
    pub(super) fn prepare(&mut self) {
        self.retire(|row| row.cancelled.then_some(Outcome::Cancelled));
        let open = self.course == Course::Open && self.waiters.is_empty();
        while open && self.rows.len() < self.parts.config.max_rows.max(1) {
            let Some(head) = self.queue.values().next() else { break };
            let (prompt, answer) = (head.request.prompt.len(), head.request.max_tokens);
            let (policy, length) = (head.policy, longest((prompt, answer), self.capabilities.context));
            let admission = self.admit((policy, length));
            if matches!(admission, Ok(Admission::Wait)) {
                break;
            }
            let Some((_, submission)) = self.queue.pop_first() else { break };
            match admission {
                Ok(Admission::Never(bytes)) => self.turn_away(*submission, failed(self.too_large(bytes))),
                Ok(Admission::Fits(bytes)) => {
                    self.projected = bytes;
                    let mut row = Row::new(*submission, self.free_slot(), self.boundary(prompt, policy));
                    row.windows_show(!self.parts.device.traits().batch_invariant);
                    self.rows.push(row);
                }
                Ok(Admission::Wait) => {}
                Err(fault) => self.turn_away(*submission, failed(fault.message)),
            }
        }
        self.make_room();
        self.settled = true;
        self.open_rows();
    }

    /// Where a prompt of so many tokens is cut before its last one.
    fn boundary(&self, prompt: usize, policy: usize) -> Option<Boundary> {
        let end = prompt.checked_sub(1).filter(|end| *end > 0)?;
        let limits = self.parts.config.prefix;
        // Where precision changes behind the prompt, the row cannot be shortened to before that either.
        let passed = !self.capabilities.trimmable || self.policy(policy).limit(end).is_some();
        let kept = passed && prompt >= limits.boundary && self.prefix.wants(end);
        // Where the number of tokens in a step shows in its numbers, first tokens are to come from steps as later ones do.
        let apart = !self.parts.device.traits().batch_invariant;
        (kept || apart).then_some(Boundary { tokens: end, kept })
    }

    /// Whether a row fits beside those that live.
    fn admit(&self, row: Length) -> std::result::Result<Admission, Fault> {
        let limit = self.parts.config.cache_bytes.unwrap_or(usize::MAX);
        match self.project(self.lengths().chain([row]))? {
            Some(together) if together <= limit => return Ok(Admission::Fits(together)),
            _ => {}
        }
        Ok(match self.project([row])? {
            Some(alone) if alone <= limit => Admission::Wait,
            alone => Admission::Never(alone),
        })
    }

    /// Bytes that rows on their way to these lengths take together at most; none where they cannot be kept together.
    pub(super) fn project(
        &self,
        rows: impl IntoIterator<Item = Length>,
    ) -> std::result::Result<Option<usize>, Fault> {
        let Parts { session, config, .. } = &self.parts;
        let step = config.prompt_chunk.min(config.step_tokens);
        let rows: Vec<Length> = rows.into_iter().collect();
        let mut sum = Some(0_usize);
        for (number, policy) in config.policies().enumerate() {
            let own: Vec<usize> = rows.iter().filter(|row| row.0 == number).map(|row| row.1).collect();
            if own.is_empty() {
                continue;
            }
            let bytes = guard("project", || match session.project_bytes(policy, &own, step) {
                Err(error) if error.kind() == ErrorKind::Memory => Ok(None),
                bytes => bytes.map(Some),
            })?;
            sum = sum.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        }
        let lengths: Vec<usize> = rows.iter().map(|row| row.1).collect();
        let beside = self.drafting.bytes(&lengths);
        Ok(sum.map(|sum| sum.saturating_add(beside)))
    }

    /// What the rows may come to.
    pub(super) fn lengths(&self) -> impl Iterator<Item = Length> {
        self.rows.iter().map(|row| (row.policy, row.longest(self.capabilities.context)))
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
