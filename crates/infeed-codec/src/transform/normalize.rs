//! Converts samples to floating-point numbers: `ToFloat`, `Normalize`, and the single
//! multiplication and addition per channel that replaces any sequence of them.

use serde::{Deserialize, Serialize};

use super::TransformError;
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use infeed_core::sample::Depth;

/// Scales samples to the range 0 to 1: divides 8-bit samples by 255 and 16-bit samples by 65535.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToFloat {
    /// Name of the image field. None: all images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// Subtracts a mean and divides by a standard deviation, both in units of 0 to 1. Scales integer
/// samples to 0 to 1 first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// One per channel, or one for all.
    pub mean: Vec<f64>,
    /// One per channel, or one for all; positive.
    pub std: Vec<f64>,
    /// Name of the image field. None: all images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl ToFloat {
    /// Scales one field.
    pub fn of(field: impl Into<String>) -> ToFloat {
        ToFloat {
            field: Some(field.into()),
        }
    }
}

impl Operation for ToFloat {
    fn effect(&self) -> Effect {
        Effect::Scale
    }

    fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }
}

impl Normalize {
    /// Normalizes every image.
    pub fn new(mean: impl Into<Vec<f64>>, std: impl Into<Vec<f64>>) -> Normalize {
        Normalize {
            mean: mean.into(),
            std: std.into(),
            field: None,
        }
    }
}

impl Operation for Normalize {
    fn effect(&self) -> Effect {
        Effect::Scale
    }

    fn normalization(&self) -> Option<(&[f64], &[f64])> {
        Some((&self.mean, &self.std))
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        Affine::identity(channels, depth).normalize(self)
    }

    fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    fn validate(&self) -> Result<()> {
        let check = Check("Normalize");
        check.holds(
            (1..=4).contains(&self.mean.len()) && self.mean.iter().all(|m| m.is_finite()),
            "mean",
            &self.mean,
            "one to four finite numbers, one by channel",
        )?;
        check.holds(
            (1..=4).contains(&self.std.len()) && self.std.iter().all(|s| s.is_finite() && *s > 0.0),
            "std",
            &self.std,
            "one to four positive numbers, one by channel",
        )?;
        let channels = self.mean.len().max(self.std.len());
        let means = self.mean.iter().cycle().take(channels);
        for (mean, std) in means.zip(self.std.iter().cycle()) {
            self.check_results([-mean / std, (1.0 - mean) / std])?;
        }
        Ok(())
    }
}

impl Normalize {
    /// Checks the results for the lowest and the highest sample.
    fn check_results(&self, ends: [f64; 2]) -> Result<(), TransformError> {
        // Pixels are computed as f32.
        let is_finite = |value: f64| (value as f32).is_finite();
        let check = Check("Normalize");
        check.holds(
            self.std.iter().all(|std| is_finite(1.0 / std)),
            "std",
            &self.std,
            "large enough that samples divided by it are finite float32 numbers",
        )?;
        check.holds(
            ends.into_iter().all(is_finite),
            "mean",
            &self.mean,
            "such that (sample - mean) / std is a finite float32 number",
        )
    }
}

/// `sample * scale + bias` by channel: the result of a sequence of `ToFloat` and `Normalize`.
///
/// Stored as `sample / divisor + bias` in f64 and rounded to f32 once, so that `ToFloat` followed
/// by `Normalize` has the same bits as `Normalize` alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Affine {
    channels: Vec<ChannelAffine>,
    depth: Depth,
    is_float: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct ChannelAffine {
    divisor: f64,
    bias: f64,
}

impl Affine {
    /// Creates an affine conversion that leaves samples as stored.
    pub fn identity(channels: usize, depth: Depth) -> Affine {
        let channels = vec![
            ChannelAffine {
                divisor: 1.0,
                bias: 0.0
            };
            channels
        ];
        Affine {
            channels,
            depth,
            is_float: false,
        }
    }

    /// Highest stored sample.
    fn most(&self) -> f64 {
        match self.depth {
            Depth::U8 => f64::from(u8::MAX),
            Depth::U16 => f64::from(u16::MAX),
        }
    }

    /// Scales to 0 to 1, unless the samples are already scaled.
    pub fn to_float(&mut self) {
        if self.is_float {
            return;
        }
        let most = self.most();
        self.channels.iter_mut().for_each(|c| c.divisor = most);
        self.is_float = true;
    }

    /// Subtracts the mean and divides by the deviation, after scaling to 0 to 1.
    ///
    /// # Errors
    ///
    /// `Values` if the number of means or deviations is neither one nor the number of channels.
    pub fn normalize(&mut self, normalize: &Normalize) -> Result<(), TransformError> {
        let (channels, most) = (self.channels.len(), self.most());
        for (parameter, values) in [("mean", &normalize.mean), ("std", &normalize.std)] {
            if values.len() != 1 && values.len() != channels {
                return Err(TransformError::Values {
                    transform: "Normalize",
                    parameter,
                    found: values.len(),
                    channels,
                });
            }
        }
        self.to_float();
        let means = normalize.mean.iter().cycle();
        let deviations = normalize.std.iter().cycle();
        for ((channel, mean), std) in self.channels.iter_mut().zip(means).zip(deviations) {
            channel.divisor *= std;
            channel.bias = (channel.bias - mean) / std;
            // Several transforms may have finite results each, and together not.
            normalize.check_results([channel.bias, most / channel.divisor + channel.bias])?;
        }
        Ok(())
    }

    /// Whether the samples become floating-point numbers.
    pub fn is_float(&self) -> bool {
        self.is_float
    }

    /// Returns the largest magnitude of a result.
    pub fn largest(&self) -> f64 {
        let most = self.most();
        let ends = self.channels.iter();
        let ends = ends.flat_map(|c| [c.bias, most / c.divisor + c.bias]);
        ends.map(f64::abs).fold(0.0, f64::max)
    }

    /// Returns the factors by channel.
    pub fn scale(&self) -> Vec<f32> {
        self.channels
            .iter()
            .map(|c| (1.0 / c.divisor) as f32)
            .collect()
    }

    /// Returns the summands by channel.
    pub fn bias(&self) -> Vec<f32> {
        self.channels.iter().map(|c| c.bias as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: [f64; 3] = [0.485, 0.456, 0.406];
    const STD: [f64; 3] = [0.229, 0.224, 0.225];

    fn imagenet() -> Normalize {
        Normalize::new(MEAN, STD)
    }

    #[test]
    fn normalize_of_bytes_includes_the_division_by_255() {
        let mut affine = Affine::identity(3, Depth::U8);

        affine.normalize(&imagenet()).unwrap();

        assert!(affine.is_float());
        for channel in 0..3 {
            let scale = (1.0 / (255.0 * STD[channel])) as f32;
            let bias = (-MEAN[channel] / STD[channel]) as f32;
            assert_eq!(affine.scale()[channel], scale);
            assert_eq!(affine.bias()[channel], bias);
        }
    }

    #[test]
    fn normalize_after_to_float_has_the_bits_of_normalize_alone() {
        let mut alone = Affine::identity(3, Depth::U8);
        let mut both = Affine::identity(3, Depth::U8);

        alone.normalize(&imagenet()).unwrap();
        both.to_float();
        both.normalize(&imagenet()).unwrap();
        both.to_float();

        assert_eq!(both, alone);
    }

    #[test]
    fn every_byte_is_within_1e_6_of_the_formula_in_double_precision() {
        let mut affine = Affine::identity(3, Depth::U8);
        affine.normalize(&imagenet()).unwrap();

        for v in 0..=255u8 {
            for channel in 0..3 {
                let fast = f32::from(v) * affine.scale()[channel] + affine.bias()[channel];
                let exact = (f64::from(v) / 255.0 - MEAN[channel]) / STD[channel];
                assert!((f64::from(fast) - exact).abs() < 1e-6, "{v} {fast} {exact}");
            }
        }
    }

    #[test]
    fn two_normalizations_compose() {
        let mut affine = Affine::identity(1, Depth::U16);
        affine.normalize(&Normalize::new([0.5], [0.5])).unwrap();
        affine.normalize(&Normalize::new([1.0], [4.0])).unwrap();

        let at_most = f32::from(u16::MAX) * affine.scale()[0] + affine.bias()[0];
        assert!((affine.largest() - 0.5).abs() < 1e-6);

        assert!((f64::from(at_most) - ((1.0 - 0.5) / 0.5 - 1.0) / 4.0).abs() < 1e-6);
    }

    #[test]
    fn results_that_are_not_finite_are_an_error_that_names_the_parameter() {
        for (mean, std, parameter) in [
            (0.5, 0.0, "std"),
            (0.5, 1e-39, "std"),
            (0.5, 1e-310, "std"),
            (0.5, f64::NAN, "std"),
            (0.5, f64::INFINITY, "std"),
            (f64::NAN, 1.0, "mean"),
            (1e39, 1.0, "mean"),
            (-1e30, 1e-30, "mean"),
        ] {
            let error = Normalize::new([mean], [std]).validate().unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("Normalize: {parameter} ")), "{text}");
        }
        Normalize::new([0.5], [1e-37]).validate().unwrap();

        let mut affine = Affine::identity(3, Depth::U8);
        let small = Normalize::new([0.0], [1e-20]);
        affine.normalize(&small).unwrap();
        affine.normalize(&small).unwrap_err();
    }

    #[test]
    fn a_mean_of_three_for_one_channel_is_an_error_that_counts_both() {
        let mut affine = Affine::identity(1, Depth::U8);

        let error = affine.normalize(&imagenet()).unwrap_err();

        let message = "Normalize: mean has 3 values for an image of 1 channels; give one value, or one for \
                    each channel";
        assert_eq!(error.to_string(), message);
    }
}
