//! The command line: what was typed.
//!
//! [`Cli`] is exactly the text of the command and the environment (`TANDEM_*`), with their defaults; the commands say
//! what it means. Nothing below reads the environment.

mod access;
mod choice;
mod draft;
mod example;
mod history;
mod kv;
mod quantize;
mod sharing;

pub(crate) use access::Access;
pub(crate) use choice::Choice;
use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use draft::{Draft, Proposals};
pub(crate) use kv::{KvLayout, KvQuant};
pub(crate) use quantize::Quantize;
pub(crate) use sharing::Sharing;
use std::{net::IpAddr, path::PathBuf};

/// Runs language models on this machine: in the terminal, or behind a server for clients of OpenAI and Anthropic.
#[derive(Debug, Parser)]
#[command(name = "tandem", version, max_term_width = 100, after_help = example::ALL)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Show the whole chain of causes of an error, and more of what happens.
    #[arg(long, short, global = true)]
    pub verbose: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Talk to a model in the terminal.
    #[command(after_help = example::CHAT)]
    Chat(Chat),
    /// Answer one prompt and leave.
    #[command(after_help = example::GENERATE)]
    Generate(Generate),
    /// Serve a model over HTTP, with a chat page for browsers.
    #[command(after_help = example::SERVE)]
    Serve(Serve),
}

/// Where a model comes from and what runs it.
#[derive(Args, Debug)]
#[command(next_help_heading = "Model")]
pub(crate) struct Model {
    /// A model folder (config.json, *.safetensors, tokenizer.json) or a GGUF file.
    #[arg(long, short, value_name = "DIR|FILE.gguf", env = "TANDEM_MODEL")]
    pub(crate) model: PathBuf,

    /// What the model runs on.
    #[arg(long, value_enum, default_value_t = Backend::preferred(), env = "TANDEM_BACKEND")]
    pub backend: Backend,

    /// Threads of the CPU backend [default: the physical cores].
    #[arg(long, value_name = "N", env = "TANDEM_THREADS")]
    pub threads: Option<usize>,

    /// How the CPU backend multiplies [default: fast].
    #[arg(long, value_enum, env = "TANDEM_PRECISION")]
    pub precision: Option<Precision>,

    /// Shrink weights that come as floats to `8` or `4` bits while they are loaded, for less memory; `off` keeps them.
    ///
    /// Codes are affine, in groups of 64, or of 32 with `4g32`. Of GGUF files, weights in Q2_K, Q3_K and Q6_K come as floats too.
    #[arg(long, value_name = "HOW", default_value = "off", env = "TANDEM_QUANTIZE")]
    pub quantize: Quantize,

    /// Keep what a model remembers of a conversation (keys and values) in fewer bits, so that long ones take less memory: `off`,
    /// `8` or `4` (affine; `8g32` for groups of 32), `k8v3` (TurboQuant), `config` (by the model's own kv_config.json) or such a
    /// file. With several, and commas between them, each request to a server may choose one by its field `kv_quant`; those that
    /// do not have the first.
    #[arg(long, value_name = "HOW", default_value = "off", env = "TANDEM_KV_QUANT", value_delimiter = ',',
          help_heading = MEMORY, hide_short_help = true)]
    pub kv_quant: Vec<KvQuant>,

    /// With `--kv-quant`, take fewer bits only once a conversation has N tokens.
    #[arg(long, value_name = "N", default_value_t = 0, env = "TANDEM_KV_START", help_heading = MEMORY,
          hide_short_help = true)]
    pub kv_start: usize,

    /// Remember at most N tokens of a conversation: the first 4 and the last ones. What lies between is forgotten.
    #[arg(long, value_name = "N", env = "TANDEM_MAX_KV_SIZE",
          value_parser = clap::value_parser!(u32).range(i64::from(KEPT) + 1..), help_heading = MEMORY)]
    pub max_kv_size: Option<u32>,

    /// How requests that run together share memory for what they remember [default: what the backend is fastest with].
    #[arg(long, value_enum, value_name = "HOW", env = "TANDEM_KV_LAYOUT", help_heading = MEMORY,
          hide_short_help = true)]
    pub kv_layout: Option<KvLayout>,

    /// With `--kv-layout paged`, tokens that all requests may hold together, those of each rounded up to 256; requests for which
    /// there is no room wait [default: no limit].
    #[arg(long, value_name = "N", env = "TANDEM_KV_POOL", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = MEMORY, hide_short_help = true)]
    pub kv_pool: Option<u32>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub proposals: Proposals,
}

/// The heading of the flags for caches.
const MEMORY: &str = "Memory";

/// First tokens that a row of bounded size never forgets: attention leans on them.
pub(crate) const KEPT: u32 = 4;

/// How an answer is sampled.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Answer")]
pub(crate) struct Sampling {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub choice: Choice,

    /// Seed; the same seed gives the same answer [default: a new one each time].
    #[arg(long)]
    pub seed: Option<u64>,

    /// Most tokens of an answer.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub max_tokens: usize,
}

/// `tandem chat`.
#[derive(Args, Debug)]
pub(crate) struct Chat {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub(crate) model: Model,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub sampling: Sampling,

    /// Instructions for the whole conversation.
    #[arg(long, value_name = "TEXT", help_heading = "Conversation")]
    pub system: Option<String>,

    /// Where what was typed is kept for the arrow keys [default: tandem/history in the folder for states].
    #[arg(
        long,
        value_name = "FILE",
        env = "TANDEM_HISTORY",
        conflicts_with = "no_history",
        help_heading = "Conversation"
    )]
    history: Option<PathBuf>,

    /// Keep nothing of what was typed.
    #[arg(long, help_heading = "Conversation")]
    no_history: bool,
}

impl Chat {
    /// Where what was typed is kept, if it is.
    pub(crate) fn history_file(&self) -> Option<PathBuf> {
        if self.no_history { None } else { self.history.clone().or_else(history::usual) }
    }
}

/// The heading of the flags for prompts.
const PROMPT: &str = "Prompt";

/// `tandem generate`.
#[derive(Args, Debug)]
pub(crate) struct Generate {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub(crate) model: Model,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub sampling: Sampling,

    /// The prompt; `-` reads it from standard input.
    #[arg(long, short, value_name = "TEXT", help_heading = PROMPT)]
    pub prompt: String,

    /// Instructions before the prompt.
    #[arg(long, value_name = "TEXT", conflicts_with = "raw", help_heading = PROMPT)]
    pub system: Option<String>,

    /// Continue the text as it is, without the model's chat template.
    #[arg(long, help_heading = PROMPT)]
    pub raw: bool,

    /// End the answer before this text; may be given several times.
    #[arg(long, value_name = "TEXT", help_heading = "Answer")]
    pub stop: Vec<String>,
}

/// The heading of the flags for servers.
const SERVER: &str = "Server";

/// `tandem serve`.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub(crate) model: Model,

    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1", env = "TANDEM_HOST", help_heading = SERVER)]
    pub host: IpAddr,

    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8080, env = "TANDEM_PORT", help_heading = SERVER)]
    pub port: u16,

    /// Name of the model in requests [default: the file's or folder's name].
    #[arg(long, value_name = "NAME", help_heading = SERVER)]
    pub(crate) model_name: Option<String>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub choice: Choice,

    /// Most tokens of an answer, whatever a request asks for [default: up to the context window].
    #[arg(long, value_name = "N", help_heading = "Answer")]
    pub max_tokens: Option<usize>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub sharing: Sharing,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub access: Access,

    /// Spare the model what is known of an answer before it is written, so that it comes sooner.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Fill::Off, env = "TANDEM_FILL", help_heading = "Speed",
          hide_short_help = true)]
    pub fill: Fill,

    /// Answer as another server does, for clients that count on it: `mlx-lm` for `mlx_lm.server` 0.32.2.
    #[arg(long, value_enum, value_name = "SERVER", env = "TANDEM_COMPAT", help_heading = SERVER)]
    pub compat: Option<Compat>,

    /// Seconds that running answers may take to finish at shutdown. Asked to end a second time, the server ends at once.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, env = "TANDEM_DRAIN_TIMEOUT", help_heading = SERVER)]
    pub drain_timeout: u64,
}

/// What of answers is not chosen token by token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fill {
    /// The model chooses every token.
    Off,
    /// For agents: where a tool is called, what can only be so by the request's `tools` (brackets, quotes, names) is written
    /// without asking the model. A model that would have written it otherwise then answers otherwise.
    Strict,
    /// For edits of text and code, and agents: that, and passages that stood before in prompt or answer, are guessed, and the
    /// model checks many tokens in one step; no answer changes. A model that cannot take tokens back does as with `strict`.
    Echo,
}

/// Another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compat {
    /// mlx_lm.server 0.32.2.
    MlxLm,
}

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Tandem's own CPU kernels.
    Cpu,
    /// Apple's MLX.
    Mlx,
}

impl Backend {
    /// MLX where Metal is, the CPU elsewhere.
    fn preferred() -> Self {
        if cfg!(target_os = "macos") || cfg!(not(feature = "cpu")) { Self::Mlx } else { Self::Cpu }
    }
}

/// Arithmetic of weight products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Precision {
    /// Faster: inputs rounded to 12 bits, integers multiplied.
    Fast,
    /// Slower: floats throughout.
    Exact,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_unknown_flag_is_refused_with_the_nearest_name() {
        let error = Cli::try_parse_from(["tandem", "serve", "--model", "m", "--prot", "1"])
            .expect_err("unknown flag");
        assert!(error.to_string().contains("--port"), "{error}");
    }

    #[test]
    fn a_way_to_fill_in_that_is_unknown_is_refused_with_those_that_are() {
        let read = |how: &str| Cli::try_parse_from(["tandem", "serve", "--model", "m", "--fill", how]);
        assert!(["off", "strict", "echo"].into_iter().all(|how| read(how).is_ok()));
        let error = read("always").expect_err("unknown").to_string();
        assert!(error.contains("'always'") && error.contains("--fill <HOW>"), "{error}");
    }
}
