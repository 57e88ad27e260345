//! What became of spans.

use std::ops::AddAssign;

/// Counts of one answer, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Spans that were put into answers unchosen.
    pub events: u64,
    /// Their tokens.
    pub injected: u64,
    /// Spans that rules gave, be they put in or verified.
    pub strict: u64,
    /// Spans that were copied.
    pub echo: u64,
    /// Spans that were put in, by their lengths.
    pub spans: Vec<u64>,
    /// Samples that were dropped, because their place was filled by the time that they were read.
    pub wasted_samples: u64,
    /// Tokens that are not looked for, as too many came before.
    pub index_truncated: u64,
    /// Tokens that were sampled.
    pub decode_steps: u64,
    /// Spans that were guesses.
    pub verify: Verified,
    /// Copies that ended where what followed elsewhere differs.
    pub branch_stops: u64,
}

/// What became of guesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Spans.
    pub events: u64,
    /// Tokens that were chosen.
    pub accepted: u64,
    /// Tokens that were not, or that nothing was behind which they could have been.
    pub rejected: u64,
    /// Spans that nobody verified.
    pub unsupported: u64,
}

impl Tally {
    pub(super) fn span(&mut self, length: usize) {
        if self.spans.len() <= length {
            self.spans.resize(length + 1, 0);
        }
        self.spans[length] += 1;
    }

    /// Spans that were put in, each length with how many there were.
    pub fn spans(&self) -> impl Iterator<Item = (usize, u64)> {
        self.spans.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }
}

impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Tally) {
        let Verified { events, accepted, rejected, unsupported } = other.verify;
        self.events += other.events;
        self.injected += other.injected;
        self.strict += other.strict;
        self.echo += other.echo;
        self.wasted_samples += other.wasted_samples;
        self.index_truncated += other.index_truncated;
        self.decode_steps += other.decode_steps;
        self.branch_stops += other.branch_stops;
        self.verify.events += events;
        self.verify.accepted += accepted;
        self.verify.rejected += rejected;
        self.verify.unsupported += unsupported;
        if self.spans.len() < other.spans.len() {
            self.spans.resize(other.spans.len(), 0);
        }
        self.spans.iter_mut().zip(&other.spans).for_each(|(count, more)| *count += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_add_up() {
        let mut one = Tally { events: 1, ..Tally::default() };
        one.span(3);
        let mut other = Tally { verify: Verified { rejected: 2, ..Verified::default() }, ..Tally::default() };
        other.span(5);
        other.span(3);
        let mut sum = Tally::default();
        sum += &one;
        sum += &other;
        assert_eq!((sum.events, sum.verify.rejected), (1, 2));
        assert_eq!(sum.spans().collect::<Vec<_>>(), [(3, 2), (5, 1)]);
    }
}
