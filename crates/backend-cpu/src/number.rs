//! Host types behind dtypes, and how one turns into another.
//!
//! Operations match on the dtype once, with the macros at the end, and run generic code inside.

use crate::memory::Element;
use crate::simd::{LANES, Simd};
use half::{bf16, f16};
use tandem_contracts::tensor::{Dtype, Scalar};

/// An element of a tensor.
pub(crate) trait Number: Element + PartialOrd {
    /// Its dtype.
    const DTYPE: Dtype;

    /// Widened or rounded to f32.
    fn to_f32(self) -> f32;

    /// Exact for integers; floats truncate.
    fn to_i64(self) -> i64;

    /// Rounded to nearest even; integers truncate towards zero and saturate, NaN becomes 0.
    fn from_f32(x: f32) -> Self;

    /// Integers wrap, floats round.
    fn from_i64(x: i64) -> Self;

    /// The value of a scalar.
    fn from_scalar(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Float(x) => Self::from_f32(x),
            Scalar::Int(x) => Self::from_i64(i64::from(x)),
            Scalar::Bool(x) => Self::from_i64(i64::from(x)),
        }
    }
}

/// Converts as [`tandem_contracts::tensor::Backend::cast`] says.
#[inline(always)]
pub(crate) fn convert<A: Number, B: Number>(x: A) -> B {
    if A::DTYPE.is_float() { B::from_f32(x.to_f32()) } else { B::from_i64(x.to_i64()) }
}

/// A truth value: 0 or 1 wherever this adapter writes it, true where not 0 wherever it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct Truth(pub(crate) u8);

// SAFETY: one byte without padding, of which every pattern is allowed.
unsafe impl Element for Truth {}

impl From<bool> for Truth {
    fn from(x: bool) -> Self {
        Self(u8::from(x))
    }
}

impl Truth {
    pub(crate) fn holds(self) -> bool {
        self.0 != 0
    }
}

impl Number for Truth {
    const DTYPE: Dtype = Dtype::Bool;

    fn to_f32(self) -> f32 {
        f32::from(u8::from(self.holds()))
    }

    fn to_i64(self) -> i64 {
        i64::from(self.holds())
    }

    fn from_f32(x: f32) -> Self {
        // NaN is not zero.
        (x != 0.0).into()
    }

    fn from_i64(x: i64) -> Self {
        (x != 0).into()
    }
}

macro_rules! numbers {
    ($($integer:ident $dtype:ident),*) => {$(
        impl Number for $integer {
            const DTYPE: Dtype = Dtype::$dtype;

            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }

            #[inline(always)]
            fn to_i64(self) -> i64 {
                i64::from(self)
            }

            #[inline(always)]
            fn from_f32(x: f32) -> Self {
                x as Self
            }

            #[inline(always)]
            fn from_i64(x: i64) -> Self {
                x as Self
            }
        }
    )*};
}
numbers!(i32 I32, u32 U32, i8 I8, u8 U8);

/// A float of a tensor. Arithmetic is in f32.
pub(crate) trait Real: Number {
    /// Sixteen, widened.
    fn load<S: Simd>(simd: S, from: &[Self; LANES]) -> S::Lanes;

    /// Whether loading 32 as those with even and those with odd indices is cheaper than in order.
    const DEALT: bool = false;

    /// 32, widened: those with even indices, then those with odd ones.
    #[inline(always)]
    fn load_dealt<S: Simd>(simd: S, from: &[Self; 2 * LANES]) -> [S::Lanes; 2] {
        let halves = from.as_chunks().0;
        simd.deal(Self::load(simd, &halves[0]), Self::load(simd, &halves[1]))
    }

    /// Sixteen, rounded.
    fn store<S: Simd>(simd: S, to: &mut [Self; LANES], x: S::Lanes);

    /// Up to sixteen, the other lanes 0.
    #[inline(always)]
    fn load_part<S: Simd>(simd: S, from: &[Self]) -> S::Lanes {
        let mut lanes = [Self::from_i64(0); LANES];
        lanes[..from.len()].copy_from_slice(from);
        Self::load(simd, &lanes)
    }

    /// Up to sixteen, the first lanes.
    #[inline(always)]
    fn store_part<S: Simd>(simd: S, to: &mut [Self], x: S::Lanes) {
        let mut lanes = [Self::from_i64(0); LANES];
        Self::store(simd, &mut lanes, x);
        let count = to.len();
        to.copy_from_slice(&lanes[..count]);
    }
}

macro_rules! reals {
    ($($real:ident $dtype:ident $to:expr, $from:expr, $load:ident, $store:ident { $($own:tt)* })*) => {$(
        impl Number for $real {
            const DTYPE: Dtype = Dtype::$dtype;

            #[inline(always)]
            fn to_f32(self) -> f32 {
                $to(self)
            }

            #[inline(always)]
            fn to_i64(self) -> i64 {
                $to(self) as i64
            }

            #[inline(always)]
            fn from_f32(x: f32) -> Self {
                $from(x)
            }

            #[inline(always)]
            fn from_i64(x: i64) -> Self {
                $from(x as f32)
            }
        }

        impl Real for $real {
            $($own)*

            #[inline(always)]
            fn load<S: Simd>(simd: S, from: &[Self; LANES]) -> S::Lanes {
                simd.$load(from)
            }

            #[inline(always)]
            fn store<S: Simd>(simd: S, to: &mut [Self; LANES], x: S::Lanes) {
                simd.$store(to, x);
            }
        }
    )*};
}
reals! {
    f32 F32 std::convert::identity, std::convert::identity, load, store {}
    f16 F16 f16::to_f32, f16::from_f32, load_f16, store_f16 {}
    bf16 Bf16 bf16::to_f32, bf16::from_f32, load_bf16, store_bf16 {
        const DEALT: bool = true;

        #[inline(always)]
        fn load_dealt<S: Simd>(simd: S, from: &[Self; 2 * LANES]) -> [S::Lanes; 2] {
            simd.load_bf16_dealt(from)
        }
    }
}

/// Runs an expression with a type name bound to the host type of any dtype.
macro_rules! with_number {
    ($dtype:expr, $name:ident => $body:expr) => {
        match $dtype {
            ::tandem_contracts::tensor::Dtype::F32 => $crate::number::bind!($name = f32, $body),
            ::tandem_contracts::tensor::Dtype::F16 => $crate::number::bind!($name = ::half::f16, $body),
            ::tandem_contracts::tensor::Dtype::Bf16 => $crate::number::bind!($name = ::half::bf16, $body),
            ::tandem_contracts::tensor::Dtype::I32 => $crate::number::bind!($name = i32, $body),
            ::tandem_contracts::tensor::Dtype::U32 => $crate::number::bind!($name = u32, $body),
            ::tandem_contracts::tensor::Dtype::I8 => $crate::number::bind!($name = i8, $body),
            ::tandem_contracts::tensor::Dtype::U8 => $crate::number::bind!($name = u8, $body),
            ::tandem_contracts::tensor::Dtype::Bool => {
                $crate::number::bind!($name = $crate::number::Truth, $body)
            }
        }
    };
}

/// As `with_number`, for operations that only move elements: any type of the same size.
macro_rules! with_size {
    ($dtype:expr, $name:ident => $body:expr) => {
        match $dtype.size() {
            1 => $crate::number::bind!($name = u8, $body),
            2 => $crate::number::bind!($name = u16, $body),
            _ => $crate::number::bind!($name = u32, $body),
        }
    };
}

/// As `with_number`, for dtypes that were checked not to be boolean.
macro_rules! with_numeric {
    ($dtype:expr, $name:ident => $body:expr) => {
        match $dtype {
            ::tandem_contracts::tensor::Dtype::F32 => $crate::number::bind!($name = f32, $body),
            ::tandem_contracts::tensor::Dtype::F16 => $crate::number::bind!($name = ::half::f16, $body),
            ::tandem_contracts::tensor::Dtype::Bf16 => $crate::number::bind!($name = ::half::bf16, $body),
            ::tandem_contracts::tensor::Dtype::I32 => $crate::number::bind!($name = i32, $body),
            ::tandem_contracts::tensor::Dtype::U32 => $crate::number::bind!($name = u32, $body),
            ::tandem_contracts::tensor::Dtype::I8 => $crate::number::bind!($name = i8, $body),
            _ => $crate::number::bind!($name = u8, $body),
        }
    };
}

/// As `with_number`, for dtypes that were checked to be floats.
macro_rules! with_real {
    ($dtype:expr, $name:ident => $body:expr) => {
        match $dtype {
            ::tandem_contracts::tensor::Dtype::F16 => $crate::number::bind!($name = ::half::f16, $body),
            ::tandem_contracts::tensor::Dtype::Bf16 => $crate::number::bind!($name = ::half::bf16, $body),
            _ => $crate::number::bind!($name = f32, $body),
        }
    };
}

macro_rules! bind {
    ($name:ident = $host:ty, $body:expr) => {{
        type $name = $host;
        $body
    }};
}
pub(crate) use {bind, with_number, with_numeric, with_real, with_size};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_follow_the_port() {
        assert_eq!(convert::<f32, i8>(-1000.7), -128);
        assert_eq!(convert::<f32, u8>(3.99), 3);
        assert_eq!(convert::<f32, i32>(f32::NAN), 0);
        assert_eq!(convert::<f32, Truth>(f32::NAN), Truth(1));
        assert_eq!(convert::<f32, Truth>(-0.0), Truth(0));
        assert_eq!(convert::<i32, u8>(-1), 255);
        assert_eq!(convert::<i32, f32>(16_777_217), 16_777_216.0);
        assert_eq!(convert::<u32, f32>(u32::MAX), 4_294_967_296.0);
        assert_eq!(convert::<Truth, f16>(Truth(7)), f16::ONE);
        assert_eq!(convert::<f16, bf16>(f16::from_f32(1.0 + 1.0 / 256.0)), bf16::from_f32(1.0));
    }
}
