//! Who may ask a server, and under which name: API keys, pages of other origins, hosts.
//!
//! Invariant: a key is shown nowhere, neither in the help nor in an error.

use crate::error::{Error, Result};
use clap::Args;
use std::{fmt, fs, path::PathBuf};
use tandem_serve::http::{Host, Keys, Origin};

/// Who may ask.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Access")]
pub(crate) struct Access {
    /// Answer only requests with this key (`Authorization: Bearer KEY` or `x-api-key: KEY`); may be given several times, or
    /// with commas between. Other people of this machine see what is typed here: the variable or a file hide it.
    #[arg(long, value_name = "KEY", env = "TANDEM_API_KEY", hide_env_values = true, value_delimiter = ',')]
    pub api_key: Vec<Key>,

    /// Answer also requests with a key of this file, which has one on each line; `#` begins a comment line.
    #[arg(long, value_name = "FILE", env = "TANDEM_API_KEY_FILE")]
    pub api_key_file: Option<PathBuf>,

    /// Let pages of this origin (such as `https://chat.example.org`, or `*` for all) ask from browsers; may be given several
    /// times, or with commas between.
    #[arg(long, value_name = "ORIGIN", env = "TANDEM_CORS_ORIGIN", value_delimiter = ',')]
    pub cors_origin: Vec<Origin>,

    /// Answer also where requests call the server by this host name (such as `llm.example.org`, or `*` for all); may be given
    /// several times, or with commas between. Needed by servers without keys that listen to this machine alone, behind a proxy for
    /// example: they answer only as `localhost` or by their address, so that no web page can lead a browser to them by a name of
    /// its own.
    #[arg(long, value_name = "NAME", env = "TANDEM_ALLOW_HOST", value_delimiter = ',')]
    pub allow_host: Vec<Host>,

    /// Let everybody ask who reaches `--host`, without a key, also from other machines.
    #[arg(long)]
    pub insecure_no_auth: bool,
}

impl Access {
    /// All keys, those of the file included.
    ///
    /// # Errors
    /// The file cannot be read, or holds no key or one that cannot be sent.
    pub(crate) fn keys(&self) -> Result<Keys> {
        let given = self.api_key.iter().map(|Key(text)| Key::checked(text));
        let given = given.collect::<std::result::Result<Vec<_>, _>>();
        let mut keys = given.map_err(|error| Error::new("--api-key").because(error))?;
        if let Some(path) = &self.api_key_file {
            let text = fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
            let named = |error| Error::new(path.display().to_string()).because(error);
            let own = of_file(&text).map_err(named)?;
            keys.extend(own);
        }
        Ok(Keys::new(keys.iter().map(|Key(key)| key)))
    }
}

/// The keys of a file.
fn of_file(text: &str) -> std::result::Result<Vec<Key>, NoKey> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let keys = lines.map(Key::checked).collect::<std::result::Result<Vec<_>, _>>()?;
    if keys.is_empty() { Err(NoKey) } else { Ok(keys) }
}

/// A key as clients send it; as it was typed until it is [checked](Key::checked), because the command line's parser
/// shows in its errors what it refuses.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// A text that no client can send as a key.
#[derive(Debug)]
pub(crate) struct NoKey;

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key is one or more visible ASCII characters")
    }
}

impl std::error::Error for NoKey {}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Key {
    /// The text without white space around it, if that can be sent.
    fn checked(text: impl AsRef<str>) -> std::result::Result<Self, NoKey> {
        let text = text.as_ref().trim();
        let visible = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if visible { Ok(Self(text.to_owned())) } else { Err(NoKey) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_a_key_on_each_line() {
        let keys = of_file("# ours\n\n  sk-one \r\nsk-two\n").expect("keys");
        assert_eq!(keys, [Key("sk-one".to_owned()), Key("sk-two".to_owned())]);
        for text in ["", "\n# sk-one\n", "sk one", "sk-\u{e9}"] {
            assert!(of_file(text).is_err(), "{text:?}");
        }
        assert_eq!(format!("{keys:?}"), "[Key, Key]");
    }

    #[test]
    fn an_empty_key_is_none() {
        assert!(Key::checked("").is_err() && Key::checked("a\tb").is_err());
    }
}
