//! Planes of codes: where codes and their factors lie, and what they stand for.
//!
//! Codes of a head are one little-endian stream of bits, code `i` at bits `i * bits` and on. Each group of them has one
//! or two factors, `a` and `b`, which are widened to f32 for a block at a time; a value is then made of its code when
//! it is read ([`Meaning`]).

use super::{Held, Place, Source, strides};
use crate::device::CpuDevice;
use crate::number::Real;
use crate::simd::{LANES, LINE, Simd};
use crate::value::Value;
use half::{bf16, f16};
use std::borrow::Cow;
use tandem_contracts::tensor::attention::BLOCK;
use tandem_contracts::tensor::{Dtype, Quantized, Result, Storage, Tensor, TurboKeys, TurboValues, turbo};

/// What codes stand for.
#[derive(Clone, Copy, Debug)]
pub(in crate::operation::attention) enum Meaning {
    /// `fma(code, a, b)`.
    Affine,
    /// `(code + b) * a`; codes of 8 bits are signed.
    Shifted,
    /// `level * a`.
    Level,
}

/// A plane's codes and factors with their values found.
pub(in crate::operation::attention) struct Coded<'a> {
    codes: Cow<'a, Value>,
    factors: Vec<Cow<'a, Value>>,
    /// Levels and signs of TurboQuant's values.
    book: Option<[Cow<'a, Value>; 2]>,
    meaning: Meaning,
    bits: usize,
    group: usize,
}

impl<'a> Coded<'a> {
    pub(super) fn affine(device: &CpuDevice, plane: &'a Quantized) -> Result<Self> {
        Ok(Self {
            codes: dense(device, &plane.codes)?,
            factors: vec![dense(device, &plane.scales)?, dense(device, &plane.biases)?],
            book: None,
            meaning: Meaning::Affine,
            bits: plane.format.bits.into(),
            group: plane.format.group.into(),
        })
    }

    pub(super) fn turbo_keys(device: &CpuDevice, plane: &'a TurboKeys) -> Result<Self> {
        Ok(Self {
            codes: dense(device, &plane.codes)?,
            factors: vec![dense(device, &plane.scales)?, dense(device, &plane.zeros)?],
            book: None,
            meaning: Meaning::Shifted,
            bits: plane.bits.into(),
            group: turbo::GROUP,
        })
    }

    pub(super) fn turbo_values(device: &CpuDevice, plane: &'a TurboValues) -> Result<Self> {
        Ok(Self {
            codes: dense(device, &plane.codes)?,
            factors: vec![dense(device, &plane.scales)?],
            book: Some([dense(device, &plane.book.levels)?, dense(device, &plane.book.signs)?]),
            meaning: Meaning::Level,
            bits: plane.book.bits.into(),
            group: turbo::GROUP,
        })
    }

    pub(super) fn source(&self) -> Source<'_> {
        let size = self.codes.dtype.size();
        let [levels, signs] = [0, 1].map(|i| self.book.as_ref().map(|book| book[i].read()));
        let codes = Codes {
            bytes: &self.codes.buffer.of()[self.codes.layout.offset() * size..],
            factors: [self.factors.first(), self.factors.get(1)].map(|factor| factor.map(|x| Factor::new(x))),
            meaning: self.meaning,
            bits: self.bits,
            group: self.group,
            levels,
            signs,
            book: book(self.bits, levels),
            shifts: shifts(self.bits),
            table: [0; LINE],
            offset: 0,
            unit: 1.0,
        }
        .counted();
        let shape = self.factors[0].shape();
        Source {
            held: Held::Codes(Box::new(codes)),
            strides: strides(&self.codes).map(|stride| stride * size),
            heads: shape[1],
            width: shape[3] * self.group,
            fast: false,
        }
    }
}

fn book(bits: usize, levels: Option<&[f32]>) -> [f32; LANES] {
    let mut book = [0.0; LANES];
    for (i, entry) in book.iter_mut().enumerate() {
        let code = i % (1 << bits);
        *entry = levels.map_or(code as f32, |levels| levels[code]);
    }
    book
}

/// The second word begins `2 * bits - 4` bytes after the first. Only for codes of 2 to 4 bits.
fn shifts(bits: usize) -> [u32; LANES] {
    let mut shifts = [0; LANES];
    for (i, shift) in shifts.iter_mut().enumerate().filter(|_| bits <= 4) {
        let before = if i < 8 { 0 } else { 16 * bits - 32 };
        *shift = (i * bits - before) as u32;
    }
    shifts
}

/// Codes and factors of one vector must follow each other; growing planes are made that way.
fn dense<'a>(device: &CpuDevice, plane: &'a Tensor) -> Result<Cow<'a, Value>> {
    let plane = device.value("attend", plane)?;
    if plane.layout.strides().last() == Some(&1) {
        return Ok(Cow::Borrowed(plane));
    }
    device.contiguous("attend", plane).map(Cow::Owned)
}

/// The same as slices.
#[derive(Clone, Copy, Debug)]
pub(in crate::operation::attention) struct Codes<'a> {
    pub(in crate::operation::attention) bytes: &'a [u8],
    factors: [Option<Factor<'a>>; 2],
    pub(in crate::operation::attention) meaning: Meaning,
    pub(in crate::operation::attention) bits: usize,
    /// Elements that share factors, 32 times a power of two.
    pub(in crate::operation::attention) group: usize,
    /// What codes stand for before factors, if not for themselves.
    levels: Option<&'a [f32]>,
    pub(in crate::operation::attention) signs: Option<&'a [f32]>,
    /// What codes of up to 4 bits stand for before factors; codes of fewer bits again and again.
    pub(in crate::operation::attention) book: [f32; LANES],
    /// What codes stand for as bytes; those of 8 bits for themselves.
    pub(in crate::operation::attention) table: [u8; LINE],
    /// What is to be taken from a byte, so that its product with the unit is what its code stands for.
    pub(in crate::operation::attention) offset: i32,
    pub(in crate::operation::attention) unit: f32,
    /// How far sixteen codes lie in their first four bytes, and in their last four.
    pub(in crate::operation::attention) shifts: [u32; LANES],
}

/// One factor for each group, `[rows, heads, columns, groups]`.
#[derive(Clone, Copy, Debug)]
struct Factor<'a> {
    elements: Elements<'a>,
    strides: [usize; 4],
}

#[derive(Clone, Copy, Debug)]
enum Elements<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
}

impl Codes<'_> {
    /// With what they are as bytes. Levels become whole numbers of the largest one's 127th part.
    fn counted(mut self) -> Self {
        let whole = |x: f32| x.round_ties_even().clamp(-127.0, 127.0) as i32;
        match self.levels {
            Some(levels) => {
                self.unit = levels.iter().fold(0.0, |most: f32, level| most.max(level.abs())) / 127.0;
                self.offset = 128;
                for (to, level) in self.table.iter_mut().zip(levels) {
                    *to = (whole(level / self.unit) + self.offset) as u8;
                }
            }
            None => {
                self.offset = if self.is_signed() { 128 } else { 0 };
                self.table = std::array::from_fn(|code| code as u8);
            }
        }
        self
    }

    /// Whether codes are signed bytes.
    pub(in crate::operation::attention) fn is_signed(&self) -> bool {
        matches!(self.meaning, Meaning::Shifted) && self.bits == 8
    }

    /// Whether they may be met as integers: not where there are so many levels that bytes would blur them.
    pub(in crate::operation::attention) fn is_integral(&self) -> bool {
        self.levels.is_none() || self.bits <= 4
    }

    /// Groups of a width.
    pub(in crate::operation::attention) fn groups(&self, width: usize) -> usize {
        width / self.group
    }

    /// Whether there is such a factor.
    pub(in crate::operation::attention) fn has(&self, factor: usize) -> bool {
        self.factors[factor].is_some()
    }

    /// Widens one of the factors of consecutive columns, which are these places of a block, `[BLOCK, groups]`.
    #[inline(always)]
    pub(in crate::operation::attention) fn widen<S: Simd>(
        &self,
        simd: S,
        factor: usize,
        (first, place, count): (Place, usize, usize),
        space: &mut [f32],
    ) {
        let groups = space.len() / BLOCK;
        if let Some(factor) = &self.factors[factor] {
            factor.widen(simd, first, groups, &mut space[place * groups..(place + count) * groups]);
        }
    }

    /// Whether kernels have loops that read such codes.
    pub(in crate::operation::attention) fn is_narrow(&self) -> bool {
        // Levels of 8 bits fit no vector.
        matches!(self.bits, 2..=4) || self.bits == 8 && self.levels.is_none()
    }

    /// What one code stands for before factors.
    pub(in crate::operation::attention) fn entry(&self, code: usize) -> f32 {
        self.levels.map_or(code as f32, |levels| levels[code])
    }

    /// Floats that a block's factors take, `[2, BLOCK, groups]`.
    pub(in crate::operation::attention) fn space(&self, width: usize) -> usize {
        2 * BLOCK * (width / self.group)
    }

    /// Widens the factors of consecutive columns, which are these places of a block.
    #[inline(always)]
    pub(in crate::operation::attention) fn stage<S: Simd>(
        &self,
        simd: S,
        (first, place, count): (Place, usize, usize),
        space: &mut [f32],
    ) {
        let groups = space.len() / (2 * BLOCK);
        for (factor, space) in self.factors.iter().zip(space.chunks_exact_mut(BLOCK * groups)) {
            if let Some(factor) = factor {
                factor.widen(simd, first, groups, &mut space[place * groups..(place + count) * groups]);
            }
        }
    }
}

impl<'a> Factor<'a> {
    fn new(x: &'a Value) -> Self {
        let elements = match x.dtype {
            Dtype::F16 => Elements::F16(x.read()),
            Dtype::Bf16 => Elements::Bf16(x.read()),
            _ => Elements::F32(x.read()),
        };
        Self { elements, strides: strides(x) }
    }

    #[inline(always)]
    fn widen<S: Simd>(&self, simd: S, first: Place, groups: usize, to: &mut [f32]) {
        let start = first.at(self.strides);
        match self.elements {
            Elements::F32(from) => self.plain(simd, &from[start..], groups, to),
            Elements::F16(from) => self.plain(simd, &from[start..], groups, to),
            Elements::Bf16(from) => self.plain(simd, &from[start..], groups, to),
        }
    }

    #[inline(always)]
    fn plain<S: Simd, T: Real>(&self, simd: S, from: &[T], groups: usize, to: &mut [f32]) {
        if self.strides[2] != groups {
            for (i, to) in to.chunks_exact_mut(groups).enumerate() {
                for (to, x) in to.iter_mut().zip(&from[i * self.strides[2]..]) {
                    *to = x.to_f32();
                }
            }
            return;
        }
        let (vectors, rest) = from[..to.len()].as_chunks::<LANES>();
        let (to, to_rest) = to.as_chunks_mut::<LANES>();
        for (from, to) in vectors.iter().zip(to) {
            simd.store(to, T::load(simd, from));
        }
        for (from, to) in rest.iter().zip(to_rest) {
            *to = from.to_f32();
        }
    }
}
