//! The steps of `cargo xtask test`, in their order: what fails fast comes first.

use std::path::Path;
use std::process::Command;

use super::report::Outcome;
use super::{client, contract, tally};
use crate::error::Result;
use crate::{debian, mlx, model, process, workspace};

/// The target of the machines that MLX is made for.
const MACOS: &str = "aarch64-apple-darwin";

/// The target whose kernels run under an emulator.
const ARM: &str = "aarch64-unknown-linux-gnu";

/// The feature that brings in the tests of the starter model.
const STARTER: &str = "tandem-tests/starter";

/// What has steps of its own, and so no part in the step `tests`.
const TESTED_APART: &[&str] = &["tandem-backend-mlx", "xtask", "xtask-bindings"];

/// One step.
pub(super) struct Step {
    /// What it is called in the report.
    pub(super) name: &'static str,
    /// When it belongs.
    pub(super) when: When,
    /// Runs it; the argument says whether only what is quick is wanted.
    pub(super) run: fn(bool) -> Result<Outcome>,
}

/// When a step belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Always.
    Always,
    /// Not in a quick run.
    Full,
    /// Not in a quick run, nor in one without MLX.
    Mlx,
}

/// All of them.
pub(super) const STEPS: &[Step] = &[
    Step { name: "format", when: When::Always, run: format },
    Step { name: "clippy", when: When::Always, run: clippy },
    Step { name: "policy", when: When::Always, run: policy },
    Step { name: "deny", when: When::Always, run: deny },
    Step { name: "tests", when: When::Always, run: tests },
    Step { name: "doctests", when: When::Full, run: doctests },
    Step { name: "documentation", when: When::Full, run: documentation },
    Step { name: "cpu alone", when: When::Full, run: cpu_alone },
    Step { name: "clients", when: When::Full, run: client::clients },
    Step { name: "description", when: When::Full, run: contract::contract },
    Step { name: "chat page", when: When::Full, run: client::page },
    Step { name: "arm kernels", when: When::Full, run: arm_kernels },
    Step { name: "mlx set-up", when: When::Mlx, run: mlx_setup },
    Step { name: "mlx clippy", when: When::Mlx, run: mlx_clippy },
    Step { name: "mlx tests", when: When::Mlx, run: mlx_tests },
    Step { name: "mlx end to end", when: When::Mlx, run: mlx_end_to_end },
    Step { name: "macos check", when: When::Mlx, run: macos_check },
];

fn passed(command: &mut Command) -> Result<Outcome> {
    process::run(command).map(|()| Outcome::Passed)
}

fn tested(command: &mut Command) -> Result<Outcome> {
    tally::run(command).map(Outcome::Tested)
}

fn format(_quick: bool) -> Result<Outcome> {
    passed(&mut workspace::cargo(["fmt", "--all", "--check"]))
}

fn clippy(_quick: bool) -> Result<Outcome> {
    passed(&mut workspace::cargo(["clippy", "--all-targets", "--features", STARTER, "--", "-D", "warnings"]))
}

/// Layers, bans, licences and the rules on sources; this package's own tests come along.
fn policy(_quick: bool) -> Result<Outcome> {
    tested(&mut workspace::cargo(["test", "--package", "xtask"]))
}

/// Advisories are left out: their database is fetched from elsewhere, and changes without a change of ours.
fn deny(_quick: bool) -> Result<Outcome> {
    if !process::succeeds(&mut workspace::cargo(["deny", "--version"])) {
        return Ok(Outcome::Skipped(
            "cargo-deny is not installed; the policy step holds the same rules".to_owned(),
        ));
    }
    passed(&mut workspace::cargo(["deny", "--all-features", "check", "bans", "licenses", "sources"]))
}

/// Unit and integration tests of the default members: conformance on the fake and on the CPU, goldens, end to
/// end. The tests that need the starter model are part of a full run.
fn tests(quick: bool) -> Result<Outcome> {
    let mut command = test_together();
    command.args(["--lib", "--bins", "--tests"]);
    if !quick {
        command.args(["--features", STARTER]).env(model::VARIABLE, model::STARTER.fetch()?);
    }
    tested(&mut command)
}

/// A test of the packages that are tested together. Where some of them are to be built, the same ones are named, because which
/// are named decides the features of what they all depend on, and so what has to be compiled once more.
fn test_together() -> Command {
    let mut command = workspace::cargo(["test", "--no-fail-fast", "--workspace"]);
    command.args(TESTED_APART.iter().flat_map(|package| ["--exclude", package]));
    command
}

fn doctests(_quick: bool) -> Result<Outcome> {
    tested(&mut workspace::cargo(["test", "--no-fail-fast", "--doc"]))
}

/// Broken links in the documentation are errors.
fn documentation(_quick: bool) -> Result<Outcome> {
    let mut command = workspace::cargo(["doc", "--no-deps", "--document-private-items"]);
    passed(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// The program without MLX: neither Python nor a C++ compiler takes part. What the other steps run of it is linked there.
fn cpu_alone(_quick: bool) -> Result<Outcome> {
    passed(&mut workspace::cargo([
        "check",
        "--package",
        "tandem",
        "--no-default-features",
        "--features",
        "cpu",
    ]))
}

/// The CPU backend's products for AArch64, under QEMU: right, whatever their speed.
fn arm_kernels(_quick: bool) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::Skipped("the emulator of user programs runs on Linux".to_owned()));
    }
    debian::ensure(&[debian::ARM_COMPILER, debian::ARM_LIBRARY, debian::ARM_EMULATOR])?;
    add_target(ARM)?;
    let mut command = workspace::cargo(["test", "--package", "tandem-backend-cpu", "--lib", "--target", ARM]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    let emulator = "qemu-aarch64 -L /usr/aarch64-linux-gnu";
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", emulator);
    tested(command.args(["--", "product", "isa"]))
}

/// Adds a target's standard library if it is not there.
fn add_target(target: &str) -> Result<()> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]).current_dir(workspace::root());
    if Path::new(process::capture(&mut rustc)?.trim()).is_dir() {
        return Ok(());
    }
    println!("adding the standard library for {target}");
    process::run(Command::new("rustup").args(["target", "add", target]).current_dir(workspace::root()))
}

fn mlx_setup(_quick: bool) -> Result<Outcome> {
    mlx::run(&mlx::Options::default()).map(|()| Outcome::Passed)
}

fn mlx_clippy(_quick: bool) -> Result<Outcome> {
    let mut command = workspace::cargo(["clippy", "--all-targets", "--package", "tandem-backend-mlx"]);
    command.args(["--package", "xtask-bindings", "--package", "tandem", "--package", "tandem-tests"]);
    passed(command.args([
        "--features",
        "tandem/mlx,tandem-tests/mlx,tandem-tests/starter",
        "--",
        "-D",
        "warnings",
    ]))
}

/// One test at a time: MLX counts memory for the whole process.
fn mlx_tests(_quick: bool) -> Result<Outcome> {
    let mut command = workspace::cargo(["test", "--no-fail-fast", "--package", "tandem-backend-mlx"]);
    tested(with_mlx(&mut command).args(["--", "--test-threads=1"]))
}

/// The cross-crate tests with `mlx` in their name; those named for both backends ran in the step `tests`.
fn mlx_end_to_end(_quick: bool) -> Result<Outcome> {
    let mut command = test_together();
    for test in workspace::test_names("tandem-tests")? {
        command.args(["--test", &test]);
    }
    command.args(["--features", "tandem-tests/mlx,tandem-tests/starter"]);
    command.env(model::VARIABLE, model::STARTER.fetch()?);
    let command = mlx::with_reference_blas(with_mlx(&mut command))?;
    tested(command.args(["mlx", "--", "--skip", "cpu", "--test-threads=1"]))
}

/// MLX's compiler for CPU graphs runs the system's C++ compiler; the tests do without.
fn with_mlx(command: &mut Command) -> &mut Command {
    command.env("MLX_DISABLE_COMPILE", "1")
}

/// Type-checks every crate for macOS. Nothing is linked, so no Mac is needed.
fn macos_check(_quick: bool) -> Result<Outcome> {
    add_target(MACOS)?;
    passed(&mut workspace::cargo(["check", "--workspace", "--all-targets", "--target", MACOS]))
}
