//! Remedies that rewrite the data once, next to the original.

use super::candidate::{Candidate, KnownRemedy, PixelChange, RemedyChange};
use crate::case::Case;
use crate::measure::survey::Records;
use infeed::plan::SamplePlan;
use infeed_codec::transform::{CenterCrop, Effect, Resize, Transform};
use infeed_core::sample::Size;
use infeed_pack::{Encoding, PackOptions, PngFilter, PngLevel, TILE, Target};

pub(super) const REMEDIES: &[KnownRemedy] = &[
    KnownRemedy::Single {
        id: "shards",
        make: shards,
    },
    KnownRemedy::Single {
        id: "lossless",
        make: lossless,
    },
    KnownRemedy::Single {
        id: "png-up",
        make: |id, case, records| reencode(id, case, records, &PNG_UP),
    },
    KnownRemedy::Single {
        id: "png-stored",
        make: |id, case, records| reencode(id, case, records, &PNG_STORED),
    },
    KnownRemedy::Single {
        id: "jpeg-95",
        make: |id, case, records| reencode(id, case, records, &JPEG_95),
    },
    KnownRemedy::Single {
        id: "jpeg-90",
        make: |id, case, records| reencode(id, case, records, &JPEG_90),
    },
    KnownRemedy::Single {
        id: "restart-index",
        make: restart_index,
    },
    KnownRemedy::Single {
        id: "crop",
        make: reshape,
    },
    KnownRemedy::Single {
        id: "resize",
        make: reshape,
    },
    KnownRemedy::Single {
        id: "crop-jpeg-95",
        make: reshape_as_jpeg,
    },
    KnownRemedy::Single {
        id: "resize-jpeg-95",
        make: reshape_as_jpeg,
    },
    KnownRemedy::Single {
        id: "decoded",
        make: arrays,
    },
];

/// Ratio of the stored shorter side to a random crop's output: 256 for 224, the usual evaluation
/// size since 2012.
const ROOM: (u32, u32) = (8, 7);

/// Ratio of the new to the old shorter side below which a smaller size is worth a trial.
const SMALLER: f64 = 0.8;

/// Geometry that can be applied once instead of in each epoch.
struct GeometryChange {
    /// Beginning of the ids of its remedies.
    id: &'static str,
    name: String,
    flags: String,
    transforms: Vec<Transform>,
    /// Length of the shorter side, if the longer side then differs between images.
    short_side: Option<u32>,
    pixels: PixelChange,
}

/// Whether there are files to rewrite, with images that the pipeline decodes.
fn can_rewrite(case: &Case) -> bool {
    case.pipeline.decode.is_some() && !case.own.files(0).is_empty()
}

/// An image format to write.
struct ImageFormat {
    name: &'static str,
    flag: &'static str,
    image: Encoding,
    mask: Encoding,
    pixels: PixelChange,
}

/// Keeps the format of the images.
const KEPT: ImageFormat = ImageFormat {
    name: "in their format",
    flag: "keep",
    image: Encoding::Keep,
    mask: Encoding::Keep,
    pixels: PixelChange::Identical("identical"),
};

/// The faster PNG. Masks keep their format or get this one, and never a lossy one.
const UP: Encoding = Encoding::Png {
    filter: PngFilter::Up,
    level: PngLevel::Fast,
};

const PNG_UP: ImageFormat = ImageFormat {
    name: "PNG that is cheaper to read (filter Up, fast compression)",
    flag: "png:up:fast",
    image: UP,
    mask: UP,
    pixels: PixelChange::Identical("identical"),
};

const PNG_STORED: ImageFormat = ImageFormat {
    name: "PNG without compression",
    flag: "png:none:stored",
    image: Encoding::Png {
        filter: PngFilter::None,
        level: PngLevel::Stored,
    },
    mask: UP,
    pixels: PixelChange::Identical("identical"),
};

const JPEG_95: ImageFormat = ImageFormat {
    name: "images as JPEG, quality 95",
    flag: "jpeg:95",
    image: Encoding::Jpeg { quality: 95 },
    mask: UP,
    pixels: PixelChange::Compared("images as JPEG"),
};

const JPEG_90: ImageFormat = ImageFormat {
    name: "images as JPEG, quality 90",
    flag: "jpeg:90",
    image: Encoding::Jpeg { quality: 90 },
    mask: UP,
    pixels: PixelChange::Compared("images as JPEG"),
};

/// Returns the remedy of another image format, if most images are PNGs.
fn reencode(id: String, case: &Case, records: Records, format: &ImageFormat) -> Option<Candidate> {
    let is_useful = can_rewrite(case) && records.png > records.jpeg;
    is_useful.then(|| rewrite(id, case, None, format))
}

/// Returns the remedy that applies a part of the geometry once, if its id begins with that part's.
fn reshape(id: String, case: &Case, records: Records) -> Option<Candidate> {
    let bake = bake(case, records).filter(|bake| id.starts_with(bake.id))?;
    Some(rewrite(id, case, Some(&bake), &KEPT))
}

/// Returns the same remedy with images as JPEG, if most are PNGs.
fn reshape_as_jpeg(id: String, case: &Case, records: Records) -> Option<Candidate> {
    let bake = bake(case, records).filter(|bake| id.starts_with(bake.id))?;
    (records.png > records.jpeg).then(|| rewrite(id, case, Some(&bake), &JPEG_95))
}

fn rewrite(
    id: String,
    case: &Case,
    bake: Option<&GeometryChange>,
    format: &ImageFormat,
) -> Candidate {
    let name = match bake {
        None => format.name.to_owned(),
        Some(bake) => format!("{}, {}", bake.name, format.name),
    };
    let mut flags = bake.map_or(String::new(), |bake| format!(" {}", bake.flags));
    if format.flag != "keep" {
        flags += &format!(" --image {}", format.flag);
    }
    if case.has_masks() && format.mask != Encoding::Keep {
        flags += " --mask png:up:fast";
    }
    Candidate {
        id,
        name,
        command: format!("infeed pack {} OUT --to folder{flags}", case.name),
        change: RemedyChange::Pack {
            options: PackOptions {
                transforms: bake.map_or(Vec::new(), |bake| bake.transforms.clone()),
                image: format.image,
                mask: format.mask,
                ..PackOptions::new(Target::Folder)
            },
        },
        pixels: bake.map_or(format.pixels, |bake| bake.pixels),
    }
}

/// Returns the remedy of restart markers, if most images are JPEGs that the pipeline decodes in
/// part.
fn restart_index(id: String, case: &Case, records: Records) -> Option<Candidate> {
    if !can_rewrite(case) {
        return None;
    }
    let plan = SamplePlan::over(&case.pipeline, &*case.own).ok()?;
    if !plan.decodes_regions() || records.jpeg <= records.png {
        return None;
    }
    let mut options = PackOptions::new(Target::Folder);
    options.restart = Some(TILE);
    Some(Candidate {
        id,
        name: "JPEGs with restart markers: a crop decodes only its tiles".to_owned(),
        command: format!("infeed pack {} OUT --to folder --restart-index", case.name),
        change: RemedyChange::Pack { options },
        pixels: PixelChange::Identical("identical"),
    })
}

/// Returns the remedy of lossless records, if there are images that can become one.
fn lossless(id: String, case: &Case, records: Records) -> Option<Candidate> {
    if !can_rewrite(case) || records.jpeg + records.png == 0 {
        return None;
    }
    let mut options = PackOptions::new(Target::Folder);
    options.image = Encoding::Lossless;
    options.mask = Encoding::Lossless;
    Some(Candidate {
        id,
        name: "lossless records: smaller, and faster to decode".to_owned(),
        command: format!("infeed pack {} OUT --to folder --image lossless", case.name),
        change: RemedyChange::Pack { options },
        pixels: PixelChange::Identical("identical"),
    })
}

/// Returns the remedy that packs the records unchanged into large files.
fn shards(id: String, case: &Case, _: Records) -> Option<Candidate> {
    let to = Target::COMMON_SHARDS;
    can_rewrite(case).then(|| Candidate {
        id,
        name: "the same files in tar shards".to_owned(),
        command: format!("infeed pack {} OUT --to {}", case.name, to.name()),
        change: RemedyChange::Pack {
            options: PackOptions::new(to),
        },
        pixels: PixelChange::Identical(match case.pipeline.shuffle {
            Some(_) => "identical; shuffled within windows of shards",
            None => "identical",
        }),
    })
}

/// Returns the part of the geometry that is not random, or the image size that the random crop
/// needs.
fn bake(case: &Case, records: Records) -> Option<GeometryChange> {
    if !can_rewrite(case) {
        return None;
    }
    let first = case.pipeline.transforms.first()?;
    let fixed = first.output_size(None).ok().flatten();
    if (first.effect(), first.is_random()) == (Effect::Resize, true) {
        let size = fixed?;
        let side = size.height.max(size.width) * ROOM.0 / ROOM.1;
        if f64::from(side) > SMALLER * f64::from(records.short_side) {
            return None;
        }
        return Some(GeometryChange {
            id: "resize",
            name: format!("shorter side {side} px"),
            flags: format!("--short-side {side}"),
            transforms: vec![Resize::new(side).into()],
            short_side: Some(side),
            pixels: PixelChange::Compared("smaller images: a small random crop is enlarged"),
        });
    }
    let (id, name) = match (first.effect(), fixed) {
        _ if first.is_random() => return None,
        (Effect::Crop, Some(size)) => ("crop", format!("cropped to {size} once")),
        (Effect::Resize, _) => ("resize", "resized once, as the pipeline does".to_owned()),
        _ => return None,
    };
    // The shorter side of the result, if it is the same for every image.
    let short_side = |width| {
        let resized = first.output_size(Some(Size { height: 1, width }));
        let size = resized.ok().flatten()?;
        Some(size.height.min(size.width))
    };
    let short_side = short_side(1).filter(|side| short_side(2) == Some(*side));
    Some(GeometryChange {
        id,
        name,
        flags: "--bake 1".to_owned(),
        // The packer applies the pipeline's own transform, with its position, filter and padding.
        transforms: vec![first.clone()],
        short_side: short_side.filter(|_| fixed.is_none()),
        pixels: PixelChange::Compared("stored after this transform"),
    })
}

/// Returns the remedy of decoded pixels, one array per field. All images must have one size.
fn arrays(id: String, case: &Case, records: Records) -> Option<Candidate> {
    if !can_rewrite(case) {
        return None;
    }
    let bake = bake(case, records);
    let mut transforms = Vec::new();
    let mut flags = String::new();
    let mut name = "decoded pixels on disk".to_owned();
    let mut pixels = PixelChange::Identical("identical");
    if let Some(bake) = bake {
        transforms = bake.transforms;
        flags = format!(" {}", bake.flags);
        name = format!("decoded pixels on disk, {}", bake.name);
        pixels = bake.pixels;
        if let Some(side) = bake.short_side {
            transforms.push(CenterCrop::new(side).into());
            flags += &format!(" --center-crop {side}x{side}");
            pixels = PixelChange::Compared(
                "smaller images, central square only: random crops cannot draw the rest",
            );
        }
    }
    Some(Candidate {
        id,
        name,
        command: format!("infeed pack {} OUT --to arrays{flags}", case.name),
        change: RemedyChange::Pack {
            options: PackOptions {
                transforms,
                ..PackOptions::new(Target::Arrays)
            },
        },
        pixels,
    })
}
