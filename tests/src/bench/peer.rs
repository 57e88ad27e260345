//! The peer's side: llama.cpp's `llama-bench` and `llama-batched-bench`, run on the same file and threads.

use super::case::Case;
use crate::Result;
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// llama.cpp, built.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Folder of its programs.
    pub programs: PathBuf,
    /// The model file.
    pub model: PathBuf,
    /// Threads.
    pub threads: usize,
}

impl Peer {
    /// Tokens per second of one run of a case.
    ///
    /// # Errors
    /// A program that fails or prints something else than its figures.
    pub fn run(&self, case: Case) -> Result<f64> {
        match case {
            Case::Prefill { tokens } => self.bench(&["-p", &tokens.to_string(), "-n", "0"]),
            // Its flash attention is faster without context and slower with much of it; the peer has the better one.
            Case::Decode { depth, tokens } => {
                let flash = if depth < 256 { "1" } else { "0" };
                self.bench(&["-p", "0", "-n", &tokens.to_string(), "-d", &depth.to_string(), "-fa", flash])
            }
            Case::Batch { rows, prompt, tokens } => self.batched(rows, prompt, tokens),
        }
    }

    /// What it is: the first line that names its build and instruction sets.
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn describe(&self) -> Result<String> {
        let rows = self.json(&["-p", "1", "-n", "0", "-r", "1"])?;
        let row = &rows[0];
        Ok(format!("llama.cpp {} (build {}), {}", row["build_commit"], row["build_number"], row["cpu_info"]))
    }

    fn bench(&self, arguments: &[&str]) -> Result<f64> {
        let rows = self.json(&[arguments, &["-r", "1"]].concat())?;
        rows[0]["avg_ts"].as_f64().ok_or_else(|| format!("llama-bench gave no figure: {rows}").into())
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let threads = self.threads.to_string();
        let mut command = Command::new(self.programs.join("llama-bench"));
        command.arg("-m").arg(&self.model).args(["-t", &threads, "-o", "json"]).args(arguments);
        Ok(serde_json::from_str(&output(&mut command)?)?)
    }

    fn batched(&self, rows: usize, prompt: usize, tokens: usize) -> Result<f64> {
        let mut command = Command::new(self.programs.join("llama-batched-bench"));
        command.arg("-m").arg(&self.model);
        for (flag, value) in [
            ("-c", rows * (prompt + tokens) + 512),
            ("-b", 2048),
            ("-ub", 512),
            ("-npp", prompt),
            ("-ntg", tokens),
            ("-npl", rows),
            ("-t", self.threads),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        command.args(["--output-format", "jsonl"]);
        let text = output(&mut command)?;
        let row = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).next_back();
        row.as_ref()
            .and_then(|row| row["speed_tg"].as_f64())
            .ok_or_else(|| format!("llama-batched-bench gave no figure: {text}").into())
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// Bytes of a model file.
///
/// # Errors
/// The file cannot be looked at.
pub fn size(model: &Path) -> Result<u64> {
    Ok(std::fs::metadata(model)?.len())
}
