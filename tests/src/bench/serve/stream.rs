//! One answer that streams in, line by line: when what came of it.
//!
//! Invariant: what has a reading was a stream of events with text, its usage, `[DONE]`, and the end of its body behind
//! it.

use crate::Result;
use serde_json::Value;
use std::time::Instant;

/// When what came of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// When the request was sent.
    pub(super) begun: Instant,
    /// When the first text came.
    pub(super) first: Instant,
    /// When the end came.
    pub(super) end: Instant,
    /// Tokens of prompt and answer, as the server counts them.
    pub(super) tokens: (usize, usize),
}

/// What has come so far.
#[derive(Debug)]
pub(super) struct Stream {
    begun: Instant,
    /// Whether the line with the status was read.
    taken: bool,
    first: Option<Instant>,
    end: Option<Instant>,
    usage: Value,
    /// The last chunk, which is empty, and then the line behind it have come: the connection can be used again.
    closing: bool,
    over: bool,
}

impl Stream {
    /// One whose request is sent now.
    pub(super) fn new() -> Self {
        let begun = Instant::now();
        Self { begun, taken: false, first: None, end: None, usage: Value::Null, closing: false, over: false }
    }

    /// Whether nothing more belongs to it.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Takes its next line, without the line's end.
    ///
    /// # Errors
    /// The answer is no stream, or its usage cannot be read.
    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        if !self.taken {
            self.taken = true;
            if !line.contains(" 200 ") {
                return Err(format!("the server answered: {line}").into());
            }
        } else if self.end.is_some() {
            self.over = self.closing;
            self.closing |= line == "0";
        } else if let Some(data) = line.strip_prefix("data: ") {
            self.event(data)?;
        }
        Ok(())
    }

    fn event(&mut self, data: &str) -> Result<()> {
        if data == "[DONE]" {
            self.end = Some(Instant::now());
        } else if self.first.is_none() {
            let says = data.contains("\"content\":\"") && !data.contains("\"content\":\"\"");
            self.first = says.then(Instant::now);
        } else if data.contains("\"choices\":[]") {
            self.usage = serde_json::from_str(data)?;
        }
        Ok(())
    }

    /// What was read.
    ///
    /// # Errors
    /// It has not ended, or had no text or no usage.
    pub(super) fn reading(self) -> Result<Reading> {
        let count = |name: &str| self.usage["usage"][name].as_u64().map(|count| count as usize);
        let tokens =
            count("prompt_tokens").zip(count("completion_tokens")).ok_or("a stream without usage")?;
        let first = self.first.ok_or("a stream without text")?;
        let end = self.end.ok_or("a stream without an end")?;
        Ok(Reading { begun: self.begun, first, end, tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of two tokens, as a server sends it.
    const LINES: [&str; 15] = [
        "HTTP/1.1 200 OK",
        "transfer-encoding: chunked",
        "",
        "3f",
        r#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
        "",
        r#"data: {"choices":[{"delta":{"content":"a"}}]}"#,
        "",
        r#"data: {"choices":[{"delta":{"content":"b"}}]}"#,
        "",
        r#"data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#,
        "",
        "data: [DONE]",
        "0",
        "",
    ];

    fn read(lines: &[&str]) -> Result<Stream> {
        let mut stream = Stream::new();
        for line in lines {
            assert!(!stream.is_over(), "before {line:?}");
            stream.line(line)?;
        }
        Ok(stream)
    }

    #[test]
    fn a_stream_is_over_behind_its_last_chunk() -> Result<()> {
        let stream = read(&LINES)?;
        assert!(stream.is_over());
        let Reading { begun, first, end, tokens } = stream.reading()?;
        assert_eq!(tokens, (7, 2));
        assert!(begun <= first && first <= end);
        Ok(())
    }

    #[test]
    fn what_is_no_whole_stream_has_no_reading() -> Result<()> {
        assert!(read(&["HTTP/1.1 429 Too Many Requests"]).is_err());
        // Cut off before its end, without text, without usage.
        assert!(read(&LINES[..12])?.reading().is_err());
        assert!(read(&[&LINES[..6], &LINES[10..]].concat())?.reading().is_err());
        assert!(read(&[&LINES[..10], &LINES[12..]].concat())?.reading().is_err());
        Ok(())
    }
}
