//! Error of the pixels and gain in time when JPEGs are decoded at a reduced DCT scale:
//! `cargo run --release --example dct_scale FOLDER [ROUNDS]`.
//!
//! Rates are for one core: images per processor time that one worker spent on decoding, resizing
//! and writing rows. Both variants use the same crops, because draws depend only on the size.

use std::path::{Path, PathBuf};
use std::time::Duration;

use infeed::Options;
use infeed::pipeline::{Pipeline, SourceSpec};
use infeed_codec::quality::psnr;
use infeed_codec::transform::{CenterCrop, RandomResizedCrop, Resize};
use infeed_core::batch::Array;
use infeed_core::counters::Stage;
use infeed_core::sample::{Depth, Image, Size};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let Some(folder) = args.next().map(PathBuf::from) else {
        return Err("name a folder of JPEGs".into());
    };
    let rounds = match args.next() {
        Some(rounds) => rounds.to_string_lossy().parse::<usize>()?.max(1),
        None => 5,
    };
    let random = base(&folder).transform(RandomResizedCrop::new(224));
    let fixed = base(&folder)
        .transform(Resize::new(256))
        .transform(CenterCrop::new(224));
    for (name, pipeline) in [
        ("RandomResizedCrop(224)", random),
        ("Resize(256), CenterCrop(224)", fixed),
    ] {
        compare(name, &pipeline, rounds)?;
    }
    Ok(())
}

fn base(folder: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(folder))
        .shuffle(0)
        .decode()
}

/// Returns the pipeline with or without a reduced scale.
fn with_dct_scale(pipeline: &Pipeline, dct_scale: bool) -> Pipeline {
    let mut pipeline = pipeline.clone();
    if let Some(decode) = &mut pipeline.decode {
        decode.dct_scale = dct_scale;
    }
    pipeline
}

fn compare(
    name: &str,
    pipeline: &Pipeline,
    rounds: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let (exact, reduced) = (
        with_dct_scale(pipeline, false),
        with_dct_scale(pipeline, true),
    );
    let (one, other) = (epoch(&exact)?.0, epoch(&reduced)?.0);
    let finite = |(one, other): (&Image, &Image)| psnr(one, other);
    let all: Vec<f64> = one.iter().zip(&other).filter_map(finite).collect();
    let mut differ: Vec<f64> = all.iter().copied().filter(|db| db.is_finite()).collect();
    differ.sort_by(f64::total_cmp);
    let mean = differ.iter().sum::<f64>() / differ.len().max(1) as f64;
    let at = |share: f64| differ.get((differ.len() as f64 * share) as usize).copied();
    println!(
        "{name}: {} images, {} decoded at a reduced scale; of those PSNR mean {mean:.1} dB, \
         5th percentile {:.1}, min {:.1}",
        all.len(),
        differ.len(),
        at(0.05).unwrap_or(f64::INFINITY),
        at(0.0).unwrap_or(f64::INFINITY),
    );
    // In turn, because the machine's clock rate drifts.
    let mut ratios = Vec::with_capacity(rounds);
    let mut rates = [0.0_f64; 2];
    for _ in 0..rounds {
        let times = [epoch(&exact)?.1, epoch(&reduced)?.1];
        ratios.push(times[0].as_secs_f64() / times[1].as_secs_f64());
        for (rate, time) in rates.iter_mut().zip(times) {
            *rate = rate.max(one.len() as f64 / time.as_secs_f64());
        }
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "  {:.0} images/s exact, {:.0} reduced (best of {rounds} epochs each); ratio median \
         {:.3}, {:.3} to {:.3}",
        rates[0],
        rates[1],
        ratios[rounds / 2],
        ratios[0],
        ratios[rounds - 1],
    );
    Ok(())
}

/// Returns the pixels of one epoch, and the processor time of its worker.
fn epoch(pipeline: &Pipeline) -> Result<(Vec<Image>, Duration), infeed::Error> {
    let mut options = Options::default();
    options.workers = Some(1);
    let loader = pipeline.clone().batch(1).open(&options)?;
    let mut images = Vec::new();
    while let Some(batch) = loader.next_batch()? {
        images.extend(batch.array("image").map(image));
    }
    let stats = loader.stats()?;
    let work = [Stage::Decode, Stage::Transform, Stage::Write];
    let spent = stats
        .stages
        .iter()
        .filter(|(stage, _)| work.contains(stage));
    Ok((images, spent.map(|(_, counted)| counted.cpu).sum()))
}

fn image(array: &Array) -> Image {
    let shape = array.shape();
    let mut image = Image::default();
    let size = Size {
        height: shape[1] as u32,
        width: shape[2] as u32,
    };
    image.reset(size, shape[3], Depth::U8);
    image.data.copy_from_slice(array.bytes());
    image
}
