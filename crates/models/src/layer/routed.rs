//! A mixture of experts (Shazeer et al., arXiv:1701.06538; Mixtral, arXiv:2401.04088) in the place of a gated unit:
//!
//! ```text
//!   x -norm-> y --router--> each token's experts and their shares
//!             y --experts-> sum over them of share * expert(y)   -\
//!             y --unit that all tokens have [* sigmoid(gate(y))]  -+-> norm -> + x
//! ```
//!
//! A family declares it with [`RoutedDeclaration::in_place_of`] the gated unit that the block would have, and changes
//! what it does otherwise: how scores become shares, names, a unit in company, norms within.

use super::{
    ExpertGate, ExpertNames, ExpertsDeclaration, Landing, Loader, Mlp, MlpDeclaration, Norm, Norms, Pass,
    Projection, RouterDeclaration, expert::Experts, router::Router,
};
use crate::{config::ExpertConfig, error};
use tandem_contracts::tensor::{Binary, Result, Tensor, Unary};

/// What distinguishes one mixture.
#[derive(Clone, Debug)]
pub(crate) struct RoutedDeclaration {
    /// Norms of what all of it reads and of what all of it adds.
    pub(crate) norms: Norms,
    pub(crate) router: RouterDeclaration,
    pub(crate) experts: ExpertsDeclaration,
    /// A unit that every token has besides.
    pub(crate) company: Option<CompanyDeclaration>,
}

/// A gated unit in the company of experts.
#[derive(Clone, Debug)]
pub(crate) struct CompanyDeclaration {
    /// Its norms stand within those of the whole layer.
    pub(crate) unit: MlpDeclaration,
    /// Module of the block that gives each token's own factor, through a sigmoid.
    pub(crate) gate: Option<&'static str>,
}

impl RoutedDeclaration {
    /// Experts between the norms of a gated unit, with its activation.
    pub(crate) fn in_place_of(
        unit: &MlpDeclaration,
        extents: ExpertConfig,
        names: ExpertNames,
        router: RouterDeclaration,
    ) -> Self {
        let gate = ExpertGate::Plain(unit.activation);
        let experts = ExpertsDeclaration { extents, names, norms: Norms::NONE, bias: false, gate };
        Self { norms: unit.norms, router, experts, company: None }
    }
}

/// A loaded mixture.
#[derive(Debug)]
pub(crate) struct Routed {
    norm: Option<Norm>,
    router: Router,
    experts: Experts,
    company: Option<Company>,
    pub(super) landing: Landing,
}

#[derive(Debug)]
struct Company {
    unit: Mlp,
    gate: Option<Projection>,
}

impl Routed {
    /// Loads the mixture of the block at `path`.
    pub(crate) fn load(
        declaration: &RoutedDeclaration,
        path: &str,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let RoutedDeclaration { norms, router, experts, company } = declaration;
        Ok(Self {
            norm: loader.branch_norm(path, norms.before)?,
            router: Router::load(router, path, &experts.extents, loader)?,
            experts: Experts::load(experts, path, loader)?,
            company: company.as_ref().map(|company| Company::load(company, path, loader)).transpose()?,
            landing: loader.landing(path, *norms)?,
        })
    }

    /// What packed `x [tokens, hidden]` give, before the last norm.
    pub(super) fn mix(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let normed = self.norm.as_ref().map(|norm| norm.apply(pass.device, x)).transpose()?;
        let x = normed.as_ref().unwrap_or(x);
        let choice = self.router.choose(x, pass.device)?;
        let mixed = self.experts.mix(x, &choice, pass)?;
        match &self.company {
            Some(company) => pass.device.binary(Binary::Add, mixed, &company.value(x, pass)?),
            None => Ok(mixed),
        }
    }
}

impl Company {
    fn load(
        declaration: &CompanyDeclaration,
        path: &str,
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let hidden = loader.config.hidden;
        let mut gate = |module| loader.stored_projection((format!("{path}.{module}"), 1), hidden, false);
        let gate = declaration.gate.map(&mut gate).transpose()?;
        Ok(Self { unit: Mlp::load(&declaration.unit, path, loader)?, gate })
    }

    fn value(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let value = self.unit.exit.value(&self.unit.gate(x, pass)?, pass)?;
        let Some(gate) = &self.gate else { return Ok(value) };
        let open = pass.device.unary(Unary::Sigmoid, gate.apply(x, pass)?)?;
        pass.device.binary(Binary::Multiply, value, &open)
    }
}
