//! Attention over row spans, one pass over keys and values where they lie.
//!
//! # The arithmetic
//!
//! In f32, for one query (multiplied by the scale first) and one head:
//!
//! ```text
//! score   = tree of lanes; lane l is the fused chain over elements l, l + 16, ..; then the soft cap
//! block   = positions 64 b .. 64 b + 64 that are live and visible:
//!           m_b = largest score    p = exp(score - m_b)    l_b = sum p, in the order of `fold`
//!           o_b = fused chain of p * value over ascending positions
//! segment = (m, l, o), from (-inf, 0, 0); the four blocks 4 s .. 4 s + 4 in ascending order:
//!           M = max(m, m_b)    c = exp(m - M)    c_b = exp(m_b - M)
//!           l = fma(l, c, l_b * c_b)    o = fma(o, c, o_b * c_b)
//! row     = the same over segments, from (-inf, 0, 0) or, with a sink, (sink, 1, 0)
//! result  = o * (1 / l)
//! ```
//!
//! In `exact` codes are read as f32: `fma(scale, code, bias)` of affine ones, `(code + zero) * scale` of TurboQuant's
//! keys and `level * scale` of its values, whose result is then turned back: the Hadamard transform, then the signs. In
//! `fast` scores and `o_b` over codes are of exact integer products, as the port states
//! ([`tandem_contracts::tensor::attention`]); the rest is the same.
//!
//! A block or segment without any score above `-inf` is passed over. Nothing else enters, so a query's bits
//! depend on its own row alone: not on storage, company, chunks, threads or instruction set.
//!
//! # The work
//!
//! A [`mod@unit`] is some queries of one row with one key head: its `queries * group` vectors share each load
//! of keys and values. Where there are too few units for the threads, a unit's segments are cut into
//! stretches, which leave each segment's `(m, l, o)` behind; who ends the unit's last stretch takes them in order.

pub(crate) mod append;
mod block;
mod plane;
mod query;
mod state;
#[cfg(test)]
mod tests;
mod unit;

use crate::device::{CpuDevice, no_memory};
use crate::isa::Isa;
use crate::number::{Real, with_real};
use crate::pool::{Disjoint, Scratch};
use crate::simd::dispatch;
use crate::value::{Draft, Value};
use block::Task;
use plane::{Source, Stored};
use query::Queries;
use state::{Finish, Slot, Take};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use tandem_contracts::tensor::{Attend, Result, RowSpan, Tensor, shape};
use unit::{Plan, Unit};

/// Blocks of a segment.
const SEGMENT: usize = 4;

pub(crate) fn attend(
    device: &CpuDevice,
    q: &Tensor,
    rows: &[RowSpan<'_>],
    how: &Attend<'_>,
) -> Result<Tensor> {
    device.own("attend", &[q])?;
    let stored = rows.iter().map(|row| Stored::both(device, row)).collect::<Result<Vec<_>>>()?;
    let sinks = how.sinks.map(|sinks| device.value("attend", sinks)).transpose()?;
    let [tokens, heads, value_width] = shape::attend(q, rows, how)?;
    let mut draft = device.fresh("attend", q.dtype(), &[tokens, heads, value_width])?;
    if draft.layout.elements() == 0 {
        return Ok(device.finish(draft));
    }
    let mut queries = Queries::new(device, q, how.scale)?;
    let sources: Vec<[Source<'_>; 2]> =
        stored.iter().map(|pair| [0, 1].map(|side| pair[side].source(how.precision))).collect();
    if sources.iter().any(|[keys, _]| keys.integral().is_some()) {
        queries.count(device)?;
    }
    let mut units = Vec::new();
    for (row, [keys, values]) in rows.iter().zip(&sources) {
        unit::cut(row, (keys, values), (heads, how), &mut units);
    }
    let sinks = sinks.map(|sinks| device.contiguous("attend", sinks)).transpose()?;
    let call = Call {
        isa: device.pool.isa(),
        queries: &queries,
        units: &units,
        plan: Plan::new(&units, device.pool.threads()),
        soft_cap: how.soft_cap,
        sinks: sinks.as_ref().and_then(Value::slice),
        value_width,
    };
    with_real!(q.dtype(), T => call.run::<T>(device, &mut draft))?;
    Ok(device.finish(draft))
}

/// What stretches of units that were cut leave behind.
struct Left<'a> {
    slots: Disjoint<'a, f32>,
    /// Stretches of each unit that have not ended.
    open: Vec<AtomicUsize>,
}

/// What a thread works with.
struct Desk<'a> {
    /// See [`unit::Extents::working`]; the contents are arbitrary.
    working: &'a mut [f32],
    /// A block that is read after what is at hand.
    after: Option<(&'a Unit<'a>, usize)>,
}

/// Everything that the parts of a call share.
struct Call<'a> {
    isa: Isa,
    queries: &'a Queries,
    units: &'a [Unit<'a>],
    plan: Plan,
    soft_cap: Option<f32>,
    sinks: Option<&'a [f32]>,
    value_width: usize,
}

impl Call<'_> {
    fn run<T: Real>(&self, device: &CpuDevice, draft: &mut Draft) -> Result<()> {
        let out = Disjoint::new(draft.elements::<T>());
        let bytes = self.plan.slots() * size_of::<f32>();
        let mut slots = device.memory.take(bytes).map_err(|error| no_memory("attend", error))?;
        let open = self.plan.pieces().iter().map(|pieces| AtomicUsize::new(pieces.len())).collect();
        let left = Left { slots: Disjoint::new(slots.of_mut()), open };
        device.pool.run(self.plan.stretches().len(), |part, scratch| {
            self.stretch(part, &left, out, scratch);
        });
        Ok(())
    }

    /// Some segments of a unit: all of them give its results, others leave what they saw.
    fn stretch<T: Real>(&self, part: usize, left: &Left<'_>, out: Disjoint<'_, T>, scratch: &mut Scratch) {
        let stretch = &self.plan.stretches()[part];
        let unit = &self.units[stretch.unit];
        let extents = unit.extents();
        let space = scratch.lend::<f32>(extents.working() + 2 * extents.slot());
        let (working, own) = space.split_at_mut(extents.working());
        // The thread's next part, unless others were faster.
        let after = self.plan.stretches().get(part + 1).map(|next| {
            let unit = &self.units[next.unit];
            (unit, unit.segment(next.segments.start).start)
        });
        let mut desk = Desk { working, after };
        let mut segments = stretch.segments.clone();
        if let Some(slots) = &stretch.slots {
            // SAFETY: the plan gives each stretch its own slots.
            let slots = unsafe { left.slots.range(slots.clone()) };
            for slot in slots.chunks_exact_mut(extents.slot()) {
                self.segment(unit, segments.clone(), slot, &mut desk);
                segments.next();
            }
            // Acquires what the others released.
            if left.open[stretch.unit].fetch_sub(1, Ordering::AcqRel) == 1 {
                self.join(stretch.unit, left, own, out);
            }
            return;
        }
        let (whole, own) = own.split_at_mut(extents.slot());
        let mut whole = self.begin(unit, whole);
        while !segments.is_empty() {
            let segment = self.segment(unit, segments.clone(), own, &mut desk);
            dispatch(self.isa, Take { whole: &mut whole, segment });
            segments.next();
        }
        self.finish(unit, whole, out);
    }

    /// Takes what a unit's stretches left, in order, when all of them have ended; `space` is as large as a slot.
    fn join<T: Real>(&self, unit: usize, left: &Left<'_>, space: &mut [f32], out: Disjoint<'_, T>) {
        let stretches = &self.plan.stretches()[self.plan.pieces()[unit].clone()];
        let unit = &self.units[unit];
        let extents = unit.extents();
        let mut whole = self.begin(unit, space);
        for slots in stretches.iter().filter_map(|stretch| stretch.slots.clone()) {
            // SAFETY: the slots are the unit's own, and nobody else is at the unit any more.
            let slots = unsafe { left.slots.range(slots) };
            for segment in slots.chunks_exact_mut(extents.slot()) {
                dispatch(self.isa, Take { whole: &mut whole, segment: Slot::of(segment, extents) });
            }
        }
        self.finish(unit, whole, out);
    }

    /// The first of some segments, all of which will be read one after the other.
    fn segment<'s>(
        &self,
        unit: &Unit<'_>,
        segments: Range<usize>,
        space: &'s mut [f32],
        desk: &mut Desk<'_>,
    ) -> Slot<'s> {
        let mut slot = Slot::of(space, unit.extents());
        slot.begin(|_| None);
        let (queries, soft_cap) = (self.queries, self.soft_cap);
        let (blocks, last) = (unit.segment(segments.start), unit.segment(segments.end - 1));
        let task = Task { unit, queries, soft_cap, blocks, until: last.end, slot: &mut slot, desk };
        dispatch(self.isa, task);
        slot
    }

    /// A row of which nothing was seen yet but its sink.
    fn begin<'s>(&self, unit: &Unit<'_>, space: &'s mut [f32]) -> Slot<'s> {
        let mut whole = Slot::of(space, unit.extents());
        whole.begin(|vector| self.sinks.map(|sinks| sinks[unit.head(vector)]));
        whole
    }

    fn finish<T: Real>(&self, unit: &Unit<'_>, slot: Slot<'_>, out: Disjoint<'_, T>) {
        let (heads, width) = (self.queries.heads(), self.value_width);
        dispatch(self.isa, Finish { unit, slot, heads, width, out });
    }
}
