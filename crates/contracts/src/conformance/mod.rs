//! The behaviour suite of the tensor port: what every device must do, whatever it is.
//!
//! One public function for each behaviour, grouped by file; [`all`] lists them. An adapter's test is one line:
//! `conformance::assert_conforms(&open()?, &open()?)`. Expected values come from naive loops over `f64` written
//! here, from golden files made with MLX, or from arithmetic that is exact.
//!
//! Tolerances are bounds, not wishes: each is derived from the number of roundings that the operation needs, in
//! [`tolerance`], and wider only where an operation's definition leaves the arithmetic open.

mod affine;
pub mod attention;
pub mod binary;
pub mod creation;
mod expect;
pub mod fusion;
mod golden;
mod host;
pub mod indexing;
pub mod invariance;
pub mod layer;
pub mod layout;
pub mod linear;
pub mod memory;
pub mod mutant;
pub mod product;
pub mod quantisation;
pub mod recurrence;
pub mod reduction;
pub mod refusal;
mod span;
mod state;
pub mod tolerance;
pub mod turbo;
pub mod unary;
pub mod view;

use crate::tensor::{Device, Error};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Why a device does not conform.
pub struct Broken(String);

impl Broken {
    /// A broken promise, described.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// The same with where it happened.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Self(format!("{place}: {}", self.0))
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self(format!("unexpected error {error:?}"))
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a device behaved.
pub type Outcome = Result<(), Broken>;

/// One promise of the port.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// The file it stands in.
    pub group: &'static str,
    /// The function's name.
    pub name: &'static str,
    check: Check,
}

#[derive(Clone, Copy, Debug)]
enum Check {
    Alone(fn(&Device) -> Outcome),
    /// Needs a second device of the same kind.
    Beside(fn(&Device, &Device) -> Outcome),
}

impl Behaviour {
    const fn alone(group: &'static str, name: &'static str, check: fn(&Device) -> Outcome) -> Self {
        Self { group, name, check: Check::Alone(check) }
    }

    const fn beside(group: &'static str, name: &'static str, check: fn(&Device, &Device) -> Outcome) -> Self {
        Self { group, name, check: Check::Beside(check) }
    }

    /// Tries a device; `other` is a second one of the same kind. A panic counts as a broken promise.
    pub fn check(&self, device: &Device, other: &Device) -> Outcome {
        let run = || match self.check {
            Check::Alone(check) => check(device),
            Check::Beside(check) => check(device, other),
        };
        let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(Broken::new("panicked")));
        outcome.map_err(|broken| broken.at(self))
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.group, self.name)
    }
}

/// Lists the behaviours of a file; those `beside` another device take it as their second argument.
macro_rules! behaviours {
    ($group:literal: $($name:ident),* $(,)?) => { behaviours!($group, alone: $($name),*); };
    ($group:literal, $check:ident: $($name:ident),* $(,)?) => {
        pub(in crate::conformance) const BEHAVIOURS: &[$crate::conformance::Behaviour] =
            &[$($crate::conformance::Behaviour::$check($group, stringify!($name), $name)),*];
    };
}
use behaviours;

/// Every behaviour.
pub fn all() -> impl Iterator<Item = &'static Behaviour> {
    [
        creation::BEHAVIOURS,
        layout::BEHAVIOURS,
        indexing::BEHAVIOURS,
        unary::BEHAVIOURS,
        binary::BEHAVIOURS,
        reduction::BEHAVIOURS,
        product::BEHAVIOURS,
        quantisation::BEHAVIOURS,
        linear::BEHAVIOURS,
        layer::BEHAVIOURS,
        fusion::BEHAVIOURS,
        attention::BEHAVIOURS,
        recurrence::BEHAVIOURS,
        turbo::BEHAVIOURS,
        view::BEHAVIOURS,
        invariance::BEHAVIOURS,
        invariance::attention::BEHAVIOURS,
        invariance::recurrence::BEHAVIOURS,
        memory::BEHAVIOURS,
        refusal::plain::BEHAVIOURS,
        refusal::product::BEHAVIOURS,
        refusal::span::BEHAVIOURS,
        refusal::recurrence::BEHAVIOURS,
        refusal::foreign::BEHAVIOURS,
    ]
    .into_iter()
    .flatten()
}

/// Tries everything and panics with all that is broken.
///
/// # Panics
/// The device does not conform.
pub fn assert_conforms(device: &Device, other: &Device) {
    let broken: Vec<String> = all()
        .filter_map(|behaviour| behaviour.check(device, other).err())
        .map(|broken| broken.to_string())
        .collect();
    assert!(
        broken.is_empty(),
        "{} breaks {} of {} promises:\n{}",
        device.traits().name,
        broken.len(),
        all().count(),
        broken.join("\n")
    );
}
