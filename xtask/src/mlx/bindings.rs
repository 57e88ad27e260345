//! Writes `bindings.rs`, which `mlx-sys` includes, with the `xtask-bindings` program.
//!
//! libclang reads the headers. It is fetched like MLX (a pinned one, so that the bindings are the same
//! everywhere) unless `LIBCLANG_PATH` names another. It comes without the compiler's own headers, so those of the
//! C++ compiler serve.

use std::env;
use std::process::Command;

use super::Setup;
use crate::error::Result;
use crate::{debian, process, python, workspace};

/// Writes the bindings into the set-up's output directory.
pub(super) fn run(setup: &Setup) -> Result<()> {
    let builtin = process::capture(Command::new(debian::cxx()).arg("-print-file-name=include"))?;
    let shim = workspace::own("shim");
    let mut command = workspace::cargo(["run", "--quiet", "--package", "xtask-bindings", "--"]);
    command.arg(setup.output.join("bindings.rs")).arg(&setup.source.mlx_c);
    command.arg("-include").arg(shim.join("compat.h"));
    command.arg("-isystem").arg(shim.join("arm"));
    command.arg("-isystem").arg(builtin.trim());
    if env::var_os("LIBCLANG_PATH").is_none() {
        let site = python::fetch("libclang", &setup.cache)?;
        command.env("LIBCLANG_PATH", site.join("clang/native"));
    }
    println!("writing the bindings of mlx-c");
    process::quietly(&mut command)
}
