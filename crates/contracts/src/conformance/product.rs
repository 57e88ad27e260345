//! Matrix products of plain tensors.

use super::{
    Outcome, behaviours,
    expect::{near, same},
    host::{Host, indices},
    tolerance::accumulated,
};
use crate::tensor::{Device, Dtype};

behaviours!("product":
    matmul_of_odd_shapes,
    matmul_broadcasts_axes_before,
    matmul_over_nothing_is_zero,
    matmul_accumulates_in_f32,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// The exact product, and for each element the sum of its terms' magnitudes.
pub(super) fn reference(a: &Host, b: &Host, shape: &[usize]) -> (Host, Vec<f64>) {
    let rank = shape.len();
    let k = a.shape[a.rank() - 1];
    let terms = |index: &[usize]| -> Vec<f64> {
        let (batch, [row, column]) = (&index[..rank - 2], [index[rank - 2], index[rank - 1]]);
        let at = |host: &Host, last: [usize; 2]| {
            let own = host.rank() - 2;
            let mut index: Vec<usize> = batch[batch.len() - own..].to_vec();
            index.iter_mut().zip(&host.shape).for_each(|(i, &extent)| *i = (*i).min(extent - 1));
            index.extend(last);
            host.at(&index)
        };
        (0..k).map(|i| at(a, [row, i]) * at(b, [i, column])).collect()
    };
    let magnitudes = indices(shape).iter().map(|index| terms(index).iter().map(|x| x.abs()).sum()).collect();
    (Host::build(a.dtype, shape, |index| terms(index).iter().sum()), magnitudes)
}

fn check(device: &Device, a: &Host, b: &Host, shape: &[usize]) -> Outcome {
    let (expected, magnitudes) = reference(a, b, shape);
    let terms = a.shape[a.rank() - 1];
    let bound = |i: usize| accumulated(a.dtype, terms, magnitudes[i], expected.values[i]);
    for (form, x) in a.forms(device)? {
        for (other_form, y) in b.forms(device)? {
            let place = format!("{:?} {:?} by {:?}, {form} and {other_form}", a.dtype, a.shape, b.shape);
            near(place, device, &device.matmul(&x, &y)?, &expected, bound)?;
        }
    }
    Ok(())
}

/// One row, one column, one term, primes and blocks with remainders; dense, transposed and sliced on both sides.
pub fn matmul_of_odd_shapes(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for [m, k, n] in [[1, 1, 1], [1, 67, 5], [7, 13, 1], [3, 1, 4], [17, 33, 19], [5, 64, 32]] {
            let (a, b) = (Host::sample(dtype, &[m, k], 60), Host::sample(dtype, &[k, n], 61));
            check(device, &a, &b, &[m, n])?;
        }
    }
    Ok(())
}

/// Axes before the matrices broadcast as elementwise operands do.
pub fn matmul_broadcasts_axes_before(device: &Device) -> Outcome {
    let cases: [(&[usize], &[usize], &[usize]); 5] = [
        (&[2, 3, 4], &[2, 4, 5], &[2, 3, 5]),
        (&[2, 3, 4], &[4, 5], &[2, 3, 5]),
        (&[3, 4], &[2, 4, 5], &[2, 3, 5]),
        (&[2, 1, 3, 4], &[3, 4, 2], &[2, 3, 3, 2]),
        (&[1, 3, 4], &[2, 4, 1], &[2, 3, 1]),
    ];
    for dtype in FLOATS {
        for (a, b, to) in cases {
            check(device, &Host::sample(dtype, a, 62), &Host::sample(dtype, b, 63), to)?;
        }
    }
    Ok(())
}

/// No terms sum to 0; no rows, columns or batches give no elements.
pub fn matmul_over_nothing_is_zero(device: &Device) -> Outcome {
    let cases: [(&[usize], &[usize], &[usize]); 4] = [
        (&[2, 0], &[0, 3], &[2, 3]),
        (&[0, 4], &[4, 3], &[0, 3]),
        (&[2, 4], &[4, 0], &[2, 0]),
        (&[0, 2, 3], &[3, 2], &[0, 2, 2]),
    ];
    for dtype in FLOATS {
        for (a, b, to) in cases {
            let [x, y] = [a, b].map(|shape| Host::sample(dtype, shape, 64));
            let product = device.matmul(&x.upload(device)?, &y.upload(device)?)?;
            same(format!("{dtype:?} {a:?} by {b:?}"), device, &product, &Host::build(dtype, to, |_| 0.0))?;
        }
    }
    Ok(())
}

/// 4096 terms of 1/2 in f16: an accumulator of 16 bits would stand still at 1024 (at 128 in bf16).
pub fn matmul_accumulates_in_f32(device: &Device) -> Outcome {
    for dtype in [Dtype::F16, Dtype::Bf16] {
        let a = Host::build(dtype, &[1, 4096], |_| 0.5).upload(device)?;
        let b = Host::build(dtype, &[4096, 2], |_| 1.0).upload(device)?;
        same(
            format!("{dtype:?}"),
            device,
            &device.matmul(&a, &b)?,
            &Host::build(dtype, &[1, 2], |_| 2048.0),
        )?;
    }
    Ok(())
}
