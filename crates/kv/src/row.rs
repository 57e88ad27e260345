//! One row that owns its planes.
//!
//! Invariants: a step is `begin`, one `append` for each layer in order, `commit`; the token count moves at `commit`.
//! [`Row::roll_back`] forgets what was appended. After a device failure during an append the row is unusable, says
//! so in every later call, and has kept its count.

use crate::{
    Geometry,
    plain::{Plain, lost},
};
use std::{any::Any, ops::Range, rc::Rc};
use tandem_contracts::{
    model::RowState,
    tensor::{Device, Error, ErrorKind, KvWrite, Plane, Result, RowSpan, Run, Tensor},
};

/// Keys and values of one sequence, in all layers.
#[derive(Debug)]
pub struct Row {
    device: Device,
    geometry: Rc<Geometry>,
    layers: Vec<Layer>,
    tokens: usize,
    pending: Option<Pending>,
    /// Live positions, those of the open step included; none or one.
    runs: Vec<Run>,
}

#[derive(Clone, Debug)]
struct Layer {
    keys: Plain,
    values: Plain,
}

/// A step that is not committed yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    tokens: usize,
    /// Layers that hold the tokens.
    layers: usize,
}

impl Row {
    /// An empty row. Nothing is allocated before the first step.
    pub fn new(device: Device, geometry: Rc<Geometry>) -> Self {
        let plain = |heads, width| Plain::new(heads, width, geometry.dtype());
        let layers = geometry
            .layers()
            .iter()
            .map(|layer| Layer {
                keys: plain(layer.heads, layer.key_width),
                values: plain(layer.heads, layer.value_width),
            })
            .collect();
        Self { device, geometry, layers, tokens: 0, pending: None, runs: Vec::new() }
    }

    /// Tokens that it holds; those of an open step do not count.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The sizes that it was made with. Rows of one model share them by pointer.
    pub fn geometry(&self) -> &Rc<Geometry> {
        &self.geometry
    }

    /// Device bytes of its planes; those that a fork shares are counted in both.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(|layer| layer.keys.bytes() + layer.values.bytes()).sum()
    }

    /// Whether no plane was lost and no step is open.
    ///
    /// # Errors
    /// The row is unusable, or in the middle of a step.
    pub fn check_idle(&self) -> Result<()> {
        if self.layers.iter().any(|layer| layer.keys.is_lost() || layer.values.is_lost()) {
            return Err(lost());
        }
        match self.pending {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::State, "row", "a step is open")),
        }
    }

    /// Opens a step of `tokens` tokens and makes room for them in every layer.
    ///
    /// # Errors
    /// The row is unusable or in a step already, there are no tokens, or the device's own; the row holds what it
    /// held.
    pub fn begin(&mut self, tokens: usize) -> Result<()> {
        self.check_idle()?;
        let end = self.tokens.checked_add(tokens).filter(|_| tokens > 0).ok_or_else(|| {
            Error::index("begin", format!("{} tokens cannot grow by: {tokens}", self.tokens))
        })?;
        for layer in &mut self.layers {
            layer.keys.reserve(&self.device, Geometry::capacity(end))?;
            layer.values.reserve(&self.device, Geometry::capacity(end))?;
        }
        self.pending = Some(Pending { tokens, layers: 0 });
        self.set_live(end);
        Ok(())
    }

    /// Appends the step's keys and values to a layer: those at `range` of the packed `[tokens, heads, width]`.
    ///
    /// # Errors
    /// No step is open, it is another layer's turn, the range has another length, shapes or dtypes do not fit (the
    /// row is as before then), or the device's own (the row is unusable then).
    pub fn append(
        &mut self,
        layer: usize,
        keys: &Tensor,
        values: &Tensor,
        range: Range<usize>,
    ) -> Result<()> {
        let pending = self.pending.as_mut().ok_or_else(no_step)?;
        if layer != pending.layers {
            let turn = pending.layers;
            return Err(Error::new(
                ErrorKind::State,
                "append",
                format!("layer {turn} is next, got: {layer}"),
            ));
        }
        if range.len() != pending.tokens {
            return Err(Error::index(
                "append",
                format!("the step has {} tokens, got: {range:?}", pending.tokens),
            ));
        }
        let place = self
            .layers
            .get_mut(layer)
            .ok_or_else(|| Error::index("append", format!("no such layer: {layer}")))?;
        let write = KvWrite { tokens: range, row: 0, column: self.tokens };
        place.keys.append(&self.device, keys, write.clone())?;
        place.values.append(&self.device, values, write)?;
        pending.layers += 1;
        Ok(())
    }

    /// What attention reads in `layer` for the open step, whose queries are at `queries` of the packed ones.
    ///
    /// # Errors
    /// No step is open, there is no such layer, or the row is unusable.
    pub fn span(&self, layer: usize, queries: Range<usize>) -> Result<RowSpan<'_>> {
        self.pending.ok_or_else(no_step)?;
        let missing = || Error::index("span", format!("no such layer: {layer}"));
        let place = self.layers.get(layer).ok_or_else(missing)?;
        let (keys, values) = (place.keys.plane()?, place.values.plane()?);
        Ok(RowSpan {
            queries,
            position: self.tokens,
            keys: Plane::Plain(keys.ok_or_else(missing)?),
            values: Plane::Plain(values.ok_or_else(missing)?),
            runs: &self.runs,
        })
    }

    /// Live positions, those of an open step included, and where they lie.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Every plane that was allocated.
    pub fn planes(&self) -> impl Iterator<Item = &Tensor> {
        self.layers
            .iter()
            .flat_map(|layer| [&layer.keys, &layer.values])
            .filter_map(|plain| plain.plane().ok().flatten())
    }

    /// Closes the step; its tokens count from now on.
    ///
    /// # Errors
    /// No step is open, or a layer was not appended to; the step stays open.
    pub fn commit(&mut self) -> Result<()> {
        let Pending { tokens, layers } = self.pending.ok_or_else(no_step)?;
        if layers != self.layers.len() {
            return Err(Error::new(
                ErrorKind::State,
                "commit",
                format!("layer was not appended to: {layers}"),
            ));
        }
        self.pending = None;
        self.tokens += tokens;
        Ok(())
    }

    /// Gives up an open step, if there is one.
    pub fn roll_back(&mut self) {
        self.pending = None;
        self.set_live(self.tokens);
    }

    /// Shortens the row to its first `tokens` tokens. Its planes keep their size.
    ///
    /// # Errors
    /// The row is unusable, in a step, or holds fewer tokens; nothing has changed then.
    pub fn trim(&mut self, tokens: usize) -> Result<()> {
        self.check_idle()?;
        if tokens > self.tokens {
            return Err(Error::index(
                "trim",
                format!("the row holds {} tokens, to be kept: {tokens}", self.tokens),
            ));
        }
        self.tokens = tokens;
        self.set_live(tokens);
        Ok(())
    }

    /// A second owner of the same planes; whoever appends first gets a copy.
    ///
    /// # Errors
    /// The row is unusable or in a step.
    pub fn fork(&self) -> Result<Self> {
        self.check_idle()?;
        Ok(Self {
            device: Rc::clone(&self.device),
            geometry: Rc::clone(&self.geometry),
            layers: self.layers.clone(),
            tokens: self.tokens,
            pending: None,
            runs: self.runs.clone(),
        })
    }

    fn set_live(&mut self, end: usize) {
        self.runs.clear();
        if end > 0 {
            self.runs.push(Run { row: 0, column: 0, positions: 0..end });
        }
    }
}

fn no_step() -> Error {
    Error::new(ErrorKind::State, "row", "no step is open")
}

impl RowState for Row {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn reuse_floor(&self) -> usize {
        0
    }

    fn fork(&self) -> Result<Box<dyn RowState>> {
        Ok(Box::new(self.fork()?))
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests;
