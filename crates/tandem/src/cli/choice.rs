//! How tokens are chosen: flags named as the fields of requests are.

use clap::Args;
use tandem_serve::sampling::Settings;

/// What is absent comes from the model's own generation settings.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Answer")]
pub(crate) struct Choice {
    /// 0 always takes the most likely token; higher is more varied.
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,

    /// Sample among the most likely tokens that together reach this probability.
    #[arg(long, value_name = "P")]
    pub top_p: Option<f64>,

    /// Sample among this many most likely tokens; 0 is all.
    #[arg(long, value_name = "K")]
    pub top_k: Option<u32>,

    /// Drop tokens less likely than this fraction of the most likely one.
    #[arg(long, value_name = "P")]
    pub min_p: Option<f64>,

    /// Sample among the tokens of the most typical surprise that together reach this probability.
    #[arg(long, value_name = "P", hide_short_help = true)]
    pub typical_p: Option<f64>,

    /// How often, from 0 to 1, all but the least likely of the tokens above `--xtc-threshold` are left out, for less usual words.
    #[arg(long, value_name = "P", hide_short_help = true)]
    pub xtc_probability: Option<f64>,

    /// Probability from which on a token may be left out, up to 0.5.
    #[arg(long, value_name = "P", hide_short_help = true)]
    pub xtc_threshold: Option<f64>,

    /// Make tokens that stand in the text already less likely; 1 is off, and more is stronger.
    #[arg(long, value_name = "X")]
    pub repetition_penalty: Option<f64>,

    /// How many of the last tokens `--repetition-penalty` looks at; 0 is all.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub repetition_context_size: Option<u32>,

    /// Subtracted from the scores of tokens that stand among the text's last 20; less than 0 favours them.
    #[arg(long, value_name = "X", allow_negative_numbers = true, hide_short_help = true)]
    pub presence_penalty: Option<f64>,

    /// Subtracted from the scores of tokens as often as they stand among the text's last 20; less than 0 favours them.
    #[arg(long, value_name = "X", allow_negative_numbers = true, hide_short_help = true)]
    pub frequency_penalty: Option<f64>,

    /// Make tokens less likely that would repeat a passage of the text (DRY); 0 is off, 0.8 is usual.
    #[arg(long, value_name = "X", hide_short_help = true)]
    pub dry_multiplier: Option<f64>,

    /// Factor by which each further token of a repetition raises its penalty.
    #[arg(long, value_name = "X", hide_short_help = true)]
    pub dry_base: Option<f64>,

    /// Tokens that may be repeated without a penalty.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub dry_allowed_length: Option<u32>,

    /// How many of the last tokens repetitions are looked for in; -1 is all, 0 is off.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub dry_penalty_last_n: Option<i64>,

    /// A text that no repetition reaches over; may be given several times.
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub dry_sequence_breaker: Vec<String>,
}

impl Choice {
    /// What was typed, as what holds where requests say nothing.
    pub(crate) fn settings(&self) -> Settings {
        let breakers = &self.dry_sequence_breaker;
        Settings {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            typical_p: self.typical_p,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            repetition_penalty: self.repetition_penalty,
            repetition_context_size: self.repetition_context_size,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            dry_multiplier: self.dry_multiplier,
            dry_base: self.dry_base,
            dry_allowed_length: self.dry_allowed_length,
            dry_penalty_last_n: self.dry_penalty_last_n,
            dry_sequence_breakers: (!breakers.is_empty()).then(|| breakers.clone()),
            ..Settings::default()
        }
    }
}
