//! TurboQuant's keys; see [`fused::encode_turbo_keys`](tandem_contracts::tensor::fused::encode_turbo_keys).

use super::{Group, ascending, pack, put};
use crate::device::CpuDevice;
use crate::number::{Real, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch};
use half::f16;
use tandem_contracts::tensor::fused::{EPSILON, turbo_key_range};
use tandem_contracts::tensor::turbo::GROUP;
use tandem_contracts::tensor::{Dtype, Result, Tensor, TurboKeys, shape};

pub(crate) fn encode_turbo_keys(device: &CpuDevice, x: &Tensor, bits: u8) -> Result<TurboKeys> {
    let source = device.value("encode_turbo_keys", x)?;
    let [coded, scaled] = shape::encode_turbo_keys(x, bits)?;
    let source = device.contiguous("encode_turbo_keys", source)?;
    let dtype = if bits == 8 { Dtype::I8 } else { Dtype::U8 };
    let mut codes = device.fresh("encode_turbo_keys", dtype, &coded)?;
    let mut scales = device.fresh("encode_turbo_keys", Dtype::F16, &scaled)?;
    let mut zeros = device.fresh("encode_turbo_keys", Dtype::F16, &scaled)?;
    let isa = device.pool.isa();
    let planes = (
        Disjoint::new(codes.elements::<u8>()),
        Disjoint::new(scales.elements::<f16>()),
        Disjoint::new(zeros.elements::<f16>()),
    );
    with_real!(source.dtype, T => {
        let from = source.slice::<T>().unwrap_or_default();
        let size = GROUP / 8 * usize::from(bits);
        device.spread(planes.1.len(), 8 * GROUP, |range| {
            let from = &from[range.start * GROUP..range.end * GROUP];
            // SAFETY: groups do not overlap, and each belongs to one part.
            let (codes, scales, zeros) = unsafe {
                let codes = planes.0.range(range.start * size..range.end * size);
                (codes, planes.1.range(range.clone()), planes.2.range(range))
            };
            dispatch(isa, Encode { bits, from, codes, scales, zeros });
        });
    });
    let [codes, scales, zeros] = [codes, scales, zeros].map(|draft| device.finish(draft));
    Ok(TurboKeys { bits, codes, scales, zeros })
}

/// Encodes groups that follow each other.
struct Encode<'a, T> {
    bits: u8,
    from: &'a [T],
    codes: &'a mut [u8],
    scales: &'a mut [f16],
    zeros: &'a mut [f16],
}

impl<T: Real> Kernel for Encode<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let bits = usize::from(self.bits);
        let groups = self.from.chunks_exact(GROUP).zip(self.codes.chunks_exact_mut(GROUP / 8 * bits));
        for (index, (from, codes)) in groups.enumerate() {
            let mut group = Group::default();
            for (vector, from) in from.as_chunks::<LANES>().0.iter().enumerate() {
                put(simd, &mut group, vector, T::load(simd, from));
            }
            let made = Made::of(simd, &mut group, self.bits);
            (self.scales[index], self.zeros[index]) = (made.scale, made.zero);
            if bits == 8 {
                for (to, code) in codes.iter_mut().zip(group.as_flattened()) {
                    *to = *code as i32 as u8;
                }
            } else {
                pack(bits, &group, codes);
            }
        }
    }
}

/// What a group stores besides codes.
struct Made {
    scale: f16,
    zero: f16,
}

impl Made {
    /// Replaces the group by its codes.
    #[inline(always)]
    fn of<S: Simd>(simd: S, group: &mut Group, bits: u8) -> Self {
        let (least_code, most_code, steps) = turbo_key_range(bits);
        let [a, b] = [simd.load(&group[0]), simd.load(&group[1])];
        let none = simd.splat(0.0);
        let most = simd.largest(simd.max(a, b));
        // Of the negative elements the largest is the least.
        let least = -simd.largest(simd.max(simd.sub(none, a), simd.sub(none, b)));
        let scale = (most - least) / steps;
        let divisor = scale + EPSILON;
        let zero = if bits == 8 { (most + least) / (divisor * 2.0) } else { least / divisor };
        let zero = zero.round_ties_even();
        let made = Self { scale: f16::from_f32(scale), zero: f16::from_f32(zero + 0.0) };
        if made.scale == f16::ZERO || made.zero.is_infinite() {
            let mean = ascending(group) / GROUP as f32;
            *group = [[1.0; LANES]; GROUP / LANES];
            return Self { scale: f16::from_f32(mean + 0.0), zero: f16::ZERO };
        }
        let (divisor, zero) = (simd.splat(divisor), simd.splat(zero));
        let (least, most) = (simd.splat(least_code), simd.splat(most_code));
        for (vector, x) in [a, b].into_iter().enumerate() {
            let code = simd.round(simd.sub(simd.div(x, divisor), zero));
            put(simd, group, vector, simd.min(simd.max(code, least), most));
        }
        made
    }
}
