//! Keys and values where they lie, and as rows of f32 that kernels read.
//!
//! Planes of floats whose heads are whole vectors can be read in place. Others are widened or dequantised, a
//! block at a time, into working space; kernels that read codes themselves would take the place of that.

use crate::device::CpuDevice;
use crate::number::Real;
use crate::operation::quantise::code;
use crate::simd::{LANES, Simd};
use crate::value::Value;
use half::{bf16, f16};
use std::borrow::Cow;
use tandem_contracts::tensor::{Affine, Dtype, Plane, Quantized, Result, RowSpan, Storage};

/// A plane with its values found; of codes, scales and biases.
pub(super) enum Stored<'a> {
    Plain(&'a Value),
    Affine(Box<[Cow<'a, Value>; 3]>, Affine),
}

impl<'a> Stored<'a> {
    /// Keys and values of a row.
    pub(super) fn both(device: &CpuDevice, row: &RowSpan<'a>) -> Result<[Self; 2]> {
        Ok([Self::new(device, row.keys)?, Self::new(device, row.values)?])
    }

    fn new(device: &CpuDevice, plane: Plane<'a>) -> Result<Self> {
        match plane {
            Plane::Plain(plane) => Ok(Self::Plain(device.value("attend", plane)?)),
            Plane::Affine(Quantized { codes, scales, biases, format }) => {
                let [codes, scales, biases] = [codes, scales, biases].map(|plane| {
                    let plane = device.value("attend", plane)?;
                    // Codes and factors of one vector must follow each other; growing planes are made that
                    // way.
                    if plane.layout.strides().last() == Some(&1) {
                        return Ok(Cow::Borrowed(plane));
                    }
                    device.contiguous("attend", plane).map(Cow::Owned)
                });
                Ok(Self::Affine(Box::new([codes?, scales?, biases?]), *format))
            }
        }
    }

    /// The same as slices, which other threads may read. Planes have four axes.
    pub(super) fn source(&self) -> Source<'_> {
        match self {
            Self::Plain(plane) => {
                let elements = match plane.dtype {
                    Dtype::F16 => Elements::F16(plane.read()),
                    Dtype::Bf16 => Elements::Bf16(plane.read()),
                    _ => Elements::F32(plane.read()),
                };
                Source { elements, strides: strides(plane), heads: plane.shape()[1], width: plane.shape()[3] }
            }
            Self::Affine(planes, format) => {
                let [codes, scales, biases] = &**planes;
                let factors = match scales.dtype {
                    Dtype::F16 => Factors::F16(scales.read(), biases.read()),
                    Dtype::Bf16 => Factors::Bf16(scales.read(), biases.read()),
                    _ => Factors::F32(scales.read(), biases.read()),
                };
                let width = scales.shape()[3] * usize::from(format.group);
                let codes_of = Codes {
                    format: *format,
                    codes: codes.read(),
                    factors,
                    scale_strides: strides(scales),
                    bias_strides: strides(biases),
                };
                let elements = Elements::Affine(codes_of);
                Source { elements, strides: strides(codes), heads: scales.shape()[1], width }
            }
        }
    }
}

fn strides(x: &Value) -> [usize; 4] {
    std::array::from_fn(|axis| x.layout.strides()[axis])
}

/// Keys or values `[rows, heads, columns, width]` as slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    elements: Elements<'a>,
    /// Of the elements, or of the codes' words.
    strides: [usize; 4],
    pub(super) heads: usize,
    pub(super) width: usize,
}

#[derive(Clone, Copy, Debug)]
enum Elements<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
    Affine(Codes<'a>),
}

#[derive(Clone, Copy, Debug)]
struct Codes<'a> {
    format: Affine,
    codes: &'a [u32],
    factors: Factors<'a>,
    scale_strides: [usize; 4],
    bias_strides: [usize; 4],
}

/// Scales and biases.
#[derive(Clone, Copy, Debug)]
enum Factors<'a> {
    F32(&'a [f32], &'a [f32]),
    F16(&'a [f16], &'a [f16]),
    Bf16(&'a [bf16], &'a [bf16]),
}

/// One vector of a plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) row: usize,
    pub(super) head: usize,
    pub(super) column: usize,
}

impl Place {
    fn at(self, strides: [usize; 4]) -> usize {
        self.row * strides[0] + self.head * strides[1] + self.column * strides[2]
    }
}

/// Floats as which kernels read keys and values.
pub(super) trait Read: Real {
    /// The elements of a plane of such floats.
    fn held<'a>(source: &Source<'a>) -> Option<&'a [Self]>;

    /// Elements that were widened, to be read as such floats: only f32 can be.
    fn widened(elements: &[f32]) -> &[Self];
}

macro_rules! reads {
    ($($float:ident $variant:ident $widened:expr;)*) => {$(
        impl Read for $float {
            #[inline(always)]
            fn held<'a>(source: &Source<'a>) -> Option<&'a [Self]> {
                match source.elements {
                    Elements::$variant(elements) => Some(elements),
                    _ => None,
                }
            }

            #[inline(always)]
            fn widened(elements: &[f32]) -> &[Self] {
                $widened(elements)
            }
        }
    )*};
}
reads! {
    f32 F32 std::convert::identity;
    f16 F16 |_| &[];
    bf16 Bf16 |_| &[];
}

impl<'a> Source<'a> {
    /// The width rounded up to whole vectors.
    pub(super) fn padded(&self) -> usize {
        self.width.next_multiple_of(LANES)
    }

    /// The dtype of the elements, if kernels can read them where they lie.
    pub(super) fn in_place(&self) -> Option<Dtype> {
        let whole = self.strides[3] == 1 && self.width.is_multiple_of(LANES);
        match self.elements {
            Elements::F32(_) => Some(Dtype::F32),
            Elements::F16(_) => Some(Dtype::F16),
            Elements::Bf16(_) => Some(Dtype::Bf16),
            Elements::Affine(_) => None,
        }
        .filter(|_| whole)
    }

    /// Where a vector begins among the elements.
    pub(super) fn start(&self, place: Place) -> usize {
        place.at(self.strides)
    }

    /// From one column to the next.
    pub(super) fn step(&self) -> usize {
        self.strides[2]
    }

    /// Writes consecutive columns from `first` on as f32, each padded with zeros.
    #[inline(always)]
    pub(super) fn widen<S: Simd>(&self, simd: S, first: Place, to: &mut [f32]) {
        let start = first.at(self.strides);
        match self.elements {
            Elements::F32(from) => self.plain(simd, &from[start..], to),
            Elements::F16(from) => self.plain(simd, &from[start..], to),
            Elements::Bf16(from) => self.plain(simd, &from[start..], to),
            Elements::Affine(codes) => {
                for (i, to) in to.chunks_exact_mut(self.padded()).enumerate() {
                    let place = Place { column: first.column + i, ..first };
                    codes.widen(&codes.codes[place.at(self.strides)..], place, &mut to[..self.width]);
                }
            }
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

impl Codes<'_> {
    /// Widths of codes are multiples of 32, so that nothing is padded.
    fn widen(&self, words: &[u32], place: Place, to: &mut [f32]) {
        let (scale, bias) = (place.at(self.scale_strides), place.at(self.bias_strides));
        match self.factors {
            Factors::F32(scales, biases) => self.groups(words, (&scales[scale..], &biases[bias..]), to),
            Factors::F16(scales, biases) => self.groups(words, (&scales[scale..], &biases[bias..]), to),
            Factors::Bf16(scales, biases) => self.groups(words, (&scales[scale..], &biases[bias..]), to),
        }
    }

    fn groups<T: Real>(&self, words: &[u32], (scales, biases): (&[T], &[T]), to: &mut [f32]) {
        let group = usize::from(self.format.group);
        let mut codes = [0; 128];
        let mut values = [T::from_i64(0); 128];
        let (codes, values) = (&mut codes[..group], &mut values[..group]);
        for (index, to) in to.chunks_exact_mut(group).enumerate() {
            code::unpack(self.format.bits, &words[index * self.format.words(group)..], codes);
            code::apply(codes, scales[index], biases[index], values);
            to.iter_mut().zip(&*values).for_each(|(to, x)| *to = x.to_f32());
        }
    }
}
