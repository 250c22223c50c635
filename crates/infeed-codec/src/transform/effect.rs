//! Changes that transforms make.

/// Changes that a transform makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Keeps a region of images and masks.
    Crop,
    /// Mirrors images and masks.
    Flip,
    /// Resamples images and masks to another size.
    Resize,
    /// Adds pixels to images and masks.
    Pad,
    /// Resamples images and masks along a map of positions.
    Warp,
    /// Changes the colours of images.
    Color,
    /// Overwrites pixels of images.
    Erase,
    /// Drops boxes.
    Boxes,
    /// Changes the type and scale of images' values while they are written to the batch.
    Scale,
    /// Replaces masks by classes while they are written to the batch.
    Classes,
    /// Mixes two finished samples.
    Mix,
}

impl Effect {
    /// Whether images and masks are changed together.
    pub fn is_geometric(self) -> bool {
        matches!(
            self,
            Effect::Crop | Effect::Flip | Effect::Resize | Effect::Pad | Effect::Warp
        )
    }
}
