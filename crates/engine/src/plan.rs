//! The planner: which tokens of which rows the next step carries.
//!
//! A pure function without phases. A row is a computed count that chases a known count: prefill, its chunks,
//! decoding and resumed prefixes are the one subtraction `known - computed`. A row that has one token left, which
//! is what decoding is, never waits for prompts; prompts share the rest of the step, the oldest first.
//!
//! A row whose answer has been filled in goes on with all of it at once: no logits but the last one's are wanted. It waits for
//! prompts no more than a row that decodes, and leaves each of those their token.
//!
//! A row whose prompt is scored asks for logits of every token of it, in chunks that bound how many of those there are.
//!
//! A row that decodes may have drafts behind its token: they are read with it, and logits of all of them are wanted.
//!
//! No step of a row crosses the position at which its precision changes ([`StatePolicy::limit`]), or one at which its state
//! is wanted.
//!
//! Invariants: every row with something left that takes part moves by at least one token in every step, so that none
//! starves; a step has at most [`Limits::step`] tokens, or one for each such row where that is more, if drafts leave room for
//! those.

use tandem_contracts::{
    model::{AdapterSet, RowStep, Slot, StatePolicy, Step, TokenSource, Wanted},
    text::TokenId,
};

/// What the planner knows of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<'a> {
    pub(crate) slot: Slot,
    /// Tokens that the slot holds.
    pub(crate) computed: usize,
    /// Every token of the row so far: its prompt, and what has been sampled.
    pub(crate) known: &'a [TokenId],
    /// What may come next; only where one token is left.
    pub(crate) drafts: &'a [TokenId],
    /// A position at which a step of the row has to end, because its state there is wanted; beyond `computed`.
    pub(crate) cut: Option<usize>,
    /// Whether logits of every token are wanted.
    pub(crate) scored: bool,
    /// Whether what is left is a part of the answer, of more than one token.
    pub(crate) filling: bool,
}

/// Most tokens of a scored row in a step: their logits, the whole vocabulary for each, are downloaded.
const SCORED: usize = 64;

impl Counted<'_> {
    /// Tokens that are known and not computed.
    pub(crate) fn left(&self) -> usize {
        self.known.len().saturating_sub(self.computed)
    }

    /// Whether more than one token of its prompt is left.
    pub(crate) fn prepares(&self) -> bool {
        self.left() > 1 && !self.filling
    }
}

/// Bounds of a step, in tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of all rows together.
    pub(crate) step: usize,
    /// Of one row; 0 counts as 1.
    pub(crate) chunk: usize,
    /// Of prompts, where rows decode beside them.
    pub(crate) prompts: usize,
    /// Which rows take part.
    pub(crate) turn: Turn,
}

/// Which rows a step carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// All.
    Both,
    /// Those that have more than one token of their prompts left.
    Prompts,
    /// The others.
    Decoding,
}

impl Turn {
    fn takes(self, row: &Counted<'_>) -> bool {
        row.left() > 0
            && match self {
                Self::Both => true,
                Self::Prompts => row.prepares(),
                Self::Decoding => !row.prepares(),
            }
    }
}

/// Plans the next step over rows in order of their age. Empty when no row has a token left.
pub(crate) fn plan(rows: &[Counted<'_>], limits: Limits, state: &StatePolicy) -> Step {
    let rows = rows.iter().filter(|row| limits.turn.takes(row));
    let decoding = rows.clone().filter(|row| !row.prepares());
    let single: usize = decoding.clone().map(|row| 1 + row.drafts.len()).sum();
    let mut longer = rows.clone().filter(|row| row.prepares()).count();
    let chunk = limits.chunk.max(1);
    // What was filled in comes before prompts, each of which moves nevertheless.
    let spans: usize = decoding.map(|row| row.left().min(chunk) - 1).sum();
    let mut filled = limits.step.saturating_sub(single + longer).min(spans);
    let prompts = if single > 0 { limits.prompts } else { usize::MAX };
    let mut rest = limits.step.saturating_sub(single + filled).min(prompts).max(longer);
    let mut step = Step::default();
    for row in rows {
        let same = state.limit(row.computed).unwrap_or(usize::MAX);
        let whole = row.cut.map_or(usize::MAX, |cut| cut - row.computed);
        let share = match row.left() {
            left if !row.prepares() => {
                let span = left.min(chunk).saturating_sub(1).min(filled);
                filled -= span;
                (1 + span + row.drafts.len()).min(same).min(whole)
            }
            left => {
                longer -= 1;
                let most = if row.scored { SCORED } else { usize::MAX };
                let share = left.min(chunk).min(rest - longer).min(same).min(whole).min(most);
                rest -= share;
                share
            }
        };
        let end = row.known.len().min(row.computed + share);
        let drafts = &row.drafts[..(row.computed + share).saturating_sub(row.known.len())];
        step.rows.push(RowStep {
            slot: row.slot,
            position: row.computed,
            tokens: TokenSource::Ids([&row.known[row.computed..end], drafts].concat()),
            wanted: match end == row.known.len() {
                _ if row.scored || !drafts.is_empty() => Wanted::All,
                true => Wanted::Last,
                false => Wanted::None,
            },
            adapters: AdapterSet::BASE,
        });
    }
    step
}

/// A step as one line: `slot@position+tokens` for each row, `~` instead of tokens where nobody has read the one, with `*` where
/// logits are wanted, `**` where those of every token are.
#[cfg(test)]
pub(crate) fn render(step: &Step) -> String {
    let rows = step.rows.iter().map(|row| {
        let star = match row.wanted {
            Wanted::None => "",
            Wanted::Last => "*",
            Wanted::All => "**",
        };
        match &row.tokens {
            TokenSource::Ids(ids) => format!("{}@{}+{}{star}", row.slot.0, row.position, ids.len()),
            TokenSource::Register(_) => format!("{}@{}~{star}", row.slot.0, row.position),
        }
    });
    rows.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;
    use proptest::prelude::*;
    use tandem_contracts::model::{Code, Codes};

    fn row(slot: u32, computed: usize, known: &[TokenId]) -> Counted<'_> {
        Counted { slot: Slot(slot), computed, known, drafts: &[], cut: None, scored: false, filling: false }
    }

    fn limits(step: usize, chunk: usize) -> Limits {
        Limits { step, chunk, prompts: usize::MAX, turn: Turn::Both }
    }

    /// Plans until every row has all its tokens; `known` of each row, none computed.
    fn timeline(lengths: &[usize], limits: Limits) -> String {
        timeline_by(&StatePolicy::Plain, lengths, limits)
    }

    fn timeline_by(state: &StatePolicy, lengths: &[usize], limits: Limits) -> String {
        let known: Vec<Vec<TokenId>> = lengths.iter().map(|&length| (0..length as u32).collect()).collect();
        let mut computed = vec![0; lengths.len()];
        let mut lines = Vec::new();
        loop {
            let rows: Vec<Counted<'_>> = known
                .iter()
                .zip(&computed)
                .zip(0..)
                .map(|((known, &computed), slot)| row(slot, computed, known))
                .collect();
            let step = plan(&rows, limits, state);
            if step.rows.is_empty() {
                return lines.join("\n");
            }
            lines.push(render(&step));
            step.rows.iter().for_each(|row| computed[row.slot.0 as usize] += row.tokens.len());
        }
    }

    #[test]
    fn a_prompt_is_cut_where_precision_changes() {
        let codes = Codes::Uniform(Code::Turbo { keys: 8, values: 3 });
        let state = StatePolicy::Encoded { codes, start: 6 };
        assert_snapshot!(timeline_by(&state, &[10, 7], limits(16, 8)), @r"
        0@0+6 1@0+6
        0@6+4* 1@6+1*
        ");
    }

    #[test]
    fn a_prompt_is_cut_into_chunks() {
        assert_snapshot!(timeline(&[10], limits(8, 4)), @r"
        0@0+4
        0@4+4
        0@8+2*
        ");
    }

    #[test]
    fn short_rows_are_served_before_the_rest_is_shared_by_age() {
        assert_snapshot!(timeline(&[9, 1, 6], limits(8, 8)), @r"
        0@0+6 1@0+1* 2@0+1
        0@6+3* 2@1+5*
        ");
    }

    #[test]
    fn every_row_moves_even_when_the_step_is_too_small_for_all() {
        assert_snapshot!(timeline(&[3, 2, 1, 1], limits(2, 8)), @r"
        0@0+1 1@0+1 2@0+1* 3@0+1*
        0@1+1 1@1+1*
        0@2+1*
        ");
    }

    #[test]
    fn beside_decoding_rows_prompts_have_a_bound_of_their_own() {
        let bound = |prompts| Limits { prompts, ..limits(16, 8) };
        assert_snapshot!(timeline(&[9, 1, 6], bound(5)), @r"
        0@0+4 1@0+1* 2@0+1
        0@4+5* 2@1+5*
        ");
        assert_snapshot!(timeline(&[3, 1, 2], bound(0)), @r"
        0@0+1 1@0+1* 2@0+1
        0@1+1 2@1+1*
        0@2+1*
        ");
    }

    #[test]
    fn rows_take_turns() {
        let known: Vec<TokenId> = (0..9).collect();
        let rows = [(0, 2), (1, 8), (2, 9), (3, 8)].map(|(slot, computed)| row(slot, computed, &known));
        let step = |turn| render(&plan(&rows, Limits { turn, ..limits(16, 8) }, &StatePolicy::Plain));
        assert_eq!(step(Turn::Both), "0@2+7* 1@8+1* 3@8+1*");
        assert_eq!(step(Turn::Prompts), "0@2+7*");
        assert_eq!(step(Turn::Decoding), "1@8+1* 3@8+1*");
    }

    #[test]
    fn a_step_ends_where_a_state_is_wanted() {
        let known: Vec<TokenId> = (0..9).collect();
        let row = Counted { cut: Some(5), ..row(0, 2, &known) };
        assert_eq!(render(&plan(&[row], limits(16, 8), &StatePolicy::Plain)), "0@2+3");
        assert_eq!(render(&plan(&[row], limits(16, 2), &StatePolicy::Plain)), "0@2+2");
    }

    #[test]
    fn scored_rows_want_every_token_in_chunks_of_their_own() {
        let known: Vec<TokenId> = (0..100).collect();
        let rows = [Counted { scored: true, ..row(0, 2, &known) }, row(1, 0, &known)];
        let step = plan(&rows, limits(512, 512), &StatePolicy::Plain);
        assert_eq!((render(&step).as_str(), step.wanted()), ("0@2+64** 1@0+100*", 65));
        let rows = [Counted { scored: true, ..row(0, 99, &known) }];
        assert_eq!(render(&plan(&rows, limits(8, 8), &StatePolicy::Plain)), "0@99+1**");
    }

    #[test]
    fn drafts_are_read_with_the_token_that_they_follow() {
        let (known, drafts): (Vec<TokenId>, _) = ((0..9).collect(), [7, 7, 7]);
        let rows = [Counted { drafts: &drafts, ..row(0, 8, &known) }, row(1, 8, &known), row(2, 0, &known)];
        assert_eq!(render(&plan(&rows, limits(10, 8), &StatePolicy::Plain)), "0@8+4** 1@8+1* 2@0+5");
        let codes = Codes::Uniform(Code::Turbo { keys: 8, values: 3 });
        let state = StatePolicy::Encoded { codes, start: 10 };
        assert_eq!(render(&plan(&rows[..1], limits(10, 8), &state)), "0@8+2**");
        let cut = Counted { cut: Some(9), ..rows[0] };
        assert_eq!(render(&plan(&[cut], limits(10, 8), &StatePolicy::Plain)), "0@8+1*");
    }

    #[test]
    fn what_was_filled_in_comes_with_its_token_and_before_prompts() {
        let (known, drafts): (Vec<TokenId>, _) = ((0..9).collect(), [7, 7]);
        let filling = Counted { filling: true, ..row(0, 4, &known) };
        let rows = [filling, row(1, 8, &known), row(2, 0, &known)];
        let plain = |rows: &[Counted<'_>], limits| render(&plan(rows, limits, &StatePolicy::Plain));
        assert_eq!(plain(&rows, limits(16, 8)), "0@4+5* 1@8+1* 2@0+8");
        // Whoever decodes has its token, and its drafts; the prompt moves.
        assert_eq!(plain(&rows, limits(5, 8)), "0@4+3 1@8+1* 2@0+1");
        let drafting = Counted { drafts: &drafts, ..rows[1] };
        assert_eq!(plain(&[filling, drafting], limits(5, 8)), "0@4+2 1@8+3**");
        assert_eq!(plain(&rows, limits(1, 8)), "0@4+1 1@8+1* 2@0+1");
        assert_eq!(plain(&rows, limits(16, 3)), "0@4+3 1@8+1* 2@0+3");
        // It takes its turn with those that decode, and no span crosses a change of precision.
        let turn = |turn| plain(&rows, Limits { turn, ..limits(16, 8) });
        assert_eq!((turn(Turn::Prompts).as_str(), turn(Turn::Decoding).as_str()), ("2@0+8", "0@4+5* 1@8+1*"));
        let codes = Codes::Uniform(Code::Turbo { keys: 8, values: 3 });
        let state = StatePolicy::Encoded { codes, start: 6 };
        assert_eq!(render(&plan(&[filling], limits(16, 8), &state)), "0@4+2");
    }

    #[test]
    fn nothing_left_is_an_empty_step() {
        let known = [1, 2];
        let row = row(0, 2, &known);
        assert_eq!(plan(&[row], limits(8, 8), &StatePolicy::Plain), Step::default());
        assert_eq!(plan(&[], limits(0, 0), &StatePolicy::Plain), Step::default());
    }

    proptest! {
        #[test]
        fn a_plan_moves_every_row_and_keeps_the_bounds(
            counts in prop::collection::vec((0_usize..20, 0_usize..150, any::<(bool, bool)>()), 0..12),
            step in 0_usize..200,
            chunk in 0_usize..100,
            start in 0_usize..30,
        ) {
            let codes = Codes::Uniform(Code::Turbo { keys: 8, values: 3 });
            let state = StatePolicy::Encoded { codes, start };
            let known: Vec<Vec<TokenId>> =
                counts.iter().map(|&(computed, left, _)| (0..(computed + left) as u32).collect()).collect();
            let rows: Vec<Counted<'_>> = counts
                .iter()
                .zip(&known)
                .zip(0..)
                .map(|((&(computed, left, (scored, filling)), known), slot)| {
                    let filling = filling && left > 1;
                    Counted { scored: scored && !filling, filling, ..row(slot, computed, known) }
                })
                .collect();
            let planned = plan(&rows, limits(step, chunk), &state);
            let waiting: Vec<&Counted<'_>> = rows.iter().filter(|row| row.left() > 0).collect();
            prop_assert_eq!(planned.rows.len(), waiting.len());
            prop_assert!(planned.tokens() <= step.max(waiting.len()));
            for (part, row) in planned.rows.iter().zip(waiting) {
                let count = part.tokens.len();
                prop_assert_eq!((part.slot, part.position), (row.slot, row.computed));
                prop_assert!((1..=chunk.max(1).min(row.left())).contains(&count));
                prop_assert!(row.computed >= start || row.computed + count <= start);
                let ids = row.known[row.computed..row.computed + count].to_vec();
                prop_assert_eq!(&part.tokens, &TokenSource::Ids(ids));
                prop_assert!(!row.scored || count <= SCORED);
                let last = if count == row.left() { Wanted::Last } else { Wanted::None };
                prop_assert_eq!(part.wanted, if row.scored { Wanted::All } else { last });
            }
        }
    }
}
