//! Calls in tags, with one tag for each parameter: Qwen Coder and its kin, GLM, MiniCPM, MiniMax, DeepSeek V3.2.
//!
//! A call is one once its name is a declared function's and its first parameter, or its end, has come. A parameter
//! that takes strings is handed on as it comes; others when they are whole, as values of the declared type. What is
//! neither parameter nor end closes the call and is text.
//!
//! Sources: the chat templates of these families.

use super::{function::Functions, json, tape::Tape};
use serde_json::Value;

/// The tags of one family.
#[derive(Debug)]
pub(super) struct Markup {
    /// Opens and closes calls; empty where there are no such tags.
    pub(super) group: (&'static str, &'static str),
    /// Before and after a function's name.
    pub(super) function: (&'static str, &'static str),
    pub(super) function_end: &'static str,
    /// Before a parameter's name.
    pub(super) parameter: &'static str,
    /// What stands between its name and its value.
    pub(super) value: &'static [&'static str],
    pub(super) parameter_end: &'static str,
    /// Whether attributes may follow the name's quotation mark.
    pub(super) attributes: bool,
    /// Whether a value stands on lines of its own.
    pub(super) lines: bool,
    /// Whether a value may be character data of XML.
    pub(super) data: bool,
}

impl Markup {
    /// What may begin a call in a text.
    pub(super) fn markers(&self) -> Vec<&'static str> {
        [self.group.0, self.function.0].into_iter().filter(|marker| !marker.is_empty()).collect()
    }

    /// Reads calls after the marker `found`. `None`: what is held is text.
    pub(super) async fn read(&self, tape: &Tape, functions: &Functions, found: &str) -> Option<()> {
        let grouped = !self.group.0.is_empty() && found == self.group.0;
        if grouped {
            tape.space().await;
            tape.literal(self.function.0).await?;
        }
        loop {
            self.call(tape, functions).await?;
            if !grouped {
                return Some(());
            }
            tape.space().await;
            if tape.choice(&[self.function.0, self.group.1]).await? == 1 {
                return Some(());
            }
        }
    }

    async fn call(&self, tape: &Tape, functions: &Functions) -> Option<()> {
        tape.space().await;
        let name = tape.name().await.filter(|name| functions.has(name))?;
        tape.space().await;
        tape.literal(self.function.1).await?;
        tape.space().await;
        let mut next = tape.choice(&[self.parameter, self.function_end]).await;
        next?;
        tape.call(&name);
        let mut first = true;
        loop {
            match next {
                Some(0) => {
                    tape.hold(self.parameter.to_owned());
                    if self.parameter(tape, (functions, &name), first).await? {
                        return Some(());
                    }
                }
                _ => {
                    tape.arguments(if first { "{}" } else { "}" });
                    // Neither a parameter nor the end: what is held is text.
                    next?;
                    tape.hold(String::new());
                    return Some(());
                }
            }
            first = false;
            tape.hold(String::new());
            tape.space().await;
            next = tape.choice(&[self.parameter, self.function_end]).await;
        }
    }

    /// Reads a parameter from its name on. Returns whether the text ended inside its value.
    async fn parameter(&self, tape: &Tape, call: (&Functions, &str), first: bool) -> Option<bool> {
        let (functions, function) = call;
        let lead = if first { "{" } else { ", " };
        let Some((key, attributes)) = self.key(tape).await else {
            tape.arguments(if first { "{}" } else { "}" });
            return None;
        };
        tape.forget();
        tape.arguments(&format!("{lead}{}: ", Value::from(key.as_str())));
        let data = self.data(tape).await;
        let text = attributes.contains("string=\"true\"") || functions.is_text(function, &key);
        if let Some(data) = data {
            let value = if text { Value::from(data) } else { functions.value(function, &key, &data) };
            tape.arguments(&value.to_string());
            return Some(false);
        }
        if text {
            tape.arguments("\"");
            let ended = self.text(tape, |piece| tape.arguments(&escaped(piece))).await;
            tape.arguments(if ended { "" } else { "\"" });
            return Some(ended);
        }
        let mut value = String::new();
        let ended = self.text(tape, |piece| value.push_str(piece)).await;
        if ended {
            tape.arguments(&format!("\"{}", escaped(&value)));
        } else {
            tape.arguments(&functions.value(function, &key, &value).to_string());
        }
        Some(ended)
    }

    /// A parameter's name, and the attributes behind it.
    async fn key(&self, tape: &Tape) -> Option<(String, String)> {
        let (mut key, mut attributes) = (String::new(), String::new());
        while !['>', '"', '<', '\n'].contains(&tape.peek().await?) {
            key.extend(tape.next().await);
        }
        for mark in self.value {
            tape.space().await;
            tape.literal(mark).await?;
        }
        if self.attributes {
            loop {
                match tape.next().await? {
                    '>' => break,
                    next => attributes.push(next),
                }
            }
        }
        let key = key.trim();
        (!key.is_empty()).then(|| (key.to_owned(), attributes))
    }

    /// A value as character data of XML, which may hold its own end tag; `None` if it is not written so, and what was
    /// read of it is held.
    async fn data(&self, tape: &Tape) -> Option<String> {
        tape.hold(String::new());
        if !self.data {
            return None;
        }
        tape.literal("<![CDATA[").await?;
        tape.forget();
        let mut data = String::new();
        let (blank, _) = tape.until(&["]]>"], |piece| data.push_str(piece)).await;
        let _ = tape.until(&[self.parameter_end], |_| ()).await;
        Some(data + &blank)
    }

    /// Gives a value's text away up to its end tag, behind what is held of it. Returns whether the text ended first.
    async fn text(&self, tape: &Tape, mut give: impl FnMut(&str) + Send) -> bool {
        let held = tape.take();
        if !held.is_empty() {
            // The beginning of another tag, or of the end tag itself.
            if let Some(rest) = self.parameter_end.strip_prefix(held.as_str()) {
                tape.hold(String::new());
                if tape.literal(rest).await.is_some() {
                    tape.forget();
                    return false;
                }
                give(&(held + &tape.take()));
            } else {
                give(&held);
            }
        } else if self.lines && tape.peek().await == Some('\n') {
            tape.next().await;
        }
        let (blank, found) = tape.until(&[self.parameter_end], &mut give).await;
        give(if self.lines && found.is_some() { blank.strip_suffix('\n').unwrap_or(&blank) } else { &blank });
        found.is_none()
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    json::escape(text, &mut out);
    out
}

const QUOTED: &[&str] = &["\""];

/// Qwen Coder, Qwen 3.5, Nemotron, Step.
pub(super) static QWEN: Markup = Markup {
    group: ("<tool_call>", "</tool_call>"),
    function: ("<function=", ">"),
    function_end: "</function>",
    parameter: "<parameter=",
    value: &[">"],
    parameter_end: "</parameter>",
    attributes: false,
    lines: true,
    data: false,
};

/// Seed OSS.
pub(super) static SEED: Markup =
    Markup { group: ("<seed:tool_call>", "</seed:tool_call>"), lines: false, ..QWEN };

/// GLM 4.5 and later, Ling, Laguna, Spark.
pub(super) static GLM: Markup = Markup {
    group: ("", ""),
    function: ("<tool_call>", ""),
    function_end: "</tool_call>",
    parameter: "<arg_key>",
    value: &["</arg_key>", "<arg_value>"],
    parameter_end: "</arg_value>",
    attributes: false,
    lines: false,
    data: false,
};

/// MiniCPM 5.
pub(super) static MINICPM: Markup = Markup {
    group: ("", ""),
    function: ("<function name=\"", "\">"),
    function_end: "</function>",
    parameter: "<param name=\"",
    value: QUOTED,
    parameter_end: "</param>",
    attributes: true,
    lines: false,
    data: true,
};

/// MiniMax M2.
pub(super) static MINIMAX: Markup = Markup {
    group: ("<minimax:tool_call>", "</minimax:tool_call>"),
    function: ("<invoke name=\"", "\">"),
    function_end: "</invoke>",
    parameter: "<parameter name=\"",
    value: QUOTED,
    parameter_end: "</parameter>",
    attributes: true,
    lines: false,
    data: false,
};

/// DeepSeek V3.2.
pub(super) static DEEPSEEK_MARKUP: Markup = Markup {
    group: ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    function: ("<｜DSML｜invoke name=\"", "\">"),
    function_end: "</｜DSML｜invoke>",
    parameter: "<｜DSML｜parameter name=\"",
    value: QUOTED,
    parameter_end: "</｜DSML｜parameter>",
    attributes: true,
    lines: false,
    data: false,
};

/// DeepSeek V4.
pub(super) static DEEPSEEK_4: Markup =
    Markup { group: ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"), ..DEEPSEEK_MARKUP };
