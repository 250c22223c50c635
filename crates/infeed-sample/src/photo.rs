//! Photographs of one object before a background: ImageNet's kind.
//!
//! A class is a shape, a colour and a pattern, so that the classes can really be learned.

use infeed_core::sample::{Image, Size};

use super::canvas::{Border, Canvas, Material, Pattern};
use super::noise::{Random, hash};
use super::outline::{Outline, Point, at, radial};

const SHAPES: [&str; 8] = [
    "ball", "crate", "cone", "ring", "star", "peanut", "flower", "jar",
];
const COLOURS: [(&str, [f32; 3]); 16] = [
    ("red", [0.78, 0.13, 0.10]),
    ("green", [0.20, 0.55, 0.18]),
    ("blue", [0.13, 0.25, 0.70]),
    ("amber", [0.88, 0.62, 0.12]),
    ("violet", [0.42, 0.20, 0.62]),
    ("white", [0.88, 0.87, 0.83]),
    ("brown", [0.42, 0.27, 0.15]),
    ("teal", [0.10, 0.50, 0.50]),
    ("pink", [0.90, 0.50, 0.60]),
    ("grey", [0.45, 0.46, 0.48]),
    ("lime", [0.62, 0.78, 0.20]),
    ("orange", [0.92, 0.42, 0.08]),
    ("azure", [0.35, 0.65, 0.90]),
    ("purple", [0.55, 0.10, 0.40]),
    ("black", [0.10, 0.10, 0.11]),
    ("cream", [0.90, 0.80, 0.58]),
];
const PATTERNS: [&str; 8] = [
    "plain", "striped", "checked", "spotted", "marbled", "banded", "bricked", "rough",
];

/// Number of distinguishable classes; `class` must be below it.
pub const MAX_PHOTO_CLASSES: u32 = (SHAPES.len() * COLOURS.len() * PATTERNS.len()) as u32;

/// Shape, colour and pattern of a class. Every class has another triple: for one shape, the
/// quotient walks all colours, then all patterns.
fn parts(class: u32) -> (usize, usize, usize) {
    let class = class as usize;
    let (shape, rest) = (class % SHAPES.len(), class / SHAPES.len());
    let colour = (rest + shape * 3) % COLOURS.len();
    let pattern = (rest / COLOURS.len() + shape) % PATTERNS.len();
    (shape, colour, pattern)
}

/// Name of a class, fit for a folder: `striped_green_crate`. Classes from [`MAX_PHOTO_CLASSES`] on
/// repeat.
pub fn photo_class_name(class: u32) -> String {
    let (shape, colour, pattern) = parts(class % MAX_PHOTO_CLASSES);
    format!(
        "{}_{}_{}",
        PATTERNS[pattern], COLOURS[colour].0, SHAPES[shape]
    )
}

/// Paints photograph number `index` of a class.
///
/// # Shape
///
/// RGB, `[height, width, 3]` `u8`; `size` needs at least one pixel.
pub fn photograph(seed: u64, index: u64, class: u32, size: Size) -> Image {
    let seed = hash(hash(seed, 0x9_4070), index);
    let mut random = Random::new(seed);
    let mut canvas = Canvas::new(size, 4, seed);
    // How much there is to see: the wide spread of bytes per pixel that real photographs have.
    let detail = 0.05 + 2.9 * random.unit() * random.unit().sqrt();

    backdrop(&mut canvas, &mut random, detail);
    clutter(&mut canvas, &mut random, detail);
    if random.chance(0.25) {
        let radius = canvas.extent.x.min(canvas.extent.y) * random.between(0.002, 0.02);
        canvas.blur(radius as usize);
    }
    object(&mut canvas, &mut random, detail, class % MAX_PHOTO_CLASSES);
    canvas.mottle(random.between(0.0, 0.15));

    let softness = random.between(0.0, 0.8) * (1.0 - 0.35 * detail);
    let sigma = random.between(0.4, 1.8) * (0.3 + detail);
    canvas.develop(softness, sigma, seed).0
}

/// A wall, a meadow or a sky, in two parts that meet at a horizon.
fn backdrop(canvas: &mut Canvas, random: &mut Random, detail: f32) {
    let Point {
        x: width,
        y: height,
    } = canvas.extent;
    let short = width.min(height);
    let tone = random.pick([
        [0.55, 0.68, 0.85],
        [0.70, 0.68, 0.62],
        [0.32, 0.40, 0.22],
        [0.25, 0.24, 0.26],
        [0.60, 0.52, 0.42],
        [0.48, 0.50, 0.52],
    ]);
    let wall = Material::plain(random.near(tone, 0.12))
        .with_texture(random.between(0.15, 0.5), 0.16 * detail)
        .with_shade(random.between(0.1, 0.6), false);
    let wall = match random.below(6) {
        0 => wall.with_pattern(Pattern::Bricks {
            width: short / 9.0,
            height: short / 22.0,
        }),
        1 => wall.with_pattern(Pattern::Slats {
            period: short / random.between(8.0, 16.0),
        }),
        2 => wall.with_pattern(Pattern::Marble {
            period: short / random.between(2.0, 6.0),
        }),
        _ => wall,
    };
    let sharp = Border {
        wobble: 0.0,
        soft: 1.0,
    };
    canvas.paint(&Outline::Everything, sharp, &wall, 0);

    if random.chance(0.7) {
        let ground = random.pick([
            [0.25, 0.38, 0.14],
            [0.55, 0.48, 0.36],
            [0.35, 0.33, 0.32],
            [0.62, 0.60, 0.58],
        ]);
        let ground = Material::plain(random.near(ground, 0.08))
            .with_texture(0.35, 0.28 * detail)
            .with_shade(0.3, false);
        let horizon = height * random.between(0.45, 0.8);
        let centre = at(width * 0.5, (horizon + height * 1.1) * 0.5);
        let half = at(width * 0.6, (height * 1.1 - horizon) * 0.5);
        let border = Border {
            wobble: short * random.between(0.0, 0.04),
            soft: 1.5,
        };
        canvas.paint(
            &Outline::Box {
                centre,
                half,
                round: 0.0,
            },
            border,
            &ground,
            0,
        );
    }
}

/// Things of other classes or of none, behind the object.
fn clutter(canvas: &mut Canvas, random: &mut Random, detail: f32) {
    let Point {
        x: width,
        y: height,
    } = canvas.extent;
    let short = width.min(height);
    for _ in 0..random.below(7) {
        let centre = at(width * random.unit(), height * random.between(0.15, 0.95));
        let scale = short * random.between(0.05, 0.25);
        let other = random.below(u64::from(MAX_PHOTO_CLASSES)) as u32;
        let (shape, colour, pattern) = parts(other);
        let material = material(random, colour, pattern, scale, detail);
        let border = Border {
            wobble: scale * random.between(0.0, 0.2),
            soft: 1.5,
        };
        for outline in outlines(shape, centre, scale, random) {
            canvas.paint(&outline, border, &material, 0);
        }
    }
}

fn object(canvas: &mut Canvas, random: &mut Random, detail: f32, class: u32) {
    let Point {
        x: width,
        y: height,
    } = canvas.extent;
    let scale = width.min(height) * random.between(0.2, 0.42);
    let centre = at(
        width * random.between(0.35, 0.65),
        height * random.between(0.4, 0.62),
    );
    let shadow = Material::plain([0.05, 0.05, 0.06])
        .with_texture(0.1, 0.0)
        .with_shade(0.0, false);
    let under = Outline::Ellipse {
        centre: at(centre.x + scale * 0.2, centre.y + scale * 0.92),
        radii: at(scale * 1.1, scale * 0.16),
    };
    canvas.paint(
        &under,
        Border {
            wobble: scale * 0.02,
            soft: scale * 0.12,
        },
        &shadow,
        0,
    );

    let (shape, colour, pattern) = parts(class);
    let material = material(random, colour, pattern, scale, detail);
    let border = Border {
        wobble: scale * random.between(0.0, 0.05),
        soft: 1.0,
    };
    for outline in outlines(shape, centre, scale, random) {
        canvas.paint(&outline, border, &material, 0);
    }
}

fn material(random: &mut Random, colour: usize, kind: usize, scale: f32, detail: f32) -> Material {
    let plain = Material::plain(random.near(COLOURS[colour].1, 0.06))
        .with_texture(random.between(0.1, 0.3), 0.15 * detail)
        .with_shade(random.between(0.5, 0.85), true);
    let period = scale * random.between(0.22, 0.36);
    let pattern = match PATTERNS[kind] {
        "striped" => Pattern::Stripes {
            dx: 1.0 / period,
            dy: random.between(-0.3, 0.3) / period,
        },
        "checked" => Pattern::Checks { cell: period },
        "spotted" => Pattern::Spots { cell: period },
        "marbled" => Pattern::Marble { period },
        "banded" => Pattern::Stripes {
            dx: 0.0,
            dy: 1.0 / period,
        },
        "bricked" => Pattern::Bricks {
            width: period,
            height: period * 0.45,
        },
        "rough" => return plain.with_texture(0.4, 0.25 * (0.5 + detail)),
        _ => Pattern::Plain,
    };
    plain.with_pattern(pattern)
}

/// The parts of a shape, back to front.
fn outlines(shape: usize, centre: Point, scale: f32, random: &mut Random) -> Vec<Outline> {
    let stretch = random.between(0.85, 1.15);
    let radii = at(scale * stretch, scale / stretch);
    let turn = random.between(0.0, std::f32::consts::TAU);
    match SHAPES[shape] {
        "crate" => vec![Outline::Box {
            centre,
            half: radii,
            round: scale * 0.06,
        }],
        "cone" => vec![Outline::Polygon(vec![
            at(
                centre.x + radii.x * random.between(-0.2, 0.2),
                centre.y - radii.y,
            ),
            at(centre.x + radii.x, centre.y + radii.y * 0.9),
            at(centre.x, centre.y + radii.y),
            at(centre.x - radii.x, centre.y + radii.y * 0.9),
        ])],
        "ring" => vec![Outline::Ring {
            centre,
            radii,
            thickness: scale * 0.25,
        }],
        "star" => {
            vec![radial(centre, 10, turn, |i| {
                scale * if i % 2 == 0 { 1.1 } else { 0.5 }
            })]
        }
        "peanut" => vec![radial(centre, 24, turn, |i| {
            let along = libm::cosf(i as f32 * std::f32::consts::TAU / 24.0);
            scale * (0.3 + 0.85 * along * along)
        })],
        "flower" => {
            let petals = (0..6).map(|k| {
                let (sin, cos) = libm::sincosf(turn + k as f32 * std::f32::consts::TAU / 6.0);
                let middle = at(centre.x + cos * scale * 0.6, centre.y + sin * scale * 0.6);
                Outline::Ellipse {
                    centre: middle,
                    radii: at(scale * 0.42, scale * 0.42),
                }
            });
            let heart = Outline::Ellipse {
                centre,
                radii: at(scale * 0.35, scale * 0.35),
            };
            petals.chain([heart]).collect()
        }
        "jar" => {
            let neck = at(centre.x, centre.y - radii.y * 0.85);
            let half = at(radii.x * 0.35, radii.y * 0.35);
            let body = at(centre.x, centre.y + radii.y * 0.15);
            vec![
                Outline::Box {
                    centre: neck,
                    half,
                    round: scale * 0.05,
                },
                Outline::Box {
                    centre: body,
                    half: at(radii.x * 0.7, radii.y * 0.8),
                    round: scale * 0.3,
                },
            ]
        }
        _ => vec![Outline::Ellipse { centre, radii }],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_class_has_a_name_of_its_own() {
        let names: HashSet<String> = (0..MAX_PHOTO_CLASSES).map(photo_class_name).collect();

        assert_eq!(names.len(), MAX_PHOTO_CLASSES as usize);
    }

    #[test]
    fn a_photograph_is_a_function_of_seed_index_and_class() {
        let size = Size {
            height: 40,
            width: 60,
        };

        let photo = photograph(1, 2, 3, size);

        assert_eq!(photo, photograph(1, 2, 3, size));
        assert_ne!(photo, photograph(2, 2, 3, size));
        assert_ne!(photo, photograph(1, 3, 3, size));
        assert_ne!(photo, photograph(1, 2, 4, size));
    }

    #[test]
    fn sizes_down_to_one_pixel_can_be_painted() {
        for (height, width) in [(1, 1), (1, 50), (50, 1), (3, 2)] {
            let photo = photograph(0, 0, 0, Size { height, width });

            assert_eq!(photo.data.len(), (height * width * 3) as usize);
        }
    }
}
