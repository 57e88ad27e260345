//! Keys and values where they lie.
//!
//! Planes of floats whose heads are whole vectors can be read in place, and so can codes of few bits; see
//! [`code`]. Other floats are widened, a block at a time, into working space.

pub(super) mod code;

use super::block::Soon;
use crate::device::CpuDevice;
use crate::number::Real;
use crate::simd::{LANES, Simd};
use crate::value::Value;
use code::{Coded, Codes};
use half::{bf16, f16};
use tandem_contracts::tensor::{Dtype, Plane, Precision, Result, RowSpan, Storage};

/// A plane with its values found.
pub(super) enum Stored<'a> {
    Plain(&'a Value),
    Coded(Box<Coded<'a>>),
}

impl<'a> Stored<'a> {
    /// Keys and values of a row.
    pub(super) fn both(device: &CpuDevice, row: &RowSpan<'a>) -> Result<[Self; 2]> {
        Ok([Self::new(device, row.keys)?, Self::new(device, row.values)?])
    }

    fn new(device: &CpuDevice, plane: Plane<'a>) -> Result<Self> {
        Ok(match plane {
            Plane::Plain(plane) => Self::Plain(device.value("attend", plane)?),
            Plane::Affine(plane) => Self::Coded(Box::new(Coded::affine(device, plane)?)),
            Plane::TurboKeys(plane) => Self::Coded(Box::new(Coded::turbo_keys(device, plane)?)),
            Plane::TurboValues(plane) => Self::Coded(Box::new(Coded::turbo_values(device, plane)?)),
        })
    }

    /// The same as slices, which other threads may read. Planes have four axes.
    pub(super) fn source(&self, precision: Precision) -> Source<'_> {
        match self {
            Self::Plain(plane) => {
                let held = match plane.dtype {
                    Dtype::F16 => Held::F16(plane.read()),
                    Dtype::Bf16 => Held::Bf16(plane.read()),
                    _ => Held::F32(plane.read()),
                };
                let [heads, width] = [1, 3].map(|axis| plane.shape()[axis]);
                Source { held, strides: strides(plane), heads, width, fast: false }
            }
            Self::Coded(plane) => Source { fast: precision == Precision::Fast, ..plane.source() },
        }
    }
}

fn strides(x: &Value) -> [usize; 4] {
    let strides = x.layout.strides();
    [strides[0], strides[1], strides[2], strides[3]]
}

/// Keys or values `[rows, heads, columns, width]` as slices.
#[derive(Clone, Debug)]
pub(super) struct Source<'a> {
    pub(super) held: Held<'a>,
    /// In elements, or in bytes of codes.
    pub(super) strides: [usize; 4],
    pub(super) heads: usize,
    pub(super) width: usize,
    /// Whether codes are met as integers where they can be.
    pub(super) fast: bool,
}

/// What a plane holds, from its first element on.
#[derive(Clone, Debug)]
pub(super) enum Held<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
    Codes(Box<Codes<'a>>),
}

/// One vector of a plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) row: usize,
    pub(super) head: usize,
    pub(super) column: usize,
}

impl Place {
    pub(super) fn at(self, strides: [usize; 4]) -> usize {
        self.row * strides[0] + self.head * strides[1] + self.column * strides[2]
    }
}

impl<'a> Source<'a> {
    /// The width rounded up to whole vectors.
    pub(super) fn padded(&self) -> usize {
        self.width.next_multiple_of(LANES)
    }

    /// Whether kernels can read the plane where it lies.
    pub(super) fn is_whole(&self) -> bool {
        match &self.held {
            Held::Codes(codes) => codes.is_narrow(),
            _ => self.strides[3] == 1 && self.width.is_multiple_of(LANES),
        }
    }

    pub(super) fn codes(&self) -> Option<&Codes<'a>> {
        match &self.held {
            Held::Codes(codes) => Some(codes),
            _ => None,
        }
    }

    /// The codes if they are met as integers.
    pub(super) fn integral(&self) -> Option<&Codes<'a>> {
        self.codes().filter(|codes| self.fast && codes.is_integral())
    }

    /// What turns a mix of rotated values back.
    pub(super) fn signs(&self) -> Option<&'a [f32]> {
        self.codes().and_then(|codes| codes.signs)
    }

    /// Where a vector begins.
    pub(super) fn start(&self, place: Place) -> usize {
        place.at(self.strides)
    }

    /// Vectors from one on, to be asked for.
    #[inline(always)]
    pub(super) fn soon(&self, first: Place) -> Soon {
        let start = self.start(first);
        match &self.held {
            Held::F32(from) => Soon::new(&from[start..], self.step(), self.width),
            Held::F16(from) => Soon::new(&from[start..], self.step(), self.width),
            Held::Bf16(from) => Soon::new(&from[start..], self.step(), self.width),
            Held::Codes(codes) => Soon::new(&codes.bytes[start..], self.step(), self.width * codes.bits / 8),
        }
    }

    /// From one column to the next.
    pub(super) fn step(&self) -> usize {
        self.strides[2]
    }

    /// Writes consecutive columns of floats from `first` on as f32, each padded with zeros.
    #[inline(always)]
    pub(super) fn widen<S: Simd>(&self, simd: S, first: Place, to: &mut [f32]) {
        let start = self.start(first);
        match self.held {
            Held::F32(from) => self.plain(simd, &from[start..], to),
            Held::F16(from) => self.plain(simd, &from[start..], to),
            Held::Bf16(from) => self.plain(simd, &from[start..], to),
            // Codes know how to widen themselves.
            Held::Codes(_) => {}
        }
    }

    #[inline(always)]
    fn plain<S: Simd, T: Real>(&self, simd: S, from: &[T], to: &mut [f32]) {
        let [_, _, step, within] = self.strides;
        if within != 1 {
            for (i, to) in to.chunks_exact_mut(self.padded()).enumerate() {
                let (to, rest) = to.split_at_mut(self.width);
                to.iter_mut().enumerate().for_each(|(k, to)| *to = from[i * step + k * within].to_f32());
                rest.fill(0.0);
            }
        } else if step == self.width && self.width == self.padded() {
            // Columns follow each other, as they do in a plane of one row's own.
            let count = to.len();
            widen_row(simd, &from[..count], to);
        } else {
            for (i, to) in to.chunks_exact_mut(self.padded()).enumerate() {
                widen_row(simd, &from[i * step..][..self.width], to);
            }
        }
    }
}

/// Widens a row and pads it with zeros.
#[inline(always)]
fn widen_row<S: Simd, T: Real>(simd: S, from: &[T], to: &mut [f32]) {
    let (vectors, rest) = from.as_chunks::<LANES>();
    let (to, _) = to.as_chunks_mut::<LANES>();
    for (from, to) in vectors.iter().zip(&mut *to) {
        simd.store(to, T::load(simd, from));
    }
    if let Some(to) = to.get_mut(vectors.len()) {
        simd.store(to, T::load_part(simd, rest));
    }
}
