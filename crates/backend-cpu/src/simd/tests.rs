//! Every instruction set against plain f64 arithmetic and against the portable one, bit for bit.

use super::*;
use proptest::prelude::*;

type Function = fn(f32) -> f64;

/// A function of [`math`] over a slice.
struct Apply<'a> {
    name: &'static str,
    xs: &'a [f32],
}

impl Kernel for Apply<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        let mut out = vec![0.0; self.xs.len()];
        for (from, to) in self.xs.chunks(LANES).zip(out.chunks_mut(LANES)) {
            let x = simd.load_part(from, 0.0);
            let y = match self.name {
                "exp" => math::exp(simd, x),
                "sigmoid" => math::sigmoid(simd, x),
                "tanh" => math::tanh(simd, x),
                "erf" => math::erf(simd, x),
                "sine" => math::sine_cosine(simd, x).0,
                _ => math::sine_cosine(simd, x).1,
            };
            simd.store_part(to, y);
        }
        out
    }
}

/// The series of the error function, for magnitudes up to 6.
fn erf(x: f32) -> f64 {
    let x = f64::from(x).clamp(-6.0, 6.0);
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn samples(limit: f32) -> Vec<f32> {
    (0..40_001).map(|i| (i as f32 / 20_000.0 - 1.0) * limit).collect()
}

/// Largest error in units in the last place of the result.
fn error(name: &'static str, limit: f32, function: Function) -> f64 {
    let xs = samples(limit);
    let ys = dispatch(Isa::detected(), Apply { name, xs: &xs });
    let unit = |y: f64| (y.abs() as f32).max(f32::MIN_POSITIVE).to_bits();
    let unit = |y: f64| f64::from(f32::from_bits(unit(y) + 1)) - f64::from(f32::from_bits(unit(y)));
    xs.iter()
        .zip(ys)
        .map(|(&x, y)| (f64::from(y) - function(x)).abs() / unit(function(x)))
        .fold(0.0, f64::max)
}

#[test]
fn functions_are_as_near_as_stated() {
    let sigmoid = |x: f32| 1.0 / (1.0 + (-f64::from(x)).exp());
    let cases: [(&'static str, f32, Function, f64); 6] = [
        ("exp", 87.0, |x| f64::from(x).exp(), 1.0),
        ("exp", 1.0, |x| f64::from(x).exp(), 1.0),
        ("sigmoid", 80.0, sigmoid, 2.5),
        ("sigmoid", 3.0, sigmoid, 2.5),
        ("tanh", 4.0, |x| f64::from(x).tanh(), 3.0),
        ("erf", 4.5, erf, 3.0),
    ];
    for (name, limit, function, bound) in cases {
        let worst = error(name, limit, function);
        assert!(worst <= bound, "{name} to {limit}: {worst}");
    }
}

#[test]
fn angles_up_to_long_contexts_are_exact_to_the_last_place_of_one() {
    for limit in [4.0, 1000.0, 100_000.0, 1.0e6] {
        let xs = samples(limit);
        let ys = [("sine", f64::sin as fn(f64) -> f64), ("cosine", f64::cos)];
        for (name, function) in ys {
            let got = dispatch(Isa::detected(), Apply { name, xs: &xs });
            for (&x, y) in xs.iter().zip(got) {
                assert!((f64::from(y) - function(f64::from(x))).abs() < 1.2e-7, "{name} of {x}: {y}");
            }
        }
    }
}

#[test]
fn strange_arguments() {
    let xs = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 100.0, -87.3, -87.4];
    let exp = dispatch(Isa::detected(), Apply { name: "exp", xs: &xs });
    assert!(exp[0].is_nan());
    assert_eq!(exp[1..6], [f32::INFINITY, 0.0, 1.0, 1.0, f32::INFINITY]);
    assert!(exp[6].is_normal() && exp[7] == 0.0);
    let tanh = dispatch(Isa::detected(), Apply { name: "tanh", xs: &xs });
    assert!(tanh[0].is_nan() && tanh[4].is_sign_negative());
    assert_eq!(tanh[1..3], [1.0, -1.0]);
    let erf = dispatch(Isa::detected(), Apply { name: "erf", xs: &xs });
    assert!(erf[0].is_nan());
    assert_eq!(erf[1..3], [1.0, -1.0]);
    let sine = dispatch(Isa::detected(), Apply { name: "sine", xs: &xs[..3] });
    assert!(sine.iter().all(|x| x.is_nan()));
}

/// Every operation once, on random lanes: results as bits.
struct Everything<'a> {
    a: &'a [f32; LANES],
    b: &'a [f32; LANES],
}

impl Kernel for Everything<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        let (a, b) = (simd.load(self.a), simd.load(self.b));
        let mut out = Vec::new();
        let vectors = [
            simd.add(a, b),
            simd.sub(a, b),
            simd.mul(a, b),
            simd.div(a, b),
            simd.fma(a, b, a),
            simd.min(a, b),
            simd.max(a, b),
            simd.sqrt(simd.abs(a)),
            simd.round(a),
            simd.floor(b),
            simd.with_sign(a, b),
            simd.select(simd.less(a, b), a, b),
            simd.scale(
                simd.splat(1.37),
                simd.round(simd.with_sign(simd.min(simd.splat(126.0), simd.abs(a)), a)),
            ),
            simd.sums(&std::array::from_fn(
                |i| if i % 2 == 0 { simd.add(a, simd.splat(i as f32)) } else { b },
            )),
            simd.load_part(&self.a[..7], 2.0),
            simd.splat(simd.sum(a)),
            simd.splat(simd.largest(b)),
            simd.splat(fold::sum(simd, &[self.a.as_slice(), &self.b[..5]].concat(), &fold::Squares)),
        ];
        for vector in vectors {
            out.extend(lanes(simd, vector));
        }
        let rows = std::array::from_fn(|i| simd.mul(a, simd.splat(i as f32)));
        for column in simd.transpose(&rows) {
            out.extend(lanes(simd, column));
        }
        // Bytes and words as random as the lanes.
        let words: [u32; LANES] = std::array::from_fn(|i| self.a[i].to_bits().wrapping_mul(0x9e37_79b1));
        let bytes: [u8; LANES] = std::array::from_fn(|i| (words[i] >> 13) as u8);
        let shifts: [u32; LANES] = std::array::from_fn(|i| words[i] >> 20 & 31);
        for codes in
            [simd.load_u8(&bytes), simd.load_i8(&bytes), simd.look_up(b, [words[0], words[9]], &shifts)]
        {
            out.extend(lanes(simd, codes));
        }
        out.extend(integers(simd, [a, b], &words));
        let (mut half, mut brain) = ([f16::ZERO; LANES], [bf16::ZERO; LANES]);
        simd.store_f16(&mut half, a);
        simd.store_bf16(&mut brain, a);
        out.extend(half.map(|x| f32::from(x.to_bits())));
        out.extend(brain.map(|x| f32::from(x.to_bits())));
        out.extend(lanes(simd, simd.load_f16(&half)));
        out.extend(lanes(simd, simd.load_bf16(&brain)));
        let mut twice = [bf16::ZERO; 2 * LANES];
        twice[3..3 + LANES].copy_from_slice(&brain);
        for vector in simd.load_bf16_dealt(&twice) {
            out.extend(lanes(simd, vector));
        }
        out
    }
}

/// Products of bytes and what puts them in order.
#[inline(always)]
fn integers<S: Simd>(simd: S, [a, b]: [S::Lanes; 2], words: &[u32; LANES]) -> Vec<f32> {
    let mut bytes = [0; LINE];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    let mut numbers = [a; 4];
    for (i, number) in numbers.iter_mut().enumerate() {
        let x = simd.min(simd.mul(*number, simd.splat(i as f32 * 97.0 + 1.0)), simd.splat(MOST));
        *number = simd.round(simd.max(x, simd.splat(-MOST)));
    }
    let digits = simd.digits(&numbers);
    let mut sums = simd.no_dots();
    for (high, low) in digits[0].iter().zip(digits[1]) {
        let by = [simd.repeat(*high), simd.repeat(low)];
        sums = simd.dot(sums, simd.words(&bytes), by);
    }
    let mut out = Vec::new();
    let less = simd.int_halves(simd.repeat(5), simd.repeat(7));
    out.extend(lanes(simd, simd.total(sums, less)));
    out.extend(lanes(simd, simd.halves(a, b)));
    for vector in simd.deal(a, b).into_iter().chain(simd.zip(a, b)).chain(simd.unweave([
        a,
        b,
        simd.add(a, a),
        simd.add(b, b),
    ])) {
        out.extend(lanes(simd, vector));
    }
    let mut turned = bytes;
    turned.reverse();
    let mut woven = [[0; LINE]; 4];
    simd.weave([&bytes, &turned, &[7; LINE], &bytes], &mut woven);
    simd.store_bits(&mut turned, simd.flip(simd.load_bits(&bytes)));
    out.extend(woven.as_flattened().iter().chain(&turned).map(|byte| f32::from(*byte)));
    out
}

#[inline(always)]
fn lanes<S: Simd>(simd: S, vector: S::Lanes) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    simd.store(&mut lanes, vector);
    lanes
}

fn number() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -100.0f32..100.0,
        2 => any::<f32>().prop_filter("finite", |x| x.is_finite()),
        1 => prop::sample::select(vec![0.0, -0.0, f32::INFINITY, 0.5, 1.5, 2.5, 65504.0, 65520.0, 1.0e-7]),
    ]
}

#[test]
fn codes_by_hand() {
    let bytes: [u8; LANES] = [0, 1, 127, 128, 255, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 200];
    let unsigned = Portable.load_u8(&bytes);
    assert_eq!((unsigned[3], unsigned[4], unsigned[15]), (128.0, 255.0, 200.0));
    let signed = Portable.load_i8(&bytes);
    assert_eq!((signed[2], signed[3], signed[4], signed[15]), (127.0, -128.0, -1.0, -56.0));
    let table = std::array::from_fn(|i| 10.0 * i as f32);
    let shifts = [0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28];
    let found = Portable.look_up(table, [0x7654_3210, 0xfedc_ba98], &shifts);
    assert_eq!(found, table);
}

#[test]
fn products_of_bytes_by_hand() {
    let numbers: [f32; LINE] = std::array::from_fn(|i| (i as f32 - 31.0) * 500.0);
    let bytes: [u8; LINE] = std::array::from_fn(|i| (i * 37 % 256) as u8);
    let mut four = [[0.0; LANES]; 4];
    four.as_flattened_mut().copy_from_slice(&numbers);
    let digits = Portable.digits(&four);
    // Lane 2 of word 5: bytes 8 to 11 with numbers 20 to 23.
    let by = digits.map(|words| Portable.repeat(words[5]));
    let dots = Portable.dot(Portable.no_dots(), Portable.words(&bytes), by);
    let expected: f32 = (0..4).map(|i| f32::from(bytes[8 + i]) * numbers[20 + i]).sum();
    assert_eq!(Portable.total(dots, Portable.repeat(3))[2], expected - 3.0);
    let rows: [[u8; LINE]; 4] = std::array::from_fn(|row| std::array::from_fn(|i| (64 * row + i) as u8));
    let mut woven = [[0; LINE]; 4];
    Portable.weave(rows.each_ref(), &mut woven);
    // Column 16 + 8 + 3 is lane 4 + 3 of vector 2.
    assert_eq!(woven[2][28..32], [27, 64 + 27, 128 + 27, 192 + 27]);
    let vectors =
        std::array::from_fn(|j| std::array::from_fn(|lane| (16 * (lane / 4) + 4 * j + lane % 4) as f32));
    assert_eq!(Portable.unweave(vectors)[1][11], 27.0);
    let [even, odd] =
        Portable.deal(std::array::from_fn(|i| i as f32), std::array::from_fn(|i| 16.0 + i as f32));
    assert_eq!((even[9], odd[0], Portable.zip(even, odd)[1][3]), (18.0, 1.0, 19.0));
}

proptest! {
    #[test]
    fn every_instruction_set_gives_the_same_bits(
        a in prop::array::uniform16(number()),
        b in prop::array::uniform16(number()),
    ) {
        let expected = Everything { a: &a, b: &b }.run(Portable);
        let functions = ["exp", "sigmoid", "tanh", "erf", "sine", "cosine"];
        for isa in Isa::available() {
            let got = dispatch(isa, Everything { a: &a, b: &b });
            for (index, (x, y)) in expected.iter().zip(&got).enumerate() {
                prop_assert!(same(*x, *y), "{isa}: value {index}: {x} and {y}");
            }
            for name in functions {
                let expected = Apply { name, xs: &a }.run(Portable);
                let got = dispatch(isa, Apply { name, xs: &a });
                prop_assert!(expected.iter().zip(&got).all(|(x, y)| same(*x, *y)), "{isa}: {name}");
            }
        }
    }

    #[test]
    fn a_row_is_summed_in_the_stated_order(row in prop::collection::vec(-10.0f32..10.0, 0..300)) {
        let mut lanes = [0.0f32; 64];
        row.iter().enumerate().for_each(|(i, x)| lanes[i % 64] += x);
        let four = |l: usize| (lanes[l] + lanes[l + 16]) + (lanes[l + 32] + lanes[l + 48]);
        let mut four: Vec<f32> = (0..16).map(four).collect();
        for half in [8, 4, 2, 1] {
            four = (0..half).map(|l| four[l] + four[l + half]).collect();
        }
        prop_assert!(same(fold::sum(Portable, &row, &fold::Plain), four[0]));
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        prop_assert_eq!(fold::largest(Portable, &row), largest);
    }
}
