//! Changes hue, saturation and value as for the training of YOLO detectors.
//!
//! Source: the description of Ultralytics' `RandomHSV`, which changes tables of OpenCV's HSV. OpenCV
//! stores the hue in steps of 2 degrees and the saturation in 8 bits, and truncates both after the
//! change. They are not rounded here, so pixels differ from OpenCV's by that rounding.

use serde::{Deserialize, Serialize};

use super::color_step::{ColorStep, check_color};
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::Check;
use super::{Rng, Step};
use infeed_core::sample::{Depth, Size};

/// Turns the hue and scales saturation and value by random amounts. Leaves gray images and masks
/// unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomHSV {
    /// Largest turn of the hue in both directions, 0 to 1 in shares of the circle.
    pub hue: f64,
    /// Largest change of the factor of the saturation from 1, 0 to 1.
    pub saturation: f64,
    /// Largest change of the factor of the value from 1, 0 to 1.
    pub value: f64,
}

impl Default for RandomHSV {
    fn default() -> RandomHSV {
        RandomHSV {
            hue: 0.015,
            saturation: 0.7,
            value: 0.4,
        }
    }
}

impl Operation for RandomHSV {
    fn effect(&self) -> Effect {
        Effect::Color
    }

    fn is_random(&self) -> bool {
        true
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_color("RandomHSV", channels, depth)
    }

    fn validate(&self) -> Result<()> {
        for (parameter, most) in [
            ("hue", self.hue),
            ("saturation", self.saturation),
            ("value", self.value),
        ] {
            let is_valid = (0.0..=1.0).contains(&most);
            Check("RandomHSV").holds(is_valid, parameter, most, "between 0 and 1")?;
        }
        Ok(())
    }

    fn draw(&self, _image: Size, rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let most = [self.hue, self.saturation, self.value];
        if most == [0.0; 3] {
            return Ok(());
        }
        let [turn, saturation, value] = most.map(|most| rng.uniform(-most, most));
        steps.push(Step::Color(vec![ColorStep::Hsv {
            turn,
            saturation: 1.0 + saturation,
            value: 1.0 + value,
        }]));
        Ok(())
    }
}
