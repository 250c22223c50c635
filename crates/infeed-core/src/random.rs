//! Randomness as a function: hashes of keys, so there is no generator state to save.
//!
//! Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014) for
//! the mixing function; the constants are Stafford's variant 13.

/// Mixes 64 bits so that each bit of the input changes each bit of the output with probability 1/2.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Hashes a list of numbers. Order and length matter. Parts are never added, so (seed 5, epoch 1)
/// is unrelated to (seed 6, epoch 0).
pub fn hash(parts: &[u64]) -> u64 {
    parts.iter().fold(mix(parts.len() as u64), |state, &part| {
        mix(state.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ mix(part.wrapping_add(0x9E37_79B9_7F4A_7C15)))
    })
}

/// Key of the random draws of code that the engine calls: the same for a sample, a batch or a record on
/// every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawKey(pub [u64; 2]);

impl DrawKey {
    /// Creates the key for code number `number` at a position. `purpose` separates its draws from all
    /// others.
    pub fn new(purpose: u64, seed: u64, epoch: u64, position: u64, number: u64) -> DrawKey {
        let word = |half| hash(&[purpose, half, seed, epoch, position, number]);
        DrawKey([word(0), word(1)])
    }
}

/// Hashes bytes to a number that is the same on every machine. Not cryptographic: collisions can be
/// constructed.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let state = chunks.fold(mix(bytes.len() as u64), |state, word| {
        mix(state.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ word)
    });
    mix(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_neighbouring_keys_differ_in_about_half_their_bits() {
        let mut flipped = 0;
        for seed in 0..64 {
            for epoch in 0..64 {
                flipped += (hash(&[seed, epoch]) ^ hash(&[seed + 1, epoch])).count_ones();
                flipped += (hash(&[seed, epoch]) ^ hash(&[seed, epoch + 1])).count_ones();
            }
        }

        let mean = f64::from(flipped) / (2.0 * 64.0 * 64.0);
        assert!((31.5..32.5).contains(&mean), "mean {mean}");
    }

    #[test]
    fn bytes_that_differ_anywhere_hash_differently() {
        let texts: [&[u8]; 7] = [
            b"",
            b"a",
            b"b",
            b"a\0",
            b"abcdefgh",
            b"abcdefghi",
            b"bbcdefgh",
        ];
        for (at, one) in texts.iter().enumerate() {
            for other in &texts[at + 1..] {
                assert_ne!(hash_bytes(one), hash_bytes(other));
            }
        }
    }

    #[test]
    fn seed_and_epoch_are_not_interchangeable() {
        assert_ne!(hash(&[5, 1]), hash(&[6, 0]));
        assert_ne!(hash(&[5, 1]), hash(&[1, 5]));
        assert_ne!(hash(&[5]), hash(&[5, 0]));
    }
}
