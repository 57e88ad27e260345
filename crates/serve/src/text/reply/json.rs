//! JSON that comes character by character: read as far as it is JSON, and handed on as it comes.
//!
//! Line breaks and other control characters inside strings, which models write into code, are handed on as escapes.

use super::tape::Tape;

/// Deepest nesting.
const DEPTH: usize = 128;

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
}

/// What a character did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    More,
    Done,
    Wrong,
}

/// A string that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    key: bool,
    /// After a backslash; then how many digits of `\uXXXX` are missing.
    escape: bool,
    digits: u8,
}

/// An object, list or string on its way.
#[derive(Debug)]
struct Scanner {
    closers: Vec<char>,
    expect: Expect,
    string: Option<Open>,
    scalar: String,
}

impl Scanner {
    fn new() -> Self {
        Self { closers: Vec::new(), expect: Expect::Value, string: None, scalar: String::new() }
    }

    /// Takes a character and appends what it stands for.
    fn push(&mut self, next: char, out: &mut String) -> Step {
        if let Some(open) = self.string {
            return self.inside(open, next, out);
        }
        if is_scalar(next) && (!self.scalar.is_empty() || self.wants_value()) {
            self.scalar.push(next);
            out.push(next);
            return Step::More;
        }
        if !self.scalar.is_empty() {
            if serde_json::from_str::<serde_json::Value>(&self.scalar).is_err() {
                return Step::Wrong;
            }
            self.scalar.clear();
            self.expect = Expect::CommaOrEnd;
        }
        let step = self.mark(next);
        if step != Step::Wrong {
            out.push(next);
        }
        step
    }

    fn wants_value(&self) -> bool {
        matches!(self.expect, Expect::Value | Expect::ValueOrEnd)
    }

    fn mark(&mut self, next: char) -> Step {
        let string = |key| Some(Open { key, escape: false, digits: 0 });
        match (self.expect, next) {
            (_, ' ' | '\n' | '\r' | '\t') => {}
            (_, '{' | '[') if self.wants_value() && self.closers.len() < DEPTH => {
                let (closer, expect) =
                    if next == '{' { ('}', Expect::KeyOrEnd) } else { (']', Expect::ValueOrEnd) };
                self.closers.push(closer);
                self.expect = expect;
            }
            (_, '"') if self.wants_value() => self.string = string(false),
            (Expect::Key | Expect::KeyOrEnd, '"') => self.string = string(true),
            (Expect::Colon, ':') => self.expect = Expect::Value,
            (Expect::CommaOrEnd, ',') => {
                self.expect = if self.closers.last() == Some(&'}') { Expect::Key } else { Expect::Value };
            }
            (Expect::CommaOrEnd | Expect::KeyOrEnd | Expect::ValueOrEnd, closer)
                if self.closers.last() == Some(&closer) =>
            {
                self.closers.pop();
                return self.closed();
            }
            _ => return Step::Wrong,
        }
        Step::More
    }

    fn closed(&mut self) -> Step {
        self.expect = Expect::CommaOrEnd;
        if self.closers.is_empty() { Step::Done } else { Step::More }
    }

    fn inside(&mut self, mut open: Open, next: char, out: &mut String) -> Step {
        if open.digits > 0 {
            if !next.is_ascii_hexdigit() {
                return Step::Wrong;
            }
            open.digits -= 1;
        } else if open.escape {
            if !"\"\\/bfnrtu".contains(next) {
                return Step::Wrong;
            }
            open.escape = false;
            open.digits = if next == 'u' { 4 } else { 0 };
        } else if next == '\\' {
            open.escape = true;
        } else if next == '"' {
            out.push(next);
            self.string = None;
            if open.key {
                self.expect = Expect::Colon;
                return Step::More;
            }
            return self.closed();
        }
        self.string = Some(open);
        if next.is_control() {
            escape(&next.to_string(), out)
        } else {
            out.push(next)
        }
        Step::More
    }
}

fn is_scalar(next: char) -> bool {
    next.is_ascii_alphanumeric() || matches!(next, '-' | '+' | '.')
}

/// Appends text as it stands inside a JSON string.
pub(super) fn escape(text: &str, out: &mut String) {
    let quoted = serde_json::Value::from(text).to_string();
    out.push_str(&quoted[1..quoted.len() - 1]);
}

/// Reads one value and gives its text away as it comes. `None`: from the next character on it is not JSON.
pub(super) async fn value(tape: &Tape, mut give: impl FnMut(&str) + Send) -> Option<()> {
    let mut piece = String::new();
    if tape.peek().await.is_some_and(is_scalar) {
        while let Some(next) = tape.peek().await.filter(|&next| is_scalar(next)) {
            piece.push(next);
            tape.next().await;
        }
        give(&piece);
        return serde_json::from_str::<serde_json::Value>(&piece).ok().map(|_| ());
    }
    let mut scanner = Scanner::new();
    loop {
        let next = tape.peek().await?;
        piece.clear();
        let step = scanner.push(next, &mut piece);
        if step == Step::Wrong {
            return None;
        }
        tape.next().await;
        give(&piece);
        if step == Step::Done {
            return Some(());
        }
    }
}

/// Reads one value whole.
pub(super) async fn whole(tape: &Tape) -> Option<String> {
    let mut text = String::new();
    value(tape, |piece| text.push_str(piece)).await?;
    Some(text)
}

/// Reads a string.
pub(super) async fn string(tape: &Tape) -> Option<String> {
    if tape.peek().await? != '"' {
        return None;
    }
    serde_json::from_str(&whole(tape).await?).ok()
}
