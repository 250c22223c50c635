//! Remedies that rewrite the data once, next to the original.

use super::candidate::{Candidate, PixelChange, RemedyChange};
use crate::case::Case;
use crate::measure::survey::Records;
use infeed::pipeline::Pipeline;
use infeed::plan::SamplePlan;
use infeed_codec::transform::{CenterCrop, Effect, Resize, Transform};
use infeed_core::sample::Size;
use infeed_pack::{Encoding, PackOptions, PngFilter, PngLevel, TILE, Target};

/// Ratio of the stored shorter side to a random crop's output: 256 for 224, the usual evaluation
/// size since 2012.
const ROOM: (u32, u32) = (8, 7);

/// Ratio of the new to the old shorter side below which a smaller size is worth a trial.
const SMALLER: f64 = 0.8;

/// Geometry that can be applied once instead of in each epoch.
struct GeometryChange {
    id: &'static str,
    name: String,
    flags: String,
    transforms: Vec<Transform>,
    /// Length of the shorter side, if the longer side then differs between images.
    short_side: Option<u32>,
    pixels: PixelChange,
}

pub(super) fn add(case: &Case, records: Records, found: &mut Vec<Candidate>) {
    if case.own.files(0).is_empty() || case.pipeline.decode.is_none() {
        return;
    }
    found.push(shards(case));
    found.extend(lossless(case, records));
    let bake = bake(&case.pipeline, records.short_side);
    for encoding in encodings(records) {
        found.push(rewrite(case, None, &encoding));
    }
    found.extend(restart_index(case, records));
    if let Some(bake) = &bake {
        found.push(rewrite(case, Some(bake), &KEPT));
        if records.png > records.jpeg {
            let jpeg = encodings(records)
                .into_iter()
                .find(|format| format.id == "jpeg-95");
            found.extend(jpeg.map(|format| rewrite(case, Some(bake), &format)));
        }
    }
    found.push(arrays(case, bake.as_ref()));
}

/// An image format to write.
struct ImageFormat {
    id: &'static str,
    name: &'static str,
    flag: &'static str,
    image: Encoding,
    mask: Encoding,
    pixels: PixelChange,
}

/// Keeps the format of the images.
const KEPT: ImageFormat = ImageFormat {
    id: "",
    name: "in their format",
    flag: "keep",
    image: Encoding::Keep,
    mask: Encoding::Keep,
    pixels: PixelChange::Identical("identical"),
};

/// Returns formats worth a trial. Masks keep their format or become a faster PNG, and never a lossy
/// format.
fn encodings(records: Records) -> Vec<ImageFormat> {
    if records.png <= records.jpeg {
        return Vec::new();
    }
    let up = Encoding::Png {
        filter: PngFilter::Up,
        level: PngLevel::Fast,
    };
    let stored = Encoding::Png {
        filter: PngFilter::None,
        level: PngLevel::Stored,
    };
    let jpeg = |id, name, flag, quality| ImageFormat {
        id,
        name,
        flag,
        image: Encoding::Jpeg { quality },
        mask: up,
        pixels: PixelChange::Compared("images as JPEG"),
    };
    vec![
        ImageFormat {
            id: "png-up",
            name: "PNG that is cheaper to read (filter Up, fast compression)",
            flag: "png:up:fast",
            image: up,
            mask: up,
            pixels: PixelChange::Identical("identical"),
        },
        ImageFormat {
            id: "png-stored",
            name: "PNG without compression",
            flag: "png:none:stored",
            image: stored,
            mask: up,
            pixels: PixelChange::Identical("identical"),
        },
        jpeg("jpeg-95", "images as JPEG, quality 95", "jpeg:95", 95),
        jpeg("jpeg-90", "images as JPEG, quality 90", "jpeg:90", 90),
    ]
}

fn rewrite(case: &Case, bake: Option<&GeometryChange>, format: &ImageFormat) -> Candidate {
    let parts: Vec<&str> = [bake.map_or("", |bake| bake.id), format.id]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    let id = parts.join("-");
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
        id,
        name,
    }
}

/// Returns the remedy of restart markers, if most images are JPEGs that the pipeline decodes in
/// part.
fn restart_index(case: &Case, records: Records) -> Option<Candidate> {
    let plan = SamplePlan::over(&case.pipeline, &*case.own).ok()?;
    if !plan.decodes_regions() || records.jpeg <= records.png {
        return None;
    }
    let mut options = PackOptions::new(Target::Folder);
    options.restart = Some(TILE);
    Some(Candidate {
        id: "restart-index".to_owned(),
        name: "JPEGs with restart markers: a crop decodes only its tiles".to_owned(),
        command: format!("infeed pack {} OUT --to folder --restart-index", case.name),
        change: RemedyChange::Pack { options },
        pixels: PixelChange::Identical("identical"),
    })
}

/// Returns the remedy of lossless records, if there are images that can become one.
fn lossless(case: &Case, records: Records) -> Option<Candidate> {
    if records.jpeg + records.png == 0 {
        return None;
    }
    let mut options = PackOptions::new(Target::Folder);
    options.image = Encoding::Lossless;
    options.mask = Encoding::Lossless;
    Some(Candidate {
        id: "lossless".to_owned(),
        name: "lossless records: smaller, and faster to decode".to_owned(),
        command: format!("infeed pack {} OUT --to folder --image lossless", case.name),
        change: RemedyChange::Pack { options },
        pixels: PixelChange::Identical("identical"),
    })
}

/// Returns the remedy that packs the records unchanged into large files.
fn shards(case: &Case) -> Candidate {
    let to = Target::COMMON_SHARDS;
    Candidate {
        id: "shards".to_owned(),
        name: "the same files in tar shards".to_owned(),
        command: format!("infeed pack {} OUT --to {}", case.name, to.name()),
        change: RemedyChange::Pack {
            options: PackOptions::new(to),
        },
        pixels: PixelChange::Identical(match case.pipeline.shuffle {
            Some(_) => "identical; shuffled within windows of shards",
            None => "identical",
        }),
    }
}

/// Returns the part of the geometry that is not random, or the image size that the random crop
/// needs.
fn bake(pipeline: &Pipeline, short_side: u32) -> Option<GeometryChange> {
    let first = pipeline.transforms.first()?;
    let fixed = first.output_size(None).ok().flatten();
    if (first.effect(), first.is_random()) == (Effect::Resize, true) {
        let size = fixed?;
        let side = size.height.max(size.width) * ROOM.0 / ROOM.1;
        if f64::from(side) > SMALLER * f64::from(short_side) {
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
fn arrays(case: &Case, bake: Option<&GeometryChange>) -> Candidate {
    let mut transforms = bake.map_or(Vec::new(), |bake| bake.transforms.clone());
    let mut flags = bake.map_or(String::new(), |bake| format!(" {}", bake.flags));
    let mut name = "decoded pixels on disk".to_owned();
    let mut pixels = PixelChange::Identical("identical");
    if let Some(bake) = bake {
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
    Candidate {
        id: "decoded".to_owned(),
        name,
        command: format!("infeed pack {} OUT --to arrays{flags}", case.name),
        change: RemedyChange::Pack {
            options: PackOptions {
                transforms,
                ..PackOptions::new(Target::Arrays)
            },
        },
        pixels,
    }
}
