//! From the start of a program to its first token: both command lines on the same file, message and threads.

use super::process::{self, Cost};
use crate::Result;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// With the starter model's template a prompt of 32 tokens.
const MESSAGE: &str = "Hello!";

/// What is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// The model file.
    pub model: PathBuf,
    /// Threads.
    pub threads: usize,
    /// Arithmetic, as our command line names it.
    pub precision: &'static str,
}

impl Start {
    /// Our program, `tandem`.
    ///
    /// # Errors
    /// It does not start, or does not end well.
    pub fn ours(&self, program: &Path) -> Result<Cost> {
        let mut command = Command::new(program);
        command.arg("generate").arg("--model").arg(&self.model).args(["--precision", self.precision]);
        command.args(["--threads", &self.threads.to_string(), "--temperature", "0", "--max-tokens", "1"]);
        process::run(command.args(["--prompt", MESSAGE]))
    }

    /// The peer's, `llama-cli` in the folder of its programs. Its cache is confined to what the prompt needs: left to
    /// itself it makes room for the model's whole context first.
    ///
    /// # Errors
    /// It does not start, or does not end well.
    pub fn peer(&self, programs: &Path) -> Result<Cost> {
        let mut command = Command::new(programs.join("llama-cli"));
        command.arg("-m").arg(&self.model).args(["-t", &self.threads.to_string(), "-c", "512"]);
        process::run(command.args(["--single-turn", "--temp", "0", "-n", "1", "-p", MESSAGE]))
    }
}
