//! Drawn parameters are valid, have the stated distribution, and depend only on the key.

use super::*;

const IMAGES: [Size; 7] = [
    Size {
        height: 1,
        width: 1,
    },
    Size {
        height: 1,
        width: 500,
    },
    Size {
        height: 500,
        width: 1,
    },
    Size {
        height: 2,
        width: 3,
    },
    Size {
        height: 375,
        width: 500,
    },
    Size {
        height: 333,
        width: 96,
    },
    Size {
        height: 64,
        width: 64,
    },
];

/// Returns one of each kind that accepts images of any size.
fn every_size() -> Vec<Transform> {
    let wide = RandomResizedCrop {
        scale: [0.01, 1.0],
        ratio: [0.1, 10.0],
        ..RandomResizedCrop::new(32)
    };
    let padded = RandomCrop {
        padding: Some(Padding::Axes([2, 4])),
        pad_if_needed: true,
        ..RandomCrop::new(size(48, 40))
    };
    vec![
        CenterCrop::new(32).into(),
        padded.into(),
        RandomResizedCrop::new(size(32, 24)).into(),
        wide.into(),
        RandomSizedCrop::new(size(32, 24), [20, 60]).into(),
        Resize::new(size(16, 20)).into(),
        Resize {
            max_size: Some(40),
            ..Resize::new(20)
        }
        .into(),
        Pad::new(3).into(),
        CropOrPad::new(33, 50).into(),
        RandomHorizontalFlip::new(0.5).into(),
        RandomVerticalFlip::new(0.5).into(),
        RandomAffine {
            translate: Some([0.3, 0.2]),
            scale: Some([0.5, 1.5]),
            shear: Some(Shear::Both([-10.0, 10.0, 0.0, 5.0])),
            interpolation: Filter::Bilinear,
            ..RandomAffine::new(30.0)
        }
        .into(),
        RandomAffine {
            perspective: Some(0.01),
            ..RandomAffine::new(30.0)
        }
        .into(),
        RandomRotation::new(90.0).into(),
        RandomRotation {
            expand: true,
            ..RandomRotation::new(180.0)
        }
        .into(),
        RandomPerspective::new(0.8).into(),
        ElasticTransform {
            sigma: ValuePair::Both(0.1),
            ..ElasticTransform::default()
        }
        .into(),
        LongestMaxSize::new(25).into(),
        RandomShortestSize {
            max_size: Some(60),
            ..RandomShortestSize::new([20, 30])
        }
        .into(),
        ScaleJitter::new([40, 30]).into(),
        RandomZoomOut::new(0.5).into(),
        RandomPhotometricDistort::default().into(),
        RandomHSV::default().into(),
        RandomInvert::new(0.5).into(),
        RandomPosterize::new(3, 0.5).into(),
        RandomSolarize::new(100.0, 0.5).into(),
        RandomGrayscale::new(0.5).into(),
        RandomAutocontrast::new(0.5).into(),
        RandomEqualize::new(0.5).into(),
        RandomAdjustSharpness::new(2.0, 0.5).into(),
        GaussianBlur::new(1).into(),
        GaussianNoise::default().into(),
        JPEG {
            quality: ValuePair::Each([20, 90]),
        }
        .into(),
        AutoAugment::default().into(),
        RandAugment::default().into(),
        TrivialAugmentWide::default().into(),
        AugMix::default().into(),
        RandomApply::new(vec![GaussianNoise::default().into()], 0.5).into(),
        RandomChoice::new(vec![
            RandomHorizontalFlip::new(1.0).into(),
            RandomRotation::new(20.0).into(),
            RandomInvert::new(1.0).into(),
        ])
        .into(),
        RandomChoice::new(vec![
            Resize::new(size(33, 20)).into(),
            RandomApply::new(
                vec![
                    RandomShortestSize::new([40, 50]).into(),
                    RandomSizedCrop::new(size(33, 20), [30, 50]).into(),
                ],
                1.0,
            )
            .into(),
        ])
        .into(),
        RandomOrder::new(vec![
            RandomVerticalFlip::new(0.9).into(),
            RandomAffine::new(10.0).into(),
            RandomSolarize::new(3.0, 0.9).into(),
        ])
        .into(),
        ColorJitter {
            hue: Jitter::By(0.3),
            ..ColorJitter::default()
        }
        .into(),
        Grayscale::new(1).into(),
        RandomErasing::new(1.0).into(),
        ToFloat::default().into(),
        Normalize::new([0.5], [0.5]).into(),
    ]
}

#[test]
fn every_region_lies_within_the_image_it_is_drawn_for() {
    for image in IMAGES {
        for transform in every_size() {
            for position in 0..300 {
                let mut now = image;
                for step in transform
                    .draw(image, &mut Rng::new(4, 2, position, 0))
                    .unwrap()
                {
                    match step {
                        Step::Crop(region) | Step::Erase { region, .. } => assert!(
                            region.fits(now) && region.size.pixels() > 0,
                            "{}: {region:?} of {now}",
                            transform.name()
                        ),
                        _ => {}
                    }
                    now = step.output_size(now);
                }
            }
        }
    }
}

#[test]
fn every_drawn_step_is_a_part_of_its_transform_and_parts_are_in_order() {
    let mut drawn = Vec::new();
    for image in IMAGES {
        for (at, transform) in every_size().iter().enumerate() {
            for position in 0..50 {
                let mut rng = Rng::new(6, 1, position, 0);
                let parts = transform.parts();
                let mut left = parts.iter();
                for step in transform.draw(image, &mut rng).unwrap() {
                    let effect = step.effect();
                    assert!(left.any(|part| *part == effect), "{step:?} of {parts:?}");
                    drawn.push((at, effect));
                }
            }
        }
    }
    for (at, transform) in every_size().iter().enumerate() {
        let draws = |effect: &Effect| drawn.contains(&(at, *effect));
        let mut parts = transform.parts();
        parts.retain(|part| *part != Effect::Scale);
        assert!(parts.iter().all(draws), "{parts:?} of {transform:?}");
    }
}

#[test]
fn properties_of_the_result_hold_for_every_draw() {
    for image in IMAGES {
        for transform in every_size() {
            let expected = transform.output_size(Some(image)).unwrap();
            let always = transform.output_size(None).unwrap();
            for position in 0..50 {
                let steps = transform
                    .draw(image, &mut Rng::new(0, 9, position, 1))
                    .unwrap();
                let got = steps.iter().fold(image, |now, step| step.output_size(now));

                let is_expected = expected.is_none_or(|expected| expected == got);
                assert!(
                    is_expected,
                    "{}: {got} instead of {expected:?}",
                    transform.name()
                );
                assert!(
                    always.is_none_or(|always| always == got),
                    "{}",
                    transform.name()
                );
                if got != image {
                    assert!(transform.changes_geometry(), "{}", transform.name());
                }
            }
        }
    }
}

#[test]
fn applying_a_step_gives_the_size_it_says_on_images_and_masks() {
    let mut scratch = TransformScratch::default();
    let mut out = Image::default();

    for image in IMAGES {
        let (rgb, mask) = (
            numbered_image(image, 3, Depth::U8),
            numbered_image(image, 1, Depth::U16),
        );
        for transform in every_size() {
            for step in transform
                .draw(image, &mut Rng::new(0, 0, 5, 0))
                .unwrap()
                .iter()
                .take(1)
            {
                let expected = step.output_size(image);

                step.apply((&rgb).into(), &mut out, false, &mut scratch)
                    .unwrap();
                assert_eq!(out.size, expected, "{step:?}");
                assert_eq!(out.channels, transform.output_channels(3));

                step.apply((&mask).into(), &mut out, true, &mut scratch)
                    .unwrap();
                assert_eq!(
                    (out.size, out.channels, out.depth),
                    (expected, 1, Depth::U16)
                );
                if !step.applies_to_masks() {
                    assert_eq!(out, mask);
                }
            }
        }
    }
}

#[test]
fn flips_are_as_frequent_as_their_probability() {
    const DRAWS: u64 = 20_000;

    for p in [0.0, 0.1, 0.5, 0.9, 1.0] {
        let flip = Transform::from(RandomHorizontalFlip::new(p));
        let flipped = (0..DRAWS)
            .filter(|&position| {
                let steps = flip
                    .draw(size(4, 4), &mut Rng::new(7, 3, position, 2))
                    .unwrap();
                steps == [Step::FlipX]
            })
            .count() as f64;

        let expected = p * DRAWS as f64;
        if p == 0.0 || p == 1.0 {
            assert_eq!(flipped, expected);
        } else {
            let chi2 =
                (flipped - expected).powi(2) * (1.0 / expected + 1.0 / (DRAWS as f64 - expected));
            assert!(
                chi2 < 10.8,
                "p = {p}: {flipped} of {DRAWS}, chi-square {chi2}"
            );
        }
    }
}

#[test]
fn flips_of_neighbouring_transforms_and_epochs_are_independent() {
    const DRAWS: u64 = 20_000;
    let flip = Transform::from(RandomVerticalFlip::new(0.5));
    let drawn = |epoch, position, transform| {
        let mut rng = Rng::new(0, epoch, position, transform);
        !flip.draw(size(2, 2), &mut rng).unwrap().is_empty()
    };

    for (epochs, transforms) in [(1, 0), (0, 1)] {
        let same = (0..DRAWS)
            .filter(|&position| drawn(0, position, 0) == drawn(epochs, position, transforms))
            .count() as f64;

        let share = same / DRAWS as f64;
        assert!((share - 0.5).abs() < 0.02, "{share} of the flips agree");
    }
}

#[test]
fn random_crops_reach_every_offset_equally() {
    let crop = Transform::from(RandomCrop::new(size(6, 5)));
    let mut counts = [[0u32; 4]; 3];

    for position in 0..24_000 {
        let steps = crop
            .draw(size(8, 8), &mut Rng::new(5, 0, position, 0))
            .unwrap();
        let [Step::Crop(found)] = steps[..] else {
            panic!("{steps:?}")
        };
        counts[found.top as usize][found.left as usize] += 1;
    }

    let chi2: f64 = counts
        .iter()
        .flatten()
        .map(|&c| (f64::from(c) - 2000.0).powi(2) / 2000.0)
        .sum();
    assert!(
        chi2 < 31.3,
        "chi-square of {counts:?} is {chi2}, over the 0.1 % point of 11 dof"
    );
}

#[test]
fn colour_changes_are_drawn_in_all_orders_and_within_their_ranges() {
    let jitter = Transform::from(ColorJitter {
        brightness: Jitter::By(0.4),
        contrast: Jitter::Between([0.2, 0.9]),
        saturation: Jitter::By(3.0),
        hue: Jitter::By(0.1),
    });
    let mut orders = std::collections::HashMap::<[usize; 4], u32>::new();
    let mut brightness = 0.0;

    for position in 0..12_000 {
        let steps = jitter
            .draw(size(1, 1), &mut Rng::new(0, 0, position, 0))
            .unwrap();
        let [Step::Color(changes)] = &steps[..] else {
            panic!("{steps:?}")
        };
        let order: Vec<usize> = changes
            .iter()
            .map(|change| match change {
                ColorStep::Brightness(f) => {
                    assert!((0.6..=1.4).contains(f), "{f}");
                    brightness += f;
                    0
                }
                ColorStep::Contrast(f) => {
                    assert!((0.2..=0.9).contains(f), "{f}");
                    1
                }
                ColorStep::Saturation(f) => {
                    assert!((0.0..=4.0).contains(f), "{f}");
                    2
                }
                ColorStep::Hue(f) => {
                    assert!((-0.1..=0.1).contains(f), "{f}");
                    3
                }
                other => panic!("{other}"),
            })
            .collect();
        *orders.entry(order.try_into().unwrap()).or_default() += 1;
    }

    assert_eq!(orders.len(), 24);
    let chi2: f64 = orders
        .values()
        .map(|&c| (f64::from(c) - 500.0).powi(2) / 500.0)
        .sum();
    assert!(
        chi2 < 49.7,
        "chi-square {chi2}, over the 0.1 % point of 23 dof"
    );
    assert!((brightness / 12_000.0 - 1.0).abs() < 0.01);
}

#[test]
fn turns_and_factors_of_hsv_are_uniform_within_their_ranges() {
    let most = [0.1, 0.7, 0.4];
    let [hue, saturation, value] = most;
    let transform = Transform::from(RandomHSV {
        hue,
        saturation,
        value,
    });
    const DRAWS: usize = 10_000;
    let mut counts = [[0_u32; 10]; 3];

    for position in 0..DRAWS {
        let mut rng = Rng::new(0, 0, position as u64, 0);
        let steps = transform.draw(size(1, 1), &mut rng).unwrap();
        let [Step::Color(changes)] = &steps[..] else {
            panic!("{steps:?}")
        };
        let [
            ColorStep::Hsv {
                turn,
                saturation,
                value,
            },
        ] = changes[..]
        else {
            panic!("{changes:?}")
        };
        let drawn = [turn, saturation - 1.0, value - 1.0];
        for ((v, most), counts) in drawn.iter().zip(most).zip(&mut counts) {
            counts[((v / most + 1.0) * 5.0) as usize] += 1;
        }
    }

    let expected = DRAWS as f64 / 10.0;
    for counts in counts {
        let chi2: f64 = counts
            .iter()
            .map(|&c| (f64::from(c) - expected).powi(2) / expected)
            .sum();
        assert!(
            chi2 < 27.9,
            "{counts:?}: the 0.1 % point of 9 dof is 27.9, not {chi2}"
        );
    }
}

#[test]
fn factors_that_change_nothing_draw_no_step() {
    let still = RandomHSV {
        hue: 0.0,
        saturation: 0.0,
        value: 0.0,
    };
    for still in [ColorJitter::default().into(), Transform::from(still)] {
        let steps = still.draw(size(3, 3), &mut Rng::new(0, 0, 0, 0)).unwrap();

        assert_eq!(steps, [], "{}", still.name());
    }
}

#[test]
fn the_same_key_draws_the_same_and_every_word_of_it_counts() {
    let crop = Transform::from(RandomResizedCrop::new(64));
    let draw = |key: [u64; 4]| {
        crop.draw(
            size(375, 500),
            &mut Rng::new(key[0], key[1], key[2], key[3]),
        )
        .unwrap()
    };

    assert_eq!(draw([1, 2, 3, 4]), draw([1, 2, 3, 4]));
    for other in [
        [2, 2, 3, 4],
        [1, 3, 3, 4],
        [1, 2, 4, 4],
        [1, 2, 3, 5],
        [2, 1, 3, 4],
    ] {
        assert_ne!(draw([1, 2, 3, 4]), draw(other));
    }
}

#[test]
fn a_drawn_crop_has_the_same_bits_everywhere() {
    // Computed in Python from the definition. Every machine, compiler and version must draw this
    // crop.
    let crop = Transform::from(RandomResizedCrop::new(64));

    let steps = crop
        .draw(size(375, 500), &mut Rng::new(0, 1, 2, 3))
        .unwrap();

    let resize = Step::Resize {
        size: size(64, 64),
        filter: Filter::Bilinear,
        antialias: true,
    };
    assert_eq!(steps, [Step::Crop(region(50, 109, 321, 365)), resize]);
}

#[test]
fn a_crop_larger_than_the_image_names_both_sizes_and_the_fix() {
    let crop = Transform::from(Crop::new(512, 512));

    let error = crop
        .draw(size(360, 480), &mut Rng::new(0, 0, 0, 0))
        .unwrap_err();

    let expected = "Crop needs 512x512 px, the image is 480x360 px; \
                make images larger with Resize, or use CropOrPad";
    assert_eq!(error.to_string(), expected);
    assert_eq!(crop.needs_at_least(), size(512, 512));
}

#[test]
fn a_random_crop_larger_than_the_padded_image_is_an_error() {
    let padding = Some(Padding::All(4));
    let crop = Transform::from(RandomCrop {
        padding,
        ..RandomCrop::new(32)
    });

    assert_eq!(crop.needs_at_least(), size(24, 24));
    assert!(crop.draw(size(24, 24), &mut Rng::new(0, 0, 0, 0)).is_ok());
    assert!(matches!(
        crop.draw(size(23, 24), &mut Rng::new(0, 0, 0, 0)),
        Err(TransformError::TooSmall { .. })
    ));
}

#[test]
fn crops_lie_in_the_corner_they_name() {
    let at = |place| {
        let crop = Transform::from(Crop {
            height: 2,
            width: 3,
            at: place,
        });
        crop.draw(size(7, 9), &mut Rng::new(0, 0, 0, 0)).unwrap()
    };

    assert_eq!(
        at(CropPosition::Named(Corner::TopLeft)),
        [Step::Crop(region(0, 0, 2, 3))]
    );
    assert_eq!(
        at(CropPosition::Named(Corner::TopRight)),
        [Step::Crop(region(0, 6, 2, 3))]
    );
    assert_eq!(
        at(CropPosition::Named(Corner::BottomLeft)),
        [Step::Crop(region(5, 0, 2, 3))]
    );
    assert_eq!(
        at(CropPosition::Named(Corner::BottomRight)),
        [Step::Crop(region(5, 6, 2, 3))]
    );
    assert_eq!(
        at(CropPosition::Named(Corner::Center)),
        [Step::Crop(region(2, 3, 2, 3))]
    );
    assert_eq!(
        at(CropPosition::Offset([4, 1])),
        [Step::Crop(region(4, 1, 2, 3))]
    );
}

#[test]
fn an_excessive_result_is_rejected_before_allocation() {
    let mut rng = Rng::new(0, 0, 0, 0);
    let thread = size(1, 1_000_000);

    let resize = Transform::from(Resize::new(1024)).draw(thread, &mut rng);
    let pad = Transform::from(Pad::new(u32::MAX)).draw(thread, &mut rng);

    assert!(
        matches!(resize, Err(TransformError::TooLarge { .. })),
        "{resize:?}"
    );
    assert!(
        matches!(pad, Err(TransformError::TooLarge { .. })),
        "{pad:?}"
    );
}

#[test]
fn an_image_without_pixels_is_an_error_for_every_transform() {
    for transform in every_size() {
        for empty in [size(0, 0), size(0, 5), size(5, 0)] {
            let result = transform.draw(empty, &mut Rng::new(0, 0, 0, 0));

            assert!(
                matches!(result, Err(TransformError::Empty { .. })),
                "{}",
                transform.name()
            );
        }
    }
}
