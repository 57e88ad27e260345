//! Codes as rows of floats: each vector of sixteen is made of its codes and their group's factors when it is read.
//!
//! Bytes become numbers by an instruction. For 2, 3 and 4 bits all values that a group can have are one vector, in
//! which the codes look theirs up. Either way a value has the one arithmetic of its [`Meaning`].
//!
//! [`Meaning`]: super::super::plane::code::Meaning

use super::super::plane::code::Codes;
use super::rows::Rows;
use crate::simd::{LANES, Simd};
use std::marker::PhantomData;
use std::ops::Range;
use tandem_contracts::tensor::attention::BLOCK;

/// How sixteen entries of the codebook become values.
pub(super) trait Decode: Copy {
    /// Sixteen codes of 8 bits as entries of the codebook, where an instruction can do it.
    #[inline(always)]
    fn bytes<S: Simd>(simd: S, from: &[u8; LANES]) -> S::Lanes {
        simd.load_u8(from)
    }

    fn values<S: Simd>(simd: S, entries: S::Lanes, a: f32, b: f32) -> S::Lanes;
}

/// `fma(code, a, b)`.
#[derive(Clone, Copy)]
pub(super) struct Affine;

impl Decode for Affine {
    #[inline(always)]
    fn values<S: Simd>(simd: S, entries: S::Lanes, a: f32, b: f32) -> S::Lanes {
        simd.fma(entries, simd.splat(a), simd.splat(b))
    }
}

/// `(code + b) * a`, codes of 8 bits signed.
#[derive(Clone, Copy)]
pub(super) struct Shifted;

impl Decode for Shifted {
    #[inline(always)]
    fn bytes<S: Simd>(simd: S, from: &[u8; LANES]) -> S::Lanes {
        simd.load_i8(from)
    }

    #[inline(always)]
    fn values<S: Simd>(simd: S, entries: S::Lanes, a: f32, b: f32) -> S::Lanes {
        simd.mul(simd.add(entries, simd.splat(b)), simd.splat(a))
    }
}

/// `level * a`.
#[derive(Clone, Copy)]
pub(super) struct Level;

impl Decode for Level {
    #[inline(always)]
    fn values<S: Simd>(simd: S, entries: S::Lanes, a: f32, _: f32) -> S::Lanes {
        simd.mul(entries, simd.splat(a))
    }
}

/// Codes of consecutive places with their factors.
///
/// Invariant: the codes of all rows lie within the bytes, and there is an `a` and a `b` for each group of each row.
#[derive(Clone, Copy)]
pub(super) struct CodeRows<'a> {
    bytes: &'a [u8],
    step: usize,
    count: usize,
    codes: &'a Codes<'a>,
    a: &'a [f32],
    b: &'a [f32],
    groups: usize,
    /// A vector's index shifted so is its group's.
    shift: u32,
}

impl<'a> CodeRows<'a> {
    /// Rows of `width` codes at even steps, the first at the first byte; factors are those of a block, of which the
    /// rows are some places.
    ///
    /// # Panics
    /// The rows do not lie within the bytes, or are no places of a block.
    #[inline(always)]
    pub(super) fn new(
        (bytes, step): (&'a [u8], usize),
        codes: &'a Codes<'a>,
        (factors, width): (&'a [f32], usize),
        places: Range<usize>,
    ) -> Self {
        let (groups, count) = (width / codes.group, places.len());
        assert!(
            count > 0 && places.end <= BLOCK && factors.len() == 2 * BLOCK * groups,
            "no places of a block"
        );
        assert!((count - 1) * step + width * codes.bits / 8 <= bytes.len(), "rows outside their plane");
        let (a, b) = factors.split_at(BLOCK * groups);
        let (a, b) = (&a[places.start * groups..], &b[places.start * groups..]);
        Self { bytes, step, count, codes, a, b, groups, shift: (codes.group / LANES).trailing_zeros() }
    }

    /// Where sixteen codes begin.
    ///
    /// # Safety
    /// As [`Rows::vector`].
    #[inline(always)]
    unsafe fn start(&self, row: usize, vector: usize) -> *const u8 {
        debug_assert!(row < self.count && vector >> self.shift < self.groups);
        // SAFETY: the row and its codes lie within the bytes (the invariant), the vector within those.
        unsafe { self.bytes.as_ptr().add(row * self.step + vector * 2 * self.codes.bits) }
    }

    /// The factors of a vector.
    ///
    /// # Safety
    /// As [`Rows::vector`].
    #[inline(always)]
    unsafe fn factors(&self, row: usize, vector: usize) -> (f32, f32) {
        let group = row * self.groups + (vector >> self.shift);
        // SAFETY: each group of each row has both (the invariant).
        unsafe { (*self.a.get_unchecked(group), *self.b.get_unchecked(group)) }
    }
}

macro_rules! kinds {
    ($($(#[$documentation:meta])* $name:ident |$self:ident, $simd:ident, $row:ident, $vector:ident| $body:block)*) => {$(
        $(#[$documentation])*
        #[derive(Clone, Copy)]
        pub(super) struct $name<'a, D>(CodeRows<'a>, PhantomData<D>);

        impl<'a, D> From<CodeRows<'a>> for $name<'a, D> {
            #[inline(always)]
            fn from(rows: CodeRows<'a>) -> Self {
                Self(rows, PhantomData)
            }
        }

        impl<D: Decode> Rows for $name<'_, D> {
            #[inline(always)]
            fn count(&self) -> usize {
                self.0.count
            }

            #[inline(always)]
            unsafe fn vector<S: Simd>(&$self, $simd: S, $row: usize, $vector: usize) -> S::Lanes $body
        }
    )*};
}
kinds! {
    /// Codes of 8 bits.
    ByteRows |self, simd, row, vector| {
        // SAFETY: the caller's; sixteen codes are sixteen bytes.
        let (codes, (a, b)) =
            unsafe { (&*self.0.start(row, vector).cast::<[u8; LANES]>(), self.0.factors(row, vector)) };
        D::values(simd, D::bytes(simd, codes), a, b)
    }

    /// Codes of 2, 3 or 4 bits.
    TableRows |self, simd, row, vector| {
        let second = 2 * self.0.codes.bits - size_of::<u32>();
        // SAFETY: the caller's; sixteen codes are twice their bits in bytes, of which these are the first and the last
        // four.
        let (words, (a, b)) = unsafe {
            let start = self.0.start(row, vector);
            let first = start.cast::<u32>().read_unaligned();
            let last = start.add(second).cast::<u32>().read_unaligned();
            ([u32::from_le(first), u32::from_le(last)], self.0.factors(row, vector))
        };
        let table = D::values(simd, simd.load(&self.0.codes.book), a, b);
        simd.look_up(table, words, &self.0.codes.shifts)
    }

    /// Codes of any number of bits, one by one.
    LooseRows |self, simd, row, vector| {
        let bits = self.0.codes.bits;
        // SAFETY: the caller's; sixteen codes are twice their bits in bytes.
        let (bytes, (a, b)) = unsafe {
            (std::slice::from_raw_parts(self.0.start(row, vector), 2 * bits), self.0.factors(row, vector))
        };
        let mut entries = [0.0; LANES];
        for (i, entry) in entries.iter_mut().enumerate() {
            let (first, last) = (i * bits / 8, (i * bits + bits - 1) / 8);
            let word = u16::from_le_bytes([bytes[first], bytes[last]]);
            *entry = self.0.codes.entry(usize::from(word >> (i * bits % 8)) & ((1 << bits) - 1));
        }
        D::values(simd, simd.load(&entries), a, b)
    }
}
