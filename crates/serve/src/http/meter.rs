//! What one answer took: times and tokens for the charts, and one line of the log at its end.
//!
//! Invariants: an answer that was taken is counted once, when all of its rows have ended, one has failed, or its client has
//! gone; no line of the log holds what was asked or answered.

use super::metrics::{Recorder, Series, TimeLabels};
use std::time::{Duration, Instant};
use tandem_contracts::request::{Event, Outcome, Usage};

/// Outcomes of answers, from the best to the worst. An answer of several rows has the worst of theirs.
const OUTCOMES: [&str; 5] = ["end", "stop", "length", "cancelled", "failed"];

/// Where answers are asked for, by how their ids begin.
const ENDPOINTS: [(&str, &str); 4] = [
    ("chatcmpl-", "/v1/chat/completions"),
    ("cmpl-", "/v1/completions"),
    ("msg_", "/v1/messages"),
    ("resp_", "/v1/responses"),
];

/// The meter of one answer.
#[derive(Debug)]
pub(crate) struct Meter {
    recorder: Recorder,
    labels: TimeLabels,
    series: Series,
    id: String,
    begun: Instant,
    rows: Vec<Row>,
    /// Rows of one prompt.
    choices: usize,
    usage: Usage,
    /// Rows that have ended, and the worst of their outcomes.
    ended: usize,
    worst: usize,
}

/// When what came of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    started: Option<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Meter {
    /// The meter of an answer that is submitted now, by its id, the name of its model, and how many rows it has, of which so
    /// many for each prompt.
    pub(crate) fn new(
        recorder: &Recorder,
        (id, model): (&str, &str),
        (rows, choices): (usize, usize),
    ) -> Self {
        let endpoint = ENDPOINTS.iter().find(|(prefix, _)| id.starts_with(prefix));
        let endpoint = endpoint.map_or("other", |(_, endpoint)| endpoint);
        let labels = TimeLabels { model: model.to_owned(), endpoint };
        Self {
            series: recorder.series(&labels),
            recorder: recorder.clone(),
            labels,
            id: id.to_owned(),
            begun: Instant::now(),
            rows: vec![Row::default(); rows],
            choices: choices.max(1),
            usage: Usage::default(),
            ended: 0,
            worst: 0,
        }
    }

    /// Notes what has come of a row.
    pub(crate) fn see(&mut self, row: usize, event: &Event) {
        let now = Instant::now();
        match event {
            Event::Progress { .. } | Event::Prompt { .. } => self.start(row, now),
            Event::Delta { tokens, .. } => {
                self.start(row, now);
                self.tokens(row, tokens.len(), now);
            }
            Event::Finished { outcome, usage } => self.end(row, outcome, *usage),
        }
    }

    fn start(&mut self, row: usize, now: Instant) {
        let Row { started, .. } = &mut self.rows[row];
        if started.is_none() {
            *started = Some(now);
            self.series.queued.observe((now - self.begun).as_secs_f64());
        }
    }

    fn tokens(&mut self, row: usize, count: usize, now: Instant) {
        if count == 0 {
            return;
        }
        let Row { first, last, .. } = &mut self.rows[row];
        match last.replace(now) {
            None => {
                *first = Some(now);
                self.series.first.observe((now - self.begun).as_secs_f64());
            }
            Some(last) => {
                // Tokens that come together have come in this time together.
                let each = (now - last).as_secs_f64() / count as f64;
                (0..count).for_each(|_| self.series.gap.observe(each));
            }
        }
    }

    fn end(&mut self, row: usize, outcome: &Outcome, usage: Usage) {
        self.ended += 1;
        self.worst = self.worst.max(rank(outcome));
        self.usage.completion_tokens += usage.completion_tokens;
        self.usage.drafted_tokens += usage.drafted_tokens;
        self.usage.accepted_tokens += usage.accepted_tokens;
        self.usage.filled_tokens += usage.filled_tokens;
        if row.is_multiple_of(self.choices) {
            self.usage.prompt_tokens += usage.prompt_tokens;
            self.usage.cached_tokens += usage.cached_tokens;
        }
    }

    fn outcome(&self) -> &'static str {
        // One row that fails or is cancelled ends the answer.
        match self.ended == self.rows.len() || self.worst >= rank(&Outcome::Cancelled) {
            true => OUTCOMES[self.worst],
            false => "client_gone",
        }
    }
}

fn rank(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::End => 0,
        Outcome::Stop(_) => 1,
        Outcome::Length => 2,
        Outcome::Cancelled => 3,
        Outcome::Failed(_) => 4,
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let whole = self.begun.elapsed();
        let outcome = self.outcome();
        self.series.whole.observe(whole.as_secs_f64());
        self.recorder.end(&self.labels, outcome);
        let earliest = |when: fn(&Row) -> Option<Instant>| {
            self.rows.iter().filter_map(when).min().map(|when| milliseconds(when - self.begun))
        };
        let Usage { prompt_tokens, cached_tokens, completion_tokens, .. } = self.usage;
        let Usage { drafted_tokens, accepted_tokens, filled_tokens, .. } = self.usage;
        tracing::info!(
            target: "tandem::request",
            id = self.id,
            model = self.labels.model,
            endpoint = self.labels.endpoint,
            outcome,
            choices = self.rows.len(),
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            drafted_tokens,
            accepted_tokens,
            filled_tokens,
            queued_ms = earliest(|row| row.started),
            first_token_ms = earliest(|row| row.first),
            duration_ms = milliseconds(whole),
            "request ended"
        );
    }
}

/// To a tenth: more is noise.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_contracts::request::Failure;

    fn meter(recorder: &Recorder, rows: usize) -> Meter {
        Meter::new(recorder, ("cmpl-1", "m"), (rows, 1))
    }

    fn finished(outcome: Outcome) -> Event {
        Event::Finished {
            outcome,
            usage: Usage { prompt_tokens: 7, completion_tokens: 2, ..Usage::default() },
        }
    }

    fn delta(tokens: &[u32]) -> Event {
        Event::Delta { text: String::new(), tokens: tokens.to_vec(), scores: Vec::new() }
    }

    /// Else an answer has taken no time to write, or that of its prompt too.
    #[test]
    fn the_first_token_is_timed_when_it_comes() {
        const PAUSE: Duration = Duration::from_millis(5);
        let mut meter = meter(&Recorder::new(), 1);
        meter.see(0, &Event::Progress { done: 7, total: 7 });
        meter.see(0, &delta(&[]));
        assert!(meter.rows[0].started.is_some() && meter.rows[0].first.is_none());
        std::thread::sleep(PAUSE);
        let before = Instant::now();
        meter.see(0, &delta(&[1]));
        let first = meter.rows[0].first.expect("a token has come");
        assert!(before <= first && first <= Instant::now());
        std::thread::sleep(PAUSE);
        meter.see(0, &delta(&[2, 3]));
        meter.see(0, &finished(Outcome::End));
        let Row { first: kept, last, .. } = meter.rows[0];
        assert_eq!(kept, Some(first));
        assert!(last.is_some_and(|last| last - first >= PAUSE));
    }

    #[test]
    fn times_are_those_between_what_comes() {
        let recorder = Recorder::new();
        let mut meter = meter(&recorder, 1);
        meter.see(0, &Event::Progress { done: 0, total: 7 });
        meter.see(0, &Event::Progress { done: 7, total: 7 });
        meter.see(0, &delta(&[1]));
        std::thread::sleep(Duration::from_millis(20));
        // Four at once have taken a quarter of the time each; text without a token is none.
        meter.see(0, &delta(&[2, 3, 4, 5]));
        meter.see(0, &delta(&[]));
        let count = |name: &str| {
            let text = recorder.text(Vec::new()).expect("text");
            let line = text.lines().find(|line| line.starts_with(&format!("tandem_{name}{{")));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        };
        assert_eq!(count("queue_time_seconds_count"), Some(1.0));
        assert_eq!(count("time_to_first_token_seconds_count"), Some(1.0));
        assert_eq!(count("inter_token_time_seconds_count"), Some(4.0));
        assert!(count("inter_token_time_seconds_sum").is_some_and(|sum| sum >= 0.02));
        assert_eq!(count("request_duration_seconds_count"), Some(0.0));
        drop(meter);
        assert_eq!(count("request_duration_seconds_count"), Some(1.0));
    }

    #[test]
    fn an_answer_ends_as_the_worst_of_its_rows() {
        let recorder = Recorder::new();
        let failed = || Outcome::Failed(Failure { message: "m".to_owned() });
        for (ends, outcome) in [
            (vec![Outcome::End, Outcome::Stop(0)], "stop"),
            (vec![Outcome::Length, Outcome::End], "length"),
            (vec![Outcome::End], "client_gone"),
            (vec![], "client_gone"),
            (vec![failed()], "failed"),
            (vec![Outcome::Cancelled], "cancelled"),
        ] {
            let mut meter = meter(&recorder, 2);
            ends.iter().enumerate().for_each(|(row, end)| meter.see(row, &finished(end.clone())));
            assert_eq!(meter.outcome(), outcome, "{ends:?}");
        }
    }

    #[test]
    fn a_prompt_is_counted_once_however_many_choices_it_has() {
        let mut meter = Meter::new(&Recorder::new(), ("msg_1", "m"), (4, 2));
        (0..4).for_each(|row| meter.see(row, &finished(Outcome::End)));
        assert_eq!((meter.usage.prompt_tokens, meter.usage.completion_tokens), (14, 8));
        assert_eq!(meter.labels.endpoint, "/v1/messages");
    }
}
