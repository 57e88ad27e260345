//! A client that reads a stream of chat chunks, and does as little with it as it can: what it costs is counted against the
//! server.

use crate::Result;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// Whoever waits longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(120);

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

/// The body of a greedy chat of one message that is answered with so many tokens, whichever they are.
pub(super) fn body(message: &str, tokens: usize) -> Value {
    json!({
        "messages": [{"role": "user", "content": message}], "max_tokens": tokens, "ignore_eos": true,
        "temperature": 0, "stream": true, "stream_options": {"include_usage": true},
    })
}

/// A connection that is open already, as those of clients are that ask more than once.
#[derive(Debug)]
pub(super) struct Client(BufReader<TcpStream>);

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Asks, and reads the stream to its end.
    ///
    /// # Errors
    /// The answer is no stream, or ends without its usage.
    pub(super) fn stream(&mut self, body: &Value) -> Result<Reading> {
        let body = body.to_string();
        let begun = Instant::now();
        write!(
            self.0.get_mut(),
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let (mut first, mut usage, mut line) = (None, Value::Null, String::new());
        self.line(&mut line)?;
        if !line.contains(" 200 ") {
            return Err(format!("the server answered: {line}").into());
        }
        loop {
            self.line(&mut line)?;
            if first.is_none() && line.contains("\"content\":\"") && !line.contains("\"content\":\"\"") {
                first = Some(Instant::now());
            }
            if line.contains("\"choices\":[]") {
                usage = serde_json::from_str(line.trim_start_matches("data: "))?;
            }
            if line == "data: [DONE]" {
                break;
            }
        }
        let end = Instant::now();
        // The last chunk, which is empty, so that the connection can be used again.
        while line != "0" {
            self.line(&mut line)?;
        }
        self.line(&mut line)?;
        let count = |name: &str| usage["usage"][name].as_u64().map(|count| count as usize);
        let tokens =
            count("prompt_tokens").zip(count("completion_tokens")).ok_or("a stream without usage")?;
        Ok(Reading { begun, first: first.ok_or("a stream without text")?, end, tokens })
    }

    /// Asks for the server's health, and says whether it is well.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) fn is_well(&mut self) -> Result<bool> {
        write!(self.0.get_mut(), "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
        let mut line = String::new();
        self.line(&mut line)?;
        let well = line.contains(" 200 ");
        let mut length = 0;
        while !line.is_empty() {
            self.line(&mut line)?;
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse()?;
            }
        }
        self.0.read_exact(&mut vec![0; length])?;
        Ok(well)
    }

    fn line(&mut self, line: &mut String) -> Result<()> {
        line.clear();
        if self.0.read_line(line)? == 0 {
            return Err("the server has closed the connection".into());
        }
        line.truncate(line.trim_end().len());
        Ok(())
    }
}
