//! Golden files, distributions, descriptions, and rejected parameters.

use super::*;
use infeed_core::sample::{Image, Region};

mod boxes;
mod depths;
mod descriptions;
mod draws;
mod golden;
mod outlines;
mod pixels;
mod points;
mod random;
mod torchvision;

fn size(height: u32, width: u32) -> Size {
    Size { height, width }
}

fn region(top: u32, left: u32, height: u32, width: u32) -> Region {
    Region {
        top,
        left,
        size: size(height, width),
    }
}

/// Returns an image whose bytes all differ from their neighbours.
fn numbered_image(size: Size, channels: usize, depth: Depth) -> Image {
    let mut image = Image::default();
    image.reset(size, channels, depth);
    for (i, byte) in image.data.iter_mut().enumerate() {
        *byte = (i * 7 + i / 251) as u8;
    }
    image
}

fn apply(step: &Step, image: &Image) -> Result<Image, TransformError> {
    let mut out = Image::default();
    step.apply(
        image.into(),
        &mut out,
        false,
        &mut TransformScratch::default(),
    )?;
    Ok(out)
}
