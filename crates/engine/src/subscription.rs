//! One request's events on their way from the engine thread to a consumer, without a runtime.
//!
//! The consumer may be a thread ([`Subscription::recv`]) or a task of any runtime ([`Subscription::next`]).
//!
//! Invariants: exactly one [`Event::Finished`] comes, and comes last, also when the publisher is dropped in a
//! panic; what waits for a slow reader is at most one progress event, the prompt's scores, one delta and the end, so that
//! memory is bounded by prompt and answer; the publisher never waits for a reader.

use crate::command::Command;
use std::{
    future::poll_fn,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tandem_contracts::{
    request::{Event, Failure, Outcome, RequestId, Score, Usage},
    text::TokenId,
};

#[derive(Debug, Default)]
struct Pending {
    progress: Option<(usize, usize)>,
    prompt: Vec<Score>,
    delta: Option<(String, Vec<TokenId>, Vec<Score>)>,
    finished: Option<(Outcome, Usage)>,
    /// Whether the end has been published, read or not.
    ended: bool,
    /// Whether the consumer has gone.
    closed: bool,
    /// Events that the consumer has taken.
    reads: u64,
    waker: Option<Waker>,
    /// Whether the consumer is a thread that sleeps.
    asleep: bool,
}

/// Who waits to be told.
struct Waiting {
    waker: Option<Waker>,
    asleep: bool,
}

impl Pending {
    fn waiting(&mut self) -> Waiting {
        Waiting { waker: self.waker.take(), asleep: self.asleep }
    }

    fn is_empty(&self) -> bool {
        self.progress.is_none() && self.prompt.is_empty() && self.delta.is_none() && self.finished.is_none()
    }

    fn pop(&mut self) -> Option<Event> {
        let event = if let Some((done, total)) = self.progress.take() {
            Event::Progress { done, total }
        } else if !self.prompt.is_empty() {
            Event::Prompt { scores: mem::take(&mut self.prompt) }
        } else if let Some((text, tokens, scores)) = self.delta.take() {
            Event::Delta { text, tokens, scores }
        } else {
            let (outcome, usage) = self.finished.take()?;
            Event::Finished { outcome, usage }
        };
        self.reads += 1;
        Some(event)
    }
}

#[derive(Debug, Default)]
struct Queue {
    pending: Mutex<Pending>,
    ready: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        // Nothing panics while it holds this lock, so what a poisoned one guards is whole.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, waiting: Waiting) {
        // Telling nobody would cost the engine a call of the system for each token.
        if waiting.asleep {
            self.ready.notify_all();
        }
        if let Some(waker) = waiting.waker {
            waker.wake();
        }
    }
}

/// Makes the two ends of one request's queue. A subscription that is dropped early says so through `commands`.
pub(crate) fn channel(
    id: RequestId,
    commands: Sender<Command>,
    idle_timeout: Duration,
) -> (Publisher, Subscription) {
    let queue = Arc::new(Queue::default());
    let publisher = Publisher {
        queue: Arc::clone(&queue),
        usage: Usage::default(),
        idle_timeout,
        seen_reads: 0,
        unread_since: Duration::ZERO,
    };
    (publisher, Subscription { id, queue, commands })
}

/// What a publisher learns about its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Reads, or has not been silent for long.
    Present,
    /// Dropped its end.
    Gone,
    /// Has left output unread for the whole idle timeout.
    Idle,
}

/// The engine's end. Dropping it without [`Publisher::finish`] ends the request as failed.
#[derive(Debug)]
pub(crate) struct Publisher {
    queue: Arc<Queue>,
    /// Token counts so far; the end carries them.
    pub(crate) usage: Usage,
    idle_timeout: Duration,
    seen_reads: u64,
    unread_since: Duration,
}

impl Publisher {
    /// Tells how much of the prompt is done.
    pub(crate) fn progress(&mut self, done: usize, total: usize, now: Duration) -> Reader {
        self.publish(now, |pending| pending.progress = Some((done, total)))
    }

    /// Hands out scores of the prompt's next tokens.
    pub(crate) fn prompt(&mut self, scores: impl Iterator<Item = Score>, now: Duration) -> Reader {
        self.publish(now, |pending| pending.prompt.extend(scores))
    }

    /// Hands out more of the answer: text, and a token with its score if there is one. It is merged with what still
    /// waits.
    pub(crate) fn delta(
        &mut self,
        text: &str,
        token: Option<(TokenId, Option<Score>)>,
        now: Duration,
    ) -> Reader {
        self.publish(now, |pending| {
            let (waiting, tokens, scores) = pending.delta.get_or_insert_default();
            waiting.push_str(text);
            if let Some((token, score)) = token {
                tokens.push(token);
                scores.extend(score);
            }
        })
    }

    /// Ends the request.
    pub(crate) fn finish(self, outcome: Outcome) {
        self.end(outcome);
    }

    fn publish(&mut self, now: Duration, change: impl FnOnce(&mut Pending)) -> Reader {
        let mut pending = self.queue.lock();
        if pending.closed {
            return Reader::Gone;
        }
        if pending.is_empty() || pending.reads != self.seen_reads {
            self.seen_reads = pending.reads;
            self.unread_since = now;
        }
        change(&mut pending);
        let waiting = pending.waiting();
        drop(pending);
        self.queue.wake(waiting);
        if now.saturating_sub(self.unread_since) >= self.idle_timeout {
            Reader::Idle
        } else {
            Reader::Present
        }
    }

    fn end(&self, outcome: Outcome) {
        let mut pending = self.queue.lock();
        if mem::replace(&mut pending.ended, true) {
            return;
        }
        if !pending.closed {
            pending.finished = Some((outcome, self.usage));
        }
        let waiting = pending.waiting();
        drop(pending);
        self.queue.wake(waiting);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.end(Outcome::Failed(Failure {
            message: "the engine stopped before the request ended".to_owned(),
        }));
    }
}

/// The consumer's end: the events of one request, in order. Dropping it cancels the request.
#[derive(Debug)]
pub struct Subscription {
    id: RequestId,
    queue: Arc<Queue>,
    commands: Sender<Command>,
}

impl Subscription {
    /// The request's name.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Waits for the next event; `None` after [`Event::Finished`]. Blocks the thread.
    pub fn recv(&mut self) -> Option<Event> {
        let mut pending = self.queue.lock();
        loop {
            let event = pending.pop();
            if event.is_some() || pending.ended {
                return event;
            }
            pending.asleep = true;
            pending = self.queue.ready.wait(pending).unwrap_or_else(PoisonError::into_inner);
            pending.asleep = false;
        }
    }

    /// The next event, or a wake-up when there is one; `Ready(None)` after [`Event::Finished`].
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut pending = self.queue.lock();
        let event = pending.pop();
        if event.is_some() || pending.ended {
            return Poll::Ready(event);
        }
        pending.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Waits for the next event; `None` after [`Event::Finished`]. A call that is dropped loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|context| self.poll_recv(context)).await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut pending = self.queue.lock();
        let ended = pending.ended;
        *pending = Pending { ended, closed: true, ..Pending::default() };
        drop(pending);
        if !ended {
            // An engine that is gone needs no telling.
            let _ = self.commands.send(Command::Cancel(self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        sync::{
            atomic::{AtomicUsize, Ordering},
            mpsc,
        },
        task::Wake,
        thread,
    };

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn pair() -> (Publisher, Subscription, mpsc::Receiver<Command>) {
        let (sender, receiver) = mpsc::channel();
        let (publisher, subscription) = channel(RequestId(7), sender, TIMEOUT);
        (publisher, subscription, receiver)
    }

    fn delta(text: &str, tokens: &[TokenId]) -> Option<Event> {
        let scores = tokens.iter().map(|&token| score(token)).collect();
        Some(Event::Delta { text: text.to_owned(), tokens: tokens.to_vec(), scores })
    }

    /// A score that can be told from other tokens'.
    fn score(token: TokenId) -> Score {
        Score { log_probability: -(token as f32), top: vec![(token, -1.0)] }
    }

    fn one(token: TokenId) -> Option<(TokenId, Option<Score>)> {
        Some((token, Some(score(token))))
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn unread_output_is_merged_and_keeps_its_order() {
        let (mut publisher, mut subscription, _commands) = pair();
        publisher.progress(4, 8, at(0));
        publisher.prompt([score(5)].into_iter(), at(0));
        publisher.progress(8, 8, at(0));
        publisher.prompt([score(6), score(7)].into_iter(), at(0));
        publisher.delta("a", one(1), at(0));
        publisher.delta("", one(2), at(0));
        publisher.delta("bc", one(3), at(0));
        publisher.usage.completion_tokens = 3;
        publisher.finish(Outcome::Length);
        assert_eq!(subscription.recv(), Some(Event::Progress { done: 8, total: 8 }));
        assert_eq!(subscription.recv(), Some(Event::Prompt { scores: vec![score(5), score(6), score(7)] }));
        assert_eq!(subscription.recv(), delta("abc", &[1, 2, 3]));
        let usage = Usage { completion_tokens: 3, ..Usage::default() };
        assert_eq!(subscription.recv(), Some(Event::Finished { outcome: Outcome::Length, usage }));
        assert_eq!((subscription.recv(), subscription.recv()), (None, None));
    }

    #[test]
    fn a_dropped_publisher_is_a_failure() {
        let (publisher, mut subscription, _commands) = pair();
        drop(publisher);
        let ended = subscription.recv();
        assert!(matches!(ended, Some(Event::Finished { outcome: Outcome::Failed(_), .. })), "{ended:?}");
        assert_eq!(subscription.recv(), None);
    }

    #[test]
    fn a_dropped_subscription_is_a_cancel_unless_the_end_was_there() {
        let (mut publisher, subscription, commands) = pair();
        drop(subscription);
        assert!(matches!(commands.try_recv(), Ok(Command::Cancel(RequestId(7)))));
        assert_eq!(publisher.delta("late", one(1), at(0)), Reader::Gone);

        let (publisher, subscription, commands) = pair();
        publisher.finish(Outcome::End);
        drop(subscription);
        assert!(commands.try_recv().is_err());
    }

    #[test]
    fn only_a_reader_that_takes_nothing_for_the_whole_timeout_is_idle() {
        let (mut publisher, mut subscription, _commands) = pair();
        assert_eq!(publisher.delta("a", None, at(100)), Reader::Present);
        assert_eq!(publisher.delta("b", None, at(129)), Reader::Present);
        assert!(subscription.recv().is_some());
        // Nothing waited from here to 200, so silence counts from 200 on.
        assert_eq!(publisher.progress(1, 2, at(200)), Reader::Present);
        assert_eq!(publisher.delta("c", None, at(229)), Reader::Present);
        // One of two events is taken: the reader lives.
        assert!(subscription.recv().is_some());
        assert_eq!(publisher.delta("d", None, at(240)), Reader::Present);
        assert_eq!(publisher.delta("e", None, at(269)), Reader::Present);
        assert_eq!(publisher.delta("f", None, at(270)), Reader::Idle);
    }

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_waiting_task_is_woken_once_for_each_wait() {
        let (mut publisher, mut subscription, _commands) = pair();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        assert!(pin!(subscription.next()).poll(&mut context).is_pending());
        publisher.delta("a", one(1), at(0));
        publisher.delta("b", one(2), at(0));
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(pin!(subscription.next()).poll(&mut context), Poll::Ready(delta("ab", &[1, 2])));
        assert!(pin!(subscription.next()).poll(&mut context).is_pending());
        drop(publisher);
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
        assert!(matches!(subscription.poll_recv(&mut context), Poll::Ready(Some(Event::Finished { .. }))));
        assert_eq!(subscription.poll_recv(&mut context), Poll::Ready(None));
    }

    #[test]
    fn a_blocked_thread_is_woken() {
        let (mut publisher, mut subscription, _commands) = pair();
        let reader = thread::spawn(move || {
            let mut text = String::new();
            while let Some(event) = subscription.recv() {
                if let Event::Delta { text: more, .. } = event {
                    text.push_str(&more);
                }
            }
            text
        });
        for token in 0..100 {
            publisher.delta("x", one(token), at(0));
        }
        publisher.finish(Outcome::End);
        assert_eq!(reader.join().map(|text| text.len()).map_err(drop), Ok(100));
    }
}
