//! Compares the results of steps on every kind of pixel with simple implementations.

use super::*;

const KINDS: [(usize, Depth); 8] = [
    (1, Depth::U8),
    (2, Depth::U8),
    (3, Depth::U8),
    (4, Depth::U8),
    (1, Depth::U16),
    (2, Depth::U16),
    (3, Depth::U16),
    (4, Depth::U16),
];

fn pixel(image: &Image, y: u32, x: u32) -> &[u8] {
    let n = image.pixel_bytes();
    &image.row(y as usize)[x as usize * n..(x as usize + 1) * n]
}

/// Checks that pixel `(y, x)` of the result is pixel `from(y, x)` of the image.
fn assert_moves(step: &Step, from: impl Fn(u32, u32) -> (u32, u32)) {
    for (channels, depth) in KINDS {
        let image = numbered_image(size(11, 9), channels, depth);

        let out = apply(step, &image).unwrap();

        for y in 0..out.size.height {
            for x in 0..out.size.width {
                let (from_y, from_x) = from(y, x);
                assert_eq!(
                    pixel(&out, y, x),
                    pixel(&image, from_y, from_x),
                    "{step:?} at {y},{x} of {channels} channels, {depth:?}"
                );
            }
        }
    }
}

#[test]
fn geometry_moves_whole_pixels_of_every_kind() {
    let to = size(25, 4);

    assert_moves(&Step::FlipX, |y, x| (y, 8 - x));
    assert_moves(&Step::FlipY, |y, x| (10 - y, x));
    assert_moves(&Step::Crop(region(3, 2, 5, 7)), |y, x| (y + 3, x + 2));
    assert_moves(
        &Step::Resize {
            size: to,
            filter: Filter::Nearest,
            antialias: true,
        },
        |y, x| ((2 * y + 1) * 11 / 50, (2 * x + 1) * 9 / 8),
    );
}

#[test]
fn masks_are_sampled_nearest_whatever_the_filter() {
    let mask = numbered_image(size(13, 17), 1, Depth::U8);
    let step = |filter| Step::Resize {
        size: size(30, 7),
        filter,
        antialias: true,
    };
    let mut out = Image::default();

    let mut scratch = TransformScratch::default();
    step(Filter::Lanczos)
        .apply((&mask).into(), &mut out, true, &mut scratch)
        .unwrap();

    assert_eq!(out, apply(&step(Filter::Nearest), &mask).unwrap());
}

#[test]
fn without_antialiasing_a_pixel_is_made_of_the_four_next_to_its_centre() {
    // As `tf.image.resize` documents it: half-pixel centres, clipped at the borders.
    let image = numbered_image(size(31, 29), 1, Depth::U8);
    for to in [size(8, 5), size(31, 7), size(60, 44), size(1, 1)] {
        let step = Step::Resize {
            size: to,
            filter: Filter::Bilinear,
            antialias: false,
        };

        let out = apply(&step, &image).unwrap();

        let taps = |at: u32, from: u32, to: u32| {
            let centre = (f64::from(at) + 0.5) * f64::from(from) / f64::from(to) - 0.5;
            let low = centre.floor();
            let side = |x: f64| x.clamp(0.0, f64::from(from - 1)) as u32;
            [
                (side(low), 1.0 - (centre - low)),
                (side(low + 1.0), centre - low),
            ]
        };
        for y in 0..to.height {
            for x in 0..to.width {
                let mut expected = 0.0;
                for (from_y, down) in taps(y, 31, to.height) {
                    for (from_x, right) in taps(x, 29, to.width) {
                        expected += down * right * f64::from(pixel(&image, from_y, from_x)[0]);
                    }
                }
                let found = f64::from(pixel(&out, y, x)[0]);
                assert!(
                    (found - expected).abs() <= 1.0,
                    "{to} at {y},{x}: {found}, {expected}"
                );
            }
        }
    }
}

#[test]
fn a_view_of_a_crop_is_resized_as_a_copy_of_it_would_be() {
    let part = region(4, 3, 20, 23);
    for (channels, depth) in KINDS {
        let image = numbered_image(size(31, 29), channels, depth);
        let cut = apply(&Step::Crop(part), &image).unwrap();
        for filter in [
            Filter::Nearest,
            Filter::Bilinear,
            Filter::Bicubic,
            Filter::Lanczos,
        ] {
            let step = Step::Resize {
                size: size(11, 40),
                filter,
                antialias: true,
            };
            let (mut viewed, mut scratch) = (Image::default(), TransformScratch::default());

            let view = PixelView::from(&image).crop(part).unwrap();
            step.apply(view, &mut viewed, false, &mut scratch).unwrap();

            assert_eq!(
                viewed,
                apply(&step, &cut).unwrap(),
                "{filter:?}, {channels} {depth:?}"
            );
        }
    }
}

#[test]
fn rows_that_are_any_number_of_bytes_apart_and_end_early_can_be_read() {
    let image = numbered_image(size(12, 10), 3, Depth::U8);
    let stride = image.row_bytes() + 5;
    let mut spread = vec![0xaa; 11 * stride + image.row_bytes()];
    for y in 0..12 {
        spread[y * stride..][..image.row_bytes()].copy_from_slice(image.row(y));
    }
    let view = PixelView::new(&spread, image.size, 3, Depth::U8, stride).unwrap();

    for step in [
        Step::FlipX,
        Step::FlipY,
        Step::Resize {
            size: size(5, 6),
            filter: Filter::Bilinear,
            antialias: true,
        },
        Step::Crop(region(2, 2, 3, 3)),
    ] {
        let mut out = Image::default();
        step.apply(view, &mut out, false, &mut TransformScratch::default())
            .unwrap();
        assert_eq!(out, apply(&step, &image).unwrap(), "{step:?}");
    }
}

#[test]
fn a_view_larger_than_its_bytes_is_rejected() {
    let bytes = [0u8; 30];
    let view = |height, width, channels, row_bytes| {
        PixelView::new(&bytes, size(height, width), channels, Depth::U8, row_bytes)
    };

    assert!(view(2, 5, 3, 15).is_ok());
    assert!(
        view(2, 5, 3, 16).is_err(),
        "the last row ends after the bytes"
    );
    assert!(view(2, 5, 3, 14).is_err(), "rows overlap");
    assert!(view(3, 5, 3, 15).is_err(), "a row too many");
    assert!(view(1, 5, 5, 25).is_err(), "five channels");
    assert!(
        view(u32::MAX, 1, 1, usize::MAX).is_err(),
        "an end that overflows"
    );
    let whole = view(2, 5, 3, 15).unwrap();
    assert!(whole.crop(region(1, 1, 1, 4)).is_ok());
    assert!(whole.crop(region(1, 1, 1, 5)).is_err());
    assert!(whole.crop(region(u32::MAX, 0, 2, 1)).is_err());
}

#[test]
fn steps_that_do_not_fit_the_image_are_errors() {
    let image = numbered_image(size(6, 6), 3, Depth::U8);
    let erase = |region, value: &[f64]| Step::Erase {
        region,
        value: value.to_vec(),
    };
    let pad = |fill: Vec<f64>| Step::Pad {
        left: 1,
        top: 0,
        right: 0,
        bottom: 0,
        fill,
        mask_fill: vec![0.0],
        mode: PadMode::Constant,
    };

    for step in [
        Step::Crop(region(0, 0, 7, 1)),
        Step::Crop(region(0, 0, 0, 0)),
        Step::Resize {
            size: size(0, 4),
            filter: Filter::Bilinear,
            antialias: true,
        },
        Step::Resize {
            size: size(1 << 20, 1 << 20),
            filter: Filter::Bilinear,
            antialias: true,
        },
        erase(region(5, 5, 2, 2), &[0.0]),
        erase(region(0, 0, 1, 1), &[0.0, 0.0]),
        erase(region(0, 0, 1, 1), &[256.0]),
        pad(vec![]),
        pad(vec![1.0, 2.0, 3.0, 4.0]),
        pad(vec![f64::NAN]),
    ] {
        assert!(apply(&step, &image).is_err(), "{step:?}");
    }
}

#[test]
fn colours_of_16_bits_or_with_alpha_are_rejected() {
    for (channels, depth) in [(3, Depth::U16), (4, Depth::U8), (2, Depth::U8)] {
        let image = numbered_image(size(2, 2), channels, depth);

        let error = apply(&Step::Color(vec![ColorStep::Hue(0.1)]), &image).unwrap_err();

        let jitter = Transform::from(ColorJitter::default());
        assert_eq!(
            jitter
                .check_pixels(channels, depth)
                .unwrap_err()
                .to_string(),
            error.to_string()
        );
    }
}

#[test]
fn images_for_detection_resize_as_resize_does_with_and_without_antialiasing() {
    let image = numbered_image(size(31, 64), 3, Depth::U8);
    let mut results = Vec::new();
    for antialias in [true, false] {
        let resize = Resize {
            antialias,
            ..Resize::new([10, 20])
        };
        let longest = LongestMaxSize {
            antialias,
            ..LongestMaxSize::new(20)
        };
        let mosaic = Mosaic {
            antialias,
            ..Mosaic::new(40)
        };
        let drawn = |transform: Transform| {
            assert_eq!(transform.is_antialiased(), antialias);
            let steps = transform
                .draw(image.size, &mut Rng::new(0, 0, 0, 0))
                .unwrap();
            apply(&steps[0], &image).unwrap()
        };
        let tile = mosaic.tile(image.size, 0, [20, 20]).unwrap();
        let expected = drawn(resize.into());

        assert_eq!(apply(&tile.steps[0], &image).unwrap(), expected);
        assert_eq!(drawn(mosaic.into()), expected, "alone");
        assert_eq!(drawn(longest.into()), expected);
        results.push(expected);
    }
    assert_ne!(results[0], results[1]);
}

#[test]
fn a_change_of_hsv_keeps_gray_pixels_gray_and_gray_images_unchanged() {
    let change = Step::Color(vec![ColorStep::Hsv {
        turn: 0.3,
        saturation: 1.7,
        value: 0.6,
    }]);
    let gray = numbered_image(size(6, 7), 1, Depth::U8);
    let mut rgb = numbered_image(size(6, 7), 3, Depth::U8);
    for (pixel, v) in rgb.data.chunks_exact_mut(3).zip(&gray.data) {
        pixel.fill(*v);
    }

    let changed = apply(&change, &rgb).unwrap();

    let expected = rgb.data.iter().map(|&v| (f32::from(v) * 0.6) as u8);
    assert!(expected.eq(changed.data));
    assert_eq!(apply(&change, &gray).unwrap(), gray);
}

#[test]
fn erasing_writes_the_region_and_nothing_else() {
    for (channels, depth) in KINDS {
        let image = numbered_image(size(6, 7), channels, depth);
        let value: Vec<f64> = (0..channels).map(|c| 10.0 * c as f64 + 1.0).collect();
        let erased = region(1, 2, 3, 4);

        let out = apply(
            &Step::Erase {
                region: erased,
                value: value.clone(),
            },
            &image,
        )
        .unwrap();

        let written: Vec<u8> = value
            .iter()
            .flat_map(|&v| match depth {
                Depth::U8 => vec![v as u8],
                Depth::U16 => (v as u16).to_ne_bytes().to_vec(),
            })
            .collect();
        for y in 0..6 {
            for x in 0..7 {
                let inside = (1..4).contains(&y) && (2..6).contains(&x);
                let expected = if inside {
                    &written[..]
                } else {
                    pixel(&image, y, x)
                };
                assert_eq!(
                    pixel(&out, y, x),
                    expected,
                    "{y},{x} of {channels} {depth:?}"
                );
            }
        }
    }
}

#[test]
fn images_and_masks_have_separate_fills() {
    let fill = ChannelValues::ByChannel(vec![1.0, 2.0, 3.0]);
    let pad = Pad {
        fill,
        mask_fill: ChannelValues::All(255.0),
        ..Pad::new(Padding::Axes([1, 0]))
    };
    let steps = Transform::from(pad)
        .draw(size(1, 1), &mut Rng::new(0, 0, 0, 0))
        .unwrap();
    let (image, mask) = (
        numbered_image(size(1, 1), 3, Depth::U8),
        numbered_image(size(1, 1), 1, Depth::U8),
    );
    let mut out = Image::default();
    let mut scratch = TransformScratch::default();

    steps[0]
        .apply((&image).into(), &mut out, false, &mut scratch)
        .unwrap();
    assert_eq!(
        out.data,
        [
            1,
            2,
            3,
            image.data[0],
            image.data[1],
            image.data[2],
            1,
            2,
            3
        ]
    );

    steps[0]
        .apply((&mask).into(), &mut out, true, &mut scratch)
        .unwrap();
    assert_eq!(out.data, [255, mask.data[0], 255]);
}
