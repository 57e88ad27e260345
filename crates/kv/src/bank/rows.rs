//! The port over ragged rows and banks.

use super::{Bank, Share};
use crate::{
    ragged::{Kit, Layout, Packed, RaggedRow, RaggedRows, Source, View},
    recurrence::Recurrence,
    rows::{Part, Rows},
};
use std::{mem, rc::Rc};
use tandem_contracts::{
    model::Slot,
    tensor::{Error, ErrorKind, Result, Tensor},
};

/// Rows of which many layers share planes: padded or paged.
#[derive(Debug)]
pub struct BankRows {
    /// The rows, without what lies in banks.
    loose: RaggedRows,
    /// Of each layer, before and after its transition.
    banks: Vec<[Option<Box<dyn Bank>>; 2]>,
    /// Rows whose step has more tokens do not move into banks.
    most: usize,
    /// The open step.
    shares: Vec<Share>,
    /// The layer that is to be appended to next.
    turn: usize,
}

impl BankRows {
    /// No rows yet. Rows move into the banks that `open` makes for a layer, before its transition (false) or after it, in
    /// steps of at most `most` tokens.
    pub(crate) fn new(
        kit: Rc<Kit>,
        most: usize,
        mut open: impl FnMut(usize, bool) -> Option<Box<dyn Bank>>,
    ) -> Self {
        let layers = kit.layers().iter().enumerate();
        let banks = layers.map(|(layer, source)| match source {
            // Planes that keep first positions beside a ring stay with their rows, as states do.
            Source::Own(layout) if layout.keep == 0 => {
                let before = layout.transition.boundary().and_then(|_| open(layer, false));
                [before, open(layer, true)]
            }
            Source::Own(_) | Source::State(_) | Source::Shared(_) => [None, None],
        });
        let banks = banks.collect();
        Self { loose: RaggedRows::new(kit), banks, most, shares: Vec::new(), turn: 0 }
    }

    fn banks(&self) -> impl Iterator<Item = &dyn Bank> {
        self.banks.iter().flatten().flatten().map(|bank| &**bank)
    }

    fn banks_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Bank>> {
        self.banks.iter_mut().flatten().flatten()
    }

    /// The row, if it can be used and takes part in no step.
    fn idle(&self, slot: Slot) -> Result<&RaggedRow> {
        let row = self.loose.row(slot)?;
        row.check_idle()?;
        self.banks().filter(|bank| bank.holds(slot)).try_for_each(|bank| bank.check(slot))?;
        Ok(row)
    }

    fn check_step(&self, parts: &[Part]) -> Result<Vec<Share>> {
        self.loose.check_step(parts)?;
        let share = |Part { slot, tokens }: &Part| {
            let step = self.idle(*slot)?.check_begin(tokens.len())?;
            Ok(Share { slot: *slot, tokens: tokens.clone(), step })
        };
        parts.iter().map(share).collect()
    }

    /// Encodes what a threshold has been passed for, moves rows into their banks, and makes room there; one layer after
    /// the other, so that no more than one is copied at a time.
    fn prepare(&mut self, shares: &[Share]) -> Result<()> {
        let kit = Rc::clone(self.loose.kit());
        for (layer, source) in kit.layers().iter().enumerate() {
            let Source::Own(layout) = source else { continue };
            for share in shares.iter().filter(|share| layout.encodes(share.step.position)) {
                self.convert((layer, layout), share)?;
            }
            for encoded in [false, true] {
                self.seat((layer, layout), encoded, shares)?;
            }
        }
        Ok(())
    }

    /// Takes a row's layer out of the bank that it has outgrown, and encodes it.
    fn convert(&mut self, (layer, layout): (usize, &Layout), share: &Share) -> Result<()> {
        let bank = self.banks.get_mut(layer).and_then(|[before, _]| before.as_mut());
        let Some(bank) = bank.filter(|bank| bank.holds(share.slot)) else { return Ok(()) };
        let row = self.loose.row_mut(share.slot)?;
        let mut lifted = bank.lift(share.slot)?;
        row.prepare_layer(&mut lifted, layout, share.step)?;
        bank.discard(share.slot);
        row.keep_layer(layer, Some(lifted));
        Ok(())
    }

    /// Makes room in one bank for the rows that lie in it, and for those that belong there and come with planes of their
    /// own; but those whose own planes are yet to be encoded.
    fn seat(&mut self, (layer, layout): (usize, &Layout), encoded: bool, shares: &[Share]) -> Result<()> {
        let bank = self.banks.get_mut(layer).and_then(|banks| banks[usize::from(encoded)].as_mut());
        let Some(bank) = bank else { return Ok(()) };
        let (mut here, mut joining) = (Vec::new(), Vec::new());
        for share in shares {
            let own = self.loose.row(share.slot)?.layer(layer).filter(|own| {
                let joins = share.step.tokens <= self.most && own.encoded == encoded;
                joins && (encoded || !layout.encodes(share.step.position))
            });
            if own.is_some() || bank.holds(share.slot) {
                here.push(share.clone());
            }
            joining.extend(own.map(|own| (share.slot, own)));
        }
        if here.is_empty() {
            return Ok(());
        }
        bank.prepare(&here, &joining)?;
        let joined: Vec<Slot> = joining.iter().map(|(slot, _)| *slot).collect();
        joined.into_iter().try_for_each(|slot| {
            self.loose.row_mut(slot)?.keep_layer(layer, None);
            Ok(())
        })
    }

    fn write(&mut self, packed: &mut Packed<'_>) -> Result<()> {
        let (kit, layer) = (Rc::clone(self.loose.kit()), packed.layer());
        self.loose.append_kept(packed)?;
        let banks = self.banks.get_mut(layer).into_iter().flatten().zip([false, true]);
        for (bank, encoded) in banks {
            let Some(bank) = bank else { continue };
            let here: Vec<Share> =
                self.shares.iter().filter(|share| bank.holds(share.slot)).cloned().collect();
            if here.is_empty() {
                continue;
            }
            let coders = kit.own(layer)?.coders(encoded);
            let tokens = here.iter().map(|share| share.tokens.clone());
            bank.append(&here, packed.made(coders, tokens)?)?;
        }
        self.loose.note_sound(packed)
    }

    /// The first layer from `layer` on that keeps something of its own, or the number of layers.
    fn after(&self, layer: usize) -> usize {
        let rest = self.loose.kit().layers().iter().skip(layer);
        layer + rest.take_while(|source| matches!(source, Source::Shared(_))).count()
    }

    fn check_turn(&self, operation: &'static str, layer: usize) -> Result<()> {
        self.loose.check_open(operation)?;
        if layer == self.turn {
            return Ok(());
        }
        Err(state(operation, format!("layer {} is next, got: {layer}", self.turn)))
    }

    fn settle(&mut self, slot: Slot) {
        let Ok(tokens) = self.loose.row(slot).map(RaggedRow::tokens) else { return };
        for bank in self.banks_mut().filter(|bank| bank.holds(slot)) {
            bank.settle(slot, tokens);
        }
    }
}

impl Rows for BankRows {
    fn kit(&self) -> &Rc<Kit> {
        self.loose.kit()
    }

    fn contains(&self, slot: Slot) -> bool {
        self.loose.contains(slot)
    }

    fn tokens(&self, slot: Slot) -> Result<usize> {
        self.idle(slot).map(RaggedRow::tokens)
    }

    fn floor(&self, slot: Slot) -> Result<usize> {
        let mut floor = self.idle(slot)?.floor();
        for (source, banks) in self.kit().layers().iter().zip(&self.banks) {
            let Source::Own(layout) = source else { continue };
            for (bank, converted) in banks.iter().zip([0, layout.transition.boundary().unwrap_or(0)]) {
                let here = bank.as_ref().filter(|bank| bank.holds(slot));
                floor = floor.max(here.map_or(0, |bank| bank.floor(slot).max(converted)));
            }
        }
        Ok(floor)
    }

    fn join(&mut self, slot: Slot, row: RaggedRow) -> Result<()> {
        self.loose.join(slot, row)
    }

    fn leave(&mut self, slot: Slot) -> Result<RaggedRow> {
        self.idle(slot)?;
        let mut lifted = Vec::new();
        for (layer, banks) in self.banks.iter().enumerate() {
            for bank in banks.iter().flatten().filter(|bank| bank.holds(slot)) {
                lifted.push((layer, bank.lift(slot)?));
            }
        }
        let mut row = self.loose.leave(slot)?;
        for (layer, own) in lifted {
            row.keep_layer(layer, Some(own));
        }
        self.banks_mut().for_each(|bank| bank.discard(slot));
        Ok(row)
    }

    fn discard(&mut self, slot: Slot) {
        self.loose.discard(slot);
        self.shares.retain(|share| share.slot != slot);
        self.banks_mut().for_each(|bank| bank.discard(slot));
    }

    fn fork(&mut self, from: Slot, to: Slot) -> Result<()> {
        self.idle(from)?;
        self.loose.fork(from, to)?;
        for bank in self.banks_mut().filter(|bank| bank.holds(from)) {
            bank.fork(from, to);
        }
        Ok(())
    }

    fn trim(&mut self, slot: Slot, tokens: usize) -> Result<()> {
        let (floor, held) = (self.floor(slot)?, self.tokens(slot)?);
        if !(floor..=held).contains(&tokens) {
            return Err(Error::index(
                "trim",
                format!("a row of {held} can keep {floor} tokens or more, got: {tokens}"),
            ));
        }
        self.loose.trim(slot, tokens)?;
        self.settle(slot);
        Ok(())
    }

    fn begin(&mut self, parts: &[Part]) -> Result<()> {
        let shares = self.check_step(parts)?;
        let begun = self.prepare(&shares).and_then(|()| self.loose.begin(parts));
        if begun.is_err() {
            shares.iter().for_each(|share| self.settle(share.slot));
            return begun;
        }
        (self.shares, self.turn) = (shares, self.after(0));
        Ok(())
    }

    fn append(&mut self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<()> {
        let kit = Rc::clone(self.kit());
        kit.own(layer)?;
        self.check_turn("append", layer)?;
        let appended = self.write(&mut Packed::new(&kit, layer, keys, values));
        self.loose.fail_with(appended)?;
        self.turn = self.after(layer + 1);
        Ok(())
    }

    fn recur(&mut self, layer: usize, inputs: &[Tensor], recurrence: &Rc<dyn Recurrence>) -> Result<Tensor> {
        self.check_turn("recur", layer)?;
        let outputs = self.loose.recur(layer, inputs, recurrence)?;
        self.turn = self.after(layer + 1);
        Ok(outputs)
    }

    fn views(&self, layer: usize) -> Result<Vec<View>> {
        let owner = match self.kit().layers().get(layer) {
            Some(Source::Shared(donor)) => *donor,
            _ => layer,
        };
        self.kit().own(owner)?;
        self.loose.check_open("views")?;
        if owner >= self.turn {
            return Err(state("view", format!("layer was not appended to: {owner}")));
        }
        let view = |share: &Share| {
            let mut banks = self.banks.get(owner).into_iter().flatten().flatten();
            match banks.find(|bank| bank.holds(share.slot)) {
                Some(bank) => bank.check(share.slot).and_then(|()| bank.view(share)),
                None => self.loose.row(share.slot)?.view(layer),
            }
        };
        self.shares.iter().map(view).collect()
    }

    fn sound(&self) -> Result<Option<Tensor>> {
        self.loose.sound()
    }

    fn commit(&mut self, keep: &[usize]) -> Result<Vec<Tensor>> {
        self.loose.check_keep(keep)?;
        if self.turn < self.banks.len() {
            return Err(state("commit", format!("layer was not appended to: {}", self.turn)));
        }
        let mut planes = self.loose.commit(keep)?;
        let shares = mem::take(&mut self.shares);
        shares.iter().for_each(|share| self.settle(share.slot));
        let written = |bank: &&dyn Bank| shares.iter().any(|share| bank.holds(share.slot));
        planes.extend(self.banks().filter(written).flat_map(Bank::planes).cloned());
        Ok(planes)
    }

    fn roll_back(&mut self) {
        self.loose.roll_back();
        for share in mem::take(&mut self.shares) {
            self.settle(share.slot);
        }
    }
}

fn state(operation: &'static str, message: String) -> Error {
    Error::new(ErrorKind::State, operation, message)
}
