//! A response that is being made: whole, or as events.
//!
//! Invariants: a stream begins with `response.created` and ends with one of `response.completed`,
//! `response.incomplete` and `response.failed`, also where work on it panics; a response is kept once it has ended well,
//! whether or not its client still listens to the last event; what may be as long as the request is written by a worker.

use super::{
    event::{Events, Sent},
    item::Item,
    lost::Lost,
    object::{Incomplete, ResponseObject, Usage},
    output::{Output, Status},
    request::Echo,
    store::Kept,
};
use crate::{
    http::{answer::Answer, error::ApiError, part::Part, state::App},
    model::unix_seconds,
};
use axum::{
    Json,
    response::{
        IntoResponse, Response,
        sse::{KeepAlive, Sse},
    },
};
use futures_util::stream;
use serde_json::{Value, json};
use std::{sync::Arc, time::Instant};

/// What ids of responses begin with.
pub(super) const PREFIX: &str = "resp_";

/// A response on its way.
#[derive(Debug)]
pub(super) struct Making {
    answer: Answer,
    asked: Arc<Echo>,
    /// All items of its input, if it is kept with them.
    keeping: Option<Vec<Item>>,
    app: App,
    output: Output,
    events: Events,
    ended: bool,
}

/// What comes next of the answer.
type Next = Option<Result<(usize, Part), ApiError>>;

impl Making {
    /// The response that an answer becomes, with its first events if it is streamed. It is kept with `keeping`, if anything.
    pub(super) fn new(
        answer: Answer,
        (asked, keeping): (Echo, Option<Vec<Item>>),
        app: App,
        streamed: bool,
    ) -> Self {
        let name = answer.head.id.trim_start_matches(PREFIX);
        let output = Output::new(name, &answer.tokenizer);
        let events = Events::new(streamed);
        let asked = Arc::new(asked);
        let mut making = Self { answer, asked, keeping, app, output, events, ended: false };
        if streamed {
            for kind in ["response.created", "response.in_progress"] {
                let begun = json!({"response": making.object(Status::InProgress)});
                making.events.put(kind, begun);
            }
        }
        making
    }

    /// The whole response.
    ///
    /// # Errors
    /// The answer failed.
    pub(super) async fn whole(mut self) -> Result<Response, ApiError> {
        let mut reason = "stop";
        while let Some(next) = self.answer.next().await {
            match next? {
                (_, Part::End(end)) => reason = end,
                more => self = self.take(Some(Ok(more)), Self::note).await.map_err(|lost| lost.error)?,
            }
        }
        let writers = self.app.writers().clone();
        writers.run(move || Json(self.end(reason)).into_response()).await
    }

    /// The response that streams it, with a comment line whenever nothing else was sent for some time.
    pub(super) fn stream(self) -> Response {
        let alive = KeepAlive::new().interval(self.app.keep_alive()).text("keep-alive");
        let events = stream::unfold(Some(self), |making| async move { making?.next(Self::note).await });
        Sse::new(events).keep_alive(alive).into_response()
    }

    /// The next event and what comes after it, until there is none; `note` takes what is long of the answer.
    async fn next(mut self, note: fn(&mut Self, Next)) -> Option<(Sent, Option<Self>)> {
        loop {
            if let Some(event) = self.events.take() {
                return Some((event, Some(self)));
            }
            if self.ended {
                return None;
            }
            let next = self.answer.next().await;
            match self.take(next, note).await {
                Ok(taken) => self = taken,
                Err(lost) => return Some((lost.event().await, None)),
            }
        }
    }

    /// Takes what comes next of the answer: at once, or by a worker where that may take long.
    async fn take(mut self, next: Next, note: fn(&mut Self, Next)) -> Result<Self, Box<Lost>> {
        match next {
            Some(Ok((_, Part::More(piece)))) if !piece.is_long() => {
                self.output.add(piece, &mut self.events);
                Ok(self)
            }
            next => {
                let writers = self.app.writers().clone();
                let (head, asked) = (self.answer.head.clone(), Arc::clone(&self.asked));
                let events = self.events.after();
                let take = move || {
                    note(&mut self, next);
                    self
                };
                let taken = writers.clone().run(take).await;
                taken.map_err(|error| Box::new(Lost { error, head, asked, events, writers }))
            }
        }
    }

    fn note(&mut self, next: Next) {
        match next {
            Some(Ok((_, Part::More(piece)))) => self.output.add(piece, &mut self.events),
            Some(Ok((_, Part::End(reason)))) => {
                let response = self.end(reason);
                let kind = match response.status {
                    Status::Incomplete => "response.incomplete",
                    _ => "response.completed",
                };
                self.events.put(kind, json!({"response": response}));
            }
            Some(Err(error)) => {
                let failed = self.object(Status::Failed).failed(error);
                self.events.put("response.failed", json!({"response": failed}));
                self.ended = true;
            }
            None => self.ended = true,
        }
    }

    /// The object at its end.
    fn end(&mut self, reason: &str) -> ResponseObject {
        self.ended = true;
        let cut = reason == "length";
        let status = if cut { Status::Incomplete } else { Status::Completed };
        self.output.finish(status, &mut self.events);
        let response = ResponseObject {
            completed_at: (!cut).then(unix_seconds),
            incomplete_details: cut.then_some(Incomplete { reason: "max_output_tokens" }),
            usage: Some(Usage::from(self.answer.usage())),
            ..self.object(status)
        };
        self.keep(&response);
        response
    }

    fn object(&self, status: Status) -> ResponseObject {
        let begun = ResponseObject::new(&self.answer.head, Echo::clone(&self.asked), status);
        ResponseObject { output: self.output.items.clone(), ..begun }
    }

    fn keep(&mut self, response: &ResponseObject) {
        let Some(items) = self.keeping.take() else { return };
        let input = items.iter().map(|item| json!(item));
        let items: Value = input.chain(response.output.iter().map(|item| json!(item))).collect();
        let object = json!(response).to_string().into();
        let kept = Kept { id: response.id.clone(), object, items: items.to_string().into() };
        self.app.responses().keep(kept, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        http::responses::request::ResponsesRequest,
        model::{Defaults, ModelText, ServedModel},
        text::Tokenizer,
    };
    use axum::body::to_bytes;
    use std::time::Duration;
    use tandem_contracts::{
        fake,
        model::Session,
        schedule::Clock,
        tensor::{Device, Error},
    };

    #[derive(Debug)]
    struct Still;

    impl Clock for Still {
        fn now(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// A streamed response to which nothing comes.
    fn making() -> Making {
        let build = |_: &Device| Err::<Box<dyn Session>, _>(Error::shape("load", "there is no model"));
        let open = Box::new(|| Ok(fake::open()));
        let engine = tandem_engine::start(open, build, tandem_engine::Config::default(), Box::new(Still));
        let engine = engine.expect("a thread").handle();
        let text = ModelText::new(Tokenizer::bytes().expect("a tokeniser"), None).expect("a text");
        let model = ServedModel::new("m".to_owned(), engine, text, Defaults::default());
        let asked: ResponsesRequest =
            serde_json::from_value(json!({"input": "hi", "user": "u"})).expect("a request");
        let answer = Answer::new(PREFIX, &model, Vec::new(), 1);
        let app = App::new(Vec::new(), Duration::from_secs(10));
        Making::new(answer, (asked.echo(&model), None), app, true)
    }

    /// Events whose parts are taken by `note`.
    async fn events(note: fn(&mut Making, Next)) -> Vec<Value> {
        let events = stream::unfold(Some(making()), move |making| async move { making?.next(note).await });
        let body = Sse::new(events).into_response().into_body();
        let bytes = to_bytes(body, usize::MAX).await.expect("a body");
        let text = String::from_utf8(bytes.to_vec()).expect("a text");
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }

    #[tokio::test]
    async fn work_that_panics_is_the_last_event_of_its_stream() {
        let events = events(|making, _| {
            // Nobody sees it any more.
            making.events.put("response.lost", json!({}));
            panic!("as asked")
        });
        let events = events.await;
        let seen: Vec<_> = events.iter().map(|event| (&event["type"], &event["sequence_number"])).collect();
        let want = [
            (json!("response.created"), json!(0)),
            (json!("response.in_progress"), json!(1)),
            (json!("response.failed"), json!(2)),
        ];
        assert_eq!(seen, want.each_ref().map(|(kind, number)| (kind, number)));
        // It is the response that was begun, but for its end.
        let mut want = events[0]["response"].clone();
        want["status"] = json!("failed");
        want["error"] = json!({"code": "server_error", "message": "the request could not be processed"});
        assert_eq!(events[2]["response"], want);
        assert_eq!(want["user"], "u");
    }

    #[tokio::test]
    async fn a_panic_in_a_whole_response_is_500() {
        let lost = making().take(None, |_, _| panic!("as asked")).await.expect_err("a panic");
        assert_eq!(lost.error.status.as_u16(), 500);
    }
}
