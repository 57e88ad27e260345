//! `cargo xtask mlx`: makes the unmodified `mlx-sys` of crates.io usable on Linux.
//!
//! Its build script is made for Apple's systems. Here, a Cargo *build-script override* stands in for it, which
//! this command writes to `.cargo/mlx-linux.toml`, after it has
//!
//! 1. fetched the MLX library that the Python package index carries for Linux ([`library`]),
//! 2. compiled mlx-c, found in Cargo's own copy of `mlx-sys`, against it ([`compile`]), and
//! 3. written the bindings as the build script would ([`bindings`]).
//!
//! All of that lands in the cache directory, and a stamp makes a second run return at once. Nothing of upstream
//! is copied into the workspace. A new version of `mlx-sys` needs a new run.

mod bindings;
mod compile;
mod config;
mod library;
mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use self::config::Override;
use self::library::Blas;
use self::source::Source;
use crate::error::{Error, Result};
use crate::{debian, process, workspace};

/// What `cargo xtask mlx` can be told.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Which build of MLX to fetch.
    #[arg(long, value_enum, default_value_t)]
    variant: Variant,
    /// Use the MLX that is installed in this directory (with `include` and `lib`) instead of fetching one.
    #[arg(long, value_name = "DIR", env = "MLX_PREFIX")]
    prefix: Option<PathBuf>,
    /// The BLAS library to put in place of the fetched build's slow one, or `none` to keep that
    /// [default: OpenBLAS where it is installed].
    #[arg(long, value_name = "FILE|none", value_parser = Blas::parse)]
    blas: Option<Blas>,
    /// Write the Cargo configuration here [default: .cargo/mlx-linux.toml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A build of MLX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Variant {
    /// For the CPU alone.
    #[default]
    Cpu,
    /// For NVIDIA GPUs, CUDA 12.
    #[value(name = "cuda-12")]
    Cuda12,
    /// For NVIDIA GPUs, CUDA 13.
    #[value(name = "cuda-13")]
    Cuda13,
}

impl Variant {
    /// The name of the requirements file, and of the package in it.
    fn package(self) -> &'static str {
        match self {
            Self::Cpu => "mlx-cpu",
            Self::Cuda12 => "mlx-cuda-12",
            Self::Cuda13 => "mlx-cuda-13",
        }
    }
}

/// Everything that the steps need to know.
#[derive(Debug)]
struct Setup {
    /// mlx-c and the versions.
    source: Source,
    /// Where MLX is: `include` and `lib`.
    prefix: PathBuf,
    /// Where libclang is fetched to, if need be.
    cache: PathBuf,
    /// Where what is made here goes; also the `OUT_DIR` of `mlx-sys`.
    output: PathBuf,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<()> {
    if !cfg!(target_os = "linux") {
        println!("nothing to do: mlx-sys builds MLX itself on this system");
        return Ok(());
    }
    debian::ensure(&[debian::COMPILER, debian::OPENBLAS])?;
    let source = Source::locate()?;
    let cache = workspace::cache()?.join("mlx");
    fs::create_dir_all(&cache).map_err(Error::file(&cache))?;
    let _lock = workspace::lock(&cache)?;

    let prefix = match &options.prefix {
        Some(directory) => directory.canonicalize().map_err(Error::file(directory))?,
        None => library::fetch(options, &cache)?,
    };
    source.check_version(&prefix)?;
    let setup = Setup { output: output(options, &source, &cache), source, prefix, cache };
    build(&setup)?;

    let file = options.config.clone().unwrap_or_else(|| workspace::root().join(".cargo/mlx-linux.toml"));
    let text = Override::of(&setup).render(&workspace::host()?);
    if fs::read_to_string(&file).is_ok_and(|present| present == text) {
        println!("MLX {} is set up: {}", setup.source.mlx, file.display());
    } else {
        fs::write(&file, text).map_err(Error::file(&file))?;
        println!("MLX {} is set up, Cargo configuration written: {}", setup.source.mlx, file.display());
    }
    Ok(())
}

/// Has the program that `command` starts (`cargo run` or `cargo test`) compute with the BLAS library that MLX's build for
/// CPUs brings: the goldens were made with it, and it adds up in the same order on every machine.
pub(crate) fn with_reference_blas(command: &mut Command) -> Result<&mut Command> {
    let Some(library) = library::reference_blas(&workspace::cache()?.join("mlx")) else { return Ok(command) };
    let host = workspace::host()?.to_uppercase().replace('-', "_");
    // The program alone, not Cargo and the compiler.
    Ok(command.env(format!("CARGO_TARGET_{host}_RUNNER"), format!("env LD_PRELOAD={}", library.display())))
}

/// One directory for each version and origin of MLX, so that switching between them rebuilds nothing.
fn output(options: &Options, source: &Source, cache: &Path) -> PathBuf {
    let origin = if options.prefix.is_some() { "prefix" } else { options.variant.package() };
    cache.join(format!("mlx-sys-{}-{origin}-{}", source.mlx_sys, std::env::consts::ARCH))
}

/// Compiles mlx-c and writes its bindings, unless what is there was made from the same things.
fn build(setup: &Setup) -> Result<()> {
    let stamp = setup.output.join("stamp");
    let wanted = stamp_of(setup)?;
    if fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) {
        return Ok(());
    }
    if setup.output.exists() {
        fs::remove_dir_all(&setup.output).map_err(Error::file(&setup.output))?;
    }
    fs::create_dir_all(&setup.output).map_err(Error::file(&setup.output))?;
    compile::run(setup)?;
    bindings::run(setup)?;
    fs::write(&stamp, wanted).map_err(Error::file(&stamp))
}

/// All that the outcome of [`build`] depends on.
fn stamp_of(setup: &Setup) -> Result<String> {
    let compiler = process::capture(Command::new(debian::cxx()).arg("--version"))?;
    let (mlx_c, prefix) = (setup.source.mlx_c.display(), setup.prefix.display());
    let mut stamp = format!("{mlx_c}\n{prefix}\n{compiler}\n{}\n", compile::FLAGS.join(" "));
    for file in ["shim/compat.h", "shim/compat.cpp", "bindings/src/main.rs"] {
        let path = workspace::own(file);
        stamp += &fs::read_to_string(&path).map_err(Error::file(&path))?;
    }
    Ok(stamp)
}
