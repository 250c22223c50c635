//! `infeed inspect`: prints the contents of a dataset and draws the samples of a pipeline.

mod check;
mod glyphs;
pub(crate) mod json;
mod records;
mod report;
mod sheet;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Parser;
use infeed::pipeline::SourceSpec;
use infeed_codec::transform::{Palette, Transform};
use infeed_source::folder::outside_classes;
use infeed_source::left_out::LeftOut;
use infeed_source::pairs::PairFolder;

use crate::error::{CliError, CommandResult};
use crate::files::images_below;
use crate::json::put_json;
use crate::target::{FunctionArgs, Target, path_help};
use crate::terminal::width;
use crate::{args, interrupt};
use check::{FolderCheck, MaskContents, check_files};
use json::InspectJson;
use report::Report;

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed inspect photos
  infeed inspect streets --sheet sheet.png       draw the samples of the pipeline
  infeed inspect pipeline.toml --sheet sheet.png
  infeed inspect 'train-{0000..0146}.tar'        shards, as a pattern
  infeed inspect photos --limit 1000 --json      check 1000 files, spread over all

inspect decodes every file or record completely, on all cores. It lists bad records with the reason;
they do not change the exit status. It also lists records with boxes that lie mostly outside their
image. For shards, inspect also prints how well the pipeline's order mixes them.")]
pub(crate) struct Args {
    #[arg(help = path_help())]
    path: PathBuf,
    /// Draw the first samples, as the pipeline makes them, into a PNG file
    #[arg(long, value_name = "OUT.png")]
    sheet: Option<PathBuf>,
    /// Samples on the sheet
    #[arg(long, value_name = "N", default_value_t = 20, requires = "sheet",
          value_parser = args::sheet_samples)]
    samples: usize,
    /// Check at most N files of each folder, or N records, spread evenly
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    functions: FunctionArgs,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    interrupt::watch();
    let target = Target::with_functions(&args.path, &args.functions)?;
    let report = inspect_target(&target, args.limit.unwrap_or(usize::MAX))?;
    if args.json {
        put_json(&InspectJson::new(&report))?;
    } else {
        put!("{}", report.text(width()))?;
    }
    if let Some(out) = &args.sheet {
        let shown = sheet::write(&target, out, args.samples)?;
        if !args.json {
            putln!("\nwrote {shown} samples to {}", out.display())?;
        }
    }
    Ok(())
}

fn inspect_target(target: &Target, limit: usize) -> Result<Report, CliError> {
    if target.pipeline != target.pipeline.plain() {
        // Only the source knows the records that the pipeline selects.
        return records::inspect_records(target, limit, &labels(target)?);
    }
    match &target.pipeline.source {
        SourceSpec::Folder {
            path,
            labels,
            follow_links,
            ..
        } => {
            let listed = images_below(path, *follow_links)?;
            folder(path, listed, labels == "auto", limit, target.orients())
        }
        SourceSpec::Pairs {
            image,
            mask,
            image_suffix,
            mask_suffix,
            follow_links,
        } => {
            let folder = |path, suffix| PairFolder { path, suffix };
            let (image, mask) = (folder(image, image_suffix), folder(mask, mask_suffix));
            pairs(target, image, mask, limit, *follow_links)
        }
        SourceSpec::Memory { fields } => Ok(Report::arrays(fields.clone())),
        _ => records::inspect_records(target, limit, &labels(target)?),
    }
}

/// Inspects the image files of a folder. The first folder level below the root is the class.
fn folder(
    root: &Path,
    (files, mut left_out): (Vec<PathBuf>, Vec<LeftOut>),
    by_class: bool,
    limit: usize,
    orient: bool,
) -> Result<Report, CliError> {
    let mut classes: BTreeMap<String, u64> = BTreeMap::new();
    for path in files.iter().filter(|_| by_class) {
        let mut below = path.strip_prefix(root).unwrap_or(path).components();
        if let (Some(class), Some(_)) = (below.next(), below.next()) {
            *classes
                .entry(class.as_os_str().to_string_lossy().into_owned())
                .or_default() += 1;
        }
    }
    if !classes.is_empty() {
        let below = |path: &'_ PathBuf| path.strip_prefix(root).unwrap_or(path).to_owned();
        let outside = files.iter().map(below);
        let outside = outside.filter(|path| path.components().count() == 1);
        let outside: Vec<String> = outside.map(|path| path.display().to_string()).collect();
        left_out.extend(outside_classes(root, outside.iter().map(String::as_str)));
    }
    let images = FolderCheck {
        root: root.to_owned(),
        ..check_files(&files, limit, &MaskContents::None, orient)?
    };
    Ok(Report {
        is_oriented: orient,
        images: Some(images),
        classes,
        left_out,
        ..Report::default()
    })
}

/// Inspects two folders of files that pair by path without extension.
fn pairs(
    target: &Target,
    image: PairFolder<'_>,
    mask: PairFolder<'_>,
    limit: usize,
    follow_links: bool,
) -> Result<Report, CliError> {
    let ((mut images, other_images), (mut masks, other_masks)) = (
        images_below(image.path, follow_links)?,
        images_below(mask.path, follow_links)?,
    );
    images.retain(|path| image.stem(path).is_some());
    masks.retain(|path| mask.stem(path).is_some());
    let left_out = [other_images, other_masks].concat();
    let stem = |path: &PathBuf, folder: PairFolder<'_>| {
        let below = path.strip_prefix(folder.path).unwrap_or(path);
        folder.stem(below).unwrap_or_default()
    };
    let stems = |files: &[PathBuf], folder| -> BTreeSet<PathBuf> {
        files.iter().map(|path| stem(path, folder)).collect()
    };
    let (image_stems, mask_stems) = (stems(&images, image), stems(&masks, mask));
    let without = |a: &BTreeSet<PathBuf>, b: &BTreeSet<PathBuf>| -> Vec<String> {
        a.difference(b)
            .map(|stem| stem.display().to_string())
            .collect()
    };
    let labels = labels(target)?;
    let orient = target.orients();
    let checked_images = check_files(&images, limit, &MaskContents::None, orient)?;
    let checked_masks = check_files(&masks, limit, &labels, orient)?;

    let mut mismatched = Vec::new();
    let mask_sizes = checked_masks.sizes.iter();
    let mask_sizes: BTreeMap<PathBuf, _> = mask_sizes
        .map(|(at, size)| (stem(&masks[*at], mask), *size))
        .collect();
    for (at, size) in &checked_images.sizes {
        let stem = stem(&images[*at], image);
        if let Some(found) = mask_sizes.get(&stem).filter(|found| *found != size) {
            let turned = checked_images.turned.iter();
            let fits = turned
                .map(|file| (file.at, file.displayed))
                .any(|one| one == (*at, *found));
            let fix = if fits {
                "; equal with .decode(orient=True)"
            } else {
                ""
            };
            mismatched.push(format!(
                "{}: image {size}, mask {found}{fix}",
                stem.display()
            ));
        }
    }
    Ok(Report {
        is_oriented: orient,
        left_out,
        without_mask: without(&image_stems, &mask_stems),
        without_image: without(&mask_stems, &image_stems),
        mismatched,
        mask_classes: labels.shares(&checked_masks),
        images: Some(FolderCheck {
            root: image.path.to_owned(),
            ..checked_images
        }),
        masks: Some(FolderCheck {
            root: mask.path.to_owned(),
            ..checked_masks
        }),
        ..Report::default()
    })
}

/// Returns the meaning of the mask's pixels in the pipeline.
fn labels(target: &Target) -> Result<MaskContents, CliError> {
    let palette = target
        .pipeline
        .transforms
        .iter()
        .find_map(Transform::palette);
    match palette {
        Some(path) => {
            let palette = Palette::from_csv(path).map_err(|error| CliError::from_error(&error))?;
            Ok(MaskContents::Colours(palette))
        }
        None => Ok(MaskContents::Indices),
    }
}
