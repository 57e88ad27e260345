//! Comparisons of two operands, which give truth values.

use crate::device::CpuDevice;
use crate::layout::Walk;
use crate::number::{Truth, with_number};
use crate::pool::Disjoint;
use crate::value::Value;
use tandem_contracts::tensor::{Binary, Dtype, Result, Tensor};

/// Compares operands of one dtype that broadcast to `shape`.
pub(crate) fn binary(
    device: &CpuDevice,
    op: Binary,
    (a, b): (&Value, &Value),
    shape: Vec<usize>,
) -> Result<Tensor> {
    let strides = [a, b].map(|x| x.layout.strides_for(&shape));
    let walk = Walk::new(&shape, [&strides[0], &strides[1]]);
    let mut draft = device.fresh("binary", Dtype::Bool, &shape)?;
    let to = Disjoint::new(draft.elements::<Truth>());
    with_number!(a.dtype, T => {
        let (a, b) = (a.read::<T>(), b.read::<T>());
        match op {
            Binary::Equal => all(device, &walk, to, |x, y| (a[x] == b[y]).into()),
            Binary::Less => all(device, &walk, to, |x, y| (a[x] < b[y]).into()),
            _ => all(device, &walk, to, |x, y| (a[x] <= b[y]).into()),
        }
    });
    Ok(device.finish(draft))
}

/// Fills `to` with what `compare` makes of the places of the operands' elements.
fn all(
    device: &CpuDevice,
    walk: &Walk<2>,
    to: Disjoint<'_, Truth>,
    compare: impl Fn(usize, usize) -> Truth + Sync,
) {
    let count = walk.inner().count;
    device.spread(walk.runs(), count, |runs| {
        // SAFETY: the parts' runs do not overlap, and each run has its own elements of the result.
        let mut to = unsafe { to.range(runs.start * count..runs.end * count) }.iter_mut();
        walk.visit(runs, |[a, b], inner| {
            let [a_step, b_step] = inner.strides;
            for (i, to) in to.by_ref().take(count).enumerate() {
                *to = compare(a + i * a_step, b + i * b_step);
            }
        });
    });
}
