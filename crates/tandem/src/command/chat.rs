//! `tandem chat`: a conversation in the terminal.
//!
//! Ctrl-C stops an answer; at the prompt, or a second time, it leaves. The history keeps what was said, also of an
//! answer that was stopped.

use super::{message, prompt, submit};
use crate::{
    cli,
    error::{Error, Result},
    wiring,
};
use serde_json::Value;
use std::io::{self, IsTerminal, Write};
use tandem_contracts::request::{Event, Outcome};
use tandem_engine::{Config, Subscription};
use tandem_serve::model::ServedModel;

/// How an answer ended for the conversation.
enum Ended {
    Whole(String),
    Stopped(String),
}

/// Runs the command.
pub(crate) fn run(arguments: &cli::Chat) -> Result<()> {
    let model = wiring::start(&arguments.model, Config::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new("no runtime could be started").because(error))?;
    let result = runtime.block_on(converse(&model, arguments));
    model.engine.shutdown();
    // A thread may still wait for a line of standard input; it need not be waited for.
    runtime.shutdown_background();
    result
}

async fn converse(model: &ServedModel, arguments: &cli::Chat) -> Result<()> {
    if io::stdin().is_terminal() {
        eprintln!("{}: type a message; Ctrl-C stops an answer, Ctrl-D leaves.", model.name);
    }
    let mut messages: Vec<Value> = arguments.system.iter().map(|system| message("system", system)).collect();
    while let Some(line) = read_line().await? {
        if line.trim().is_empty() {
            continue;
        }
        messages.push(message("user", line.trim_end_matches(['\r', '\n'])));
        let tokens = prompt(model, &messages)?;
        let ended = match submit(model, tokens, &arguments.sampling, &[]) {
            Ok(subscription) => answer(subscription).await?,
            Err(error) => {
                // A conversation that has become too long for the model is not the end of the program.
                eprintln!("{}", error.render(false));
                messages.pop();
                continue;
            }
        };
        let (Ended::Whole(text) | Ended::Stopped(text)) = &ended;
        messages.push(message("assistant", text));
        if matches!(ended, Ended::Stopped(_)) {
            eprintln!("(stopped; Ctrl-C again leaves)");
        }
    }
    Ok(())
}

/// The next line of standard input; `None` at its end and on Ctrl-C.
async fn read_line() -> Result<Option<String>> {
    if io::stdin().is_terminal() {
        print!("> ");
        // A terminal that cannot be written to is met at the next write.
        let _ = io::stdout().flush();
    }
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|bytes| (bytes > 0).then_some(line))
    });
    tokio::select! {
        line = read => match line {
            Ok(line) => line.map_err(|error| Error::new("standard input").because(error)),
            Err(error) => Err(Error::new("standard input").because(error)),
        },
        _ = tokio::signal::ctrl_c() => {
            println!();
            Ok(None)
        }
    }
}

/// Prints an answer as it comes.
async fn answer(mut subscription: Subscription) -> Result<Ended> {
    let mut said = String::new();
    let mut out = io::stdout();
    loop {
        let event = tokio::select! {
            event = subscription.next() => event,
            // Dropping the subscription cancels the row.
            _ = tokio::signal::ctrl_c() => {
                println!();
                return Ok(Ended::Stopped(said));
            }
        };
        match event {
            Some(Event::Progress { .. } | Event::Prompt { .. }) => {}
            Some(Event::Delta { text, .. }) => {
                said.push_str(&text);
                let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
                written.map_err(|error| Error::new("standard output").because(error))?;
            }
            Some(Event::Finished { outcome: Outcome::Failed(failure), .. }) => {
                return Err(Error::new("the answer failed").because(failure));
            }
            Some(Event::Finished { .. }) => {
                println!();
                return Ok(Ended::Whole(said));
            }
            None => return Err(Error::new("the engine is gone")),
        }
    }
}
