//! `GET /metrics`: counts and times as Prometheus reads them
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! What happens to requests is recorded as it happens ([`Recorder`]); what the engines count is asked of them when somebody
//! asks ([`Engines`]). Names follow <https://prometheus.io/docs/practices/naming/>.
//!
//! Invariant: no label holds what a client has sent, so that the number of series is bounded.

use super::{count::Engines, document::Asks, state::App};
use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    http::header,
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use prometheus_client::{
    encoding::{EncodeLabelSet, prometheus_text},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use std::{fmt, sync::Arc};
use tandem_engine::Metrics;

/// Seconds that requests wait for a row.
const QUEUED: [f64; 15] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1., 2.5, 5., 10., 30., 60., 120.];
/// Seconds to a first token.
const FIRST: [f64; 16] =
    [0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1., 2.5, 5., 10., 30., 60.];
/// Seconds between two tokens.
const GAP: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1., 2.5];
/// Seconds of a whole answer.
const WHOLE: [f64; 16] =
    [0.05, 0.1, 0.25, 0.5, 1., 2.5, 5., 10., 15., 20., 30., 60., 120., 300., 600., 1200.];

/// What a request is told apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    endpoint: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    model: String,
    endpoint: &'static str,
    outcome: &'static str,
}

/// Whose times these are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TimeLabels {
    pub(super) model: String,
    pub(super) endpoint: &'static str,
}

type Times = Family<TimeLabels, Histogram>;

/// What has happened to requests so far. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    registry: Arc<Registry>,
    http: Family<HttpLabels, Counter>,
    ended: Family<OutcomeLabels, Counter>,
    queued: Times,
    first: Times,
    gap: Times,
    whole: Times,
}

/// The times of one kind of answer.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// From the request to its row.
    pub(super) queued: Histogram,
    /// From the request to the first token.
    pub(super) first: Histogram,
    /// From one token to the next.
    pub(super) gap: Histogram,
    /// From the request to the answer's end.
    pub(super) whole: Histogram,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let recorder = Self {
            registry: Arc::default(),
            http: Family::default(),
            ended: Family::default(),
            queued: Times::new_with_constructor(|| Histogram::new(QUEUED)),
            first: Times::new_with_constructor(|| Histogram::new(FIRST)),
            gap: Times::new_with_constructor(|| Histogram::new(GAP)),
            whole: Times::new_with_constructor(|| Histogram::new(WHOLE)),
        };
        let mut registry = Registry::with_prefix("tandem");
        registry.register("http_requests", "Requests answered, by path and status", recorder.http.clone());
        registry.register("requests_ended", "Answers ended, by outcome", recorder.ended.clone());
        for (name, help, times) in [
            ("queue_time", "Time from a request to its row in the batch", &recorder.queued),
            ("time_to_first_token", "Time from a request to its first token", &recorder.first),
            ("inter_token_time", "Time between two tokens of an answer", &recorder.gap),
            ("request_duration", "Time from a request to the end of its answer", &recorder.whole),
        ] {
            registry.register_with_unit(name, help, Unit::Seconds, times.clone());
        }
        Self { registry: Arc::new(registry), ..recorder }
    }

    pub(super) fn series(&self, labels: &TimeLabels) -> Series {
        Series {
            queued: self.queued.get_or_create_owned(labels),
            first: self.first.get_or_create_owned(labels),
            gap: self.gap.get_or_create_owned(labels),
            whole: self.whole.get_or_create_owned(labels),
        }
    }

    /// Counts an answer that has ended.
    pub(super) fn end(&self, TimeLabels { model, endpoint }: &TimeLabels, outcome: &'static str) {
        let labels = OutcomeLabels { model: model.clone(), endpoint, outcome };
        self.ended.get_or_create(&labels).inc();
    }

    /// All of it, and the engines' own counts.
    pub(super) fn text(&self, models: Vec<(String, Metrics)>) -> Result<String, fmt::Error> {
        let mut engines = Registry::with_prefix("tandem");
        engines.register_collector(Box::new(Engines(models)));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        prometheus_text::encode(&mut text, &engines)?;
        Ok(text)
    }
}

/// Answers with the counts.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics",
    responses((status = 200, description = "Counts as Prometheus reads them.", body = String), Asks)
)]
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let models = app.models().iter().map(|model| (model.name.clone(), model.engine.metrics()));
    // Writing to a string cannot fail.
    let text = app.recorder().text(models.collect()).unwrap_or_default();
    ([(header::CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], text).into_response()
}

/// Routes whose requests are counted.
pub(super) fn counted(routes: Router, app: &App) -> Router {
    routes.layer(middleware::from_fn_with_state(app.recorder().clone(), count))
}

async fn count(State(recorder): State<Recorder>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let endpoint = path.unwrap_or("other").to_owned();
    // Dropped with the request where its client leaves before it is answered.
    let mut counting = Counting { recorder, labels: HttpLabels { endpoint, status: 499 } };
    let response = next.run(request).await;
    counting.labels.status = response.status().as_u16();
    response
}

struct Counting {
    recorder: Recorder,
    labels: HttpLabels,
}

impl Drop for Counting {
    fn drop(&mut self) {
        let HttpLabels { endpoint, status } = &self.labels;
        if *status >= 400 {
            tracing::debug!(endpoint, status, "a request was refused");
        }
        self.recorder.http.get_or_create(&self.labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tandem_engine::{Outcomes, Times};

    #[test]
    fn everything_is_rendered_as_prometheus_reads_it() {
        let recorder = Recorder::new();
        let labels = TimeLabels { model: "a \"model\"".to_owned(), endpoint: "/v1/messages" };
        let series = recorder.series(&labels);
        series.queued.observe(0.001);
        series.first.observe(0.05);
        [0.01, 0.01, 3.0].into_iter().for_each(|gap| series.gap.observe(gap));
        series.whole.observe(3.5);
        recorder.end(&labels, "length");
        recorder.http.get_or_create(&HttpLabels { endpoint: "/health".to_owned(), status: 200 }).inc();
        let metrics = Metrics {
            accepted: 3,
            rejected: 1,
            outcomes: Outcomes { length: 1, ..Outcomes::default() },
            queued: 1,
            active: 1,
            steps: 9,
            step_rows: 12,
            begun: 2,
            reused: 1,
            prompt_tokens: 100,
            cached_tokens: 64,
            completion_tokens: 30,
            cache_bytes: 1 << 40,
            times: Times { model: Duration::from_millis(1500), ..Times::default() },
            ..Metrics::default()
        };
        insta::assert_snapshot!(recorder.text(vec![(labels.model, metrics)]).expect("text"));
    }
}
