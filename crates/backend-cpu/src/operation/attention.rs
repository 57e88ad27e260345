//! Attention over row spans, one pass over keys and values where they lie.
//!
//! # The arithmetic
//!
//! In f32, for one query (multiplied by the scale first) and one head:
//!
//! ```text
//! score  = tree of lanes; lane l is the fused chain over elements l, l + 16, ..; then the soft cap
//! block  = positions 64 b .. 64 b + 64 that are live and visible:
//!          m_b = largest score    p = exp(score - m_b)    l_b = sum p, in the order of `fold`
//!          o_b = fused chain of p * value over ascending positions
//! row    = (m, l, o), from (-inf, 0, 0) or, with a sink, (sink, 1, 0); blocks in ascending order:
//!          M = max(m, m_b)    c = exp(m - M)    c_b = exp(m_b - M)
//!          l = fma(l, c, l_b * c_b)    o = fma(o, c, o_b * c_b)
//! result = o * (1 / l)
//! ```
//!
//! A block without any score above `-inf` is passed over. Nothing else enters, so a query's bits depend on
//! its own row alone: not on storage, company, chunks, threads or instruction set.
//!
//! # The work
//!
//! A [`mod@unit`] is some queries of one row with one key head: its `queries * group` vectors share each load
//! of keys and values. Where there are too few units for the threads, a unit's blocks are cut into stretches;
//! all but the first leave each block's `(m_b, l_b, o_b)` behind, which are then taken in order.

pub(crate) mod append;
mod block;
mod plane;
mod query;
mod state;
#[cfg(test)]
mod tests;
mod unit;

use crate::device::{CpuDevice, no_memory};
use crate::number::{Real, with_real};
use crate::pool::Disjoint;
use crate::simd::dispatch;
use crate::value::{Draft, Value};
use block::Task;
use plane::{Source, Stored};
use query::Queries;
use state::{Finish, Slot, Take};
use tandem_contracts::tensor::{Attend, Result, RowSpan, Tensor, shape};
use unit::{Plan, Stretch, Unit};

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
    let queries = Queries::new(device, q, how.scale)?;
    let sources: Vec<[Source<'_>; 2]> =
        stored.iter().map(|pair| [pair[0].source(), pair[1].source()]).collect();
    let mut units = Vec::new();
    for (row, [keys, values]) in rows.iter().zip(&sources) {
        unit::cut(row, (keys, values), (heads, how), &mut units);
    }
    let sinks = sinks.map(|sinks| device.contiguous("attend", sinks)).transpose()?;
    let call = Call {
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

/// Everything that the parts of a call share.
struct Call<'a> {
    queries: &'a Queries,
    units: &'a [Unit<'a>],
    plan: Plan,
    soft_cap: Option<f32>,
    sinks: Option<&'a [f32]>,
    value_width: usize,
}

impl Call<'_> {
    fn run<T: Real>(&self, device: &CpuDevice, draft: &mut Draft) -> Result<()> {
        let isa = device.pool.isa();
        let out = Disjoint::new(draft.elements::<T>());
        let bytes = self.plan.slots() * size_of::<f32>();
        let mut left = device.memory.take(bytes).map_err(|error| no_memory("attend", error))?;
        let cells = Disjoint::new(left.of_mut::<f32>());
        device.pool.run(self.plan.stretches().len(), |part, scratch| {
            let stretch = &self.plan.stretches()[part];
            let unit = &self.units[stretch.unit];
            let extents = unit.extents();
            let space = scratch.lend::<f32>(extents.working() + extents.slot());
            let (working, own) = space.split_at_mut(extents.working());
            let left = stretch.slots.clone().map(|slots| {
                // SAFETY: the plan gives each stretch its own slots.
                unsafe { cells.range(slots) }
            });
            let whole = left.is_none();
            let slots = left.unwrap_or(own);
            let first = stretch.blocks.start == unit.blocks.start;
            if first {
                Slot::of(slots, extents).begin(|vector| self.sink(unit, vector));
            }
            let task = Task {
                unit,
                queries: self.queries,
                soft_cap: self.soft_cap,
                blocks: stretch.blocks.clone(),
                merge: first,
                slots,
                working,
            };
            let slots = dispatch(isa, task);
            if whole {
                let slot = Slot::of(slots, extents);
                dispatch(
                    isa,
                    Finish { unit, slot, heads: self.queries.heads(), width: self.value_width, out },
                );
            }
        });
        for stretches in self.plan.joined() {
            let space = left.of_mut::<f32>();
            let (unit, whole) = self.join(device, stretches, space);
            dispatch(
                isa,
                Finish { unit, slot: whole, heads: self.queries.heads(), width: self.value_width, out },
            );
        }
        Ok(())
    }

    /// Takes what a unit's later stretches left into what its first one made.
    fn join<'a>(
        &self,
        device: &CpuDevice,
        stretches: &[Stretch],
        space: &'a mut [f32],
    ) -> (&Unit<'_>, Slot<'a>) {
        let unit = &self.units[stretches[0].unit];
        let extents = unit.extents();
        let all = stretches.iter().filter_map(|stretch| stretch.slots.clone());
        let (start, end) =
            all.fold((usize::MAX, 0), |(start, end), slots| (start.min(slots.start), end.max(slots.end)));
        let (whole, blocks) = space[start..end].split_at_mut(extents.slot());
        let mut whole = Slot::of(whole, extents);
        for block in blocks.chunks_exact_mut(extents.slot()) {
            dispatch(device.pool.isa(), Take { whole: &mut whole, block: Slot::of(block, extents) });
        }
        (unit, whole)
    }

    fn sink(&self, unit: &Unit<'_>, vector: usize) -> Option<f32> {
        self.sinks.map(|sinks| sinks[unit.head(vector)])
    }
}
