//! The second turn of a conversation, whose first turn the engine has stored.

use super::{
    Rig, await_idle,
    client::{Stream, read_until},
    figure::{Bar, Figure},
};
use crate::{Result, host::request};
use tandem_contracts::text::TokenId;

/// Tokens of the first turn's prompt.
const PROMPT: usize = 1500;
/// Tokens of its answer.
const ANSWER: usize = 8;
/// Tokens that the second turn adds.
const MORE: usize = 24;
/// Most time to the second turn's first token, of that to the first's.
const TIME: f64 = 0.1;

/// Conversations of two turns, one after the other.
pub(super) fn measure(rig: &mut Rig) -> Result<Vec<Figure>> {
    let (mut ratios, mut cached) = (Vec::new(), Vec::new());
    for _ in 0..rig.repeat {
        let mut conversation = rig.prompt(PROMPT);
        let cold = ask(rig, &conversation)?;
        conversation.extend(cold.tokens.iter().map(|token| token.0));
        conversation.extend(rig.prompt(MORE));
        let warm = ask(rig, &conversation)?;
        ratios.push(warm.first()? / cold.first()?);
        cached.push(warm.usage.cached_tokens as f64);
    }
    Ok(vec![
        Figure::new("second turn, first token, of the first turn's", "", ratios, Bar::AtMost(TIME)),
        Figure::new("second turn, stored tokens", "", cached, Bar::AtLeast(PROMPT as f64)),
    ])
}

fn ask(rig: &Rig, prompt: &[TokenId]) -> Result<Stream> {
    let mut streams = [Stream::open(&rig.engine, request(prompt.to_vec(), ANSWER))?];
    read_until(&mut streams, |all| all[0].outcome.is_some())?;
    await_idle(&rig.engine)?;
    let [stream] = streams;
    Ok(stream)
}
