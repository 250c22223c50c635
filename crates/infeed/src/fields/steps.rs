//! Push-down and fusion: where the steps of a field run.
//!
//! Leading crops move into the decoded region. Trailing crops and flips move into the pass that
//! writes the row. A step moves only if the pixels stay the same: a flip never moves past a resize
//! or a pad. A crop that follows a warp directly moves into the warp, which then computes only the
//! region.
//!
//! With `fuse`, chains of steps have become one step before: see [`infeed_codec::transform::fuse`].
//!
//! The planner arranges the steps that the transforms may draw. The text of the plan and the
//! placement on a device read the result. A sample runs the steps that it draws. A step that is not
//! drawn, such as a resize to the present size, can only let crops and flips move further.

use crate::pipeline::Pipeline;
use infeed_codec::transform::{Effect, Filter, Step, Transform};
use infeed_core::sample::{Region, Size};

/// Where a step runs, in the order of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StepStage {
    /// In the decoder, or as a view of raw pixels.
    Decode,
    /// In a separate pass.
    Pass,
    /// In the pass that writes the row.
    Row,
    /// On a device, after the transfer. The host runs what the device cannot.
    Device,
}

/// A part of a transform on one field, and where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldStep {
    /// Index of the transform.
    pub(crate) transform: usize,
    pub(crate) effect: Effect,
    pub(crate) stage: StepStage,
    /// Whether only images that are too small need it.
    pub(crate) is_rare: bool,
}

impl FieldStep {
    /// Returns the parts of a transform, before they are arranged. `finished` says that an earlier
    /// transform changes values while they are written.
    pub(crate) fn of(
        number: usize,
        transform: &Transform,
        finished: bool,
    ) -> impl Iterator<Item = FieldStep> {
        let crops = transform.effect() == Effect::Crop;
        transform.parts().into_iter().map(move |effect| FieldStep {
            transform: number,
            effect,
            stage: match effect {
                Effect::Scale | Effect::Classes => StepStage::Row,
                Effect::Erase if finished => StepStage::Row,
                _ => StepStage::Pass,
            },
            is_rare: crops && effect == Effect::Pad,
        })
    }

    /// Sorts steps by stage, and in the writing pass geometry before values.
    pub(crate) fn order(&self) -> (StepStage, bool) {
        (self.stage, self.stage == StepStage::Row && !self.moves())
    }

    /// Whether the step erases in the written row.
    pub(crate) fn erases_row(&self) -> bool {
        (self.effect, self.stage) == (Effect::Erase, StepStage::Row)
    }

    /// Whether the step needs no pass over the pixels.
    fn moves(&self) -> bool {
        matches!(self.effect, Effect::Crop | Effect::Flip)
    }
}

/// Moves crops and flips as far as they can move.
pub(crate) fn arrange(steps: &mut [FieldStep]) {
    let stays = |step: &FieldStep| !step.moves() && !step.is_rare && step.stage != StepStage::Row;
    let first = steps.iter().position(stays);
    let last = steps.iter().rposition(stays);
    for (at, step) in steps.iter_mut().enumerate() {
        step.stage = match step.effect {
            Effect::Crop if first.is_none_or(|first| at < first) => StepStage::Decode,
            Effect::Crop | Effect::Flip if last.is_none_or(|last| at > last) => StepStage::Row,
            Effect::Crop | Effect::Flip => StepStage::Pass,
            _ => step.stage,
        };
    }
}

/// Returns the index of the first transform whose steps are fused. Transforms before the first random
/// one are not, because a cache may keep their result.
pub(crate) fn fuses_from(pipeline: &Pipeline) -> Option<usize> {
    let mut all = pipeline.transforms.iter();
    all.position(Transform::is_random).filter(|_| pipeline.fuse)
}

/// Arranged steps of one sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FoldedSteps {
    /// Decoded region, in pixels of the record.
    pub(crate) region: Region,
    /// Steps that need a separate pass.
    pub(crate) middle: Vec<Step>,
    /// Written region, in pixels after `middle`.
    pub(crate) view: Region,
    /// Axes that the writing pass mirrors.
    pub(crate) flips: Flips,
    /// Rectangles to erase in the written row, and their values.
    pub(crate) erase: Vec<(Region, Vec<f64>)>,
}

impl FoldedSteps {
    /// Returns a region of the record's pixels outside of which no pixel contributes to the result.
    /// It may be empty.
    pub(crate) fn needed_region(&self) -> Region {
        match self.middle.first() {
            Some(Step::Warp(warp)) => {
                let within = warp.source_region(self.region.size);
                Region {
                    top: self.region.top + within.top,
                    left: self.region.left + within.left,
                    size: within.size,
                }
            }
            _ => self.region,
        }
    }

    /// Whether only a resize to this size needs a pass, and the result is written whole.
    pub(crate) fn is_resize(&self, to: Size) -> bool {
        let is_one = |step: &Step| matches!(step, Step::Resize { size, filter: Filter::Bilinear, antialias: true } if *size == to);
        matches!(&self.middle[..], [step] if is_one(step)) && self.view == to.whole()
    }

    /// Leaves the pass to a device: the image of this size is written whole.
    pub(crate) fn without_middle(&self, size: Size) -> FoldedSteps {
        FoldedSteps {
            middle: Vec::new(),
            view: size.whole(),
            ..self.clone()
        }
    }
}

/// Axes that are mirrored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flips {
    pub(crate) x: bool,
    pub(crate) y: bool,
}

impl Flips {
    /// Includes a step if it is a flip.
    fn add(&mut self, step: &Step) {
        self.x ^= *step == Step::FlipX;
        self.y ^= *step == Step::FlipY;
    }
}

/// A region of an image, possibly mirrored.
#[derive(Clone, Copy, Debug)]
struct CropWindow {
    region: Region,
    flips: Flips,
}

impl CropWindow {
    fn whole(size: Size) -> CropWindow {
        CropWindow {
            region: size.whole(),
            flips: Flips::default(),
        }
    }

    /// Includes a crop or a flip.
    fn add(&mut self, step: &Step) {
        self.flips.add(step);
        if let Step::Crop(crop) = step {
            let Size { height, width } = self.region.size;
            let left = match self.flips.x {
                true => width - crop.left - crop.size.width,
                false => crop.left,
            };
            let top = match self.flips.y {
                true => height - crop.top - crop.size.height,
                false => crop.top,
            };
            self.region = Region {
                top: self.region.top + top,
                left: self.region.left + left,
                size: crop.size,
            };
        }
    }
}

/// Arranges the drawn steps that are planned for a field, whose pixels have this size. Each step
/// has the index of its transform and is valid for the size before it.
pub(crate) fn fold(planned: &[FieldStep], drawn: &[(usize, Step)], size: Size) -> FoldedSteps {
    let of_field = |(transform, step): &'_ (usize, Step)| {
        let part = (*transform, step.effect());
        let mut planned = planned.iter();
        let planned = planned.find(|planned| (planned.transform, planned.effect) == part)?;
        let is_rare = false;
        Some(FieldStep {
            is_rare,
            ..*planned
        })
    };
    let own = drawn
        .iter()
        .filter_map(|drawn| Some((of_field(drawn)?, &drawn.1)));
    let (mut arranged, steps): (Vec<FieldStep>, Vec<&Step>) = own.unzip();
    arrange(&mut arranged);
    let mut decoded = CropWindow::whole(size);
    let (mut middle, mut row, mut erase) = (Vec::<Step>::new(), Vec::new(), Vec::new());
    for (planned, step) in arranged.iter().zip(steps) {
        match (planned.stage, step) {
            (StepStage::Decode, _) => decoded.add(step),
            (StepStage::Row, Step::Erase { region, value }) => erase.push((*region, value.clone())),
            (stage, _) => {
                // A later crop of the decoder is mirrored.
                decoded.flips.add(step);
                match (stage, step, middle.last_mut()) {
                    (StepStage::Row, ..) => row.push(step),
                    (_, Step::Crop(region), Some(Step::Warp(warp))) => *warp = warp.crop(*region),
                    _ => middle.push(step.clone()),
                }
            }
        }
    }
    let sizes = middle.iter();
    let size = sizes.fold(decoded.region.size, |size, step| step.output_size(size));
    let mut written = CropWindow::whole(size);
    row.into_iter().for_each(|step| written.add(step));
    if let Some(Step::Warp(warp)) = middle.last_mut()
        && written.region != size.whole()
    {
        *warp = warp.crop(written.region);
        written.region = written.region.size.whole();
    }
    FoldedSteps {
        region: decoded.region,
        middle,
        view: written.region,
        flips: written.flips,
        erase,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_codec::transform::{
        CenterCrop, ColorJitter, ColorStep, Crop, CropOrPad, Jitter, Normalize, Padding,
        RandomAffine, RandomCrop, RandomErasing, RandomHorizontalFlip, RandomResizedCrop,
        RandomVerticalFlip, Resize, Rng, Warp,
    };

    fn size(height: u32, width: u32) -> Size {
        Size { height, width }
    }

    fn crop(top: u32, left: u32, height: u32, width: u32) -> Step {
        Step::Crop(region(top, left, height, width))
    }

    fn region(top: u32, left: u32, height: u32, width: u32) -> Region {
        let size = size(height, width);
        Region { top, left, size }
    }

    fn resize() -> Step {
        Step::Resize {
            size: size(8, 8),
            filter: Filter::Bilinear,
            antialias: true,
        }
    }

    /// Plans and folds steps, each of another transform.
    fn fold_steps(steps: &[Step], size: Size) -> FoldedSteps {
        let drawn: Vec<(usize, Step)> = steps.iter().cloned().enumerate().collect();
        let planned = drawn.iter().map(|(transform, step)| FieldStep {
            transform: *transform,
            effect: step.effect(),
            stage: StepStage::Pass,
            is_rare: false,
        });
        fold(&planned.collect::<Vec<_>>(), &drawn, size)
    }

    #[test]
    fn a_leading_crop_becomes_the_decoded_region_and_a_trailing_flip_the_written_order() {
        let folded = fold_steps(&[crop(2, 3, 10, 20), resize(), Step::FlipX], size(40, 50));

        assert_eq!(folded.region, region(2, 3, 10, 20));
        assert_eq!(folded.middle, [resize()]);
        assert_eq!(folded.flips, Flips { x: true, y: false });
        assert_eq!(folded.view, size(8, 8).whole());
    }

    #[test]
    fn a_crop_after_a_flip_is_cut_from_the_other_side() {
        let steps = [Step::FlipX, crop(0, 1, 4, 3), resize()];

        let alone = fold_steps(&steps[..2], size(4, 10));
        assert_eq!(alone.region, region(0, 6, 4, 3));
        assert!(alone.flips.x && alone.middle.is_empty());

        let resized = fold_steps(&steps, size(4, 10));
        assert_eq!(resized.region, region(0, 6, 4, 3));
        assert_eq!(resized.middle, [Step::FlipX, resize()]);
    }

    #[test]
    fn a_flip_does_not_pass_a_resize() {
        let folded = fold_steps(&[Step::FlipY, resize(), crop(0, 0, 4, 4)], size(40, 50));

        assert_eq!(folded.middle, [Step::FlipY, resize()]);
        assert!(!folded.flips.y);
        assert_eq!(folded.view, region(0, 0, 4, 4));
    }

    #[test]
    fn crops_after_a_warp_limit_what_it_computes() {
        let mut rng = Rng::new(1, 0, 0, 0);
        let affine = Transform::from(RandomAffine::new(20.0));
        let drawn = affine
            .draw(size(40, 50), &mut rng)
            .expect("a draw")
            .remove(0);
        let Step::Warp(whole) = &drawn else {
            panic!("{drawn:?}");
        };
        let invert = || Step::Color(vec![ColorStep::Invert]);
        let part = |top, left, height, width| {
            Step::Warp(Warp {
                part: Some(region(top, left, height, width)),
                ..whole.clone()
            })
        };

        let before_colours = fold_steps(
            &[
                drawn.clone(),
                crop(4, 6, 30, 40),
                crop(1, 2, 8, 9),
                invert(),
            ],
            size(40, 50),
        );
        assert_eq!(before_colours.middle, [part(5, 8, 8, 9), invert()]);
        assert_eq!(before_colours.view, size(8, 9).whole());

        let in_row = fold_steps(
            &[drawn.clone(), Step::FlipX, crop(4, 6, 30, 40)],
            size(40, 50),
        );
        assert_eq!(in_row.middle, [part(4, 4, 30, 40)]);
        assert_eq!(in_row.view, size(30, 40).whole());
        assert!(in_row.flips.x);

        let after_colours = fold_steps(&[drawn.clone(), invert(), crop(0, 0, 3, 3)], size(40, 50));
        assert_eq!(after_colours.middle, [drawn, invert()]);
        assert_eq!(after_colours.view, region(0, 0, 3, 3));
    }

    /// Returns the planned steps of an image.
    fn plan_steps(transforms: &[Transform]) -> Vec<FieldStep> {
        let mut finished = false;
        let mut steps = Vec::new();
        for (number, transform) in transforms.iter().enumerate() {
            steps.extend(FieldStep::of(number, transform, finished));
            finished |= transform.effect() == Effect::Scale;
        }
        arrange(&mut steps);
        steps
    }

    #[test]
    fn every_sample_runs_its_steps_in_their_order_and_where_the_plan_puts_them() {
        let kinds: [Transform; 12] = [
            Crop::new(20, 22).into(),
            CenterCrop::new(24).into(),
            RandomCrop::new(20).into(),
            RandomCrop {
                padding: Some(Padding::All(2)),
                ..RandomCrop::new(20)
            }
            .into(),
            CropOrPad::new(26, 22).into(),
            RandomResizedCrop::new(24).into(),
            Resize::new(25).into(),
            RandomHorizontalFlip::new(0.7).into(),
            RandomVerticalFlip::new(0.7).into(),
            ColorJitter {
                hue: Jitter::By(0.1),
                ..ColorJitter::default()
            }
            .into(),
            RandomErasing::new(0.7).into(),
            Normalize::new([0.5], [0.5]).into(),
        ];
        let mut rng = Rng::new(5, 0, 0, 0);
        let (mut as_planned, mut tried) = (0, 0);
        while tried < 3000 {
            let count = rng.below(6);
            let any = |_| kinds[rng.below(kinds.len() as u32) as usize].clone();
            let transforms: Vec<Transform> = (0..count).map(any).collect();
            let mut image = size(20 + rng.below(12), 20 + rng.below(12));
            let input = image;
            let mut drawn = Vec::new();
            let is_valid = transforms.iter().enumerate().all(|(number, transform)| {
                let draw = transform.draw(image, &mut Rng::new(6, 0, tried, number as u64));
                let finished = transforms[..number].iter().any(Transform::is_pointwise);
                let may_follow = !finished || transform.only_moves_pixels();
                for step in draw.iter().flatten() {
                    image = step.output_size(image);
                    drawn.push((number, step.clone()));
                }
                draw.is_ok() && (may_follow || transform.effect() == Effect::Erase)
            });
            if !is_valid {
                continue;
            }
            tried += 1;
            let planned = plan_steps(&transforms);

            let folded = fold(&planned, &drawn, input);

            let shown = format!("{planned:?}, {drawn:?}, {folded:?}");
            let parts: Vec<&FieldStep> = drawn
                .iter()
                .map(|(number, step)| {
                    let is_planned =
                        |of: &&FieldStep| (of.transform, of.effect) == (*number, step.effect());
                    planned.iter().find(is_planned).expect("it is planned")
                })
                .collect();
            assert!(parts.is_sorted_by_key(|part| {
                let at = |of: &FieldStep| of == *part;
                planned.iter().position(at)
            }));
            let sizes = folded.middle.iter();
            let middle = sizes.fold(folded.region.size, |size, step| step.output_size(size));
            assert!(
                folded.region.fits(input) && folded.view.fits(middle),
                "{shown}"
            );
            assert_eq!(folded.view.size, image, "{shown}");
            let usual = planned.iter().filter(|step| !step.is_rare);
            let drawable = usual.filter(|step| step.effect != Effect::Scale);
            if !drawable.eq(parts.iter().copied()) {
                continue;
            }
            // With all usual steps drawn, each runs in its planned stage.
            as_planned += 1;
            let has = |stage| parts.iter().filter(|part| part.stage == stage).count();
            let flipped = folded.flips != Flips::default();
            let cut = folded.view.size != middle;
            assert_eq!(folded.middle.len(), has(StepStage::Pass), "{shown}");
            let is_whole = folded.region == input.whole();
            assert!(is_whole || has(StepStage::Decode) > 0, "{shown}");
            let in_row = usize::from(cut) + usize::from(flipped) + folded.erase.len();
            assert!(in_row <= has(StepStage::Row), "{shown}");
        }
        assert!(as_planned > 300, "{as_planned}");
    }
}
