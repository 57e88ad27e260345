//! Writing new tokens' keys or values into a plane, cast on the way where the plane holds other floats.

use crate::device::CpuDevice;
use crate::memory::Element;
use crate::number::{with_real, with_size};
use crate::operation::copy::Cast;
use crate::simd::dispatch;
use crate::value::{Open, Value};
use tandem_contracts::tensor::{KvWrite, Result, Tensor, shape};

pub(crate) fn append(
    device: &CpuDevice,
    mut plane: Tensor,
    tokens: &Tensor,
    writes: &[KvWrite],
) -> Result<Tensor> {
    device.own("kv_append", &[&plane, tokens])?;
    shape::kv_append(&plane, tokens, writes)?;
    let source = device.value("kv_append", tokens)?;
    let open = device.open("kv_append", &mut plane)?;
    if source.dtype == open.dtype {
        with_size!(source.dtype, T => rows(source, open, writes, |from: &[T], to| to.copy_from_slice(from)));
    } else {
        let isa = device.pool.isa();
        with_real!(source.dtype, A => with_real!(open.dtype, B => {
            rows(source, open, writes, |from: &[A], to: &mut [B]| dispatch(isa, Cast { from, to }));
        }));
    }
    Ok(plane)
}

/// Calls `copy` with pieces of the tokens' vectors and their places in the plane: whole vectors where both lie
/// in one piece, else one element at a time.
fn rows<A: Element, B: Element>(
    source: &Value,
    mut plane: Open<'_>,
    writes: &[KvWrite],
    copy: impl Fn(&[A], &mut [B]),
) {
    let steps: [usize; 4] = std::array::from_fn(|axis| plane.layout.strides()[axis]);
    let from_steps: [usize; 3] = std::array::from_fn(|axis| source.layout.strides()[axis]);
    let [heads, width] = [source.layout.shape()[1], source.layout.shape()[2]];
    let (from, to) = (source.read::<A>(), plane.write::<B>());
    let piece = if (from_steps[2], steps[3]) == (1, 1) { width.max(1) } else { 1 };
    for write in writes {
        for (i, token) in write.tokens.clone().enumerate() {
            for head in 0..heads {
                let start = token * from_steps[0] + head * from_steps[1];
                let place = write.row * steps[0] + head * steps[1] + (write.column + i) * steps[2];
                for k in (0..width).step_by(piece) {
                    let (start, place) = (start + k * from_steps[2], place + k * steps[3]);
                    copy(&from[start..start + piece], &mut to[place..place + piece]);
                }
            }
        }
    }
}
