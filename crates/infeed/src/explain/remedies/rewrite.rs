//! Remedies that rewrite the data once, beside the original.

use super::{Candidate, Change, Records, not_tried};
use crate::explain::case::Case;
use crate::explain::findings::NotTried;
use crate::pack::{Encoding, PackOptions, PngFilter, PngLevel, TILE, Target};
use crate::pipeline::Pipeline;
use crate::transform::{CenterCrop, Resize, Sides, Transform};

/// How much larger than a random crop's output the shorter side is kept, as a share: 256 for 224,
/// which is what the field has evaluated with since 2012.
const ROOM: (u32, u32) = (8, 7);

/// A downscale below this share of the shorter side is worth the trial.
const SMALLER: f64 = 0.8;

/// Geometry that can be done once instead of in each epoch.
struct Bake {
    id: &'static str,
    name: String,
    flags: String,
    transforms: Vec<Transform>,
    /// Whether every decoded image has the same size afterwards.
    one_size: bool,
}

pub(super) fn add(
    case: &Case,
    records: Records,
    found: &mut Vec<Candidate>,
    not: &mut Vec<NotTried>,
) {
    if case.own.files(0).is_empty() || case.pipeline.decode.is_none() {
        return;
    }
    found.push(shards(case));
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
                .find(|way| way.id == "jpeg-95");
            found.extend(jpeg.map(|way| rewrite(case, Some(bake), &way)));
        }
    }
    match arrays(case, bake.as_ref()) {
        Ok(candidate) => found.push(candidate),
        Err(why) => not.push(not_tried("decoded", "keep decoded pixels on disk", why)),
    }
}

/// A format to write images in.
struct Way {
    id: &'static str,
    name: &'static str,
    flag: &'static str,
    image: Encoding,
    mask: Encoding,
    quality: Option<&'static str>,
}

/// The format that images have.
const KEPT: Way = Way {
    id: "",
    name: "in their format",
    flag: "keep",
    image: Encoding::Keep,
    mask: Encoding::Keep,
    quality: None,
};

/// Formats worth a trial. Masks keep theirs, or get a PNG that is cheaper to read; never a lossy
/// one.
fn encodings(records: Records) -> Vec<Way> {
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
    let jpeg = |id, name, flag, quality| Way {
        id,
        name,
        flag,
        image: Encoding::Jpeg { quality },
        mask: up,
        quality: None,
    };
    vec![
        Way {
            id: "png-up",
            name: "PNG that is cheaper to read (filter Up, fast compression)",
            flag: "png:up:fast",
            image: up,
            mask: up,
            quality: Some("identical"),
        },
        Way {
            id: "png-stored",
            name: "PNG without compression",
            flag: "png:none:stored",
            image: stored,
            mask: up,
            quality: Some("identical"),
        },
        jpeg("jpeg-95", "images as JPEG, quality 95", "jpeg:95", 95),
        jpeg("jpeg-90", "images as JPEG, quality 90", "jpeg:90", 90),
    ]
}

fn rewrite(case: &Case, bake: Option<&Bake>, way: &Way) -> Candidate {
    let parts: Vec<&str> = [bake.map_or("", |bake| bake.id), way.id]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    let id = parts.join("-");
    let name = match bake {
        None => way.name.to_owned(),
        Some(bake) => format!("{}, {}", bake.name, way.name),
    };
    let mut flags = bake.map_or(String::new(), |bake| format!(" {}", bake.flags));
    if way.flag != "keep" {
        flags += &format!(" --image {}", way.flag);
    }
    if case.has_masks() && way.mask != Encoding::Keep {
        flags += " --mask png:up:fast";
    }
    Candidate {
        command: format!("infeed pack {} OUT --to folder{flags}", case.name),
        change: Change::Pack {
            options: PackOptions {
                transforms: bake.map_or(Vec::new(), |bake| bake.transforms.clone()),
                image: way.image,
                mask: way.mask,
                ..PackOptions::new(Target::Folder)
            },
        },
        quality: if bake.is_some() { None } else { way.quality },
        id,
        name,
    }
}

/// Restart markers, where most images are JPEGs of which the pipeline decodes a part.
fn restart_index(case: &Case, records: Records) -> Option<Candidate> {
    let cuts = matches!(
        case.pipeline.transforms.first()?,
        Transform::RandomResizedCrop(_)
            | Transform::RandomCrop(_)
            | Transform::CenterCrop(_)
            | Transform::Crop(_)
    );
    if !cuts || records.jpeg <= records.png {
        return None;
    }
    let mut options = PackOptions::new(Target::Folder);
    options.restart = Some(TILE);
    Some(Candidate {
        id: "restart-index".to_owned(),
        name: "JPEGs with restart markers: a crop decodes its tiles alone".to_owned(),
        command: format!("infeed pack {} OUT --to folder --restart-index", case.name),
        change: Change::Pack { options },
        quality: Some("identical"),
    })
}

/// The records as they are, in large files.
fn shards(case: &Case) -> Candidate {
    Candidate {
        id: "shards".to_owned(),
        name: "the same files in large ones (tar shards)".to_owned(),
        command: format!("infeed pack {} OUT --to webdataset", case.name),
        change: Change::Pack {
            options: PackOptions::new(Target::WebDataset),
        },
        quality: Some(match case.pipeline.shuffle {
            Some(_) => "identical; shuffled within windows of shards",
            None => "identical",
        }),
    }
}

/// The geometry of a pipeline that needs no draw, or the size its random crop needs.
fn bake(pipeline: &Pipeline, short_side: u32) -> Option<Bake> {
    let first = pipeline.transforms.first()?;
    // Done by the packer as the pipeline has it: place, filter and padding are its own.
    let as_it_is = |id, name, one_size| Bake {
        id,
        name,
        flags: "--bake 1".to_owned(),
        transforms: vec![first.clone()],
        one_size,
    };
    match first {
        Transform::Crop(crop) => {
            let name = format!("cut to {}x{} once", crop.width, crop.height);
            Some(as_it_is("crop", name, true))
        }
        Transform::CenterCrop(crop) => {
            let name = format!("cut to {} once", crop.size.square());
            Some(as_it_is("crop", name, true))
        }
        Transform::Resize(resize) => {
            let one_size = matches!(resize.size, Sides::Both(_));
            let name = "resized once, as the pipeline does".to_owned();
            Some(as_it_is("resize", name, one_size))
        }
        Transform::RandomResizedCrop(crop) => {
            let size = crop.size.square();
            let side = size.height.max(size.width) * ROOM.0 / ROOM.1;
            if f64::from(side) > SMALLER * f64::from(short_side) {
                return None;
            }
            Some(Bake {
                id: "resize",
                name: format!("shorter side {side} px"),
                flags: format!("--short-side {side}"),
                transforms: vec![Transform::Resize(Resize::new(side))],
                one_size: false,
            })
        }
        _ => None,
    }
}

/// Decoded pixels, one array a field. Needs one size for all images.
fn arrays(case: &Case, bake: Option<&Bake>) -> Result<Candidate, &'static str> {
    let mut transforms = bake.map_or(Vec::new(), |bake| bake.transforms.clone());
    let mut flags = bake.map_or(String::new(), |bake| format!(" {}", bake.flags));
    let mut name = "decoded pixels on disk".to_owned();
    let mut quality = "identical";
    if let Some(bake) = bake {
        name = format!("decoded pixels on disk, {}", bake.name);
        if !bake.one_size {
            let Some(Transform::Resize(resize)) = bake.transforms.first() else {
                return Err("the images differ in size");
            };
            let Sides::One(side) = resize.size else {
                return Err("the images differ in size");
            };
            transforms.push(Transform::CenterCrop(CenterCrop::new(side)));
            flags += &format!(" --center-crop {side}x{side}");
            quality = "shrunk, and cut to the middle square: what lies beside it is lost";
        }
    }
    Ok(Candidate {
        id: "decoded".to_owned(),
        name,
        command: format!("infeed pack {} OUT --to arrays{flags}", case.name),
        change: Change::Pack {
            options: PackOptions {
                transforms,
                ..PackOptions::new(Target::Arrays)
            },
        },
        quality: Some(quality),
    })
}
