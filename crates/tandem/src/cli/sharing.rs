//! How requests share a model: rows, memory, and the pace of those that are being answered.

use bytesize::ByteSize;
use clap::Args;
use std::{fmt, str::FromStr, time::Duration};
use tandem_engine::{Config, Gap, Mixing, PrefixLimits};

/// What a server may do at once.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Sharing")]
pub(crate) struct Sharing {
    /// Requests that are answered at the same time.
    #[arg(long, value_name = "N", default_value_t = 16, env = "TANDEM_ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    pub rows: u32,

    /// Requests that may wait for their turn; more are refused with status 429.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub queue: usize,

    /// Most memory, such as `8GiB`, for what the model remembers of all requests, ended ones that are kept included. A request
    /// waits until there is room for it; one for which there can never be is refused [default: no limit].
    #[arg(long, value_name = "SIZE", env = "TANDEM_KV_MEMORY")]
    pub kv_memory: Option<ByteSize>,

    /// Memory for what is kept of ended requests, so that prompts that begin like theirs are read sooner; `0` keeps nothing.
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize::gib(2), env = "TANDEM_PREFIX_CACHE")]
    pub prefix_cache: ByteSize,

    /// How far running answers may slow down while new prompts are read: the next token takes at most so many times what it
    /// takes otherwise (`3x`), at most so long (`50ms`), or as long as the prompts take (`any`). `alternate` reads a piece of a
    /// prompt, then gives every answer a token, in turns.
    #[arg(long, value_name = "TIME", default_value_t = GapTarget(Mixing::default()), env = "TANDEM_GAP_TARGET")]
    pub gap_target: GapTarget,
}

impl Sharing {
    /// The limits of an engine.
    pub(crate) fn config(&self) -> Config {
        let size = |size: ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
        Config {
            max_rows: self.rows as usize,
            max_queued: self.queue,
            cache_bytes: self.kv_memory.map(size),
            prefix: PrefixLimits { bytes: size(self.prefix_cache), ..PrefixLimits::default() },
            mixing: self.gap_target.0,
            ..Config::default()
        }
    }
}

/// `--gap-target` as it was typed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GapTarget(pub(crate) Mixing);

/// A text that names no gap.
#[derive(Debug)]
pub(crate) struct Unknown;

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("takes a number of times from 1 up, as 3x; milliseconds, as 50ms; any; or alternate")
    }
}

impl std::error::Error for Unknown {}

impl FromStr for GapTarget {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let gap = match text {
            "alternate" => return Ok(Self(Mixing::Alternating)),
            "any" => Gap::Any,
            _ => match (text.strip_suffix('x'), text.strip_suffix("ms")) {
                (Some(times), _) => {
                    let times = times.parse().ok().filter(|times: &f32| times.is_finite() && *times >= 1.0);
                    Gap::Times(times.ok_or(Unknown)?)
                }
                (None, Some(milliseconds)) => {
                    Gap::Within(Duration::from_millis(milliseconds.parse().map_err(|_| Unknown)?))
                }
                (None, None) => return Err(Unknown),
            },
        };
        Ok(Self(Mixing::Packed(gap)))
    }
}

impl fmt::Display for GapTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Mixing::Alternating => f.write_str("alternate"),
            Mixing::Packed(Gap::Any) => f.write_str("any"),
            Mixing::Packed(Gap::Times(times)) => write!(f, "{times}x"),
            Mixing::Packed(Gap::Within(time)) => write!(f, "{}ms", time.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_read_as_they_are_written() {
        for text in ["alternate", "any", "3x", "2.5x", "50ms"] {
            assert_eq!(text.parse::<GapTarget>().expect("a gap").to_string(), text);
        }
        for text in ["", "3", "x", "0.5x", "NaNx", "infx", "-1ms", "50s", "never"] {
            assert!(text.parse::<GapTarget>().is_err(), "{text}");
        }
    }
}
