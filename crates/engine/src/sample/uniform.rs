//! The uniform numbers that a sample takes.
//!
//! Invariant: a number depends on the seed, the sample's index and its purpose alone.

use tandem_contracts::threefry::threefry;

/// 2^64 divided by the golden ratio: spreads consecutive samples over the key space.
const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// Key of a request's sample number `index`, counted from 0.
pub(super) fn step_key(seed: u64, index: u64) -> u64 {
    seed ^ index.wrapping_add(1).wrapping_mul(STRIDE)
}

/// What a number is for; each purpose has a counter of its own under the step key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The draw of the token.
    Draw,
    /// Whether XTC strikes.
    Exclude,
}

/// A multiple of 2^-24 in `[0, 1)`: the upper bits of the first word under the step key, whose upper half is the
/// first key word, at the purpose's counter.
pub(super) fn uniform(seed: u64, index: u64, purpose: Purpose) -> f32 {
    let key = step_key(seed, index);
    let [word, _] = threefry([(key >> 32) as u32, key as u32], [0, purpose as u32]);
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_keys_by_hand() {
        assert_eq!(step_key(0, 0), 0x9E37_79B9_7F4A_7C15);
        // Twice the stride without its carry is 0x3C6EF372FE94F82A.
        assert_eq!(step_key(0, 1), 0x3C6E_F372_FE94_F82A);
        assert_eq!(step_key(u64::MAX, 0), !0x9E37_79B9_7F4A_7C15);
        assert_eq!(step_key(5, u64::MAX), 5);
    }

    #[test]
    fn a_zero_key_gives_the_published_word_as_a_fraction() {
        // The seed that cancels the stride: 0x6b2001 / 2^24.
        assert_eq!(uniform(STRIDE, 0, Purpose::Draw), 7_020_545.0 / 16_777_216.0);
    }

    #[test]
    fn numbers_fill_the_unit_interval_evenly() {
        let count = 100_000;
        for purpose in [Purpose::Draw, Purpose::Exclude] {
            let mut bins = [0_i32; 20];
            for index in 0..count {
                let number = uniform(42, index, purpose);
                assert!((0.0..1.0).contains(&number));
                bins[(number * 20.0) as usize] += 1;
            }
            // 5,000 expected in each bin, standard deviation 69.
            assert!(bins.iter().all(|&bin| (bin - 5_000).abs() < 350), "{bins:?}");
        }
    }

    #[test]
    fn purposes_do_not_go_together() {
        // How often both numbers are in the same half: 5,000 expected of 10,000, standard deviation 50.
        let same =
            |index| (uniform(7, index, Purpose::Draw) < 0.5) == (uniform(7, index, Purpose::Exclude) < 0.5);
        let count = (0..10_000).filter(|&index| same(index)).count() as i64;
        assert!((count - 5_000).abs() < 250, "{count}");
    }
}
