//! A block's keys or values as kernels read them: in place, or widened into working space.
//!
//! What they are is asked once for a block ([`Held::meet`]), so that loops know it.

use super::super::plane::code::{Codes, Meaning};
use super::super::plane::{self, Source};
use super::super::unit::{Stripe, Unit};
use super::code::{Affine, ByteRows, CodeRows, Level, LooseRows, Shifted, TableRows};
use super::integral::{self, Integral, Side};
use super::rows::{FloatRows, Rows, Soon};
use super::{CHUNK, MANY};
use crate::number::Real;
use crate::simd::{Kernel, LANES, Simd};
use half::{bf16, f16};
use std::marker::PhantomData;
use std::ops::Range;
use tandem_contracts::tensor::attention::BLOCK;

/// Keys or values of a block, of one kind.
pub(super) trait Plane {
    type Rows: Rows;

    /// Some places of a stripe.
    fn rows(&self, unit: &Unit<'_>, stripe: &Stripe, places: Range<usize>) -> Self::Rows;
}

/// Something to do with a plane of whatever kind. What is known of it beforehand keeps loops from being compiled for
/// nothing.
pub(super) trait Reader {
    /// Whether the plane may be one of keys.
    const KEYS: bool;
    /// Whether the plane may be one of values.
    const VALUES: bool;

    fn read<P: Plane>(self, plane: &P);
}

/// Keys or values of a block, of any kind.
pub(super) enum Held<'a> {
    F32(Floats<'a, f32>),
    F16(Floats<'a, f16>),
    Bf16(Floats<'a, bf16>),
    Codes(Coded<'a>),
    Integral(Integral<'a>),
}

/// Floats that a block's keys or values take in working space.
pub(in crate::operation::attention) fn staged(unit: &Unit<'_>, source: &Source<'_>) -> usize {
    let widened = BLOCK * source.padded();
    if let Some(codes) = source.integral() {
        return integral::space(source, codes);
    }
    match source.codes() {
        Some(codes) => codes.space(source.width) + widened,
        None if in_place(unit, source) => 0,
        None => widened,
    }
}

/// Whether floats are read where they lie.
fn in_place(unit: &Unit<'_>, source: &Source<'_>) -> bool {
    source.is_whole() && (unit.vectors() <= MANY || matches!(source.held, plane::Held::F32(_)))
}

impl<'a> Held<'a> {
    /// Widens what is not read in place. The working space is as large as [`staged`] says.
    #[inline(always)]
    pub(super) fn new<S: Simd>(
        simd: S,
        unit: &Unit<'_>,
        (source, side): (&'a Source<'a>, Side),
        (block, space): (usize, &'a mut [f32]),
        soon: Soon,
    ) -> Self {
        if let Some(codes) = source.integral() {
            let integral = Integral::new(simd, unit, (source, codes), (block, space), side);
            return Self::Integral(integral.before(soon));
        }
        match source.held {
            plane::Held::Codes(ref codes) => Self::coded(simd, unit, (source, codes), (block, space)),
            _ if !in_place(unit, source) => {
                let width = source.padded();
                for stripe in unit.stripes(block) {
                    let places = stripe.places.start * width..stripe.places.end * width;
                    source.widen(simd, unit.place(&stripe, 0), &mut space[places]);
                }
                Self::F32(Floats::widened(space, width))
            }
            plane::Held::F32(elements) => Self::F32(Floats::lying(elements, source)),
            plane::Held::F16(elements) => Self::F16(Floats::lying(elements, source)),
            plane::Held::Bf16(elements) => Self::Bf16(Floats::lying(elements, source)),
        }
    }

    /// Codes are read as they are by one chunk of vectors. They are widened where several would each unpack them, and
    /// where there are few registers, because vectors then take turns as well.
    #[inline(always)]
    fn coded<S: Simd>(
        simd: S,
        unit: &Unit<'_>,
        (source, codes): (&'a Source<'a>, &'a Codes<'a>),
        (block, space): (usize, &'a mut [f32]),
    ) -> Self {
        let (factors, widened) = space.split_at_mut(codes.space(source.width));
        for stripe in unit.stripes(block) {
            let place = (unit.place(&stripe, 0), stripe.places.start, stripe.places.len());
            codes.stage(simd, place, factors);
        }
        let plane = Coded { source, codes, factors };
        if S::WIDE && codes.is_narrow() && unit.vectors() <= CHUNK {
            return Self::Codes(plane);
        }
        plane.meet(simd, Widen { simd, unit, block, to: &mut *widened });
        Self::F32(Floats::widened(widened, source.width))
    }

    /// Shows the plane, as what it is, to a reader.
    #[inline(always)]
    pub(super) fn meet<S: Simd, R: Reader>(&self, simd: S, reader: R) {
        match self {
            Self::F32(plane) => simd.apart(Meet { plane, reader }),
            Self::F16(plane) => simd.apart(Meet { plane, reader }),
            Self::Bf16(plane) => simd.apart(Meet { plane, reader }),
            Self::Codes(plane) if S::WIDE => plane.narrow(simd, reader),
            // Integers have loops of their own.
            Self::Codes(_) | Self::Integral(_) => {}
        }
    }

    /// The vectors of a stripe from `place` on, to be asked for while something else is read; nothing if they were
    /// widened, and so read, already.
    #[inline(always)]
    pub(super) fn soon(&self, unit: &Unit<'_>, stripe: &Stripe, place: usize) -> Soon {
        match self {
            Self::F32(plane) => plane.soon(unit, stripe, place),
            Self::F16(plane) => plane.soon(unit, stripe, place),
            Self::Bf16(plane) => plane.soon(unit, stripe, place),
            Self::Codes(plane) => {
                let size = plane.source.width * plane.codes.bits / 8;
                Soon::new(plane.from(unit, stripe, place), plane.source.step(), size)
            }
            Self::Integral(_) => Soon::NONE,
        }
    }
}

/// A plane and its reader.
struct Meet<'a, P, R> {
    plane: &'a P,
    reader: R,
}

impl<P: Plane, R: Reader> Kernel for Meet<'_, P, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.reader.read(self.plane);
    }
}

/// Floats in place or widened.
pub(super) struct Floats<'a, T> {
    elements: &'a [T],
    /// From one place to the next.
    step: usize,
    /// `[padded width]` of each place is read.
    width: usize,
    /// What the elements belong to if they are read in place; else places count from the block's first.
    source: Option<&'a Source<'a>>,
}

impl<'a, T: Real> Floats<'a, T> {
    #[inline(always)]
    fn lying(elements: &'a [T], source: &'a Source<'a>) -> Self {
        Self { elements, step: source.step(), width: source.width, source: Some(source) }
    }

    /// The vectors of a stripe from `place` on.
    #[inline(always)]
    pub(super) fn from(&self, unit: &Unit<'_>, stripe: &Stripe, place: usize) -> &'a [T] {
        let start = match self.source {
            Some(source) => source.start(unit.place(stripe, place - stripe.places.start)),
            None => place * self.step,
        };
        &self.elements[start..]
    }

    #[inline(always)]
    fn soon(&self, unit: &Unit<'_>, stripe: &Stripe, place: usize) -> Soon {
        match self.source {
            Some(_) => Soon::new(self.from(unit, stripe, place), self.step, self.width),
            None => Soon::NONE,
        }
    }
}

impl<'a> Floats<'a, f32> {
    #[inline(always)]
    fn widened(elements: &'a [f32], width: usize) -> Self {
        Self { elements, step: width, width, source: None }
    }
}

impl<'a, T: Real> Plane for Floats<'a, T> {
    type Rows = FloatRows<'a, T>;

    #[inline(always)]
    fn rows(&self, unit: &Unit<'_>, stripe: &Stripe, places: Range<usize>) -> FloatRows<'a, T> {
        FloatRows::new(self.from(unit, stripe, places.start), self.step, places.len(), self.width)
    }
}

/// Codes in place, and their factors by place of the block.
#[derive(Clone, Copy)]
pub(super) struct Coded<'a> {
    source: &'a Source<'a>,
    codes: &'a Codes<'a>,
    factors: &'a [f32],
}

impl<'a> Coded<'a> {
    #[inline(always)]
    fn from(&self, unit: &Unit<'_>, stripe: &Stripe, place: usize) -> &'a [u8] {
        &self.codes.bytes[self.source.start(unit.place(stripe, place - stripe.places.start))..]
    }

    /// Codes that are read as they are.
    #[inline(always)]
    fn narrow<S: Simd, R: Reader>(&self, simd: S, reader: R) {
        match self.codes.meaning {
            Meaning::Affine if self.codes.bits == 8 => {
                simd.apart(Meet { plane: &As::<ByteRows<'a, Affine>>::new(*self), reader })
            }
            Meaning::Affine => simd.apart(Meet { plane: &As::<TableRows<'a, Affine>>::new(*self), reader }),
            Meaning::Shifted if !R::KEYS => {}
            Meaning::Shifted if self.codes.bits == 8 => {
                simd.apart(Meet { plane: &As::<ByteRows<'a, Shifted>>::new(*self), reader })
            }
            Meaning::Shifted => simd.apart(Meet { plane: &As::<TableRows<'a, Shifted>>::new(*self), reader }),
            Meaning::Level if R::VALUES => {
                simd.apart(Meet { plane: &As::<TableRows<'a, Level>>::new(*self), reader })
            }
            Meaning::Level => {}
        }
    }

    /// Codes of any number of bits.
    #[inline(always)]
    fn meet<S: Simd, R: Reader>(&self, simd: S, reader: R) {
        match self.codes.meaning {
            _ if self.codes.is_narrow() => self.narrow(simd, reader),
            Meaning::Affine => simd.apart(Meet { plane: &As::<LooseRows<'a, Affine>>::new(*self), reader }),
            Meaning::Shifted => simd.apart(Meet { plane: &As::<LooseRows<'a, Shifted>>::new(*self), reader }),
            Meaning::Level => simd.apart(Meet { plane: &As::<LooseRows<'a, Level>>::new(*self), reader }),
        }
    }
}

/// Codes read as rows of some kind.
struct As<'a, R> {
    plane: Coded<'a>,
    rows: PhantomData<R>,
}

impl<'a, R> As<'a, R> {
    #[inline(always)]
    fn new(plane: Coded<'a>) -> Self {
        Self { plane, rows: PhantomData }
    }
}

impl<'a, R: Rows + From<CodeRows<'a>>> Plane for As<'a, R> {
    type Rows = R;

    #[inline(always)]
    fn rows(&self, unit: &Unit<'_>, stripe: &Stripe, places: Range<usize>) -> R {
        let Coded { source, codes, factors } = self.plane;
        let bytes = self.plane.from(unit, stripe, places.start);
        CodeRows::new((bytes, source.step()), codes, (factors, source.width), places).into()
    }
}

/// Writes a block's codes as f32, `[BLOCK, width]`.
struct Widen<'a, S> {
    simd: S,
    unit: &'a Unit<'a>,
    block: usize,
    to: &'a mut [f32],
}

impl<S: Simd> Reader for Widen<'_, S> {
    const KEYS: bool = true;
    const VALUES: bool = true;

    #[inline(always)]
    fn read<P: Plane>(self, plane: &P) {
        let vectors = self.to.len() / (BLOCK * LANES);
        let to = self.to.as_chunks_mut::<LANES>().0;
        for stripe in self.unit.stripes(self.block) {
            let rows = plane.rows(self.unit, &stripe, stripe.places.clone());
            let to = to[stripe.places.start * vectors..].chunks_exact_mut(vectors);
            for (row, to) in to.enumerate().take(rows.count()) {
                for (vector, to) in to.iter_mut().enumerate() {
                    // SAFETY: the row is below the count, and rows are as wide as the plane.
                    self.simd.store(to, unsafe { rows.vector(self.simd, row, vector) });
                }
            }
        }
    }
}
