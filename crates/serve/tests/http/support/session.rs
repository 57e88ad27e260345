//! The scripted model.

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};
use tandem_contracts::{
    execution::ModelFacts,
    model::{Capabilities, RowState, Session, Slot, StatePolicy, Step, Stepped, TokenSource, Wanted},
    tensor::{Device, Error, ErrorKind, Result, Tensor},
    text::TokenId,
};

/// Tokens that a row may hold where a test says nothing of it.
pub(crate) const CONTEXT: usize = 300;

/// Bytes, and the end token.
const WIDTH: usize = 257;

/// The end token.
const END: TokenId = 256;

#[derive(Debug, Default)]
struct Orders {
    held: bool,
    /// The next step fails with this message.
    fault: Option<&'static str>,
    /// Rows of each step so far.
    steps: Vec<usize>,
    /// What each step takes.
    pause: Duration,
}

/// What a test tells the model, and learns from it.
#[derive(Debug, Default)]
pub(crate) struct Control {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl Control {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every step wait, or lets steps run.
    pub(crate) fn hold(&self, held: bool) {
        self.orders().held = held;
        self.changed.notify_all();
    }

    pub(crate) fn release(&self) {
        self.hold(false);
    }

    /// Makes every step take so long.
    pub(crate) fn pause(&self, pause: Duration) {
        self.orders().pause = pause;
    }

    pub(crate) fn fail_next(&self, message: &'static str) {
        self.orders().fault = Some(message);
    }

    /// Rows of each step so far.
    pub(crate) fn steps(&self) -> Vec<usize> {
        self.orders().steps.clone()
    }

    pub(crate) fn wait_while_held(&self) {
        let orders = self.changed.wait_while(self.orders(), |orders| orders.held);
        drop(orders.unwrap_or_else(PoisonError::into_inner));
    }
}

/// The session. A row is its prompt's length, once that is known, and its tokens.
#[derive(Debug)]
pub(crate) struct Scripted {
    device: Device,
    capabilities: Capabilities,
    rows: BTreeMap<Slot, (Option<usize>, Vec<TokenId>)>,
    control: Arc<Control>,
}

#[derive(Debug)]
struct Closed(usize);

impl RowState for Closed {
    fn tokens(&self) -> usize {
        self.0
    }

    fn bytes(&self) -> usize {
        0
    }

    fn reuse_floor(&self) -> usize {
        0
    }

    fn fork(&self) -> Result<Box<dyn RowState>> {
        Ok(Box::new(Self(self.0)))
    }

    fn planes(&self) -> Vec<Tensor> {
        Vec::new()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Scripted {
    pub(crate) fn new(device: &Device, control: Arc<Control>, context: usize) -> Self {
        let execution = ModelFacts { verifies: true, ..ModelFacts::default() };
        let capabilities = Capabilities { context, vocabulary: WIDTH, trimmable: false, execution };
        Self { device: device.clone(), capabilities, rows: BTreeMap::new(), control }
    }
}

/// What follows a prompt, from its token `index` on.
fn answer(prompt: &[TokenId], index: usize) -> TokenId {
    let bytes: Vec<u8> = prompt.iter().filter_map(|&token| u8::try_from(token).ok()).collect();
    let said = bytes.windows(5).rposition(|window| window == b"say: ").map(|at| &bytes[at + 5..]);
    match said {
        Some(text) => {
            let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
            line.get(index).map_or(END, |&byte| byte.into())
        }
        None => TokenId::from(b'a') + (index % 26) as TokenId,
    }
}

impl Session for Scripted {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn project_bytes(&self, _policy: &StatePolicy, rows: &[usize], _step: usize) -> Result<usize> {
        Ok(rows.iter().sum())
    }

    fn exemptions(&self, policy: &StatePolicy) -> Result<Vec<String>> {
        match policy {
            StatePolicy::Plain => Ok(Vec::new()),
            StatePolicy::Encoded { .. } => {
                Err(Error::new(ErrorKind::Unsupported, "policy", "rows are kept as they are"))
            }
        }
    }

    fn open(&mut self, slot: Slot, _policy: &StatePolicy, _state: Option<Box<dyn RowState>>) -> Result<()> {
        self.rows.insert(slot, (None, Vec::new()));
        Ok(())
    }

    fn close(&mut self, slot: Slot) -> Result<Box<dyn RowState>> {
        let row = self.rows.remove(&slot).ok_or_else(|| Error::new(ErrorKind::State, "close", "not open"))?;
        Ok(Box::new(Closed(row.1.len())))
    }

    fn discard(&mut self, slot: Slot) {
        self.rows.remove(&slot);
    }

    fn snapshot(&self, _state: &dyn RowState, _model: &[u8]) -> Result<Vec<u8>> {
        Err(Error::new(ErrorKind::Unsupported, "snapshot", "not scripted"))
    }

    fn restore(&mut self, _policy: &StatePolicy, _model: &[u8], _bytes: &[u8]) -> Result<Box<dyn RowState>> {
        Err(Error::new(ErrorKind::Unsupported, "restore", "not scripted"))
    }

    fn fork(&mut self, _from: Slot, _to: Slot) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "fork", "not scripted"))
    }

    fn trim(&mut self, slot: Slot, tokens: usize) -> Result<()> {
        let row = self.rows.get_mut(&slot).ok_or_else(|| Error::new(ErrorKind::State, "trim", "not open"))?;
        row.1.truncate(tokens);
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<Stepped> {
        self.control.orders().steps.push(step.rows.len());
        let pause = self.control.orders().pause;
        thread::sleep(pause);
        self.control.wait_while_held();
        if let Some(message) = self.control.orders().fault.take() {
            return Err(Error::new(ErrorKind::Device, "step", message));
        }
        let mut logits = Vec::new();
        for row in &step.rows {
            let (prompt, tokens) = self
                .rows
                .get_mut(&row.slot)
                .ok_or_else(|| Error::new(ErrorKind::State, "step", "not open"))?;
            let TokenSource::Ids(ids) = &row.tokens else {
                return Err(Error::new(ErrorKind::Unsupported, "step", "no registers"));
            };
            tokens.extend(ids);
            let wanted = row.wanted.count(ids.len());
            let prompt = match row.wanted {
                Wanted::None => continue,
                Wanted::Last => *prompt.get_or_insert(tokens.len()),
                // A prompt that is scored comes at once; what comes behind one is a window of drafts.
                Wanted::All => *prompt.get_or_insert(tokens.len()),
            };
            for end in tokens.len() - wanted + 1..=tokens.len() {
                // Inside a prompt every token is expected to come twice.
                let inside = (end < prompt).then(|| tokens[end - 1]);
                let next = inside.unwrap_or_else(|| answer(&tokens[..prompt], end - prompt));
                let mut scores = vec![0.0_f32; WIDTH];
                scores[next as usize] = 50.0;
                logits.extend(scores);
            }
        }
        let count = logits.len() / WIDTH;
        let logits = (count > 0).then(|| self.device.upload_f32(&logits, &[count, WIDTH])).transpose()?;
        Ok(Stepped { logits, touched: Vec::new(), sound: None })
    }
}
