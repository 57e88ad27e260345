//! A client that reads streams of chat chunks, and does as little with them as it can: what it costs is counted against
//! the server.

use super::stream::{Reading, Stream};
use crate::Result;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Whoever waits longer waits in vain.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// The body of a greedy chat of one message that is answered with so many tokens, whichever they are.
pub(super) fn body(message: &str, tokens: usize) -> Value {
    json!({
        "messages": [{"role": "user", "content": message}], "max_tokens": tokens, "ignore_eos": true,
        "temperature": 0, "stream": true, "stream_options": {"include_usage": true},
    })
}

/// A request for a stream, as it is sent.
pub(super) fn request(body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
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
        let request = request(body);
        let mut stream = Stream::new();
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        while !stream.is_over() {
            self.line(&mut line)?;
            stream.line(&line)?;
        }
        stream.reading()
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
