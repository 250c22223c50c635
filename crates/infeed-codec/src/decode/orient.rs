//! The eight EXIF orientations: maps a region back to the stored image, and turns pixels.
//!
//! Source: EXIF 2.32, tag 0x0112. Let `s` be the stored image with `h` rows and `w` columns. The
//! pixel shown at row `y`, column `x` is `s[a][b]`. `(a, b)` is `(x, y)` if sides swap (5 to 8),
//! and `(y, x)` otherwise. Then `a` counts from below (3, 4, 6, 7) and `b` from the right (2, 3, 7,
//! 8).

use infeed_core::sample::{Image, Region, Size};

/// Whether height and width are swapped.
pub(super) fn swaps_sides(orientation: u8) -> bool {
    orientation >= 5
}

fn counts_from_below(orientation: u8) -> bool {
    matches!(orientation, 3 | 4 | 6 | 7)
}

fn counts_from_right(orientation: u8) -> bool {
    matches!(orientation, 2 | 3 | 7 | 8)
}

/// Returns the region of the stored image, of size `coded`, that is displayed as `shown`.
pub(super) fn coded_region(orientation: u8, shown: Region, coded: Size) -> Region {
    let mut region = shown;
    if swaps_sides(orientation) {
        region = Region {
            top: shown.left,
            left: shown.top,
            size: Size {
                height: shown.size.width,
                width: shown.size.height,
            },
        };
    }
    if counts_from_below(orientation) {
        region.top = coded.height - region.top - region.size.height;
    }
    if counts_from_right(orientation) {
        region.left = coded.width - region.left - region.size.width;
    }
    region
}

/// Size and EXIF orientation of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageFrame {
    /// Size as displayed.
    pub size: Size,
    /// EXIF orientation, 1 to 8, that turns the stored image to the displayed one.
    pub orientation: u8,
}

impl ImageFrame {
    /// Returns the frame of an image that is stored as it is displayed.
    pub fn upright(size: Size) -> ImageFrame {
        ImageFrame {
            size,
            orientation: 1,
        }
    }

    /// Returns the size before the orientation is applied.
    pub fn stored_size(self) -> Size {
        let Size { height, width } = self.size;
        match swaps_sides(self.orientation) {
            true => Size {
                height: width,
                width: height,
            },
            false => self.size,
        }
    }

    /// Returns where a point of the stored image is displayed. Coordinates count from the corner of
    /// the first pixel.
    pub fn shown_point(self, [x, y]: [f64; 2]) -> [f64; 2] {
        let stored = self.stored_size();
        let b = match counts_from_right(self.orientation) {
            true => f64::from(stored.width) - x,
            false => x,
        };
        let a = match counts_from_below(self.orientation) {
            true => f64::from(stored.height) - y,
            false => y,
        };
        if swaps_sides(self.orientation) {
            [a, b]
        } else {
            [b, a]
        }
    }

    /// Writes stored pixels as they are displayed to `out`.
    pub fn show(self, stored: &Image, out: &mut Image) {
        turn(stored, self.orientation, out);
    }
}

/// Writes `stored` in its displayed orientation to `out`.
pub(super) fn turn(stored: &Image, orientation: u8, out: &mut Image) {
    let Size { height, width } = stored.size;
    let swaps = swaps_sides(orientation);
    let size = if swaps {
        Size {
            height: width,
            width: height,
        }
    } else {
        stored.size
    };
    out.reset(size, stored.channels, stored.depth);
    let pixel = stored.pixel_bytes();
    let (stored_h, stored_w) = (stored.height(), stored.width());
    for y in 0..out.height() {
        for (x, to) in out.row_mut(y).chunks_exact_mut(pixel).enumerate() {
            let (mut a, mut b) = if swaps { (x, y) } else { (y, x) };
            if counts_from_below(orientation) {
                a = stored_h - 1 - a;
            }
            if counts_from_right(orientation) {
                b = stored_w - 1 - b;
            }
            let from = (a * stored_w + b) * pixel;
            to.copy_from_slice(&stored.data[from..from + pixel]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::sample::Depth;

    #[test]
    fn points_turn_with_the_pixels_in_all_orientations() {
        let size = Size {
            height: 5,
            width: 7,
        };
        let mut stored = Image::default();
        stored.reset(size, 1, Depth::U8);
        stored.data.fill(0);
        // Columns 1 to 3 of rows 2 and 3.
        for y in 2..4 {
            stored.row_mut(y)[1..4].fill(9);
        }

        for orientation in 1..=8 {
            let mut shown = Image::default();
            turn(&stored, orientation, &mut shown);
            let frame = ImageFrame {
                size: shown.size,
                orientation,
            };
            assert_eq!(frame.stored_size(), size);
            let [a, b] = [[1.0, 2.0], [4.0, 4.0]].map(|point| frame.shown_point(point));

            let (left, right) = (a[0].min(b[0]), a[0].max(b[0]));
            let (top, bottom) = (a[1].min(b[1]), a[1].max(b[1]));
            for y in 0..shown.height() {
                for (x, &value) in shown.row(y).iter().enumerate() {
                    let (x, y) = (x as f64 + 0.5, y as f64 + 0.5);
                    let inside = x > left && x < right && y > top && y < bottom;
                    assert_eq!(value == 9, inside, "orientation {orientation}: {x}, {y}");
                }
            }
        }
    }
}
