//! Data sources in a description: one variant per kind of source.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::boxes::BoxesSpec;
use super::file_names::{FileNames, file_names};
use super::memory_field::{Handle, MemoryField};
use super::points::PointsSpec;
use infeed_codec::transform::BoxFormat;
use infeed_core::error::Error;
use infeed_core::sample::{Field, FieldKind, Pixels};
use infeed_source::boxed_images::{self, AnnotatedImage};
use infeed_source::class_names::ClassNames;
use infeed_source::coco::{self, CocoLabels};
use infeed_source::field_spec::FieldSpec;
use infeed_source::folder::{Folder, FolderOptions, Labels};
use infeed_source::formats::{self, FileFormat};
use infeed_source::memory::Memory;
use infeed_source::mix::Mix;
use infeed_source::pairs::{PairFolder, Pairs};
use infeed_source::store::FilePatterns;
use infeed_source::{Source, labelme, panoptic, voc, yolo};

/// Defines [`SourceSpec`] with one variant for each file format of the table, and what these
/// variants have in common.
macro_rules! source_spec {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident { $key:ident: $files:ty } $format:path;
    )*) => {
        /// Description of a data source.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
        pub enum SourceSpec {
            /// Image files below a folder.
            Folder {
                /// The folder.
                path: PathBuf,
                /// `auto` (the class folders, if there are any), `none`, or the path of a CSV with
                /// the columns `path` and `label`.
                #[serde(default = "auto")]
                labels: String,
                /// Names of the classes in the order of their numbers: a list, a text file with a
                /// name in each line, or a folder whose folders are the classes. Absent: the sorted
                /// names.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                classes: Option<ClassNames>,
                /// Whether a class folder may have no images. Always allowed with `classes`.
                #[serde(default, skip_serializing_if = "is_no")]
                allow_empty: bool,
                /// Whether symbolic links below `path` are followed.
                #[serde(default = "yes", skip_serializing_if = "is_yes")]
                follow_links: bool,
            },
            /// Images and masks with equal file stems in two folders.
            Pairs {
                /// Folder of the images.
                image: PathBuf,
                /// Folder of the masks.
                mask: PathBuf,
                /// End of the names of images that is not part of the name of a pair. Images without
                /// the end are excluded.
                #[serde(default, skip_serializing_if = "String::is_empty")]
                image_suffix: String,
                /// The same for masks, such as `_mask`.
                #[serde(default, skip_serializing_if = "String::is_empty")]
                mask_suffix: String,
                /// Whether symbolic links below the two folders are followed.
                #[serde(default = "yes", skip_serializing_if = "is_yes")]
                follow_links: bool,
            },
            /// Images with the boxes of a COCO annotation file.
            Coco {
                /// Folder or URL of the images.
                images: PathBuf,
                /// The JSON file.
                annotations: PathBuf,
                /// Whether labels are ids of categories, or their indices in the order of ids.
                #[serde(default)]
                labels: CocoLabels,
                /// Keypoints of an object. Absent: keypoints are not read.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                keypoints: Option<usize>,
                /// Whether the mask of each box is read.
                #[serde(default, skip_serializing_if = "is_no")]
                masks: bool,
                /// Folder or URL of the PNG files of a panoptic segmentation. Boxes are then those of
                /// its segments, with masks.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                panoptic: Option<PathBuf>,
                /// Whether symbolic links below `images` are followed.
                #[serde(default = "yes", skip_serializing_if = "is_yes")]
                follow_links: bool,
            },
            /// Images with the boxes of YOLO text files.
            Yolo {
                /// Folder or URL of the images.
                images: PathBuf,
                /// Folder of the text files. Absent: `images` with its last folder `images`
                /// replaced by `labels`.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                labels: Option<PathBuf>,
                /// Text file with the name of a class in each line, or a `data.yaml` with the names.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                classes: Option<PathBuf>,
                /// Whether the corners of rotated boxes are read.
                #[serde(default, skip_serializing_if = "is_no")]
                corners: bool,
                /// Whether symbolic links below `images` and `labels` are followed.
                #[serde(default = "yes", skip_serializing_if = "is_yes")]
                follow_links: bool,
            },
            /// Images with the boxes of a dataset in the format of Pascal VOC.
            Voc {
                /// Folder with `Annotations`, `ImageSets` and `JPEGImages`.
                path: PathBuf,
                /// Name of a list in `ImageSets/Main`.
                image_set: String,
                /// Names of the classes. Absent: the 20 classes of the challenge.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                classes: Option<Vec<String>>,
                /// Whether symbolic links below `path` are followed.
                #[serde(default = "yes", skip_serializing_if = "is_yes")]
                follow_links: bool,
            },
            /// Images with the shapes of LabelMe files.
            LabelMe {
                /// Folder or URL of the images.
                images: PathBuf,
                /// Folder of the JSON files. Absent: they are next to their images.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                labels: Option<PathBuf>,
                /// Names of the classes. Absent: the sorted names of all shapes.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                classes: Option<Vec<String>>,
                /// Whether the mask of each box is read.
                #[serde(default, skip_serializing_if = "is_no")]
                masks: bool,
                /// Whether symbolic links below `images` and `labels` are followed.
                #[serde(default = "yes", skip_serializing_if = "is_yes")]
                follow_links: bool,
            },
            /// Mix of several sources with the same fields.
            Mix {
                /// The sources.
                parts: Vec<MixPart>,
                /// Records of an epoch if the parts have weights. Absent: the number of records of
                /// all parts.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                epoch: Option<u64>,
            },
            /// Arrays and lists in memory, or arrays in mapped files.
            Memory {
                /// The fields, in order.
                fields: Vec<MemoryField>,
            },
            $(
                $(#[$doc])*
                $variant {
                    /// Paths, patterns and URLs of the files, or the folder that contains them.
                    #[serde(deserialize_with = "file_names")]
                    $key: $files,
                    /// Fields to read. Empty: the files decide.
                    #[serde(default, skip_serializing_if = "Vec::is_empty")]
                    fields: Vec<FieldSpec>,
                    /// Whether symbolic links below the folder of a pattern are followed.
                    #[serde(default = "yes", skip_serializing_if = "is_yes")]
                    follow_links: bool,
                },
            )*
            /// A source object from the caller, such as the items of a Python object.
            Object {
                /// Index into the handles of the description.
                handle: usize,
                /// Name of the source in errors.
                name: String,
            },
        }

        impl SourceSpec {
            $(
                #[doc = concat!("Creates a source of `", stringify!($name), "` files with all fields.")]
                pub fn $name(files: impl Into<String>) -> SourceSpec {
                    SourceSpec::$variant {
                        $key: FileNames::from_name(files.into()),
                        fields: Vec::new(),
                        follow_links: true,
                    }
                }
            )*

            /// Creates the source of a file format. None if the format is not in the table.
            fn of_format(format: &FileFormat, files: String) -> Option<SourceSpec> {
                match format.name {
                    $(stringify!($name) => Some(SourceSpec::$name(files)),)*
                    _ => None,
                }
            }

            /// Returns the format, names and fields of a source in files with many records.
            fn file_source(&self) -> Option<(&'static FileFormat, FilePatterns<'_>, &[FieldSpec])> {
                match self {
                    $(SourceSpec::$variant { $key, fields, follow_links } => {
                        let files = FilePatterns {
                            names: $key.names(),
                            follow_links: *follow_links,
                        };
                        Some((&$format, files, fields))
                    })*
                    _ => None,
                }
            }

            /// Returns the fields that the user chose or declared.
            pub(crate) fn declared_fields(&self) -> &[FieldSpec] {
                self.file_source().map_or(&[], |(_, _, fields)| fields)
            }

            /// Returns the names of the files of a source in files with many records.
            pub(super) fn file_names_mut(&mut self) -> &mut [String] {
                match self {
                    $(SourceSpec::$variant { $key, .. } => $key.names_mut(),)*
                    _ => &mut [],
                }
            }
        }
    };
}

infeed_source::file_formats!(source_spec);

/// One source of a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixPart {
    /// Relative share of an epoch. Absent, and then for all parts: every record occurs once per
    /// epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// The source.
    pub source: SourceSpec,
}

fn auto() -> String {
    "auto".to_owned()
}

fn yes() -> bool {
    true
}

fn is_yes(follow: &bool) -> bool {
    *follow
}

fn is_no(given: &bool) -> bool {
    !*given
}

impl SourceSpec {
    /// Creates a source of image files below a folder, labelled by class folder if there are any.
    pub fn folder(path: impl Into<PathBuf>) -> SourceSpec {
        SourceSpec::Folder {
            path: path.into(),
            labels: auto(),
            classes: None,
            allow_empty: false,
            follow_links: true,
        }
    }

    /// Creates a source of images and masks with equal file stems in two folders.
    pub fn pairs(image: impl Into<PathBuf>, mask: impl Into<PathBuf>) -> SourceSpec {
        SourceSpec::Pairs {
            image: image.into(),
            mask: mask.into(),
            image_suffix: String::new(),
            mask_suffix: String::new(),
            follow_links: true,
        }
    }

    /// Creates the source of shards or tables that the name of a path, pattern or URL reveals. None
    /// for other names.
    pub fn detect(path: &Path) -> Option<SourceSpec> {
        let (format, files) = formats::detect(path)?;
        SourceSpec::of_format(format, files)
    }

    /// Returns the fields that are known before the source is listed or read; `None` if records
    /// have to be read. The fields that transforms can work on are always included.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a field whose type or shape does not fit its kind.
    pub fn known_fields(&self) -> Result<Option<Vec<Field>>, Error> {
        let field = |name: &str, kind| Field {
            name: name.to_owned(),
            kind,
        };
        let image = || field("image", FieldKind::Image(Pixels::Encoded));
        if let Some((format, _, fields)) = self.file_source() {
            return (format.known_fields)(fields);
        }
        match self {
            SourceSpec::Folder { .. } => Ok(Some(vec![image()])),
            SourceSpec::Pairs { .. } => Ok(Some(vec![
                image(),
                field("mask", FieldKind::Mask(Pixels::Encoded)),
            ])),
            SourceSpec::Coco {
                keypoints,
                masks,
                panoptic,
                ..
            } => {
                let has_masks = *masks || panoptic.is_some();
                Ok(Some(coco::fields(keypoints.is_some(), has_masks)))
            }
            SourceSpec::Yolo { corners, .. } => Ok(Some(yolo::fields(*corners))),
            SourceSpec::Voc { .. } => Ok(Some(voc::fields())),
            SourceSpec::LabelMe { masks, .. } => Ok(Some(labelme::fields(*masks))),
            SourceSpec::Memory { fields } => {
                let fields: Result<_, _> = fields.iter().map(MemoryField::field).collect();
                fields.map(Some)
            }
            SourceSpec::Mix { parts, .. } => match parts.first() {
                Some(part) => part.source.known_fields(),
                None => Err(Error::config("source", "a mix needs at least one source")),
            },
            // A source object, which only its opening asks.
            _ => Ok(None),
        }
    }

    /// Returns the declaration of the boxes, if the source has boxes and knows their format. The
    /// tools that draw and read such boxes show images in their EXIF orientation.
    pub(super) fn boxes(&self) -> Option<BoxesSpec> {
        let boxes = match self {
            SourceSpec::Coco {
                keypoints,
                masks,
                panoptic,
                ..
            } => {
                let boxes = BoxesSpec::new(boxed_images::BOXES, BoxFormat::Xyxy);
                let boxes = boxes.columns(coco::COLUMNS);
                let boxes = boxes.columns(keypoints.map(|_| coco::KEYPOINTS));
                Some(match *masks || panoptic.is_some() {
                    true => boxes.masks(coco::MASKS),
                    false => boxes,
                })
            }
            SourceSpec::Yolo { corners, .. } => {
                let mut boxes = BoxesSpec::new(boxed_images::BOXES, BoxFormat::Cxcywh);
                boxes.normalized = true;
                let boxes = boxes.columns([boxed_images::LABELS]);
                Some(boxes.columns(corners.then_some(yolo::CORNERS)))
            }
            SourceSpec::Voc { .. } => {
                let boxes = BoxesSpec::new(boxed_images::BOXES, BoxFormat::Xyxy);
                Some(boxes.columns([boxed_images::LABELS, voc::DIFFICULT]))
            }
            SourceSpec::LabelMe { masks, .. } => {
                let boxes = BoxesSpec::new(boxed_images::BOXES, BoxFormat::Xyxy);
                let boxes = boxes.columns([boxed_images::LABELS]);
                Some(match masks {
                    true => boxes.masks(coco::MASKS),
                    false => boxes,
                })
            }
            SourceSpec::Mix { parts, .. } => parts.first()?.source.boxes(),
            _ => None,
        };
        boxes.map(|boxes| BoxesSpec {
            oriented: Some(true),
            ..boxes
        })
    }

    /// Returns the declaration of the points, if the source has points.
    pub(super) fn points(&self) -> Option<PointsSpec> {
        match self {
            SourceSpec::Coco {
                keypoints: Some(count),
                ..
            } => Some(PointsSpec {
                oriented: Some(true),
                ..PointsSpec::new(coco::KEYPOINTS).count(*count)
            }),
            SourceSpec::Yolo { corners: true, .. } => Some(PointsSpec {
                visibility: false,
                normalized: true,
                edges: true,
                oriented: Some(true),
                ..PointsSpec::new(yolo::CORNERS).count(4)
            }),
            SourceSpec::Mix { parts, .. } => parts.first()?.source.points(),
            _ => None,
        }
    }

    /// Names of fields, or of a whole source, that exist only in this process's memory.
    pub(super) fn in_memory_names(&self) -> Vec<&str> {
        match self {
            SourceSpec::Memory { fields } => {
                let held = fields.iter().filter(|field| field.handle.is_some());
                held.map(|field| field.name.as_str()).collect()
            }
            SourceSpec::Mix { parts, .. } => parts
                .iter()
                .flat_map(|part| part.source.in_memory_names())
                .collect(),
            SourceSpec::Object { name, .. } => vec![name],
            _ => Vec::new(),
        }
    }

    /// Opens the source. [`SourceSpec::Memory`] and [`SourceSpec::Object`] refer to `handles`.
    ///
    /// # Errors
    ///
    /// The errors of the source's own `open`.
    pub fn open(&self, handles: &[Handle]) -> Result<Arc<dyn Source>, Error> {
        self.open_annotated(handles, AnnotatedImage::Any)
    }

    /// As [`SourceSpec::open`]. `image` is the one that coordinates of annotations refer to.
    pub(super) fn open_annotated(
        &self,
        handles: &[Handle],
        image: AnnotatedImage,
    ) -> Result<Arc<dyn Source>, Error> {
        Ok(match self {
            SourceSpec::Folder {
                path,
                labels,
                classes,
                allow_empty,
                follow_links,
            } => {
                let options = FolderOptions {
                    labels: match labels.as_str() {
                        "auto" => Labels::Auto,
                        "none" => Labels::None,
                        csv => Labels::Csv(csv.into()),
                    },
                    classes: classes.clone(),
                    allow_empty: *allow_empty,
                    follow_links: *follow_links,
                };
                Arc::new(Folder::open(path, &options)?)
            }
            SourceSpec::Pairs {
                image,
                mask,
                image_suffix,
                mask_suffix,
                follow_links,
            } => {
                let image = PairFolder {
                    path: image,
                    suffix: image_suffix,
                };
                let mask = PairFolder {
                    path: mask,
                    suffix: mask_suffix,
                };
                Arc::new(Pairs::open(image, mask, *follow_links)?)
            }
            SourceSpec::Coco {
                images,
                annotations,
                labels,
                keypoints,
                panoptic: Some(panoptic),
                follow_links,
                ..
            } => {
                if keypoints.is_some() {
                    let problem = "panoptic annotations have no keypoints; leave out one of them";
                    return Err(Error::config("source", problem));
                }
                let source = panoptic::open(images, annotations, panoptic, *labels, *follow_links)?;
                Arc::new(source.with_annotated_image(image))
            }
            SourceSpec::Coco {
                images,
                annotations,
                labels,
                keypoints,
                masks,
                panoptic: None,
                follow_links,
            } => {
                let (labels, keypoints, follow_links) = (*labels, *keypoints, *follow_links);
                let source =
                    coco::open(images, annotations, labels, keypoints, *masks, follow_links)?;
                Arc::new(source.with_annotated_image(image))
            }
            SourceSpec::Yolo {
                images,
                labels,
                classes,
                corners,
                follow_links,
            } => {
                let (labels, classes) = (labels.as_deref(), classes.as_deref());
                Arc::new(yolo::open(
                    images,
                    labels,
                    classes,
                    *corners,
                    *follow_links,
                )?)
            }
            SourceSpec::Voc {
                path,
                image_set,
                classes,
                follow_links,
            } => {
                let source = voc::open(path, image_set, classes.as_deref(), *follow_links)?;
                Arc::new(source.with_annotated_image(image))
            }
            SourceSpec::LabelMe {
                images,
                labels,
                classes,
                masks,
                follow_links,
            } => {
                let (labels, classes) = (labels.as_deref(), classes.as_deref());
                let source = labelme::open(images, labels, classes, *masks, *follow_links)?;
                Arc::new(source.with_annotated_image(image))
            }
            SourceSpec::Mix { parts, epoch } => {
                let weighted = parts.iter().any(|part| part.weight.is_some());
                let shares: Option<Vec<f64>> = parts.iter().map(|part| part.weight).collect();
                if weighted && shares.is_none() {
                    let problem = "give every part of the mix a weight, or none";
                    return Err(Error::config("source", problem));
                }
                let open = |part: &MixPart| part.source.open_annotated(handles, image);
                let sources = parts.iter().map(open);
                let sources = sources.collect::<Result<_, _>>()?;
                Arc::new(Mix::new(sources, shares, *epoch)?)
            }
            SourceSpec::Memory { fields } => {
                let mapped = fields.iter().any(|field| field.path.is_some());
                let fields = fields.iter().map(|field| field.open(handles));
                Arc::new(Memory::new(fields.collect::<Result<_, _>>()?, mapped)?)
            }
            _ => match self.file_source() {
                Some((format, files, fields)) => (format.open)(files, fields)?,
                None => self.object(handles)?,
            },
        })
    }

    /// Returns the source object of the caller.
    fn object(&self, handles: &[Handle]) -> Result<Arc<dyn Source>, Error> {
        let handle = match self {
            SourceSpec::Object { handle, .. } => handles.get(*handle),
            _ => None,
        };
        if let Some(Handle::Source(source)) = handle {
            return Ok(Arc::clone(source));
        }
        let problem = format!(
            "{} exists only in the process that built the pipeline; open the pipeline there",
            self.in_memory_names().join(", ")
        );
        Err(Error::config("source", problem))
    }
}
