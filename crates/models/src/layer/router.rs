//! Which experts a token goes to, and with which share each.
//!
//! Invariants: a token's choice depends on its own scores alone; its experts are in order of falling scores, of equal
//! ones the lower number first, so that whatever sums over them has one order. Choices are discrete: scores are
//! computed exactly, in whatever precision the step runs, of weights as the files have them.

use super::{Loader, Projection};
use crate::{config::ExpertConfig, error};
use tandem_contracts::tensor::{Binary, Device, Precision, Reduce, Result, Tensor, Unary};

/// What distinguishes one router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouterDeclaration {
    /// Module of the block that makes the scores.
    pub(crate) module: &'static str,
    /// Whether it has a bias.
    pub(crate) bias: bool,
    pub(crate) scoring: Scoring,
    /// Module of the block that scales what scores are made of and what comes of them, where there is one.
    pub(crate) scaled: Option<&'static str>,
}

/// How scores become shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scoring {
    /// Softmax over all experts; then, perhaps, the chosen ones' shares over their sum.
    All {
        /// Whether the shares sum to 1.
        normalised: bool,
    },
    /// Softmax over the chosen experts.
    Chosen,
}

/// A loaded router.
#[derive(Debug)]
pub(super) struct Router {
    projection: Projection,
    scoring: Scoring,
    scaled: Option<Scaled>,
    /// Experts of a token.
    chosen: usize,
}

/// The scales of a router (Gemma 4).
#[derive(Debug)]
struct Scaled {
    /// `[hidden]`, the weight of a norm of what is scored; one over the root of the width is folded in.
    input: Tensor,
    epsilon: f32,
    /// `[experts]`, multiplies shares.
    experts: Tensor,
}

/// Experts of each token.
#[derive(Debug)]
pub(super) struct Choice {
    /// `i32 [tokens, chosen]`.
    pub(super) experts: Tensor,
    /// `[tokens, chosen]`.
    pub(super) shares: Tensor,
}

impl Router {
    /// Loads the router of the block at `path`.
    pub(super) fn load(
        declaration: &RouterDeclaration,
        path: &str,
        experts: &ExpertConfig,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let &RouterDeclaration { module, bias, scoring, scaled } = declaration;
        let hidden = loader.config.hidden;
        let part = (format!("{path}.{module}"), experts.count);
        Ok(Self {
            projection: loader.stored_projection(part, hidden, bias)?,
            scoring,
            scaled: scaled
                .map(|module| Scaled::load(&format!("{path}.{module}"), experts, loader))
                .transpose()?,
            chosen: experts.chosen,
        })
    }

    /// The experts of packed tokens `x [tokens, hidden]`.
    pub(super) fn choose(&self, x: &Tensor, device: &Device) -> Result<Choice> {
        let exact = Precision::Exact;
        let scores = match &self.scaled {
            None => self.projection.apply_in(x, device, exact)?,
            Some(scaled) => {
                let x = device.rms_norm(x, Some(&scaled.input), scaled.epsilon)?;
                self.projection.apply_in(&x, device, exact)?
            }
        };
        let choice = match self.scoring {
            Scoring::Chosen => {
                let best = self.best(scores, device)?;
                Choice { shares: device.softmax(&best.shares, 1)?, ..best }
            }
            Scoring::All { normalised } => {
                let best = self.best(device.softmax(&scores, 1)?, device)?;
                let shares = if normalised { of_sum(device, best.shares)? } else { best.shares };
                Choice { shares, ..best }
            }
        };
        let Some(scaled) = &self.scaled else { return Ok(choice) };
        let factors = device.take(&scaled.experts, &choice.experts, 0)?;
        Ok(Choice { shares: device.binary(Binary::Multiply, choice.shares, &factors)?, ..choice })
    }

    /// The highest scores of each token, in their order.
    fn best(&self, scores: Tensor, device: &Device) -> Result<Choice> {
        let tokens = scores.shape()[0];
        let order = device.argsort(&device.unary(Unary::Negate, scores.clone())?, 1)?;
        let experts = device.slice(&order, &[0..tokens, 0..self.chosen])?;
        Ok(Choice { shares: device.take_along_axis(&scores, &experts, 1)?, experts })
    }
}

impl Scaled {
    fn load(path: &str, experts: &ExpertConfig, loader: &mut Loader<'_, '_>) -> error::Result<Self> {
        let hidden = loader.config.hidden;
        let weight = loader.vector(&format!("{path}.scale"), hidden)?;
        let root = loader.number((hidden as f32).sqrt().recip())?;
        Ok(Self {
            input: loader.device.binary(Binary::Multiply, weight, &root)?,
            epsilon: loader.config.norm_epsilon,
            experts: loader.vector(&format!("{path}.per_expert_scale"), experts.count)?,
        })
    }
}

fn of_sum(device: &Device, shares: Tensor) -> Result<Tensor> {
    let sum = device.reduce(Reduce::Sum, &shares, 1)?;
    device.binary(Binary::Divide, shares, &sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_contracts::{fake, tensor::Weight};

    /// A router of three experts whose scores are its inputs.
    fn router(device: &Device, scoring: Scoring, chosen: usize) -> Router {
        let identity = device.upload_f32(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], &[3, 3]).unwrap();
        let linear = device.prepare_linear(&[Weight::Dense(identity)]).unwrap();
        Router { projection: Projection { linear, bias: None, number: None }, scoring, scaled: None, chosen }
    }

    fn chosen(router: &Router, device: &Device, scores: &[f32]) -> (Vec<i32>, Vec<f32>) {
        let scores = device.upload_f32(scores, &[scores.len() / 3, 3]).unwrap();
        let choice = router.choose(&scores, device).unwrap();
        (choice.experts.to_vec().unwrap(), choice.shares.to_vec().unwrap())
    }

    #[test]
    fn experts_fall_in_score_and_rise_in_number_where_scores_are_equal() {
        let device = fake::open();
        let router = router(&device, Scoring::Chosen, 2);
        for (scores, expected) in [
            ([1.0, 2.0, 3.0], [2, 1]),
            ([3.0, 1.0, 3.0], [0, 2]),
            ([5.0, 5.0, 5.0], [0, 1]),
            ([-0.0, 0.0, -1.0], [0, 1]),
        ] {
            assert_eq!(chosen(&router, &device, &scores).0, expected, "{scores:?}");
        }
    }

    #[test]
    fn shares_are_of_all_experts_or_of_the_chosen_ones() {
        let device = fake::open();
        // Powers of e are 1, 3 and 4.
        let scores = [0.0, 3f32.ln(), 4f32.ln()];
        for (scoring, expected) in [
            (Scoring::Chosen, [4.0 / 7.0, 3.0 / 7.0]),
            (Scoring::All { normalised: true }, [4.0 / 7.0, 3.0 / 7.0]),
            (Scoring::All { normalised: false }, [0.5, 0.375]),
        ] {
            let (experts, shares) = chosen(&router(&device, scoring, 2), &device, &scores);
            assert_eq!(experts, [2, 1]);
            assert!(
                shares.iter().zip(expected).all(|(got, expected): (&f32, f32)| (got - expected).abs() < 1e-6)
            );
        }
    }

    #[test]
    fn scales_change_what_is_scored_and_what_is_shared() {
        let device = fake::open();
        let vector = |values: &[f32]| device.upload_f32(values, &[3]).unwrap();
        // The root mean square of (3, 3, 3) is 3, so that scores are the input's scale.
        let scaled =
            Scaled { input: vector(&[0.0, 3f32.ln(), 0.0]), epsilon: 0.0, experts: vector(&[8.0, 4.0, 2.0]) };
        let router = Router { scaled: Some(scaled), ..router(&device, Scoring::Chosen, 2) };
        let (experts, shares) = chosen(&router, &device, &[3.0, 3.0, 3.0]);
        assert_eq!(experts, [1, 0]);
        assert!((shares[0] - 3.0).abs() < 1e-5 && (shares[1] - 2.0).abs() < 1e-5, "{shares:?}");
    }
}
