//! What end-to-end tests share: a tiny model in a folder, the running program, and a small HTTP client.
//!
//! The client is made of sockets on purpose: it can send what no well-behaved client sends, and leave midway.

use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

/// A folder that goes away with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tandem-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A model folder: random weights of the llama family, and a tokeniser whose token `i` below 256 is byte `i`.
pub(crate) fn tiny_model(name: &str) -> Folder {
    let folder = Folder::new(name);
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tiny/llama");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture.join(file), folder.path().join(file)).unwrap();
    }
    fs::write(folder.path().join("tokenizer.json"), tokenizer().to_string()).unwrap();
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\
                    {% if add_generation_prompt %}assistant: {% endif %}";
    fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    folder
}

/// Byte-level, without merges; ids from 256 on are filler words.
fn tokenizer() -> Value {
    let byte_to_char = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        _ => {
            let rank = (0..byte).filter(|b| !matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)).count();
            char::from_u32(256 + rank as u32).unwrap()
        }
    };
    let mut vocabulary = serde_json::Map::new();
    (0..=255u8).for_each(|byte| {
        vocabulary.insert(byte_to_char(byte).to_string(), json!(byte));
    });
    (256..512).for_each(|id| {
        vocabulary.insert(format!("word{id}"), json!(id));
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                  "vocab": vocabulary, "merges": []}
    })
}

/// Runs the program to its end.
pub(crate) fn tandem(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tandem")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// `tandem serve` on a free port of the loopback interface; killed with the value.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// What goes wrong shows among the test's own output; its requests do not.
    pub(crate) fn start(model: &Path, more: &[&str]) -> Self {
        Self::spawn(Self::command(model, more).env("TANDEM_LOG", "warn"))
    }

    /// The same with its log in a place.
    pub(crate) fn logging(model: &Path, log: impl Into<Stdio>) -> Self {
        Self::spawn(Self::command(model, &[]).stderr(log))
    }

    fn command(model: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
        command.args(["serve", "--backend", "cpu", "--port", "0", "--model", model.to_str().unwrap()]);
        command.args(more).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("the server says where it listens").unwrap();
            if let Some((_, address)) = line.split_once("http://") {
                break address.trim().parse().unwrap();
            }
        };
        // Keep reading, so that the program never meets a closed pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Sends a request as it stands and reads the answer to its end.
    pub(crate) fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Answer::parse(&bytes)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.raw(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
    }

    pub(crate) fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.raw(&post(path, body.as_ref()))
    }

    /// Asks the server to end, as a process manager does, and waits for it.
    pub(crate) fn terminate(self) -> std::process::ExitStatus {
        self.ask_to_end();
        self.wait()
    }

    /// Asks the server to end.
    pub(crate) fn ask_to_end(&self) {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bytes of a JSON request.
pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

/// An answer, its body unchunked.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        Self { status, body: if chunked { unchunk(body) } else { body.to_owned() } }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The events of a stream, but for its end mark, which must be there.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut data: Vec<&str> = self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.body);
        data.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }

    /// The text of a stream of chat chunks.
    pub(crate) fn streamed_text(&self) -> String {
        let events = self.events();
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect()
    }
}

fn unchunk(body: &str) -> String {
    let (mut rest, mut text) = (body, String::new());
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || tail.len() < size {
            break;
        }
        text.push_str(&tail[..size]);
        rest = tail[size..].trim_start_matches("\r\n");
    }
    text
}
