//! What the commands need from the operating system, and how it gets there.
//!
//! On Debian and its relatives, as root, a missing package is installed with `apt-get`. Elsewhere nothing is
//! installed: the error (or, for what is only desirable, a note) says what to type.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::error::{Error, Result};
use crate::{process, python};

/// Something that the operating system should provide.
pub(crate) struct Need {
    /// What it is.
    name: &'static str,
    /// The Debian package that brings it.
    package: &'static str,
    /// Whether the command works without it, only worse: then this says how.
    otherwise: Option<&'static str>,
    /// Whether it is there.
    present: fn() -> bool,
}

/// pip, to fetch from the Python package index.
pub(crate) const PIP: Need =
    Need { name: "python3 with pip", package: "python3-pip", otherwise: None, present: python::has_pip };

/// A C++ compiler, to build mlx-c and llama.cpp.
pub(crate) const COMPILER: Need = Need {
    name: "a C++ compiler",
    package: "g++",
    otherwise: None,
    present: || process::succeeds(Command::new(cxx()).arg("--version")),
};

/// CMake with the build program that it runs, to build llama.cpp.
pub(crate) const CMAKE: Need = Need {
    name: "cmake with make",
    package: "cmake",
    otherwise: None,
    present: || ["cmake", "make"].iter().all(|name| process::succeeds(Command::new(name).arg("--version"))),
};

/// OpenBLAS, which multiplies dense matrices on the CPU.
pub(crate) const OPENBLAS: Need = Need {
    name: "OpenBLAS",
    package: "libopenblas0",
    otherwise: Some("MLX will multiply dense matrices slowly on the CPU"),
    present: || openblas().is_some(),
};

/// A linker for AArch64, to build tests that run under an emulator.
pub(crate) const ARM_COMPILER: Need = Need {
    name: "a compiler for AArch64",
    package: "gcc-aarch64-linux-gnu",
    otherwise: None,
    present: || process::succeeds(Command::new("aarch64-linux-gnu-gcc").arg("--version")),
};

/// The C library that such tests are linked with.
pub(crate) const ARM_LIBRARY: Need = Need {
    name: "a C library for AArch64",
    package: "libc6-dev-arm64-cross",
    otherwise: None,
    present: || Path::new("/usr/aarch64-linux-gnu/lib/libc.so").is_file(),
};

/// QEMU for user programs of AArch64.
pub(crate) const ARM_EMULATOR: Need = Need {
    name: "QEMU for AArch64",
    package: "qemu-user",
    otherwise: None,
    present: || process::succeeds(Command::new("qemu-aarch64").arg("--version")),
};

/// A browser without a window, to try the chat page in.
pub(crate) const BROWSER: Need = Need {
    name: "Chromium without a window",
    package: "chromium-headless-shell",
    otherwise: None,
    present: || browser().is_some_and(|program| process::succeeds(Command::new(program).arg("--version"))),
};

/// The C++ compiler's command.
pub(crate) fn cxx() -> String {
    env::var("CXX").unwrap_or_else(|_| "c++".into())
}

/// OpenBLAS as distributions install it.
pub(crate) fn openblas() -> Option<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
    let directories = [multiarch.as_str(), "/usr/lib64", "/usr/lib"];
    directories
        .iter()
        .map(|directory| Path::new(directory).join("libopenblas.so.0"))
        .find(|file| file.is_file())
}

/// The browser without a window, where programs are searched for.
pub(crate) fn browser() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join("chromium-headless-shell")).find(|file| file.is_file())
}

/// Installs what is missing, or fails and says what to type.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    let missing: Vec<_> = needs.iter().filter(|need| !(need.present)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    if Path::new("/etc/debian_version").exists() && effective_user() == Some(0) {
        println!("installing Debian packages: {}", packages.join(" "));
        process::run(apt_get().args(["update", "-qq"]))?;
        process::run(apt_get().args(["install", "-y", "-qq", "--no-install-recommends"]).args(&packages))?;
    }
    for need in missing.into_iter().filter(|need| !(need.present)()) {
        let remedy = format!("sudo apt-get install {} (or your system's package of it)", need.package);
        match need.otherwise {
            Some(otherwise) => println!("note: {} is missing, so {otherwise}: {remedy}", need.name),
            None => return Err(Error::missing(need.name, remedy)),
        }
    }
    Ok(())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// The effective user id. `/proc` gives it without a foreign function; where there is none, nobody is root.
fn effective_user() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    effective_user_in(&status)
}

/// From the `Uid:` line: real, effective, saved and file system id (proc(5)).
fn effective_user_in(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_is_the_second_id() {
        assert_eq!(effective_user_in("Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n"), Some(0));
        assert_eq!(effective_user_in("Name:\tx\n"), None);
    }

    #[test]
    fn what_is_there_needs_nothing() {
        let present = Need { name: "nothing", package: "no-such-package", otherwise: None, present: || true };
        assert!(ensure(&[present]).is_ok());
    }
}
