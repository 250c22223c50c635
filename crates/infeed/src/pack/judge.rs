//! What a lossy encoding does to the images, over a sample of them.

use super::chosen::Chosen;
use super::encoding::Encoding;
use super::fields::{FieldWork, Work};
use super::make::{Bench, Maker};
use super::quality::{psnr, ssim};
use crate::decode::{Limits, Request};
use crate::error::Error;
use crate::sample::Image;
use crate::source::read_one;

/// Images that are looked at.
const SAMPLE: u64 = 32;

/// How near images are to what they were before they were encoded, over a sample that is spread
/// evenly. Changes of size come before: they are asked for, and no loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fidelity {
    /// Images that were looked at.
    pub images: u64,
    /// Mean PSNR in decibels; infinite if none has changed.
    pub psnr_db: f64,
    /// That of the image that changed most.
    pub least_psnr_db: f64,
    /// Mean SSIM of those that are large enough for it; 1 is equal.
    pub ssim: f64,
    /// That of the image that changed most.
    pub least_ssim: f64,
}

/// Encodes a sample again and compares. None where nothing is encoded with loss.
///
/// # Errors
///
/// What the storage says; bad records are passed over.
pub(super) fn judge(maker: &Maker<'_>, chosen: &Chosen) -> Result<Option<Fidelity>, Error> {
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
    let mut bench = Bench::default();
    let mut found: Vec<(f64, Option<f64>)> = Vec::new();
    for nth in 0..count {
        // As a product of 128 bits: there may be more records than a square root of u64.
        let place = (u128::from(nth) * u128::from(chosen.len()) / u128::from(count)) as usize;
        match images(maker, chosen.at(place), &lossy, &mut bench, &mut found) {
            Err(error) if !error.is_bad_record() => return Err(error),
            _ => {}
        }
    }
    // Of what is kept only JPEGs lose anything.
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
    bench: &mut Bench,
    found: &mut Vec<(f64, Option<f64>)>,
) -> Result<(), Error> {
    let record = read_one(maker.source, number)?;
    for at in (0..maker.fields.len()).filter(|&at| lossy(&maker.fields[at])) {
        let product = maker.visual_alone(&record, at, bench)?;
        let before = std::mem::take(&mut bench.current);
        let limits = Limits {
            max_pixels: u64::MAX,
        };
        let Ok(header) = bench.decoder.header(&product.bytes, false, &limits) else {
            continue;
        };
        let mut after = Image::default();
        let request = Request::whole(&header, product.mode);
        let decoded = bench
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
