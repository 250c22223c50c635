//! Measures the loss of a lossy encoding on a sample of the images.

use super::encoding::Encoding;
use super::fields::{FieldWork, Work};
use super::make::{Maker, PackScratch};
use super::selection::RecordSelection;
use infeed_codec::decode::{Limits, Request};
use infeed_codec::quality::{psnr, ssim};
use infeed_core::error::Error;
use infeed_core::sample::Image;
use infeed_source::read_one;

/// Number of images to measure.
const SAMPLE: u64 = 32;

/// Similarity of images before and after encoding, over an evenly spread sample. Resizing is
/// applied before the comparison, because the user asked for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fidelity {
    /// Number of measured images.
    pub images: u64,
    /// Mean PSNR in decibels. Infinite if no image changed.
    pub psnr_db: f64,
    /// Lowest PSNR of all images.
    pub least_psnr_db: f64,
    /// Mean SSIM of the images that are large enough for it. 1 means equal.
    pub ssim: f64,
    /// Lowest SSIM of all images.
    pub least_ssim: f64,
}

/// Encodes a sample again and compares. None if no encoding is lossy.
///
/// # Errors
///
/// Returns the error of the storage. Skips bad records.
pub(super) fn judge(
    maker: &Maker<'_>,
    chosen: &RecordSelection,
) -> Result<Option<Fidelity>, Error> {
    let lossy = |field: &FieldWork| {
        let work = &field.work;
        let jpeg = matches!(
            work,
            Work::Encode {
                encoding: Encoding::Jpeg { .. },
                ..
            }
        );
        let kept = matches!(
            work,
            Work::Encode {
                encoding: Encoding::Keep,
                ..
            }
        );
        !field.is_mask && (jpeg || kept)
    };
    if !maker.fields.iter().any(lossy) {
        return Ok(None);
    }
    let count = chosen.len().min(SAMPLE);
    let mut scratch = PackScratch::default();
    let mut found: Vec<(f64, Option<f64>)> = Vec::new();
    for nth in 0..count {
        // In 128 bits, because the product may exceed u64.
        let position = (u128::from(nth) * u128::from(chosen.len()) / u128::from(count)) as usize;
        match images(maker, chosen.at(position), &lossy, &mut scratch, &mut found) {
            Err(error) if !error.is_bad_record() => return Err(error),
            _ => {}
        }
    }
    // With `Keep`, only JPEGs lose anything.
    let changed = found.iter().any(|(psnr, _)| psnr.is_finite());
    let named = |field: &FieldWork| {
        matches!(
            field.work,
            Work::Encode {
                encoding: Encoding::Jpeg { .. },
                ..
            }
        )
    };
    if found.is_empty() || !(changed || maker.fields.iter().any(named)) {
        return Ok(None);
    }
    let similar: Vec<f64> = found.iter().filter_map(|(_, ssim)| *ssim).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let noise: Vec<f64> = found.iter().map(|(psnr, _)| *psnr).collect();
    Ok(Some(Fidelity {
        images: found.len() as u64,
        psnr_db: mean(&noise),
        least_psnr_db: least(&noise),
        ssim: if similar.is_empty() {
            1.0
        } else {
            mean(&similar)
        },
        least_ssim: if similar.is_empty() {
            1.0
        } else {
            least(&similar)
        },
    }))
}

/// Compares the lossy images of one record.
fn images(
    maker: &Maker<'_>,
    number: u64,
    lossy: &dyn Fn(&FieldWork) -> bool,
    scratch: &mut PackScratch,
    found: &mut Vec<(f64, Option<f64>)>,
) -> Result<(), Error> {
    let record = read_one(maker.source, number)?;
    for at in (0..maker.fields.len()).filter(|&at| lossy(&maker.fields[at])) {
        let product = maker.visual_alone(&record, at, scratch)?;
        let before = std::mem::take(&mut scratch.current);
        let limits = Limits {
            max_pixels: u64::MAX,
        };
        let Ok(header) = scratch.decoder.header(&product.bytes, false, &limits) else {
            continue;
        };
        let mut after = Image::default();
        let request = Request::whole(&header, product.mode);
        let decoded = scratch
            .decoder
            .decode(&product.bytes, &header, &request, &mut after);
        if decoded.is_ok()
            && let Some(noise) = psnr(&before, &after)
        {
            found.push((noise, ssim(&before, &after)));
        }
    }
    Ok(())
}
