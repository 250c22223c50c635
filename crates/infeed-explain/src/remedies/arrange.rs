//! Remedies that change the description of the pipeline and keep the data.

use super::candidate::{Candidate, KnownRemedy, PixelChange, RemedyChange};
use crate::case::Case;
use crate::measure::survey::Records;
use infeed::pipeline::Pipeline;
use infeed_codec::transform::{Effect, Transform};
use infeed_core::sample::DType;

pub(super) const REMEDIES: &[KnownRemedy] = &[
    KnownRemedy::Single {
        id: "class-index",
        make: class_index,
    },
    KnownRemedy::Single {
        id: "uint8",
        make: uint8,
    },
    KnownRemedy::Single {
        id: "unverified",
        make: skip_checksums,
    },
    KnownRemedy::Single {
        id: "dct-scale",
        make: dct_scale,
    },
];

/// Class indices instead of one channel per class.
fn class_index(id: String, case: &Case, _: Records) -> Option<Candidate> {
    // With a device, the loader already does that, and the table of placements has the gain.
    if case.expands() {
        return None;
    }
    let (other, palette) = with_class_index(&case.pipeline)?;
    Some(Candidate {
        id,
        name: "class indices instead of one-hot masks".to_owned(),
        command: format!("T.ClassIndex({palette:?}) in place of T.OneHot; one-hot on the device"),
        change: RemedyChange::Description(Box::new(other)),
        pixels: PixelChange::Identical(
            "identical; one byte per pixel instead of one number per class",
        ),
    })
}

/// Returns the pipeline with class indices, and the palette of the classes.
fn with_class_index(pipeline: &Pipeline) -> Option<(Pipeline, String)> {
    let mut other = pipeline.clone();
    // MixUp averages masks, and class numbers have no mean.
    let mut mixing = other.transforms.iter().filter_map(Transform::mixing);
    if mixing.any(|settings| !settings.choice.cuts) {
        return None;
    }
    let mut palette = None;
    for transform in &mut other.transforms {
        if let Some(index) = transform.class_index() {
            palette = index.palette().map(str::to_owned);
            *transform = index;
        }
    }
    Some((other, palette?))
}

fn uint8(id: String, case: &Case, _: Records) -> Option<Candidate> {
    // With a device, the loader already does that, and the table of placements has the gain.
    if case.expands() {
        return None;
    }
    let other = without_floats(&case.pipeline)?;
    Some(Candidate {
        id,
        name: "uint8 batches; cast and normalize behind the copy".to_owned(),
        command: "leave out T.ToFloat and T.Normalize, and do them on the device".to_owned(),
        change: RemedyChange::Description(Box::new(other)),
        pixels: PixelChange::Identical("identical once the device has cast and normalized"),
    })
}

/// uint8 batches: cast, normalize and one-hot belong behind the copy, where they do not increase
/// the bytes on the bus.
fn without_floats(pipeline: &Pipeline) -> Option<Pipeline> {
    let mut other = pipeline.clone();
    let floats = |transform: &Transform| transform.effect() == Effect::Scale;
    let any = other.transforms.iter().any(floats);
    // Erasing fills with a value in the normalized range, which differs without normalization.
    // Mixed pixels would be rounded.
    let erases = other
        .transforms
        .iter()
        .any(|transform| matches!(transform.effect(), Effect::Erase | Effect::Mix));
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

fn skip_checksums(id: String, case: &Case, _: Records) -> Option<Candidate> {
    let mut other = case.pipeline.clone();
    let decode = other.decode.as_mut().filter(|decode| decode.verify)?;
    decode.verify = false;
    Some(Candidate {
        id,
        name: "leave checksums unverified".to_owned(),
        command: ".decode(verify=False)".to_owned(),
        change: RemedyChange::Description(Box::new(other)),
        pixels: PixelChange::Identical("identical; a damaged PNG may go undetected"),
    })
}

fn dct_scale(id: String, case: &Case, _: Records) -> Option<Candidate> {
    let mut other = case.pipeline.clone();
    let mut transforms = other.transforms.iter();
    if !transforms.any(|transform| transform.effect() == Effect::Resize) {
        return None;
    }
    let decode = other.decode.as_mut().filter(|decode| !decode.dct_scale)?;
    decode.dct_scale = true;
    Some(Candidate {
        id,
        name: "decode JPEGs at a reduced scale before a large downscale".to_owned(),
        command: ".decode(dct_scale=True)".to_owned(),
        change: RemedyChange::Description(Box::new(other)),
        pixels: PixelChange::Compared("JPEGs decoded at a reduced scale"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed::pipeline::SourceSpec;
    use infeed_codec::transform::{ClassIndex, Normalize, OneHot, RandomHorizontalFlip, ToFloat};

    #[test]
    fn uint8_removes_floats_and_keeps_geometry() {
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

        let (other, palette) = with_class_index(&pipeline).expect("it has one-hot masks");

        assert_eq!(palette, "classes.csv");
        assert_eq!(
            other.transforms[1],
            Transform::from(ClassIndex::new("classes.csv"))
        );
    }
}
