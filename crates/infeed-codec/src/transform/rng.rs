//! Random numbers as a function of their position.
//!
//! A generator has a key of seed, epoch, position and transform. Its numbers therefore do not
//! depend on earlier draws, on the worker, or on other samples. It uses only integer arithmetic;
//! the conversion of bits to numbers is exact on every machine.
//!
//! Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators" (2014), with
//! Stafford's variant 13 of the mixer; bounded integers after Lemire, "Fast Random Integer
//! Generation in an Interval" (2019).

use infeed_core::random::{hash, mix};

/// Separates the keys of draws from those of the order.
const DRAWS: u64 = 3;

/// Odd fraction of the golden ratio, the step of the Weyl sequence in splitmix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Random numbers for one transform of one sample.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates the generator of transform number `transform` (its index in the pipeline) for the
    /// sample at `position` of `epoch`.
    pub fn new(seed: u64, epoch: u64, position: u64, transform: u64) -> Rng {
        let state = hash(&[DRAWS, seed, epoch, position, transform]);
        Rng { state }
    }

    /// Draws 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// Draws a number between `low` and `high`, uniform with 53 bits.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        low + (high - low) * ((self.next_u64() >> 11) as f64 * UNIT)
    }

    /// Draws a number whose logarithm is uniform between those of `low` and `high`, both positive.
    pub fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        // libm instead of std: the last bit of the platform's logarithm may differ.
        libm::exp(self.uniform(libm::log(low), libm::log(high)))
    }

    /// Draws an integer of `0..n` with equal probability; 0 if `n` is 0.
    pub fn below(&mut self, n: u32) -> u32 {
        let mut draw = || u64::from((self.next_u64() >> 32) as u32) * u64::from(n);
        let mut product = draw();
        if (product as u32) < n {
            let threshold = n.wrapping_neg() % n;
            while (product as u32) < threshold {
                product = draw();
            }
        }
        (product >> 32) as u32
    }

    /// Brings items into a random order.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u32 + 1) as usize);
        }
    }

    /// Returns true with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform(0.0, 1.0) < p
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_stream_after_the_key_is_splitmix64() {
        let mut rng = Rng { state: 1_234_567 };

        let stream: Vec<u64> = (0..5).map(|_| rng.next_u64()).collect();

        // The published reference output for this seed.
        assert_eq!(
            stream,
            [
                6457827717110365317,
                3203168211198807973,
                9817491932198370423,
                4593380528125082431,
                16408922859458223821
            ]
        );
    }

    #[test]
    fn neighbouring_keys_share_no_output() {
        let mut seen = HashSet::new();

        for seed in 0..4 {
            for epoch in 0..4 {
                for position in 0..200 {
                    for transform in 0..4 {
                        let mut rng = Rng::new(seed, epoch, position, transform);
                        for _ in 0..4 {
                            assert!(
                                seen.insert(rng.next_u64()),
                                "{seed} {epoch} {position} {transform}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn flipping_one_bit_of_any_word_of_the_key_flips_half_of_the_output() {
        let mut flipped = 0u32;

        for word in 0..4 {
            for bit in 0..64 {
                let mut key = [7u64, 11, 13, 17];
                let before = Rng::new(key[0], key[1], key[2], key[3]).next_u64();
                key[word] ^= 1 << bit;
                let after = Rng::new(key[0], key[1], key[2], key[3]).next_u64();
                flipped += (before ^ after).count_ones();
            }
        }

        let mean = f64::from(flipped) / 256.0;
        assert!((mean - 32.0).abs() < 1.0, "{mean} of 64 bits");
    }

    #[test]
    fn integers_below_a_bound_are_equally_likely() {
        const DRAWS: u32 = 60_000;
        let mut counts = [0u32; 6];

        let mut rng = Rng::new(3, 1, 4, 1);
        for _ in 0..DRAWS {
            counts[rng.below(6) as usize] += 1;
        }

        let expected = f64::from(DRAWS) / 6.0;
        let chi2: f64 = counts
            .iter()
            .map(|&c| (f64::from(c) - expected).powi(2) / expected)
            .sum();
        assert!(
            chi2 < 20.5,
            "chi-square of {counts:?} is {chi2}, over the 0.1 % point of 5 dof"
        );
    }

    #[test]
    fn bounds_of_zero_and_one_leave_nothing_to_draw() {
        let mut rng = Rng::new(0, 0, 0, 0);

        assert_eq!(rng.below(0), 0);
        assert!((0..100).all(|_| rng.below(1) == 0));
        assert!((0..100).all(|_| !rng.chance(0.0) && rng.chance(1.0)));
    }
}
