//! One row.
//!
//! Invariants: a step is `begin`, one `append` for each layer that keeps keys or one [`recur`](super::recur) for each that
//! carries a state, in order, and `commit`, which keeps all of its tokens or the first ones (a round of speculation is a
//! step that is kept in part). The token count moves at `commit` alone. An append that fails, be it on the device, leaves
//! what counts as it was, and the step can be given up; what it may have overwritten of a window is gone as after a step.

use super::{
    cell::{Cell, Replay},
    entry::{Entry, append},
    kit::{Kit, Layout, Source},
    layer::{Layer, Stretch},
    packed::Packed,
    store::lost,
    view::View,
};
use crate::recurrence::State;
use std::{any::Any, ops::Range, rc::Rc};
use tandem_contracts::{
    model::RowState,
    tensor::{Error, ErrorKind, Result, Tensor},
};

/// What one sequence of tokens has left behind in the layers of a model.
#[derive(Debug)]
pub struct RaggedRow {
    kit: Rc<Kit>,
    layers: Vec<Kept>,
    tokens: usize,
    pending: Option<Pending>,
    /// Boolean `[1]`: whether what was converted could be stored; none where nothing was since the last step was closed.
    sound: Option<Tensor>,
}

/// What a row keeps of a layer.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// Keys and values.
    Keys(Layer),
    /// A state.
    State(Cell),
    /// Nothing: the layer reads another's keys, or its own are kept elsewhere.
    Nothing,
}

/// An open step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(super) step: Stretch,
    /// Layers that have the step's tokens, or need none.
    pub(super) layers: usize,
}

impl RaggedRow {
    /// An empty row. Nothing is allocated before the first step.
    pub fn new(kit: Rc<Kit>) -> Self {
        let layers = kit.layers().iter().map(|source| match source {
            Source::Own(layout) => Kept::Keys(Layer::new(layout)),
            Source::State(_) => Kept::State(Cell::default()),
            Source::Shared(_) => Kept::Nothing,
        });
        Self { layers: layers.collect(), kit, tokens: 0, pending: None, sound: None }
    }

    /// Tokens that it holds; those of an open step do not count.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// What it was made with. Rows of one model share it by pointer.
    pub fn kit(&self) -> &Rc<Kit> {
        &self.kit
    }

    /// Device bytes of its planes and states; those that a fork shares are counted in both. While a step is open, the
    /// states after it take as much again.
    pub fn bytes(&self) -> usize {
        let bytes = |layer: &Kept| match layer {
            Kept::Keys(layer) => layer.store.bytes(),
            Kept::State(cell) => cell.planes().map(|plane| plane.elements() * plane.dtype().size()).sum(),
            Kept::Nothing => 0,
        };
        self.layers.iter().map(bytes).sum()
    }

    /// Every plane and state that was allocated.
    pub fn planes(&self) -> impl Iterator<Item = &Tensor> {
        self.layers.iter().flat_map(|layer| {
            let (keys, state) = match layer {
                Kept::Keys(layer) => (layer.store.planes().ok(), None),
                Kept::State(cell) => (None, Some(cell.planes())),
                Kept::Nothing => (None, None),
            };
            keys.into_iter().flatten().chain(state.into_iter().flatten())
        })
    }

    /// Fewest tokens to which [`RaggedRow::trim`] can shorten it: all of them where a layer carries a state.
    pub fn floor(&self) -> usize {
        let layers = self.layers.iter().zip(self.kit.layers());
        let floors = layers.filter_map(|(layer, source)| match (layer, source) {
            (Kept::Keys(layer), Source::Own(layout)) => {
                let converted = layout.transition.boundary().filter(|_| layer.encoded).unwrap_or(0);
                Some(converted.max(layer.place.floor()))
            }
            (Kept::State(_), _) => Some(self.tokens),
            _ => None,
        });
        floors.max().unwrap_or(0)
    }

    /// Whether no plane was lost and no step is open.
    ///
    /// # Errors
    /// The row is unusable, or in the middle of a step.
    pub fn check_idle(&self) -> Result<()> {
        if self.own().any(|layer| layer.store.is_lost()) {
            return Err(lost());
        }
        match self.pending {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::State, "row", "a step is open")),
        }
    }

    /// The step that [`RaggedRow::begin`] would open.
    ///
    /// # Errors
    /// As [`RaggedRow::begin`], but the device's own.
    pub(crate) fn check_begin(&self, tokens: usize) -> Result<Stretch> {
        self.check_idle()?;
        let limit = self.kit.blueprint().policy().limit(self.tokens);
        let fits = tokens > 0
            && self.tokens.checked_add(tokens).is_some()
            && limit.is_none_or(|limit| tokens <= limit);
        if !fits {
            let limit =
                limit.map_or_else(String::new, |limit| format!(", at most {limit} before precision changes"));
            let held = self.tokens;
            return Err(Error::index("begin", format!("{held} tokens cannot grow by{limit}: {tokens}")));
        }
        Ok(Stretch { position: self.tokens, tokens })
    }

    /// Opens a step of `tokens` tokens: makes room in every layer, and encodes what the row holds where the step begins
    /// at or beyond a layer's threshold, evaluating one layer after the other.
    ///
    /// # Errors
    /// The row is unusable or in a step already, there are no tokens, they cross a threshold
    /// ([`Policy::limit`](crate::policy::Policy::limit)), or the device's own; the row holds what it held.
    pub fn begin(&mut self, tokens: usize) -> Result<()> {
        let step = self.check_begin(tokens)?;
        for (layer, source) in self.layers.iter_mut().zip(self.kit.layers()) {
            match (layer, source) {
                (Kept::Keys(layer), Source::Own(layout)) => {
                    layer.prepare(&self.kit, layout, step, &mut self.sound)?;
                }
                (Kept::State(cell), Source::State(shape)) => cell.begin(&self.kit, *shape)?,
                _ => {}
            }
        }
        self.pending = Some(Pending { step, layers: self.after(0) });
        Ok(())
    }

    /// Appends the step's keys and values to the layer of `packed`: those at `range` of the packed tokens.
    ///
    /// # Errors
    /// No step is open, it is another layer's turn, the range has another length, shapes or dtypes do not fit, or the
    /// device's own; it is still the layer's turn then.
    pub fn append(&mut self, packed: &mut Packed<'_>, range: Range<usize>) -> Result<()> {
        self.encode(packed, &range)?;
        let kit = Rc::clone(&self.kit);
        append(kit.device(), self.entry(packed, &range)?)
    }

    /// Has the step's keys and values of a layer encoded as the row stores them: those at `range` of the packed tokens.
    ///
    /// # Errors
    /// As [`RaggedRow::append`]; nothing is written.
    pub(super) fn encode(&self, packed: &mut Packed<'_>, range: &Range<usize>) -> Result<()> {
        let layout = self.kit.own(packed.layer())?;
        let Pending { step, .. } = self.check_turn("append", packed.layer())?;
        if !packed.is_of(&self.kit) {
            return Err(Error::new(ErrorKind::State, "append", "the tokens are of another kit"));
        }
        if range.len() != step.tokens {
            return Err(Error::index(
                "append",
                format!("the step has {} tokens, got: {range:?}", step.tokens),
            ));
        }
        match self.layer(packed.layer()) {
            Some(layer) => packed.made(layout.coders(layer.encoded), [range.clone()]).map(drop),
            None => Ok(()),
        }
    }

    /// What an append changes of the row, once its tokens are encoded; nothing where the layer is kept elsewhere.
    pub(super) fn entry<'a>(
        &'a mut self,
        packed: &'a Packed<'_>,
        range: &Range<usize>,
    ) -> Result<Option<Entry<'a>>> {
        let (layout, next) = (self.kit.own(packed.layer())?, self.after(packed.layer() + 1));
        let Some(pending) = &mut self.pending else { return Err(no_step()) };
        let Some(Kept::Keys(layer)) = self.layers.get_mut(packed.layer()) else { return Ok(None) };
        let fields = packed.fields(layout.coders(layer.encoded));
        let writes = layer.writes(range.start, pending.step);
        Ok(Some(Entry { layer, pending, next, fields, writes }))
    }

    /// The open step, in which it is `layer`'s turn.
    pub(crate) fn check_turn(&self, operation: &'static str, layer: usize) -> Result<Pending> {
        let pending = self.pending.ok_or_else(no_step)?;
        if pending.layers != layer {
            let message = format!("layer {} is next, got: {layer}", pending.layers);
            return Err(Error::new(ErrorKind::State, operation, message));
        }
        Ok(pending)
    }

    /// What the row's tokens before the open step left in a layer that carries a state.
    ///
    /// # Errors
    /// No step is open, it is another layer's turn, the layer carries no state, or the range has another length.
    pub(crate) fn carried(&self, layer: usize, range: &Range<usize>) -> Result<&State> {
        self.kit.state(layer)?;
        let Pending { step, .. } = self.check_turn("recur", layer)?;
        if range.len() != step.tokens {
            return Err(Error::index(
                "recur",
                format!("the step has {} tokens, got: {range:?}", step.tokens),
            ));
        }
        let state = match self.layers.get(layer) {
            Some(Kept::State(cell)) => cell.state(),
            _ => None,
        };
        state.ok_or_else(no_step)
    }

    /// That a layer's state can be this.
    pub(crate) fn check_state(&self, layer: usize, state: &State) -> Result<()> {
        state.check(self.kit.state(layer)?, self.kit.blueprint().policy().dtype())
    }

    /// Takes the state that the open step leaves in the layer whose turn it is.
    pub(crate) fn advance(&mut self, layer: usize, after: State, replay: Replay) {
        let next = self.after(layer + 1);
        if let (Some(Kept::State(cell)), Some(pending)) = (self.layers.get_mut(layer), &mut self.pending) {
            cell.advance(after, replay);
            pending.layers = next;
        }
    }

    /// What attention reads in `layer` for the open step.
    ///
    /// # Errors
    /// No step is open, the layer (or the one whose keys it reads) has not been appended to, or there is none.
    pub fn view(&self, layer: usize) -> Result<View> {
        let Pending { step, layers } = self.pending.ok_or_else(no_step)?;
        let owner = match self.kit.layers().get(layer) {
            Some(Source::Shared(donor)) => *donor,
            _ => layer,
        };
        let layout = self.kit.own(owner)?;
        match self.layers.get(owner) {
            Some(Kept::Keys(layer)) if owner < layers => View::new(layer, layout.coders(layer.encoded), step),
            _ => Err(Error::new(ErrorKind::State, "view", format!("layer was not appended to: {owner}"))),
        }
    }

    /// Whether what the row held could be encoded when it passed a threshold, as a boolean `[1]`; none where it has passed
    /// none since its last step was closed. To be read with a step's evaluation, as [`Packed::sound`]: where it is false
    /// the row has numbers that are not finite and must end.
    pub fn sound(&self) -> Option<&Tensor> {
        self.sound.as_ref()
    }

    /// Whether the step can be closed with its first `keep` tokens.
    ///
    /// # Errors
    /// As [`RaggedRow::commit`].
    pub fn check_commit(&self, keep: usize) -> Result<()> {
        let Pending { step, layers } = self.pending.ok_or_else(no_step)?;
        if layers != self.layers.len() {
            return Err(Error::new(
                ErrorKind::State,
                "commit",
                format!("layer was not appended to: {layers}"),
            ));
        }
        if keep > step.tokens {
            return Err(Error::index(
                "commit",
                format!("the step has {} tokens, to be kept: {keep}", step.tokens),
            ));
        }
        Ok(())
    }

    /// Does what closing the step with its first `keep` tokens needs of the device: states are carried again, from
    /// before the step, with what is kept.
    ///
    /// # Errors
    /// As [`RaggedRow::commit`].
    pub(crate) fn settle(&mut self, keep: usize) -> Result<()> {
        self.check_commit(keep)?;
        self.layers.iter_mut().try_for_each(|layer| match layer {
            Kept::State(cell) => cell.settle(&self.kit, keep),
            Kept::Keys(_) | Kept::Nothing => Ok(()),
        })
    }

    /// Closes the step; its first `keep` tokens count from now on, and the rest is forgotten.
    ///
    /// # Errors
    /// No step is open, a layer was not appended to, the step has fewer tokens, or the device's own where states are
    /// carried again; the step stays open.
    pub fn commit(&mut self, keep: usize) -> Result<()> {
        self.settle(keep)?;
        for layer in &mut self.layers {
            if let Kept::State(cell) = layer {
                cell.close();
            }
        }
        (self.pending, self.sound) = (None, None);
        self.tokens += keep;
        Ok(())
    }

    /// Gives up an open step, if there is one.
    pub fn roll_back(&mut self) {
        if self.pending.take().is_some() {
            for layer in &mut self.layers {
                if let Kept::State(cell) = layer {
                    cell.roll_back();
                }
            }
        }
    }

    /// Shortens the row to its first `tokens` tokens. Its planes keep their size.
    ///
    /// # Errors
    /// The row is unusable, in a step, holds fewer tokens, or cannot be shortened so far ([`RaggedRow::floor`]); nothing
    /// has changed then.
    pub fn trim(&mut self, tokens: usize) -> Result<()> {
        self.check_idle()?;
        let floor = self.floor();
        if !(floor..=self.tokens).contains(&tokens) {
            return Err(Error::index(
                "trim",
                format!("a row of {} can keep {floor} tokens or more, got: {tokens}", self.tokens),
            ));
        }
        self.tokens = tokens;
        Ok(())
    }

    /// A second owner of the same planes; whoever appends first gets a copy.
    ///
    /// # Errors
    /// The row is unusable or in a step.
    pub fn fork(&self) -> Result<Self> {
        self.check_idle()?;
        Ok(Self {
            kit: Rc::clone(&self.kit),
            layers: self.layers.clone(),
            tokens: self.tokens,
            pending: None,
            sound: self.sound.clone(),
        })
    }

    /// The keys that a layer keeps; none where they are kept elsewhere, or by another layer.
    pub(crate) fn layer(&self, layer: usize) -> Option<&Layer> {
        match self.layers.get(layer) {
            Some(Kept::Keys(layer)) => Some(layer),
            _ => None,
        }
    }

    /// Puts a layer in, or takes it out: the row steps without it, and whoever keeps it must step it.
    pub(crate) fn keep_layer(&mut self, layer: usize, kept: Option<Layer>) {
        if let Some(held) = self.layers.get_mut(layer) {
            *held = kept.map_or(Kept::Nothing, Kept::Keys);
        }
    }

    /// Prepares a layer that was kept elsewhere for a step of the row.
    pub(crate) fn prepare_layer(&mut self, layer: &mut Layer, layout: &Layout, step: Stretch) -> Result<()> {
        layer.prepare(&self.kit, layout, step, &mut self.sound)
    }

    /// A row with these layers.
    pub(crate) fn stored(kit: Rc<Kit>, layers: Vec<Kept>, tokens: usize) -> Self {
        Self { kit, layers, tokens, pending: None, sound: None }
    }

    /// What it keeps of each layer.
    pub(crate) fn layers(&self) -> &[Kept] {
        &self.layers
    }

    /// Layers that keep their own keys.
    fn own(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter_map(|layer| if let Kept::Keys(layer) = layer { Some(layer) } else { None })
    }

    /// The first layer from `layer` on that keeps something, or the number of layers.
    fn after(&self, layer: usize) -> usize {
        let shared = self.layers.iter().skip(layer).take_while(|layer| matches!(layer, Kept::Nothing));
        layer + shared.count()
    }
}

fn no_step() -> Error {
    Error::new(ErrorKind::State, "row", "no step is open")
}

impl RowState for RaggedRow {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn reuse_floor(&self) -> usize {
        self.floor()
    }

    fn fork(&self) -> Result<Box<dyn RowState>> {
        Ok(Box::new(self.fork()?))
    }

    fn planes(&self) -> Vec<Tensor> {
        self.planes().cloned().collect()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Blueprint, Kind, LayerShape, ragged::store::Store};
    use tandem_contracts::{fake, tensor::Dtype};

    #[test]
    fn a_lost_plane_makes_every_later_call_an_error() {
        let device = fake::open();
        let shape = LayerShape { heads: 1, key_width: 2, value_width: 2 };
        let blueprint = Blueprint::plain(vec![Kind::Full(shape); 2], Dtype::F32).unwrap();
        let kit = Kit::open(&device, blueprint).unwrap();
        let mut row = RaggedRow::new(Rc::clone(&kit));
        row.begin(1).unwrap();
        let Kept::Keys(first) = &mut row.layers[0] else { panic!("a layer of keys") };
        first.store = Store::Lost;
        let x = device.upload_f32(&[1.0, 2.0], &[1, 1, 2]).unwrap();
        let errors = [
            row.append(&mut Packed::new(&kit, 0, &x, &x), 0..1).unwrap_err(),
            row.view(0).unwrap_err(),
            row.commit(1).unwrap_err(),
        ];
        row.roll_back();
        let later = [
            row.check_idle().unwrap_err(),
            row.begin(1).unwrap_err(),
            row.trim(0).unwrap_err(),
            row.fork().unwrap_err(),
        ];
        assert!(errors.iter().chain(&later).all(|error| error.kind() == ErrorKind::State));
        // Of the second layer alone, which begins half a growth ahead.
        assert_eq!((row.tokens(), row.bytes()), (0, 128 * 2 * 2 * Dtype::F32.size()));
    }
}
