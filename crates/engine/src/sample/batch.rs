//! The choices of all rows of logits of a step: what the device does, what is downloaded.
//!
//! Greedy choices share one argmax, whatever their number, and their maxima tell whether a row's logits are numbers.
//! What needs the host (sampled choices, greedy ones whose logits are changed first, and log-probabilities) downloads
//! its logits.
//!
//! What is allowed may become known while the device computes: it counts when choices are read.
//!
//! Invariant: nothing is evaluated here; [`Picks::tensors`] names what the iteration's one evaluation must include.

use super::chain::{Chosen, Draw, NoChoice, Wish, choose, is_choosable};
use tandem_contracts::{
    tensor::{Error, Result, Tensor},
    text::TokenId,
};

impl Draw<'_> {
    /// Whether the device chooses, so that nobody needs to read logits.
    pub(crate) fn is_on_device(&self) -> bool {
        let plain = match self.wish {
            Wish::Choose { sampling, allowed, .. } => {
                sampling.is_greedy() && !sampling.changes_logits() && allowed.is_none()
            }
            Wish::Known(_) => false,
        };
        plain && self.scored.is_none()
    }
}

/// A row's token, or that its logits give none.
pub(crate) type Choice = std::result::Result<Chosen, NoChoice>;

/// Choices that wait for evaluation.
#[derive(Debug)]
pub(crate) struct Picks {
    /// Of each row of logits, whether it is chosen on the device.
    on_device: Vec<bool>,
    /// `i32` and `f32`, `[rows, 1]`: argmax and maximum of the rows that are chosen on the device.
    device: Option<(Tensor, Tensor)>,
    /// `f32 [rows, vocabulary]`: the others' logits.
    host: Option<Tensor>,
}

impl Picks {
    /// Prepares one choice for each row of logits, `f32 [rows, width]`, among the first `vocabulary` ids.
    ///
    /// # Errors
    /// As many draws as rows are needed; otherwise the device's own.
    pub(crate) fn new(logits: &Tensor, draws: &[Draw<'_>], vocabulary: usize) -> Result<Self> {
        let &[rows, width] = logits.shape() else {
            return Err(Error::shape(
                "sample",
                format!("logits are not [rows, width] but: {:?}", logits.shape()),
            ));
        };
        if rows != draws.len() {
            return Err(Error::shape(
                "sample",
                format!("{} rows want tokens, logits have: {rows}", draws.len()),
            ));
        }
        let device = logits.device();
        let logits = match vocabulary < width {
            true => &device.slice(logits, &[0..rows, 0..vocabulary])?,
            false => logits,
        };
        let on_device: Vec<bool> = draws.iter().map(Draw::is_on_device).collect();
        let best = match select(logits, &on_device, true)? {
            Some(logits) => {
                let tokens = device.argmax(&logits, 1)?;
                let maxima = device.take_along_axis(&logits, &tokens, 1)?;
                Some((tokens, maxima))
            }
            None => None,
        };
        let host = select(logits, &on_device, false)?;
        Ok(Self { on_device, device: best, host })
    }

    /// What must be evaluated before [`Picks::read`].
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let device = self.device.iter().flat_map(|(token, maximum)| [token, maximum]);
        device.chain(&self.host)
    }

    /// The chosen tokens, `i32 [rows, 1]`, where the device chooses all of them.
    pub(crate) fn unread(&self) -> Option<&Tensor> {
        self.device.as_ref().filter(|_| self.host.is_none()).map(|(tokens, _)| tokens)
    }

    /// Reads the choices, in the order of rows. `draws` are those that are not chosen on the device, of which more may be known
    /// by now.
    ///
    /// # Errors
    /// As many draws as such rows are needed; otherwise the device's own.
    pub(crate) fn read<'a>(self, draws: impl IntoIterator<Item = Draw<'a>>) -> Result<Vec<Choice>> {
        let (tokens, maxima) = match &self.device {
            Some((tokens, maxima)) => (tokens.to_vec::<i32>()?, maxima.to_vec::<f32>()?),
            None => Default::default(),
        };
        let (width, mut logits) = match &self.host {
            Some(logits) => (logits.shape()[1], logits.to_vec::<f32>()?),
            None => (1, Vec::new()),
        };
        let mut best = tokens.into_iter().zip(maxima);
        let mut on_host = logits.chunks_exact_mut(width.max(1));
        let missing = || Error::shape("sample", "the device gave fewer rows than were asked for");
        let mut draws = draws.into_iter();
        let mut last = None;
        let choose_one = |on_device: bool| {
            if on_device {
                let (token, maximum) = best.next().ok_or_else(missing)?;
                let chosen = Chosen { token: token as TokenId, score: None };
                Ok(if is_choosable(maximum) { Ok(chosen) } else { Err(NoChoice::NotNumbers) })
            } else {
                let (row, draw) = on_host.next().zip(draws.next()).ok_or_else(missing)?;
                let choice = if passed(&draw, last) { Err(NoChoice::Passed) } else { choose(row, &draw) };
                last = choice.as_ref().ok().map(|chosen| chosen.token);
                Ok(choice)
            }
        };
        self.on_device.into_iter().map(choose_one).collect()
    }
}

/// Whether a draw follows a draft that was not chosen, so that what it would choose is not looked for.
fn passed(draw: &Draw<'_>, last: Option<TokenId>) -> bool {
    draw.after.is_some() && draw.after != last
}

/// The rows of logits that are chosen on the device, or the others; `None` when there are none.
fn select(logits: &Tensor, on_device: &[bool], wanted: bool) -> Result<Option<Tensor>> {
    let matching = (0..).zip(on_device).filter(|(_, is)| **is == wanted);
    let rows: Vec<i32> = matching.map(|(row, _)| row).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    if rows.len() == on_device.len() {
        return Ok(Some(logits.clone()));
    }
    let device = logits.device();
    let indices = device.upload_i32(&rows, &[rows.len()])?;
    Ok(Some(device.take(logits, &indices, 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tandem_contracts::{
        fake::Fake,
        sampling::{Penalty, Sampling},
        tensor::Device,
    };

    /// What one row of logits is for.
    #[derive(Clone, Debug)]
    struct Row {
        sampling: Sampling,
        known: Option<TokenId>,
        scored: Option<usize>,
    }

    impl Row {
        fn plain(sampling: Sampling) -> Self {
            Self { sampling, known: None, scored: None }
        }

        fn draw(&self) -> Draw<'_> {
            let sampling = &self.sampling;
            let wish = Wish::Choose { sampling, history: &[3, 4], index: 5, allowed: None };
            Draw { wish: self.known.map_or(wish, Wish::Known), scored: self.scored, after: None }
        }
    }

    fn pick(logits: &[Vec<f32>], rows: &[Row], vocabulary: usize) -> Result<Vec<Choice>> {
        let fake = Fake::open();
        let device: Device = fake.clone();
        let width = logits.first().map_or(0, Vec::len);
        let tensor = device.upload_f32(&logits.concat(), &[logits.len(), width])?;
        let draws: Vec<Draw<'_>> = rows.iter().map(Row::draw).collect();
        let picks = Picks::new(&tensor, &draws, vocabulary)?;
        device.eval(&picks.tensors().collect::<Vec<_>>())?;
        let choices = picks.read(rows.iter().map(Row::draw).filter(|draw| !draw.is_on_device()));
        // Whatever the mixture, what is read has been named for the one evaluation.
        assert_eq!((fake.counts().evaluations, fake.counts().hidden_evaluations), (1, 0));
        choices
    }

    fn row() -> impl Strategy<Value = (Vec<f32>, Row)> {
        let logit = prop_oneof![8 => (-6_i8..6).prop_map(f32::from), 1 => Just(f32::NEG_INFINITY), 1 => Just(f32::NAN)];
        let temperature = prop_oneof![Just(0.0_f32), Just(1.0), 0.1_f32..2.0];
        let bias = prop::collection::vec((0_u32..9, -9.0_f32..9.0), 0..2);
        let presence = prop_oneof![2 => Just(0.0_f32), 1 => Just(3.0)];
        let sampling = (temperature, any::<u64>(), bias, presence);
        let sampling = sampling.prop_map(|(temperature, seed, logit_bias, presence)| Sampling {
            temperature,
            seed,
            logit_bias,
            presence: Penalty { amount: presence, context: 20 },
            ..Sampling::default()
        });
        let known = prop_oneof![3 => Just(None), 1 => (0_u32..9).prop_map(Some)];
        let scored = prop_oneof![2 => Just(None), 1 => (0_usize..4).prop_map(Some)];
        let row = (sampling, known, scored);
        let row = row.prop_map(|(sampling, known, scored)| Row { sampling, known, scored });
        (prop::collection::vec(logit, 9), row)
    }

    proptest! {
        #[test]
        fn each_row_is_chosen_as_if_it_were_alone(
            rows in prop::collection::vec(row(), 1..7),
            vocabulary in 1_usize..12,
        ) {
            let (logits, rows): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
            let expected: Vec<Choice> = logits
                .iter()
                .zip(&rows)
                .map(|(logits, row)| choose(&mut logits.clone()[..vocabulary.min(9)], &row.draw()))
                .collect();
            prop_assert_eq!(pick(&logits, &rows, vocabulary).ok(), Some(expected));
        }
    }

    #[test]
    fn plain_greedy_choices_alone_stay_on_the_device() {
        let plain = Row::plain(Sampling::greedy());
        let penalty = Penalty { amount: 0.5, context: 20 };
        let penalised = Row::plain(Sampling { frequency: penalty, ..Sampling::greedy() });
        let scored = Row { scored: Some(0), ..plain.clone() };
        let known = Row { known: Some(1), ..plain.clone() };
        let rows = [plain, penalised, scored, known, Row::plain(Sampling::default())];
        assert_eq!(rows.map(|row| row.draw().is_on_device()), [true, false, false, false, false]);
        let sampling = Sampling::greedy();
        let wish = Wish::Choose { sampling: &sampling, history: &[], index: 0, allowed: Some(&[1]) };
        assert!(!Draw { wish, scored: None, after: None }.is_on_device());
    }

    #[test]
    fn padding_of_the_head_is_never_chosen() {
        let logits = [vec![1.0, 2.0, 9.0], vec![3.0, 2.0, 9.0]];
        let rows = [Sampling::greedy(), Sampling { top_k: 1, ..Sampling::default() }].map(Row::plain);
        let tokens = pick(&logits, &rows, 2).map(|choices| {
            choices.into_iter().map(|choice| choice.map(|chosen| chosen.token)).collect::<Vec<_>>()
        });
        assert_eq!(tokens.ok(), Some(vec![Ok(1), Ok(0)]));
    }

    #[test]
    fn what_follows_a_draft_that_was_not_chosen_is_passed_over() -> Result<()> {
        let device: Device = Fake::open();
        let sampling = Sampling { temperature: 1e-6, ..Sampling::default() };
        let wish = Wish::Choose { sampling: &sampling, history: &[3], index: 0, allowed: None };
        let draws = [None, Some(1), Some(1), Some(1), None].map(|after| Draw { wish, scored: None, after });
        let logits = [[0.0, 9.0], [0.0, 9.0], [9.0, 0.0], [0.0, 9.0], [0.0, 9.0]];
        let tensor = device.upload_f32(&logits.concat(), &[5, 2])?;
        let picks = Picks::new(&tensor, &draws, 2)?;
        device.eval(&picks.tensors().collect::<Vec<_>>())?;
        let tokens = picks.read(draws)?.into_iter().map(|choice| choice.map(|chosen| chosen.token));
        assert!(tokens.eq([Ok(1), Ok(1), Ok(0), Err(NoChoice::Passed), Ok(1)]));
        Ok(())
    }

    #[test]
    fn rows_and_draws_must_agree() {
        let refused = pick(&[vec![1.0], vec![2.0]], &[Row::plain(Sampling::greedy())], 1);
        assert_eq!(refused.map_err(|error| error.kind()), Err(tandem_contracts::tensor::ErrorKind::Shape));
    }
}
