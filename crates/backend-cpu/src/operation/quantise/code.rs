//! Packed codes: one after the other from the lowest bit of little-endian words.

/// Packs codes of `bits` bits; they fill the words exactly.
pub(crate) fn pack(bits: u8, codes: impl Iterator<Item = u32>, words: &mut [u32]) {
    let (mut held, mut count) = (0u64, 0u32);
    let mut words = words.iter_mut();
    for code in codes {
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
            let codes: Vec<u8> = (0..64u32).map(|i| (i * 37 % (1 << bits)) as u8).collect();
            let mut words = vec![0; 2 * usize::from(bits)];
            pack(bits, codes.iter().map(|&code| u32::from(code)), &mut words);
            let mut unpacked = vec![0; 64];
            unpack(bits, &words, &mut unpacked);
            assert_eq!(unpacked, codes, "{bits} bits");
        }
        let mut words = [0; 3];
        pack(3, (0..32).map(|i| u32::from(i == 10)), &mut words);
        assert_eq!(words, [1 << 30, 0, 0]);
    }
}
