//! Tokens that an answer took, as they stand on the wire.

use serde::Serialize;
use tandem_contracts::request::Usage;
use utoipa::ToSchema;

/// Tokens that an answer took.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageObject {
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) total_tokens: usize,
    pub(crate) prompt_tokens_details: PromptDetails,
    pub(crate) completion_tokens_details: CompletionDetails,
    /// What is no part of OpenAI's protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tandem: Option<Saved>,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct PromptDetails {
    /// Tokens that were not computed, as others had computed them before.
    pub(crate) cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct CompletionDetails {
    pub(crate) reasoning_tokens: usize,
}

/// What was not computed and chosen one by one.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct Saved {
    #[serde(flatten)]
    drafts: Option<Drafts>,
    /// Tokens of the answer that the request determined.
    #[serde(skip_serializing_if = "Option::is_none")]
    filled_tokens: Option<usize>,
}

/// What was verified instead of computed one by one.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct Drafts {
    method: &'static str,
    drafted_tokens: usize,
    accepted_tokens: usize,
}

impl UsageObject {
    /// The counts of an answer, of whose tokens so many are reasoning.
    pub(crate) fn new(usage: Usage, reasoning_tokens: usize) -> Self {
        let Usage { prompt_tokens, cached_tokens, completion_tokens, .. } = usage;
        let Usage { drafted_tokens, accepted_tokens, filled_tokens, .. } = usage;
        let drafts = Drafts { method: "speculative", drafted_tokens, accepted_tokens };
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens },
            completion_tokens_details: CompletionDetails { reasoning_tokens },
            tandem: (drafted_tokens + filled_tokens > 0).then_some(Saved {
                drafts: (drafted_tokens > 0).then_some(drafts),
                filled_tokens: (filled_tokens > 0).then_some(filled_tokens),
            }),
        }
    }
}
