//! Products of every instruction set against naive loops of the same arithmetic, bit for bit.

mod naive;

use std::num::NonZeroUsize;

use proptest::prelude::*;

use super::*;
use crate::isa::Isa;
use naive::{Kind, Matrix, activations};

fn pool(threads: usize, isa: Isa) -> Pool {
    Pool::new(NonZeroUsize::new(threads).unwrap(), isa).unwrap()
}

/// Equal bits, or both NaN (whose payloads are the processor's affair).
#[track_caller]
fn assert_same(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(same, "{what}, element {index}: {found} instead of {expected}");
    }
}

/// A prepared weight with what it was made of.
struct Case {
    matrices: Vec<Matrix>,
    prepared: Prepared,
}

impl Case {
    fn new(experts: usize, matrices: Vec<Matrix>) -> Self {
        let parts: Vec<Part<'_>> = matrices.iter().map(Matrix::part).collect();
        let pool = pool(2, Isa::Portable);
        let prepared = Prepared::stacked(&pool, &Memory::default(), experts, &parts).unwrap();
        Self { matrices, prepared }
    }

    /// One row's outputs by the naive loops.
    fn expected(&self, expert: usize, x: &[f32], fast: bool) -> Vec<f32> {
        self.matrices
            .iter()
            .flat_map(|matrix| if fast { matrix.fast(expert, x) } else { matrix.exact(expert, x) })
            .collect()
    }

    /// Holds both arithmetics to the naive loops, for all rows at once.
    fn check(&self, isa: Isa, threads: usize, x: &[f32], rows: usize) {
        let pool = pool(threads, isa);
        let mut out = vec![f32::MIN; rows * self.prepared.rows()];
        for fast in [false, true] {
            let expected: Vec<f32> = (0..rows)
                .flat_map(|row| {
                    self.expected(0, &x[row * self.prepared.width()..][..self.prepared.width()], fast)
                })
                .collect();
            let outcome = if fast {
                self.prepared.fast(&pool, x, rows, &mut out)
            } else {
                self.prepared.exact(&pool, x, rows, &mut out)
            };
            assert_eq!(outcome, Ok(()));
            let kinds: Vec<Kind> = self.matrices.iter().map(|matrix| matrix.kind).collect();
            let width = self.prepared.width();
            let what = format!("{isa} x{threads}, fast {fast}, {rows} rows, width {width}, {kinds:?}");
            assert_same(&out, &expected, &what);
        }
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    let numbers = prop_oneof![Just(naive::Number::F32), Just(naive::Number::F16), Just(naive::Number::Bf16)];
    let affine = (
        prop_oneof![Just(2u32), Just(3), Just(4), Just(5), Just(6), Just(8)],
        prop_oneof![Just(32usize), Just(64), Just(128)],
        numbers.clone(),
    );
    prop_oneof![
        4 => affine.prop_map(|(bits, group, number)| Kind::Affine { bits, group, number }),
        1 => numbers.prop_map(Kind::Dense),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Joined weights of any formats, any rows, any threads.
    #[test]
    fn products_equal_the_naive_loops(
        kinds in proptest::collection::vec((kinds(), 1..90usize), 1..4),
        blocks in 1..4usize,
        rows in 1..65usize,
        threads in 1..5usize,
        seed in any::<u64>(),
    ) {
        let affine = kinds.iter().any(|(kind, _)| kind.group().is_some());
        let width = if affine { blocks * 128 } else { blocks * 45 + 1 };
        let matrices = kinds.iter().map(|(kind, rows)| Matrix::random(*kind, 1, *rows, width, seed)).collect();
        let case = Case::new(1, matrices);
        let x = activations(rows * width, seed);
        for isa in Isa::available() {
            case.check(isa, threads, &x, rows);
        }
    }

    /// The bits of a row do not depend on its company.
    #[test]
    fn a_row_alone_equals_the_row_among_others(
        kind in kinds(),
        rows in 2..80usize,
        seed in any::<u64>(),
    ) {
        let case = Case::new(1, vec![Matrix::random(kind, 1, 70, 256, seed)]);
        let x = activations(rows * 256, seed);
        for isa in Isa::available() {
            let pool = pool(2, isa);
            let mut together = vec![0.0; rows * 70];
            let mut alone = vec![0.0; 70];
            case.prepared.fast(&pool, &x, rows, &mut together).unwrap();
            for row in 0..rows {
                case.prepared.fast(&pool, &x[row * 256..][..256], 1, &mut alone).unwrap();
                assert_same(&together[row * 70..][..70], &alone, "fast");
            }
        }
    }

    /// Routes in any order, with experts that nobody asks for and some that many do.
    #[test]
    fn gathered_products_equal_the_naive_loops(
        kind in kinds(),
        experts in 1..6usize,
        routes in proptest::collection::vec((0..7usize, 0..100usize), 0..60),
        seed in any::<u64>(),
    ) {
        let case = Case::new(experts, vec![
            Matrix::random(kind, experts, 20, 128, seed),
            Matrix::random(kind, experts, 13, 128, seed + 1),
        ]);
        let x = activations(7 * 128, seed);
        let routes: Vec<Route> =
            routes.into_iter().map(|(row, expert)| Route { row, expert: expert % experts }).collect();
        for isa in Isa::available() {
            let pool = pool(2, isa);
            let mut out = vec![0.0; routes.len() * 33];
            for fast in [false, true] {
                let expected: Vec<f32> = routes
                    .iter()
                    .flat_map(|route| case.expected(route.expert, &x[route.row * 128..][..128], fast))
                    .collect();
                if fast {
                    case.prepared.gather_fast(&pool, &x, &routes, &mut out).unwrap();
                } else {
                    case.prepared.gather_exact(&pool, &x, &routes, &mut out).unwrap();
                }
                assert_same(&out, &expected, "gathered");
            }
        }
    }

    /// Single rows come back as the weights that they stand for.
    #[test]
    fn rows_are_dequantised(kind in kinds(), rows in 1..40usize, seed in any::<u64>()) {
        let case = Case::new(1, vec![
            Matrix::random(kind, 1, rows, 128, seed),
            Matrix::random(Kind::Dense(naive::Number::F32), 1, 3, 128, seed),
        ]);
        let all: Vec<usize> = (0..rows + 3).rev().collect();
        for isa in Isa::available() {
            let mut out = vec![0.0; 128 * (rows + 3)];
            case.prepared.look_up(&pool(2, isa), &all, &mut out).unwrap();
            for (&row, out) in all.iter().zip(out.chunks_exact(128)) {
                let expected = if row < rows {
                    case.matrices[0].row(row)
                } else {
                    case.matrices[1].row(row - rows)
                };
                assert_same(out, &expected, "row");
            }
        }
    }
}

#[test]
fn strange_activations_and_weights() {
    let strange = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        f32::MAX,
        f32::MIN_POSITIVE,
        1e-40,
        -1e-45,
        1e30,
    ];
    for kind in [
        Kind::Affine { bits: 4, group: 32, number: naive::Number::F16 },
        Kind::Affine { bits: 8, group: 64, number: naive::Number::F32 },
        Kind::Dense(naive::Number::Bf16),
    ] {
        let mut matrix = Matrix::random(kind, 1, 19, 128, 5);
        for (index, value) in strange.into_iter().enumerate() {
            matrix.set_factor(index * 2, value);
        }
        let case = Case::new(1, vec![matrix]);
        let (rows, width) = (strange.len() * 2, 128);
        let mut x = activations(rows * width, 9);
        for (index, value) in strange.into_iter().enumerate() {
            x[2 * index * width + 77] = value;
            x[(2 * index + 1) * width..][..64].fill(value);
        }
        for isa in Isa::available() {
            case.check(isa, 2, &x, rows);
        }
    }
}

#[test]
fn a_row_that_is_not_finite_gives_nothing_finite() {
    let kind = Kind::Affine { bits: 4, group: 32, number: naive::Number::Bf16 };
    let case = Case::new(1, vec![Matrix::random(kind, 1, 50, 64, 1)]);
    for isa in Isa::available() {
        for strange in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = activations(3 * 64, 2);
            x[64 + 40] = strange;
            let mut out = vec![0.0; 3 * 50];
            case.prepared.fast(&pool(1, isa), &x, 3, &mut out).unwrap();
            assert!(out[50..100].iter().all(|y| y.is_nan()));
            assert!(out[..50].iter().chain(&out[100..]).all(|y| y.is_finite()));
        }
    }
}

/// The largest sums that can occur: no step may saturate.
#[test]
fn extreme_codes_do_not_saturate() {
    for (bits, group) in [(8, 32), (8, 128), (4, 128), (6, 64)] {
        for sign in [1.0, -1.0] {
            let kind = Kind::Affine { bits, group, number: naive::Number::F32 };
            let mut matrix = Matrix::random(kind, 1, 33, 256, 3);
            matrix.fill_codes(u8::MAX >> (8 - bits));
            let case = Case::new(1, vec![matrix]);
            for isa in Isa::available() {
                for rows in [1, 5, 16, 40] {
                    case.check(isa, 1, &vec![sign; rows * 256], rows);
                }
            }
        }
    }
}

#[test]
fn nothing_times_something() {
    let kind = Kind::Affine { bits: 4, group: 32, number: naive::Number::F16 };
    let case = Case::new(1, vec![Matrix::random(kind, 1, 5, 32, 3)]);
    let empty = Case::new(1, vec![Matrix::random(Kind::Dense(naive::Number::F32), 1, 5, 0, 3)]);
    for isa in Isa::available() {
        case.check(isa, 2, &[], 0);
        empty.check(isa, 2, &[], 3);
        case.prepared.gather_fast(&pool(2, isa), &[0.0; 32], &[], &mut []).unwrap();
    }
}

#[test]
fn quantised_activations_may_be_handed_in() {
    let kind = |group| Kind::Affine { bits: 4, group, number: naive::Number::F16 };
    let case =
        Case::new(1, vec![Matrix::random(kind(32), 1, 17, 128, 3), Matrix::random(kind(64), 1, 3, 128, 4)]);
    assert_eq!(case.prepared.groups(), [32, 64]);
    assert!(!case.prepared.has_dense());
    let pool = pool(1, Isa::Portable);
    let x = activations(2 * 128, 4);
    let quantised = case.prepared.quantise(&pool, &x, 2).unwrap();

    let (mut out, mut expected) = (vec![0.0; 40], vec![0.0; 40]);
    case.prepared.fast_quantised(&pool, &[], &quantised, &mut out).unwrap();
    case.prepared.fast(&pool, &x, 2, &mut expected).unwrap();
    assert_same(&out, &expected, "handed in");
    let error = case.prepared.fast_quantised(&pool, &[], &quantised[..1], &mut out).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unquantised(64));
}

#[test]
fn wrong_shapes_are_refused() {
    let kind = Kind::Affine { bits: 4, group: 32, number: naive::Number::F16 };
    let case = Case::new(2, vec![Matrix::random(kind, 2, 5, 64, 3)]);
    let pool = pool(1, Isa::Portable);
    let message = |outcome: Result<(), ProductError>| outcome.unwrap_err().to_string();
    let prepared = &case.prepared;
    let x = [0.0; 128];
    let mut out = [0.0; 10];
    assert_eq!(message(prepared.exact(&pool, &x, 1, &mut out)), "activations must have 64 elements: 128");
    assert_eq!(message(prepared.fast(&pool, &x, 2, &mut out[1..])), "output must have 10 elements: 9");
    assert_eq!(
        message(prepared.look_up(&pool, &[4, 5], &mut [0.0; 128])),
        "there are 5 rows, no such row: 5"
    );
    assert_eq!(message(prepared.look_up(&pool, &[1], &mut [0.0; 63])), "rows must have 64 elements: 63");
    let mut route =
        |row, expert| message(prepared.gather_fast(&pool, &x, &[Route { row, expert }], &mut out[..5]));
    assert_eq!(route(2, 0), "there are 2 rows, no such row: 2");
    assert_eq!(route(0, 2), "there are 2 experts, no such expert: 2");
    let none = Prepared::new(&pool, &Memory::default(), &[]).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Parts);
    let other = Matrix::random(kind, 1, 5, 32, 3);
    let mixed = Prepared::new(&pool, &Memory::default(), &[case.matrices[0].part(), other.part()]);
    assert_eq!(mixed.unwrap_err().kind(), ErrorKind::Parts);
}

#[test]
fn scales_take_sixteen_bits_where_nothing_is_lost() {
    let bytes = |number, bits| {
        let matrix = Matrix::random(Kind::Affine { bits, group: 32, number }, 1, 32, 64, 3);
        Case::new(1, vec![matrix]).prepared.bytes()
    };
    // Two tiles of two groups: codes and then sixteen scales and biases.
    assert_eq!(bytes(naive::Number::F16, 4), 4 * (256 + 64));
    assert_eq!(bytes(naive::Number::F32, 4), 4 * (256 + 128));
    assert_eq!(bytes(naive::Number::Bf16, 3), 4 * (256 + 64));
    assert_eq!(bytes(naive::Number::Bf16, 6), 4 * (512 + 64));
}
