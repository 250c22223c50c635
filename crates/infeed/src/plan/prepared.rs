//! Samples up to the first random transform, for the cache of decoded records.
//!
//! The leading transforms that draw nothing at random give the same pixels in every epoch, as does
//! decoding. A prepared record holds these pixels in place of its encoded images. Making a sample
//! of it runs the remaining transforms and gives the same bits as the stored record.
//!
//! Bytes of a prepared record: the number of fields and the length of each (u32), then the fields,
//! each at a multiple of 8. Visual fields have height, width, and height, width and EXIF orientation
//! of the image before any transform (u32), then their pixels without padding between rows. Others
//! are as the source stores them. All numbers are little-endian.

use bytes::Bytes;

use super::failure::{SampleError, StageFailure};
use super::fold::{FoldedSteps, fold};
use super::sample::{AdmitMemory, Position, SampleScratch, VisualField};
use super::{FieldPlan, Plan};
use infeed_codec::decode::{ImageFrame, Request};
use infeed_codec::transform::{Effect, Step};
use infeed_core::counters::{Stage, ThreadCounters};
use infeed_core::random::{hash, hash_bytes};
use infeed_core::sample::{Pixels, Record, Size};

/// Version of the bytes of prepared records and of the pixels that the decoders give.
pub(super) const VERSION: u64 = 1;

/// Alignment of fields.
const ALIGN: usize = 8;

/// Bytes of a visual field before its pixels: five numbers.
const SIZE_BYTES: usize = 20;

/// How a record holds its images and masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelState {
    /// As the source stores them.
    Stored,
    /// Decoded and transformed up to the first random transform.
    Prepared,
    /// After user functions. All fields are columns.
    Computed,
}

/// Everything that decides the bytes of records in a cache, the source aside.
#[derive(Debug)]
pub(crate) struct KeptContent {
    /// Hash of all of it.
    pub(crate) identity: u64,
    /// A function that other processes cannot find, so that they cannot have the same records.
    pub(crate) only_here: Option<String>,
}

/// Reason why no record can be prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotPreparable {
    /// The stored records need no decoding and no resizing.
    NothingToDo,
    /// A device decodes files.
    DeviceDecodes,
    /// The DCT scale depends on random parameters.
    DctScale,
}

impl Plan {
    /// Number of leading transforms whose result is part of a prepared record.
    fn prepared_transforms(&self) -> usize {
        let is_fixed = |effect| matches!(effect, Effect::Crop | Effect::Resize);
        let leading = self.transforms.iter().take_while(|transform| {
            !transform.is_random() && is_fixed(transform.effect()) && transform.field().is_none()
        });
        leading.count()
    }

    /// Returns the drawn steps that the pixels of a record in this state still need.
    pub(super) fn missing<'a>(
        &self,
        drawn: &'a [(usize, Step)],
        state: PixelState,
    ) -> &'a [(usize, Step)] {
        match state {
            PixelState::Stored => drawn,
            PixelState::Prepared | PixelState::Computed => {
                let end = self.prepared_transforms();
                &drawn[drawn.partition_point(|(transform, _)| *transform < end)..]
            }
        }
    }

    /// State of the records that a cache keeps.
    pub(crate) fn cached_state(&self) -> PixelState {
        match self.kept_functions() {
            0 => PixelState::Prepared,
            _ => PixelState::Computed,
        }
    }

    /// Checks that records can be prepared. Returns what decides their bytes, the source aside.
    /// `is_slow` sources are worth a cache even if there is nothing to decode.
    ///
    /// # Errors
    ///
    /// The reason why they cannot, or why it would be useless.
    pub(crate) fn preparable<'a>(&'a self, is_slow: bool) -> Result<KeptContent, NotPreparable> {
        if self.kept_functions() > 0 {
            return Ok(self.computed_content());
        }
        let prepared = &self.transforms[..self.prepared_transforms()];
        let resizes = prepared
            .iter()
            .any(|transform| transform.effect() == Effect::Resize);
        let visual = |fields: &'a [FieldPlan]| {
            fields.iter().filter_map(|field| match field {
                FieldPlan::Pixels(plan) => Some(plan),
                _ => None,
            })
        };
        let others = self.others.iter().flat_map(|(fields, _)| visual(fields));
        if visual(&self.fields)
            .chain(others)
            .any(|plan| plan.leaves_files)
        {
            return Err(NotPreparable::DeviceDecodes);
        }
        let mut parts = vec![VERSION];
        let mut is_encoded = false;
        for plan in visual(&self.fields) {
            is_encoded |= plan.stored == Pixels::Encoded;
            let (mode, channels, depth) = (plan.mode, plan.channels, plan.depth);
            let text = format!(
                "{} {:?} {mode:?} {channels} {depth:?}",
                plan.name, plan.stored
            );
            parts.push(hash_bytes(text.as_bytes()));
        }
        if !is_encoded && !resizes && !is_slow {
            return Err(NotPreparable::NothingToDo);
        }
        if self.decode.dct_scale && !resizes {
            return Err(NotPreparable::DctScale);
        }
        let settings = format!(
            "{} {:?} {:?}",
            env!("CARGO_PKG_VERSION"),
            self.decode,
            prepared
        );
        parts.push(hash_bytes(settings.as_bytes()));
        Ok(KeptContent {
            identity: hash(&parts),
            only_here: None,
        })
    }

    /// Decodes a record and runs its leading transforms. Asks `has_room` before decoding whether
    /// the bytes of the result are wanted. Returns them; `None` if they are not, or if a decoder
    /// warns about the record, so that the warning is repeated in every epoch.
    ///
    /// # Errors
    ///
    /// The error of the record. It may concern pixels that its sample does not use.
    pub(crate) fn prepare(
        &self,
        record: &Record,
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
        admit: AdmitMemory<'_>,
        has_room: impl FnOnce(u64) -> bool,
    ) -> Result<Option<Vec<u8>>, StageFailure> {
        scratch.meter.start();
        let looked = self.look(record, PixelState::Stored, &self.fields, scratch)?;
        // No prepared transform draws at random, so any position gives the same steps.
        let (end, at) = (self.prepared_transforms(), Position::default());
        let mut drawn = self.draw(record, &looked, at)?;
        drawn.retain(|(transform, _)| *transform < end);
        let mut arranged = Vec::with_capacity(looked.len());
        let mut needed = 0;
        let mut lengths: Vec<usize> = record.fields.iter().map(Bytes::len).collect();
        for look in &looked {
            let folded = fold(&look.plan.steps, &drawn, look.size);
            let request = self.request(look, &folded);
            needed += look.scratch_bytes(&folded, request.as_ref(), &scratch.decoder);
            let pixels = folded.view.size.pixels() * look.pixel_bytes() as u64;
            lengths[look.field] = SIZE_BYTES.saturating_add(pixels as usize);
            arranged.push((folded, request));
        }
        let Some((starts, total)) = layout(&lengths).filter(|(_, total)| has_room(*total as u64))
        else {
            return Ok(None);
        };
        scratch.meter.lap(Stage::Decode, counters);
        admit(needed + total as u64).map_err(|error| error.in_field(0))?;
        counters.waited(Stage::Decode, scratch.meter.skip());
        let mut bytes = std::mem::take(&mut scratch.prepared);
        bytes.resize(total, 0);
        bytes[..4].copy_from_slice(&(lengths.len() as u32).to_le_bytes());
        for (at, length) in lengths.iter().enumerate() {
            bytes[4 + 4 * at..][..4].copy_from_slice(&(*length as u32).to_le_bytes());
        }
        for (field, stored) in record.fields.iter().enumerate() {
            if !matches!(self.fields[field], FieldPlan::Pixels(_)) {
                bytes[starts[field]..][..stored.len()].copy_from_slice(stored);
            }
        }
        let before = scratch.warnings;
        for (look, (folded, request)) in looked.iter().zip(&arranged) {
            let to = &mut bytes[starts[look.field]..][..lengths[look.field]];
            self.prepare_field(look, folded, request.as_ref(), to, scratch, counters)?;
        }
        scratch.meter.settle(counters);
        if scratch.warnings > before {
            scratch.warnings = before;
            return Ok(None);
        }
        Ok(Some(bytes))
    }

    /// Writes one visual field of a prepared record.
    fn prepare_field(
        &self,
        look: &VisualField<'_>,
        folded: &FoldedSteps,
        request: Option<&Request>,
        to: &mut [u8],
        scratch: &mut SampleScratch,
        counters: &ThreadCounters,
    ) -> Result<(), StageFailure> {
        self.with_pixels(
            look,
            folded,
            request,
            scratch,
            counters,
            false,
            |view, _, _| {
                let size = view.size();
                let (header, pixels) = to.split_at_mut(SIZE_BYTES);
                let ImageFrame {
                    size: of,
                    orientation,
                } = look.frame;
                let numbers = [
                    size.height,
                    size.width,
                    of.height,
                    of.width,
                    orientation.into(),
                ];
                for (to, number) in header.chunks_exact_mut(4).zip(numbers) {
                    to.copy_from_slice(&number.to_le_bytes());
                }
                let row_bytes = (view.width() * view.pixel_bytes()).max(1);
                for (y, row) in pixels.chunks_exact_mut(row_bytes).enumerate() {
                    row.copy_from_slice(view.row(y));
                }
                Ok(())
            },
        )?;
        scratch.meter.lap(Stage::Decode, counters);
        Ok(())
    }
}

/// Returns the offset of each field, and the bytes of all. `None` for a record of over 4 GiB.
pub(super) fn layout(lengths: &[usize]) -> Option<(Vec<usize>, usize)> {
    let mut at = lengths.len().checked_mul(4)?.checked_add(4)?;
    let mut starts = Vec::with_capacity(lengths.len());
    for length in lengths {
        at = at.checked_next_multiple_of(ALIGN)?;
        starts.push(at);
        at = at.checked_add(*length)?;
    }
    u32::try_from(at).is_ok().then_some((starts, at))
}

/// Reads a prepared record, without copies. `None` if the bytes are not one.
pub(crate) fn read(index: u64, bytes: &Bytes) -> Option<Record> {
    let number = |at: usize| {
        let bytes = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let count = number(0)?;
    if count > bytes.len() / 4 {
        return None;
    }
    let lengths = (0..count).map(|field| number(4 + 4 * field));
    let lengths = lengths.collect::<Option<Vec<usize>>>()?;
    let (starts, total) = layout(&lengths)?;
    if total > bytes.len() {
        return None;
    }
    let fields = starts.iter().zip(&lengths);
    let fields = fields.map(|(&start, &length)| bytes.slice(start..start + length));
    Some(Record {
        index,
        fields: fields.collect(),
    })
}

/// Splits a prepared visual field into the size of its pixels, the image before any transform, and
/// the pixels.
pub(super) fn pixels(bytes: &[u8], pixel_bytes: usize) -> Option<(Size, ImageFrame, &[u8])> {
    let (header, pixels) = bytes.split_at_checked(SIZE_BYTES)?;
    let number = |at: usize| {
        let bytes = header.get(4 * at..4 * at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let size = |at| {
        let (height, width) = (number(at)?, number(at + 1)?);
        Some(Size { height, width })
    };
    let frame = ImageFrame {
        size: size(2)?,
        orientation: number(4)?.try_into().ok()?,
    };
    let size = size(0)?;
    let expected = size.pixels().checked_mul(pixel_bytes as u64)?;
    (expected == pixels.len() as u64).then_some((size, frame, pixels))
}

/// Error of a prepared field whose bytes are not its pixels.
pub(super) fn damaged() -> SampleError {
    SampleError::Shape {
        found: "other bytes in the cache".to_owned(),
        expected: "decoded pixels".to_owned(),
        fix: "open the pipeline without `cache`",
    }
}
