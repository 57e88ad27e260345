//! Lloyd-Max codebooks for a normal variable with mean 0 and variance 1.
//!
//! Invariant: levels ascend and are symmetric; each is the centroid of its cell, and each boundary lies midway between
//! its neighbours.

use super::table::{HALF_2, HALF_3, HALF_4, HALF_5, HALF_8};

/// The `2^bits` levels to which TurboQuant's values are rounded, ascending; none for bits that it does not have.
pub fn levels(bits: u8) -> Vec<f32> {
    let half: &[f32] = match bits {
        2 => &HALF_2,
        3 => &HALF_3,
        4 => &HALF_4,
        5 => &HALF_5,
        8 => &HALF_8,
        _ => &[],
    };
    half.iter().rev().map(|level| -level).chain(half.iter().copied()).collect()
}

/// The boundaries between neighbouring levels, ascending.
pub(super) fn boundaries(bits: u8) -> Vec<f32> {
    levels(bits).windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn density(x: f64) -> f64 {
        (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt()
    }

    /// Simpson's rule; cells are cut so finely that its error is far below the tolerance.
    fn integral(of: impl Fn(f64) -> f64, from: f64, to: f64) -> f64 {
        const STEPS: usize = 4000;
        let step = (to - from) / STEPS as f64;
        let sum: f64 = (0..=STEPS)
            .map(|i| {
                let weight = match i {
                    0 | STEPS => 1.0,
                    _ if i % 2 == 1 => 4.0,
                    _ => 2.0,
                };
                weight * of(from + i as f64 * step)
            })
            .sum();
        sum * step / 3.0
    }

    #[test]
    fn levels_are_centroids_and_boundaries_are_midpoints() {
        for bits in [2, 3, 4, 5, 8] {
            let (levels, boundaries) = (levels(bits), boundaries(bits));
            assert_eq!((levels.len(), boundaries.len()), (1 << bits, (1 << bits) - 1));
            // Beyond 16 there are less than 1e-50 of the variable.
            let edges: Vec<f64> = [-16.0]
                .into_iter()
                .chain(boundaries.iter().map(|&edge| f64::from(edge)))
                .chain([16.0])
                .collect();
            for (i, &level) in levels.iter().enumerate() {
                let (low, high) = (edges[i], edges[i + 1]);
                let centroid = integral(|x| x * density(x), low, high) / integral(density, low, high);
                assert!(
                    (centroid - f64::from(level)).abs() < 1e-6,
                    "level {i} of {bits} bits: {level}, {centroid}"
                );
                assert_eq!(level, -levels[levels.len() - 1 - i]);
            }
            for (pair, &edge) in levels.windows(2).zip(&boundaries) {
                let middle = (f64::from(pair[0]) + f64::from(pair[1])) / 2.0;
                assert!((middle - f64::from(edge)).abs() < 1e-6);
            }
        }
    }

    /// Max, "Quantizing for minimum distortion", 1960, table I, and its four decimals.
    #[test]
    fn small_codebooks_are_those_of_the_textbook() {
        let near = |got: &[f32], table: &[f32]| {
            assert_eq!(got.len(), table.len());
            assert!(got.iter().zip(table).all(|(a, b)| (a - b).abs() < 1e-4), "{got:?}");
        };
        near(&levels(2)[2..], &[0.4528, 1.5104]);
        near(&boundaries(2)[1..], &[0.0, 0.9816]);
        near(&levels(3)[4..], &[0.2451, 0.7560, 1.3439, 2.1520]);
        near(&boundaries(3)[3..], &[0.0, 0.5006, 1.0500, 1.7480]);
        near(&levels(4)[8..], &[0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0690, 2.7326]);
    }
}
