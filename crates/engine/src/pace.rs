//! How many prompt tokens a step may carry beside rows that decode, from what steps have cost so far.
//!
//! ```text
//!   time of a step = quiet(decoding rows) + prompt tokens * cost          quiet, cost: running means
//!   prompt tokens  = (gap target - quiet) / cost
//! ```
//!
//! The cost of a token falls with the number of them in a step; as each step is planned with the cost of those before it, the
//! number settles where the target is met. It at most doubles from one step to the next, so that one measurement that came out
//! too small does not stall everyone.
//!
//! Invariant: what is measured decides when tokens come, never which.

use crate::{config::Gap, plan::Counted};
use std::{collections::BTreeMap, time::Duration};

/// Weight of a new measurement in a running mean.
const WEIGHT: f64 = 0.25;

/// Cost, in means, from which on a measurement counts no more.
const OUTLIER: f64 = 3.0;

/// The same of quiet steps, of which one is much like the next: what takes longer is a cache that grew, or a machine that stood
/// still, and no step to measure others by.
const UNQUIET: f64 = 1.25;

/// Prompt tokens to which a step may always grow, whatever the one before carried.
const START: usize = 4;

/// What steps have cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    /// Seconds of a step of so many decoding rows and no prompt.
    quiet: BTreeMap<usize, f64>,
    /// Seconds that one prompt token adds.
    cost: Option<f64>,
    /// Prompt tokens of the last step that carried some beside decoding rows.
    last: usize,
}

/// What a step carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Rows with one token, or with what was filled in behind it: they decode.
    pub(crate) decoding: usize,
    /// Rows with more tokens of their prompts to come.
    pub(crate) preparing: usize,
    /// Tokens of the prompts.
    pub(crate) tokens: usize,
}

impl Load {
    /// What rows have left, before any of it is planned.
    pub(crate) fn of(rows: &[Counted<'_>]) -> Self {
        let decoding = rows.iter().filter(|row| row.left() > 0 && !row.prepares()).count();
        let preparing = rows.iter().filter(|row| row.prepares()).count();
        Self { decoding, preparing, tokens: 0 }
    }
}

impl Pace {
    /// Learns from a step.
    pub(crate) fn note(&mut self, load: Load, time: Duration) {
        let time = time.as_secs_f64();
        let Load { decoding, preparing, tokens } = load;
        if decoding == 0 {
            if tokens > 0 {
                self.cost.get_or_insert(time / tokens as f64);
            }
            return;
        }
        // A step that carries no more than it must is as quiet as one can be where prompts never cease.
        if tokens == 0 || tokens <= preparing && !self.quiet.contains_key(&decoding) {
            let next = |mean: &mut f64| *mean += WEIGHT * (time.min(UNQUIET * *mean) - *mean);
            self.quiet.entry(decoding).and_modify(next).or_insert(time);
            return;
        }
        self.last = tokens;
        let Some(quiet) = self.quiet(decoding) else { return };
        if time < quiet {
            // So a step without prompts takes no longer than that.
            self.quiet.insert(decoding, time);
            return;
        }
        let added = (time - quiet) / tokens as f64;
        // A step in which a cache grew, or the machine stood still, says little about the next one.
        let next = |mean: f64| mean + WEIGHT * (added.min(OUTLIER * mean) - mean);
        self.cost = Some(self.cost.map_or(added, next));
    }

    /// Prompt tokens that a step with so many decoding rows may carry; none as long as it is not known what a step takes
    /// without them.
    pub(crate) fn prompt_tokens(&self, decoding: usize, gap: Gap) -> usize {
        let room = match (gap, self.quiet(decoding)) {
            (Gap::Any, _) => return usize::MAX,
            (_, None) => return 0,
            (Gap::Times(times), Some(quiet)) => (f64::from(times) - 1.0) * quiet,
            (Gap::Within(time), Some(quiet)) => time.as_secs_f64() - quiet,
        };
        let most = self.last.saturating_mul(2).max(START);
        if room <= 0.0 {
            return 0;
        }
        match self.cost {
            // A quotient beyond the integers is the largest of them.
            Some(cost) if cost > 0.0 => most.min((room / cost) as usize),
            _ => most,
        }
    }

    /// Seconds of a quiet step: of as many rows, else of the next fewer, else of the next more.
    fn quiet(&self, decoding: usize) -> Option<f64> {
        let fewer = self.quiet.range(..=decoding).next_back();
        fewer.or_else(|| self.quiet.range(decoding..).next()).map(|(_, quiet)| *quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(decoding: usize) -> Load {
        Load { decoding, preparing: 0, tokens: 0 }
    }

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn by_hand() {
        let mut pace = Pace::default();
        assert_eq!(pace.prompt_tokens(1, Gap::Times(3.0)), 0);
        pace.note(quiet(1), micros(1_000));
        assert_eq!(pace.prompt_tokens(1, Gap::Times(3.0)), START);
        // 16 tokens add 1,600 us: 100 us each, so that 2,000 us are 20 tokens.
        pace.note(Load { decoding: 1, preparing: 1, tokens: 16 }, micros(2_600));
        assert_eq!(pace.prompt_tokens(1, Gap::Times(3.0)), 20);
        assert_eq!(pace.prompt_tokens(1, Gap::Within(micros(1_500))), 5);
        assert_eq!(pace.prompt_tokens(1, Gap::Within(micros(500))), 0);
        // No more than twice what the last step carried.
        assert_eq!(pace.prompt_tokens(1, Gap::Within(Duration::MAX)), 32);
    }

    #[test]
    fn quiet_steps_are_known_by_their_rows() {
        let mut pace = Pace::default();
        pace.note(quiet(2), micros(1_000));
        pace.note(quiet(8), micros(3_000));
        assert_eq!(
            [1, 2, 5, 8, 16].map(|rows| pace.quiet(rows)),
            [0.001, 0.001, 0.001, 0.003, 0.003].map(Some)
        );
        // The mean moves by a quarter of the difference.
        pace.note(quiet(8), micros(2_000));
        assert_eq!(pace.quiet(8), Some(0.002_75));
        // A step that moves each prompt by one token counts as quiet, as long as there is no other.
        pace.note(Load { decoding: 4, preparing: 2, tokens: 2 }, micros(2_000));
        pace.note(Load { decoding: 4, preparing: 2, tokens: 2 }, micros(9_000));
        assert_eq!(pace.quiet(4), Some(0.002));
    }

    #[test]
    fn a_quiet_step_that_took_too_long_is_no_measure() {
        let mut pace = Pace::default();
        pace.note(quiet(1), micros(4_000));
        // However long it takes, it counts as 5,000 us.
        pace.note(quiet(1), micros(1_000_000));
        assert_eq!(pace.quiet(1), Some(0.004_25));
        // Not even a step with prompts takes so long.
        pace.note(Load { decoding: 1, preparing: 1, tokens: 8 }, micros(1_500));
        assert_eq!((pace.quiet(1), pace.cost), (Some(0.001_5), None));
    }

    #[test]
    fn prompts_alone_give_the_first_cost() {
        let mut pace = Pace::default();
        pace.note(Load { decoding: 0, preparing: 1, tokens: 100 }, micros(10_000));
        pace.note(quiet(1), micros(1_000));
        // 100 us a token: 2,000 us are 20, of which the first step carries 16.
        assert_eq!(pace.prompt_tokens(1, Gap::Times(3.0)), START);
        pace.note(Load { decoding: 1, preparing: 1, tokens: 16 }, micros(2_600));
        assert_eq!(pace.prompt_tokens(1, Gap::Times(3.0)), 20);
    }

    #[test]
    fn a_step_that_stood_still_changes_little() {
        let mut pace = Pace::default();
        pace.note(quiet(1), micros(1_000));
        let mixed = Load { decoding: 1, preparing: 1, tokens: 20 };
        pace.note(mixed, micros(3_000));
        assert_eq!(pace.prompt_tokens(1, Gap::Times(3.0)), 20);
        // 100 us a token so far: a second for 20 tokens counts as 300 us each, of which a quarter of the difference is added.
        pace.note(mixed, micros(1_000_000));
        assert_eq!(pace.prompt_tokens(1, Gap::Times(3.0)), 13);
    }

    /// A machine on which a step takes 1,000 us, a prompt 300 more, and each of its tokens 50.
    #[test]
    fn the_number_settles_where_the_target_is_met() {
        let step = |tokens: u64| micros(1_000 + if tokens > 0 { 300 + 50 * tokens } else { 0 });
        let mut pace = Pace::default();
        pace.note(quiet(4), step(0));
        let mut tokens = 0;
        for _ in 0..40 {
            tokens = pace.prompt_tokens(4, Gap::Times(3.0));
            assert!(step(tokens as u64) <= micros(3_000), "{tokens}");
            pace.note(Load { decoding: 4, preparing: 1, tokens }, step(tokens as u64));
        }
        // (3,000 - 1,300) / 50
        assert!((33..=34).contains(&tokens), "{tokens}");
    }
}
