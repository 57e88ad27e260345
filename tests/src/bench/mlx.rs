//! The MLX adapter in turns with mlx-lm: one prompt, a few greedy tokens, the same codes with scales in f32.
//!
//! mlx-lm runs in a program of its own (`fixtures/real.py speed`), which loads the model once and then measures
//! whenever a line asks for it; while ours runs, it waits.

use super::report::{self, Row};
use crate::{
    Result,
    device::Backend,
    drive::{Driver, best},
    fixtures,
    quality::Golden,
};
use serde_json::json;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};
use tandem_contracts::text::TokenId;
use tandem_models::{Checkpoint, Source, weights::File};

/// Tokens of the prompt.
const PROMPT: usize = 32;
/// Tokens of the answer.
const ANSWER: usize = 16;
/// Least median of the ratios of whole runs, ours through the peer's in tokens per second.
const BAR: f64 = 1.0;
/// Who is measured beside us.
const PEER: &str = "mlx-lm";

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The starter model's GGUF file.
    pub model: PathBuf,
    /// A Python that has mlx-lm; without one ours is measured alone.
    pub python: Option<PathBuf>,
    /// Runs of each side.
    pub repeat: usize,
    /// Where to write the figures.
    pub json: Option<PathBuf>,
}

/// Measures, prints a table, and writes the figures where that was asked for.
///
/// # Errors
/// Those of either side; and ours was slower.
pub fn run(plan: &Plan) -> Result<()> {
    let golden = Golden::read(&fixtures().join("smollm2/perplexity.json"))?;
    let prompt = &golden.ids[..PROMPT];
    let bytes = fs::read(&plan.model)?;
    let checkpoint = Checkpoint::open(Source::Gguf(File { name: "model.gguf", bytes: &bytes }))?;
    let mut driver = Driver::load(checkpoint, &Backend::Mlx.open()?)?;
    let mut peer = plan.python.as_ref().map(|python| Peer::start(python, plan)).transpose()?;

    // The first runs compile kernels and page weights in; they do not count.
    let ours = answer(&mut driver, prompt)?;
    if let Some(peer) = &mut peer {
        let theirs = peer.answer(prompt)?;
        let same = if theirs.tokens == ours.tokens { "the same" } else { "other" };
        println!("{PEER} finds {same} tokens");
    }
    let mut turns = Turns::default();
    for _ in 0..plan.repeat {
        turns.ours.push(answer(&mut driver, prompt)?);
        if let Some(peer) = &mut peer {
            turns.peer.push(peer.answer(prompt)?);
        }
    }
    let rows = turns.rows();
    print!("{}", report::table(PEER, &rows, true));
    let ratio = rows.last().and_then(Row::paired);
    if let Some(ratio) = ratio {
        println!("{ratio}");
    }
    if let Some(path) = &plan.json {
        fs::write(path, format!("{:#}\n", json!({"rows": report::json(PEER, &rows, true)})))?;
    }
    match ratio {
        Some(ratio) if ratio.median < BAR => Err(format!("slower than {PEER}: {:.2}", ratio.median).into()),
        _ => Ok(()),
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    /// Seconds until the first token.
    first: f64,
    /// Seconds until the last.
    last: f64,
    tokens: Vec<TokenId>,
}

/// Ours: the most likely token each time, chosen on the host.
fn answer(driver: &mut Driver, prompt: &[TokenId]) -> Result<Run> {
    let start = Instant::now();
    let slot = driver.open()?;
    let logits = driver.prefill(slot, prompt, prompt.len())?;
    let first = start.elapsed().as_secs_f64();
    let logits = driver.continue_greedily(slot, logits, ANSWER)?;
    let last = start.elapsed().as_secs_f64();
    driver.close(slot)?;
    Ok(Run { first, last, tokens: logits.iter().map(|logits| best(logits)).collect() })
}

/// mlx-lm, loaded and waiting.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(python: &PathBuf, plan: &Plan) -> Result<Self> {
        let mut command = Command::new(python);
        command.arg(fixtures().join("real.py")).arg("speed").arg(&plan.model);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", python.display()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self { child, input, output: BufReader::new(output) }),
            _ => Err("the peer has no input or output".into()),
        }
    }

    fn answer(&mut self, prompt: &[TokenId]) -> Result<Run> {
        let ids: Vec<_> = prompt.iter().map(TokenId::to_string).collect();
        writeln!(self.input, "{};{ANSWER}", ids.join(" "))?;
        self.input.flush()?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Run::parse(&line).ok_or_else(|| format!("{PEER} printed no times: {line:?}").into())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends by itself at the end of its input, but may be in the middle of a run.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Run {
    /// Two times and, behind a semicolon, token ids.
    fn parse(line: &str) -> Option<Self> {
        let (times, tokens) = line.trim().split_once(';')?;
        let (first, last) = times.split_once(' ')?;
        let tokens = tokens.split_whitespace().map(|id| id.parse().ok()).collect::<Option<_>>()?;
        Some(Self { first: first.parse().ok()?, last: last.parse().ok()?, tokens })
    }
}

/// All runs, in turns.
#[derive(Debug, Default)]
struct Turns {
    ours: Vec<Run>,
    peer: Vec<Run>,
}

impl Turns {
    /// Tokens per second of the prompt, of the answer behind its first token, and of both together.
    fn rows(&self) -> Vec<Row> {
        let row = |name: &str, speed: fn(&Run) -> f64| Row {
            name: name.to_owned(),
            unit: "tok/s",
            ours: self.ours.iter().map(speed).collect(),
            peer: self.peer.iter().map(speed).collect(),
        };
        vec![
            row("prompt of 32", |run| PROMPT as f64 / run.first),
            row("decode", |run| (ANSWER - 1) as f64 / (run.last - run.first)),
            row("prompt of 32 and 16 tokens", |run| (PROMPT + ANSWER) as f64 / run.last),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_peer_is_read_whole_or_not_at_all() {
        let run = Run::parse("1.5 4.5;7 8\n");
        assert_eq!(run, Some(Run { first: 1.5, last: 4.5, tokens: vec![7, 8] }));
        assert!(["", "1.5 4.5", "1.5;7", "a b;7", "1 2;x"].iter().all(|line| Run::parse(line).is_none()));
    }

    #[test]
    fn speeds_by_hand() {
        let run = Run { first: 2.0, last: 5.0, tokens: Vec::new() };
        let rows = Turns { ours: vec![run], peer: Vec::new() }.rows();
        assert_eq!(rows.iter().map(|row| row.ours[0]).collect::<Vec<_>>(), [16.0, 5.0, 9.6]);
        assert_eq!(rows[2].paired(), None);
    }
}
