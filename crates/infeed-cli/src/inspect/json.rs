//! The contents of a dataset, as JSON.

use std::collections::BTreeMap;

use infeed::pipeline::MemoryField;
use infeed_core::order::mixing::{BatchVariety, Variety};
use infeed_core::sample::{DType, Size};
use infeed_source::left_out::LeftOut;
use schemars::JsonSchema;
use serde::Serialize;

use super::check::{FolderCheck, TurnedFile};
use super::report::{RecordSummary, Report, bytes_per_pixel, spread_of};

/// Result of `infeed inspect`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct InspectJson {
    /// Images in separate files. Null without any.
    images: Option<FolderJson>,
    /// Masks in separate files. Null without any.
    masks: Option<FolderJson>,
    /// Class folders in the order of their names.
    classes: Vec<ClassJson>,
    /// Classes of masks, most frequent first.
    mask_classes: Vec<MaskClassJson>,
    /// Parts of the dataset that the source does not read.
    left_out: Vec<LeftOutJson>,
    /// Stems of images without a mask.
    images_without_mask: Vec<String>,
    /// Stems of masks without an image.
    masks_without_image: Vec<String>,
    /// Pairs of image and mask that differ in size, with both sizes.
    size_mismatches: Vec<String>,
    /// Arrays in memory or in files.
    arrays: Vec<ArrayJson>,
    /// The records of shards, tables and other sources. Null if each record is a file.
    records: Option<RecordsJson>,
}

/// The files of one folder.
#[derive(JsonSchema, Serialize)]
struct FolderJson {
    /// Path. Empty if the files are in several folders.
    path: String,
    /// Number of files.
    files: usize,
    /// Number of files that were decoded.
    checked: usize,
    /// Bytes of the good files that were decoded.
    bytes: u64,
    /// Their pixels.
    pixels: u64,
    /// `bytes` divided by `pixels`.
    bytes_per_pixel: f64,
    /// Number of files by format, channels and depth, such as `PNG RGB`.
    formats: BTreeMap<String, u64>,
    /// Heights in pixels. Zeros without a good file.
    height: SpreadJson,
    /// Widths in pixels. Zeros without a good file.
    width: SpreadJson,
    /// Files with an EXIF orientation that turns them.
    turned: Vec<TurnedJson>,
    /// Number of files that decode with a harmless warning.
    warned: u64,
    /// Bad files.
    bad: Vec<BadFileJson>,
}

/// Smallest, median and largest number.
#[derive(JsonSchema, Serialize)]
struct SpreadJson {
    /// Smallest number.
    min: u32,
    /// Median.
    median: u32,
    /// Largest number.
    max: u32,
}

/// A file with an EXIF orientation.
#[derive(JsonSchema, Serialize)]
struct TurnedJson {
    /// Path.
    path: String,
    /// Height and width as stored, in pixels.
    stored: [u32; 2],
    /// Height and width as displayed, in pixels.
    displayed: [u32; 2],
}

/// A bad file.
#[derive(JsonSchema, Serialize)]
struct BadFileJson {
    /// Path.
    path: String,
    /// The error.
    reason: String,
}

/// A class folder.
#[derive(JsonSchema, Serialize)]
struct ClassJson {
    /// Name of the class.
    name: String,
    /// Number of images.
    count: u64,
}

/// A class of masks.
#[derive(JsonSchema, Serialize)]
struct MaskClassJson {
    /// Name of the class, or its number.
    name: String,
    /// Share of all pixels, 0 to 1.
    share: f64,
}

/// Parts of one kind that the source does not read.
#[derive(JsonSchema, Serialize)]
struct LeftOutJson {
    /// Path or URL of the dataset or file that has the parts.
    location: String,
    /// Their kind, such as `file without an image extension`.
    kind: &'static str,
    /// Number of parts.
    count: u64,
    /// The first few names in sorted order.
    names: Vec<String>,
    /// Reason or fix. Empty if the kind explains itself.
    note: String,
}

/// An array.
#[derive(JsonSchema, Serialize)]
struct ArrayJson {
    /// Name of the field.
    name: String,
    /// `image`, `mask`, `tensor`, `bytes`, `text` or `ragged`.
    kind: String,
    /// Element type, such as `float32`. Null for encoded images, bytes and text.
    dtype: Option<&'static str>,
    /// Shape of one record.
    shape: Vec<usize>,
    /// Number of records. Null for an array in memory.
    records: Option<u64>,
}

/// The records of a source.
#[derive(JsonSchema, Serialize)]
struct RecordsJson {
    /// Number of records that the pipeline reads.
    count: u64,
    /// Number of records of the source. Null if the pipeline reads all of them.
    of: Option<u64>,
    /// Number of records that were decoded.
    checked: u64,
    /// Number of shards or row groups. Null if each record is stored separately.
    shards: Option<usize>,
    /// Bytes of the shards. Null if each record is stored separately.
    bytes: Option<u64>,
    /// Fields of a record.
    fields: Vec<FieldJson>,
    /// Damaged records.
    damaged: Vec<DamagedJson>,
    /// Number of boxes in the checked records.
    boxes: u64,
    /// Records with boxes that lie mostly outside their image.
    boxes_outside: Vec<OutsideJson>,
    /// Labels and shards in a batch of the pipeline's order. Null without shards and labels.
    mixing: Option<MixingJson>,
}

/// A field of a record.
#[derive(JsonSchema, Serialize)]
struct FieldJson {
    /// Name.
    name: String,
    /// Kind of its data.
    kind: String,
}

/// A damaged record.
#[derive(JsonSchema, Serialize)]
struct DamagedJson {
    /// Name of the record.
    name: String,
    /// The error.
    reason: String,
}

/// A record with boxes that lie mostly outside its image.
#[derive(JsonSchema, Serialize)]
struct OutsideJson {
    /// Name of the record.
    name: String,
    /// Number of these boxes.
    boxes: u64,
}

/// Labels and shards in a batch.
#[derive(JsonSchema, Serialize)]
struct MixingJson {
    /// Rows of a batch.
    batch: u64,
    /// Labels in a batch. Null without labels.
    labels: Option<VarietyJson>,
    /// Shards in a batch. Null without shards.
    shards: Option<VarietyJson>,
    /// The problem and its fix, if the order mixes badly.
    warning: Option<String>,
}

/// Number of different labels or shards in a batch.
#[derive(JsonSchema, Serialize)]
struct VarietyJson {
    /// Number in the dataset.
    all: u64,
    /// Mean number in a batch.
    in_a_batch: f64,
    /// Mean number in a batch of a full shuffle.
    if_all_shuffled: f64,
}

impl InspectJson {
    pub(super) fn new(report: &Report) -> InspectJson {
        let classes = report.classes.iter();
        let shares = report.mask_classes.iter();
        InspectJson {
            images: report.images.as_ref().map(FolderJson::new),
            masks: report.masks.as_ref().map(FolderJson::new),
            classes: classes
                .map(|(name, &count)| ClassJson {
                    name: name.clone(),
                    count,
                })
                .collect(),
            mask_classes: shares
                .map(|(name, share)| MaskClassJson {
                    name: name.clone(),
                    share: *share,
                })
                .collect(),
            left_out: report.left_out.iter().map(LeftOutJson::new).collect(),
            images_without_mask: report.without_mask.clone(),
            masks_without_image: report.without_image.clone(),
            size_mismatches: report.mismatched.clone(),
            arrays: report.arrays.iter().map(ArrayJson::new).collect(),
            records: report.records.as_ref().map(RecordsJson::new),
        }
    }
}

impl FolderJson {
    fn new(folder: &FolderCheck) -> FolderJson {
        let spread = |side: fn(&Size) -> u32| {
            let [min, median, max] = spread_of(folder, side);
            SpreadJson { min, median, max }
        };
        let bad = folder.bad.iter();
        FolderJson {
            path: folder.root.display().to_string(),
            files: folder.files,
            checked: folder.checked,
            bytes: folder.bytes,
            pixels: folder.pixels,
            bytes_per_pixel: bytes_per_pixel(folder),
            formats: folder.formats.clone(),
            height: spread(|size| size.height),
            width: spread(|size| size.width),
            turned: folder.turned.iter().map(TurnedJson::new).collect(),
            warned: folder.warned,
            bad: bad
                .map(|(path, reason)| BadFileJson {
                    path: path.clone(),
                    reason: reason.clone(),
                })
                .collect(),
        }
    }
}

impl TurnedJson {
    fn new(file: &TurnedFile) -> TurnedJson {
        TurnedJson {
            path: file.name.clone(),
            stored: [file.stored.height, file.stored.width],
            displayed: [file.displayed.height, file.displayed.width],
        }
    }
}

impl LeftOutJson {
    fn new(parts: &LeftOut) -> LeftOutJson {
        LeftOutJson {
            location: parts.location.clone(),
            kind: parts.kind,
            count: parts.count,
            names: parts.names.clone(),
            note: parts.note.clone(),
        }
    }
}

impl ArrayJson {
    fn new(field: &MemoryField) -> ArrayJson {
        ArrayJson {
            name: field.name.clone(),
            kind: field.kind.clone(),
            dtype: field.dtype.map(DType::name),
            shape: field.shape.clone(),
            records: field.records,
        }
    }
}

impl RecordsJson {
    fn new(records: &RecordSummary) -> RecordsJson {
        let (shards, bytes) = records.groups.unzip();
        let fields = records.fields.iter();
        let damaged = records.damaged.iter();
        let outside = records.outside.iter();
        RecordsJson {
            count: records.count,
            of: records.of,
            checked: records.checked,
            shards,
            bytes,
            fields: fields
                .map(|(name, kind)| FieldJson {
                    name: name.clone(),
                    kind: kind.clone(),
                })
                .collect(),
            damaged: damaged
                .map(|(name, reason)| DamagedJson {
                    name: name.clone(),
                    reason: reason.clone(),
                })
                .collect(),
            boxes: records.boxes,
            boxes_outside: outside
                .map(|(name, boxes)| OutsideJson {
                    name: name.clone(),
                    boxes: *boxes,
                })
                .collect(),
            mixing: records.mixing.as_ref().map(MixingJson::new),
        }
    }
}

impl MixingJson {
    fn new(mixing: &BatchVariety) -> MixingJson {
        MixingJson {
            batch: mixing.batch,
            labels: mixing.labels.as_ref().map(VarietyJson::new),
            shards: mixing.groups.as_ref().map(VarietyJson::new),
            warning: mixing.warning(),
        }
    }
}

impl VarietyJson {
    fn new(variety: &Variety) -> VarietyJson {
        VarietyJson {
            all: variety.all,
            in_a_batch: variety.found,
            if_all_shuffled: variety.shuffled,
        }
    }
}
