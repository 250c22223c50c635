//! Images of 16 bits.

use super::descriptions::shortest_descriptions;
use super::*;

/// Number of draws of each transform.
const DRAWS: u64 = 12;

/// Returns an image with 16-bit samples that stand for the same colours.
fn widen(image: &Image) -> Image {
    let mut wide = Image::default();
    wide.reset(image.size, image.channels, Depth::U16);
    for (from, to) in image.data.iter().zip(wide.data.chunks_exact_mut(2)) {
        to.copy_from_slice(&(u16::from(*from) * 257).to_ne_bytes());
    }
    wide
}

/// Returns the largest difference between an image of 16 bits and one of 8, in steps of 8 bits.
fn difference(wide: &Image, image: &Image) -> f64 {
    assert_eq!(
        (wide.size, wide.channels, wide.depth),
        (image.size, image.channels, Depth::U16)
    );
    let samples = wide.data.chunks_exact(2).zip(&image.data);
    let differences = samples.map(|(wide, &narrow)| {
        let wide = f64::from(u16::from_ne_bytes([wide[0], wide[1]])) / 257.0;
        (wide - f64::from(narrow)).abs()
    });
    differences.fold(0.0, f64::max)
}

#[test]
fn every_transform_changes_16_bits_like_8_bits_or_rejects_them() {
    let (mut equal, mut rejected) = (Vec::new(), Vec::new());
    for (_, transform) in shortest_descriptions() {
        let name = transform.name();
        for channels in [1, 3] {
            let image = numbered_image(size(320, 300), channels, Depth::U8);
            let wide = widen(&image);
            if let Err(error) = transform.check_pixels(channels, Depth::U16) {
                assert!(
                    matches!(error, TransformError::Pixels { .. }),
                    "{name}: {error}"
                );
                rejected.push(name);
                continue;
            }
            for draw in 0..DRAWS {
                let steps = transform.draw(image.size, &mut Rng::new(1, 0, draw, 0));
                let (mut own, mut other) = (image.clone(), wide.clone());
                for step in steps.unwrap() {
                    own = apply(&step, &own).unwrap();
                    other = apply(&step, &other).unwrap();
                }
                let most = difference(&other, &own);
                assert!(most <= 1.25, "{name}: draw {draw} differs by {most}");
            }
            let scale = |depth| {
                let mut affine = Affine::identity(channels, depth);
                transform.scale(&mut affine).map(|()| affine)
            };
            if let (Effect::Scale, Ok(narrow), Ok(wide)) =
                (transform.effect(), scale(Depth::U8), scale(Depth::U16))
            {
                let white =
                    |affine: &Affine, most: f32| affine.scale()[0] * most + affine.bias()[0];
                let difference = (white(&narrow, 255.0) - white(&wide, 65_535.0)).abs();
                assert!(difference < 1e-5, "{name}: {difference}");
            }
            equal.push(name);
        }
    }

    let mosaic = Mosaic {
        fill: ChannelValues::All(29_298.0),
        ..Mosaic::new(64)
    };
    assert!(Transform::from(mosaic).check_pixels(3, Depth::U16).is_ok());
    rejected.dedup();
    equal.dedup();
    for name in [
        "ColorJitter",
        "GaussianBlur",
        "RandAugment",
        "RandomApply",
        "JPEG",
    ] {
        assert!(rejected.contains(&name), "{rejected:?}");
    }
    for name in [
        "RandomResizedCrop",
        "RandomAffine",
        "RandomErasing",
        "Normalize",
    ] {
        assert!(equal.contains(&name), "{equal:?}");
    }
}
