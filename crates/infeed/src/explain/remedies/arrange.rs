//! Remedies that describe the same pipeline otherwise, over the same data.

use super::{Candidate, Change};
use crate::explain::case::Case;
use crate::pipeline::Pipeline;
use crate::sample::DType;
use crate::transform::{ClassIndex, OneHot, Transform};

pub(super) fn add(case: &Case, found: &mut Vec<Candidate>) {
    let pipeline = &case.pipeline;
    // A device that batches go to does that by itself; the table of placements tells what it gains.
    if !case.expands() {
        found.extend(class_index(pipeline));
        found.extend(uint8(pipeline));
    }
    let Some(decode) = &pipeline.decode else {
        return;
    };
    if decode.verify {
        let mut other = pipeline.clone();
        other.decode.get_or_insert_default().verify = false;
        found.push(Candidate {
            id: "unverified".to_owned(),
            name: "leave checksums unverified".to_owned(),
            command: ".decode(verify=False)".to_owned(),
            change: Change::Description(Box::new(other)),
            quality: Some("identical; a damaged PNG may go unseen"),
        });
    }
    let resizes = pipeline
        .transforms
        .iter()
        .any(|t| matches!(t, Transform::Resize(_) | Transform::RandomResizedCrop(_)));
    if !decode.dct_scale && resizes {
        let mut other = pipeline.clone();
        other.decode.get_or_insert_default().dct_scale = true;
        found.push(Candidate {
            id: "dct-scale".to_owned(),
            name: "decode JPEGs at a reduced scale before a large downscale".to_owned(),
            command: ".decode(dct_scale=True)".to_owned(),
            change: Change::Description(Box::new(other)),
            quality: None,
        });
    }
}

/// Class indices instead of one channel a class.
fn class_index(pipeline: &Pipeline) -> Option<Candidate> {
    let mut other = pipeline.clone();
    // Of class numbers there is no mean.
    if other
        .transforms
        .iter()
        .any(|t| matches!(t, Transform::MixUp(_)))
    {
        return None;
    }
    let mut palette = None;
    for transform in &mut other.transforms {
        if let Transform::OneHot(OneHot {
            field,
            palette: Some(path),
            unknown,
            ..
        }) = transform
        {
            palette = Some(path.clone());
            let mut index = ClassIndex::new(path.clone());
            index.field = field.clone();
            index.unknown = *unknown;
            *transform = Transform::ClassIndex(index);
        }
    }
    let palette = palette?;
    Some(Candidate {
        id: "class-index".to_owned(),
        name: "class indices instead of one-hot masks".to_owned(),
        command: format!("T.ClassIndex({palette:?}) in place of T.OneHot; one-hot on the device"),
        change: Change::Description(Box::new(other)),
        quality: Some("identical; one byte a pixel instead of one number a class"),
    })
}

/// uint8 out of the loader: cast, normalize and one-hot belong behind the copy, where they make
/// the data no larger on the bus.
fn without_floats(pipeline: &Pipeline) -> Option<Pipeline> {
    let mut other = pipeline.clone();
    let floats = |t: &Transform| {
        matches!(
            t,
            Transform::ToFloat(_) | Transform::Normalize(_) | Transform::RandomErasing(_)
        )
    };
    let any = other.transforms.iter().any(floats);
    // What is erased is erased in finished values; without them it would be another value. What is
    // mixed would be rounded.
    let erases = other
        .transforms
        .iter()
        .any(|t| matches!(t, Transform::RandomErasing(_)) || t.mixes());
    let cast = other
        .output
        .dtype
        .is_some_and(|dtype| dtype != DType::UInt8);
    if erases || !(any || cast) {
        return None;
    }
    other.transforms.retain(|t| !floats(t));
    other.output.dtype = None;
    Some(other)
}

fn uint8(pipeline: &Pipeline) -> Option<Candidate> {
    let other = without_floats(pipeline)?;
    Some(Candidate {
        id: "uint8".to_owned(),
        name: "uint8 batches; cast and normalize behind the copy".to_owned(),
        command: "leave out T.ToFloat and T.Normalize, and do them on the device".to_owned(),
        change: Change::Description(Box::new(other)),
        quality: Some("identical once the device has cast and normalized"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::SourceSpec;
    use crate::transform::{Normalize, RandomHorizontalFlip, ToFloat};

    #[test]
    fn floats_are_left_out_and_geometry_stays() {
        let pipeline = Pipeline::new(SourceSpec::folder("photos"))
            .decode()
            .transform(RandomHorizontalFlip::new(0.5))
            .transform(Normalize::new([0.5; 3], [0.5; 3]));

        let other = without_floats(&pipeline).expect("it has floats");

        assert_eq!(other.transforms.len(), 1);
        assert!(without_floats(&other).is_none());
    }

    #[test]
    fn one_hot_masks_become_class_indices_of_the_same_palette() {
        let pipeline = Pipeline::new(SourceSpec::pairs("a", "b"))
            .decode()
            .transform(ToFloat::of("image"))
            .transform(OneHot::from_palette("classes.csv"));

        let candidate = class_index(&pipeline).expect("it has one-hot masks");

        let Change::Description(other) = candidate.change else {
            panic!("it changes the description");
        };
        assert_eq!(
            other.transforms[1],
            Transform::ClassIndex(ClassIndex::new("classes.csv"))
        );
    }
}
