//! How a model writes its replies: what its chat template shows of it.

use super::{
    markup::{self, Markup},
    named::{self, Named},
};

/// How calls are written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    /// JSON objects between tags.
    Object(&'static str, &'static str),
    /// JSON objects that are the whole text, perhaps behind a tag.
    Bare(&'static str),
    Markup(&'static Markup),
    Named(&'static Named),
    Mistral,
    /// Python's calls between tags, or as the whole text where there are none.
    Python(&'static str, &'static str),
    Gemma,
    Harmony,
}

/// What shows in a template that its model writes calls so. The first that shows wins.
static FORMATS: &[(&[&str], Format)] = &[
    (&["<|channel|>", "<|message|>"], Format::Harmony),
    (&["<|tool_call>call:"], Format::Gemma),
    (&["｜DSML｜", "tool_calls>"], Format::Markup(&markup::DEEPSEEK_4)),
    (&["｜DSML｜"], Format::Markup(&markup::DEEPSEEK_MARKUP)),
    (&["<｜tool▁calls▁begin｜>"], Format::Named(&named::DEEPSEEK)),
    (&["<|tool_calls_section_begin|>"], Format::Named(&named::KIMI)),
    (&["<|tool_call:begin|>"], Format::Named(&named::SOLAR)),
    (&["[TOOL_CALLS]"], Format::Mistral),
    (&["<minimax:tool_call>"], Format::Markup(&markup::MINIMAX)),
    (&["<seed:tool_call>"], Format::Markup(&markup::SEED)),
    (&["<function name=\\\"", "<param name="], Format::Markup(&markup::MINICPM)),
    (&["<function name=\"", "<param name="], Format::Markup(&markup::MINICPM)),
    (&["<tool_call>", "<arg_key>"], Format::Markup(&markup::GLM)),
    (&["<tool_call>", "<function="], Format::Markup(&markup::QWEN)),
    (&["<|tool_call_start|>"], Format::Python("<|tool_call_start|>", "<|tool_call_end|>")),
    (&["<|python_start|>"], Format::Python("<|python_start|>", "<|python_end|>")),
    (&["<TOOLCALL>"], Format::Object("<TOOLCALL>", "</TOOLCALL>")),
    (&["<|START_ACTION|>"], Format::Object("<|START_ACTION|>", "<|END_ACTION|>")),
    (&["<tool_calls>"], Format::Object("<tool_calls>", "</tool_calls>")),
    (&["<tool_call>", "tool_calls"], Format::Object("<tool_call>", "</tool_call>")),
    (&["<function=", "</function>"], Format::Named(&named::FUNCTIONARY)),
    (&["<|function_call|>"], Format::Object("<|function_call|>", "")),
    (&["[func_name1(params_name1=params_value1"], Format::Python("", "")),
    (&["<|python_tag|>"], Format::Bare("<|python_tag|>")),
    (&["\"parameters\"", "<|eot_id|>"], Format::Bare("<|python_tag|>")),
];

/// Tags of reasoning. The first whose closing tag shows wins.
static REASONING: &[Tags] = &[
    Tags { open: "<|channel>thought", close: "<channel|>" },
    Tags { open: "<think>", close: "</think>" },
    Tags { open: "[THINK]", close: "[/THINK]" },
    Tags { open: "<|START_THINKING|>", close: "<|END_THINKING|>" },
    Tags { open: "<seed:think>", close: "</seed:think>" },
    Tags { open: "<mm:think>", close: "</mm:think>" },
];

/// Where reasoning begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tags {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
}

/// How a model writes its replies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    pub(super) reasoning: Option<Tags>,
    pub(super) format: Option<Format>,
}

impl Style {
    /// That of a model with this chat template.
    pub fn of(template: &str) -> Self {
        let shows = |needles: &&[&str]| needles.iter().all(|needle| template.contains(needle));
        let format = FORMATS.iter().find(|(needles, _)| shows(needles)).map(|(_, format)| *format);
        let reasoning = REASONING.iter().find(|tags| template.contains(tags.close)).copied();
        Self { reasoning, format }
    }

    /// Whether a reply to this prompt begins inside its reasoning.
    pub fn opened(&self, prompt: &str) -> bool {
        self.reasoning.is_some_and(|tags| prompt.trim_end().ends_with(tags.open))
    }

    /// A prompt behind which words come: one that opens reasoning closes it.
    pub fn thought(&self, mut prompt: String) -> String {
        if let Some(tags) = self.reasoning.filter(|_| self.opened(&prompt)) {
            prompt.push_str(tags.close);
            prompt.push_str("\n\n");
        }
        prompt
    }

    /// Whether reasoning is told from words.
    pub fn reasons(&self) -> bool {
        self.reasoning.is_some() || matches!(self.format, Some(Format::Harmony))
    }

    /// Whether the model writes calls in a way that is known.
    pub fn calls(&self) -> bool {
        self.format.is_some()
    }

    /// What begins calls inside a text; none where it cannot be told from words.
    pub fn markers(&self) -> Vec<&'static str> {
        self.format.map_or_else(Vec::new, Format::markers)
    }

    /// This style with calls as JSON in `<tool_call>` tags, for a model that was told to write them so.
    #[must_use]
    pub fn tagged(self) -> Self {
        Self { format: Some(Format::Object("<tool_call>", "</tool_call>")), ..self }
    }

    /// That of a reply that is bound to one call as a JSON object.
    pub fn object() -> Self {
        Self { reasoning: None, format: Some(Format::Bare("")) }
    }

    /// An id for a call, of a form that the model's template takes back; `random` makes it unique.
    pub fn call_id(&self, name: &str, index: usize, random: u64) -> String {
        match self.format {
            Some(Format::Mistral) => format!("{random:016x}")[..9].to_owned(),
            Some(Format::Named(named)) if std::ptr::eq(named, &raw const named::KIMI) => {
                format!("functions.{name}:{index}")
            }
            _ => format!("call_{random:016x}"),
        }
    }

    /// The texts that tell parts of a reply apart: where a tokeniser has them as special tokens, they must show.
    /// Those of calls are needed only where there are functions.
    pub fn marks(&self, functions: bool) -> Vec<&'static str> {
        let mut marks: Vec<&str> =
            self.reasoning.iter().flat_map(|tags| [tags.open, tags.close, "<|channel>"]).collect();
        match self.format {
            Some(Format::Harmony) => marks.extend(super::harmony::MARKS),
            Some(format) if functions => marks.extend(format.marks()),
            _ => {}
        }
        marks.retain(|mark| !mark.is_empty());
        marks
    }
}

impl Format {
    /// What may begin calls inside a text.
    pub(super) fn markers(self) -> Vec<&'static str> {
        let all = match self {
            Self::Object(open, _) | Self::Bare(open) | Self::Python(open, _) => vec![open],
            Self::Markup(markup) => markup.markers(),
            Self::Named(named) => named.markers(),
            Self::Mistral => vec!["[TOOL_CALLS]"],
            Self::Gemma => vec!["<|tool_call>"],
            Self::Harmony => Vec::new(),
        };
        all.into_iter().filter(|marker| !marker.is_empty()).collect()
    }

    fn marks(self) -> Vec<&'static str> {
        let mut marks = self.markers();
        match self {
            Self::Object(_, close) | Self::Python(_, close) => marks.push(close),
            Self::Markup(markup) => marks.extend(
                [markup.group.1, markup.function_end, markup.parameter, markup.parameter_end, "｜DSML｜"]
                    .iter()
                    .chain(markup.value),
            ),
            Self::Named(named) => {
                marks.extend([named.group.1, named.middle, named.close, "<|tool_call:args|>"]);
            }
            Self::Mistral => marks.extend(["[ARGS]", "[CALL_ID]"]),
            Self::Gemma => marks.extend(["<tool_call|>", super::literal::QUOTE]),
            Self::Bare(_) | Self::Harmony => {}
        }
        marks
    }
}
