//! The target of a command: a pipeline file, or a folder or shards with a default pipeline.

use std::path::{Path, PathBuf};

use infeed::pipeline::{Layout as Axes, Pipeline, SourceSpec, packed_dataset};
use infeed::{Loader, Options};
use infeed_codec::decode::ColorMode;
use infeed_codec::transform::{
    ClassIndex, Normalize, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, ToFloat,
};
use infeed_source::{formats, store};

use crate::default_pipeline::{CROP, IMAGENET_MEAN, IMAGENET_STD};
use crate::error::CliError;
use crate::files::{self, FolderContents, images_below, layout, peek};
use crate::{default_pipeline, npy};

/// Number of files to read for the size of images and the contents of masks.
const PEEKED: usize = 32;

/// Options about the Python functions that a pipeline file names.
#[derive(clap::Args)]
pub(crate) struct FunctionArgs {
    /// Allow the Python functions of the pipeline file that match, such as 'mypackage.augment:*'
    ///
    /// A pipeline file can name any Python function, so infeed runs only the functions that you
    /// allow. Repeat the option to allow several patterns. `*` after the colon matches functions
    /// that the module defines itself, not functions that it imports.
    #[arg(long, value_name = "PATTERN")]
    allow_functions: Vec<String>,
}

/// Returns the help text of the path of every command.
pub(crate) fn path_help() -> String {
    let [shards, tables] = formats::labels();
    format!(
        "Pipeline file (TOML), folder of data, .npy file, shards ({shards}) or tables ({tables})"
    )
}

/// A pipeline to run or to inspect.
pub(crate) struct Target {
    pub(crate) pipeline: Pipeline,
    /// Whether the pipeline is a default that this module made.
    pub(crate) guessed: bool,
}

impl Target {
    /// Whether the pipeline applies EXIF orientations.
    pub(crate) fn orients(&self) -> bool {
        let decode = self.pipeline.decode.as_ref();
        decode.is_some_and(|decode| decode.orient)
    }

    /// As [`Target::of`]. Also imports the functions that the pipeline names and `functions`
    /// allows.
    ///
    /// # Errors
    ///
    /// As [`Target::of`], or if an allowed function cannot be imported.
    pub(crate) fn with_functions(
        path: &Path,
        functions: &FunctionArgs,
    ) -> Result<Target, CliError> {
        let mut target = Target::of(path)?;
        target
            .pipeline
            .import_functions(&functions.allow_functions)
            .map_err(|error| CliError::from_error(&error))?;
        Ok(target)
    }

    /// Reads the pipeline file at `path` or in the packed dataset there. For a folder, shards,
    /// tables or a `.npy` file, makes a default pipeline. All but the last may be URLs.
    ///
    /// # Errors
    ///
    /// If the path does not exist, a file is no pipeline, a folder has no known contents, a packed
    /// dataset is incomplete, or shards do not open.
    fn of(path: &Path) -> Result<Target, CliError> {
        let named = SourceSpec::detect(path);
        // A URL that names a file is not a folder, so the bucket is not asked for a packed dataset.
        let is_file = store::is_url(path) && (named.is_some() || is_pipeline_at_url(path));
        let is_packed = !is_file && packed_dataset::is_packed(path);
        if let Some(source) = named.filter(|_| !is_packed) {
            return Ok(Target {
                pipeline: default_pipeline::for_source(source)?,
                guessed: true,
            });
        }
        if store::is_url(path) && !is_packed && !is_pipeline_at_url(path) {
            return Target::default_for(layout(path)?);
        }
        if !store::is_url(path) && !path.exists() {
            return Err(CliError::Usage(format!(
                "{} does not exist; pass a pipeline file, a folder of data or shards, or make a \
                 dataset with `infeed sample`",
                path.display()
            )));
        }
        if path.is_dir() && !is_packed {
            return Target::default_for(layout(path)?);
        }
        if path.extension().is_some_and(|extension| extension == "npy") {
            return Target::default_for(FolderContents::Arrays(vec![path.to_owned()]));
        }
        if files::is_image(path) {
            return Err(CliError::Usage(format!(
                "{} is an image file; pass the folder that contains it",
                path.display()
            )));
        }
        let pipeline = Pipeline::load(path).map_err(|error| CliError::from_error(&error))?;
        Ok(Target {
            pipeline,
            guessed: false,
        })
    }

    fn default_for(layout: FolderContents) -> Result<Target, CliError> {
        let pipeline = match layout {
            FolderContents::Images(dir) => classification(&dir),
            FolderContents::Pairs {
                image,
                mask,
                palette,
            } => segmentation(&image, &mask, palette.as_deref())?,
            FolderContents::Arrays(paths) => arrays(&paths)?,
        };
        Ok(Target {
            pipeline,
            guessed: true,
        })
    }

    /// Opens the pipeline.
    ///
    /// # Errors
    ///
    /// The error of the engine, in one line.
    pub(crate) fn open(&self, options: &Options) -> Result<Loader, CliError> {
        self.pipeline
            .open(options)
            .map_err(|error| CliError::from_error(&error))
    }

    /// Returns the description as text of a pipeline file.
    pub(crate) fn text(&self) -> String {
        // A pipeline of a file or folder has no handles, so it can be written.
        self.pipeline.to_toml().unwrap_or_default()
    }
}

/// Returns whether a path is the URL of a pipeline file.
fn is_pipeline_at_url(path: &Path) -> bool {
    store::is_url(path)
        && path
            .extension()
            .is_some_and(|extension| extension == "toml")
}

fn classification(dir: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(dir))
        .shuffle(0)
        .decode()
        .transform(RandomResizedCrop::new(224))
        .transform(RandomHorizontalFlip::new(0.5))
        .transform(Normalize::new(IMAGENET_MEAN, IMAGENET_STD))
        .layout(Axes::Chw)
        .batch(64)
}

fn segmentation(image: &Path, mask: &Path, palette: Option<&Path>) -> Result<Pipeline, CliError> {
    let images = peek(&images_below(image, true)?.0, PEEKED);
    let masks = peek(&images_below(mask, true)?.0, PEEKED);
    let short = images
        .iter()
        .map(|h| h.size.height.min(h.size.width))
        .min()
        .unwrap_or(CROP);
    // A multiple of 32 keeps the sizes inside a network whole when it halves them.
    let side = if short >= 32 {
        short.min(CROP) / 32 * 32
    } else {
        short
    };
    let mut crop = RandomCrop::new(side);
    crop.pad_if_needed = true;
    let mut pipeline = Pipeline::new(SourceSpec::pairs(image, mask))
        .shuffle(0)
        .decode()
        .transform(crop)
        .transform(RandomHorizontalFlip::new(0.5))
        .transform(ToFloat::of("image"));
    let in_colours = masks.iter().any(|header| header.channels >= 3);
    if let Some(palette) = palette.filter(|_| in_colours) {
        pipeline = pipeline.transform(ClassIndex::new(palette.to_string_lossy()));
    } else if in_colours && let Some(decode) = &mut pipeline.decode {
        decode.modes.insert("mask".to_owned(), ColorMode::Rgb);
    }
    Ok(pipeline.batch(8))
}

fn arrays(paths: &[PathBuf]) -> Result<Pipeline, CliError> {
    let fields: Vec<_> = paths
        .iter()
        .map(|path| npy::field(path))
        .collect::<Result<_, _>>()?;
    npy::check_fields(&fields)?;
    let images: Vec<_> = fields
        .iter()
        .filter(|field| field.kind == "image")
        .cloned()
        .collect();
    let mut pipeline = Pipeline::new(SourceSpec::Memory { fields }).shuffle(0);
    if !images.is_empty() {
        pipeline = pipeline.transform(RandomHorizontalFlip::new(0.5));
        pipeline = if images
            .iter()
            .all(|field| matches!(field.shape[..], [_, _, 3]))
        {
            pipeline.transform(Normalize::new(IMAGENET_MEAN, IMAGENET_STD))
        } else {
            pipeline.transform(ToFloat { field: None })
        };
    }
    Ok(pipeline.batch(256))
}
