//! The peer's side: llama.cpp's `llama-bench` and `llama-batched-bench`, run on the same file and threads.
//!
//! A peer that was built badly flatters whoever is compared with it. So its build, the instructions that it uses and
//! the hash of its programs are shown, and [`Identity::doubt`] and [`doubt_figure`] say what speaks against it.

use super::case::{Cache, Case};
use crate::Result;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

/// Its programs, all in one folder.
pub const PROGRAMS: [&str; 3] = ["llama-bench", "llama-batched-bench", "llama-cli"];

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
            // Its flash attention is faster without context and slower with much of it; the peer has the better one.
            Case::Prefill { tokens } => self.bench(&["-p", &tokens.to_string(), "-n", "0", "-fa", "1"]),
            Case::Decode { depth, tokens, cache } => {
                let (depth_text, tokens) = (depth.to_string(), tokens.to_string());
                let common = ["-p", "0", "-n", &tokens, "-d", &depth_text];
                let more: &[&str] = match cache {
                    Cache::Floats if depth < 256 => &["-fa", "1"],
                    Cache::Floats => &["-fa", "0"],
                    // It takes quantised values with flash attention only.
                    Cache::Bytes => &["-fa", "1", "-ctk", "q8_0", "-ctv", "q8_0"],
                };
                self.bench(&[&common, more].concat())
            }
            Case::Batch { rows, prompt, tokens } => self.batched(rows, prompt, tokens),
        }
    }

    /// What it is.
    ///
    /// # Errors
    /// A program cannot be read or run.
    pub fn identify(&self) -> Result<Identity> {
        let rows = self.json(&["-p", "1", "-n", "0", "-r", "1"])?;
        let build =
            format!("{} (build {})", rows[0]["build_commit"], rows[0]["build_number"]).replace('"', "");
        let mut digest = Sha256::new();
        for program in PROGRAMS {
            let path = self.programs.join(program);
            digest.update(fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?);
        }
        let hash = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Identity { build, instructions: instructions(&self.log()?), hash })
    }

    /// What it logs of a short run; at this level it tells the instructions that it was compiled for.
    fn log(&self) -> Result<String> {
        let mut command = Command::new(self.programs.join("llama-cli"));
        command.arg("-m").arg(&self.model).args([
            "-lv",
            "4",
            "-c",
            "512",
            "--single-turn",
            "-n",
            "1",
            "-p",
            ".",
        ]);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("{command:?}: {error}"))?;
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(text.concat())
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
        let text = output(&mut self.batched_command(rows, prompt, tokens))?;
        let row = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).next_back();
        row.as_ref()
            .and_then(|row| row["speed_tg"].as_f64())
            .ok_or_else(|| format!("llama-batched-bench gave no figure: {text}").into())
    }

    fn batched_command(&self, rows: usize, prompt: usize, tokens: usize) -> Command {
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
        command
    }
}

/// What the peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its commit and build.
    pub build: String,
    /// Instruction sets that it was compiled for and found.
    pub instructions: Vec<String>,
    /// SHA-256 of its programs, one after the other.
    pub hash: String,
}

impl Identity {
    /// Why it is not the peer that it should be, if so: it lacks instructions of `needed`.
    pub fn doubt(&self, needed: &[&str]) -> Option<String> {
        let lacks = |name: &&&str| !self.instructions.iter().any(|found| found == **name);
        let missing: Vec<&str> = needed.iter().filter(lacks).copied().collect();
        (!missing.is_empty()).then(|| format!("llama.cpp was built without: {}", missing.join(", ")))
    }
}

/// The names that are 1 in its line about the system: `CPU : SSE3 = 1 | AVX2 = 1 | ...`.
fn instructions(log: &str) -> Vec<String> {
    let Some(line) = log.lines().find(|line| line.contains("system_info")) else { return Vec::new() };
    let parts = line.split(['|', ':']).filter_map(|part| part.split_once(" = "));
    parts.filter(|(_, value)| value.trim() == "1").map(|(name, _)| name.trim().to_owned()).collect()
}

/// Half of what it reaches with the starter model on two threads of a machine with AMX (Emerald Rapids, 2.5 GHz), in
/// tokens per second.
const HALF: [(Case, f64); 2] = [
    (Case::Prefill { tokens: 512 }, 389.0),
    (Case::Decode { depth: 0, tokens: 128, cache: Cache::Floats }, 65.0),
];

/// Why its figure for a case cannot be what a good build reaches on such a machine, if so.
pub fn doubt_figure(case: Case, figure: f64) -> Option<String> {
    let (_, least) = HALF.into_iter().find(|(known, least)| *known == case && figure < *least)?;
    Some(format!(
        "llama.cpp is slower than half of what it reaches on such a machine, {case}: {figure:.0} < {least}"
    ))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "0.01 I common_param: system_info: n_threads = 2 (n_threads_batch = 2) / 2 | CPU : SSE3 = 1 | \
                        AVX2 = 1 | AVX512 = 0 | AMX_INT8 = 1 | REPACK = 1 | ";

    #[test]
    fn instructions_are_those_that_it_has() {
        let instructions = instructions(&format!("other\n{LINE}\n"));
        assert_eq!(instructions, ["SSE3", "AVX2", "AMX_INT8", "REPACK"]);
        let identity = Identity { build: String::new(), instructions, hash: String::new() };
        assert_eq!(identity.doubt(&["AVX2", "AMX_INT8"]), None);
        assert_eq!(
            identity.doubt(&["AVX2", "AVX512"]).as_deref(),
            Some("llama.cpp was built without: AVX512")
        );
    }

    #[test]
    fn figures_below_half_are_doubted() {
        assert_eq!(doubt_figure(Case::Prefill { tokens: 512 }, 400.0), None);
        assert!(doubt_figure(Case::Prefill { tokens: 512 }, 138.0).is_some());
        assert_eq!(doubt_figure(Case::Decode { depth: 2048, tokens: 32, cache: Cache::Floats }, 1.0), None);
    }
}
