//! Compares the pixels of two variants on the same records with the same random draws.

use crate::measure::variant::Variant;
use infeed::loader::DecodeBy;
use infeed_codec::quality::{psnr, ssim};
use infeed_codec::transform::Effect;
use infeed_core::batch::Values;
use infeed_core::error::Error;
use infeed_core::sample::{DType, Depth, Image, Size};

/// Number of samples compared. The report states their mean, and means of quality vary little.
const COMPARED: u64 = 24;

/// Difference of the pixels of two variants.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PixelDifference {
    /// All compared pixels are equal.
    None,
    /// The pixels differ, or could not be compared. The text has the measure or the reason.
    Lossy(String),
}

/// Compares the images of two variants.
pub(super) fn difference(base: &Variant, other: &Variant) -> Result<PixelDifference, Error> {
    let (base, other) = (samples(base)?, samples(other)?);
    let lossy = |text: &str| Ok(PixelDifference::Lossy(text.to_owned()));
    if base
        .iter()
        .zip(&other)
        .any(|(a, b)| a.size != b.size || a.channels != b.channels)
    {
        return lossy("images of another shape");
    }
    if base.is_empty() || other.is_empty() {
        // Without an image to compare, "identical" would be unproven.
        return lossy("not compared: no images");
    }
    let differing = || base.iter().zip(&other).filter(|(a, b)| a.data != b.data);
    if differing().next().is_none() {
        return Ok(PixelDifference::None);
    }
    let differing: Vec<(f64, f64)> = differing()
        .filter_map(|(a, b)| Some((psnr(a, b)?, ssim(a, b)?)))
        .collect();
    if differing.is_empty() {
        return lossy("not compared: the images are too small");
    }
    let count = differing.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| differing.iter().map(of).sum::<f64>() / count;
    Ok(PixelDifference::Lossy(format!(
        "PSNR {:.1} dB, SSIM {:.3}",
        mean(|(psnr, _)| *psnr),
        mean(|(_, ssim)| *ssim),
    )))
}

/// Returns the first images of a run, one per batch, before they become floats, are mixed or go
/// through Python functions.
fn samples(variant: &Variant) -> Result<Vec<Image>, Error> {
    let mut pipeline = variant.pipeline.plain();
    pipeline.transforms.retain(|transform| {
        !matches!(
            transform.effect(),
            Effect::Scale | Effect::Erase | Effect::Mix
        )
    });
    pipeline.python.clear();
    pipeline.output = Default::default();
    let pipeline = pipeline.batch(1);
    // Without a device, because the comparison is about records and not about the decoder.
    let mut options = variant.options.clone();
    options.decode = DecodeBy::Auto;
    let loader = pipeline.open_over(variant.source.clone(), &options)?;
    let mut images = Vec::new();
    for _ in 0..COMPARED {
        let Some(batch) = loader.next_batch()? else {
            break;
        };
        let Some(Values::Array(array)) = batch.get("image") else {
            continue;
        };
        if let (DType::UInt8, &[1, height, width, channels]) = (array.dtype(), array.shape()) {
            images.push(Image {
                size: Size {
                    height: height as u32,
                    width: width as u32,
                },
                channels,
                depth: Depth::U8,
                data: array.bytes().to_vec(),
            });
        }
    }
    Ok(images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed::loader::Options;
    use infeed::pipeline::{Pipeline, SourceSpec};
    use infeed_codec::transform::RandomResizedCrop;
    use infeed_sample::{Subsampling, jpeg};

    #[test]
    fn variants_that_decode_on_a_device_are_compared_on_the_host() {
        let root = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(root.path().join("all")).expect("a new folder");
        let mut image = Image::default();
        let (height, width) = (40, 32);
        image.reset(Size { height, width }, 3, Depth::U8);
        let bytes = jpeg(&image, 4, Subsampling::Quarter).expect("encodes");
        std::fs::write(root.path().join("all/0.jpg"), bytes).expect("writes");
        let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
            .decode()
            .transform(RandomResizedCrop::new(16));
        let mut options = Options::default();
        options.decode = DecodeBy::Gpu;
        let variant = Variant {
            source: pipeline.source.open(&[]).expect("a folder"),
            pipeline,
            options,
            step: None,
            row_placement: None,
            cores: None,
            selects: false,
        };

        let same = difference(&variant, &variant).expect("it runs");

        assert_eq!(same, PixelDifference::None);
    }
}
