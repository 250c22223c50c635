//! The painter: outlines filled with materials, back to front, then seen through a camera.

use infeed_core::sample::{Depth, Image, Size};

use super::noise::{Random, fractal, hash};
use super::outline::{Outline, Point, at};

/// Look of a surface. Lengths are in pixels, colours in 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Material {
    pub(super) colour: [f32; 3],
    /// How much brightness varies over the surface.
    pub(super) rough: f32,
    /// How much it varies from pixel to pixel.
    pub(super) grain: f32,
    /// Darkening towards the lower right, or over the whole of a ball.
    pub(super) shade: f32,
    pub(super) round: bool,
    pub(super) pattern: Pattern,
}

impl Material {
    pub(super) fn plain(colour: [f32; 3]) -> Material {
        let pattern = Pattern::Plain;
        Material {
            colour,
            rough: 0.12,
            grain: 0.05,
            shade: 0.25,
            round: false,
            pattern,
        }
    }

    pub(super) fn with_texture(self, rough: f32, grain: f32) -> Material {
        Material {
            rough,
            grain,
            ..self
        }
    }

    pub(super) fn with_shade(self, shade: f32, round: bool) -> Material {
        Material {
            shade,
            round,
            ..self
        }
    }

    pub(super) fn with_pattern(self, pattern: Pattern) -> Material {
        Material { pattern, ..self }
    }
}

/// Repeated pattern of a surface, in pixels from its top left corner.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pattern {
    Plain,
    /// Stripes across `(dx, dy)`, which is one period long in units of 1.
    Stripes {
        dx: f32,
        dy: f32,
    },
    Checks {
        cell: f32,
    },
    Spots {
        cell: f32,
    },
    Bricks {
        width: f32,
        height: f32,
    },
    Windows {
        width: f32,
        height: f32,
        lit: u64,
    },
    Marble {
        period: f32,
    },
    Slats {
        period: f32,
    },
}

/// How a thing meets what lies behind it, in pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Border {
    /// How far the line wanders.
    pub(super) wobble: f32,
    /// Over how much it blends with the background; the mask is never blended.
    pub(super) soft: f32,
}

/// A picture being painted, and the class of each of its pixels.
pub(super) struct Canvas {
    pub(super) size: Size,
    /// Height and width as pixel coordinates.
    pub(super) extent: Point,
    rgb: Vec<[f32; 3]>,
    classes: Vec<u8>,
    /// Noise shared by all things: broad, fine and for borders.
    broad: Vec<f32>,
    fine: Vec<f32>,
    edge: Vec<f32>,
}

impl Canvas {
    /// A black canvas; `texture` is how many octaves its finest noise has, 4 for sharp pictures.
    pub(super) fn new(size: Size, texture: u32, seed: u64) -> Canvas {
        let pixels = size.pixels() as usize;
        let extent = at(size.width as f32, size.height as f32);
        let short = extent.x.min(extent.y);
        Canvas {
            size,
            extent,
            rgb: vec![[0.0; 3]; pixels],
            classes: vec![0; pixels],
            broad: fractal(size, short * 0.4, 5, 0.55, hash(seed, 1)),
            fine: fractal(size, short / 45.0, texture, 0.8, hash(seed, 2)),
            edge: fractal(size, short / 14.0, 4, 0.6, hash(seed, 3)),
        }
    }

    /// Paints one thing over what is there.
    pub(super) fn paint(&mut self, outline: &Outline, border: Border, m: &Material, class: u8) {
        let margin = border.wobble * 2.2 + border.soft + 1.0;
        let everything = || (at(0.0, 0.0), self.extent);
        let (low, high) = outline.bounds(0.0).unwrap_or_else(everything);
        let (first, last) = outline.bounds(margin).unwrap_or_else(everything);
        let clip = |v: f32, limit: f32| v.clamp(0.0, limit) as usize;
        let rows = clip(first.y, self.extent.y)..clip(last.y + 1.0, self.extent.y);
        let cols = clip(first.x, self.extent.x)..clip(last.x + 1.0, self.extent.x);
        let span = at((high.x - low.x).max(1.0), (high.y - low.y).max(1.0));
        let width = self.size.width as usize;
        for y in rows {
            for x in cols.clone() {
                let i = y * width + x;
                let p = at(x as f32, y as f32);
                let distance = outline.distance(p) + border.wobble * self.edge[i];
                if distance > border.soft {
                    continue;
                }
                if distance <= 0.0 {
                    self.classes[i] = class;
                }
                let cover = (0.5 - 0.5 * distance / border.soft.max(0.01)).clamp(0.0, 1.0);
                let local = at(p.x - low.x, p.y - low.y);
                let colour = self.surface(m, local, span, i);
                for (under, over) in self.rgb[i].iter_mut().zip(colour) {
                    *under += (over - *under) * cover;
                }
            }
        }
    }

    fn surface(&self, m: &Material, p: Point, span: Point, i: usize) -> [f32; 3] {
        let (u, v) = (2.0 * p.x / span.x - 1.0, 2.0 * p.y / span.y - 1.0);
        let light = if m.round {
            // A ball lit from the upper left, with a highlight where it faces the light.
            let facing = (1.0 - (u * u + v * v) * 0.9).max(0.0).sqrt();
            let toward = facing * 0.75 - u * 0.4 - v * 0.5;
            let gloss = (toward - 0.75).max(0.0);
            1.0 - m.shade + m.shade * (0.3 + toward) + m.shade * gloss * gloss * 8.0
        } else {
            1.0 - m.shade * (0.35 * u + 0.65 * v) * 0.5
        };
        let texture = m.rough * self.broad[i] + m.grain * self.fine[i];
        let brightness = (light * pattern(m.pattern, p, self.broad[i]) * (1.0 + texture)).max(0.0);
        m.colour.map(|c| c * brightness)
    }

    /// Adds broad light and dark over the whole picture, as clouds and leaves do.
    pub(super) fn mottle(&mut self, amount: f32) {
        for (pixel, noise) in self.rgb.iter_mut().zip(&self.broad) {
            *pixel = pixel.map(|c| c * (1.0 + amount * noise));
        }
    }

    /// Blurs what was painted so far by a box of `2 * radius + 1` pixels, three times over, which
    /// is close to a lens out of focus.
    pub(super) fn blur(&mut self, radius: usize) {
        if radius == 0 {
            return;
        }
        let (height, width) = (self.size.height as usize, self.size.width as usize);
        for _ in 0..3 {
            for y in 0..height {
                blur_line(&mut self.rgb, y * width, 1, width, radius);
            }
            for x in 0..width {
                blur_line(&mut self.rgb, x, width, height, radius);
            }
        }
    }

    /// The picture through a lens and on a sensor: `softness` 0 to 1 of a 3x3 blur, noise of
    /// `sigma` levels of 255, and the class of each pixel.
    pub(super) fn develop(mut self, softness: f32, sigma: f32, seed: u64) -> (Image, Image) {
        self.soften(softness);
        let mut random = Random::new(hash(seed, 4));
        let mut image = Image::default();
        image.reset(self.size, 3, Depth::U8);
        for (out, pixel) in image.data.chunks_exact_mut(3).zip(&self.rgb) {
            // Four 16-bit numbers: their sum less twice the mean is near enough to a normal one.
            let bits = random.next();
            let common = part(bits, 0) + part(bits, 1);
            for (channel, (value, &light)) in out.iter_mut().zip(pixel).enumerate() {
                let own = part(hash(bits, channel as u64), 0) + part(hash(bits, 9), channel as u32);
                let level = light * 255.0 + sigma * (own * 1.1 + common * 0.5);
                *value = level.clamp(0.0, 255.0) as u8;
            }
        }
        let mut mask = Image::default();
        mask.reset(self.size, 1, Depth::U8);
        mask.data.copy_from_slice(&self.classes);
        (image, mask)
    }

    fn soften(&mut self, amount: f32) {
        let (height, width) = (self.size.height as usize, self.size.width as usize);
        let (centre, side) = (1.0 - amount * 0.5, amount * 0.25);
        for y in 0..height {
            let row = &mut self.rgb[y * width..(y + 1) * width];
            let mut before = row[0];
            for x in 0..width {
                let (here, after) = (row[x], row[(x + 1).min(width - 1)]);
                row[x] = mix3(before, here, after, centre, side);
                before = here;
            }
        }
        let mut above = self.rgb[..width].to_vec();
        for y in 0..height {
            for (x, above) in above.iter_mut().enumerate() {
                let here = self.rgb[y * width + x];
                let below = self.rgb[(y + 1).min(height - 1) * width + x];
                self.rgb[y * width + x] = mix3(*above, here, below, centre, side);
                *above = here;
            }
        }
    }
}

/// 16 of 64 random bits as a number of mean 0 and standard deviation about 0.58.
fn part(bits: u64, index: u32) -> f32 {
    ((bits >> (16 * index)) & 0xFFFF) as f32 / 32768.0 - 1.0
}

fn mix3(a: [f32; 3], b: [f32; 3], c: [f32; 3], centre: f32, side: f32) -> [f32; 3] {
    std::array::from_fn(|k| (a[k] + c[k]) * side + b[k] * centre)
}

/// Running mean along one line of pixels `start, start + step, ...`, edges repeated.
fn blur_line(rgb: &mut [[f32; 3]], start: usize, step: usize, len: usize, radius: usize) {
    let line: Vec<[f32; 3]> = (0..len).map(|i| rgb[start + i * step]).collect();
    let get = |i: isize| line[i.clamp(0, len as isize - 1) as usize];
    let (r, weight) = (radius as isize, 1.0 / (2 * radius + 1) as f32);
    let mut sum = [0.0f32; 3];
    for i in -r..=r {
        let value = get(i);
        sum = std::array::from_fn(|k| sum[k] + value[k]);
    }
    for i in 0..len {
        rgb[start + i * step] = sum.map(|s| s * weight);
        let (enters, leaves) = (get(i as isize + r + 1), get(i as isize - r));
        sum = std::array::from_fn(|k| sum[k] + enters[k] - leaves[k]);
    }
}

/// Brightness of a pattern at a point, about 0.4 to 1.2.
fn pattern(pattern: Pattern, p: Point, noise: f32) -> f32 {
    let phase = |v: f32, period: f32| (v / period).rem_euclid(1.0);
    // 0 to 1 to 0 over a period, with flanks of a tenth of it.
    let wave = |t: f32| ((0.25 - (t - 0.5).abs()) * 10.0).clamp(0.0, 1.0);
    match pattern {
        Pattern::Plain => 1.0,
        Pattern::Stripes { dx, dy } => 0.5 + 0.7 * wave(phase(p.x * dx + p.y * dy, 1.0)),
        Pattern::Checks { cell } => {
            let (a, b) = (wave(phase(p.x, cell * 2.0)), wave(phase(p.y, cell * 2.0)));
            0.45 + 0.75 * (a + b - 2.0 * a * b)
        }
        Pattern::Spots { cell } => {
            let (x, y) = (phase(p.x, cell) - 0.5, phase(p.y, cell) - 0.5);
            0.45 + 0.75 * (((x * x + y * y).sqrt() - 0.27) * 12.0).clamp(0.0, 1.0)
        }
        Pattern::Bricks { width, height } => {
            let row = (p.y / height).floor();
            let (x, y) = (phase(p.x + row * width * 0.5, width), phase(p.y, height));
            let gap = (x * width).min((1.0 - x) * width).min(y * height);
            let tone = hash((p.x / width + row * 0.5) as u64, row as i64 as u64) as u8;
            (0.62 + 0.3 * gap.min(1.0)) * (0.9 + f32::from(tone) / 1500.0)
        }
        Pattern::Windows { width, height, lit } => {
            let (x, y) = (phase(p.x, width) - 0.5, phase(p.y, height) - 0.45);
            let inside = ((0.26 - x.abs()) * width).min((0.31 - y.abs()) * height);
            let frame = (x.abs() * width).min((y + 0.05).abs() * height) - 0.9;
            let pane = hash(lit ^ (p.x / width) as u64, (p.y / height) as u64) as u8;
            let glass = if pane < 50 {
                1.5
            } else {
                0.25 + f32::from(pane) / 900.0
            };
            let glass = glass + (0.9 - glass) * (1.0 - frame.clamp(0.0, 1.0));
            1.0 + (glass - 1.0) * inside.clamp(0.0, 1.0)
        }
        Pattern::Marble { period } => {
            let vein = phase(p.x * 0.6 + p.y + noise * period * 2.5, period) - 0.5;
            0.65 + vein.abs() * 1.0
        }
        Pattern::Slats { period } => {
            let t = phase(p.x, period);
            if t < 0.45 { 1.0 } else { 0.55 + 0.2 * noise }
        }
    }
}
