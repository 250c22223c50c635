//! A subset of record numbers: one bit per record, and counts per block.

use infeed_core::random::hash;

/// Maximum number of records to select from: 2 GiB of bits.
pub const MAX_RECORDS: u64 = 1 << 34;

/// Bits of a block. The selected numbers before each block are counted in advance.
const BLOCK: u64 = 512;

/// Words of a block.
const WORDS: usize = (BLOCK / 64) as usize;

/// Numbers out of `0..all`, in ascending order.
///
/// # Cost
///
/// Slightly more than one bit per record. Finding the number at a position is a binary search;
/// finding the position of a number takes two steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subset {
    all: u64,
    len: u64,
    /// None: the first `len` numbers.
    bits: Option<Bits>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bits {
    words: Vec<u64>,
    /// Selected numbers before each block, and the total.
    before: Vec<u64>,
}

impl Subset {
    /// All numbers of `0..all`.
    pub fn whole(all: u64) -> Subset {
        Subset {
            all,
            len: all,
            bits: None,
        }
    }

    /// Keeps the first `len` numbers.
    pub fn first(self, len: u64) -> Subset {
        if len >= self.len {
            return self;
        }
        match self.bits {
            None => Subset { len, ..self },
            Some(_) => self.filter(|place, _| place < len),
        }
    }

    /// Keeps the numbers for which `keep(position, number)` is true. Callers reject more than
    /// [`MAX_RECORDS`].
    pub fn filter(&self, mut keep: impl FnMut(u64, u64) -> bool) -> Subset {
        let mut words = vec![0; self.all.div_ceil(64) as usize];
        for (place, number) in (0..).zip(self.numbers()) {
            if keep(place, number) {
                words[(number / 64) as usize] |= 1 << (number % 64);
            }
        }
        Subset::from_words(self.all, words)
    }

    /// Concatenates subsets; each begins where the range of the one before it ends.
    pub fn concat(parts: &[Subset]) -> Subset {
        let all: u64 = parts.iter().map(|part| part.all).sum();
        let firsts = parts.iter().scan(0, |sum, part| {
            let first = *sum;
            *sum += part.all;
            Some(first)
        });
        let mut words = vec![0; all.div_ceil(64) as usize];
        for (part, first) in parts.iter().zip(firsts) {
            for number in part.numbers().map(|number| first + number) {
                words[(number / 64) as usize] |= 1 << (number % 64);
            }
        }
        Subset::from_words(all, words)
    }

    fn from_words(all: u64, words: Vec<u64>) -> Subset {
        let mut before = Vec::with_capacity(words.len() / WORDS + 2);
        let mut len = 0;
        for block in words.chunks(WORDS) {
            before.push(len);
            len += block
                .iter()
                .map(|word| u64::from(word.count_ones()))
                .sum::<u64>();
        }
        before.push(len);
        Subset {
            all,
            len,
            bits: Some(Bits { words, before }),
        }
    }

    /// Number of selected numbers.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the subset is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of the range to select from.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// Whether all numbers are selected.
    pub fn is_whole(&self) -> bool {
        self.len == self.all
    }

    /// Returns the number at a position, which must be below [`Subset::len`].
    pub fn number(&self, place: u64) -> u64 {
        let Some(bits) = &self.bits else {
            return place;
        };
        let block = bits.before.partition_point(|&before| before <= place) - 1;
        let mut left = place - bits.before[block];
        let first = block * WORDS;
        for (at, &word) in bits.words[first..].iter().enumerate() {
            let ones = u64::from(word.count_ones());
            if left < ones {
                return ((first + at) as u64) * 64 + nth_one(word, left);
            }
            left -= ones;
        }
        // Unreachable: callers stay below the length.
        self.all
    }

    /// Returns how many selected numbers are below a number: the position of a selected number.
    pub fn before(&self, number: u64) -> u64 {
        let Some(bits) = &self.bits else {
            return number.min(self.len);
        };
        if number >= self.all {
            return self.len;
        }
        let word = (number / 64) as usize;
        let block = word / WORDS;
        let full = &bits.words[block * WORDS..word];
        let below = bits.words[word] & ((1 << (number % 64)) - 1);
        let ones = full
            .iter()
            .chain([&below])
            .map(|word| u64::from(word.count_ones()));
        bits.before[block] + ones.sum::<u64>()
    }

    /// Iterates over the numbers in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        let words = self.bits.as_ref().map_or(&[][..], |bits| &bits.words);
        let listed = (0..).zip(words).flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| u64::from(left.trailing_zeros()))?;
                left &= left - 1;
                Some(at * 64 + bit)
            })
        });
        let first = if self.bits.is_none() { self.len } else { 0 };
        (0..first).chain(listed)
    }

    /// Hash of the selected numbers and the range.
    pub fn fingerprint(&self) -> u64 {
        let words = self.bits.as_ref().map_or(&[][..], |bits| &bits.words);
        hash(&[self.all, self.len, hash(words)])
    }
}

/// Returns the position of the `nth` set bit of a word, counted from 0.
fn nth_one(mut word: u64, nth: u64) -> u64 {
    for _ in 0..nth {
        word &= word - 1;
    }
    u64::from(word.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(subset: &Subset, expected: &[u64]) {
        assert_eq!(subset.len(), expected.len() as u64);
        assert_eq!(subset.numbers().collect::<Vec<_>>(), expected);
        for (place, &number) in expected.iter().enumerate() {
            assert_eq!(subset.number(place as u64), number);
        }
        for number in 0..subset.all() + 2 {
            let below = expected.iter().filter(|&&one| one < number).count() as u64;
            assert_eq!(subset.before(number), below, "below {number}");
        }
    }

    #[test]
    fn positions_and_numbers_are_inverse_for_every_subset() {
        for all in [0, 1, 63, 64, 65, 511, 512, 513, 3000] {
            for step in [1, 2, 7, 64, 600, 5000] {
                let expected: Vec<u64> = (0..all).filter(|n| n % step == step - 1).collect();
                let chosen = Subset::whole(all).filter(|_, n| n % step == step - 1);
                holds(&chosen, &expected);

                let first = &expected[..expected.len() / 2];
                holds(&chosen.first(first.len() as u64), first);
            }
            holds(
                &Subset::whole(all).first(40),
                &(0..all.min(40)).collect::<Vec<_>>(),
            );
        }
    }

    #[test]
    fn filtering_a_subset_uses_its_positions() {
        let even = Subset::whole(2000).filter(|_, number| number % 2 == 0);

        let third = even.filter(|place, _| place % 3 == 1);

        holds(
            &third,
            &(0..2000).filter(|n| n % 6 == 2).collect::<Vec<_>>(),
        );
    }

    #[test]
    fn joined_parts_are_numbered_consecutively() {
        let odd = Subset::whole(77).filter(|_, number| number % 2 == 1);
        let parts = [odd, Subset::whole(5), Subset::whole(100).first(2)];

        let joined = Subset::concat(&parts);

        assert_eq!(joined.all(), 182);
        let expected = (0..77).filter(|n| n % 2 == 1).chain(77..84);
        holds(&joined, &expected.collect::<Vec<_>>());
    }

    #[test]
    fn different_subsets_have_different_fingerprints() {
        let of = |step: u64| {
            Subset::whole(100)
                .filter(|_, n| n % step == 0)
                .fingerprint()
        };

        assert_ne!(of(2), of(3));
        assert_ne!(of(1), Subset::whole(101).fingerprint());
    }
}
