//! `infeed pack`: rewrites a dataset once into a form that is cheaper to read.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, ValueEnum};
use infeed::pack::{Encoding, PackOptions, Packed, Target as To};
use infeed::pipeline::Pipeline;
use infeed::sample::Size;
use infeed::transform::{CenterCrop, Crop, Resize, Transform};
use serde_json::json;

use crate::error::CliError;
use crate::target::Target;
use crate::terminal::{bar, human_bytes, human_seconds};
use crate::{Outcome, args, interrupt};

/// The packed pipeline, where the source was one.
const PIPELINE: &str = "pipeline.toml";

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed pack photos photos-256 --to folder --short-side 256
  infeed pack streets streets-fast --to folder --image png-fast
  infeed pack photos photos-tiles --to folder --restart-index
  infeed pack photos arrays --to arrays --short-side 256 --center-crop 224x224

An encoding is one of
  keep           files that are not resized are copied; others stay PNG or JPEG (quality 95)
  jpeg:QUALITY   1 to 100, with loss
  png            without loss, the usual size
  png-fast       PNG with filter up and fast compression: cheap to read, somewhat larger
  png-stored     PNG without compression: cheapest to read, as large as the pixels
  webp-lossless  WebP without loss: smaller than PNG, and dearer to read
  png:FILTER:LEVEL  none, sub, up, avg, paeth, adaptive; stored, fast, balanced, high
Masks never get a lossy encoding.

--restart-index writes restart markers into JPEGs, without loss, so that a crop decodes only the
tiles it needs. A tile is a divisor of the MCUs (8 or 16 pixels) in a row, the nearest to the width
given. Every viewer still opens the files.

The original is never touched. Ctrl-C stops; the same command goes on with what is missing.")]
pub(crate) struct Args {
    /// Pipeline file (TOML), folder of data, or .npy, .npz, .parquet, .arrow files
    source: PathBuf,
    /// Folder to make; may hold what an earlier run of this command left
    out: PathBuf,
    /// What is written
    #[arg(long, value_enum)]
    to: Form,
    /// Do the first N transforms of the pipeline, which must be fixed changes of geometry
    #[arg(long, value_name = "N")]
    bake: Option<usize>,
    /// Resize so that the shorter side has this length
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    short_side: Option<u32>,
    /// Cut this from the middle; an image that is too small is an error
    #[arg(long, value_name = "WxH", value_parser = args::size, conflicts_with = "center_crop")]
    crop: Option<Size>,
    /// Cut this from the middle; an image that is too small is padded with zeros
    #[arg(long, value_name = "WxH", value_parser = args::size)]
    center_crop: Option<Size>,
    /// Encoding of images
    #[arg(long, value_name = "ENCODING", default_value = "keep")]
    image: Encoding,
    /// Encoding of masks
    #[arg(long, value_name = "ENCODING", default_value = "keep")]
    mask: Encoding,
    /// Restart markers in JPEGs, tiles about this many MCUs wide [without a number: 4]
    #[arg(long, value_name = "MCUS", num_args = 0..=1, require_equals = true,
          default_missing_value = "4", value_parser = clap::value_parser!(u16).range(1..))]
    restart_index: Option<u16>,
    /// Worker threads [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    /// Image files: by class, with a list of labels, or in pairs, as the source has them
    Folder,
    /// One .npy a field, decoded; all images need one size
    Arrays,
}

fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(workers @ 1..=1024) => Ok(workers),
        _ => Err("write a number from 1 to 1024".to_owned()),
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    interrupt::watch();
    let target = Target::of(&args.source)?;
    let options = options(args, &target.pipeline)?;
    let progress = bar(0, "records");
    let known = AtomicBool::new(false);
    let packed = infeed::pack::pack(
        &target.pipeline,
        &[],
        None,
        &args.out,
        &options,
        &|done, total| {
            // Relaxed: the flag carries no other data.
            if !known.swap(true, Ordering::Relaxed) {
                progress.set_length(total);
            }
            progress.set_position(done);
            !interrupt::asked()
        },
    );
    progress.finish_and_clear();
    let packed = packed.map_err(|error| match &error {
        infeed::Error::Config { part, .. }
            if ["out", "image", "mask", "restart"].contains(&&**part) =>
        {
            CliError::Usage(error.chain())
        }
        _ => CliError::Failed(error.chain()),
    })?;
    let pipeline = match target.guessed {
        true => None,
        false => Some(save(args, &packed)?),
    };
    if args.json {
        println!("{}", report(args, &packed, pipeline.as_ref()));
    } else {
        print!("{}", text(args, &packed, pipeline.as_ref()));
    }
    Ok(())
}

/// The first transforms of the pipeline, if they are asked for, and then those named one by one.
///
/// # Errors
///
/// More transforms than the pipeline has.
fn options(args: &Args, pipeline: &Pipeline) -> Result<PackOptions, CliError> {
    let baked = args.bake.unwrap_or(0);
    let Some(first) = pipeline.transforms.get(..baked) else {
        let count = pipeline.transforms.len();
        let problem = format!("--bake {baked}: the pipeline has {count} transforms");
        return Err(CliError::Usage(problem));
    };
    let sides = |size: Size| [size.height, size.width];
    let steps = [
        args.short_side
            .map(|side| Transform::from(Resize::new(side))),
        args.crop
            .map(|size| Crop::new(size.height, size.width).into()),
        args.center_crop
            .map(|size| CenterCrop::new(sides(size)).into()),
    ];
    let named = steps.into_iter().flatten();
    Ok(PackOptions {
        to: match args.to {
            Form::Folder => To::Folder,
            Form::Arrays => To::Arrays,
        },
        transforms: first.iter().cloned().chain(named).collect(),
        image: args.image,
        mask: args.mask,
        restart: args.restart_index,
        workers: args.workers,
    })
}

/// Writes the pipeline over the packed data beside it.
fn save(args: &Args, packed: &Packed) -> Result<PathBuf, CliError> {
    let path = args.out.join(PIPELINE);
    let text = packed.pipeline.to_toml();
    let text = text.map_err(|error| CliError::failed(&error))?;
    let part = args.out.join(format!(".{PIPELINE}.part"));
    fs::write(&part, text)
        .and_then(|()| fs::rename(&part, &path))
        .map_err(|error| CliError::Failed(format!("cannot write {}: {error}", path.display())))?;
    Ok(path)
}

/// Records that this run wrote, a second.
fn rate(packed: &Packed) -> f64 {
    (packed.records - packed.reused) as f64 / packed.seconds.max(1e-9)
}

/// What to run next.
fn next(args: &Args, pipeline: Option<&PathBuf>) -> String {
    let path = pipeline.unwrap_or(&args.out);
    format!("infeed bench {}", path.display())
}

fn text(args: &Args, packed: &Packed, pipeline: Option<&PathBuf>) -> String {
    let reused = match packed.reused {
        0 => String::new(),
        reused => format!(" ({reused} were there already)"),
    };
    let share = packed.bytes_out as f64 / packed.bytes_in.max(1) as f64;
    let unmarked = match packed.unmarked {
        0 => String::new(),
        unmarked => format!(
            "{unmarked} JPEGs cannot have restart markers without loss and are as they were\n"
        ),
    };
    format!(
        "packed {} records{reused} to {} in {}, {:.0} records/s\n\
         {} before, {} now ({share:.2}x)\n\
         {unmarked}next: {}\n",
        packed.records,
        args.out.display(),
        human_seconds(packed.seconds),
        rate(packed),
        human_bytes(packed.bytes_in),
        human_bytes(packed.bytes_out),
        next(args, pipeline),
    )
}

fn report(args: &Args, packed: &Packed, pipeline: Option<&PathBuf>) -> serde_json::Value {
    json!({
        "out": args.out,
        "to": match args.to {
            Form::Folder => "folder",
            Form::Arrays => "arrays",
        },
        "source": packed.source,
        "pipeline": pipeline,
        "records": packed.records,
        "reused": packed.reused,
        "unmarked": packed.unmarked,
        "bytes_in": packed.bytes_in,
        "bytes_out": packed.bytes_out,
        "seconds": packed.seconds,
        "records_per_s": rate(packed),
        "next": next(args, pipeline),
    })
}
