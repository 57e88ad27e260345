//! What changes logits before a token is chosen: bias, penalties on the row's history, a mask.
//!
//! The order is: logit bias, repetition, presence, frequency, DRY, mask. All but the last come from mlx-lm's
//! `make_logits_processors`, with a penalty counted once for each occurrence where it depends on their number.
//!
//! Invariants: only ids inside the logits are touched; finite logits stay finite but for those that are masked.

use super::dry;
use tandem_contracts::{
    sampling::{Penalty, Sampling},
    text::TokenId,
};

/// Ids that may be chosen: bit `id % 32` of word `id / 32`. Ids beyond the last word may not.
pub(crate) type Allowed<'a> = &'a [u32];

/// Changes a row's logits by what its parameters say of its history, the oldest token first, and masks what is not
/// allowed.
pub(super) fn process(
    logits: &mut [f32],
    sampling: &Sampling,
    history: &[TokenId],
    allowed: Option<Allowed<'_>>,
) {
    for &(token, bias) in &sampling.logit_bias {
        change(logits, token, |logit| logit + bias);
    }
    let Sampling { repetition, presence, frequency, .. } = sampling;
    penalise(
        logits,
        *repetition,
        1.0,
        history,
        |logit, penalty, _| {
            if logit < 0.0 { logit * penalty } else { logit / penalty }
        },
    );
    penalise(logits, *presence, 0.0, history, |logit, penalty, _| logit - penalty);
    penalise(logits, *frequency, 0.0, history, |logit, penalty, count| logit - penalty * count);
    dry::penalties(&sampling.dry, history, |token, penalty| {
        change(logits, token, |logit| logit - penalty);
    });
    if let Some(allowed) = allowed {
        mask(logits, allowed);
    }
}

/// The last tokens of a history; 0 is all of them.
pub(super) fn window(history: &[TokenId], context: u32) -> &[TokenId] {
    match context as usize {
        0 => history,
        context => &history[history.len().saturating_sub(context)..],
    }
}

/// Changes the logit of each token in the penalty's window, given how often it stands there.
fn penalise(
    logits: &mut [f32],
    penalty: Penalty,
    off: f32,
    history: &[TokenId],
    apply: impl Fn(f32, f32, f32) -> f32,
) {
    if penalty.amount == off {
        return;
    }
    let mut tokens = window(history, penalty.context).to_vec();
    tokens.sort_unstable();
    for same in tokens.chunk_by(|a, b| a == b) {
        change(logits, same[0], |logit| apply(logit, penalty.amount, same.len() as f32));
    }
}

fn change(logits: &mut [f32], token: TokenId, apply: impl FnOnce(f32) -> f32) {
    if let Some(logit) = logits.get_mut(token as usize) {
        *logit = apply(*logit);
    }
}

fn mask(logits: &mut [f32], allowed: Allowed<'_>) {
    let (chunks, words) = (logits.chunks_mut(32), allowed.iter().copied().chain(std::iter::repeat(0)));
    for (chunk, word) in chunks.zip(words) {
        match word {
            0 => chunk.fill(f32::NEG_INFINITY),
            u32::MAX => {}
            _ => {
                for (bit, logit) in chunk.iter_mut().enumerate() {
                    *logit = if word & (1 << bit) == 0 { f32::NEG_INFINITY } else { *logit };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processed(logits: &[f32], sampling: &Sampling, history: &[TokenId]) -> Vec<f32> {
        let mut logits = logits.to_vec();
        process(&mut logits, sampling, history, None);
        logits
    }

    fn penalty(amount: f32, context: u32) -> Penalty {
        Penalty { amount, context }
    }

    const LOGITS: [f32; 5] = [4.0, -4.0, 2.0, 0.0, 1.0];

    #[test]
    fn repetition_divides_what_is_positive_and_multiplies_what_is_not() {
        let sampling = Sampling { repetition: penalty(2.0, 20), ..Sampling::default() };
        assert_eq!(processed(&LOGITS, &sampling, &[0, 1, 0, 3, 99]), [2.0, -8.0, 2.0, 0.0, 1.0]);
        assert_eq!(processed(&LOGITS, &sampling, &[]), LOGITS);
    }

    #[test]
    fn presence_counts_once_and_frequency_each_time() {
        let presence = Sampling { presence: penalty(0.5, 20), ..Sampling::default() };
        assert_eq!(processed(&LOGITS, &presence, &[4, 2, 4, 4]), [4.0, -4.0, 1.5, 0.0, 0.5]);
        let frequency = Sampling { frequency: penalty(0.5, 20), ..Sampling::default() };
        assert_eq!(processed(&LOGITS, &frequency, &[4, 2, 4, 4]), [4.0, -4.0, 1.5, 0.0, -0.5]);
    }

    #[test]
    fn penalties_look_back_as_far_as_they_are_told() {
        let last_two = Sampling { presence: penalty(1.0, 2), ..Sampling::default() };
        assert_eq!(processed(&LOGITS, &last_two, &[0, 1, 2]), [4.0, -5.0, 1.0, 0.0, 1.0]);
        let all = Sampling { presence: penalty(1.0, 0), ..Sampling::default() };
        assert_eq!(processed(&LOGITS, &all, &[0, 1, 2]), [3.0, -5.0, 1.0, 0.0, 1.0]);
        let more_than_there_is = Sampling { presence: penalty(1.0, 9), ..Sampling::default() };
        assert_eq!(processed(&LOGITS, &more_than_there_is, &[2]), [4.0, -4.0, 1.0, 0.0, 1.0]);
    }

    #[test]
    fn each_step_sees_what_the_one_before_it_left() {
        // Token 0: 4 + 2 = 6, / 2 = 3, - 1 = 2, - 2 * 0.25 = 1.5.
        let sampling = Sampling {
            logit_bias: vec![(0, 2.0), (77, 1.0)],
            repetition: penalty(2.0, 0),
            presence: penalty(1.0, 0),
            frequency: penalty(0.25, 0),
            ..Sampling::default()
        };
        assert_eq!(processed(&LOGITS, &sampling, &[0, 0]), [1.5, -4.0, 2.0, 0.0, 1.0]);
    }

    #[test]
    fn a_mask_comes_last_and_leaves_only_what_it_names() {
        let mut logits: Vec<f32> = (0..70_u8).map(f32::from).collect();
        let sampling = Sampling { logit_bias: vec![(1, 100.0)], ..Sampling::default() };
        // Ids 0, 31 and 33; the words end before 64.
        process(&mut logits, &sampling, &[], Some(&[1 | 1 << 31, 2]));
        let left: Vec<usize> = (0..70).filter(|&id| logits[id] > f32::NEG_INFINITY).collect();
        assert_eq!((left, logits[31]), (vec![0, 31, 33], 31.0));
    }
}
