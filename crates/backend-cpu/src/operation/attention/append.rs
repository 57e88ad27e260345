//! Writing new tokens' keys or values into a plane.

use crate::device::CpuDevice;
use crate::number::with_size;
use tandem_contracts::tensor::{KvWrite, Result, Tensor, shape};

pub(crate) fn append(
    device: &CpuDevice,
    plane: Tensor,
    tokens: &Tensor,
    writes: &[KvWrite],
) -> Result<Tensor> {
    device.own("kv_append", &[&plane, tokens])?;
    shape::kv_append(&plane, tokens, writes)?;
    let source = device.value("kv_append", tokens)?;
    let mut draft = device.take_writable("kv_append", plane)?;
    let to_strides = draft.layout.strides().to_vec();
    let from_strides = source.layout.strides();
    let [heads, width] = [source.layout.shape()[1], source.layout.shape()[2]];
    with_size!(source.dtype, T => {
        let (from, to) = (source.read::<T>(), draft.write::<T>());
        for write in writes {
            for (i, token) in write.tokens.clone().enumerate() {
                for head in 0..heads {
                    let start = token * from_strides[0] + head * from_strides[1];
                    let place = [write.row, head, write.column + i];
                    let place: usize = place.iter().zip(&to_strides).map(|(at, step)| at * step).sum();
                    copy(width, (&from[start..], from_strides[2]), (&mut to[place..], to_strides[3]));
                }
            }
        }
    });
    Ok(device.finish(draft))
}

fn copy<T: Copy>(count: usize, (from, from_step): (&[T], usize), (to, to_step): (&mut [T], usize)) {
    if (from_step, to_step) == (1, 1) {
        to[..count].copy_from_slice(&from[..count]);
    } else {
        (0..count).for_each(|i| to[i * to_step] = from[i * from_step]);
    }
}
