//! What a cache keeps of a record: the pixels up to the first random transform, or the columns after
//! deterministic functions.
//!
//! The leading transforms that draw nothing at random give the same pixels in every epoch, as does
//! decoding. A function is deterministic if its user says so with a version. If no transform draws at
//! random, the columns after the leading deterministic functions are the same in every epoch.

use super::sample_plan::SamplePlan;
use crate::fields::pixels::prepared_record::{PixelState, VERSION};
use infeed_codec::transform::{Effect, Step, Transform};
use infeed_core::random::{hash, hash_bytes};
use infeed_core::sample::Pixels;

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

impl SamplePlan {
    /// Number of leading transforms whose result is part of a prepared record.
    pub(crate) fn prepared_transforms(&self) -> usize {
        let is_fixed = |effect| matches!(effect, Effect::Crop | Effect::Resize);
        let leading = self.transforms.iter().take_while(|transform| {
            !transform.is_random() && is_fixed(transform.effect()) && transform.field().is_none()
        });
        leading.count()
    }

    /// Returns the drawn steps that the pixels of a record in this state still need.
    pub(crate) fn missing<'a>(
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
    pub(crate) fn preparable(&self, is_slow: bool) -> Result<KeptContent, NotPreparable> {
        if self.kept_functions() > 0 {
            return Ok(self.computed_content());
        }
        let prepared = &self.transforms[..self.prepared_transforms()];
        let resizes = prepared
            .iter()
            .any(|transform| transform.effect() == Effect::Resize);
        let others = self.others.iter().flat_map(|(pixels, _)| pixels);
        let all = self.pixels.iter().chain(others).flatten();
        if all.into_iter().any(|plan| plan.leaves_files) {
            return Err(NotPreparable::DeviceDecodes);
        }
        let mut parts = vec![VERSION];
        let mut is_encoded = false;
        for plan in self.pixels.iter().flatten() {
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

    /// Number of leading functions whose results a cache keeps.
    pub(crate) fn kept_functions(&self) -> usize {
        let is_fixed = self.join.is_none() && !self.transforms.iter().any(Transform::is_random);
        let kept = self.sample_calls().iter();
        let kept = kept.take_while(|call| call.version.is_some()).count();
        if is_fixed { kept } else { 0 }
    }

    /// Returns everything that decides the columns after the kept functions.
    pub(crate) fn computed_content(&self) -> KeptContent {
        let calls = &self.sample_calls()[..self.kept_functions()];
        let before = format!(
            "{} {:?} {:?} {:?} {:?} {:?}",
            env!("CARGO_PKG_VERSION"),
            self.pixels,
            self.columns,
            self.transforms,
            self.decode,
            self.kinds,
        );
        let mut parts = vec![VERSION, hash_bytes(before.as_bytes())];
        let mut only_here = None;
        for call in calls {
            let location = call.location();
            if location.is_none() {
                only_here.get_or_insert_with(|| call.name.clone());
            }
            let text = format!(
                "{location:?} {:?} {:?} {:?} {:?}",
                call.version, call.takes, call.gives, call.columns
            );
            parts.push(hash_bytes(text.as_bytes()));
        }
        KeptContent {
            identity: hash(&parts),
            only_here,
        }
    }
}
