//! The choices of all rows of a step: what the device does, what is downloaded.
//!
//! Greedy rows share one argmax, whatever their number, and their maxima tell whether a row's logits are numbers.
//! Rows that need the host (sampled ones, and greedy ones with a bias) download their logits.
//!
//! Invariant: nothing is evaluated here; [`Picks::tensors`] names what the iteration's one evaluation must include.

use super::chain::{NotNumbers, choose, is_choosable};
use tandem_contracts::{
    sampling::Sampling,
    tensor::{Error, Reduce, Result, Tensor},
    text::TokenId,
};

/// What a row wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw<'a> {
    pub(crate) sampling: &'a Sampling,
    /// Tokens that the row has sampled before.
    pub(crate) index: u64,
}

impl Draw<'_> {
    fn is_on_device(&self) -> bool {
        self.sampling.is_greedy() && self.sampling.logit_bias.is_empty()
    }
}

/// A row's token, or that its logits give none.
pub(crate) type Choice = std::result::Result<TokenId, NotNumbers>;

/// Choices that wait for evaluation.
#[derive(Debug)]
pub(crate) struct Picks<'a> {
    draws: &'a [Draw<'a>],
    /// `i32` and `f32`, `[rows, 1]`: argmax and maximum of the rows that are chosen on the device.
    device: Option<(Tensor, Tensor)>,
    /// `f32 [rows, vocabulary]`: the others' logits.
    host: Option<Tensor>,
}

impl<'a> Picks<'a> {
    /// Prepares one choice for each row of logits, `f32 [rows, width]`, among the first `vocabulary` ids.
    ///
    /// # Errors
    /// As many draws as rows are needed; otherwise the device's own.
    pub(crate) fn new(logits: &Tensor, draws: &'a [Draw<'a>], vocabulary: usize) -> Result<Self> {
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
        let best = match select(logits, draws, true)? {
            Some(logits) => Some((device.argmax(&logits, 1)?, device.reduce(Reduce::Maximum, &logits, 1)?)),
            None => None,
        };
        Ok(Self { draws, device: best, host: select(logits, draws, false)? })
    }

    /// What must be evaluated before [`Picks::read`].
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let device = self.device.iter().flat_map(|(token, maximum)| [token, maximum]);
        device.chain(&self.host)
    }

    /// Reads the choices, in the order of rows.
    ///
    /// # Errors
    /// The device's own.
    pub(crate) fn read(self) -> Result<Vec<Choice>> {
        let (tokens, maxima) = match &self.device {
            Some((tokens, maxima)) => (tokens.to_vec::<i32>()?, maxima.to_vec::<f32>()?),
            None => Default::default(),
        };
        let (width, mut logits) = match &self.host {
            Some(logits) => (logits.shape()[1], logits.to_vec::<f32>()?),
            None => (1, Vec::new()),
        };
        let mut on_device = tokens.into_iter().zip(maxima);
        let mut on_host = logits.chunks_exact_mut(width.max(1));
        let missing = || Error::shape("sample", "the device gave fewer rows than were asked for");
        let choose_one = |draw: &Draw<'_>| {
            if draw.is_on_device() {
                let (token, maximum) = on_device.next().ok_or_else(missing)?;
                Ok(if is_choosable(maximum) { Ok(token as TokenId) } else { Err(NotNumbers) })
            } else {
                let row = on_host.next().ok_or_else(missing)?;
                Ok(choose(row, draw.sampling, draw.index))
            }
        };
        self.draws.iter().map(choose_one).collect()
    }
}

/// The rows of logits that are chosen on the device, or the others; `None` when there are none.
fn select(logits: &Tensor, draws: &[Draw<'_>], on_device: bool) -> Result<Option<Tensor>> {
    let matching = (0..).zip(draws).filter(|(_, draw)| draw.is_on_device() == on_device);
    let rows: Vec<i32> = matching.map(|(row, _)| row).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    if rows.len() == draws.len() {
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
    use tandem_contracts::{fake::Fake, tensor::Device};

    fn pick(logits: &[Vec<f32>], samplings: &[Sampling], vocabulary: usize) -> Result<Vec<Choice>> {
        let fake = Fake::open();
        let device: Device = fake.clone();
        let width = logits.first().map_or(0, Vec::len);
        let tensor = device.upload_f32(&logits.concat(), &[logits.len(), width])?;
        let draws: Vec<Draw<'_>> =
            samplings.iter().zip(5..).map(|(sampling, index)| Draw { sampling, index }).collect();
        let picks = Picks::new(&tensor, &draws, vocabulary)?;
        device.eval(&picks.tensors().collect::<Vec<_>>())?;
        let choices = picks.read();
        // Whatever the mixture, what is read has been named for the one evaluation.
        assert_eq!((fake.counts().evaluations, fake.counts().hidden_evaluations), (1, 0));
        choices
    }

    fn row() -> impl Strategy<Value = (Vec<f32>, Sampling)> {
        let logit = prop_oneof![8 => (-6_i8..6).prop_map(f32::from), 1 => Just(f32::NEG_INFINITY), 1 => Just(f32::NAN)];
        let temperature = prop_oneof![Just(0.0_f32), Just(1.0), 0.1_f32..2.0];
        let bias = prop::collection::vec((0_u32..9, -9.0_f32..9.0), 0..2);
        let sampling = (temperature, any::<u64>(), bias);
        let sampling = sampling.prop_map(|(temperature, seed, logit_bias)| Sampling {
            temperature,
            seed,
            logit_bias,
            ..Sampling::default()
        });
        (prop::collection::vec(logit, 9), sampling)
    }

    proptest! {
        #[test]
        fn each_row_is_chosen_as_if_it_were_alone(
            rows in prop::collection::vec(row(), 1..7),
            vocabulary in 1_usize..12,
        ) {
            let (logits, samplings): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
            let expected: Vec<Choice> = logits
                .iter()
                .zip(&samplings)
                .zip(5..)
                .map(|((row, sampling), index)| choose(&mut row.clone()[..vocabulary.min(9)], sampling, index))
                .collect();
            prop_assert_eq!(pick(&logits, &samplings, vocabulary).ok(), Some(expected));
        }
    }

    #[test]
    fn padding_of_the_head_is_never_chosen() {
        let rows = [vec![1.0, 2.0, 9.0], vec![3.0, 2.0, 9.0]];
        let sampled = Sampling { top_k: 1, ..Sampling::default() };
        assert_eq!(pick(&rows, &[Sampling::greedy(), sampled], 2).ok(), Some(vec![Ok(1), Ok(0)]));
    }

    #[test]
    fn rows_and_draws_must_agree() {
        let refused = pick(&[vec![1.0], vec![2.0]], &[Sampling::greedy()], 1);
        assert_eq!(refused.map_err(|error| error.kind()), Err(tandem_contracts::tensor::ErrorKind::Shape));
    }
}
