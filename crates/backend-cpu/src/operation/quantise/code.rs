//! Packed codes: one after the other from the lowest bit of little-endian words.

/// Packs codes of `bits` bits; they fill the words exactly.
#[inline(always)]
pub(crate) fn pack(bits: u8, codes: &[u32], words: &mut [u32]) {
    // Whole words at a time, so that they are made side by side.
    match bits {
        8 => codes.as_chunks().0.iter().zip(words).for_each(|(codes, word)| *word = whole::<4>(8, codes)),
        4 => codes.as_chunks().0.iter().zip(words).for_each(|(codes, word)| *word = whole::<8>(4, codes)),
        _ => straddling(bits, codes, words),
    }
}

/// One word of `N` codes.
#[inline(always)]
fn whole<const N: usize>(bits: u32, codes: &[u32; N]) -> u32 {
    codes.iter().rev().fold(0, |word, code| word << bits | code)
}

fn straddling(bits: u8, codes: &[u32], words: &mut [u32]) {
    let (mut held, mut count) = (0u64, 0u32);
    let mut words = words.iter_mut();
    for &code in codes {
        held |= u64::from(code) << count;
        count += u32::from(bits);
        if count >= u32::BITS {
            if let Some(word) = words.next() {
                *word = held as u32;
            }
            held >>= u32::BITS;
            count -= u32::BITS;
        }
    }
}

/// Unpacks as many codes as `codes` has places; the words begin with the first.
pub(crate) fn unpack(bits: u8, words: &[u32], codes: &mut [u8]) {
    match bits {
        8 => codes.iter_mut().enumerate().for_each(|(i, code)| *code = (words[i / 4] >> (i % 4 * 8)) as u8),
        4 => codes
            .iter_mut()
            .enumerate()
            .for_each(|(i, code)| *code = (words[i / 8] >> (i % 8 * 4)) as u8 & 15),
        _ => {
            let mask = (1u64 << bits) - 1;
            let mut words = words.iter();
            let (mut held, mut count) = (0u64, 0u32);
            for code in codes {
                if count < u32::from(bits) {
                    held |= u64::from(words.next().copied().unwrap_or(0)) << count;
                    count += u32::BITS;
                }
                *code = (held & mask) as u8;
                held >>= bits;
                count -= u32::from(bits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_codes_come_back() {
        for bits in [2, 3, 4, 5, 6, 8] {
            let codes: Vec<u32> = (0..64).map(|i| i * 37 % (1 << bits)).collect();
            let (mut words, mut one_by_one) =
                (vec![0; 2 * usize::from(bits)], vec![0; 2 * usize::from(bits)]);
            pack(bits, &codes, &mut words);
            straddling(bits, &codes, &mut one_by_one);
            assert_eq!(words, one_by_one, "{bits} bits");
            let mut unpacked = vec![0; 64];
            unpack(bits, &words, &mut unpacked);
            assert_eq!(unpacked.into_iter().map(u32::from).collect::<Vec<_>>(), codes, "{bits} bits");
        }
        let mut words = [0; 3];
        pack(3, &std::array::from_fn::<u32, 32, _>(|i| u32::from(i == 10)), &mut words);
        assert_eq!(words, [1 << 30, 0, 0]);
    }
}
