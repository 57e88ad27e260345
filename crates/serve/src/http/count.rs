//! What the engines count, as families of Prometheus.
//!
//! Invariant: all values of a model are of the moment of asking.

use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::{MetricType, exemplar::Exemplar},
    registry::Unit,
};
use std::fmt;
use tandem_engine::Metrics;

/// One family of the engines' counts: its values, each with the value of its label if it has one.
struct Counts {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    unit: Option<Unit>,
    /// The label's name; empty for none.
    label: &'static str,
    values: fn(&Metrics) -> Vec<(&'static str, f64)>,
}

const COUNTER: Counts =
    Counts { name: "", help: "", kind: MetricType::Counter, unit: None, label: "", values: |_| Vec::new() };
const GAUGE: Counts = Counts { kind: MetricType::Gauge, ..COUNTER };

static COUNTS: &[Counts] = &[
    Counts {
        name: "rows_accepted",
        help: "Prompts taken, once for each choice",
        values: |all| vec![("", all.accepted as f64)],
        ..COUNTER
    },
    Counts {
        name: "submissions_rejected",
        help: "Requests that the engine did not take",
        values: |all| vec![("", all.rejected as f64)],
        ..COUNTER
    },
    Counts {
        name: "rows_ended",
        help: "Rows ended, by outcome",
        label: "outcome",
        values: |all| {
            let outcomes = &all.outcomes;
            vec![
                ("end", outcomes.end as f64),
                ("stop", outcomes.stop as f64),
                ("length", outcomes.length as f64),
                ("cancelled", outcomes.cancelled as f64),
                ("failed", outcomes.failed as f64),
            ]
        },
        ..COUNTER
    },
    Counts {
        name: "tokens",
        help: "Tokens: computed of prompts, of prompts from caches, of answers, proposed as drafts, drafts accepted, and filled in unchosen",
        label: "kind",
        values: |all| {
            vec![
                ("prompt", all.prompt_tokens as f64),
                ("cached", all.cached_tokens as f64),
                ("completion", all.completion_tokens as f64),
                ("drafted", all.drafted_tokens as f64),
                ("accepted", all.accepted_tokens as f64),
                ("filled", all.filled_tokens as f64),
            ]
        },
        ..COUNTER
    },
    Counts {
        name: "fill_spans",
        help: "Spans of ended rows that their requests determined or copied: put in, verified, and neither",
        label: "became",
        values: |all| {
            let (spans, verify) = (&all.fill, &all.fill.verify);
            vec![
                ("filled", spans.events as f64),
                ("verified", verify.events as f64),
                ("unused", verify.unsupported as f64),
            ]
        },
        ..COUNTER
    },
    Counts {
        name: "fill_wasted_samples",
        help: "Samples of ended rows that were dropped, as their places had been filled",
        values: |all| vec![("", all.fill.wasted_samples as f64)],
        ..COUNTER
    },
    Counts {
        name: "prefix_cache_lookups",
        help: "Rows begun, with or without cached tokens",
        values: |all| vec![("", all.begun as f64)],
        ..COUNTER
    },
    Counts {
        name: "prefix_cache_hits",
        help: "Rows that began with tokens of others",
        values: |all| vec![("", all.reused as f64)],
        ..COUNTER
    },
    Counts {
        name: "steps",
        help: "Steps of the model, by whether they failed",
        label: "outcome",
        values: |all| {
            let failed = all.failed_steps;
            vec![("done", all.steps.saturating_sub(failed) as f64), ("failed", failed as f64)]
        },
        ..COUNTER
    },
    Counts {
        name: "step_rows",
        help: "Rows of all steps together; over the number of steps, how full they are",
        values: |all| vec![("", all.step_rows as f64)],
        ..COUNTER
    },
    Counts {
        name: "engine_time",
        help: "Time of the engine while it had work, by what it did",
        unit: Some(Unit::Seconds),
        label: "work",
        values: |all| {
            let times = &all.times;
            vec![
                ("model", times.model.as_secs_f64()),
                ("sampling", times.sampling.as_secs_f64()),
                ("other", times.other.as_secs_f64()),
            ]
        },
        ..COUNTER
    },
    Counts {
        name: "requests_waiting",
        help: "Requests that wait for a row",
        values: |all| vec![("", all.queued as f64)],
        ..GAUGE
    },
    Counts {
        name: "requests_running",
        help: "Rows that share steps",
        values: |all| vec![("", all.active as f64)],
        ..GAUGE
    },
    Counts {
        name: "kv_cache",
        help: "Keys and values, by holder",
        unit: Some(Unit::Bytes),
        label: "holder",
        values: |all| vec![("rows", all.cache_bytes as f64), ("stored", all.stored_bytes as f64)],
        ..GAUGE
    },
    Counts {
        name: "stored_states",
        help: "States kept for requests that begin alike",
        values: |all| vec![("", all.stored_states as f64)],
        ..GAUGE
    },
    Counts {
        name: "device_memory",
        help: "Memory of the device, by kind",
        unit: Some(Unit::Bytes),
        label: "kind",
        values: |all| {
            let memory = &all.memory;
            vec![
                ("active", memory.active as f64),
                ("peak", memory.peak as f64),
                ("cached", memory.cached as f64),
            ]
        },
        ..GAUGE
    },
];

/// No request is shown as the example of a count.
const NO_EXEMPLAR: Option<&Exemplar<[(&str, &str); 0], f64>> = None;

/// The counts of each model's engine, at one moment.
#[derive(Debug)]
pub(super) struct Engines(pub(super) Vec<(String, Metrics)>);

impl Collector for Engines {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for Counts { name, help, kind, unit, label, values } in COUNTS {
            let mut family = encoder.encode_descriptor(name, &format!("{help}."), unit.as_ref(), *kind)?;
            for (model, metrics) in &self.0 {
                for (value, number) in values(metrics) {
                    let mut labels = vec![("model", model.as_str())];
                    labels.extend((!label.is_empty()).then_some((*label, value)));
                    let mut sample = family.encode_family(&labels)?;
                    match (kind, unit) {
                        (MetricType::Counter, Some(Unit::Seconds)) => {
                            sample.encode_counter(&number, NO_EXEMPLAR)?
                        }
                        (MetricType::Counter, _) => sample.encode_counter(&(number as u64), NO_EXEMPLAR)?,
                        _ => sample.encode_gauge(&(number as u64))?,
                    }
                }
            }
        }
        Ok(())
    }
}
