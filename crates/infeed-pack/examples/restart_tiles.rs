//! Cost and gain of restart markers: JPEGs decoded whole, by region and by tiles of several widths,
//! and files with markers decoded whole, where tiles do not help:
//! `cargo run --release --example restart_tiles FOLDER [ROUNDS] [IMAGES]`.
//!
//! Every variant decodes the same regions, those of `RandomResizedCrop(224)`. Times are processor
//! time of one thread for decoding only. Variants take turns image by image, so that drift of the
//! machine affects all of them. The pixels of a region are compared with those of the whole image.

use std::path::{Path, PathBuf};
use std::time::Duration;

use infeed_codec::decode::{ColorMode, Decoder, Format, Header, Limits, Request};
use infeed_codec::transform::{RandomResizedCrop, Rng, Step, Transform};
use infeed_core::sample::{Image, Region};
use infeed_pack::with_restarts;
use infeed_raw::machine::thread_cpu_time;

/// Widths of tiles to try, in MCUs. The last means whole rows.
const WIDTHS: [u16; 9] = [1, 2, 3, 4, 6, 8, 16, 32, 8192];

/// Index of the width whose files are also decoded whole.
const WHOLE_OF: usize = 3;

/// A decoding variant and its time.
#[derive(Default)]
struct TileVariant {
    name: String,
    is_whole: bool,
    bytes: u64,
    cpu: Duration,
    regions: u32,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let Some(folder) = args.next().map(PathBuf::from) else {
        return Err("name a folder of JPEGs".into());
    };
    let mut number = |default: usize| match args.next() {
        Some(text) => text.to_string_lossy().parse::<usize>(),
        None => Ok(default),
    };
    let (rounds, images) = (number(4)?, number(1000)?);
    let mut files = Vec::new();
    list(&folder, &mut files)?;
    files.sort();

    let tiles = WIDTHS.map(|width| (format!("tiles of {width}"), false));
    let mut variants: Vec<TileVariant> = [("whole".to_owned(), true), ("region".to_owned(), false)]
        .into_iter()
        .chain(tiles)
        .chain([(format!("whole, of {}", WIDTHS[WHOLE_OF]), true)])
        .map(|(name, is_whole)| TileVariant {
            name,
            is_whole,
            ..TileVariant::default()
        })
        .collect();
    let mut decoder = Decoder::new();
    let mut left_out = 0;
    for (number, path) in files.iter().take(images).enumerate() {
        let bytes = std::fs::read(path)?;
        if Format::of(&bytes) != Some(Format::Jpeg) {
            continue;
        }
        let header = decoder.header(&bytes, false, &Limits::default())?;
        let rewritten: Option<Vec<Vec<u8>>> = WIDTHS
            .iter()
            .map(|&width| with_restarts(&bytes, &header, width))
            .collect();
        let Some(rewritten) = rewritten else {
            left_out += 1;
            continue;
        };
        let again = rewritten[WHOLE_OF].clone();
        let mut candidates = vec![bytes.clone(), bytes];
        candidates.extend(rewritten);
        candidates.push(again);
        let seeds = (number as u64, rounds as u64);
        one_image(&candidates, seeds, &mut decoder, &mut variants)?;
    }
    report(&variants, left_out);
    Ok(())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Decodes regions of an image with every variant. `candidates` has a file per variant. The tuple
/// has the image number and the number of regions.
fn one_image(
    candidates: &[Vec<u8>],
    (number, rounds): (u64, u64),
    decoder: &mut Decoder,
    variants: &mut [TileVariant],
) -> Result<(), Box<dyn std::error::Error>> {
    let limits = Limits::default();
    let headers: Vec<Header> = candidates
        .iter()
        .map(|bytes| decoder.header(bytes, false, &limits))
        .collect::<Result<_, _>>()?;
    let (mut whole, mut part) = (Image::default(), Image::default());
    for round in 0..rounds {
        let region = region(&headers[0], number, round)?;
        for (nth, ((bytes, header), variant)) in candidates
            .iter()
            .zip(&headers)
            .zip(&mut *variants)
            .enumerate()
        {
            let request = Request::whole(header, ColorMode::Rgb);
            let (region, out) = match (nth, variant.is_whole) {
                (0, _) => (header.size.whole(), &mut whole),
                (_, true) => (header.size.whole(), &mut part),
                (_, false) => (region, &mut part),
            };
            let request = Request { region, ..request };
            let begun = thread_cpu_time();
            decoder.decode(bytes, header, &request, out)?;
            variant.cpu += thread_cpu_time() - begun;
            variant.regions += 1;
            variant.bytes += if round == 0 { bytes.len() as u64 } else { 0 };
            if nth > 0 && !is_part(&part, &whole, region) {
                return Err(format!("{}: other pixels than the whole image", variant.name).into());
            }
        }
    }
    Ok(())
}

fn region(header: &Header, number: u64, round: u64) -> Result<Region, Box<dyn std::error::Error>> {
    let crop = Transform::from(RandomResizedCrop::new(224));
    let mut random = Rng::new(7, round, number, 0);
    let steps = crop.draw(header.size, &mut random)?;
    Ok(match steps.first() {
        Some(Step::Crop(region)) => *region,
        _ => header.size.whole(),
    })
}

fn is_part(part: &Image, whole: &Image, region: Region) -> bool {
    let pixel = whole.pixel_bytes();
    let columns = region.left as usize * pixel..region.right() as usize * pixel;
    (0..part.height()).all(|y| part.row(y) == &whole.row(region.top as usize + y)[columns.clone()])
}

fn report(variants: &[TileVariant], left_out: usize) {
    let Some(original) = variants.first() else {
        return;
    };
    println!(
        "{} regions; {left_out} images cannot be rewritten",
        original.regions
    );
    println!("{:<14} {:>10} {:>8} {:>8}", "variant", "ms", "x", "size");
    for variant in variants {
        let ms = variant.cpu.as_secs_f64() * 1e3 / f64::from(variant.regions.max(1));
        println!(
            "{:<14} {ms:>10.3} {:>8.2} {:>8.4}",
            variant.name,
            original.cpu.as_secs_f64() / variant.cpu.as_secs_f64(),
            variant.bytes as f64 / original.bytes as f64
        );
    }
}
