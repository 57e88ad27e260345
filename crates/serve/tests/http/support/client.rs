//! A client of HTTP/1.1 on a bare socket, so that tests see bytes and can misbehave.

use serde_json::Value as Json;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        Self { stream: BufReader::new(stream) }
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        // The server may have answered and closed already.
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// Sends a request's head and body.
    pub(crate) fn request(&mut self, method: &str, path: &str, body: &[u8]) {
        self.request_with((method, path), &[], body);
    }

    /// The same with more headers.
    pub(crate) fn request_with(&mut self, (method, path): (&str, &str), more: &[(&str, &str)], body: &[u8]) {
        let more: String = more.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{more}content-length: {}\r\n\r\n",
            body.len()
        );
        self.send(head.as_bytes());
        self.send(body);
    }

    /// Sends a request and reads the whole answer.
    pub(crate) fn exchange(mut self, method: &str, path: &str, body: &[u8]) -> Response {
        self.request(method, path, body);
        self.response()
    }

    /// Reads a whole answer.
    pub(crate) fn response(&mut self) -> Response {
        let (status, headers) = self.head();
        let mut body = Vec::new();
        match header(&headers, "content-length") {
            Some(length) => {
                body.resize(length.parse().expect("a length"), 0);
                self.stream.read_exact(&mut body).expect("a body");
            }
            None => {
                while let Some(chunk) = self.chunk() {
                    body.extend(chunk);
                }
            }
        }
        Response { status, headers, body }
    }

    /// Reads status and headers.
    pub(crate) fn head(&mut self) -> (u16, Vec<(String, String)>) {
        let status = self.line();
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else { return (status, headers) };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// Reads one chunk of a chunked body; `None` at its end.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line(), 16).expect("a chunk's size");
        let mut chunk = vec![0; size + 2];
        self.stream.read_exact(&mut chunk).expect("a chunk");
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    /// Whether the server has closed its side.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.stream.read(&mut [0]).is_ok_and(|count| count == 0)
    }

    /// The same connection once more, for another thread to send on.
    pub(crate) fn again(&self) -> Self {
        let stream = self.stream.get_ref().try_clone().expect("a socket");
        Self { stream: BufReader::new(stream) }
    }

    /// Leaves without a word.
    pub(crate) fn leave(self) {
        let _ = self.stream.into_inner().shutdown(Shutdown::Both);
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The data of each event of a stream.
    pub(crate) fn events(&self) -> Vec<&str> {
        let events = self.text().split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        events.collect()
    }

    /// The chunks of a stream, without its end mark, which must be there.
    pub(crate) fn chunks(&self) -> Vec<Json> {
        let events = self.events();
        let (last, chunks) = events.split_last().expect("events");
        assert_eq!(*last, "[DONE]");
        chunks.iter().map(|chunk| serde_json::from_str(chunk).expect("a chunk")).collect()
    }

    /// Status, and the error's type, field, code and message.
    pub(crate) fn error(&self) -> (u16, Json) {
        (self.status, self.json()["error"].clone())
    }

    /// The text of the only choice of a chat.
    pub(crate) fn content(&self) -> String {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()["choices"][0]["message"]["content"].as_str().expect("content").to_owned()
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}
