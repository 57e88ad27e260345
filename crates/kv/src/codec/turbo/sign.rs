//! The random signs by which values are rotated, before the Hadamard transform.

use tandem_contracts::threefry::threefry;

/// Key words of the generator that draws the signs.
const KEY: [u32; 2] = [0, 42];

/// Signs of the elements of a head: word `i` of the first half and word `i + width / 2` come from one block of the
/// generator, and a word of at least 2^31 is a minus.
pub(super) fn signs(width: usize) -> Vec<f32> {
    let half = width / 2;
    let mut signs = vec![1.0; width];
    for (i, block) in (0..half as u32).map(|i| threefry(KEY, [i, i + half as u32])).enumerate() {
        for (at, word) in [i, i + half].into_iter().zip(block) {
            // Halfway cases round to even, so the last 128 words below 2^31 reach it too.
            if word as f32 >= 2_147_483_648.0 {
                signs[at] = -1.0;
            }
        }
    }
    signs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit `i` is set where element `i` is negative.
    fn words(width: usize) -> Vec<u64> {
        let word = |signs: &[f32]| {
            signs.iter().enumerate().fold(0, |word, (i, &sign)| word | u64::from(sign < 0.0) << i)
        };
        signs(width).chunks(64).map(word).collect()
    }

    /// Where `mx.random.bernoulli(0.5, (width,), key=mx.random.key(42))` of mlx 0.32.2 is false: its generator is the
    /// same, and it too compares words with 2^31.
    #[test]
    fn signs_are_those_of_mlx() {
        assert_eq!(words(64), [0x62de_4802_b769_548e]);
        assert_eq!(words(128), [0x6a9c_0250_6a39_df0d, 0x1460_59de_4a83_37d5]);
        assert_eq!(
            words(256),
            [0x10cd_4a11_62e6_3012, 0xd39c_5ec9_a96d_146f, 0xb227_5d73_3a2f_f29b, 0xfe8b_c357_5730_d96b]
        );
        assert_eq!(
            words(512),
            [
                0x62fb_e30d_7036_4bbd,
                0x5cca_d261_d439_e463,
                0xe9dd_1243_9b47_7c8f,
                0x77ba_caba_542a_de30,
                0x9a4c_1518_1187_3e84,
                0x5d81_721f_3204_a3c5,
                0x8ea7_9bc2_8a82_1452,
                0x296b_9d6d_520e_4bef
            ]
        );
    }
}
