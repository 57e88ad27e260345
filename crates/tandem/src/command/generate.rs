//! `tandem generate`: one prompt, one answer on standard output.

use super::{Prompt, answer::Printer, message, submit};
use crate::{
    cli,
    error::{Error, Result},
    wiring,
};
use std::io::{self, Read};
use tandem_engine::{Config, PrefixLimits, Subscription};

/// Runs the command.
pub(crate) fn run(arguments: &cli::Generate, verbose: bool) -> Result<()> {
    let text = prompt_text(&arguments.prompt)?;
    let model = wiring::start(&arguments.model, Config { prefix: PrefixLimits::OFF, ..Config::default() })?;
    let prompt = if arguments.raw {
        Prompt::of_raw(&model, &text)?
    } else {
        let system = arguments.system.iter().map(|system| message("system", system));
        Prompt::of_chat(&model, &system.chain([message("user", &text)]).collect::<Vec<_>>())?
    };
    let printer = Printer::new(&model.text, &prompt);
    let subscription = submit(&model, prompt, &arguments.sampling, &arguments.stop)?;
    let result = print(printer, subscription, verbose);
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
fn print(mut printer: Printer, mut subscription: Subscription, verbose: bool) -> Result<()> {
    loop {
        if let Some(ended) = printer.take(subscription.recv())? {
            if verbose {
                eprintln!("{}", ended.summary());
            }
            return Ok(());
        }
    }
}
