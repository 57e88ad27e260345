//! What drafts and grammars save and cost: each figure a ratio of two measurements of one turn, held to a bar.

mod rounds;
#[path = "../../../../crates/spec/benches/vocabulary/mod.rs"]
mod vocabulary;

use super::{
    engine::{
        client::{self, Stream, read_until},
        figure::{self, Bar, Figure},
    },
    report::median,
};
use crate::{Result, host::request, quality};
use serde_json::{Value, json};
use std::{
    fs,
    hint::black_box,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};
use tandem_contracts::{
    request::Request,
    sampling::Sampling,
    text::{TokenId, Vocabulary},
};
use tandem_engine::{Config, Draft, Drafting, EngineHandle, Runs};
use tandem_models::{Checkpoint, Source, weights::File};
use tandem_serve::text::Tokenizer;
use tandem_spec::grammar::{Compiler, Grammar};
use vocabulary::Ranks;

/// Most tokens of a copy.
const COPY: usize = 480;
/// Tokens of any other answer.
const ANSWER: usize = 320;
/// Rows that draft together.
const ROWS: usize = 8;
/// Tokens of each of their answers.
const EACH: usize = 96;
/// So many times the turns of other measurements where a ratio is held to be next to 1.
const CLOSE: usize = 3;
/// Tokens of a vocabulary of many languages, and those of its model's table.
const WIDE: (usize, usize) = (151_643, 151_936);
/// Masks that are timed.
const MASKS: usize = 400;

/// What is copied with one word changed.
const TEXT: &str = "The lighthouse stood on the northern cliff, where the wind never rested and the gulls circled all \
    day. Every evening the keeper climbed the narrow stairs with a lamp in one hand and a can of oil in the other. He had \
    counted the steps so often that he no longer knew whether he counted them or they counted him. From the gallery he saw \
    the fishing boats return, one after the other, and he knew each of them by the colour of its sail. The red one belonged \
    to the brothers from the mill, the white one to the widow, and the brown one to nobody who would admit it. When the \
    last of them had passed the breakwater he lit the lamp, wound the clockwork, and wrote the hour into his book. In all \
    his years he had missed one evening, and of that evening he never spoke. The book had a blank line there, and under it, \
    in a hand that was not his own, three words that no visitor had ever been allowed to read. On the first day of November a \
    woman came up the path with a leather bag and a letter from the harbour office. She said that she was to count the lamps, \
    the barrels and the ropes, and to write down what was missing. The keeper gave her tea, and while she drank it he carried \
    the book into the cellar. She counted for two days, and she found everything in its place but one barrel, which had been \
    sold to the mill in a hard winter. On the third morning she asked him for the book. He told her that the sea had taken it, \
    and she looked at the dry stairs and the dry floor, and wrote something down that he could not read.";

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A GGUF file.
    pub model: PathBuf,
    /// A file of ranks, as `tiktoken` writes them.
    pub vocabulary: PathBuf,
    /// Threads.
    pub threads: NonZeroUsize,
    /// Turns of each measurement; medians count.
    pub repeat: usize,
    /// Only parts whose name holds this.
    pub only: String,
    /// Whether to show what each round of drafts did instead.
    pub rounds: bool,
}

struct Rig {
    engine: EngineHandle,
    plain: EngineHandle,
    tokenizer: Arc<Tokenizer>,
    grammars: Compiler,
    repeat: usize,
}

/// Measures, and prints a table.
///
/// # Errors
/// Those of any part; and a bar is not held, after all figures were shown.
pub fn run(plan: &Plan) -> Result<()> {
    let bytes = fs::read(&plan.model)?;
    let checkpoint = Checkpoint::open(Source::Gguf(File { name: "model.gguf", bytes: &bytes }))?;
    let tokenizer = Arc::new(quality::tokenizer(&checkpoint)?);
    drop(checkpoint);
    let engine =
        |drafting| client::engine(&plan.model, plan.threads, Config { drafting, ..Config::default() });
    let past = Drafting { draft: Draft::Past(Runs::default()), ..Drafting::default() };
    let grammars = Compiler::new(Arc::clone(&tokenizer) as _)?;
    let mut rig = Rig {
        engine: engine(past)?,
        plain: engine(Drafting::OFF)?,
        tokenizer,
        grammars,
        repeat: plan.repeat,
    };
    println!("{}, {} threads, {} turns", plan.model.display(), plan.threads, plan.repeat);
    if plan.rounds {
        return rounds::show(&rig, plan);
    }
    let wanted = |part: &str| part.contains(&plan.only);
    let mut figures = Vec::new();
    if wanted("past") {
        figures.append(&mut rig.past()?);
    }
    rig.engine.shutdown();
    rig.engine = engine(Drafting::default())?;
    if wanted("grammar") {
        figures.append(&mut rig.grammar()?);
    }
    if wanted("masks") {
        figures.extend([rig.masks()?, rig.wide_masks(&plan.vocabulary)?]);
    }
    rig.engine.shutdown();
    rig.plain.shutdown();
    figure::report(&figures)
}

impl Rig {
    fn prompt(&self, text: &str) -> Result<Vec<TokenId>> {
        let chat = format!("<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n");
        Ok(self.tokenizer.encode_chat(&chat)?)
    }

    /// Seconds that all requests take behind their first tokens, and their tokens in that time; and the share of accepted drafts.
    fn speed(engine: &EngineHandle, requests: Vec<Request>) -> Result<(f64, Vec<Vec<TokenId>>)> {
        let mut streams =
            requests.into_iter().map(|it| Stream::open(engine, it)).collect::<Result<Vec<_>>>()?;
        read_until(&mut streams, |all| all.iter().all(|stream| stream.outcome.is_some()))?;
        let times = || streams.iter().flat_map(|stream| &stream.tokens).map(|token| token.1);
        let firsts = streams.iter().filter_map(|stream| stream.tokens.first()).map(|token| token.1);
        let (begin, end) = firsts.max().zip(times().max()).ok_or("no row decoded")?;
        let tokens = times().filter(|time| *time > begin).count();
        let answers =
            streams.iter().map(|stream| stream.tokens.iter().map(|token| token.0).collect()).collect();
        Ok((tokens as f64 / (end - begin).as_secs_f64(), answers))
    }

    /// The speed of requests with drafts, of that without.
    fn ratio(&self, name: &str, bar: f64, requests: impl Fn() -> Result<Vec<Request>>) -> Result<Figure> {
        let measure = |engine: &EngineHandle| Self::speed(engine, requests()?);
        let ratios = self.turns(
            bar,
            || measure(&self.engine),
            || measure(&self.plain),
            |drafting, plain| match drafting == plain {
                true => Ok(()),
                false => Err(format!("{name}: drafts have changed an answer").into()),
            },
        )?;
        Ok(Figure::new(name, "", ratios, Bar::AtLeast(bar)))
    }

    /// Speeds of the one, of those of the other, in turns; `check` sees the answers of both. The machine drifts from one
    /// measurement to the next, so each is first in every other turn, and bars that are closer to that drift get more turns.
    fn turns(
        &self,
        bar: f64,
        one: impl Fn() -> Result<(f64, Vec<Vec<TokenId>>)>,
        other: impl Fn() -> Result<(f64, Vec<Vec<TokenId>>)>,
        check: impl Fn(&[Vec<TokenId>], &[Vec<TokenId>]) -> Result<()>,
    ) -> Result<Vec<f64>> {
        let turns = if bar < 1.0 { CLOSE * self.repeat } else { self.repeat };
        let mut ratios = Vec::new();
        for turn in 0..=turns {
            let ((own, answers), (base, expected)) = match turn % 2 {
                0 => (one()?, other()?),
                _ => {
                    let base = other()?;
                    (one()?, base)
                }
            };
            check(&answers, &expected)?;
            // The first turn grows buffers; it does not count.
            if turn > 0 {
                ratios.push(own / base);
            }
        }
        Ok(ratios)
    }

    /// A request for an answer that ends where the model ends it.
    fn ending(&self, prompt: Vec<TokenId>) -> Request {
        let end_tokens = self.tokenizer.end_tokens().to_vec();
        Request { end_tokens, ignore_end: false, ..request(prompt, COPY) }
    }

    /// Asks for the text with one word changed.
    fn copy(&self) -> Result<Vec<TokenId>> {
        self.prompt(&format!(
            "Write the following text once more, word for word, but with \"oil\" changed to \"tar\":\n\n{TEXT}"
        ))
    }

    fn past(&self) -> Result<Vec<Figure>> {
        let copy = self.copy()?;
        let story = self.prompt("Tell me a strange story about a town that has never seen the sea.")?;
        let sampled = |seed| Sampling { temperature: 1.5, seed, ..Sampling::default() };
        Ok(vec![
            self.ratio("a copy, of plain decoding", 1.8, || Ok(vec![self.ending(copy.clone())]))?,
            self.ratio("a text without repetition, of plain decoding", 0.97, || {
                Ok(vec![Request { sampling: sampled(7), ..request(story.clone(), ANSWER) }])
            })?,
            self.ratio("8 rows that draft, of plain decoding", 0.97, || {
                let row = |seed| Request { sampling: sampled(seed), ..request(copy.clone(), EACH) };
                Ok((0..ROWS as u64).map(row).collect())
            })?,
        ])
    }

    fn grammar(&self) -> Result<Vec<Figure>> {
        let compiled = self.grammars.compile(&Grammar::Schema(schema()))?;
        let prompt = self.prompt("Describe an order of three chairs as JSON.")?;
        let bound =
            || Ok(vec![Request { grammar: Some(compiled.matcher()), ..request(prompt.clone(), ANSWER) }]);
        let drafts = self.ratio("a schema with drafts, of the same without", 1.5, bound)?;
        let free = || Self::speed(&self.plain, vec![request(prompt.clone(), ANSWER)]);
        let tied = self.turns(0.9, || Self::speed(&self.plain, bound()?), free, |_, _| Ok(()))?;
        Ok(vec![
            drafts,
            Figure::new("a schema without drafts, of free decoding", "", tied, Bar::AtLeast(0.9)),
        ])
    }

    /// The model's answer to the schema.
    fn order(&self) -> Result<Vec<TokenId>> {
        let compiled = self.grammars.compile(&Grammar::Schema(schema()))?;
        let bound = Request {
            grammar: Some(compiled.matcher()),
            ..request(self.prompt("Describe an order.")?, ANSWER)
        };
        let (_, mut answers) = Self::speed(&self.plain, vec![bound])?;
        answers.pop().ok_or_else(|| "no answer".into())
    }

    fn masks(&self) -> Result<Figure> {
        masks(&self.grammars, self.tokenizer.len(), &self.order()?)
    }

    /// The same text over a vocabulary of many languages.
    fn wide_masks(&self, vocabulary: &Path) -> Result<Figure> {
        let order = self.order()?;
        let bytes: Vec<&[u8]> = order.iter().filter_map(|&token| self.tokenizer.token_bytes(token)).collect();
        let wide = Arc::new(Ranks::read(vocabulary, WIDE.0, WIDE.1)?);
        let tokens = wide.encode(&String::from_utf8(bytes.concat())?);
        masks(&Compiler::new(wide)?, WIDE.1, &tokens)
    }
}

/// A mask of every state of an answer of the schema.
fn masks(grammars: &Compiler, width: usize, answer: &[TokenId]) -> Result<Figure> {
    let compiled = grammars.compile(&Grammar::Schema(schema()))?;
    let mut times = Vec::new();
    while times.len() < MASKS {
        let mut matcher = compiled.matcher();
        for &token in answer {
            let begun = Instant::now();
            black_box(matcher.allowed().map_err(|failure| failure.message)?);
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            matcher.accept(token).map_err(|failure| failure.message)?;
        }
    }
    let median = median(&times).ok_or("no mask")?;
    Ok(Figure::new(format!("a mask over {width} tokens"), "µs", vec![median], Bar::AtMost(100.0)))
}

/// Long names, enumerations, and few values.
fn schema() -> Value {
    let line = json!({
        "type": "object",
        "properties": {
            "manufacturer_identification": {"enum": ["northern-furniture-works", "southern-furniture-works"]},
            "quantity_in_whole_pieces": {"type": "integer", "minimum": 1, "maximum": 99},
            "requires_special_packaging": {"type": "boolean"},
            "preferred_delivery_window": {"enum": ["early-morning", "late-morning", "early-afternoon", "late-afternoon"]},
        },
        "required": ["manufacturer_identification", "quantity_in_whole_pieces", "requires_special_packaging", "preferred_delivery_window"],
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "properties": {
            "customer_reference_number": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{4}$"},
            "order_confirmation_language": {"enum": ["english-international", "german-austrian"]},
            "ordered_product_lines": {"type": "array", "items": line, "minItems": 3, "maxItems": 3},
        },
        "required": ["customer_reference_number", "order_confirmation_language", "ordered_product_lines"],
        "additionalProperties": false,
    })
}
