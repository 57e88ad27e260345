//! One served model: its engine, its text, and what an absent field of a request means.

use crate::{
    error::{Error, ErrorKind},
    sampling,
    text::{
        AnswerText, Shown, Tokenizer,
        fill::Kept,
        reply::Style,
        template::{ChatTemplate, Conversation, Moment},
    },
};
use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{SystemTime, UNIX_EPOCH},
};
use tandem_contracts::{
    model::StatePolicy,
    sampling::Sampling,
    text::{StopMatcher, TokenId, Vocabulary},
};
use tandem_engine::EngineHandle;
use tandem_spec::grammar::{self, Compiler};

/// The text side of a model.
#[derive(Debug)]
pub struct ModelText {
    /// The tokeniser.
    pub tokenizer: Arc<Tokenizer>,
    /// The chat template; a model without one takes raw prompts only.
    pub template: Option<ChatTemplate>,
    /// What binds answers to grammars: made when the first one is asked for.
    grammars: OnceLock<Result<Compiler, grammar::Error>>,
    /// What its calls determine of answers.
    pub(crate) filled: Kept,
    /// How the model writes reasoning and calls.
    pub style: Style,
    /// What shows of special tokens in replies without functions, and with them.
    shown: [Shown; 2],
}

impl ModelText {
    /// A model's tokeniser with its template, in Jinja.
    ///
    /// # Errors
    /// [`ErrorKind::Template`]: the template does not compile.
    pub fn new(tokenizer: Tokenizer, template: Option<&str>) -> Result<Self, Error> {
        let style = template.map(Style::of).unwrap_or_default();
        let template = template.map(|source| ChatTemplate::new(source, tokenizer.template_variables()));
        let (template, tokenizer) = (template.transpose()?, Arc::new(tokenizer));
        let marks = |functions| [style.marks(functions), style.tagged().marks(functions)].concat();
        let shown = [false, true].map(|functions| shown(&tokenizer, &marks(functions)));
        let (grammars, filled) = (OnceLock::new(), Kept::default());
        Ok(Self { template, tokenizer, grammars, filled, style, shown })
    }

    /// What binds answers to grammars. The first call takes a moment.
    ///
    /// # Errors
    /// The vocabulary has no token that ends an answer.
    pub fn grammars(&self) -> Result<&Compiler, grammar::Error> {
        let made = self.grammars.get_or_init(|| Compiler::new(Arc::clone(&self.tokenizer) as _));
        made.as_ref().map_err(Clone::clone)
    }

    /// What shows of special tokens in a reply, so that its parts can be told apart.
    pub fn shown(&self, functions: bool) -> Shown {
        self.shown[usize::from(functions)].clone()
    }

    /// The text of one answer, which ends at any of these strings.
    pub fn answer(&self, stops: &[String]) -> Box<dyn StopMatcher> {
        self.answer_showing(stops, Shown::None)
    }

    /// The text of one answer that shows some special tokens.
    pub fn answer_showing(&self, stops: &[String], shown: Shown) -> Box<dyn StopMatcher> {
        Box::new(AnswerText::showing(Arc::clone(&self.tokenizer), stops, shown))
    }

    /// The template.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`]: there is none.
    pub fn template(&self) -> Result<&ChatTemplate, Error> {
        let none = || Error::new(ErrorKind::Refused, "this model has no chat template; use a raw prompt");
        self.template.as_ref().ok_or_else(none)
    }

    /// The text of a conversation, at this moment.
    ///
    /// # Errors
    /// The template refuses the conversation, or there is none.
    pub fn render(&self, conversation: &Conversation) -> Result<String, Error> {
        self.template()?.render(conversation, &Moment::now())
    }

    /// The tokens of a conversation, rendered by the template. No special token is added to what it renders.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn chat_prompt(&self, conversation: &Conversation) -> Result<Vec<TokenId>, Error> {
        self.tokenizer.encode_chat(&self.render(conversation)?)
    }
}

/// The special tokens that are marks, or parts of them.
fn shown(tokenizer: &Tokenizer, marks: &[&str]) -> Shown {
    let is_mark = |name: &str| !name.is_empty() && marks.iter().any(|mark| mark.contains(name));
    let name = |token| tokenizer.token_bytes(token).and_then(|bytes| str::from_utf8(bytes).ok());
    let special = (0..tokenizer.len() as TokenId).filter(|&token| tokenizer.is_special(token));
    Shown::These(special.filter(|&token| name(token).is_some_and(is_mark)).collect())
}

/// What requests get that do not say otherwise: the model's `generation_config.json`, else OpenAI's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens of an answer, whatever is asked for.
    pub max_tokens: Option<usize>,
}

impl Defaults {
    /// Those of a `generation_config.json`; fields that are absent, of another type or out of range keep OpenAI's
    /// defaults. A file that says `do_sample: false` is greedy.
    pub fn from_generation_config(bytes: &[u8]) -> Self {
        Self { sampling: sampling::of_generation_config(bytes), max_tokens: None }
    }
}

/// Bytes of a text that may become one before it is encoded: composed characters are a third of their parts.
const NORMALISED: usize = 4;

/// Whether parts of answers that requests determine are chosen all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filling {
    /// They are.
    #[default]
    Off,
    /// What a call's form leaves no choice of is filled in.
    Strict,
    /// That, and what stood before in the text, is proposed and verified.
    Echo,
}

/// A model as clients know it.
pub struct ServedModel {
    /// Name in requests.
    pub name: String,
    /// Its engine.
    pub engine: EngineHandle,
    /// Its text.
    pub text: ModelText,
    /// What absent fields mean.
    pub defaults: Defaults,
    /// Ways to keep keys and values that its engine has, by the names that requests know them by (`kv_quant`).
    pub states: Vec<(String, StatePolicy)>,
    /// What is filled in of answers.
    pub fill: Filling,
    /// Unix time in seconds at which it was put up.
    pub created: u64,
}

impl ServedModel {
    /// A model that is put up now.
    pub fn new(name: String, engine: EngineHandle, text: ModelText, defaults: Defaults) -> Self {
        let (states, fill) = (Vec::new(), Filling::Off);
        Self { name, engine, text, defaults, states, fill, created: unix_seconds() }
    }

    /// The model's context, where a text is so long that it cannot be within it: making tokens of all that a body may hold
    /// takes minutes and gigabytes.
    pub(crate) fn exceeded(&self, text: &str) -> Option<usize> {
        self.exceeds(text.len())
    }

    /// The same of a text of so many bytes, or of as many tokens, as each is of one at least.
    pub(crate) fn exceeds(&self, bytes: usize) -> Option<usize> {
        let context = self.engine.capabilities()?.context;
        let most = context.saturating_mul(self.text.tokenizer.longest()).saturating_mul(NORMALISED);
        (bytes > most).then_some(context)
    }
}

impl fmt::Debug for ServedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedModel").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Seconds since 1970; 0 on a machine whose clock is before that.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
