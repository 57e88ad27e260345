//! Every row of the rules as a line of text, and what must hold for all requests.
//!
//! A line says what a request needs, what of everything that could be done for it is lacking, what is asked for beyond,
//! and how the request is then run: method and what it has, then the reasons.

use super::*;
use proptest::prelude::*;

const NEEDS: [&str; 11] = [
    "vision", "adapters", "penalty", "seed", "kv", "turbo", "extras", "grammar", "logprobs", "draft",
    "prefix",
];
const LACKS: [&str; 20] = [
    "continuous",
    "quantized-batch",
    "turbo-batch",
    "grammar-batch",
    "adapter-batch",
    "paged-batch",
    "media-batch",
    "media-prefixes",
    "checkpoints",
    "shared-checkpoints",
    "speculative-kv",
    "speculative-turbo",
    "speculative-logprobs",
    "speculative-adapters",
    "grammar-proposals",
    "shared-fill",
    "echo",
    "compiled-step",
    "grouped-speculation",
    // The model's own method is another, and the only one.
    "autoregression",
];
const ASKED: [&str; 4] = ["paged", "fill", "compiled", "jump"];

/// Whether a line's words name something.
type Named<'a> = &'a dyn Fn(&str) -> bool;

fn needs(named: Named<'_>) -> Requirements {
    Requirements {
        vision: named("vision"),
        adapters: named("adapters"),
        repetition_penalty: named("penalty"),
        user_seed: named("seed"),
        kv_quant: named("kv"),
        turbo_quant: named("turbo"),
        logits_extras: named("extras"),
        grammar: named("grammar"),
        logprobs: named("logprobs"),
        draft: named("draft"),
        prepared_prefix_identity: named("prefix"),
    }
}

fn support(lacking: Named<'_>) -> Support {
    let method = if lacking("autoregression") { Method::Denoising } else { Method::Autoregressive };
    let speculation = !lacking("autoregression") && !lacking("grouped-speculation");
    Support {
        method,
        grouped_methods: [method].into_iter().chain(speculation.then_some(Method::Speculative)).collect(),
        continuous: !lacking("continuous"),
        quantized_batch: !lacking("quantized-batch"),
        turbo_quant_batch: !lacking("turbo-batch"),
        grammar_batch: !lacking("grammar-batch"),
        adapter_batch: !lacking("adapter-batch"),
        paged_batch: !lacking("paged-batch"),
        media_batch: !lacking("media-batch"),
        media_prefix_cache: !lacking("media-prefixes"),
        checkpoints: !lacking("checkpoints"),
        shared_checkpoints: !lacking("shared-checkpoints"),
        speculative_kv_quant: !lacking("speculative-kv"),
        speculative_turbo_quant: !lacking("speculative-turbo"),
        speculative_logprobs: !lacking("speculative-logprobs"),
        shared_speculative_adapters: !lacking("speculative-adapters"),
        shared_grammar_proposals: !lacking("grammar-proposals"),
        shared_fill: !lacking("shared-fill"),
        shared_speculative_echo: !lacking("echo"),
        compiled_decode: !lacking("compiled-step"),
    }
}

fn features(named: Named<'_>) -> Features {
    Features {
        paged_kv: named("paged"),
        fill: named("fill"),
        compiled_decode: named("compiled"),
        grammar_jump: named("jump"),
    }
}

fn render(execution: &Execution) -> String {
    let method = match execution.method {
        Method::Autoregressive => "plain",
        Method::Speculative => "speculative",
        Method::Denoising => "denoising",
    };
    let has = [
        ("paged", execution.paged_kv),
        ("cached", execution.prompt_cache),
        ("checkpoint", execution.checkpoint),
        ("fill", execution.fill),
        ("compiled", execution.compiled_decode),
        ("jump", execution.grammar_jump),
    ];
    let has = has.into_iter().filter(|(_, has)| *has).map(|(name, _)| name);
    let words: Vec<&str> = match execution.mechanism {
        Mechanism::Continuous => [method].into_iter().chain(has).collect(),
        // It never runs, so that what it would have means nothing.
        Mechanism::Unsupported => vec!["unsupported"],
    };
    let reasons: Vec<&str> = execution.reasons.iter().map(|reason| reason.as_str()).collect();
    match reasons.as_slice() {
        [] => words.join(" "),
        reasons => format!("{}: {}", words.join(" "), reasons.join(", ")),
    }
}

fn check(table: &[[&str; 4]]) {
    for [needed, lacking, asked, expected] in table {
        for (words, known) in [(needed, &NEEDS[..]), (lacking, &LACKS[..]), (asked, &ASKED[..])] {
            assert!(words.split_whitespace().all(|word| known.contains(&word)), "{words:?}");
        }
        let among = |words: &str, name: &str| words.split_whitespace().any(|word| word == name);
        let needs = needs(&|name| among(needed, name));
        let support = support(&|name| among(lacking, name));
        let execution = resolve(&needs, &support, &features(&|name| among(asked, name)));
        assert_eq!(render(&execution), *expected, "needs {needed:?}, lacks {lacking:?}, asks {asked:?}");
    }
}

#[test]
fn what_cannot_share_steps_is_unsupported() {
    check(&[
        // needs, lacks, asks, and how it is run
        ["", "", "", "plain cached checkpoint"],
        ["", "continuous", "", "unsupported: continuous-unavailable"],
        ["vision", "media-batch", "", "unsupported: media-batch-unsupported"],
        ["adapters", "adapter-batch", "", "unsupported: adapter-batch-unsupported"],
        ["kv", "quantized-batch", "", "unsupported: kv-scheme-batch-unsupported"],
        ["turbo", "turbo-batch", "", "unsupported: turbo-kv-batch-unsupported"],
        ["grammar", "grammar-batch", "", "unsupported: grammar-batch-unsupported"],
        ["", "paged-batch", "paged", "unsupported: paged-kv-batch-unsupported"],
        ["draft", "grouped-speculation", "", "unsupported: method-batch-unsupported"],
        // What is not needed is not missed.
        [
            "",
            "media-batch adapter-batch quantized-batch turbo-batch grammar-batch paged-batch",
            "",
            "plain cached checkpoint",
        ],
        // What is needed and supported shares steps, also all together.
        ["vision adapters kv turbo grammar seed logprobs", "", "", "plain"],
        ["seed logprobs grammar penalty extras", "", "", "plain cached"],
        ["", "autoregression", "", "denoising"],
    ]);
}

#[test]
fn reasons_stand_in_their_order() {
    check(&[
        [
            "vision adapters kv turbo grammar draft",
            "continuous media-batch adapter-batch quantized-batch turbo-batch grammar-batch paged-batch",
            "paged fill compiled jump",
            "unsupported: continuous-unavailable, media-batch-unsupported, adapter-batch-unsupported, \
             kv-scheme-batch-unsupported, turbo-kv-batch-unsupported, grammar-batch-unsupported, \
             paged-kv-batch-unsupported, draft-incompatible-with-request, paged-kv-bypassed-for-media-or-adapters, \
             fill-incompatible-with-request, compiled-decode-unavailable-for-request, \
             grammar-jump-incompatible-with-request",
        ],
        // The method's reason stands behind the first exclusion and before the others.
        [
            "draft kv grammar",
            "continuous quantized-batch grammar-batch grouped-speculation",
            "",
            "unsupported: continuous-unavailable, method-batch-unsupported, kv-scheme-batch-unsupported, \
             grammar-batch-unsupported",
        ],
    ]);
}

#[test]
fn a_draft_serves_what_it_can_and_the_rest_is_decoded_without_it() {
    const CHECKPOINTED: &str = "plain cached checkpoint: draft-incompatible-with-request";
    const CACHED: &str = "plain cached: draft-incompatible-with-request";
    check(&[
        ["draft", "", "", "speculative"],
        ["draft kv turbo logprobs adapters grammar seed penalty extras", "", "", "speculative"],
        ["draft vision prefix", "", "", CACHED],
        ["draft", "", "paged", "plain paged cached: draft-incompatible-with-request"],
        ["draft logprobs", "speculative-logprobs", "", CACHED],
        ["draft kv", "speculative-kv", "", CHECKPOINTED],
        ["draft turbo", "speculative-turbo", "", CHECKPOINTED],
        ["draft adapters", "speculative-adapters", "", CHECKPOINTED],
        // With adapters drafts need everything else to share steps.
        ["draft adapters", "grouped-speculation", "", CHECKPOINTED],
        [
            "draft adapters grammar",
            "grammar-batch",
            "",
            "unsupported: grammar-batch-unsupported, draft-incompatible-with-request",
        ],
        ["draft", "autoregression", "", "denoising: draft-incompatible-with-request"],
        // What is lacking and not needed does not matter.
        [
            "draft",
            "speculative-logprobs speculative-kv speculative-turbo speculative-adapters",
            "",
            "speculative",
        ],
    ]);
}

#[test]
fn a_grammar_makes_drafts_where_nothing_else_does() {
    const CACHED: &str = "plain cached: grammar-jump-incompatible-with-request";
    check(&[
        ["grammar", "", "jump", "speculative jump"],
        ["grammar adapters kv turbo logprobs", "", "jump", "speculative jump"],
        ["grammar", "", "", "plain cached"],
        ["", "", "jump", "plain cached checkpoint: grammar-jump-incompatible-with-request"],
        ["grammar draft", "", "jump", "speculative: grammar-jump-incompatible-with-request"],
        ["grammar vision prefix", "", "jump", CACHED],
        ["grammar", "", "jump paged", "plain paged cached: grammar-jump-incompatible-with-request"],
        ["grammar", "grammar-proposals", "jump", CACHED],
        ["grammar", "grouped-speculation", "jump", CACHED],
        ["grammar logprobs", "speculative-logprobs", "jump", CACHED],
        ["grammar adapters", "speculative-adapters", "jump", CACHED],
        ["grammar kv", "speculative-kv", "jump", CACHED],
        ["grammar turbo", "speculative-turbo", "jump", CACHED],
        ["grammar", "autoregression", "jump", "denoising: grammar-jump-incompatible-with-request"],
        [
            "grammar kv",
            "quantized-batch",
            "jump",
            "unsupported: kv-scheme-batch-unsupported, grammar-jump-incompatible-with-request",
        ],
    ]);
}

#[test]
fn blocks_are_bypassed_for_media_and_adapters() {
    check(&[
        ["", "", "paged", "plain paged cached"],
        ["kv grammar logprobs", "", "paged", "plain paged cached"],
        ["vision", "", "paged", "plain: paged-kv-bypassed-for-media-or-adapters"],
        // Without blocks it can be stored while it runs.
        ["adapters", "", "paged", "plain cached checkpoint: paged-kv-bypassed-for-media-or-adapters"],
        ["", "autoregression", "paged", "denoising paged"],
    ]);
}

#[test]
fn prefixes_are_stored_but_those_of_drafts_and_of_media_without_identity() {
    check(&[
        ["vision", "", "", "plain"],
        ["vision prefix", "", "", "plain cached"],
        ["vision prefix", "media-prefixes", "", "plain"],
        ["prefix", "media-prefixes", "", "plain cached checkpoint"],
        ["draft vision", "", "", "plain: draft-incompatible-with-request"],
    ]);
}

#[test]
fn fill_needs_an_answer_that_is_free() {
    const CACHED: &str = "plain cached: fill-incompatible-with-request";
    check(&[
        ["", "", "fill", "plain cached fill"],
        ["seed kv turbo adapters", "", "fill", "plain cached fill"],
        ["vision prefix", "", "fill", CACHED],
        ["grammar", "", "fill", CACHED],
        ["logprobs", "", "fill", CACHED],
        ["", "shared-fill", "fill", CACHED],
        ["", "", "fill paged", "plain paged cached: fill-incompatible-with-request"],
        ["adapters", "", "fill paged", "plain cached fill: paged-kv-bypassed-for-media-or-adapters"],
        ["draft", "", "fill", "speculative fill"],
        ["draft", "shared-fill", "fill", "speculative fill"],
        ["draft", "echo", "fill", "speculative: fill-incompatible-with-request"],
        ["draft grammar", "", "fill", "speculative: fill-incompatible-with-request"],
        [
            "draft kv",
            "speculative-kv",
            "fill",
            "plain cached: draft-incompatible-with-request, fill-incompatible-with-request",
        ],
        ["", "autoregression", "fill", "denoising: fill-incompatible-with-request"],
    ]);
}

#[test]
fn rows_are_stored_while_they_run_only_where_nothing_else_hangs_on_them() {
    check(&[
        ["adapters kv turbo seed", "", "", "plain cached checkpoint"],
        ["", "checkpoints", "", "plain cached"],
        ["", "shared-checkpoints", "", "plain cached"],
        ["vision prefix", "", "", "plain cached"],
        ["grammar", "", "", "plain cached"],
        ["logprobs", "", "", "plain cached"],
        // Asking for fill is enough, whether it is had or not.
        ["", "shared-fill", "fill", "plain cached: fill-incompatible-with-request"],
    ]);
}

#[test]
fn compiled_steps_are_for_plain_rows() {
    const REASON: &str = "compiled-decode-unavailable-for-request";
    check(&[
        ["", "", "compiled", "plain cached checkpoint compiled"],
        ["grammar logprobs kv", "", "compiled", "plain cached compiled"],
        ["", "compiled-step", "compiled", &format!("plain cached checkpoint: {REASON}")],
        ["adapters", "", "compiled", &format!("plain cached checkpoint: {REASON}")],
        ["", "", "compiled paged", &format!("plain paged cached: {REASON}")],
        ["vision", "", "compiled paged", "plain compiled: paged-kv-bypassed-for-media-or-adapters"],
        ["", "", "compiled fill", &format!("plain cached fill: {REASON}")],
        ["", "shared-fill", "compiled fill", "plain cached compiled: fill-incompatible-with-request"],
        ["draft", "", "compiled", &format!("speculative: {REASON}")],
        ["", "autoregression", "compiled", &format!("denoising: {REASON}")],
    ]);
}

/// Some of the words.
fn some(words: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(words, 0..=words.len())
}

proptest! {
    #[test]
    fn plans_are_pure_and_their_reasons_decide(
        needed in some(&NEEDS),
        lacking in some(&LACKS),
        asked in some(&ASKED),
    ) {
        let (needs, asked) = (needs(&|name| needed.contains(&name)), features(&|name| asked.contains(&name)));
        let support = support(&|name| lacking.contains(&name));
        let execution = resolve(&needs, &support, &asked);
        prop_assert_eq!(&execution, &resolve(&needs, &support.clone(), &asked));
        prop_assert!(execution.reasons.is_sorted_by(|a, b| a < b), "{:?}", execution.reasons);
        let unsupported = execution.mechanism == Mechanism::Unsupported;
        prop_assert_eq!(unsupported, !execution.exclusions().is_empty());

        // Facts for statistics change nothing.
        let other = Requirements {
            repetition_penalty: !needs.repetition_penalty,
            user_seed: !needs.user_seed,
            logits_extras: !needs.logits_extras,
            ..needs
        };
        prop_assert_eq!(&execution, &resolve(&other, &support, &asked));

        // What may be refused without harm changes neither method nor mechanism, asked for or not.
        let modest = Features { fill: false, compiled_decode: false, ..asked };
        let modest = resolve(&needs, &support, &modest);
        prop_assert_eq!((modest.method, modest.exclusions()), (execution.method, execution.exclusions()));
    }

    #[test]
    fn more_support_never_refuses_a_request(
        needed in some(&NEEDS),
        lacking in some(&LACKS[..18]),
        found in some(&LACKS[..18]),
        asked in some(&ASKED),
    ) {
        let (needs, asked) = (needs(&|name| needed.contains(&name)), features(&|name| asked.contains(&name)));
        let less = support(&|name| lacking.contains(&name));
        let more = support(&|name| lacking.contains(&name) && !found.contains(&name));
        if resolve(&needs, &less, &asked).mechanism == Mechanism::Continuous {
            prop_assert_eq!(resolve(&needs, &more, &asked).mechanism, Mechanism::Continuous);
        }
    }
}
