//! What a loaded model and everything mounted beside it can do: bound once, asked for each request.
//!
//! Invariants: the model is probed once, when it has been loaded; a binding never changes, so that equal requests are run in
//! equal ways; facts of a request are worked out here and nowhere else.

use crate::{
    config::{Config, Draft},
    error::Error,
    resolve::resolve,
};
use tandem_contracts::{
    execution::{Execution, Features, Method, Requirements, Support},
    fill::Fill,
    model::{Capabilities, Code, Codes, Session, StatePolicy},
    request::Request,
    sampling::Sampling,
};

/// What proposes drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proposer {
    /// Whether it can for rows with adapters.
    pub(crate) adapters: bool,
}

/// What stands beside the model. [`Default`] is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// A draft, for every request.
    pub(crate) draft: Option<Proposer>,
    /// Whether grammars can bind answers.
    pub(crate) grammar: bool,
    /// What proposes the tokens that a grammar determines.
    pub(crate) grammar_draft: Option<Proposer>,
    /// What proposes copies of what stood before, for requests that allow it.
    pub(crate) echo: Option<Proposer>,
}

/// What is to be known of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kept {
    /// Whether some layers' keys and values are in affine codes.
    affine: bool,
    /// The same in TurboQuant's.
    turbo: bool,
    /// Whether the model can keep its rows so.
    possible: bool,
}

impl Kept {
    fn of(policy: &StatePolicy, possible: bool) -> Self {
        let codes: &[_] = match policy {
            StatePolicy::Plain => &[],
            StatePolicy::Encoded { codes: Codes::Uniform(code), .. } => &[(0, *code)],
            StatePolicy::Encoded { codes: Codes::ByLayer(codes), .. } => codes,
        };
        let turbo = |(_, code): &(usize, Code)| matches!(code, Code::Turbo { .. });
        Self { affine: codes.iter().any(|code| !turbo(code)), turbo: codes.iter().any(turbo), possible }
    }
}

/// A model and what is mounted, as far as plans ask.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    model: Capabilities,
    mounted: Mounted,
    /// The engine's policies, in their order.
    policies: Vec<Kept>,
}

impl Mounted {
    /// What an engine of this configuration has.
    pub(crate) fn of(config: &Config) -> Self {
        let own = Proposer { adapters: true };
        let drafting = config.drafting;
        Self {
            draft: (drafting.draft != Draft::Off).then_some(own),
            grammar: true,
            grammar_draft: (drafting.grammars && drafting.tokens > 0).then_some(own),
            echo: (drafting.tokens > 0).then_some(own),
        }
    }
}

impl Binding {
    /// Probes a model that has just been loaded, and whose rows are to be kept by these policies.
    ///
    /// # Errors
    /// A draft is mounted, and the model cannot verify drafts.
    pub(crate) fn probe(session: &dyn Session, config: &Config, mounted: Mounted) -> Result<Self, Error> {
        let kept = |policy: &StatePolicy| Kept::of(policy, session.exemptions(policy).is_ok());
        Self::new(session.capabilities().clone(), config.policies().map(kept).collect(), mounted)
    }

    fn new(model: Capabilities, policies: Vec<Kept>, mounted: Mounted) -> Result<Self, Error> {
        if mounted.draft.is_some() && !model.execution.verifies {
            return Err(Error::draft("this model cannot verify drafts"));
        }
        Ok(Self { model, mounted, policies })
    }

    /// Facts about the model.
    pub(crate) fn model(&self) -> &Capabilities {
        &self.model
    }

    /// How a request is run whose row is kept by the policy of this number.
    pub(crate) fn resolve(&self, request: &Request, policy: usize) -> Execution {
        let kept = self.policies.get(policy).copied().unwrap_or_default();
        let (needs, fill) = (self.requirements(request, kept), request.fill.as_ref());
        resolve(&needs, &self.support(&needs, kept, fill), &self.features(&needs, fill))
    }

    /// Whether copies alone are drafts enough for a request: where nothing else is mounted, its grammar proposes instead, and what
    /// cannot be verified is decoded as it would be without.
    fn echoes(&self, request: &Request, logprobs: bool) -> bool {
        let facts = &self.model.execution;
        let able = self.mounted.echo.is_some() && facts.verifies && !facts.paged;
        able && allows_copies(request.fill.as_ref()) && request.grammar.is_none() && !logprobs
    }

    /// What a request brings. Requests carry no media or adapters yet, and a seed that was named looks like one that
    /// was drawn.
    fn requirements(&self, request: &Request, kept: Kept) -> Requirements {
        let Sampling { logit_bias, repetition, presence, frequency, dry, .. } = &request.sampling;
        let logprobs = request.scoring.answer.is_some() || request.scoring.prompt.is_some();
        let penalised = presence.amount != 0.0 || frequency.amount != 0.0 || dry.multiplier != 0.0;
        Requirements {
            kv_quant: kept.affine,
            turbo_quant: kept.turbo,
            repetition_penalty: repetition.amount != 1.0,
            logits_extras: penalised || !logit_bias.is_empty(),
            grammar: request.grammar.is_some(),
            logprobs,
            draft: self.mounted.draft.is_some() || self.echoes(request, logprobs),
            ..Requirements::default()
        }
    }

    /// What can be done for a request that brings this.
    fn support(&self, needs: &Requirements, kept: Kept, fill: Option<&Fill>) -> Support {
        let (facts, Mounted { draft, grammar, grammar_draft, echo }) = (&self.model.execution, self.mounted);
        let verified = |proposer: Option<Proposer>| proposer.filter(|_| facts.verifies);
        let proposer = verified(if needs.draft { draft.or(echo) } else { grammar_draft });
        let speculative = proposer.is_some();
        let own = [facts.method].into_iter();
        Support {
            method: facts.method,
            grouped_methods: own.chain(speculative.then_some(Method::Speculative)).collect(),
            continuous: true,
            quantized_batch: kept.possible,
            turbo_quant_batch: kept.possible,
            grammar_batch: grammar,
            adapter_batch: facts.adapters,
            paged_batch: facts.paged,
            media_batch: facts.media,
            media_prefix_cache: true,
            speculative_kv_quant: speculative,
            speculative_turbo_quant: speculative && kept.turbo,
            speculative_logprobs: speculative,
            shared_speculative_adapters: facts.adapters && proposer.is_some_and(|it| it.adapters),
            shared_grammar_proposals: verified(grammar_draft).is_some(),
            shared_fill: fill.is_some_and(|fill| !fill.rules.is_empty()),
            shared_speculative_echo: speculative && allows_copies(fill),
            compiled_decode: facts.compiled,
            // Nothing is stored of running rows yet.
            ..Support::default()
        }
    }

    /// What is asked for: blocks where rows lie in them, what the request determines, and whatever the model has compiled or a
    /// grammar can spare.
    fn features(&self, needs: &Requirements, fill: Option<&Fill>) -> Features {
        let facts = &self.model.execution;
        Features {
            paged_kv: facts.paged,
            fill: fill.is_some(),
            compiled_decode: facts.compiled,
            grammar_jump: needs.grammar,
        }
    }
}

/// Whether spans that stood before may be copied.
fn allows_copies(fill: Option<&Fill>) -> bool {
    fill.is_some_and(|fill| fill.echo.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::tests::{
        rig::request,
        structure::{Climb, bound as by},
    };
    use std::sync::Arc;
    use tandem_contracts::{
        execution::{ModelFacts, Reason},
        fill::{Kind, Rule},
        request::Scoring,
        tensor::Affine,
    };

    const AFFINE: Code = Code::Affine(Affine { bits: 4, group: 64 });
    const TURBO: Code = Code::Turbo { keys: 8, values: 3 };
    const PLAIN: ModelFacts = ModelFacts {
        method: Method::Autoregressive,
        verifies: false,
        adapters: false,
        media: false,
        paged: false,
        compiled: false,
        registers: false,
    };
    const VERIFYING: ModelFacts = ModelFacts { verifies: true, ..PLAIN };
    const ABLE: Proposer = Proposer { adapters: true };
    const UNABLE: Proposer = Proposer { adapters: false };
    const NOTHING: Mounted = Mounted { draft: None, grammar: false, grammar_draft: None, echo: None };

    const UNCODED: Kept = Kept { affine: false, turbo: false, possible: true };

    fn bind(execution: &ModelFacts, mounted: Mounted) -> Result<Binding, Error> {
        let execution = execution.clone();
        let model = Capabilities { context: 64, vocabulary: 32, trimmable: true, execution };
        Binding::new(model, vec![UNCODED], mounted)
    }

    fn bound(execution: &ModelFacts, mounted: Mounted) -> Binding {
        bind(execution, mounted).expect("it can be mounted")
    }

    fn support(execution: &ModelFacts, mounted: Mounted, draft: bool) -> Support {
        bound(execution, mounted).support(&Requirements { draft, ..Requirements::default() }, UNCODED, None)
    }

    #[test]
    fn a_bare_model_shares_plain_steps_and_nothing_else() {
        let bare = Support {
            grouped_methods: vec![Method::Autoregressive],
            continuous: true,
            quantized_batch: true,
            turbo_quant_batch: true,
            media_prefix_cache: true,
            ..Support::default()
        };
        for facts in [PLAIN, VERIFYING] {
            assert_eq!(support(&facts, NOTHING, false), bare);
        }
        let denoising = ModelFacts { method: Method::Denoising, ..PLAIN };
        let grouped_methods = vec![Method::Denoising];
        let expected = Support { method: Method::Denoising, grouped_methods, ..bare };
        assert_eq!(support(&denoising, NOTHING, false), expected);
    }

    #[test]
    fn a_draft_brings_what_verified_rows_can_do() {
        let drafting = Mounted { draft: Some(ABLE), ..NOTHING };
        let both = vec![Method::Autoregressive, Method::Speculative];
        let with = support(&VERIFYING, drafting, true);
        assert_eq!(with.grouped_methods, both);
        assert!(with.speculative_kv_quant && with.speculative_logprobs);
        // There is nothing in TurboQuant's codes, and there are no adapters.
        assert!(!with.speculative_turbo_quant && !with.shared_speculative_adapters);
        let needs = Requirements { draft: true, ..Requirements::default() };
        let turbo = Kept { turbo: true, ..UNCODED };
        assert!(bound(&VERIFYING, drafting).support(&needs, turbo, None).speculative_turbo_quant);
    }

    #[test]
    fn a_draft_that_cannot_be_verified_is_refused_with_one_line() {
        let error = bind(&PLAIN, Mounted { draft: Some(ABLE), ..NOTHING }).expect_err("so");
        assert_eq!(error.kind(), ErrorKind::Draft);
        assert_eq!(error.to_string(), "the draft could not be mounted: this model cannot verify drafts");
    }

    #[test]
    fn the_one_that_proposes_is_asked_for_adapters() {
        let facts = ModelFacts { adapters: true, ..VERIFYING };
        for (draft, grammar_draft, needed, able) in [
            (Some(ABLE), Some(UNABLE), true, true),
            (Some(UNABLE), Some(ABLE), true, false),
            (Some(UNABLE), Some(ABLE), false, true),
            (None, Some(UNABLE), false, false),
        ] {
            let support =
                support(&facts, Mounted { draft, grammar: true, grammar_draft, echo: None }, needed);
            assert_eq!(support.shared_speculative_adapters, able, "{draft:?} {grammar_draft:?} {needed}");
            // Whoever proposes, the grammar could.
            assert!(support.shared_grammar_proposals && support.grammar_batch && support.adapter_batch);
        }
        let unverified = ModelFacts { adapters: true, ..PLAIN };
        let mounted = Mounted { grammar_draft: Some(ABLE), ..NOTHING };
        assert!(!support(&unverified, mounted, false).shared_grammar_proposals);
    }

    #[test]
    fn needs_follow_the_policy_of_the_rows() {
        let by_layer = Codes::ByLayer(vec![(0, AFFINE), (3, TURBO)]);
        for (codes, affine, turbo) in [
            (None, false, false),
            (Some(Codes::Uniform(AFFINE)), true, false),
            (Some(Codes::Uniform(TURBO)), false, true),
            (Some(by_layer), true, true),
        ] {
            let encoded = |codes| StatePolicy::Encoded { codes, start: 7 };
            let state = codes.map_or(StatePolicy::Plain, encoded);
            for possible in [false, true] {
                assert_eq!(Kept::of(&state, possible), Kept { affine, turbo, possible }, "{state:?}");
            }
        }
    }

    #[test]
    fn what_the_model_has_is_asked_for_and_jumps_only_with_a_grammar() {
        let grammar = Requirements { grammar: true, ..Requirements::default() };
        assert_eq!(bound(&PLAIN, NOTHING).features(&Requirements::default(), None), Features::default());
        let jumping = Features { grammar_jump: true, ..Features::default() };
        assert_eq!(bound(&PLAIN, NOTHING).features(&grammar, None), jumping);
        let able = ModelFacts { paged: true, compiled: true, ..PLAIN };
        let asked = Features { paged_kv: true, compiled_decode: true, ..Features::default() };
        assert_eq!(bound(&able, NOTHING).features(&Requirements::default(), None), asked);
    }

    fn rule() -> Rule {
        Rule { trigger: vec![1], emit: vec![2, 3], kind: Kind::Name }
    }

    /// How a request is run: its method, whether it is filled in, and why not.
    fn run(binding: &Binding, request: Request) -> (Method, bool, Vec<Reason>) {
        let Execution { method, fill, reasons, .. } = binding.resolve(&request, 0);
        (method, fill, reasons)
    }

    #[test]
    fn what_a_request_determines_is_filled_in_where_nothing_proposes() {
        let strict = Fill { rules: [rule()].into(), echo: None };
        let asked = |fill: &Fill| Request { fill: Some(fill.clone()), ..request(&[1, 2], 3) };
        let (plain, speculative) = (Method::Autoregressive, Method::Speculative);
        let refused = vec![Reason::FillIncompatible];
        let nothing = bound(&VERIFYING, NOTHING);
        assert_eq!(run(&nothing, request(&[1, 2], 3)), (plain, false, vec![]));
        assert_eq!(run(&nothing, asked(&strict)), (plain, true, vec![]));
        assert_eq!(run(&nothing, asked(&Fill::default())), (plain, false, refused.clone()));
        let scoring = Scoring { answer: Some(0), prompt: None };
        assert_eq!(run(&nothing, Request { scoring, ..asked(&strict) }), (plain, false, refused.clone()));
        let drafting = bound(&VERIFYING, Mounted { draft: Some(ABLE), ..NOTHING });
        assert_eq!(run(&drafting, asked(&strict)), (speculative, false, refused.clone()));
        let paged = bound(&ModelFacts { paged: true, ..VERIFYING }, NOTHING);
        assert_eq!(run(&paged, asked(&strict)), (plain, false, refused));
    }

    #[test]
    fn copies_are_drafts_where_they_can_be_verified() {
        let copying = Fill { rules: [rule()].into(), echo: Some(Arc::default()) };
        let asked = || Request { fill: Some(copying.clone()), ..request(&[1, 2], 3) };
        let (plain, speculative) = (Method::Autoregressive, Method::Speculative);
        let refused = vec![Reason::FillIncompatible];
        let mounted = Mounted { echo: Some(ABLE), grammar: true, grammar_draft: Some(ABLE), ..NOTHING };
        let echo = bound(&VERIFYING, mounted);
        assert_eq!(run(&echo, asked()), (speculative, true, vec![]));
        assert!(run(&bound(&VERIFYING, Mounted { draft: Some(ABLE), ..mounted }), asked()).1);
        // Nobody else is verified because of it, and grammars go on proposing for themselves.
        assert_eq!(run(&echo, request(&[1, 2], 3)), (plain, false, vec![]));
        let scoring = Scoring { answer: Some(0), prompt: None };
        assert_eq!(run(&echo, Request { scoring, ..asked() }), (plain, false, refused.clone()));
        let execution = echo.resolve(&by(asked(), Climb::new(1, 3)), 0);
        assert_eq!(
            (execution.method, execution.grammar_jump, execution.reasons),
            (speculative, true, refused)
        );
        // Without a verifier the rules alone are followed.
        assert_eq!(run(&bound(&PLAIN, mounted), asked()), (plain, true, vec![]));
    }
}
