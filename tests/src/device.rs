//! The devices that tests run on, by name.

use crate::Result;
use clap::ValueEnum;
use std::fmt;
use tandem_contracts::{fake, tensor::Device};

/// A device that can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The naive device of the port's own tests.
    Fake,
    /// Pure Rust.
    Cpu,
    /// MLX, on whatever it finds best.
    Mlx,
}

impl Backend {
    /// Opens the device for this thread.
    ///
    /// # Errors
    /// The device's own, or that the adapter is not built in.
    pub fn open(self) -> Result<Device> {
        match self {
            Self::Fake => Ok(fake::open()),
            Self::Cpu => Ok(tandem_backend_cpu::open(tandem_backend_cpu::Options::default())?),
            Self::Mlx => open_mlx(),
        }
    }
}

#[cfg(feature = "mlx")]
fn open_mlx() -> Result<Device> {
    Ok(tandem_backend_mlx::open(tandem_backend_mlx::Options::default())?)
}

#[cfg(not(feature = "mlx"))]
fn open_mlx() -> Result<Device> {
    Err("mlx is not built in: use --features mlx".into())
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fake => "fake",
            Self::Cpu => "cpu",
            Self::Mlx => "mlx",
        })
    }
}
