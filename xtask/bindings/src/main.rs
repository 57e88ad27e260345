//! Writes the Rust bindings of mlx-c: `xtask-bindings OUTPUT MLX_C [CLANG_ARGUMENT]...`.
//!
//! A package of its own, because bindgen is heavy and only `cargo xtask mlx` needs it. The builder's settings
//! are those of mlx-sys's build script (`src/bindgen_config.rs` there), so that the bindings are the ones that
//! mlx-rs was written against.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// What mlx-sys passes to bindgen as the oldest compiler that must read the bindings.
const RUST_TARGET: &str = "1.73.0";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let (Some(output), Some(mlx_c)) = (arguments.next(), arguments.next()) else {
        return Err("usage: xtask-bindings OUTPUT MLX_C [CLANG_ARGUMENT]...".into());
    };
    let clang = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let builder = bindgen::Builder::default()
        .rust_target(RUST_TARGET.parse()?)
        .clang_args(clang)
        .clang_arg(format!("-I{}", mlx_c.display()))
        .blocklist_function("malloc")
        .blocklist_function("realloc");
    let builder =
        headers(&mlx_c)?.iter().fold(builder, |builder, header| builder.header(header.to_string_lossy()));
    builder.generate()?.write_to_file(output)?;
    Ok(())
}

/// The public headers of mlx-c, sorted, so that the output does not depend on the file system.
fn headers(mlx_c: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let directory = mlx_c.join("mlx/c");
    let mut headers = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "h") {
            headers.push(path);
        }
    }
    if headers.is_empty() {
        return Err(format!("no headers: {}", directory.display()).into());
    }
    headers.sort();
    Ok(headers)
}
