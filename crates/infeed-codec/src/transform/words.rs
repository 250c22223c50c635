//! Descriptions of drawn steps for users.

use std::fmt;

use super::{
    Blend, ColorStep, CopyPasteDraw, ElasticField, Filter, Mixing, MosaicDraw, PadMode, Step,
    WarpMap,
};
use infeed_core::sample::Region;

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Crop(region) => write!(f, "crop {}", RegionText(region)),
            Step::KeepCentres(region) => {
                write!(f, "keep boxes with their centre in {}", RegionText(region))
            }
            Step::Resize {
                size,
                filter,
                antialias,
            } => {
                let suffix = if *antialias { "" } else { ", not antialiased" };
                write!(f, "resize to {size} ({}{suffix})", filter_name(*filter))
            }
            Step::Pad {
                left,
                top,
                right,
                bottom,
                fill,
                mode,
                ..
            } => {
                write!(
                    f,
                    "pad {left} left, {top} above, {right} right, {bottom} below"
                )?;
                match mode {
                    PadMode::Constant => write!(f, " with {}", numbers(fill)),
                    PadMode::Edge => f.write_str(" with the outermost pixels"),
                    PadMode::Reflect => f.write_str(" mirrored without the outermost pixels"),
                    PadMode::Symmetric => f.write_str(" mirrored"),
                }
            }
            Step::Warp(warp) => write!(f, "{} ({})", warp.map, filter_name(warp.filter)),
            Step::FlipX => f.write_str("flip left and right"),
            Step::FlipY => f.write_str("flip top and bottom"),
            Step::Color(steps) => {
                let steps: Vec<String> = steps.iter().map(ColorStep::to_string).collect();
                f.write_str(&steps.join(", "))
            }
            Step::PasteMirrored(copies) => write!(f, "paste {} mirrored objects", copies.count()),
            Step::Gray { channels } => write!(f, "luma in {channels}"),
            Step::Chains { own, chains } => {
                write!(f, "weight {own}")?;
                for (weight, steps) in chains {
                    let steps: Vec<String> = steps.iter().map(Step::to_string).collect();
                    write!(f, ", weight {weight} after ({})", steps.join("; "))?;
                }
                Ok(())
            }
            Step::Erase { region, value } => {
                write!(f, "erase {} with {}", RegionText(region), numbers(value))
            }
        }
    }
}

impl fmt::Display for WarpMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WarpMap::Affine {
                angle,
                translate: [x, y],
                scale,
                shear: [shear_x, shear_y],
                center,
            } => {
                write!(
                    f,
                    "rotate clockwise by {angle} degrees, shear by {shear_x} and {shear_y}, scale by {scale}, \
                     move by x {x}, y {y}"
                )?;
                match center {
                    Some([x, y]) => write!(f, " around x {x}, y {y}"),
                    None => Ok(()),
                }
            }
            WarpMap::Perspective { corners } => write!(f, "move the corners to {corners:?}"),
            WarpMap::Projective { matrix, .. } => write!(f, "map by the matrix {matrix:?}"),
            WarpMap::Elastic(ElasticField { alpha, sigma, seed }) => write!(
                f,
                "shift by noise {seed} with alpha {alpha:?}, sigma {sigma:?}"
            ),
        }
    }
}

impl fmt::Display for ColorStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prints as many digits as are needed to parse the same number.
        match self {
            ColorStep::Brightness(factor) => write!(f, "brightness {factor}"),
            ColorStep::Contrast(factor) => write!(f, "contrast {factor}"),
            ColorStep::Saturation(factor) => write!(f, "saturation {factor}"),
            ColorStep::Hue(turn) => write!(f, "hue {turn}"),
            ColorStep::Hsv {
                turn,
                saturation,
                value,
            } => write!(
                f,
                "hue {turn}, saturation {saturation} and value {value} in HSV"
            ),
            ColorStep::Invert => f.write_str("invert"),
            ColorStep::Posterize(bits) => write!(f, "posterize to bits {bits}"),
            ColorStep::Solarize(threshold) => write!(f, "solarize from {threshold}"),
            ColorStep::Gray => f.write_str("gray"),
            ColorStep::Autocontrast => f.write_str("autocontrast"),
            ColorStep::Equalize => f.write_str("equalize"),
            ColorStep::Sharpness(factor) => write!(f, "sharpness {factor}"),
            ColorStep::Permute([r, g, b]) => write!(f, "channels {r} {g} {b}"),
            ColorStep::Blur {
                kernel: [x, y],
                sigma,
            } => write!(f, "blur over {x}x{y} with sigma {sigma}"),
            ColorStep::Noise { mean, sigma, .. } => {
                write!(f, "noise with mean {mean}, sigma {sigma}")
            }
            ColorStep::Compress(quality) => write!(f, "quality {quality}"),
            ColorStep::Linear(steps) => {
                let steps: Vec<String> = steps.iter().map(ColorStep::to_string).collect();
                write!(f, "at once {}", steps.join(", "))
            }
        }
    }
}

impl fmt::Display for Blend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blend::Whole { share } => write!(f, "own share {share}"),
            Blend::Rectangle { share, x, y } => write!(
                f,
                "own share {share}, partner around {x} of the width, {y} of the height"
            ),
        }
    }
}

impl fmt::Display for Mixing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "with position {}, {}", self.partner, self.blend)
    }
}

impl fmt::Display for MosaicDraw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([right, below, diagonal], [x, y]) = (self.partners, self.center);
        write!(
            f,
            "with positions {right}, {below} and {diagonal}, around x {x}, y {y}"
        )
    }
}

impl fmt::Display for CopyPasteDraw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "objects of position {}", self.partner)
    }
}

struct RegionText<'a>(&'a Region);

impl fmt::Display for RegionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Region { top, left, size } = self.0;
        write!(f, "{size} at x {left}, y {top}")
    }
}

fn filter_name(filter: Filter) -> &'static str {
    match filter {
        Filter::Nearest => "nearest",
        Filter::Bilinear => "bilinear",
        Filter::Bicubic => "bicubic",
        Filter::Lanczos => "lanczos",
    }
}

/// Formats one number, or a list.
fn numbers(values: &[f64]) -> String {
    match values {
        [value] => value.to_string(),
        values => format!("{values:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::ChannelValues;
    use infeed_core::sample::Size;

    #[test]
    fn descriptions_contain_no_type_names() {
        let (height, width) = (290, 354);
        let size = Size { height, width };
        let region = Region {
            top: 4,
            left: 92,
            size,
        };
        let filter = Filter::Bilinear;
        let value = vec![0.5, 1.0, 2.0];
        let color = vec![ColorStep::Contrast(1.25), ColorStep::Hue(-0.03)];
        let fill = &ChannelValues::All(7.0);
        for (step, words) in [
            (Step::Crop(region), "crop 354x290 at x 92, y 4"),
            (
                Step::Resize {
                    size,
                    filter,
                    antialias: true,
                },
                "resize to 354x290 (bilinear)",
            ),
            (
                Step::pad([1, 2, 3, 4], fill, fill, PadMode::Constant),
                "pad 1 left, 2 above, 3 right, 4 below with 7",
            ),
            (Step::Color(color), "contrast 1.25, hue -0.03"),
            (
                Step::Erase { region, value },
                "erase 354x290 at x 92, y 4 with [0.5, 1.0, 2.0]",
            ),
        ] {
            assert_eq!(step.to_string(), words);
        }
    }
}
