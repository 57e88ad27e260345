//! Compiles grammars for one vocabulary, within bounds, and remembers the last ones.

use super::{Error, Grammar, environment::Environment, gbnf, matcher::Bound, schema};
use llguidance::{
    Matcher as Engine, ParserFactory, TokenParser,
    api::{GrammarWithLexer, ParserLimits, TopLevelGrammar},
    earley::SlicedBiasComputer,
    toktrie::{InferenceCapabilities, TokEnv},
};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};
use tandem_contracts::{grammar::Matcher, text::Vocabulary};

/// Grammars that are remembered.
const REMEMBERED: usize = 32;

/// Most bytes of a grammar's text.
const LONGEST: usize = 256 << 10;

/// Most choices of a list.
const CHOICES: usize = 4096;

/// Compiles grammars for one model.
pub struct Compiler {
    factory: ParserFactory,
    /// The most recently used last.
    remembered: Mutex<Vec<(Grammar, Compiled)>>,
}

/// A grammar that answers can be bound to. Cheap to clone.
#[derive(Clone)]
pub struct Compiled {
    /// Before the first token. It is never advanced, but copied.
    parser: Arc<TokenParser>,
}

impl Compiler {
    /// For the tokens of a vocabulary. Takes a moment: a tree of all tokens is built.
    ///
    /// # Errors
    /// No token ends an answer.
    pub fn new(vocabulary: Arc<dyn Vocabulary>) -> Result<Self, Error> {
        let environment = Environment::new(vocabulary).ok_or_else(|| {
            Error::new("grammars need a token that ends an answer, this vocabulary has none")
        })?;
        let environment: TokEnv = Arc::new(environment);
        let slices = SlicedBiasComputer::general_slices();
        let factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices);
        let mut factory = factory.map_err(|error| Error::new(line(&error.to_string())))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Self { factory, remembered: Mutex::default() })
    }

    /// Compiles a grammar, or finds it among the last ones.
    ///
    /// # Errors
    /// What is wrong with it, and where; or that it takes more time or memory than it may.
    pub fn compile(&self, grammar: &Grammar) -> Result<Compiled, Error> {
        if let Some(known) = self.recall(grammar) {
            return Ok(known);
        }
        let parser = self.parse(grammar)?;
        let compiled = Compiled { parser: Arc::new(parser) };
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED {
            remembered.remove(0);
        }
        remembered.push((grammar.clone(), compiled.clone()));
        Ok(compiled)
    }

    fn recall(&self, grammar: &Grammar) -> Option<Compiled> {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let place = remembered.iter().position(|(known, _)| known == grammar)?;
        let found = remembered.remove(place);
        let compiled = found.1.clone();
        remembered.push(found);
        Some(compiled)
    }

    fn parse(&self, grammar: &Grammar) -> Result<TokenParser, Error> {
        let definition = match grammar {
            Grammar::Object => GrammarWithLexer::from_json_schema(schema::object()),
            Grammar::Schema(schema) => return self.parse_schema(schema),
            Grammar::Regex(regex) => GrammarWithLexer::from_regex(unanchored(short(regex)?)),
            Grammar::Choice(choices) => GrammarWithLexer::from_regex(&alternatives(choices)?),
            Grammar::Text(text) if text.contains("::=") => {
                GrammarWithLexer::from_lark(gbnf::to_lark(short(text)?)?)
            }
            Grammar::Text(text) => GrammarWithLexer::from_lark(short(text)?.to_owned()),
        };
        self.build(definition)
    }

    fn parse_schema(&self, schema: &serde_json::Value) -> Result<TokenParser, Error> {
        short(&schema.to_string())?;
        schema::check(schema)?;
        let build = |schema: &serde_json::Value| {
            self.build(GrammarWithLexer::from_json_schema(schema::with_options(schema)))
        };
        build(schema).map_err(|error| {
            let fails = |part: &serde_json::Value| build(part).err().map(|error| error.message);
            schema::locate(schema, fails).unwrap_or(Error { place: Some(String::new()), ..error })
        })
    }

    fn build(&self, definition: GrammarWithLexer) -> Result<TokenParser, Error> {
        let parser = self.factory.create_parser(TopLevelGrammar::from_grammar(definition));
        let mut parser = parser.map_err(|error| Error::new(line(&error.to_string())))?;
        parser.start_without_prompt();
        Ok(parser)
    }
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler").finish_non_exhaustive()
    }
}

impl Compiled {
    /// Binds one answer.
    pub fn matcher(&self) -> Box<dyn Matcher> {
        Box::new(Bound::new(Engine::new(Ok(self.parser.deep_clone()))))
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

/// About 20 ms for a grammar, 10 ms for a token, and 64 MB for the states of one answer.
fn limits() -> ParserLimits {
    ParserLimits {
        max_lexer_states: 32_000,
        max_grammar_size: 200_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

fn short(text: &str) -> Result<&str, Error> {
    match text.len() {
        0..=LONGEST => Ok(text),
        length => Err(Error::new(format!("a grammar has at most {LONGEST} bytes, got: {length}"))),
    }
}

/// A whole text is matched in any case.
fn unanchored(regex: &str) -> &str {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    match regex.strip_suffix('$') {
        Some(rest) if rest.len() == rest.trim_end_matches('\\').len() => rest,
        _ => regex,
    }
}

/// A regular expression of just these texts.
fn alternatives(choices: &[String]) -> Result<String, Error> {
    if !(1..=CHOICES).contains(&choices.len()) {
        return Err(Error::new(format!(
            "a list of choices has 1 to {CHOICES} texts, got: {}",
            choices.len()
        )));
    }
    if choices.iter().any(String::is_empty) {
        return Err(Error::new("a choice is empty"));
    }
    let escaped = choices.iter().map(|choice| {
        let mut text = String::new();
        for character in choice.chars() {
            if !(character.is_alphanumeric() || character == ' ')
                && character.is_ascii()
                && !character.is_control()
            {
                text.push('\\');
            }
            text.push(character);
        }
        text
    });
    let alternatives = format!("(?:{})", escaped.collect::<Vec<_>>().join("|"));
    short(&alternatives)?;
    Ok(alternatives)
}

/// An error of the library in one line, without its word for that it says no more.
pub(super) fn line(message: &str) -> String {
    let message = message.strip_suffix("<non-verbose/>").unwrap_or(message);
    let words: Vec<&str> = message.split_whitespace().collect();
    let mut line = words.join(" ");
    if let Some(cut) = line.char_indices().nth(400) {
        line.truncate(cut.0);
    }
    line
}
