//! Copies between layouts, fills, and conversions of elements.

use crate::device::spread;
use crate::layout::Walk;
use crate::memory::Element;
use crate::number::{Real, convert, with_number, with_real, with_size};
use crate::pool::{Disjoint, Pool};
use crate::simd::{Kernel, LANES, Simd, dispatch};
use crate::value::{Draft, Value};

/// Copies the elements of `x` to a contiguous draft of the same shape and dtype.
pub(crate) fn gather(pool: &Pool, x: &Value, draft: &mut Draft) {
    with_size!(x.dtype, T => map(pool, x, draft, |x: T| x, |from, to| to.copy_from_slice(from)));
}

/// Converts the elements of `x` to those of a contiguous draft of the same shape.
pub(crate) fn cast(pool: &Pool, x: &Value, draft: &mut Draft) {
    if x.dtype.is_float() && draft.dtype.is_float() {
        let isa = pool.isa();
        return with_real!(x.dtype, A => with_real!(draft.dtype, B => {
            map(pool, x, draft, convert::<A, B>, |from, to| dispatch(isa, Cast { from, to }));
        }));
    }
    with_number!(x.dtype, A => with_number!(draft.dtype, B => {
        map(pool, x, draft, convert::<A, B>, |from, to| {
            to.iter_mut().zip(from).for_each(|(to, &x)| *to = convert(x));
        });
    }));
}

/// Rounds floats to others.
pub(crate) struct Cast<'a, A, B> {
    pub(crate) from: &'a [A],
    pub(crate) to: &'a mut [B],
}

impl<A: Real, B: Real> Kernel for Cast<'_, A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (vectors, rest) = self.from.as_chunks::<LANES>();
        let (to, to_rest) = self.to.as_chunks_mut::<LANES>();
        for (from, to) in vectors.iter().zip(to) {
            B::store(simd, to, A::load(simd, from));
        }
        if !rest.is_empty() {
            B::store_part(simd, to_rest, A::load_part(simd, rest));
        }
    }
}

/// Fills a contiguous draft with `function` of each element of `x`, in row-major order; `line` does the same with elements
/// that follow each other. Both have one shape, and their dtypes are those of the types given.
fn map<A: Element, B: Element>(
    pool: &Pool,
    x: &Value,
    draft: &mut Draft,
    function: impl Fn(A) -> B + Sync,
    line: impl Fn(&[A], &mut [B]) + Sync,
) {
    let from = x.read::<A>();
    let walk = Walk::new(x.layout.shape(), [x.layout.strides()]);
    let count = walk.inner().count;
    let to = Disjoint::new(draft.elements::<B>());
    if walk.runs() == 1 && walk.inner().strides == [1] {
        spread(pool, count, 1, |range| {
            // SAFETY: the parts' ranges do not overlap.
            let to = unsafe { to.range(range.clone()) };
            line(&from[range], to);
        });
        return;
    }
    spread(pool, walk.runs(), count, |runs| {
        // SAFETY: the parts' runs do not overlap, and each run has its own elements of the draft.
        let mut to = unsafe { to.range(runs.start * count..runs.end * count) }.chunks_exact_mut(count.max(1));
        walk.visit(runs, |[start], inner| {
            let to = to.next().unwrap_or_default();
            match inner.strides[0] {
                0 => to.fill(function(from[start])),
                1 => line(&from[start..start + count], to),
                step => {
                    let from = from[start..].iter().step_by(step);
                    to.iter_mut().zip(from).for_each(|(to, &x)| *to = function(x));
                }
            }
        });
    });
}

/// Copies `x` into the box of `draft` that begins at `start`, which lies inside. The dtypes are equal.
pub(crate) fn scatter(x: &Value, draft: &mut Draft, start: &[usize]) {
    let offset: usize = start.iter().zip(draft.layout.strides()).map(|(start, stride)| start * stride).sum();
    let walk = Walk::new(x.layout.shape(), [x.layout.strides(), draft.layout.strides()]);
    with_size!(x.dtype, T => {
        let from = x.read::<T>();
        let to = draft.write::<T>();
        walk.visit(0..walk.runs(), |[from_start, to_start], inner| {
            copy_run(&from[from_start..], &mut to[offset + to_start..], inner.count, inner.strides);
        });
    });
}

/// Copies `count` elements between two strided runs.
fn copy_run<T: Copy>(from: &[T], to: &mut [T], count: usize, strides: [usize; 2]) {
    match strides {
        [1, 1] => to[..count].copy_from_slice(&from[..count]),
        [0, 1] => to[..count].fill(from[0]),
        [from_step, to_step] => (0..count).for_each(|i| to[i * to_step] = from[i * from_step]),
    }
}
