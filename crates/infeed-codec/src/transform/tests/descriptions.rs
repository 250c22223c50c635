//! Short forms of transforms, and the errors of invalid ones.

use super::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct Table {
    transforms: Vec<Transform>,
}

fn parse(toml: &str) -> Result<Transform, toml::de::Error> {
    let text = format!("[[transforms]]\n{toml}");
    Ok(toml::from_str::<Table>(&text)?.transforms.remove(0))
}

fn error_of(transform: impl Into<Transform>) -> String {
    transform.into().validate().unwrap_err().to_string()
}

/// Values of the parameters without a default, by name.
const REQUIRED: &[(&str, &str)] = &[
    ("bits", "3"),
    ("degrees", "5"),
    ("height", "5"),
    ("kernel_size", "3"),
    ("max_size", "9"),
    ("mean", "[0.5]"),
    ("min_size", "[8, 9]"),
    ("padding", "4"),
    ("quality", "40"),
    ("sharpness_factor", "2"),
    ("sides", "[4, 9]"),
    ("size", "7"),
    ("size_field", "'canvas'"),
    ("std", "[1]"),
    ("target_size", "[9, 8]"),
    ("threshold", "9"),
    ("transforms", "[{kind = 'RandomEqualize'}]"),
    ("width", "6"),
];

/// Returns the shortest description of each transform, and its meaning.
pub(super) fn shortest_descriptions() -> Vec<(String, Transform)> {
    let names = Transform::NAMES.iter();
    names.map(|name| shortest_description(name)).collect()
}

/// Adds the parameters that the errors name, until the description is complete.
fn shortest_description(name: &str) -> (String, Transform) {
    let mut toml = format!("kind = '{name}'");
    loop {
        let missing = match parse(&toml) {
            // Transforms of masks need one of several parameters.
            Ok(transform) if transform.validate().is_err() && !toml.contains("palette") => {
                toml += "\npalette = 'p.csv'";
                continue;
            }
            Ok(transform) => return (toml, transform),
            Err(error) => error.to_string(),
        };
        let parameter = missing.split("missing field `").nth(1);
        let parameter = parameter.and_then(|rest| rest.split('`').next());
        let value = REQUIRED.iter().find(|(known, _)| Some(*known) == parameter);
        let (parameter, value) = value.unwrap_or_else(|| panic!("{toml}: {missing}"));
        toml += &format!("\n{parameter} = {value}");
    }
}

#[test]
fn the_shortest_description_of_each_transform_is_valid_and_has_its_name() {
    for ((toml, transform), name) in shortest_descriptions().iter().zip(Transform::NAMES) {
        transform
            .validate()
            .unwrap_or_else(|error| panic!("{toml}: {error}"));
        assert_eq!(transform.name(), *name);
    }
}

#[test]
fn every_spelling_of_a_parameter_survives_toml_and_json() {
    let spellings = [
        "kind = 'Crop'\nheight = 5\nwidth = 6\nat = 'top_left'",
        "kind = 'Crop'\nheight = 5\nwidth = 6\nat = [3, 4]",
        "kind = 'RandomCrop'\nsize = [32, 30]\npadding = [4, 2]\npad_if_needed = true\n\
         fill = [1, 2, 3]\nmask_fill = 255\npadding_mode = 'reflect'",
        "kind = 'RandomResizedCrop'\nsize = [224, 200]\nscale = [0.1, 1]\nratio = [1, 2]\n\
         interpolation = 'bicubic'",
        "kind = 'Resize'\nsize = 256\ninterpolation = 'lanczos'\nmax_size = 300",
        "kind = 'Resize'\nsize = [20, 30]\nantialias = false",
        "kind = 'RandomResizedCrop'\nsize = 20\ninterpolation = ['bilinear', 'bicubic']",
        "kind = 'Pad'\npadding = [1, 2, 3, 4]\nfill = 0.5\npadding_mode = 'symmetric'",
        "kind = 'CropOrPad'\nheight = 3\nwidth = 4\nmask_fill = 255",
        "kind = 'CropOrPadTo'\nsize_field = 'canvas'\nfill = 114",
        "kind = 'ColorJitter'\nbrightness = 0.4\ncontrast = [0.5, 1]\nhue = [-0.1, 0.2]",
        "kind = 'Grayscale'\nnum_output_channels = 3",
        "kind = 'RandomAffine'\ndegrees = [-3, 9]\ntranslate = [0.1, 0]\nscale = [0.5, 2]\n\
         shear = [-5, 5, 0, 1]\ninterpolation = 'bilinear'\nfill = [1, 2, 3]\ncenter = [4, 5]",
        "kind = 'RandomAffine'\ndegrees = 5\nperspective = 0.001",
        "kind = 'RandomRotation'\ndegrees = 45\nexpand = true\nmask_fill = 255",
        "kind = 'RandomPerspective'\ndistortion_scale = 0.2\np = 1\ninterpolation = 'nearest'",
        "kind = 'RandomShortestSize'\nmin_size = 800\nmax_size = 1333",
        "kind = 'ScaleJitter'\ntarget_size = [640, 480]\nscale_range = [0.8, 1.25]",
        "kind = 'RandomZoomOut'\nfill = 114\nside_range = [1, 2]\np = 0.3",
        "kind = 'RandomIoUCrop'\nsampler_options = [0.5, 1]\ntrials = 10",
        "kind = 'Mosaic'\nsize = [640, 480]\ncenter_range = [0.4, 0.6]\np = 0.5\nfill = [1, 2, 3]",
        "kind = 'Mosaic'\nsize = 640\nantialias = false",
        "kind = 'LongestMaxSize'\nmax_size = 640\nantialias = false",
        "kind = 'LongestMaxSize'\nmax_size = 640\nround_up = true",
        "kind = 'CopyPaste'\np = 0.5\nblending = false\ninterpolation = 'nearest'",
        "kind = 'MirroredPaste'\nshare = 0.1\nmax_overlap = 0.5",
        "kind = 'ImageMixUp'\nalpha = 1.5\np = 0.5",
        "kind = 'RandomHSV'\nhue = 0.1\nsaturation = 0\nvalue = 1",
        "kind = 'GaussianBlur'\nkernel_size = [5, 9]\nsigma = 1.5",
        "kind = 'GaussianNoise'\nmean = 0.1\nsigma = 0.05\nclip = false",
        "kind = 'ElasticTransform'\nalpha = [30, 60]\nsigma = 4\nfill = 9",
        "kind = 'JPEG'\nquality = [30, 80]",
        "kind = 'AugMix'\nseverity = 5\nchain_depth = 2\nalpha = 0.5\nall_ops = false",
        "kind = 'AutoAugment'\npolicy = 'cifar10'\ninterpolation = 'bilinear'",
        "kind = 'RandAugment'\nnum_ops = 3\nmagnitude = 5\nfill = 128",
        "kind = 'RandomChoice'\np = [1, 3]\n\
         transforms = [{kind = 'RandomInvert'}, {kind = 'RandomApply', transforms = \
         [{kind = 'RandomSolarize', threshold = 128}], p = 0.1}]",
        "kind = 'RandomErasing'\np = 1\nvalue = [1, 2, 3]",
        "kind = 'ToFloat'\nfield = 'image'",
        "kind = 'Normalize'\nmean = [0.5, 0.5, 0.5]\nstd = [1, 1, 1]\nfield = 'image'",
        "kind = 'OneHot'\nfield = 'labels'\nclasses = 12\ndtype = 'bfloat16'",
        "kind = 'OneHot'\nvalues = [0, 255]\nignore_index = 7",
        "kind = 'ClassIndex'\npalette = 'p.csv'\ndtype = 'int64'\nignore_index = -1",
        "kind = 'ClassIndex'\nclasses = 21\nunknown = 'ignore'",
    ];

    for toml in spellings {
        let transform = parse(toml).unwrap_or_else(|e| panic!("{toml}: {e}"));
        transform.validate().unwrap();

        let table = Table {
            transforms: vec![transform.clone()],
        };
        let again: Table = toml::from_str(&toml::to_string(&table).unwrap()).unwrap();
        let json: Transform =
            serde_json::from_str(&serde_json::to_string(&transform).unwrap()).unwrap();

        assert_eq!(again.transforms, std::slice::from_ref(&transform));
        assert_eq!(json, transform);
    }
}

#[test]
fn unknown_and_missing_parameters_are_named() {
    let unknown = parse("kind = 'CenterCrop'\nsize = 7\nsiez = 8")
        .unwrap_err()
        .to_string();
    let missing = parse("kind = 'CenterCrop'").unwrap_err().to_string();
    let shape = parse("kind = 'CenterCrop'\nsize = [1, 2, 3]")
        .unwrap_err()
        .to_string();
    let kind = parse("kind = 'CentreCrop'\nsize = 7")
        .unwrap_err()
        .to_string();

    assert!(unknown.contains("siez"), "{unknown}");
    assert!(missing.contains("size"), "{missing}");
    assert!(
        shape.contains("a whole number or [height, width]"),
        "{shape}"
    );
    assert!(kind.contains("CentreCrop"), "{kind}");
}

#[test]
fn parameters_out_of_range_are_rejected_with_their_value_and_range() {
    assert_eq!(
        error_of(RandomHorizontalFlip::new(1.5)),
        "RandomHorizontalFlip: p is 1.5, it must be between 0 and 1"
    );
    assert_eq!(
        error_of(Grayscale::new(2)),
        "Grayscale: num_output_channels is 2, it must be 1 or 3"
    );
    let wrong: Vec<Transform> = vec![
        Crop::new(0, 5).into(),
        CenterCrop::new(u32::MAX).into(),
        RandomCrop {
            fill: ChannelValues::All(-1.0),
            ..RandomCrop::new(3)
        }
        .into(),
        RandomCrop {
            mask_fill: ChannelValues::ByChannel(vec![]),
            ..RandomCrop::new(3)
        }
        .into(),
        RandomResizedCrop {
            scale: [0.5, 0.1],
            ..RandomResizedCrop::new(3)
        }
        .into(),
        RandomResizedCrop {
            scale: [0.5, 1.1],
            ..RandomResizedCrop::new(3)
        }
        .into(),
        RandomResizedCrop {
            scale: [0.0, 0.0],
            ..RandomResizedCrop::new(3)
        }
        .into(),
        RandomResizedCrop {
            interpolation: FilterChoice::Any(vec![]),
            ..RandomResizedCrop::new(3)
        }
        .into(),
        RandomResizedCrop {
            ratio: [0.0, 1.0],
            ..RandomResizedCrop::new(3)
        }
        .into(),
        RandomResizedCrop {
            ratio: [1.0, f64::INFINITY],
            ..RandomResizedCrop::new(3)
        }
        .into(),
        Resize {
            max_size: Some(9),
            ..Resize::new(size(3, 3))
        }
        .into(),
        Resize {
            max_size: Some(9),
            ..Resize::new(9)
        }
        .into(),
        Pad {
            fill: ChannelValues::All(f64::NAN),
            ..Pad::new(1)
        }
        .into(),
        CropOrPad::new(5, 0).into(),
        RandomVerticalFlip::new(f64::NAN).into(),
        ElasticTransform {
            alpha: ValuePair::Both(-1.0),
            ..ElasticTransform::default()
        }
        .into(),
        ElasticTransform {
            sigma: ValuePair::Each([0.0, 3.0]),
            ..ElasticTransform::default()
        }
        .into(),
        ElasticTransform {
            sigma: ValuePair::Both(1e9),
            ..ElasticTransform::default()
        }
        .into(),
        JPEG::new(0).into(),
        JPEG {
            quality: ValuePair::Each([60, 40]),
        }
        .into(),
        AugMix {
            severity: 11,
            ..AugMix::default()
        }
        .into(),
        AugMix {
            chain_depth: Some(0),
            ..AugMix::default()
        }
        .into(),
        AugMix {
            alpha: 0.0,
            ..AugMix::default()
        }
        .into(),
        ColorJitter {
            brightness: Jitter::By(-0.1),
            ..ColorJitter::default()
        }
        .into(),
        ColorJitter {
            contrast: Jitter::Between([1.0, 0.5]),
            ..ColorJitter::default()
        }
        .into(),
        ColorJitter {
            saturation: Jitter::By(f64::INFINITY),
            ..ColorJitter::default()
        }
        .into(),
        ColorJitter {
            hue: Jitter::By(0.6),
            ..ColorJitter::default()
        }
        .into(),
        ColorJitter {
            hue: Jitter::By(-0.1),
            ..ColorJitter::default()
        }
        .into(),
        RandomHSV {
            hue: 1.5,
            ..RandomHSV::default()
        }
        .into(),
        RandomHSV {
            value: -0.1,
            ..RandomHSV::default()
        }
        .into(),
        RandomErasing::new(-0.1).into(),
        RandomErasing {
            value: ChannelValues::All(f64::NAN),
            ..RandomErasing::new(0.5)
        }
        .into(),
        Normalize::new([0.0], [0.0]).into(),
        Normalize::new([], [1.0]).into(),
        OneHot {
            classes: Some(3),
            ..OneHot::from_palette("p.csv")
        }
        .into(),
        OneHot {
            palette: None,
            ..OneHot::from_palette("p.csv")
        }
        .into(),
        OneHot {
            dtype: infeed_core::sample::DType::Int32,
            ..OneHot::from_indices(3)
        }
        .into(),
        OneHot::from_indices(0).into(),
        OneHot::from_values([0, 255, 0]).into(),
        OneHot {
            ignore_index: Some(255),
            ..OneHot::from_palette("p.csv")
        }
        .into(),
        OneHot {
            ignore_index: Some(2),
            ..OneHot::from_indices(3)
        }
        .into(),
        ClassIndex {
            ignore_index: Some(256),
            ..ClassIndex::new("p.csv")
        }
        .into(),
        ClassIndex {
            ignore_index: Some(255),
            ..ClassIndex::from_values([0, 255])
        }
        .into(),
    ];
    for transform in wrong {
        let message = error_of(transform.clone());
        assert!(
            message.starts_with(&format!("{}: ", transform.name())),
            "{message}"
        );
    }
    let message = error_of(ColorJitter {
        brightness: Jitter::By(-0.1),
        ..ColorJitter::default()
    });
    assert_eq!(
        message,
        "ColorJitter: brightness is -0.1, it must be a number not below 0"
    );
}

#[test]
fn erased_values_may_be_negative_since_they_may_follow_normalize() {
    let value = ChannelValues::All(-2.0);

    Transform::from(RandomErasing {
        value,
        ..RandomErasing::new(1.0)
    })
    .validate()
    .unwrap();
}

#[test]
fn lists_by_channel_are_compared_with_the_channels_of_the_image() {
    let pad = Transform::from(Pad {
        fill: ChannelValues::ByChannel(vec![1.0; 3]),
        ..Pad::new(1)
    });

    assert!(pad.check_pixels(3, Depth::U8).is_ok());
    assert_eq!(
        pad.check_pixels(1, Depth::U8).unwrap_err().to_string(),
        "Pad: fill has 3 values for an image of 1 channels; give one value, or one for each channel"
    );
}

#[test]
fn each_transform_reports_its_field_and_whether_it_changes_images_or_masks() {
    let one_hot = Transform::from(OneHot::from_indices(3));
    let flip = Transform::from(RandomHorizontalFlip::new(0.5));
    let jitter = Transform::from(ColorJitter::default());
    let float = Transform::from(ToFloat::of("image"));

    assert_eq!(one_hot.field(), Some("mask"));
    assert_eq!(float.field(), Some("image"));
    assert!(one_hot.applies_to_masks() && !one_hot.applies_to_images());
    assert!(flip.applies_to_masks() && flip.applies_to_images() && !flip.is_pointwise());
    assert!(!jitter.applies_to_masks() && !jitter.changes_geometry() && !jitter.is_pointwise());
    assert!(float.is_pointwise());
}
