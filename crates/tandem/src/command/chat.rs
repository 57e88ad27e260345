//! `tandem chat`: a conversation in the terminal.
//!
//! Ctrl-C stops an answer; at the prompt it leaves. The conversation keeps what was said, also of an answer that was
//! stopped; reasoning is shown and not kept.

use super::{Prompt, answer::Printer, message, submit};
use crate::{
    cli,
    error::{Error, Result},
    terminal::Lines,
    wiring,
};
use serde_json::Value;
use tandem_engine::{Config, Subscription};
use tandem_serve::model::ServedModel;

/// What a person can type besides messages.
const COMMANDS: &str = "\
/new   begin a new conversation
/help  show this
/exit  leave, as Ctrl-D does

A line that ends with \\ goes on with the next. Ctrl-C stops an answer; at the prompt it leaves.";

/// Runs the command.
pub(crate) fn run(arguments: &cli::Chat, verbose: bool) -> Result<()> {
    let model = wiring::start(&arguments.model, Config::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new("no runtime could be started").because(error))?;
    let result = runtime.block_on(converse(&model, arguments, verbose));
    model.engine.shutdown();
    // A thread may still wait for a line of standard input; it need not be waited for.
    runtime.shutdown_background();
    result
}

async fn converse(model: &ServedModel, arguments: &cli::Chat, verbose: bool) -> Result<()> {
    let mut lines = Lines::open(arguments.history_file());
    if lines.are_edited() {
        eprintln!("{}: type a message, or /help. Ctrl-C stops an answer, Ctrl-D leaves.", model.name);
    }
    let begin = || arguments.system.iter().map(|system| message("system", system)).collect::<Vec<Value>>();
    let mut messages = begin();
    while let Some(line) = lines.next().await? {
        // In a pipe a line is a message, whatever it begins with.
        match line.trim() {
            "" => {}
            "/exit" | "/quit" if lines.are_edited() => break,
            "/help" if lines.are_edited() => eprintln!("{COMMANDS}"),
            "/new" if lines.are_edited() => {
                messages = begin();
                eprintln!("(a new conversation)");
            }
            _ => say(model, arguments, verbose, (line.as_str(), &mut messages)).await?,
        }
    }
    Ok(())
}

/// Sends a message and prints its answer.
async fn say(
    model: &ServedModel,
    arguments: &cli::Chat,
    verbose: bool,
    (line, messages): (&str, &mut Vec<Value>),
) -> Result<()> {
    messages.push(message("user", line));
    let prompt = Prompt::of_chat(model, messages)?;
    let printer = Printer::new(&model.text, &prompt);
    match submit(model, prompt, &arguments.sampling, &[]) {
        Ok(subscription) => {
            let said = answer(printer, subscription, verbose).await?;
            messages.push(message("assistant", &said));
        }
        Err(error) => {
            // A conversation that has become too long for the model is not the end of the program.
            eprintln!("{}", error.render(verbose));
            messages.pop();
        }
    }
    Ok(())
}

/// Prints an answer as it comes, and gives what was said.
async fn answer(mut printer: Printer, mut subscription: Subscription, verbose: bool) -> Result<String> {
    loop {
        let event = tokio::select! {
            event = subscription.next() => event,
            // Dropping the subscription cancels the row.
            _ = tokio::signal::ctrl_c() => {
                printer.line()?;
                eprintln!("(stopped; Ctrl-C again leaves)");
                return Ok(printer.said());
            }
        };
        if let Some(ended) = printer.take(event)? {
            if verbose {
                eprintln!("{}", ended.summary());
            }
            return Ok(printer.said());
        }
    }
}
