//! TurboQuant's values; see [`fused::encode_turbo_values`](tandem_contracts::tensor::fused::encode_turbo_values).

use super::{Group, ascending, pack, put, transform};
use crate::device::CpuDevice;
use crate::number::{Real, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch};
use half::f16;
use tandem_contracts::tensor::fused::EPSILON;
use tandem_contracts::tensor::turbo::GROUP;
use tandem_contracts::tensor::{Dtype, Result, Tensor, TurboBook, TurboValues, shape};

const NAME: &str = "encode_turbo_values";

pub(crate) fn encode_turbo_values(device: &CpuDevice, x: &Tensor, book: &TurboBook) -> Result<TurboValues> {
    device.own(NAME, &[x, &book.levels])?;
    let boundaries = device.value(NAME, &book.boundaries)?;
    let signs = device.value(NAME, &book.signs)?;
    let [coded, scaled] = shape::encode_turbo_values(x, book)?;
    let source = device.contiguous(NAME, device.value(NAME, x)?)?;
    let (boundaries, signs) = (device.contiguous(NAME, boundaries)?, device.contiguous(NAME, signs)?);
    let mut codes = device.fresh(NAME, Dtype::U8, &coded)?;
    let mut scales = device.fresh(NAME, Dtype::F16, &scaled)?;
    let planes = (Disjoint::new(codes.elements::<u8>()), Disjoint::new(scales.elements::<f16>()));
    let rule = Rule {
        bits: book.bits.into(),
        boundaries: boundaries.slice().unwrap_or_default(),
        signs: signs.slice().unwrap_or_default(),
    };
    let (isa, width) = (device.pool.isa(), rule.signs.len());
    with_real!(source.dtype, T => {
        let from = source.slice::<T>().unwrap_or_default();
        let (size, groups) = (width * rule.bits / 8, width / GROUP);
        device.spread(from.len() / width, 16 * width, |range| {
            let from = &from[range.start * width..range.end * width];
            // SAFETY: heads do not overlap, and each belongs to one part.
            let (codes, scales) = unsafe {
                let codes = planes.0.range(range.start * size..range.end * size);
                (codes, planes.1.range(range.start * groups..range.end * groups))
            };
            dispatch(isa, Encode { rule, from, codes, scales });
        });
    });
    Ok(TurboValues { book: book.clone(), codes: device.finish(codes), scales: device.finish(scales) })
}

/// The book as slices.
#[derive(Clone, Copy)]
struct Rule<'a> {
    bits: usize,
    boundaries: &'a [f32],
    signs: &'a [f32],
}

/// Encodes heads that follow each other.
struct Encode<'a, T> {
    rule: Rule<'a>,
    from: &'a [T],
    codes: &'a mut [u8],
    scales: &'a mut [f16],
}

impl<T: Real> Kernel for Encode<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Rule { bits, signs, .. } = self.rule;
        let width = signs.len();
        let mut head = vec![0.0; width];
        let mut groups = self.codes.chunks_exact_mut(GROUP / 8 * bits).zip(self.scales);
        for from in self.from.chunks_exact(width) {
            for ((head, from), sign) in head.iter_mut().zip(from).zip(signs) {
                *head = from.to_f32() * sign;
            }
            transform(&mut head);
            let (vectors, _) = head.as_chunks::<LANES>();
            for (group, (codes, scale)) in vectors.as_chunks::<2>().0.iter().zip(&mut groups) {
                let mut group = *group;
                *scale = self.rule.encode(simd, &mut group);
                pack(bits, &group, codes);
            }
        }
    }
}

impl Rule<'_> {
    /// Replaces a group by its codes; gives its scale.
    #[inline(always)]
    fn encode<S: Simd>(&self, simd: S, group: &mut Group) -> f16 {
        let mut squares = Group::default();
        for (vector, x) in group.iter().enumerate() {
            let x = simd.load(x);
            put(simd, &mut squares, vector, simd.mul(x, x));
        }
        let scale = (ascending(&squares) / GROUP as f32).sqrt();
        let divisor = simd.splat(scale + EPSILON);
        for vector in 0..group.len() {
            let unit = simd.div(simd.load(&group[vector]), divisor);
            put(simd, group, vector, unit);
            if self.boundaries.len() < LANES {
                let count = self.count(simd, unit);
                put(simd, group, vector, count);
            } else {
                for x in &mut group[vector] {
                    *x = self.boundaries.partition_point(|boundary| *boundary < *x) as f32;
                }
            }
        }
        f16::from_f32(scale)
    }

    /// How many boundaries lie below each element.
    #[inline(always)]
    fn count<S: Simd>(&self, simd: S, x: S::Lanes) -> S::Lanes {
        let (mut count, one) = (simd.splat(0.0), simd.splat(1.0));
        for boundary in self.boundaries {
            let more = simd.add(count, one);
            count = simd.select(simd.less(simd.splat(*boundary), x), more, count);
        }
        count
    }
}
