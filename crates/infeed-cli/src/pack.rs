//! `infeed pack`: rewrites a dataset once into a format that is cheaper to read.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::ProgressBar;
use infeed::pipeline::packed_dataset::PIPELINE;
use infeed::pipeline::{Pipeline, SourceSpec};
use infeed_codec::transform::{CenterCrop, Crop, Resize, Transform};
use infeed_core::sample::Size;
use infeed_pack::{
    BAD_LIST, Encoding, Fidelity, PackOptions, PackProgress, PackedDataset, Target as To,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::{CliError, CommandResult};
use crate::json::put_json;
use crate::target::{FunctionArgs, Target, path_help};
use crate::terminal::{bar, human_bytes, human_seconds};
use crate::{args, interrupt};

const EXAMPLES: &str = "Examples:
  infeed pack photos photos-fast --to fast
  infeed pack photos photos-tar --to webdataset
  infeed pack photos photos-256 --to tfrecord --resize-short 256 --shuffle 0
  infeed pack photos batches --to npz --fit 224x224 --rows 256
  infeed pack photos photos-256 --to folder --short-side 256
  infeed pack streets streets-fast --to folder --image png-fast
  infeed pack photos photos-tiles --to folder --restart-index
  infeed pack photos arrays --to arrays --short-side 256 --center-crop 224x224
  infeed pack s3://raw/photos s3://packed/photos --to webdataset --short-side 256

Output formats:";

const AFTER_FORMATS: &str = "OUT also contains a pipeline file with the remaining transforms, so
`infeed bench OUT` and Pipeline.load(OUT) accept the folder. You can move the folder.

Bad records are left out and listed in infeed-pack-bad.jsonl; the exit status is then 3, unless
--allow-bad is set.

Encodings:
  keep           copies files that are not resized; others stay PNG or JPEG (quality 95)
  lossless       records with the same pixels, smaller and several times faster to decode; infeed
                 reads them, and `infeed unpack` restores the files
  restore        the files of lossless records";

const AFTER_RAW: &str = "  jpeg:QUALITY   1 to 100, lossy
  png            lossless, the usual size
  png-fast       PNG with filter up and fast compression: cheap to read, somewhat larger
  png-stored     PNG without compression: cheapest to read, as large as the pixels
  webp-lossless  lossless WebP: smaller than PNG, and slower to read
  png:FILTER:LEVEL  none, sub, up, avg, paeth, adaptive; stored, fast, balanced, high
A mask never gets a lossy encoding. After a lossy encoding of images, pack prints PSNR and SSIM of
a sample.

--restart-index adds restart markers to JPEGs, without loss, so that a crop decodes only the tiles
that it needs. The width of a tile in MCUs (8 or 16 pixels) is the divisor of the image's width
nearest to the given number. Every viewer still opens the files.

pack never changes the original. Ctrl-C stops; the same command resumes.";

/// Returns the text after the options: examples, the table of output formats, and encodings.
fn after_help() -> String {
    let formats = To::ALL.map(|to| format!("  {:<10}  {}", to.name(), to.summary()));
    let formats = formats.join("\n");
    let fast = "  fast        webdataset, with images and masks as lossless records";
    let raw = To::ALL.into_iter().filter(|to| to.has_choice_of_pixels());
    let raw: Vec<&str> = raw.map(To::name).collect();
    let raw = format!("  raw            pixels, for {}", raw.join(", "));
    format!("{EXAMPLES}\n{fast}\n{formats}\n\n{AFTER_FORMATS}\n{raw}\n{AFTER_RAW}")
}

/// Returns the help text of `--rows`.
fn rows_help() -> String {
    let files: Vec<&str> = To::ALL.into_iter().filter_map(To::batch_file).collect();
    let files = files.join(", ");
    format!("Records in {files} [default: the pipeline's batch size]")
}

#[derive(Parser)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    #[arg(help = path_help())]
    source: PathBuf,
    /// Output folder, or for shards the URL of a folder in a bucket: missing, empty, or from an
    /// interrupted run of the same command
    out: PathBuf,
    /// Output format
    #[arg(long, value_name = "FORMAT")]
    to: Output,
    /// Apply the first N transforms of the pipeline; they must crop, resize or pad without random
    /// parameters
    #[arg(long, value_name = "N")]
    bake: Option<usize>,
    /// Resize so that the shorter side has N pixels
    #[arg(long, visible_alias = "resize-short", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    short_side: Option<u32>,
    /// Crop this size from the centre; a smaller image is a bad record
    #[arg(long, value_name = "WxH", value_parser = args::size, conflicts_with = "center_crop")]
    crop: Option<Size>,
    /// Crop this size from the centre; a smaller image is padded with zeros
    #[arg(long, value_name = "WxH", value_parser = args::size)]
    center_crop: Option<Size>,
    /// Resize so that the shorter side has the longer length of W and H, then crop W x H from the
    /// centre
    #[arg(long, value_name = "WxH", value_parser = args::size,
          conflicts_with_all = ["crop", "center_crop", "short_side"])]
    fit: Option<Size>,
    /// Encoding of images [default: keep, or lossless with --to fast]
    #[arg(long, visible_alias = "encode", value_name = "ENCODING")]
    image: Option<Encoding>,
    /// Encoding of masks [default: keep, or that of images if it is lossless or restore]
    #[arg(long, value_name = "ENCODING")]
    mask: Option<Encoding>,
    /// Add restart markers to JPEGs, for tiles of about this number of MCUs [without a number: 4]
    #[arg(long, value_name = "MCUS", num_args = 0..=1, require_equals = true,
          default_missing_value = "4", value_parser = clap::value_parser!(u16).range(1..))]
    restart_index: Option<u16>,
    /// Write shards in the order of the first epoch of a pipeline with this seed
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    /// Size at which a shard ends
    #[arg(long, value_name = "BYTES", value_parser = infeed_core::units::parse_bytes, default_value = "256MB")]
    shard_size: u64,
    #[arg(long, help = rows_help(), value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rows: Option<u64>,
    /// Also decode copied images, to find damaged pixels
    #[arg(long)]
    verify: bool,
    /// Stop when more than N records are bad
    #[arg(long, value_name = "N")]
    max_bad: Option<u64>,
    /// Exit with 0 even if bad records were left out
    #[arg(long)]
    allow_bad: bool,
    /// Worker threads [default: the cores this process may use]
    #[arg(long, visible_alias = "jobs", value_name = "N", value_parser = workers)]
    workers: Option<usize>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    functions: FunctionArgs,
}

/// Value of `--to`.
#[derive(Clone, Copy)]
enum Output {
    /// Shards of lossless records.
    Fast,
    Format(To),
}

impl Output {
    fn target(self) -> To {
        match self {
            Output::Fast => To::COMMON_SHARDS,
            Output::Format(to) => to,
        }
    }

    fn encoding(self) -> Encoding {
        match self {
            Output::Fast => Encoding::Lossless,
            Output::Format(_) => Encoding::Keep,
        }
    }
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Output, String> {
        match text {
            "fast" => Ok(Output::Fast),
            _ => text
                .parse()
                .map(Output::Format)
                .map_err(|formats: String| format!("{formats}, or fast")),
        }
    }
}

#[derive(Parser)]
pub(crate) struct UnpackArgs {
    #[arg(help = path_help())]
    source: PathBuf,
    /// Output folder: missing, empty, or from an interrupted run of the same command
    out: PathBuf,
    /// Worker threads [default: the cores this process may use]
    #[arg(long, visible_alias = "jobs", value_name = "N", value_parser = workers)]
    workers: Option<usize>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    functions: FunctionArgs,
}

/// `infeed unpack`: restores the files of lossless records.
pub(crate) fn unpack(args: &UnpackArgs) -> CommandResult {
    interrupt::watch();
    let options = PackOptions {
        image: Encoding::Restore,
        mask: Encoding::Restore,
        workers: args.workers,
        ..PackOptions::new(To::Folder)
    };
    let target = Target::with_functions(&args.source, &args.functions)?;
    write(&target, &args.out, &options, args.json, false)
}

fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(workers @ 1..=1024) => Ok(workers),
        _ => Err("write a number from 1 to 1024".to_owned()),
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    interrupt::watch();
    let target = Target::with_functions(&args.source, &args.functions)?;
    let options = options(args, &target.pipeline)?;
    write(&target, &args.out, &options, args.json, args.allow_bad)
}

/// Packs, shows the progress, and prints the result.
fn write(
    target: &Target,
    out: &Path,
    options: &PackOptions,
    json: bool,
    allow_bad: bool,
) -> CommandResult {
    let progress = bar(0, "records");
    let start = Instant::now();
    let packed = infeed_pack::pack(&target.pipeline, &[], None, out, options, &|at| {
        show(&progress, at, start.elapsed());
        !interrupt::is_requested()
    });
    progress.finish_and_clear();
    let packed = packed.map_err(|error| match &error {
        infeed::Error::Config { part, .. }
            if [
                "out",
                "image",
                "mask",
                "restart",
                "shuffle",
                "shard_bytes",
                "rows",
            ]
            .contains(&&**part) =>
        {
            CliError::Usage(error.chain())
        }
        infeed::Error::Write { .. } => CliError::Failed(format!(
            "{}; finished output stays, and the same command resumes",
            error.chain()
        )),
        _ => CliError::Failed(error.chain()),
    })?;
    let printed = match json {
        true => put_json(&PackJson::new(out, options, &packed)),
        false => put!("{}", text(out, options, &packed)),
    };
    if packed.bad == 0 || allow_bad {
        return printed;
    }
    Err(CliError::LeftOut(format!(
        "{} bad records were left out; {} lists them (--allow-bad exits with 0)",
        packed.bad,
        out.join(BAD_LIST).display()
    )))
}

/// Updates the progress bar: records, and bytes in and out with their rate.
fn show(progress: &ProgressBar, at: &PackProgress, elapsed: Duration) {
    progress.set_length(at.total);
    progress.set_position(at.done);
    let rate = at.bytes_in as f64 / elapsed.as_secs_f64().max(1e-3);
    let bad = match at.bad {
        0 => String::new(),
        bad => format!(", {bad} bad"),
    };
    progress.set_message(format!(
        "{} in ({}/s), {} out{bad}",
        human_bytes(at.bytes_in),
        human_bytes(rate as u64),
        human_bytes(at.bytes_out)
    ));
}

/// Builds the options: the first transforms of the pipeline, if `--bake` is set, and then those of
/// other options.
///
/// # Errors
///
/// If the pipeline has fewer transforms than `--bake`.
fn options(args: &Args, pipeline: &Pipeline) -> Result<PackOptions, CliError> {
    let baked = args.bake.unwrap_or(0);
    let Some(first) = pipeline.transforms.get(..baked) else {
        let count = pipeline.transforms.len();
        let problem =
            format!("--bake {baked}: the pipeline has {count} transforms; use at most {count}");
        return Err(CliError::Usage(problem));
    };
    let sides = |size: Size| [size.height, size.width];
    let fit = args.fit.map(|size| {
        let side = size.height.max(size.width);
        (Resize::new(side), CenterCrop::new(sides(size)))
    });
    let (cover, cut) = fit.unzip();
    let steps = [
        cover.map(Transform::from),
        cut.map(Transform::from),
        args.short_side
            .map(|side| Transform::from(Resize::new(side))),
        args.crop
            .map(|size| Crop::new(size.height, size.width).into()),
        args.center_crop
            .map(|size| CenterCrop::new(sides(size)).into()),
    ];
    let named = steps.into_iter().flatten();
    let image = args.image.unwrap_or(args.to.encoding());
    Ok(PackOptions {
        transforms: first.iter().cloned().chain(named).collect(),
        image,
        mask: args.mask.unwrap_or(match image {
            Encoding::Lossless | Encoding::Restore => image,
            _ => Encoding::Keep,
        }),
        restart: args.restart_index,
        workers: args.workers,
        shuffle: args.shuffle,
        shard_bytes: args.shard_size,
        rows: args.rows,
        max_bad: args.max_bad,
        verify: args.verify,
        ..PackOptions::new(args.to.target())
    })
}

/// Records per second that this run wrote.
fn rate(packed: &PackedDataset) -> f64 {
    (packed.records - packed.reused) as f64 / packed.seconds.max(1e-9)
}

/// Returns the command to run next.
fn next(out: &Path) -> String {
    format!("infeed bench {}", out.display())
}

fn text(out: &Path, options: &PackOptions, packed: &PackedDataset) -> String {
    let reused = match packed.reused {
        0 => String::new(),
        reused => format!(" ({reused} of them by an earlier run)"),
    };
    let share = packed.bytes_out as f64 / packed.bytes_in.max(1) as f64;
    let unchanged = match packed.unchanged {
        0 => String::new(),
        unchanged if options.restart.is_some() => {
            format!(
                "{unchanged} JPEGs cannot have restart markers without loss and are unchanged\n"
            )
        }
        unchanged => {
            format!("{unchanged} files have no smaller lossless record and are unchanged\n")
        }
    };
    let loss = packed.fidelity.as_ref().map_or(String::new(), |found| {
        format!(
            "images    PSNR {:.1} dB (lowest {:.1}), SSIM {:.4} (lowest {:.4}) over {} images\n",
            found.psnr_db, found.least_psnr_db, found.ssim, found.least_ssim, found.images
        )
    });
    format!(
        "packed {} records{reused} to {} in {}, {:.0} records/s\n\
         {} before, {} now ({share:.2}x)\n{loss}\
         {unchanged}next: {}\n",
        packed.records,
        out.display(),
        human_seconds(packed.seconds),
        rate(packed),
        human_bytes(packed.bytes_in),
        human_bytes(packed.bytes_out),
        next(out),
    )
}

/// Result of `infeed pack` and `infeed unpack`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct PackJson {
    /// Output folder or URL.
    out: String,
    /// Output format.
    to: &'static str,
    /// Source of the packed dataset, as in a pipeline file.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    source: SourceSpec,
    /// Path of the pipeline file over the packed dataset.
    pipeline: String,
    /// Records in the dataset.
    records: u64,
    /// Records that were complete before this run.
    reused: u64,
    /// Files that were copied: JPEGs that cannot have restart markers without loss, or files without
    /// a smaller lossless record.
    unchanged: u64,
    /// Bad records, which were left out.
    bad: u64,
    /// Bytes of the original records.
    bytes_in: u64,
    /// Bytes of the new files.
    bytes_out: u64,
    /// Duration of this run in seconds.
    seconds: f64,
    /// Records per second that this run wrote.
    records_per_s: f64,
    /// Similarity of the images to the original. Null without a lossy encoding.
    fidelity: Option<FidelityJson>,
    /// Command to run next.
    next: String,
}

/// Similarity of images before and after a lossy encoding.
#[derive(JsonSchema, Serialize)]
struct FidelityJson {
    /// Number of compared images.
    images: u64,
    /// Mean PSNR in decibels. Null if all images are equal, because JSON has no infinity.
    psnr_db: Option<f64>,
    /// Lowest PSNR in decibels. Null if all images are equal.
    least_psnr_db: Option<f64>,
    /// Mean SSIM. 1 means equal.
    ssim: f64,
    /// Lowest SSIM.
    least_ssim: f64,
}

impl PackJson {
    fn new(out: &Path, options: &PackOptions, packed: &PackedDataset) -> PackJson {
        PackJson {
            out: out.display().to_string(),
            to: options.to.name(),
            source: packed.source.clone(),
            pipeline: out.join(PIPELINE).display().to_string(),
            records: packed.records,
            reused: packed.reused,
            unchanged: packed.unchanged,
            bad: packed.bad,
            bytes_in: packed.bytes_in,
            bytes_out: packed.bytes_out,
            seconds: packed.seconds,
            records_per_s: rate(packed),
            fidelity: packed.fidelity.as_ref().map(FidelityJson::new),
            next: next(out),
        }
    }
}

impl FidelityJson {
    fn new(found: &Fidelity) -> FidelityJson {
        let finite = |value: f64| value.is_finite().then_some(value);
        FidelityJson {
            images: found.images,
            psnr_db: finite(found.psnr_db),
            least_psnr_db: finite(found.least_psnr_db),
            ssim: found.ssim,
            least_ssim: found.least_ssim,
        }
    }
}
