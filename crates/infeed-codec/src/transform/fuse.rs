//! Chains of steps that run as one step, if the user allows it: the pixels differ from those of the
//! single steps.
//!
//! A chain of affine and projective warps, with flips and crops between them, is one warp. It
//! interpolates once, and parts of the image that an earlier warp moves out of the frame may come
//! back. Changes of colours one after another are one pass as far as they are linear. It rounds and
//! clips once.

use super::warp::{product, shift};
use super::{ColorStep, Step, Warp, WarpMap};
use infeed_core::sample::Size;

/// Fuses the steps of one sample, whose image has this size before them. Each step has the index of
/// its transform; a fused warp has that of its last warp, and fused colours have that of the first.
pub fn fuse(steps: Vec<(usize, Step)>, mut size: Size) -> Vec<(usize, Step)> {
    let mut fused: Vec<(usize, Step)> = Vec::with_capacity(steps.len());
    let mut chain: Option<WarpChain> = None;
    for (transform, step) in steps {
        let before = size;
        size = step.output_size(before);
        match (step, fused.last_mut()) {
            (Step::Warp(warp), _) => {
                let (number, warp) = WarpChain::extend(&mut chain, warp, before, &fused);
                fused.truncate(number);
                fused.push((transform, Step::Warp(warp)));
            }
            (Step::Color(more), Some((_, Step::Color(own)))) => own.extend(more),
            (step, _) => {
                chain = chain.and_then(|chain| chain.follow(&step, before));
                fused.push((transform, step));
            }
        }
    }
    for (_, step) in &mut fused {
        if let Step::Color(own) = step {
            *own = fused_colors(std::mem::take(own));
        }
    }
    fused
}

/// A warp, and the flips and crops after it.
struct WarpChain {
    /// Index of the warp in the fused steps.
    number: usize,
    /// Size of the image before the warp.
    image: Size,
    /// From positions in the present result to positions in that image.
    matrix: [f64; 9],
    /// The same for points that are pixels.
    pixel_matrix: [f64; 9],
    /// Whether the number of flips is odd.
    is_mirrored: bool,
}

impl WarpChain {
    /// Adds a warp of an image of this size. Returns the warp to run, and the number of the fused
    /// steps before it.
    fn extend(
        chain: &mut Option<WarpChain>,
        warp: Warp,
        before: Size,
        fused: &[(usize, Step)],
    ) -> (usize, Warp) {
        let own = warp.position_matrix(before);
        let joined = chain.as_ref().zip(own).and_then(|(chain, own)| {
            let Some((_, Step::Warp(first))) = fused.get(chain.number) else {
                return None;
            };
            let matrix = product(&chain.matrix, &own);
            let pixel_matrix = product(&chain.pixel_matrix, &own);
            let is_mirrored = chain.is_mirrored;
            let map = WarpMap::Projective {
                matrix,
                pixel_matrix,
                is_mirrored,
            };
            let is_equal = (first.filter, &first.fill, &first.mask_fill)
                == (warp.filter, &warp.fill, &warp.mask_fill);
            let own = WarpChain {
                matrix,
                pixel_matrix,
                ..*chain
            };
            (is_equal && map.is_regular(chain.image)).then_some((own, map))
        });
        if let Some((own, map)) = joined {
            let number = own.number;
            *chain = Some(own);
            let size = warp.computed_region().size;
            let part = None;
            return (
                number,
                Warp {
                    map,
                    size,
                    part,
                    ..warp
                },
            );
        }
        *chain = own.map(|matrix| WarpChain {
            number: fused.len(),
            image: before,
            matrix,
            pixel_matrix: matrix,
            is_mirrored: false,
        });
        (fused.len(), warp)
    }

    /// Returns the chain after a step on an image of this size. None if the step ends the chain.
    fn follow(self, step: &Step, before: Size) -> Option<WarpChain> {
        let (width, height) = (f64::from(before.width), f64::from(before.height));
        let flip_x = |last: f64| [-1.0, 0.0, last, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        let flip_y = |last: f64| [1.0, 0.0, 0.0, 0.0, -1.0, last, 0.0, 0.0, 1.0];
        let (own, of_pixels, flips) = match step {
            Step::FlipX => (flip_x(width), flip_x(width - 1.0), true),
            Step::FlipY => (flip_y(height), flip_y(height - 1.0), true),
            Step::Crop(region) => {
                let own = shift(region.left.into(), region.top.into());
                (own, own, false)
            }
            _ => return None,
        };
        Some(WarpChain {
            matrix: product(&self.matrix, &own),
            pixel_matrix: product(&self.pixel_matrix, &of_pixels),
            is_mirrored: self.is_mirrored ^ flips,
            ..self
        })
    }
}

/// Joins the linear changes that follow each other.
fn fused_colors(steps: Vec<ColorStep>) -> Vec<ColorStep> {
    let runs = steps.chunk_by(|a, b| a.is_linear() && b.is_linear());
    let joined = runs.map(|run| match run {
        [step] => step.clone(),
        run => ColorStep::Linear(run.to_vec()),
    });
    joined.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Filter, MovingBox, MovingPoint, MovingPoints, PixelView, RandomAffine};
    use super::super::{RandomPerspective, Rng, Transform, TransformScratch};
    use super::*;
    use infeed_core::sample::{Depth, Image, Region};

    const SIZE: Size = Size {
        height: 90,
        width: 120,
    };

    /// A smooth image, whose interpolation hardly depends on the grid.
    fn smooth() -> Image {
        let mut image = Image::default();
        image.reset(SIZE, 3, Depth::U8);
        for y in 0..90 {
            for (x, pixel) in image.row_mut(y).chunks_exact_mut(3).enumerate() {
                let wave = |a: f64, b: f64| 127.5 + 100.0 * (x as f64 * a + y as f64 * b).sin();
                let values = [wave(0.05, 0.02), wave(-0.03, 0.06), wave(0.01, -0.07)];
                pixel
                    .iter_mut()
                    .zip(values)
                    .for_each(|(to, v)| *to = v as u8);
            }
        }
        image
    }

    fn apply_steps(steps: &[(usize, Step)], image: &Image, is_mask: bool) -> Image {
        let mut scratch = TransformScratch::default();
        let mut image = image.clone();
        for (_, step) in steps {
            let mut out = Image::default();
            step.apply(PixelView::from(&image), &mut out, is_mask, &mut scratch)
                .expect("a result");
            image = out;
        }
        image
    }

    fn draw_step(transform: impl Into<Transform>, seed: u64) -> Step {
        let mut rng = Rng::new(seed, 0, 0, 0);
        let mut steps = transform.into().draw(SIZE, &mut rng).expect("a draw");
        steps.remove(0)
    }

    fn affine(degrees: f64) -> RandomAffine {
        RandomAffine {
            translate: Some([0.05, 0.05]),
            scale: Some([0.9, 1.1]),
            interpolation: Filter::Bilinear,
            ..RandomAffine::new(degrees)
        }
    }

    /// Numbers the steps as those of transforms.
    fn number_steps(steps: impl IntoIterator<Item = Step>) -> Vec<(usize, Step)> {
        steps.into_iter().enumerate().collect()
    }

    /// Returns the mean difference of the pixels in the middle, which no step moves out of the frame.
    fn difference(a: &Image, b: &Image) -> f64 {
        assert_eq!((a.size, a.channels), (b.size, b.channels));
        let (mut sum, mut count) = (0, 0);
        for y in a.size.height as usize / 4..a.size.height as usize * 3 / 4 {
            let width = a.size.width as usize * 3;
            let range = width / 4..width * 3 / 4;
            for (a, b) in a.row(y)[range.clone()].iter().zip(&b.row(y)[range]) {
                sum += u64::from(a.abs_diff(*b));
                count += 1;
            }
        }
        sum as f64 / f64::from(count)
    }

    #[test]
    fn warps_flips_and_crops_are_one_warp_with_about_the_same_pixels_and_boxes() {
        let image = smooth();
        for seed in 0..20 {
            let crop = Region {
                top: 4,
                left: 10,
                size: Size {
                    height: 80,
                    width: 100,
                },
            };
            let cropped = Size {
                height: 80,
                width: 100,
            };
            let mut last = Transform::from(affine(10.0))
                .draw(cropped, &mut Rng::new(seed, 1, 0, 0))
                .expect("a draw");
            let steps = number_steps([
                draw_step(affine(10.0), seed),
                Step::FlipX,
                draw_step(
                    RandomPerspective {
                        distortion_scale: 0.2,
                        ..RandomPerspective::new(1.0)
                    },
                    seed,
                ),
                Step::FlipY,
                Step::Crop(crop),
                last.remove(0),
                Step::FlipX,
            ]);

            let fused = fuse(steps.clone(), SIZE);

            assert!(
                matches!(&fused[..], [(5, Step::Warp(_)), (6, Step::FlipX)]),
                "{fused:?}"
            );
            let (single, one) = (
                apply_steps(&steps, &image, false),
                apply_steps(&fused, &image, false),
            );
            let found = difference(&single, &one);
            assert!(found < 2.0, "seed {seed}: {found}");
            let moved = |steps: &[(usize, Step)]| {
                let mut moving = MovingBox::new([50.0, 40.0, 70.0, 50.0], SIZE);
                let mut size = SIZE;
                for (_, step) in steps {
                    moving.follow(step, size);
                    size = step.output_size(size);
                }
                moving.visible()
            };
            let middle = |[left, top, right, bottom]: [f64; 4]| [left + right, top + bottom];
            let (single, one) = (middle(moved(&steps)), middle(moved(&fused)));
            for (a, b) in single.iter().zip(one) {
                assert!((a - b).abs() < 4.0, "seed {seed}: {single:?}, {one:?}");
            }
        }
    }

    #[test]
    fn affine_warps_alone_are_one_warp_with_about_the_same_pixels() {
        let image = smooth();
        for seed in 0..20 {
            let mut second = Transform::from(affine(20.0))
                .draw(SIZE, &mut Rng::new(seed, 1, 0, 0))
                .expect("a draw");
            let steps =
                number_steps([draw_step(affine(20.0), seed), Step::FlipX, second.remove(0)]);

            let fused = fuse(steps.clone(), SIZE);

            assert_eq!(fused.len(), 1, "{fused:?}");
            let (single, one) = (
                apply_steps(&steps, &image, false),
                apply_steps(&fused, &image, false),
            );
            let found = difference(&single, &one);
            assert!(found < 2.0, "seed {seed}: {found}");
            // A region of the result that a crop leaves is computed alike.
            let region = Region {
                top: 30,
                left: 40,
                size: Size {
                    height: 20,
                    width: 30,
                },
            };
            let [(at, Step::Warp(warp))] = &fused[..] else {
                panic!("{fused:?}");
            };
            let part = apply_steps(&[(*at, Step::Warp(warp.crop(region)))], &image, false);
            let whole = apply_steps(&[(*at, Step::Crop(region))], &one, false);
            assert_eq!(part.data, whole.data, "seed {seed}");
        }
    }

    #[test]
    fn points_move_through_a_fused_chain_as_through_its_steps() {
        for flips in [
            vec![Step::FlipX],
            vec![Step::FlipY],
            vec![Step::FlipX, Step::FlipY],
        ] {
            let (first, last) = (draw_step(affine(10.0), 1), draw_step(affine(10.0), 2));
            let steps = number_steps([vec![first], flips, vec![last]].concat());
            let fused = fuse(steps.clone(), SIZE);
            assert_eq!(fused.len(), 1, "{fused:?}");
            let moved = |steps: &[(usize, Step)], edges: bool| {
                let point = |at| MovingPoint {
                    at,
                    visibility: 1.0,
                };
                let mut moving = MovingPoints {
                    points: vec![point([50.0, 40.0]), point([70.0, 52.0])],
                    per_object: 2,
                    pairs: &[[0, 1]],
                    edges,
                };
                let mut size = SIZE;
                for (_, step) in steps {
                    moving.follow(step, size);
                    size = step.output_size(size);
                }
                moving.points
            };
            for edges in [false, true] {
                let (single, one) = (moved(&steps, edges), moved(&fused, edges));
                for (a, b) in single.iter().zip(&one) {
                    for (a, b) in a.at.iter().zip(b.at) {
                        assert!((a - b).abs() < 1e-6, "{edges}: {single:?}, {one:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_chain_ends_at_a_step_that_is_no_matrix_and_at_another_fill() {
        let other = |step: Step| match step {
            Step::Warp(warp) => Step::Warp(Warp {
                fill: vec![7.0],
                ..warp
            }),
            step => step,
        };
        let resize = Step::Resize {
            size: SIZE,
            filter: Filter::Bilinear,
            antialias: true,
        };
        let steps = number_steps([
            draw_step(affine(10.0), 1),
            resize,
            draw_step(affine(10.0), 2),
            other(draw_step(affine(10.0), 3)),
            Step::Color(vec![ColorStep::Invert]),
            draw_step(affine(10.0), 4),
        ]);

        assert_eq!(fuse(steps.clone(), SIZE), steps);
    }

    #[test]
    fn linear_changes_of_colours_are_one_pass_near_the_single_changes() {
        let image = smooth();
        let jitter = |brightness: f64| {
            Step::Color(vec![
                ColorStep::Brightness(brightness),
                ColorStep::Contrast(1.1),
                ColorStep::Saturation(1.2),
            ])
        };
        let rest = Step::Color(vec![
            ColorStep::Gray,
            ColorStep::Hue(0.1),
            ColorStep::Invert,
        ]);
        let steps = number_steps([jitter(0.9), jitter(1.1), rest]);

        let fused = fuse(steps.clone(), SIZE);

        let [(0, Step::Color(colors))] = &fused[..] else {
            panic!("{fused:?}");
        };
        assert!(matches!(
            &colors[..],
            [ColorStep::Linear(run), ColorStep::Hue(_), ColorStep::Invert] if run.len() == 7
        ));
        let found = difference(
            &apply_steps(&steps, &image, false),
            &apply_steps(&fused, &image, false),
        );
        // Each of the nine single changes truncates.
        assert!(found < 9.0, "{found}");
    }

    #[test]
    fn fused_colours_are_within_one_level_of_real_numbers() {
        const LUMA: [f64; 3] = [0.2989, 0.587, 0.114];
        let luma = |pixel: [f64; 3]| (0..3).map(|at| pixel[at] * LUMA[at]).sum::<f64>();
        let image = smooth();
        let colors = vec![
            ColorStep::Brightness(0.8),
            ColorStep::Saturation(1.2),
            ColorStep::Contrast(0.7),
            ColorStep::Permute([2, 0, 1]),
            ColorStep::Invert,
        ];
        let (pixels, _) = image.data.as_chunks::<3>();
        let saturated = pixels.iter().map(|pixel| {
            let pixel = pixel.map(|v| f64::from(v) * 0.8);
            pixel.map(|v| 1.2 * v - 0.2 * luma(pixel))
        });
        let saturated: Vec<[f64; 3]> = saturated.collect();
        let mean = saturated.iter().map(|&pixel| luma(pixel)).sum::<f64>() / pixels.len() as f64;
        let expected = saturated.iter().flat_map(|pixel| {
            let [r, g, b] = pixel.map(|v| 255.0 - (0.7 * v + 0.3 * mean));
            [b, r, g]
        });

        let found = apply_steps(
            &fuse(number_steps([Step::Color(colors)]), SIZE),
            &image,
            false,
        );

        for (found, expected) in found.data.iter().zip(expected) {
            assert!(
                (f64::from(*found) - expected).abs() <= 0.51,
                "{found} {expected}"
            );
        }
    }

    #[test]
    fn fused_colours_of_gray_images_have_no_colour() {
        let mut image = Image::default();
        image.reset(SIZE, 1, Depth::U8);
        for (at, v) in image.data.iter_mut().enumerate() {
            *v = (at % 200) as u8;
        }
        let colors = vec![ColorStep::Saturation(1.5), ColorStep::Invert];

        let found = apply_steps(
            &fuse(number_steps([Step::Color(colors)]), SIZE),
            &image,
            false,
        );

        let inverted = image.data.iter().map(|v| 255 - v);
        assert!(found.data.iter().copied().eq(inverted));
    }
}
