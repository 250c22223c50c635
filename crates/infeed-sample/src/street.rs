//! Street scenes with the class of every pixel: CamVid's kind.

use infeed_core::sample::{Image, Size};

use super::canvas::{Border, Canvas, Material, Pattern};
use super::noise::{Random, hash};
use super::outline::{Outline, Point, at};

/// A class of street scenes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreetClass {
    /// Its name, such as `Road`.
    pub name: String,
    /// Its colour in masks, RGB; another one for every class.
    pub colour: [u8; 3],
}

/// A street scene and its labels.
#[derive(Clone, Debug)]
pub struct Street {
    /// RGB, `[height, width, 3]` `u8`.
    pub image: Image,
    /// Index into [`street_classes`] of every pixel, `[height, width, 1]` `u8`.
    pub mask: Image,
}

/// The most classes a street can be divided into.
pub const MAX_STREET_CLASSES: u32 = 96;

/// CamVid's classes and colours, those of large things first, nothing in particular last.
const KINDS: [(&str, [u8; 3]); 12] = [
    ("Road", [128, 64, 128]),
    ("Building", [128, 0, 0]),
    ("Sky", [128, 128, 128]),
    ("Tree", [128, 128, 0]),
    ("Pavement", [60, 40, 222]),
    ("Car", [64, 0, 128]),
    ("Pole", [192, 192, 128]),
    ("Fence", [64, 64, 128]),
    ("SignSymbol", [192, 128, 128]),
    ("Pedestrian", [64, 64, 0]),
    ("Bicyclist", [0, 128, 192]),
    ("Unlabelled", [0, 0, 0]),
];
const ROAD: u32 = 0;
const BUILDING: u32 = 1;
const SKY: u32 = 2;
pub(super) const TREE: u32 = 3;
const PAVEMENT: u32 = 4;
pub(super) const CAR: u32 = 5;
pub(super) const POLE: u32 = 6;
pub(super) const FENCE: u32 = 7;
pub(super) const SIGN: u32 = 8;
const PEDESTRIAN: u32 = 9;
pub(super) const BICYCLIST: u32 = 10;
const UNLABELLED: u32 = 11;

/// Names and colours of `count` classes (1 to [`MAX_STREET_CLASSES`], others are clamped).
///
/// Fewer than 12 fold the smaller things into the last, `Unlabelled`; more than 12 divide each
/// kind of thing into several (`Road2`).
pub fn street_classes(count: u32) -> Vec<StreetClass> {
    let count = count.clamp(1, MAX_STREET_CLASSES);
    (0..count)
        .map(|class| {
            let kind = if class + 1 == count.min(12) {
                UNLABELLED
            } else {
                class % 12
            };
            let (name, colour) = KINDS[kind as usize];
            match class / 12 {
                0 => StreetClass {
                    name: name.to_owned(),
                    colour,
                },
                round => StreetClass {
                    name: format!("{name}{}", round + 1),
                    // CamVid's colours are even, so an odd blue is another colour; each round
                    // has its own.
                    colour: [colour[0], colour[1], colour[2] + (2 * round as u8 - 1)],
                },
            }
        })
        .collect()
}

/// Paints street scene number `index`, divided into `classes` (as in [`street_classes`]).
///
/// # Shape
///
/// See [`Street`]; `size` needs at least one pixel.
pub fn street(seed: u64, index: u64, classes: u32, size: Size) -> Street {
    let seed = hash(hash(seed, 0x57_4EE7), index);
    let random = Random::new(seed);
    let canvas = Canvas::new(size, 3, seed);
    let classes = classes.clamp(1, MAX_STREET_CLASSES);
    let horizon = canvas.extent.y * 0.48;
    let unit = canvas.extent.y / 720.0;
    let mut scene = Scene {
        canvas,
        random,
        classes,
        horizon,
        unit,
    };

    scene.sky();
    scene.buildings();
    scene.ground();
    scene.far_to_near();
    scene.bonnet();

    let Scene {
        canvas, mut random, ..
    } = scene;
    let sigma = random.between(1.25, 1.65);
    let (image, mask) = canvas.develop(1.0, sigma, seed);
    Street { image, mask }
}

/// A street being painted.
pub(super) struct Scene {
    canvas: Canvas,
    pub(super) random: Random,
    classes: u32,
    horizon: f32,
    /// One pixel of a 720 pixel high picture.
    pub(super) unit: f32,
}

impl Scene {
    /// The class of a thing of this kind, one of several if kinds are divided.
    fn class(&mut self, kind: u32) -> u8 {
        if self.classes <= 12 {
            return kind.min(self.classes - 1) as u8;
        }
        let rounds = (self.classes - kind).div_ceil(12);
        (kind + 12 * self.random.below(u64::from(rounds)) as u32) as u8
    }

    pub(super) fn paint(&mut self, outline: &Outline, wobble: f32, material: &Material, kind: u32) {
        let border = Border {
            wobble: wobble * self.unit,
            soft: 1.6 * self.unit,
        };
        let class = self.class(kind);
        self.canvas.paint(outline, border, material, class);
    }

    pub(super) fn upright(
        &self,
        left: f32,
        top: f32,
        right: f32,
        bottom: f32,
        round: f32,
    ) -> Outline {
        Outline::Box {
            centre: at((left + right) * 0.5, (top + bottom) * 0.5),
            half: at((right - left) * 0.5, (bottom - top) * 0.5),
            round,
        }
    }

    fn sky(&mut self) {
        let tone = self
            .random
            .pick([[0.62, 0.70, 0.80], [0.75, 0.77, 0.80], [0.45, 0.52, 0.60]]);
        let cover = self.random.between(0.15, 0.55);
        let sky = Material::plain(self.random.near(tone, 0.05))
            .with_texture(cover, 0.01)
            .with_shade(-0.35, false);
        self.paint(&Outline::Everything, 0.0, &sky, SKY);
    }

    /// Two rows of houses that recede to the vanishing point, with trees between.
    fn buildings(&mut self) {
        let Point { x: width, .. } = self.canvas.extent;
        let vanish = width * self.random.between(0.42, 0.58);
        for side in [-1.0, 1.0] {
            let houses = 3 + self.random.below(3);
            let mut near = width * 0.55;
            for _ in 0..houses {
                let far = near * self.random.between(0.45, 0.75);
                let height = self.random.between(0.8, 1.5) * self.horizon / (width * 0.55);
                let (x0, x1) = (vanish + side * near, vanish + side * far);
                let (y0, y1) = (self.horizon - near * height, self.horizon - far * height);
                let horizon = self.horizon;
                let foot = |reach: f32| horizon + reach * 0.16;
                let house = Outline::Polygon(vec![
                    at(x0, y0),
                    at(x1, y1),
                    at(x1, foot(far)),
                    at(x0, foot(near)),
                ]);
                let tone = self.random.pick([
                    [0.36, 0.27, 0.22],
                    [0.52, 0.48, 0.42],
                    [0.30, 0.30, 0.32],
                    [0.45, 0.34, 0.26],
                ]);
                let window = self.unit * self.random.between(50.0, 95.0) * (0.4 + near / width);
                let pattern = Pattern::Windows {
                    width: window,
                    height: window * self.random.between(1.2, 1.7),
                    lit: self.random.next(),
                };
                let wall = Material::plain(self.random.near(tone, 0.06))
                    .with_texture(0.3, 0.22)
                    .with_shade(0.4, false)
                    .with_pattern(pattern);
                self.paint(&house, 2.5, &wall, BUILDING);
                if self.random.chance(0.45) {
                    self.tree((x0 + x1) * 0.5, foot((near + far) * 0.5), near * 0.5);
                }
                near = far;
            }
        }
    }

    fn ground(&mut self) {
        let Point {
            x: width,
            y: height,
        } = self.canvas.extent;
        let below = |left: f32, right: f32, vanish: f32, horizon: f32| {
            Outline::Polygon(vec![
                at(vanish - 6.0, horizon),
                at(vanish + 6.0, horizon),
                at(right, height + 9.0),
                at(left, height + 9.0),
            ])
        };
        let kerb =
            Material::plain(self.random.near([0.42, 0.40, 0.39], 0.05)).with_texture(0.2, 0.25);
        let all = self.upright(
            -9.0,
            self.horizon + 12.0 * self.unit,
            width + 9.0,
            height + 9.0,
            0.0,
        );
        self.paint(&all, 3.0, &kerb, PAVEMENT);

        let vanish = width * self.random.between(0.45, 0.55);
        let asphalt =
            Material::plain(self.random.near([0.25, 0.25, 0.27], 0.05)).with_texture(0.25, 0.3);
        let (left, right) = (
            width * self.random.between(-0.3, 0.1),
            width * self.random.between(0.9, 1.3),
        );
        let road = below(left, right, vanish, self.horizon);
        self.paint(&road, 2.0, &asphalt, ROAD);

        let paint = Material::plain([0.72, 0.72, 0.68]).with_texture(0.3, 0.25);
        let depth = height - self.horizon;
        let mut near = 1.0;
        while near > 0.08 {
            let far = near * 0.72;
            let y = |d: f32| self.horizon + depth * d;
            let half = width * 0.012;
            let middle = (left + right) * 0.5 - vanish;
            let mark = Outline::Polygon(vec![
                at(vanish + middle * far - half * far, y(far)),
                at(vanish + middle * far + half * far, y(far)),
                at(vanish + middle * near + half * near, y(near)),
                at(vanish + middle * near - half * near, y(near)),
            ]);
            self.paint(&mark, 0.6, &paint, ROAD);
            near = far * 0.7;
        }
    }

    /// Things on the ground, painted in order of their distance.
    fn far_to_near(&mut self) {
        let Point {
            x: width,
            y: height,
        } = self.canvas.extent;
        let things = 9 + self.random.below(8);
        for step in 0..things {
            // Depth 0 is the horizon, 1 the lower edge of the picture.
            let near = (step as f32 + self.random.unit()) / things as f32;
            let near = 0.04 + 0.72 * near * near;
            let foot = self.horizon + (height - self.horizon) * near;
            let aside = if self.random.chance(0.5) { 1.0 } else { -1.0 };
            let kerb_x = width * (0.5 + aside * (0.06 + near * self.random.between(0.55, 0.9)));
            let road_x = width * (0.5 + aside * near * self.random.between(0.1, 0.45));
            let tall = near * height;
            match self.random.below(8) {
                0 | 1 => self.car(road_x, foot, tall * 0.45),
                2 => self.pole(kerb_x, foot, tall * 1.6),
                3 => self.person(kerb_x, foot, tall * 0.55, PEDESTRIAN),
                4 => self.tree(kerb_x, foot, tall * 0.9),
                5 => self.fence(kerb_x, foot, tall),
                6 => self.person(road_x, foot, tall * 0.5, BICYCLIST),
                _ => self.person(kerb_x, foot, tall * 0.5, PEDESTRIAN),
            }
        }
    }

    /// The front of the car that carries the camera.
    fn bonnet(&mut self) {
        let Point {
            x: width,
            y: height,
        } = self.canvas.extent;
        let tin = Material::plain([0.09, 0.10, 0.12])
            .with_texture(0.3, 0.03)
            .with_shade(-0.8, false);
        let centre = at(width * 0.6, height * 1.12);
        let bonnet = Outline::Ellipse {
            centre,
            radii: at(width * 0.75, height * 0.19),
        };
        self.paint(&bonnet, 1.0, &tin, UNLABELLED);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_class_has_a_name_and_a_colour_of_its_own() {
        for count in [1, 2, 11, 12, 13, MAX_STREET_CLASSES] {
            let classes = street_classes(count);

            assert_eq!(classes.len(), count as usize);
            let names: HashSet<&str> = classes.iter().map(|c| c.name.as_str()).collect();
            let colours: HashSet<[u8; 3]> = classes.iter().map(|c| c.colour).collect();
            assert_eq!((names.len(), colours.len()), (classes.len(), classes.len()));
        }
    }

    #[test]
    fn masks_hold_only_the_requested_classes() {
        let size = Size {
            height: 180,
            width: 240,
        };

        for count in [1, 3, 12, 30] {
            let seen: HashSet<u8> = (0..6)
                .flat_map(|i| street(5, i, count, size).mask.data)
                .collect();

            assert!(
                seen.iter().all(|&class| u32::from(class) < count),
                "{count}: {seen:?}"
            );
            assert!(seen.len() as u32 >= count.min(10), "{count}: {seen:?}");
        }
    }
}
