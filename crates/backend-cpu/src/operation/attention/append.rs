//! Writing new tokens' keys or values into planes, cast on the way where a plane holds other floats.
//!
//! Columns that are appended to lie far from each other and in no cache: those of all planes are asked for before the
//! first one is written.

use crate::device::CpuDevice;
use crate::layout::Layout;
use crate::memory::Element;
use crate::number::{with_real, with_size};
use crate::operation::copy::Cast;
use crate::pool::ahead::LINE;
use crate::simd::dispatch;
use crate::value::{Open, Value};
use tandem_contracts::tensor::{KvAppend, KvWrite, Result, Tensor, shape};

pub(crate) fn append(
    device: &CpuDevice,
    mut plane: Tensor,
    tokens: &Tensor,
    writes: &[KvWrite],
) -> Result<Tensor> {
    each(device, &mut [KvAppend { plane: &mut plane, tokens, writes }])?;
    Ok(plane)
}

pub(crate) fn each(device: &CpuDevice, appends: &mut [KvAppend<'_>]) -> Result<()> {
    for KvAppend { plane, tokens, writes } in &*appends {
        device.own("kv_append", &[plane, tokens])?;
        shape::kv_append(plane, tokens, writes)?;
    }
    let mut opened = Vec::with_capacity(appends.len());
    for KvAppend { plane, tokens, writes } in appends {
        let write = Write {
            source: device.value("kv_append", tokens)?,
            plane: device.open("kv_append", plane)?,
            writes,
        };
        with_size!(write.plane.dtype, T => write.soon::<T>());
        opened.push(write);
    }
    opened.into_iter().for_each(|write| write.run(device));
    Ok(())
}

/// One plane's part.
struct Write<'a> {
    source: &'a Value,
    plane: Open<'a>,
    writes: &'a [KvWrite],
}

impl Write<'_> {
    /// Asks for the first columns of each write.
    fn soon<T: Element>(&self) {
        let (size, width) = (size_of::<T>(), self.source.layout.shape()[2]);
        for write in self.writes.iter().filter(|write| !write.tokens.is_empty()) {
            for head in 0..self.source.layout.shape()[1] {
                let place =
                    self.plane.read::<T>().as_ptr().wrapping_add(column(self.plane.layout, write, head));
                (0..width * size).step_by(LINE).for_each(|byte| ask(place.cast::<u8>().wrapping_add(byte)));
            }
        }
    }

    fn run(self, device: &CpuDevice) {
        let Self { source, plane, writes } = self;
        if source.dtype == plane.dtype {
            with_size!(source.dtype, T => rows(source, plane, writes, |from: &[T], to| to.copy_from_slice(from)));
        } else {
            let isa = device.pool.isa();
            with_real!(source.dtype, A => with_real!(plane.dtype, B => {
                rows(source, plane, writes, |from: &[A], to: &mut [B]| dispatch(isa, Cast { from, to }));
            }));
        }
    }
}

/// Asks for a line.
#[inline]
fn ask(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and may be given any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Where the first column of a write begins.
fn column(plane: &Layout, write: &KvWrite, head: usize) -> usize {
    let steps = plane.strides();
    write.row * steps[0] + head * steps[1] + write.column * steps[2]
}

/// Calls `copy` with pieces of the tokens' vectors and their places in the plane: whole vectors where both lie
/// in one piece, else one element at a time.
fn rows<A: Element, B: Element>(
    source: &Value,
    mut plane: Open<'_>,
    writes: &[KvWrite],
    copy: impl Fn(&[A], &mut [B]),
) {
    let layout = plane.layout;
    let steps: [usize; 4] = std::array::from_fn(|axis| layout.strides()[axis]);
    let from_steps: [usize; 3] = std::array::from_fn(|axis| source.layout.strides()[axis]);
    let [heads, width] = [source.layout.shape()[1], source.layout.shape()[2]];
    let (from, to) = (source.read::<A>(), plane.write::<B>());
    let piece = if (from_steps[2], steps[3]) == (1, 1) { width.max(1) } else { 1 };
    for write in writes {
        for (i, token) in write.tokens.clone().enumerate() {
            for head in 0..heads {
                let start = token * from_steps[0] + head * from_steps[1];
                let place = column(layout, write, head) + i * steps[2];
                for k in (0..width).step_by(piece) {
                    let (start, place) = (start + k * from_steps[2], place + k * steps[3]);
                    copy(&from[start..start + piece], &mut to[place..place + piece]);
                }
            }
        }
    }
}
