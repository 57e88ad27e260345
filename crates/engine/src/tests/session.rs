//! A session whose logits are a function of a row's tokens, and which fails when it is told to.

use crate::plan::render;
use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};
use tandem_contracts::{
    execution::ModelFacts,
    model::{
        Capabilities, RowState, RowStep, Session, Slot, StatePolicy, Step, Stepped, TokenSource, Wanted,
    },
    tensor::{Device, Dtype, Error, ErrorKind, Result, Tensor},
    text::TokenId,
};

/// Width of the logits; the last two ids are padding of the head and would always win.
pub(crate) const WIDTH: usize = 34;
/// Ids that may be sampled.
pub(crate) const VOCABULARY: usize = 32;
/// Tokens that a row may hold.
pub(crate) const CONTEXT: usize = 64;
/// A row that begins with this token gets NaN once it holds [`POISONED`] tokens.
pub(crate) const POISON: TokenId = 31;
pub(crate) const POISONED: usize = 6;
/// A row that begins with this token has keys that cannot be encoded once it holds [`POISONED`] tokens.
pub(crate) const UNSOUND: TokenId = 30;
/// Bytes of a cached token.
pub(crate) const TOKEN_BYTES: usize = 10;

/// What the next call of a kind does instead of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Error(ErrorKind),
    Panic,
}

impl Trouble {
    fn strike(self, operation: &'static str) -> Result<()> {
        match self {
            Self::Error(kind) => Err(Error::new(kind, operation, "as scripted")),
            Self::Panic => panic!("{operation}: as scripted"),
        }
    }
}

type Hook = Box<dyn FnMut(usize) + Send>;

/// What a test tells the session, and reads from it.
#[derive(Default)]
pub(crate) struct Script {
    /// Steps so far, rendered.
    pub(crate) steps: Vec<String>,
    pub(crate) opened: usize,
    pub(crate) closed: usize,
    /// Trouble at the step of this number.
    pub(crate) at_step: BTreeMap<usize, Trouble>,
    pub(crate) at_open: Option<Trouble>,
    pub(crate) at_close: Option<Trouble>,
    pub(crate) at_fork: Option<Trouble>,
    pub(crate) at_trim: Option<Trouble>,
    /// The step of this number gives a value that cannot be evaluated.
    pub(crate) at_evaluation: Option<usize>,
    /// Called at the beginning of every step with its number.
    pub(crate) hook: Option<Hook>,
    /// Called in every step with the number of its tokens.
    pub(crate) cost: Option<Hook>,
    /// Whether rows can be shortened; read when the session is made.
    pub(crate) trimmable: bool,
    /// Steps wait while this is set.
    pub(crate) held: bool,
    /// Rows cannot be kept by any policy.
    pub(crate) unkept: bool,
    /// Tokens that rows may hold together.
    pub(crate) pool: Option<usize>,
    /// Whether steps may go on from tokens that nobody has read; read when the session is made.
    pub(crate) registers: bool,
}

/// Shared by the test and the session.
#[derive(Default)]
pub(crate) struct Control {
    script: Mutex<Script>,
    changed: Condvar,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl Control {
    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    pub(crate) fn release(&self) {
        self.script().held = false;
        self.changed.notify_all();
    }

    /// Waits until this many steps have begun.
    pub(crate) fn await_steps(&self, count: usize) {
        let waiting = |script: &mut Script| script.steps.len() < count;
        drop(self.changed.wait_while(self.script(), waiting).expect("no step panics with the lock"));
    }
}

/// The greedy continuation by the rule that the session's logits follow.
pub(crate) fn next_token(tokens: &[TokenId]) -> TokenId {
    (mix(tokens, 1_000) % 30) as TokenId
}

/// The first `count` tokens that follow a prompt.
pub(crate) fn continuation(prompt: &[TokenId], count: usize) -> Vec<TokenId> {
    let mut tokens = prompt.to_vec();
    (0..count).for_each(|_| tokens.push(next_token(&tokens)));
    tokens.split_off(prompt.len())
}

fn mix(tokens: &[TokenId], salt: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ salt;
    let hash = tokens.iter().fold(start, |hash, &token| {
        (hash ^ u64::from(token)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    });
    (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

fn logits(tokens: &[TokenId]) -> Vec<f32> {
    if tokens.first() == Some(&POISON) && tokens.len() >= POISONED {
        return vec![f32::NAN; WIDTH];
    }
    let noise = |id: u64| (mix(tokens, id) % 1_000) as f32 / 500.0;
    let mut row: Vec<f32> = (0..WIDTH as u64).map(noise).collect();
    row[next_token(tokens) as usize] = 3.0;
    row[VOCABULARY..].fill(9.0);
    row
}

#[derive(Debug)]
struct State {
    tokens: Vec<TokenId>,
    floor: usize,
}

impl RowState for State {
    fn tokens(&self) -> usize {
        self.tokens.len()
    }

    fn bytes(&self) -> usize {
        self.tokens.len() * TOKEN_BYTES
    }

    fn reuse_floor(&self) -> usize {
        self.floor
    }

    fn fork(&self) -> Result<Box<dyn RowState>> {
        Ok(Box::new(Self { tokens: self.tokens.clone(), floor: self.floor }))
    }

    fn planes(&self) -> Vec<Tensor> {
        Vec::new()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The session itself.
#[derive(Debug)]
pub(crate) struct Scripted {
    device: Device,
    capabilities: Capabilities,
    rows: BTreeMap<Slot, Vec<TokenId>>,
    policies: BTreeMap<Slot, StatePolicy>,
    /// What slots have sampled, as the last step said, until the next one.
    register: BTreeMap<Slot, TokenId>,
    /// Rows of the last step that may be shortened into it as long as nothing else is asked, with their tokens before it.
    window: BTreeMap<Slot, usize>,
    control: Arc<Control>,
}

impl Scripted {
    pub(crate) fn new(device: &Device, control: Arc<Control>) -> Self {
        let script = control.script();
        let execution = ModelFacts { registers: script.registers, verifies: true, ..ModelFacts::default() };
        let trimmable = script.trimmable;
        drop(script);
        let capabilities = Capabilities { context: CONTEXT, vocabulary: WIDTH, trimmable, execution };
        Self {
            device: device.clone(),
            capabilities,
            rows: BTreeMap::new(),
            policies: BTreeMap::new(),
            register: BTreeMap::new(),
            window: BTreeMap::new(),
            control,
        }
    }

    /// With logits of so many ids, as it says.
    pub(crate) fn narrowed(mut self, vocabulary: usize) -> Self {
        self.capabilities.vocabulary = vocabulary;
        self
    }

    fn check(&self, row: &RowStep) -> Result<Vec<TokenId>> {
        let refuse = |message: &str| Err(Error::new(ErrorKind::State, "step", message));
        let Some(held) = self.rows.get(&row.slot) else { return refuse("the slot is not open") };
        let ids = match &row.tokens {
            TokenSource::Ids(ids) => ids.as_slice(),
            TokenSource::Register(slot) => match self.register.get(slot) {
                Some(token) => std::slice::from_ref(token),
                None => return refuse("there is no unread token"),
            },
        };
        if held.len() != row.position || ids.is_empty() || held.len() + ids.len() > CONTEXT {
            return refuse("the row disagrees");
        }
        Ok([held.as_slice(), ids].concat())
    }

    fn begin(&self, step: &Step) -> Result<usize> {
        let mut script = self.control.script();
        script.steps.push(render(step));
        let number = script.steps.len();
        self.control.changed.notify_all();
        if let Some(hook) = &mut script.hook {
            hook(number);
        }
        if let Some(cost) = &mut script.cost {
            cost(step.tokens());
        }
        let mut script =
            self.control.changed.wait_while(script, |script| script.held).expect("no step panics");
        let trouble = script.at_step.remove(&number);
        drop(script);
        trouble.map_or(Ok(number), |trouble| trouble.strike("step").map(|()| number))
    }

    /// A value that the fake can only refuse when it is computed.
    fn poisoned(&self) -> Result<Tensor> {
        let plane = self.device.upload_f32(&[0.0], &[1])?;
        let outside = self.device.upload_i32(&[7], &[1])?;
        self.device.take(&plane, &outside, 0)
    }
}

impl Scripted {
    /// As a session that encodes keys says it: for every row of the step, or not at all.
    fn sound(&self, rows: &[(Slot, Vec<TokenId>)]) -> Result<Option<Tensor>> {
        let encoded = |(_, tokens): &(Slot, Vec<TokenId>)| tokens.first() == Some(&UNSOUND);
        if !rows.iter().any(encoded) {
            return Ok(None);
        }
        let flags: Vec<i32> =
            rows.iter().map(|row| i32::from(!encoded(row) || row.1.len() < POISONED)).collect();
        self.device.upload_i32(&flags, &[flags.len()]).map(Some)
    }
}

impl Session for Scripted {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn project_bytes(&self, _policy: &StatePolicy, rows: &[usize], _step: usize) -> Result<usize> {
        let tokens: usize = rows.iter().sum();
        if self.control.script().pool.is_some_and(|pool| tokens > pool) {
            return Err(Error::new(ErrorKind::Memory, "pool", "there is no room for all"));
        }
        Ok(tokens * TOKEN_BYTES)
    }

    fn exemptions(&self, _policy: &StatePolicy) -> Result<Vec<String>> {
        match self.control.script().unkept {
            true => Err(Error::new(ErrorKind::Unsupported, "policy", "as scripted")),
            false => Ok(Vec::new()),
        }
    }

    fn open(&mut self, slot: Slot, policy: &StatePolicy, state: Option<Box<dyn RowState>>) -> Result<()> {
        let trouble = self.control.script().at_open.take();
        trouble.map_or(Ok(()), |trouble| trouble.strike("open"))?;
        let tokens = state.map_or_else(Vec::new, |state| {
            state.into_any().downcast::<State>().expect("a state of this session").tokens
        });
        assert!(self.rows.insert(slot, tokens).is_none(), "the slot is open");
        self.window.clear();
        self.policies.insert(slot, policy.clone());
        self.control.script().opened += 1;
        Ok(())
    }

    fn close(&mut self, slot: Slot) -> Result<Box<dyn RowState>> {
        let trouble = self.control.script().at_close.take();
        trouble.map_or(Ok(()), |trouble| trouble.strike("close"))?;
        self.window.clear();
        let tokens = self.rows.remove(&slot);
        let tokens = tokens.ok_or_else(|| Error::new(ErrorKind::State, "close", "the slot is not open"))?;
        self.control.script().closed += 1;
        let floor = if self.capabilities.trimmable { 0 } else { tokens.len() };
        Ok(Box::new(State { tokens, floor }))
    }

    fn discard(&mut self, slot: Slot) {
        let trouble = self.control.script().at_close.take();
        trouble.map_or(Ok(()), |trouble| trouble.strike("discard")).expect("nothing but a panic");
        self.control.script().closed += u32::from(self.rows.remove(&slot).is_some()) as usize;
    }

    fn snapshot(&self, _state: &dyn RowState, _model: &[u8]) -> Result<Vec<u8>> {
        Err(Error::new(ErrorKind::Unsupported, "snapshot", "not scripted"))
    }

    fn restore(&mut self, _policy: &StatePolicy, _model: &[u8], _bytes: &[u8]) -> Result<Box<dyn RowState>> {
        Err(Error::new(ErrorKind::Unsupported, "restore", "not scripted"))
    }

    fn fork(&mut self, from: Slot, to: Slot) -> Result<()> {
        let trouble = self.control.script().at_fork.take();
        trouble.map_or(Ok(()), |trouble| trouble.strike("fork"))?;
        self.window.clear();
        let tokens = self.rows.get(&from).cloned();
        let tokens = tokens.ok_or_else(|| Error::new(ErrorKind::State, "fork", "the slot is not open"))?;
        assert!(self.rows.insert(to, tokens).is_none(), "the slot is open");
        let policy = self.policies.get(&from).cloned().unwrap_or_default();
        self.policies.insert(to, policy);
        self.control.script().opened += 1;
        Ok(())
    }

    fn trim(&mut self, slot: Slot, tokens: usize) -> Result<()> {
        let trouble = self.control.script().at_trim.take();
        trouble.map_or(Ok(()), |trouble| trouble.strike("trim"))?;
        let window = self.window.get(&slot).is_some_and(|before| *before <= tokens);
        let held = self.rows.get_mut(&slot);
        let held = held.ok_or_else(|| Error::new(ErrorKind::State, "trim", "the slot is not open"))?;
        if !self.capabilities.trimmable && !window && tokens < held.len() {
            return Err(Error::new(ErrorKind::Unsupported, "trim", "rows cannot be shortened"));
        }
        held.truncate(tokens);
        Ok(())
    }

    fn register(&mut self, slots: &[Slot], sampled: &Tensor) -> Result<()> {
        assert_eq!((sampled.dtype(), sampled.elements()), (Dtype::I32, slots.len()));
        let tokens = sampled.to_vec::<i32>()?;
        self.register = slots.iter().copied().zip(tokens.into_iter().map(|token| token as TokenId)).collect();
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<Stepped> {
        let number = self.begin(step)?;
        let mut policies = step.rows.iter().map(|row| self.policies.get(&row.slot));
        let first = policies.next().flatten();
        assert!(policies.all(|policy| policy == first), "rows that are kept in different ways share a step");
        let rows = step.rows.iter().map(|row| Ok((row.slot, self.check(row)?)));
        let rows: Vec<(Slot, Vec<TokenId>)> = rows.collect::<Result<_>>()?;
        let wanted = step.rows.iter().zip(&rows).flat_map(|(row, (_, tokens))| {
            let wanted = row.wanted.count(row.tokens.len());
            (tokens.len() - wanted + 1..=tokens.len()).flat_map(|end| logits(&tokens[..end]))
        });
        let wanted: Vec<f32> = wanted.collect();
        let count = step.wanted();
        let mut touched = vec![self.device.upload_f32(&vec![0.5; step.tokens()], &[step.tokens()])?];
        if self.control.script().at_evaluation == Some(number) {
            touched.push(self.poisoned()?);
        }
        let sound = self.sound(&rows)?;
        self.rows.extend(rows);
        self.register.clear();
        let windows = step.rows.iter().filter(|row| row.wanted == Wanted::All && row.tokens.len() > 1);
        self.window = windows.map(|row| (row.slot, row.position)).collect();
        let logits = (count > 0).then(|| self.device.upload_f32(&wanted, &[count, WIDTH])).transpose()?;
        Ok(Stepped { logits, touched, sound })
    }
}
