//! Checks for fields with image coordinates that are not declared as boxes. No transform changes
//! these, so transforms that move pixels, or mix them with another sample's, must not go unnoticed.

use crate::fields::failure::part_name;
use crate::fields::kinds::labels::DEFAULT_LABEL;
use crate::pipeline::Pipeline;
use infeed_codec::transform::Transform;
use infeed_core::error::Error;
use infeed_core::sample::{DType, Field, FieldKind};

/// Singular words in the names of fields with coordinates.
const WORDS: [&str; 19] = [
    "bbox",
    "box",
    "coord",
    "coordinate",
    "corner",
    "cxcywh",
    "joint",
    "keypoint",
    "kp",
    "kpt",
    "landmark",
    "obb",
    "point",
    "polygon",
    "quad",
    "segment",
    "segmentation",
    "xywh",
    "xyxy",
];

/// Evidence that a field contains coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Likeness {
    /// Name and shape.
    Both,
    /// Only the shape.
    Shape,
    /// Neither, or only the name.
    None,
}

/// Rejects transforms that move or mix pixels next to fields that look like coordinates, unless the
/// description declares them as boxes or keeps them. `all` says whether `fields` are all fields of
/// the source.
pub fn check(
    pipeline: &Pipeline,
    transforms: &[Transform],
    fields: &[Field],
    all: bool,
) -> Result<(), Error> {
    let (boxes, points) = (pipeline.declared_boxes(), pipeline.declared_points());
    for name in &pipeline.keep {
        let problem = match fields.iter().find(|field| field.name == *name) {
            Some(field) if is_visual(&field.kind) => format!(
                "`{name}` is an image or a mask, which transforms always move together; remove it \
                 from keep"
            ),
            _ if boxes.iter().any(|spec| spec.moves(name)) => {
                format!(
                    "`{name}` is declared as boxes or masks, which move; remove it from keep or boxes"
                )
            }
            _ if points.iter().any(|spec| spec.field == *name) => {
                format!("`{name}` is declared as points, which move; remove it from keep or points")
            }
            None if all => {
                let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
                format!("no field `{name}`; use one of {names:?}")
            }
            _ => continue,
        };
        return Err(Error::config("keep", problem));
    }
    let Some(Mismatch { part, action, held }) =
        mismatch(pipeline, transforms, fields, Likeness::Both)
    else {
        return Ok(());
    };
    let names: Vec<&str> = held.iter().map(|field| field.name.as_str()).collect();
    let first = held[0];
    let problem = format!(
        "this transform {action}, but not the coordinates in `{0}` ({1}); declare boxes with \
         .boxes({0:?}, format=\"xyxy\") or points with .points({0:?}), which moves them with the \
         image; else remove the transform, \
         or declare that these fields stay unchanged with .transform(..., keep={2})",
        first.name,
        kind_text(&first.kind),
        tuple(&names),
    );
    Err(Error::config(part, problem))
}

/// Returns warnings for fields that only have the shape of coordinates.
pub(super) fn warnings(pipeline: &Pipeline, fields: &[Field]) -> Vec<String> {
    let Some(Mismatch { part, action, held }) =
        mismatch(pipeline, &pipeline.transforms, fields, Likeness::Shape)
    else {
        return Vec::new();
    };
    let each = |field: &&Field| format!("`{}` ({})", field.name, kind_text(&field.kind));
    let each: Vec<String> = held.iter().map(each).collect();
    let names: Vec<&str> = held.iter().map(|field| field.name.as_str()).collect();
    vec![format!(
        "{part}: this transform {action}, but not {}; if these fields are coordinates in the image, \
         they no longer match the image: declare them with .boxes(...) or .points(...); if they are not, declare that with .transform(..., keep={})",
        each.join(", "),
        tuple(&names),
    )]
}

/// A transform after which fields no longer match the image.
struct Mismatch<'a> {
    part: String,
    action: &'static str,
    /// At least one field.
    held: Vec<&'a Field>,
}

/// Returns the first transform that moves or mixes pixels next to fields with this evidence. Leaves
/// out the fields that the description keeps or moves as boxes, the sizes of results, and the labels
/// that the transform mixes.
fn mismatch<'a>(
    pipeline: &Pipeline,
    transforms: &[Transform],
    fields: &'a [Field],
    wanted: Likeness,
) -> Option<Mismatch<'a>> {
    let (boxes, points) = (pipeline.declared_boxes(), pipeline.declared_points());
    transforms.iter().enumerate().find_map(|(at, transform)| {
        let (action, label) = match transform.mixing() {
            Some(settings) => (
                "mixes the pixels of two samples",
                Some(settings.field.unwrap_or(DEFAULT_LABEL)),
            ),
            None if transform.changes_geometry() => ("moves pixels", None),
            None => return None,
        };
        let is_held = |field: &&Field| {
            likeness(&field.name, &field.kind) == wanted
                && !pipeline.keep.contains(&field.name)
                && !boxes.iter().any(|spec| spec.moves(&field.name))
                && !points.iter().any(|spec| spec.field == field.name)
                && !transforms
                    .iter()
                    .any(|one| one.size_field() == Some(&field.name))
                && label != Some(field.name.as_str())
        };
        let held: Vec<&Field> = fields.iter().filter(is_held).collect();
        (!held.is_empty()).then(|| Mismatch {
            part: part_name(at, transform),
            action,
            held,
        })
    })
}

fn likeness(name: &str, kind: &FieldKind) -> Likeness {
    let (dtype, in_row) = match kind {
        FieldKind::Tensor { dtype, shape } => (*dtype, shape.last().copied()),
        // The shape does not show the numbers per row, so the name decides.
        FieldKind::Ragged { dtype } => (*dtype, None),
        _ => return Likeness::None,
    };
    let is_ragged = matches!(kind, FieldKind::Ragged { .. });
    let is_named = dtype != DType::Bool && names_coordinates(name);
    match in_row {
        _ if dtype == DType::Bool => Likeness::None,
        None if is_ragged && is_named => Likeness::Both,
        // Also all numbers of an object in a row, such as 17 keypoints with visibilities.
        Some(2..) if is_named => Likeness::Both,
        Some(2 | 4 | 5) => Likeness::Shape,
        _ => Likeness::None,
    }
}

/// Whether a word of the name, in any case and number, is a word for coordinates.
fn names_coordinates(name: &str) -> bool {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        let begins = letter.is_uppercase() && was_lower;
        if begins || !letter.is_alphabetic() {
            words.push(String::new());
        }
        if letter.is_alphabetic()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words.iter().any(|word| {
        let singular = word.strip_suffix("es").filter(|word| word.ends_with('x'));
        let singular = singular.or(word.strip_suffix('s')).unwrap_or(word);
        WORDS.contains(&singular) || WORDS.contains(&word.as_str())
    })
}

fn is_visual(kind: &FieldKind) -> bool {
    matches!(kind, FieldKind::Image(_) | FieldKind::Mask(_))
}

fn kind_text(kind: &FieldKind) -> String {
    match kind {
        FieldKind::Tensor { dtype, shape } => format!("{} {shape:?}", dtype.name()),
        FieldKind::Ragged { dtype } => format!("lists of {}", dtype.name()),
        _ => String::new(),
    }
}

/// Formats names as a Python tuple.
fn tuple(names: &[&str]) -> String {
    match names {
        [name] => format!("({name:?},)"),
        names => {
            let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
            format!("({})", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{BoxesSpec, PointsSpec, SourceSpec};
    use infeed_codec::transform::{
        BoxFormat, ColorJitter, CutMix, MixUp, RandomHorizontalFlip, Resize,
    };
    use infeed_core::sample::Pixels;

    fn field(name: &str, kind: FieldKind) -> Field {
        let name = name.to_owned();
        Field { name, kind }
    }

    fn tensor(shape: &[usize]) -> FieldKind {
        let (dtype, shape) = (DType::Float32, shape.to_vec());
        FieldKind::Tensor { dtype, shape }
    }

    fn fields(name: &str, kind: FieldKind) -> Vec<Field> {
        let image = field("image", FieldKind::Image(Pixels::Encoded));
        vec![image, field(name, kind)]
    }

    fn resizing_pipeline() -> Pipeline {
        Pipeline::new(SourceSpec::folder("x"))
            .decode()
            .transform(ColorJitter::default())
            .transform(Resize::new([8, 8]))
    }

    fn check_fields(pipeline: &Pipeline, fields: &[Field]) -> Result<(), Error> {
        check(pipeline, &pipeline.transforms, fields, true)
    }

    #[test]
    fn coordinate_words_match_in_any_case_and_number() {
        for name in [
            "box",
            "boxes",
            "bbox",
            "bboxes",
            "gt_boxes",
            "BBoxes2d",
            "keypoints",
            "kpts",
            "facePoints",
            "polygon",
            "person.landmarks",
            "bbox_xyxy",
            "corners",
        ] {
            assert!(names_coordinates(name), "{name}");
        }
        for name in [
            "label",
            "boxing",
            "pointer",
            "checkpoint",
            "inbox",
            "xbox360x",
            "area",
        ] {
            assert!(!names_coordinates(name), "{name}");
        }
    }

    #[test]
    fn name_and_shape_together_are_an_error_and_shape_alone_is_a_warning() {
        use Likeness::{Both, None, Shape};
        let lists = FieldKind::Ragged {
            dtype: DType::Int64,
        };
        for (name, kind, expected) in [
            ("boxes", tensor(&[7, 4]), Both),
            ("box", tensor(&[4]), Both),
            ("keypoints", tensor(&[17, 3]), Both),
            ("rotated_boxes", tensor(&[7, 5]), Both),
            ("points", lists.clone(), Both),
            ("boxes", tensor(&[7, 6]), Both),
            ("keypoints", tensor(&[51]), Both),
            ("corners", tensor(&[8]), Both),
            ("segmentation", tensor(&[10]), Both),
            ("quads", tensor(&[3, 8]), Both),
            ("obb", tensor(&[1]), None),
            ("points", tensor(&[]), None),
            ("box", FieldKind::Text, None),
            ("pose", tensor(&[17, 2]), Shape),
            ("pose", tensor(&[17, 3]), None),
            ("tokens", lists, None),
            ("label", tensor(&[]), None),
        ] {
            assert_eq!(likeness(name, &kind), expected, "{name} {kind:?}");
        }
    }

    #[test]
    fn the_first_transform_that_moves_pixels_is_named_with_the_field_and_the_fix() {
        let boxes = fields("boxes", tensor(&[7, 4]));

        let error = check_fields(&resizing_pipeline(), &boxes)
            .expect_err("boxes")
            .to_string();

        assert!(error.starts_with("transform 2 (Resize): "), "{error}");
        assert!(error.contains("`boxes` (float32 [7, 4])"), "{error}");
        assert!(error.contains("keep=(\"boxes\",)"), "{error}");
        let jitter = Pipeline::new(SourceSpec::folder("x")).transform(ColorJitter::default());
        assert!(check_fields(&jitter, &boxes).is_ok(), "no pixel moves");
    }

    #[test]
    fn mixing_leaves_the_coordinates_of_the_partner_out_unless_they_are_its_labels() {
        let boxes = fields("boxes", tensor(&[7, 4]));
        let source = || Pipeline::new(SourceSpec::folder("x")).decode();
        let labels = MixUp {
            field: Some("boxes".to_owned()),
            ..MixUp::new(0.2)
        };
        for (pipeline, name) in [
            (source().transform(MixUp::new(0.2)), "MixUp"),
            (source().transform(CutMix::new(1.0)), "CutMix"),
        ] {
            let error = check_fields(&pipeline, &boxes)
                .expect_err("boxes")
                .to_string();

            let begin = format!("transform 1 ({name}): this transform mixes the pixels of two");
            assert!(error.starts_with(&begin), "{error}");
            assert!(error.contains("keep=(\"boxes\",)"), "{error}");
            assert!(check_fields(&pipeline.clone().keep(["boxes"]), &boxes).is_ok());
            let pose = warnings(&pipeline, &fields("pose", tensor(&[4])));
            assert!(pose[0].contains("mixes the pixels"), "{pose:?}");
            assert!(warnings(&pipeline, &fields("label", tensor(&[4]))).is_empty());
        }
        assert!(check_fields(&source().transform(labels), &boxes).is_ok());
    }

    #[test]
    fn declared_boxes_are_no_error_but_coordinates_in_their_columns_are() {
        let boxes = BoxesSpec::new("boxes", BoxFormat::Xyxy).columns(["keypoints"]);
        let pipeline = resizing_pipeline().boxes(boxes);
        let (boxes, points) = (
            fields("boxes", tensor(&[7, 4])),
            fields("keypoints", tensor(&[7, 2])),
        );

        assert!(check_fields(&pipeline, &boxes).is_ok());
        assert!(check_fields(&pipeline, &points).is_err());
        let moved = pipeline.clone().points(PointsSpec::new("keypoints"));
        assert!(check_fields(&moved, &points).is_ok());
        let both = check_fields(&moved.keep(["keypoints"]), &points).expect_err("a contradiction");
        assert!(both.to_string().contains("declared as points"), "{both}");
        let both = check_fields(&pipeline.keep(["boxes"]), &boxes).expect_err("a contradiction");
        assert!(both.to_string().contains("declared as boxes"), "{both}");
        let undeclared = check_fields(&resizing_pipeline(), &boxes)
            .expect_err("boxes")
            .to_string();
        assert!(
            undeclared.contains(".boxes(\"boxes\", format=\"xyxy\")"),
            "{undeclared}"
        );
    }

    #[test]
    fn a_kept_field_is_neither_an_error_nor_a_warning() {
        let flip = resizing_pipeline().transform(RandomHorizontalFlip::new(0.0));
        let (boxes, pose) = (
            fields("boxes", tensor(&[7, 4])),
            fields("pose", tensor(&[4])),
        );

        assert!(check_fields(&flip.clone().keep(["boxes"]), &boxes).is_ok());
        assert_eq!(warnings(&flip, &pose).len(), 1);
        assert!(warnings(&flip.clone().keep(["pose"]), &pose).is_empty());
        let unknown = check_fields(&flip.clone().keep(["box"]), &boxes).expect_err("a typo");
        assert!(unknown.to_string().contains("no field `box`"), "{unknown}");
        let image = check_fields(&flip.keep(["image"]), &boxes).expect_err("an image");
        assert!(image.to_string().contains("always move"), "{image}");
    }
}
