//! From what a request needs to how it is run: a pure function, called once for each request.
//!
//! Reasons that exclude are found first, and they alone decide whether the request runs. What is found later says what it
//! does without.

use tandem_contracts::execution::{Execution, Features, Mechanism, Method, Reason, Requirements, Support};

/// How a request with these needs is run, by what can be done for it and what is asked for beyond.
pub(crate) fn resolve(needs: &Requirements, support: &Support, asked: &Features) -> Execution {
    let mut reasons = exclusions(needs, support, asked);
    let Choice { method, grammar_jump } = choose(needs, support, asked, reasons.is_empty());
    if !support.grouped_methods.contains(&method) {
        reasons.push(Reason::MethodBatchUnsupported);
        reasons.sort();
    }
    let continuous = reasons.is_empty();
    let (plain, speculative) = (method == Method::Autoregressive, method == Method::Speculative);

    let paged_kv = asked.paged_kv && !needs.vision && !needs.adapters;
    let media_prefix = continuous && needs.prepared_prefix_identity && support.media_prefix_cache;
    let prompt_cache = plain && (!needs.vision || media_prefix);
    let answer_is_free = !needs.vision && !needs.grammar && !needs.logprobs;
    let echo = speculative && support.shared_speculative_echo;
    let shared_fill = plain && support.shared_fill && !paged_kv && !needs.draft;
    let fill = asked.fill && answer_is_free && continuous && (echo || shared_fill);
    let checkpoint = support.checkpoints
        && support.shared_checkpoints
        && prompt_cache
        && !paged_kv
        && answer_is_free
        && !asked.fill;
    let compiled_decode =
        asked.compiled_decode && support.compiled_decode && plain && !needs.adapters && !paged_kv && !fill;

    let without = [
        (needs.draft, speculative, Reason::DraftIncompatible),
        (asked.paged_kv, paged_kv, Reason::PagedKvBypassed),
        (asked.fill, fill, Reason::FillIncompatible),
        (asked.compiled_decode, compiled_decode, Reason::CompiledDecodeUnavailable),
        (asked.grammar_jump, grammar_jump, Reason::GrammarJumpIncompatible),
    ];
    reasons.extend(missing(without));
    Execution {
        method,
        mechanism: if continuous { Mechanism::Continuous } else { Mechanism::Unsupported },
        paged_kv,
        prompt_cache,
        checkpoint,
        fill,
        compiled_decode,
        grammar_jump,
        reasons,
    }
}

/// What of a request cannot share steps, whatever its method.
fn exclusions(needs: &Requirements, support: &Support, asked: &Features) -> Vec<Reason> {
    let shared = [
        (true, support.continuous, Reason::ContinuousUnavailable),
        (needs.vision, support.media_batch, Reason::MediaBatchUnsupported),
        (needs.adapters, support.adapter_batch, Reason::AdapterBatchUnsupported),
        (needs.kv_quant, support.quantized_batch, Reason::KvSchemeBatchUnsupported),
        (needs.turbo_quant, support.turbo_quant_batch, Reason::TurboKvBatchUnsupported),
        (needs.grammar, support.grammar_batch, Reason::GrammarBatchUnsupported),
        (asked.paged_kv, support.paged_batch, Reason::PagedKvBatchUnsupported),
    ];
    missing(shared).collect()
}

/// The reasons of what is wanted and not had.
fn missing<const ROWS: usize>(table: [(bool, bool, Reason); ROWS]) -> impl Iterator<Item = Reason> {
    table.into_iter().filter(|(wanted, had, _)| *wanted && !had).map(|(.., reason)| reason)
}

/// The method of a request, and whether its grammar is what makes the drafts.
struct Choice {
    method: Method,
    grammar_jump: bool,
}

/// Drafts where something proposes them and everything that the request brings allows it; the model's own method otherwise.
fn choose(needs: &Requirements, support: &Support, asked: &Features, unexcluded: bool) -> Choice {
    let shared = unexcluded && support.grouped_methods.contains(&Method::Speculative);
    let verifiable = support.method == Method::Autoregressive
        && !needs.vision
        && !asked.paged_kv
        && (!needs.adapters || shared && support.shared_speculative_adapters)
        && (!needs.logprobs || support.speculative_logprobs)
        && (!needs.kv_quant || support.speculative_kv_quant)
        && (!needs.turbo_quant || support.speculative_turbo_quant);
    let proposals = asked.grammar_jump && needs.grammar && support.shared_grammar_proposals;
    let grammar_jump = verifiable && shared && proposals && !needs.draft;
    let speculative = grammar_jump || verifiable && needs.draft;
    Choice { method: if speculative { Method::Speculative } else { support.method }, grammar_jump }
}

#[cfg(test)]
mod tests;
