//! `GET /metrics`: the engines' counts as Prometheus reads them
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use super::state::App;
use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use std::fmt::Write;
use tandem_engine::Metrics;

/// One family of samples: its name, kind and meaning, and its value for each set of labels.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: fn(&Metrics) -> Vec<(&'static str, f64)>,
}

static FAMILIES: &[Family] = &[
    counter("tandem_requests_accepted_total", "Requests taken.", |all| vec![("", all.accepted as f64)]),
    counter("tandem_requests_rejected_total", "Requests refused.", |all| vec![("", all.rejected as f64)]),
    counter("tandem_requests_ended_total", "Requests ended, by outcome.", |all| {
        let outcomes = &all.outcomes;
        vec![
            ("outcome=\"end\"", outcomes.end as f64),
            ("outcome=\"stop\"", outcomes.stop as f64),
            ("outcome=\"length\"", outcomes.length as f64),
            ("outcome=\"cancelled\"", outcomes.cancelled as f64),
            ("outcome=\"failed\"", outcomes.failed as f64),
        ]
    }),
    counter("tandem_tokens_total", "Tokens, by kind.", |all| {
        vec![
            ("kind=\"prompt\"", all.prompt_tokens as f64),
            ("kind=\"cached\"", all.cached_tokens as f64),
            ("kind=\"completion\"", all.completion_tokens as f64),
        ]
    }),
    counter("tandem_steps_total", "Steps of the model, by whether they failed.", |all| {
        let failed = all.failed_steps;
        vec![
            ("outcome=\"done\"", all.steps.saturating_sub(failed) as f64),
            ("outcome=\"failed\"", failed as f64),
        ]
    }),
    counter("tandem_engine_seconds_total", "Time of the engine while it had work, by what it did.", |all| {
        vec![
            ("work=\"model\"", all.times.model.as_secs_f64()),
            ("work=\"sampling\"", all.times.sampling.as_secs_f64()),
            ("work=\"other\"", all.times.other.as_secs_f64()),
        ]
    }),
    gauge("tandem_requests_queued", "Requests that wait for a row.", |all| vec![("", all.queued as f64)]),
    gauge("tandem_rows_active", "Rows that share steps.", |all| vec![("", all.active as f64)]),
    gauge("tandem_cache_bytes", "Bytes of keys and values, by holder.", |all| {
        vec![("holder=\"rows\"", all.cache_bytes as f64), ("holder=\"stored\"", all.stored_bytes as f64)]
    }),
    gauge("tandem_stored_states", "States kept for requests that begin alike.", |all| {
        vec![("", all.stored_states as f64)]
    }),
    gauge("tandem_device_bytes", "Memory of the device, by kind.", |all| {
        vec![
            ("kind=\"active\"", all.memory.active as f64),
            ("kind=\"peak\"", all.memory.peak as f64),
            ("kind=\"cached\"", all.memory.cached as f64),
        ]
    }),
];

const fn counter(
    name: &'static str,
    help: &'static str,
    samples: fn(&Metrics) -> Vec<(&'static str, f64)>,
) -> Family {
    Family { name, kind: "counter", help, samples }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    samples: fn(&Metrics) -> Vec<(&'static str, f64)>,
) -> Family {
    Family { name, kind: "gauge", help, samples }
}

/// The counts of every model's engine.
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let models: Vec<(String, Metrics)> =
        app.models().iter().map(|model| (model.name.clone(), model.engine.metrics())).collect();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text(&models)).into_response()
}

fn text(models: &[(String, Metrics)]) -> String {
    let mut out = String::new();
    for Family { name, kind, help, samples } in FAMILIES {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (model, metrics) in models {
            let model = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            for (labels, value) in samples(metrics) {
                let comma = if labels.is_empty() { "" } else { "," };
                let _ = writeln!(out, "{name}{{model=\"{model}\"{comma}{labels}}} {value}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_its_head_and_a_line_for_each_model() {
        let one = Metrics { accepted: 3, cache_bytes: 1 << 40, ..Metrics::default() };
        let text = text(&[("a".to_owned(), one), ("b\"\\\n".to_owned(), Metrics::default())]);
        let head = "# HELP tandem_requests_accepted_total Requests taken.\n\
            # TYPE tandem_requests_accepted_total counter\n\
            tandem_requests_accepted_total{model=\"a\"} 3\n\
            tandem_requests_accepted_total{model=\"b\\\"\\\\\\n\"} 0\n";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains("\ntandem_cache_bytes{model=\"a\",holder=\"rows\"} 1099511627776\n"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("# TYPE")).count(), FAMILIES.len());
    }
}
