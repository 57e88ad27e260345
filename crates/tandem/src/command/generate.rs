//! `tandem generate`: one prompt, one answer on standard output.

use super::{message, prompt, submit, summary};
use crate::{
    cli,
    error::{Error, Result},
    wiring,
};
use std::{
    io::{self, Read, Write},
    time::Instant,
};
use tandem_contracts::request::{Event, Outcome};
use tandem_engine::{Config, PrefixLimits, Subscription};

/// Runs the command.
pub(crate) fn run(arguments: &cli::Generate, verbose: bool) -> Result<()> {
    let text = prompt_text(&arguments.prompt)?;
    let model = wiring::start(&arguments.model, Config { prefix: PrefixLimits::OFF, ..Config::default() })?;
    let tokens = if arguments.raw {
        let encoded = model.text.tokenizer.encode_prompt(&text);
        encoded.map_err(|error| Error::new("the prompt was refused").because(error))?
    } else {
        let system = arguments.system.iter().map(|system| message("system", system));
        prompt(&model, &system.chain([message("user", &text)]).collect::<Vec<_>>())?
    };
    let subscription = submit(&model, tokens, &arguments.sampling, &arguments.stop)?;
    let result = print(subscription, verbose);
    model.engine.shutdown();
    // The process ends here and gives everything back at once; taking the tokeniser's maps apart first would take
    // a tenth of the time of a short answer.
    std::mem::forget(model);
    result
}

fn prompt_text(typed: &str) -> Result<String> {
    if typed != "-" {
        return Ok(typed.to_owned());
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|error| Error::new("standard input").because(error))?;
    Ok(text)
}

/// Prints an answer as it comes.
fn print(mut subscription: Subscription, verbose: bool) -> Result<()> {
    let (start, mut first) = (Instant::now(), None);
    let mut out = io::stdout();
    let broken = |error| Error::new("standard output").because(error);
    while let Some(event) = subscription.recv() {
        match event {
            Event::Progress { .. } | Event::Prompt { .. } => {}
            Event::Delta { text, .. } => {
                first.get_or_insert_with(|| start.elapsed());
                out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(broken)?;
            }
            Event::Finished { outcome: Outcome::Failed(failure), .. } => {
                return Err(Error::new("the answer failed").because(failure));
            }
            Event::Finished { usage, .. } => {
                writeln!(out).map_err(broken)?;
                if verbose {
                    let whole = start.elapsed();
                    eprintln!("{}", summary(usage, first.unwrap_or(whole), whole));
                }
                return Ok(());
            }
        }
    }
    Err(Error::new("the engine is gone"))
}
