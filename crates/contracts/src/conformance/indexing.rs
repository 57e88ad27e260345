//! Operations that choose elements by index tensors or by a condition.

use super::{
    Broken, Outcome, behaviours,
    expect::same,
    host::{Host, indices, resized, with},
};
use crate::tensor::{Device, Dtype, ErrorKind, Result, Tensor};

behaviours!("indexing":
    take_chooses_along_an_axis,
    take_along_axis_chooses_by_place,
    put_along_axis_writes_by_place,
    select_follows_the_condition,
    indices_out_of_range_are_refused_or_clamped,
);

/// Rows along each axis by indices of rank 0, 1 and 2 replace the axis; repeated and strided indices, zero sizes.
pub fn take_chooses_along_an_axis(device: &Device) -> Outcome {
    for dtype in Dtype::ALL {
        let host = Host::sample(dtype, &[3, 4, 5], 11);
        for axis in 0..3 {
            for shape in [&[][..], &[6], &[2, 3], &[0]] {
                let chosen = Host::sample_indices(shape, host.shape[axis], 12 + axis as u64);
                let mut to = host.shape.clone();
                to.splice(axis..=axis, shape.iter().copied());
                let expected = Host::build(dtype, &to, |index| {
                    let row = chosen.at(&index[axis..axis + shape.len()]) as usize;
                    let mut own = index.to_vec();
                    own.splice(axis..axis + shape.len(), [row]);
                    host.at(&own)
                });
                let index_forms = chosen.forms(device)?;
                for (i, (form, x)) in host.forms(device)?.into_iter().enumerate() {
                    let (index_form, index) = &index_forms[i % index_forms.len()];
                    let place = format!("{dtype:?} axis {axis} by {shape:?}, {index_form} of {form}");
                    same(place, device, &device.take(&x, index, axis)?, &expected)?;
                }
            }
        }
    }
    Ok(())
}

/// One index for each element of the result, along each axis.
pub fn take_along_axis_chooses_by_place(device: &Device) -> Outcome {
    for dtype in Dtype::ALL {
        let host = Host::sample(dtype, &[3, 4, 5], 13);
        for axis in 0..3 {
            for count in [0, 1, 7] {
                let chosen = Host::sample_indices(&resized(&host.shape, axis, count), host.shape[axis], 14);
                let expected = Host::build(dtype, &chosen.shape, |index| {
                    host.at(&with(index, axis, chosen.at(index) as usize))
                });
                for ((form, x), (_, index)) in host.forms(device)?.iter().zip(chosen.forms(device)?) {
                    let place = format!("{dtype:?} axis {axis}, {count} indices, {form}");
                    same(place, device, &device.take_along_axis(x, &index, axis)?, &expected)?;
                }
            }
        }
    }
    Ok(())
}

/// Different indices along the axis; values of full shape and values that broadcast. Nothing else changes.
pub fn put_along_axis_writes_by_place(device: &Device) -> Outcome {
    for dtype in Dtype::ALL {
        let host = Host::sample(dtype, &[3, 4, 5], 15);
        for axis in 0..3 {
            let extent = host.shape[axis];
            // Each line has its own order and no index twice.
            let chosen = Host::build(Dtype::I32, &resized(&host.shape, axis, extent - 1), |index| {
                let others: usize = index.iter().sum::<usize>() - index[axis];
                ((2 * extent - index[axis] + others) % extent) as f64
            });
            for values in [Host::sample(dtype, &chosen.shape, 16), Host::sample(dtype, &[1], 17)] {
                let mut expected = host.clone();
                for index in indices(&chosen.shape) {
                    let target = with(&index, axis, chosen.at(&index) as usize);
                    let place = super::host::flat(&host.shape, &target);
                    expected.values[place] = values.spread_at(&index);
                }
                let value_forms = values.forms(device)?;
                for (i, ((form, x), (_, index))) in
                    host.forms(device)?.iter().zip(chosen.forms(device)?).enumerate()
                {
                    let values = &value_forms[i % value_forms.len()].1;
                    let result = device.put_along_axis(x.clone(), &index, values, axis)?;
                    same(format!("{dtype:?} axis {axis}, {form}"), device, &result, &expected)?;
                }
            }
            let none = Host::raw(Dtype::I32, &resized(&host.shape, axis, 0), vec![]).upload(device)?;
            let value = Host::sample(dtype, &[1], 18).upload(device)?;
            let kept = device.put_along_axis(host.upload(device)?, &none, &value, axis)?;
            same("no index", device, &kept, &host)?;
        }
    }
    Ok(())
}

/// All three operands broadcast, each of them alone and all together; zero sizes.
pub fn select_follows_the_condition(device: &Device) -> Outcome {
    let cases: [[&[usize]; 4]; 6] = [
        [&[3, 4], &[3, 4], &[3, 4], &[3, 4]],
        [&[4], &[3, 1], &[], &[3, 4]],
        [&[3, 1], &[1, 4], &[3, 4], &[3, 4]],
        [&[2, 1, 4], &[3, 1], &[1], &[2, 3, 4]],
        [&[], &[2], &[2], &[2]],
        [&[0, 1], &[1, 3], &[3], &[0, 3]],
    ];
    for dtype in Dtype::ALL {
        for [condition, a, b, to] in cases {
            let condition = Host::sample(Dtype::Bool, condition, 19);
            let (a, b) = (Host::sample(dtype, a, 20), Host::sample(dtype, b, 21));
            let expected = Host::build(dtype, to, |index| {
                if condition.spread_at(index) != 0.0 { a.spread_at(index) } else { b.spread_at(index) }
            });
            let (a_forms, b_forms) = (a.forms(device)?, b.forms(device)?);
            for (i, (form, condition)) in condition.forms(device)?.iter().enumerate() {
                let (a, b) = (&a_forms[i % a_forms.len()].1, &b_forms[(i + 1) % b_forms.len()].1);
                let place = format!("{dtype:?} to {to:?}, {form}");
                same(place, device, &device.select(condition, a, b)?, &expected)?;
            }
        }
    }
    Ok(())
}

/// An index below zero or past the end is an `Index` error, of the operation or of the evaluation, or is clamped
/// to the ends of the axis. The device works on afterwards.
pub fn indices_out_of_range_are_refused_or_clamped(device: &Device) -> Outcome {
    let host = Host::build(Dtype::F32, &[4], |index| index[0] as f64 + 10.0);
    let x = host.upload(device)?;
    let value = device.upload_f32(&[1.0], &[1])?;
    for (wild, clamped) in [(4, 3), (-1, 0), (i32::MAX, 3), (i32::MIN, 0), (1 << 28, 3)] {
        let index = device.upload_i32(&[wild], &[1])?;
        let chosen = Host::build(Dtype::F32, &[1], |_| f64::from(clamped) + 10.0);
        refused_or(format!("take {wild}"), device, device.take(&x, &index, 0), &chosen)?;
        refused_or(
            format!("take_along_axis {wild}"),
            device,
            device.take_along_axis(&x, &index, 0),
            &chosen,
        )?;
        let written =
            Host::build(Dtype::F32, &[4], |at| if at[0] == clamped as usize { 1.0 } else { host.at(at) });
        let put = device.put_along_axis(x.clone(), &index, &value, 0);
        refused_or(format!("put_along_axis {wild}"), device, put, &written)?;
    }
    let index = device.upload_i32(&[2], &[1])?;
    let expected = Host::build(Dtype::F32, &[1], |_| 12.0);
    same("afterwards", device, &device.take(&x, &index, 0)?, &expected)
}

/// An `Index` error now or when the value is asked for, or exactly this value.
pub(super) fn refused_or(place: String, device: &Device, result: Result<Tensor>, clamped: &Host) -> Outcome {
    let error = match result {
        Err(error) => error,
        Ok(x) => match device.download(&x) {
            Err(error) => error,
            Ok(_) => return same(place, device, &x, clamped),
        },
    };
    if error.kind() == ErrorKind::Index {
        return Ok(());
    }
    Err(Broken::new(format!("gave {error:?}")).at(place))
}
