//! What a reply's text is made of: reasoning, words, and calls of functions, in the way that the model's family
//! writes them.
//!
//! ```text
//!   template -> Style            how the family writes
//!   text, piece by piece -> Reply -> Part::{Reasoning, Text, Call, Arguments}
//! ```
//!
//! | module | what it reads |
//! |---|---|
//! | `tape` | characters, one at a time; parsers are futures that wait for the next |
//! | `style` | templates: which tags and which format |
//! | `object` | JSON objects: Hermes, Qwen, Llama 3, Mistral, Granite and others |
//! | `markup` | tags for each parameter: Qwen Coder, GLM, MiniCPM, MiniMax, DeepSeek V3.2 |
//! | `named` | a name and JSON: Kimi, DeepSeek, Mistral |
//! | `expression`, `literal` | Python's calls, Gemma's |
//! | `harmony` | GPT-OSS's channels |
//! | `json`, `function` | JSON on its way; declared functions and their parameters |
//!
//! Invariants: the parts do not depend on how the text was split; only declared functions are called; what begins like
//! a call and is none comes out as text, white space around calls and reasoning excepted.

mod expression;
mod function;
mod harmony;
mod json;
mod literal;
mod markup;
mod named;
mod object;
mod style;
mod tape;
#[cfg(test)]
mod tests;

pub use function::Functions;
pub use style::Style;
pub use tape::Part;

use std::{
    fmt,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Waker},
};
use style::{Format, Tags};
use tape::Tape;

/// One reply on its way.
pub struct Reply {
    tape: Tape,
    /// None once it has ended.
    parser: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

/// What a reply may hold.
#[derive(Clone, Debug)]
pub struct Expected {
    /// How it is written.
    pub style: Style,
    /// What it may call.
    pub functions: Arc<Functions>,
    /// Most calls that are handed out.
    pub calls: usize,
    /// Whether it begins inside its reasoning.
    pub opened: bool,
}

impl Reply {
    /// A reply that begins.
    pub fn new(expected: Expected) -> Self {
        let tape = Tape::new(expected.calls);
        let parser: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(read(tape.clone(), expected));
        Self { tape, parser: Mutex::new(Some(parser)) }
    }

    /// Takes more text and gives what is certain.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.tape.feed(text);
        self.run()
    }

    /// The text ends here: gives what was held back.
    pub fn finish(&mut self) -> Vec<Part> {
        self.tape.end();
        self.run()
    }

    /// Where reasoning stood in the text so far, tags included, in bytes.
    pub fn reasoning(&self) -> Vec<Range<usize>> {
        self.tape.reasoning()
    }

    fn run(&mut self) -> Vec<Part> {
        let parser = self.parser.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(future) = parser
            && future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        {
            *parser = None;
        }
        self.tape.parts()
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("tape", &self.tape).finish_non_exhaustive()
    }
}

/// Reads a whole reply.
async fn read(tape: Tape, expected: Expected) {
    let Expected { style, functions, opened, .. } = expected;
    if matches!(style.format, Some(Format::Harmony)) {
        return harmony::read(&tape, &functions).await;
    }
    let format = style.format.filter(|_| !functions.is_empty());
    // Whether white space is dropped until words begin.
    let mut lead = false;
    if opened && let Some(tags) = style.reasoning {
        think(&tape, tags, 0).await;
        lead = true;
    }
    let mut begun = false;
    if let Some(format) = format {
        begin(&tape, format, &functions).await;
    }
    loop {
        let tags = style.reasoning.filter(|tags| !begun || tags.open.starts_with("<|channel>"));
        let calls = format.map(Format::markers).unwrap_or_default();
        let markers: Vec<&str> = calls.iter().copied().chain(tags.map(|tags| tags.open)).collect();
        let give = |piece: &str| {
            tape.text(if lead { piece.trim_start() } else { piece });
            (begun, lead) = (true, false);
        };
        let (blank, found) = tape.until(&markers, give).await;
        match found {
            None => {
                if !lead {
                    tape.hold(blank);
                    tape.release();
                }
                return;
            }
            Some(index) if index < calls.len() => {
                tape.hold(blank + markers[index]);
                match call(&tape, format, &functions, markers[index]).await {
                    Some(()) => {
                        tape.forget();
                        lead = !begun;
                    }
                    None => {
                        tape.release();
                        (begun, lead) = (true, false);
                    }
                }
            }
            Some(index) => match tags.filter(|tags| !begun || tags.open.starts_with("<|channel>")) {
                Some(tags) => {
                    think(&tape, tags, tape.position() - tags.open.len()).await;
                    lead = !begun;
                }
                None => tape.text(&(blank + markers[index])),
            },
        }
    }
}

/// Calls that have no mark before them stand at the text's beginning.
async fn begin(tape: &Tape, format: Format, functions: &Functions) {
    let open = match format {
        Format::Bare(_) => '{',
        Format::Python("", _) => '[',
        _ => return,
    };
    tape.hold(String::new());
    tape.space().await;
    if tape.peek().await == Some(open) && call(tape, Some(format), functions, "").await.is_some() {
        tape.forget();
    }
    tape.release();
}

async fn call(tape: &Tape, format: Option<Format>, functions: &Functions, found: &str) -> Option<()> {
    match format? {
        Format::Object(_, close) => object::calls(tape, functions, close).await,
        Format::Bare(_) => object::calls(tape, functions, "").await,
        Format::Markup(markup) => markup.read(tape, functions, found).await,
        Format::Named(named) => named.read(tape, functions, found).await,
        Format::Mistral => named::mistral(tape, functions).await,
        Format::Python(_, close) => expression::python(tape, functions, close).await,
        Format::Gemma => expression::gemma(tape, functions).await,
        Format::Harmony => None,
    }
}

/// Reads reasoning after its opening tag, which began at `start`, up to its closing one. White space around it is
/// dropped.
async fn think(tape: &Tape, tags: Tags, start: usize) {
    let mut begun = false;
    let give = |piece: &str| {
        tape.think(if begun { piece } else { piece.trim_start() });
        begun = true;
        tape.reasoned(start);
    };
    tape.until(&[tags.close], give).await;
    tape.reasoned(start);
}
