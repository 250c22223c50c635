//! `infeed sample`: writes a realistic dataset for experiments.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use infeed_core::sample::Size;
use infeed_sample::{
    Classification, Dataset, MAX_PHOTO_CLASSES, MAX_STREET_CLASSES, Segmentation, write_dataset,
};

use crate::error::{CliError, CommandResult};
use crate::terminal::{bar, human_bytes};
use crate::{args, interrupt};

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed sample classification photos
  infeed sample classification photos --count 10000 --classes 100 --seed 1
  infeed sample segmentation streets --size 960x720

The pictures are synthetic, with the file sizes and decode times of photographs. The same seed gives
the same bytes. sample never writes to a folder that is not empty.")]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: SampleKind,
}

#[derive(Subcommand)]
enum SampleKind {
    /// JPEG pictures of objects, OUT/class/0000.jpg
    Classification {
        /// Output folder; must be empty or missing
        out: PathBuf,
        /// Number of images
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
        count: u64,
        /// Number of classes
        #[arg(long, default_value_t = 10,
              value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PHOTO_CLASSES)))]
        classes: u32,
        /// Seed; the same seed gives the same bytes
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Most frequent WIDTHxHEIGHT; other sizes vary like ImageNet's
        #[arg(long, default_value = "500x375", value_parser = args::size)]
        size: Size,
        /// JPEG quality, a number or a range; most of ImageNet has 96
        #[arg(long, default_value = "94-97", value_parser = args::quality)]
        quality: RangeInclusive<u8>,
    },
    /// PNG street scenes and masks, OUT/images/0000.png, OUT/masks/0000.png, OUT/class_dict.csv
    Segmentation {
        /// Output folder; must be empty or missing
        out: PathBuf,
        /// Pairs of image and mask
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
        count: u64,
        /// Classes in the masks
        #[arg(long, default_value_t = 12,
              value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_STREET_CLASSES)))]
        classes: u32,
        /// Seed; the same seed gives the same bytes
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// WIDTHxHEIGHT of every image
        #[arg(long, default_value = "960x720", value_parser = args::size)]
        size: Size,
    },
}

pub(crate) fn run(args: &Args) -> CommandResult {
    interrupt::watch();
    let (out, dataset): (&PathBuf, Box<dyn Dataset>) = match &args.kind {
        SampleKind::Classification {
            out,
            count,
            classes,
            seed,
            size,
            quality,
        } => {
            let (count, classes, seed, size) = (*count, *classes, *seed, *size);
            let quality = quality.clone();
            (
                out,
                Box::new(Classification {
                    count,
                    classes,
                    seed,
                    size,
                    quality,
                }),
            )
        }
        SampleKind::Segmentation {
            out,
            count,
            classes,
            seed,
            size,
        } => {
            let (count, classes, seed, size) = (*count, *classes, *seed, *size);
            (
                out,
                Box::new(Segmentation {
                    count,
                    classes,
                    seed,
                    size,
                }),
            )
        }
    };

    putln!("{}", write(&*dataset, out)?.text(out))?;
    putln!("next: infeed inspect {0}; infeed bench {0}", out.display())?;
    Ok(())
}

/// Number, bytes and time of written samples.
pub(crate) struct WriteReport {
    samples: u64,
    bytes: u64,
    time: Duration,
}

impl WriteReport {
    /// Returns a line for the user, with the folder of the samples.
    pub(crate) fn text(&self, folder: &Path) -> String {
        format!(
            "wrote {} samples, {}, to {} in {:.1} s",
            self.samples,
            human_bytes(self.bytes),
            folder.display(),
            self.time.as_secs_f64(),
        )
    }
}

/// Writes a dataset on all cores with a progress bar.
pub(crate) fn write(dataset: &dyn Dataset, out: &Path) -> Result<WriteReport, CliError> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let progress = bar(dataset.count(), "samples");
    let bytes = AtomicU64::new(0);
    let start = Instant::now();
    let written = write_dataset(dataset, out, threads, &|size| {
        // Relaxed: a sum that is read after all threads have ended.
        bytes.fetch_add(size, Ordering::Relaxed);
        progress.inc(1);
        !interrupt::is_requested()
    });
    progress.finish_and_clear();
    let written = written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            CliError::Usage(format!("{error}; use a new folder, or empty this one"))
        }
        _ => CliError::Failed(format!("cannot write the dataset: {error}")),
    })?;

    if written < dataset.count() {
        return Err(CliError::Failed(format!(
            "interrupted after {written} of {} samples; {} is not complete",
            dataset.count(),
            out.display()
        )));
    }
    Ok(WriteReport {
        samples: written,
        bytes: bytes.into_inner(),
        time: start.elapsed(),
    })
}
