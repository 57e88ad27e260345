//! One layer of a row: where its positions lie, and the planes that hold them.

use super::{
    kit::{Coders, Kit, Layout},
    packed::{encode, witnesses},
    place::Place,
    store::{Store, moved},
};
use smallvec::SmallVec;
use std::ops::Range;
use tandem_contracts::tensor::{KvWrite, Result, Run, Tensor};

/// Keys and values of one layer.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) place: Place,
    pub(crate) store: Store,
    /// Whether the layer has passed its transition; one without any always has.
    pub(crate) encoded: bool,
}

/// The step that is being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) position: usize,
    pub(crate) tokens: usize,
}

impl Stretch {
    pub(crate) fn end(self) -> usize {
        self.position + self.tokens
    }

    pub(crate) fn positions(self) -> Range<usize> {
        self.position..self.end()
    }
}

impl Layer {
    pub(super) fn new(layout: &Layout) -> Self {
        Self { place: layout.place(), store: Store::Empty, encoded: layout.transition.boundary().is_none() }
    }

    /// Makes room for a step, and passes the transition if the step begins beyond it. Notes in `sound`, a boolean `[1]`,
    /// whether what was converted could be stored, if anything was.
    ///
    /// # Errors
    /// The device's own; what the layer holds means the same then.
    pub(crate) fn prepare(
        &mut self,
        kit: &Kit,
        layout: &Layout,
        step: Stretch,
        sound: &mut Option<Tensor>,
    ) -> Result<()> {
        let room = self.place.room(layout.growth, step.position, step.tokens);
        if self.encoded || !layout.encodes(step.position) {
            if room != self.place {
                let moves = room.moves(&self.place, step.position);
                let fields = layout.coders(self.encoded).fields()?;
                let of = (&fields[..], layout.shape.heads);
                let planes = moved(kit.device(), of, room.capacity(), self.store.planes()?, &moves)?;
                (self.place, self.store) = (room, Store::Held(planes));
            }
            return Ok(());
        }
        let (fields, now) = self.encode(kit, layout, step.position, sound.clone())?;
        // What was stored plain is encoded whole, and evaluated before the next layer begins: at no time are there two
        // copies of more than one layer.
        let moves = if fields.is_empty() { Vec::new() } else { room.spread(step.position) };
        let of = (&layout.coders(true).fields()?[..], layout.shape.heads);
        let planes = moved(kit.device(), of, room.capacity(), &fields, &moves)?;
        // With what says whether they are sound, which would hold the plain planes otherwise.
        kit.device().eval(&planes.iter().chain(&now).collect::<Vec<_>>())?;
        // What lay before was not moved, and is never read: the row cannot be shortened below this threshold.
        (self.place, self.store, self.encoded, *sound) = (room, Store::Held(planes), true, now);
        Ok(())
    }

    /// What the query at `position` reads, plain before it, by the later scheme: `[1, heads, positions, extent]` for each
    /// field; and whether it could be stored, and was sound before. No fields where the query sees itself alone.
    fn encode(
        &self,
        kit: &Kit,
        layout: &Layout,
        position: usize,
        sound: Option<Tensor>,
    ) -> Result<(Vec<Tensor>, Option<Tensor>)> {
        let runs = self.place.sight(position, 0);
        if runs.is_empty() {
            return Ok((Vec::new(), sound));
        }
        let plain = self.store.cut(kit.device(), &runs)?;
        let [keys, values] = decode(layout.coders(false), &plain)?;
        let coders = layout.coders(true);
        let fields = encode(coders, &keys, &values)?;
        let sound = kit.device().finite(sound, &witnesses(coders, [&keys, &values], &fields))?;
        Ok((fields, Some(sound)))
    }

    /// Where a step's tokens go, which begin at `first` of the packed ones.
    pub(super) fn writes(&self, first: usize, step: Stretch) -> SmallVec<[KvWrite; 2]> {
        let write = |Run { row, column, positions }: Run| {
            let tokens = first + positions.start - step.position..first + positions.end - step.position;
            KvWrite { tokens, row, column }
        };
        self.place.runs(step.positions()).into_iter().map(write).collect()
    }
}

/// Keys and values behind the fields of both.
fn decode(coders: &Coders, fields: &[Tensor]) -> Result<[Tensor; 2]> {
    let (keys, values) = fields.split_at(coders.key_fields.min(fields.len()));
    Ok([coders.keys.decode(keys)?, coders.values.decode(values)?])
}
