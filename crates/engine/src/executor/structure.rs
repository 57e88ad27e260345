//! Rows that grammars bind: what may come next is found out beside the device's work.
//!
//! A row lends its grammar to the step that carries it, and gets it back when the step is done. In between the grammar is with
//! a thread of its own, as the device computes on this one; what that thread has not begun when the step is done, for the
//! device may leave it no core, is found out here.
//!
//! Invariants: a grammar comes back in the state in which it was lent; one that fails ends its own row and no other.

use super::Executor;
use crate::error::panic_message;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle},
};
use tandem_contracts::{
    grammar::{Matcher, Progress},
    model::{Slot, Step},
    request::Failure,
    text::TokenId,
};

/// A set of ids for each place at which a row chooses; see [`Matcher::allowed`].
pub(super) type Sets = Vec<Vec<u32>>;

/// A grammar that a row has lent.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) slot: Slot,
    grammar: Box<dyn Matcher>,
    drafts: Vec<TokenId>,
    /// What may be chosen; none as long as nobody has looked.
    allowed: Option<Result<Sets, Failure>>,
}

impl Bound {
    fn look(&mut self) {
        if self.allowed.is_some() {
            return;
        }
        let looked = catch_unwind(AssertUnwindSafe(|| self.sets_of_window()));
        self.allowed = Some(looked.unwrap_or_else(|payload| {
            tracing::error!(panic = panic_message(payload.as_ref()), "a grammar panicked");
            Err(Failure { message: "the answer's grammar could not be followed".to_owned() })
        }));
    }

    /// What may be chosen next, and behind each draft up to one that may not be chosen itself.
    fn sets_of_window(&mut self) -> Result<Sets, Failure> {
        let (mut sets, mut taken) = (vec![self.grammar.allowed()?], 0);
        for &draft in &self.drafts {
            let word = sets.last().and_then(|set| set.get(draft as usize / 32)).copied().unwrap_or(0);
            if word >> (draft % 32) & 1 == 0 {
                break;
            }
            taken += 1;
            if self.grammar.accept(draft)? == Progress::Complete {
                break;
            }
            sets.push(self.grammar.allowed()?);
        }
        self.grammar.take_back(taken)?;
        Ok(sets)
    }

    /// What is known of what may be chosen.
    pub(super) fn sets(&self) -> &[Vec<u32>] {
        self.allowed.as_ref().and_then(|allowed| allowed.as_deref().ok()).unwrap_or_default()
    }
}

/// Grammars between two threads, each with whoever takes it first.
type Shared = Arc<[Mutex<Option<Bound>>]>;

fn hold(place: &Mutex<Option<Bound>>) -> MutexGuard<'_, Option<Bound>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at all grammars that are still there.
fn look(shared: &Shared) {
    shared.iter().for_each(|place| hold(place).iter_mut().for_each(Bound::look));
}

/// The thread beside the device's. It begins with the first step that a grammar binds, and sleeps between such steps.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// Nobody hears it where the system gave no thread.
    work: Option<Sender<Shared>>,
    thread: Option<JoinHandle<()>>,
}

impl Aside {
    /// Works, and finds out beside it what these grammars allow.
    pub(super) fn find_out<T>(&mut self, bound: Vec<Bound>, work: impl FnOnce() -> T) -> (Vec<Bound>, T) {
        if bound.is_empty() {
            return (bound, work());
        }
        let shared: Shared = bound.into_iter().map(|bound| Mutex::new(Some(bound))).collect();
        self.ask(&shared);
        let done = work();
        // From the end, where the thread comes last.
        let taken = shared.iter().rev().filter_map(|place| hold(place).take());
        let looked = taken.map(|mut bound| {
            bound.look();
            bound
        });
        let mut bound: Vec<Bound> = looked.collect();
        bound.reverse();
        (bound, done)
    }

    /// Leaves grammars to the thread. Where the system gives none, nobody looks at them before they are needed.
    fn ask(&mut self, shared: &Shared) {
        let thread = &mut self.thread;
        let work = self.work.get_or_insert_with(|| {
            let (work, asked) = channel();
            let builder = thread::Builder::new().name("tandem-grammar".to_owned());
            match builder.spawn(move || asked.iter().for_each(|shared| look(&shared))) {
                Ok(begun) => *thread = Some(begun),
                Err(error) => {
                    tracing::warn!(%error, "no thread for grammars: the device's own looks at them")
                }
            }
            work
        });
        drop(work.send(Arc::clone(shared)));
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.work = None;
        // What panicked was caught and told.
        self.thread.take().map(JoinHandle::join);
    }
}

impl Executor {
    /// The grammars of the rows that choose in a step.
    pub(super) fn lend_grammars(&mut self, step: &Step) -> Vec<Bound> {
        let rows = self.rows.iter_mut().filter_map(|row| {
            let part = step.rows.iter().find(|part| part.slot == row.slot)?;
            let (grammar, drafts) = row.lend_grammar(part)?;
            Some(Bound { slot: row.slot, grammar, drafts, allowed: None })
        });
        rows.collect()
    }

    /// Gives them back, with the failure where there was one.
    pub(super) fn return_grammars(&mut self, bound: Vec<Bound>) {
        for Bound { slot, grammar, allowed, .. } in bound {
            if let Some(row) = self.rows.iter_mut().find(|row| row.slot == slot) {
                row.return_grammar(grammar, allowed.and_then(Result::err));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::structure::Climb;
    use std::time::Duration;

    fn lent(slot: u32, grammar: impl Matcher + 'static) -> Bound {
        Bound { slot: Slot(slot), grammar: Box::new(grammar), drafts: Vec::new(), allowed: None }
    }

    #[test]
    fn grammars_are_looked_at_where_the_thread_has_no_core_too() {
        let (work, _nobody) = channel();
        for mut aside in [
            Aside { work: Some(work), thread: None },
            Aside { work: Some(channel().0), thread: None },
            Aside::default(),
        ] {
            let bound = vec![
                lent(4, Climb::new(1, 3)),
                lent(5, Climb { fails: Some(0), ..Climb::new(1, 3) }),
                lent(6, Climb { panics: Some(0), ..Climb::new(1, 3) }),
            ];
            let (bound, done) = aside.find_out(bound, || 7);
            assert_eq!((bound.len(), done), (3, 7));
            // Ids 1, 2 and 3.
            assert_eq!(bound[0].sets()[0][0], 0b1110);
            assert_eq!(bound.iter().map(|bound| bound.slot.0).collect::<Vec<_>>(), [4, 5, 6]);
            assert!(bound[1..].iter().all(|bound| matches!(bound.allowed, Some(Err(_)))));
        }
    }

    /// Tells when it is asked.
    #[derive(Debug)]
    struct Telling(Sender<()>);

    impl Matcher for Telling {
        fn allowed(&mut self) -> Result<Vec<u32>, Failure> {
            let _ = self.0.send(());
            Ok(vec![1])
        }

        fn accept(&mut self, _: TokenId) -> Result<Progress, Failure> {
            Ok(Progress::Open)
        }

        fn take_back(&mut self, _: usize) -> Result<(), Failure> {
            Ok(())
        }

        fn forced(&mut self, _: usize) -> Vec<TokenId> {
            Vec::new()
        }

        fn prefix(&mut self, _: &[TokenId]) -> Result<usize, Failure> {
            Ok(0)
        }
    }

    #[test]
    fn they_are_looked_at_while_the_device_works() {
        let (asked, told) = channel();
        let mut aside = Aside::default();
        for _ in 0..3 {
            let work = || told.recv_timeout(Duration::from_secs(60));
            let (bound, told) = aside.find_out(vec![lent(0, Telling(asked.clone()))], work);
            assert_eq!((told, bound[0].sets().len()), (Ok(()), 1));
        }
    }
}
