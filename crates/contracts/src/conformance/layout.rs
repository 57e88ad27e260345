//! Operations that move elements: exact in every dtype, over dense and strided operands.

use super::{
    Outcome, behaviours,
    expect::same,
    host::{Host, resized, with},
};
use crate::tensor::{Device, Dtype, Scalar};

behaviours!("layout":
    view_rereads_bytes,
    reshape_keeps_row_major_order,
    transpose_permutes_axes,
    broadcast_repeats_axes,
    concat_joins_along_an_axis,
    pad_adds_at_both_ends,
    slice_cuts_a_box,
    slice_update_replaces_a_box,
    views_compose,
    cast_converts_every_pair,
    cast_saturates,
    cast_rounds_to_nearest,
    cast_keeps_low_bits,
);

/// The same bytes under every other dtype, from dense and strided operands.
pub fn view_rereads_bytes(device: &Device) -> Outcome {
    for from in Dtype::ALL.into_iter().filter(|&dtype| dtype != Dtype::Bool) {
        // Small integers: no pattern of these bytes is a NaN in any float type.
        let host = Host::build(from, &[3, 8], |index| (index[0] * 8 + index[1]) as f64);
        for to in Dtype::ALL.into_iter().filter(|&dtype| dtype != Dtype::Bool) {
            let width = 8 * from.size() / to.size();
            let expected = Host::from_bytes(to, &[3, width], &host.bytes());
            for (form, x) in host.forms(device)? {
                same(format!("{from:?} as {to:?}, {form}"), device, &device.view(&x, to)?, &expected)?;
            }
        }
    }
    let empty = Host::sample(Dtype::U32, &[2, 0], 1).upload(device)?;
    same("nothing", device, &device.view(&empty, Dtype::U8)?, &Host::raw(Dtype::U8, &[2, 0], vec![]))
}

/// Row-major order survives, from strided operands too; zero sizes and scalars included.
pub fn reshape_keeps_row_major_order(device: &Device) -> Outcome {
    let cases: [(&[usize], &[usize]); 7] = [
        (&[2, 3, 4], &[4, 6]),
        (&[2, 3, 4], &[24]),
        (&[6], &[1, 2, 1, 3]),
        (&[1, 1], &[]),
        (&[], &[1]),
        (&[0, 3], &[5, 0, 2]),
        (&[3, 5], &[5, 3]),
    ];
    for dtype in Dtype::ALL {
        for (from, to) in cases {
            let host = Host::sample(dtype, from, 2);
            let expected = Host::raw(dtype, to, host.values.clone());
            for (form, x) in host.forms(device)? {
                same(
                    format!("{dtype:?} {from:?} to {to:?}, {form}"),
                    device,
                    &device.reshape(&x, to)?,
                    &expected,
                )?;
            }
        }
    }
    Ok(())
}

/// Every permutation of three axes, and of none, one and four.
pub fn transpose_permutes_axes(device: &Device) -> Outcome {
    let cases: [(&[usize], &[usize]); 11] = [
        (&[2, 3, 5], &[0, 1, 2]),
        (&[2, 3, 5], &[0, 2, 1]),
        (&[2, 3, 5], &[1, 0, 2]),
        (&[2, 3, 5], &[1, 2, 0]),
        (&[2, 3, 5], &[2, 0, 1]),
        (&[2, 3, 5], &[2, 1, 0]),
        (&[], &[]),
        (&[4], &[0]),
        (&[2, 0, 3], &[2, 0, 1]),
        (&[2, 3, 1, 4], &[3, 1, 0, 2]),
        (&[17, 33], &[1, 0]),
    ];
    for dtype in Dtype::ALL {
        for (shape, axes) in cases {
            let host = Host::sample(dtype, shape, 3);
            for (form, x) in host.forms(device)? {
                let place = format!("{dtype:?} {shape:?} by {axes:?}, {form}");
                same(place, device, &device.transpose(&x, axes)?, &host.transposed(axes))?;
            }
        }
    }
    Ok(())
}

/// Axes of extent 1 repeat, leading axes appear, zero extents stay.
pub fn broadcast_repeats_axes(device: &Device) -> Outcome {
    let cases: [(&[usize], &[usize]); 6] = [
        (&[3, 1], &[3, 4]),
        (&[1, 4], &[2, 3, 4]),
        (&[], &[2, 2]),
        (&[2, 1, 3], &[2, 5, 3]),
        (&[1], &[0]),
        (&[2, 3], &[2, 3]),
    ];
    for dtype in Dtype::ALL {
        for (from, to) in cases {
            let host = Host::sample(dtype, from, 4);
            let expected = Host::build(dtype, to, |index| host.spread_at(index));
            for (form, x) in host.forms(device)? {
                let place = format!("{dtype:?} {from:?} to {to:?}, {form}");
                same(place, device, &device.broadcast(&x, to)?, &expected)?;
            }
        }
    }
    Ok(())
}

/// Operands in order along each axis: one, several, empty ones, and one operand twice.
pub fn concat_joins_along_an_axis(device: &Device) -> Outcome {
    for dtype in Dtype::ALL {
        for axis in 0..3 {
            let base = [2, 3, 4];
            let [a, b, none] =
                [2, 5, 0].map(|extent| Host::sample(dtype, &resized(&base, axis, extent), extent as u64));
            let expected = Host::build(dtype, &resized(&base, axis, 9), |index| match index[axis] {
                i @ 0..2 => a.at(&with(index, axis, i)),
                i @ 2..7 => b.at(&with(index, axis, i - 2)),
                i => a.at(&with(index, axis, i - 7)),
            });
            let none = none.upload(device)?;
            for ((form, x), (_, y)) in a.forms(device)?.into_iter().zip(b.forms(device)?) {
                let joined = device.concat(&[&x, &none, &y, &x], axis)?;
                same(format!("{dtype:?} axis {axis}, {form}"), device, &joined, &expected)?;
                same("one operand", device, &device.concat(&[&x], axis)?, &a)?;
            }
        }
    }
    Ok(())
}

/// The value before and after, along each axis; nothing added, and an empty operand.
pub fn pad_adds_at_both_ends(device: &Device) -> Outcome {
    for dtype in Dtype::ALL {
        let (scalar, value) = match dtype {
            Dtype::Bool => (Scalar::Bool(true), 1.0),
            _ if dtype.is_float() => (Scalar::Float(-1.5), -1.5),
            _ => (Scalar::Int(9), 9.0),
        };
        for shape in [[2, 3], [0, 3]] {
            let host = Host::sample(dtype, &shape, 5);
            for (axis, before, after) in [(0, 2, 1), (1, 0, 2), (1, 3, 0), (0, 0, 0)] {
                let old = shape[axis];
                let expected = Host::build(dtype, &resized(&shape, axis, before + old + after), |index| {
                    let inside = (before..before + old).contains(&index[axis]);
                    if inside { host.at(&with(index, axis, index[axis] - before)) } else { value }
                });
                for (form, x) in host.forms(device)? {
                    let padded = device.pad(&x, axis, before, after, scalar)?;
                    let place = format!("{dtype:?} {shape:?} axis {axis} by {before} and {after}, {form}");
                    same(place, device, &padded, &expected)?;
                }
            }
        }
    }
    Ok(())
}

/// Boxes inside, at the edges, whole and empty.
pub fn slice_cuts_a_box(device: &Device) -> Outcome {
    let shape = [4, 3, 5];
    let cases = [
        ([1, 0, 2], [2, 3, 3]),
        ([0, 0, 0], [4, 3, 5]),
        ([3, 2, 4], [1, 1, 1]),
        ([4, 1, 0], [0, 2, 5]),
        ([0, 1, 0], [4, 1, 5]),
    ];
    for dtype in Dtype::ALL {
        let host = Host::sample(dtype, &shape, 6);
        for (start, size) in cases {
            let ranges = [0, 1, 2].map(|axis| start[axis]..start[axis] + size[axis]);
            for (form, x) in host.forms(device)? {
                let place = format!("{dtype:?} {ranges:?}, {form}");
                same(place, device, &device.slice(&x, &ranges)?, &host.boxed(&start, &size))?;
            }
        }
        let scalar = Host::sample(dtype, &[], 7);
        same("a scalar", device, &device.slice(&scalar.upload(device)?, &[])?, &scalar)?;
    }
    Ok(())
}

/// The box changes and nothing else; dense and strided updates into dense and strided operands.
pub fn slice_update_replaces_a_box(device: &Device) -> Outcome {
    let cases =
        [([1, 0, 2], [2, 3, 3]), ([0, 0, 0], [4, 3, 5]), ([3, 2, 4], [1, 1, 1]), ([2, 1, 0], [0, 2, 5])];
    for dtype in Dtype::ALL {
        let host = Host::sample(dtype, &[4, 3, 5], 8);
        for (start, size) in cases {
            let update = Host::sample(dtype, &size, 9);
            let expected = Host::build(dtype, &host.shape, |index| {
                let inside =
                    (0..3).all(|axis| (start[axis]..start[axis] + size[axis]).contains(&index[axis]));
                if !inside {
                    return host.at(index);
                }
                update.at(&[0, 1, 2].map(|axis| index[axis] - start[axis]))
            });
            for (form, x) in host.forms(device)? {
                for (update_form, update) in update.forms(device)? {
                    let result = device.slice_update(x.clone(), &update, &start)?;
                    let place = format!("{dtype:?} {size:?} at {start:?}, {update_form} into {form}");
                    same(place, device, &result, &expected)?;
                }
            }
        }
    }
    Ok(())
}

/// Chains of views read the right elements: cut, turned, repeated, cut again, and reshaped at last.
pub fn views_compose(device: &Device) -> Outcome {
    for dtype in Dtype::ALL {
        let host = Host::sample(dtype, &[4, 1, 6], 10);
        let x = device.slice(&host.upload(device)?, &[1..4, 0..1, 2..6])?;
        let x = device.transpose(&x, &[2, 1, 0])?;
        let x = device.broadcast(&x, &[4, 5, 3])?;
        let x = device.slice(&x, &[0..3, 1..3, 1..3])?;
        let expected = Host::build(dtype, &[3, 2, 2], |index| host.at(&[index[2] + 2, 0, index[0] + 2]));
        same(format!("{dtype:?} views"), device, &x, &expected)?;
        let flat = Host::raw(dtype, &[12], expected.values.clone());
        same(format!("{dtype:?} reshaped"), device, &device.reshape(&x, &[12])?, &flat)?;
        let turned = device.transpose(&x, &[1, 2, 0])?;
        same(format!("{dtype:?} turned"), device, &turned, &expected.transposed(&[1, 2, 0]))?;
    }
    Ok(())
}

/// Numbers that both dtypes hold convert exactly, for every pair; to booleans by `!= 0`.
pub fn cast_converts_every_pair(device: &Device) -> Outcome {
    for from in Dtype::ALL {
        let host = Host::build(from, &[3, 4], |index| match from {
            Dtype::Bool => (index[1] % 2) as f64,
            _ => (index[0] * 5 + index[1] * 2) as f64,
        });
        for to in Dtype::ALL {
            let expected = Host::raw(to, &host.shape, host.values.clone());
            let expected = if to == Dtype::Bool { expected.map(|x| f64::from(x != 0.0)) } else { expected };
            for (form, x) in host.forms(device)? {
                same(format!("{from:?} to {to:?}, {form}"), device, &device.cast(&x, to)?, &expected)?;
            }
        }
    }
    let empty = Host::sample(Dtype::F32, &[0, 2], 1).upload(device)?;
    same("nothing", device, &device.cast(&empty, Dtype::I8)?, &Host::raw(Dtype::I8, &[0, 2], vec![]))
}

/// Floats of every width to integers truncate and saturate, and anything but 0 is true.
pub fn cast_saturates(device: &Device) -> Outcome {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let edges = vec![1.9, -1.9, 0.5, -0.5, 0.0, 300.0, -300.0, 1e10, -1e10, inf, -inf, nan];
    let integers: [(Dtype, Conversion); 4] = [
        (Dtype::I32, |x| f64::from(x as i32)),
        (Dtype::U32, |x| f64::from(x as u32)),
        (Dtype::I8, |x| f64::from(x as i8)),
        (Dtype::U8, |x| f64::from(x as u8)),
    ];
    for from in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let host = Host::new(from, &[edges.len()], edges.clone());
        let x = host.upload(device)?;
        for (dtype, convert) in integers {
            let expected = Host::raw(dtype, &host.shape, host.map(convert).values);
            same(format!("{from:?} to {dtype:?}"), device, &device.cast(&x, dtype)?, &expected)?;
        }
        let truth = Host::build(Dtype::Bool, &host.shape, |index| f64::from(index[0] != 4));
        same(format!("{from:?} to Bool"), device, &device.cast(&x, Dtype::Bool)?, &truth)?;
    }
    Ok(())
}

type Conversion = fn(f64) -> f64;

/// Wide floats and large integers become the nearest float, halves to even, and infinite past the largest.
pub fn cast_rounds_to_nearest(device: &Device) -> Outcome {
    for (dtype, step) in [(Dtype::F16, 2f64.powi(-13)), (Dtype::Bf16, 2f64.powi(-10))] {
        let ends = [65519.0, 65520.0, 1e-7, 3.4e38, -1e-30, f64::INFINITY, f64::NAN];
        let fine: Vec<f64> = (0..64).map(|i| 1.0 + f64::from(i) * step).chain(ends).collect();
        let host = Host::new(Dtype::F32, &[fine.len()], fine);
        let result = device.cast(&host.upload(device)?, dtype)?;
        same(format!("F32 to {dtype:?}"), device, &result, &host.rounded(dtype))?;
    }
    let signed = Host::raw(Dtype::I32, &[4], vec![16_777_217.0, -16_777_219.0, 2049.0, 2_147_483_647.0]);
    let unsigned = Host::raw(Dtype::U32, &[3], vec![4_294_967_295.0, 257.0, 16_777_219.0]);
    for host in [signed, unsigned] {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let result = device.cast(&host.upload(device)?, dtype)?;
            same(format!("{:?} to {dtype:?}", host.dtype), device, &result, &host.rounded(dtype))?;
        }
    }
    Ok(())
}

/// Integers to narrower ones keep their low bits.
pub fn cast_keeps_low_bits(device: &Device) -> Outcome {
    let wide = Host::raw(Dtype::I32, &[4], vec![257.0, -129.0, 128.0, 65536.0]).upload(device)?;
    let wrapped = Host::raw(Dtype::U8, &[4], vec![1.0, 127.0, 128.0, 0.0]);
    same("I32 to U8", device, &device.cast(&wide, Dtype::U8)?, &wrapped)?;
    let bytes = Host::build(Dtype::U8, &[256], |index| index[0] as f64).upload(device)?;
    let signed = Host::build(Dtype::I8, &[256], |index| f64::from(index[0] as u8 as i8));
    same("U8 to I8", device, &device.cast(&bytes, Dtype::I8)?, &signed)?;
    let negative = Host::raw(Dtype::I32, &[2], vec![-1.0, -2_147_483_648.0]).upload(device)?;
    let words = Host::raw(Dtype::U32, &[2], vec![4_294_967_295.0, 2_147_483_648.0]);
    same("I32 to U32", device, &device.cast(&negative, Dtype::U32)?, &words)
}
