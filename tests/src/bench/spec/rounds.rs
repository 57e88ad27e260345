//! What rounds of drafts did and took: for each number of drafts how many rounds there were, how many drafts were right, and
//! the time of one; and where the engine's time went.
//!
//! Fixed depths show what a window costs; the adaptive depth shows what is chosen by that.

use super::{Plan, Rig};
use crate::{Result, bench::engine::client, table};
use tandem_contracts::text::{TokenId, Vocabulary};
use tandem_engine::{Config, Draft, Drafting, Metrics, Runs};

/// Drafts of a round; none of them adapts.
const DEPTHS: [usize; 6] = [0, 4, 8, 10, 16, 32];

/// Prints what a request that copies is answered, and tables of it for each depth.
pub(super) fn show(rig: &Rig, plan: &Plan) -> Result<()> {
    let prompt = rig.copy()?;
    let fixed = DEPTHS.map(|tokens| (format!("{tokens} drafts at most"), tokens, false));
    let adaptive = Drafting::default().tokens;
    for (name, tokens, adaptive) in fixed.into_iter().chain([("adaptive".to_owned(), adaptive, true)]) {
        let draft = if tokens == 0 { Draft::Off } else { Draft::Past(Runs::default()) };
        let config = Config {
            drafting: Drafting { draft, tokens, adaptive, ..Drafting::default() },
            ..Config::default()
        };
        let engine = client::engine(&plan.model, plan.threads, config)?;
        let mut speeds = Vec::new();
        for _ in 0..=plan.repeat {
            let (speed, answers) = Rig::speed(&engine, vec![rig.ending(prompt.clone())])?;
            speeds.push(speed);
            if tokens == 0 && speeds.len() == 1 {
                println!("{}", text(rig.tokenizer.as_ref(), answers.iter().flatten()));
            }
        }
        let last = speeds.last().copied().unwrap_or(0.0);
        println!("\n{name}: {last:.1} tokens/s in the last of {} turns", speeds.len());
        print!("{}", rounds(&engine.metrics()));
        engine.shutdown();
    }
    Ok(())
}

fn text<'a>(vocabulary: &dyn Vocabulary, tokens: impl Iterator<Item = &'a TokenId>) -> String {
    let bytes: Vec<&[u8]> = tokens.filter_map(|&token| vocabulary.token_bytes(token)).collect();
    String::from_utf8_lossy(&bytes.concat()).into_owned()
}

fn rounds(metrics: &Metrics) -> String {
    let lines = metrics.rounds.iter().map(|(drafts, round)| {
        let (steps, time) = (round.steps as f64, round.time.as_secs_f64());
        let tokens = steps + round.accepted as f64;
        [
            drafts.to_string(),
            round.steps.to_string(),
            format!("{:.2}", round.accepted as f64 / steps),
            format!("{:.2}", time / steps * 1e3),
            format!("{:.1}", tokens / time),
        ]
    });
    let mut text = table::render(["drafts", "rounds", "accepted", "ms", "tokens/s"], lines);
    let times = metrics.times;
    let all = (times.model + times.sampling + times.other).as_secs_f64();
    let share = |time: std::time::Duration| time.as_secs_f64() / all * 100.0;
    text.push_str(&format!(
        "model {:.2}%, sampling {:.2}%, the engine's rest {:.2}% of {all:.2} s\n",
        share(times.model),
        share(times.sampling),
        share(times.other)
    ));
    text
}
