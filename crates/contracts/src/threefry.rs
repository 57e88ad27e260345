//! Threefry-2x32 with 20 rounds: random words that depend on a key and a counter alone.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; rotations and key
//! schedule as in Random123.

const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
/// Parity word of the key schedule: the Skein constant's low half.
const PARITY: u32 = 0x1BD1_1BDA;

/// Encrypts a counter under a key.
pub fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let keys = [key[0], key[1], PARITY ^ key[0] ^ key[1]];
    let [mut a, mut b] = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for group in 0..5_usize {
        for rotation in ROTATIONS[group % 2] {
            a = a.wrapping_add(b);
            b = b.rotate_left(rotation) ^ a;
        }
        let injection = group + 1;
        a = a.wrapping_add(keys[injection % 3]);
        b = b.wrapping_add(keys[(injection + 1) % 3]).wrapping_add(injection as u32);
    }
    [a, b]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the known-answer file of Random123 (`threefry2x32 20`).
    #[test]
    fn published_vectors() {
        assert_eq!(threefry([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        let pi = threefry([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]);
        assert_eq!(pi, [0xc492_3a9c, 0x483d_f7a0]);
    }
}
