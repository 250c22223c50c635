//! Compresses images as JPEG and decodes them again.
//!
//! Source: torchvision.transforms.v2.JPEG: libjpeg-turbo's defaults, with chroma at half of both
//! sides.

use serde::{Deserialize, Serialize};

use super::color_step::{ColorStep, check_color};
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::{Rng, Step, TransformError, ValuePair};
use infeed_core::sample::{Depth, Image, Size};
use infeed_raw::jpeg::{JpegDecoder, JpegTask, PixelFormat};
use infeed_raw::jpeg_encode::{MAX_SIDE, Subsampling, encode};

/// Compresses images as JPEG with a random quality and decodes them again. Leaves masks unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JPEG {
    /// Quality from 1 to 100, or its range.
    pub quality: ValuePair<u8>,
}

impl JPEG {
    /// Compresses with this quality, 1 to 100.
    pub fn new(quality: u8) -> JPEG {
        JPEG {
            quality: ValuePair::Both(quality),
        }
    }
}

impl Operation for JPEG {
    fn effect(&self) -> Effect {
        Effect::Color
    }

    fn is_random(&self) -> bool {
        let [low, high] = self.quality.values();
        low != high
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_color("JPEG", channels, depth)
    }

    fn validate(&self) -> Result<()> {
        let [low, high] = self.quality.values();
        Check("JPEG").holds(
            1 <= low && low <= high && high <= 100,
            "quality",
            [low, high],
            "from 1 to 100, or [low, high]",
        )
    }

    fn draw(&self, image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        if image.height.max(image.width) > MAX_SIDE {
            return Err(TransformError::Codec {
                transform: "JPEG",
                what: format!("an image of {image} px has a side over {MAX_SIDE} px"),
            });
        }
        let [low, high] = self.quality.values();
        let drawn = rng.below(u32::from(high - low) + 1) as u8;
        steps.push(Step::Color(vec![ColorStep::Compress(low + drawn)]));
        Ok(())
    }
}

/// Compresses an image of 1 or 3 channels of 8 bits and decodes it again.
pub(super) fn compress(image: &mut Image, quality: u8) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| TransformError::Codec {
        transform: "JPEG",
        what: error.to_string(),
    };
    let Size { height, width } = image.size;
    let task = JpegTask::whole(width, height);
    let (file, format) = match image.channels {
        3 => {
            let file = encode(&image.data, width, height, quality, Subsampling::Quarter);
            (file, PixelFormat::Rgb)
        }
        // The luma of three equal channels is their value.
        _ => {
            let pixels: Vec<u8> = image.data.iter().flat_map(|&v| [v; 3]).collect();
            let file = encode(&pixels, width, height, quality, Subsampling::Gray);
            (file, PixelFormat::Gray)
        }
    };
    let file = file.map_err(|error| failed(&error))?;
    JpegDecoder::new()
        .and_then(|mut decoder| {
            decoder.decode(&file, &JpegTask { format, ..task }, &mut image.data)
        })
        .map_err(|error| failed(&error))?;
    Ok(())
}
