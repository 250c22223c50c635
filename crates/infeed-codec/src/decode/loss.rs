//! Data of a file that its decoded pixels do not have, although the file is good.

use super::color::{ColorMode, SampleLayout};
use infeed_core::sample::Depth;

/// Data of a file that its decoded pixels do not have. [`super::Decoder::losses`] returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The low bytes of 16-bit samples, because the mode has 8 bits.
    LowBytes {
        /// Smallest sample of the decoded region, without alpha.
        least: u16,
        /// Largest sample of the decoded region, without alpha.
        most: u16,
    },
    /// The frames of an animation after the first one.
    Frames,
    /// The pages of a TIFF after the first one, which have other sizes.
    Pages,
    /// The channels of a TIFF after its colours, unless the only one is alpha.
    FurtherChannels,
}

impl Loss {
    /// Returns a number that is the same for all losses of one kind.
    pub fn kind(self) -> u8 {
        match self {
            Loss::LowBytes { .. } => 0,
            Loss::Frames => 1,
            Loss::Pages => 2,
            Loss::FurtherChannels => 3,
        }
    }

    /// Returns the name of the lost data.
    pub fn name(self) -> &'static str {
        match self {
            Loss::LowBytes { .. } => "low bytes left out",
            Loss::Frames => "frames after the first left out",
            Loss::Pages => "pages after the first left out",
            Loss::FurtherChannels => "further channels left out",
        }
    }

    /// Returns the lost data of a field, and the option that keeps them.
    pub fn message(self, field: &str) -> String {
        match self {
            Loss::LowBytes { least, most } => format!(
                "values {least} to {most} of 65535 become {} to {} of 255; use \
                 .decode({field}=\"stored16\") to keep 16 bits",
                least >> 8,
                most >> 8
            ),
            Loss::Frames => "the file is an animation, and only its first frame is used; save the \
                             frames as files to use them"
                .to_owned(),
            Loss::Pages => "the file has several pages of different sizes, and only the first one \
                            is used; save the pages as files to use them"
                .to_owned(),
            Loss::FurtherChannels => {
                "the file has channels after its colours, which are left out; \
                                      store them as arrays to use them (`npy` in shards, \
                                      `sources.Memory`)"
                    .to_owned()
            }
        }
    }
}

/// Range of the 16-bit samples that become 8-bit samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NarrowedSamples {
    /// Smallest and largest sample. None without samples.
    range: Option<[u16; 2]>,
    /// Bits that are set in any low byte.
    low_bits: u8,
    /// Bits in which any low byte differs from its high byte.
    unlike_bits: u8,
}

impl NarrowedSamples {
    /// Adds the pixels of a row in `layout` that are converted to `mode`. Costs nothing unless 16
    /// bits become 8.
    pub(super) fn add(&mut self, row: &[u8], layout: SampleLayout, mode: ColorMode) {
        if layout.depth == Depth::U8 || mode == ColorMode::Stored16 {
            return;
        }
        match (layout.channels, layout.is_big_endian) {
            (1 | 3, true) => self.add_all::<0>(row),
            (1 | 3, false) => self.add_all::<1>(row),
            (channels, is_big_endian) => {
                let pixels = row.chunks_exact(2 * channels);
                let colors = pixels.map(|pixel| &pixel[..2 * (channels - 1)]);
                match is_big_endian {
                    true => colors.for_each(|samples| self.add_all::<0>(samples)),
                    false => colors.for_each(|samples| self.add_all::<1>(samples)),
                }
            }
        }
    }

    /// Adds samples whose high byte is at `HIGH`.
    fn add_all<const HIGH: usize>(&mut self, samples: &[u8]) {
        let [mut least, mut most] = self.range.unwrap_or([u16::MAX, 0]);
        let (mut low_bits, mut unlike_bits) = (self.low_bits, self.unlike_bits);
        for sample in samples.as_chunks::<2>().0 {
            let (high, low) = (sample[HIGH], sample[1 - HIGH]);
            let value = u16::from_be_bytes([high, low]);
            least = least.min(value);
            most = most.max(value);
            low_bits |= low;
            unlike_bits |= high ^ low;
        }
        self.low_bits = low_bits;
        self.unlike_bits = unlike_bits;
        self.range = (least <= most).then_some([least, most]);
    }

    /// Returns the loss. None if 8 bits hold the same values: all low bytes are 0, or each equals
    /// its high byte, as in 8-bit images that another program widened.
    pub(super) fn loss(&self) -> Option<Loss> {
        let [least, most] = self.range?;
        let is_lost = self.low_bits != 0 && self.unlike_bits != 0;
        is_lost.then_some(Loss::LowBytes { least, most })
    }
}
