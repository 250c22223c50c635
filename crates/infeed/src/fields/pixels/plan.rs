//! Plan of an image or a mask: data that the planner makes and every sample uses.

use super::classes::ClassMap;
use crate::fields::steps::{FieldStep, FoldedSteps};
use crate::pipeline::Layout;
use infeed_codec::decode::ColorMode;
use infeed_codec::transform::Step;
use infeed_core::batch::ColumnKind;
use infeed_core::sample::{DType, Depth, Pixels, Size};

/// Processing of an image or mask.
#[derive(Clone, Debug)]
pub(crate) struct PixelPlan {
    pub(crate) name: String,
    pub(crate) is_mask: bool,
    pub(crate) stored: Pixels,
    pub(crate) mode: ColorMode,
    /// Channels and depth after decoding, equal for all records.
    pub(crate) channels: usize,
    pub(crate) depth: Depth,
    /// Channels after the last transform.
    pub(crate) out_channels: usize,
    /// Size after the last transform; `None` if rows differ and are padded.
    pub(crate) size: Option<Size>,
    /// Parts of the transforms, in the order of the work.
    pub(crate) steps: Vec<FieldStep>,
    pub(crate) finish: RowPass,
    /// Layout and column on a device that does part of the writing.
    pub(crate) on_device: Option<(Option<Layout>, ColumnKind)>,
    /// Row bytes if a device resizes. The host writes the unresized crop if it fits.
    pub(crate) crop_bytes: Option<usize>,
    /// Whether rows may contain files for a device that decodes.
    pub(crate) leaves_files: bool,
}

/// The pass that writes the row.
#[derive(Clone, Debug)]
pub(crate) enum RowPass {
    /// Flip, cast, scale, layout.
    Convert {
        dtype: DType,
        layout: Layout,
        scale: [f32; 4],
        bias: [f32; 4],
    },
    /// One channel per class.
    OneHot {
        classes: ClassMap,
        dtype: DType,
        layout: Layout,
    },
    /// Class numbers; `none` for pixels of unknown class.
    Classes {
        classes: ClassMap,
        dtype: DType,
        none: i64,
    },
}

impl RowPass {
    /// Layout of the channels. None for class numbers.
    pub(crate) fn layout(&self) -> Option<Layout> {
        match self {
            RowPass::Convert { layout, .. } | RowPass::OneHot { layout, .. } => Some(*layout),
            RowPass::Classes { .. } => None,
        }
    }
}

impl PixelPlan {
    /// Element type in the batch.
    pub(crate) fn dtype(&self) -> DType {
        match &self.finish {
            RowPass::Convert { dtype, .. }
            | RowPass::OneHot { dtype, .. }
            | RowPass::Classes { dtype, .. } => *dtype,
        }
    }

    /// Shape of a row of this size.
    pub(crate) fn shape(&self, size: Size) -> Vec<usize> {
        let (height, width) = (size.height as usize, size.width as usize);
        let (channels, layout) = match &self.finish {
            RowPass::OneHot {
                classes, layout, ..
            } => (classes.count(), *layout),
            RowPass::Convert { layout, .. } if !(self.is_mask && self.out_channels == 1) => {
                (self.out_channels, *layout)
            }
            _ => return vec![height, width],
        };
        match layout {
            Layout::Hwc => vec![height, width, channels],
            Layout::Chw => vec![channels, height, width],
        }
    }

    /// Whether positions in a table of pixels can take the place of the pixels: their classes are
    /// written, and all steps before that only move them.
    pub(crate) fn takes_positions(&self, folded: &FoldedSteps) -> bool {
        // Others may write the fill of a mask, which is a pixel.
        let moves = |step: &Step| {
            matches!(
                step,
                Step::Crop(_)
                    | Step::KeepCentres(_)
                    | Step::Resize { .. }
                    | Step::FlipX
                    | Step::FlipY
            )
        };
        matches!(
            self.finish,
            RowPass::OneHot { .. } | RowPass::Classes { .. }
        ) && folded.middle.iter().all(moves)
    }

    /// Bytes of a row of this size.
    pub(crate) fn row_bytes(&self, size: Size) -> u64 {
        let elements = self.shape(size).iter().product::<usize>();
        elements as u64 * self.dtype().bytes() as u64
    }

    pub(crate) fn rank(&self) -> usize {
        self.shape(Size {
            height: 1,
            width: 1,
        })
        .len()
    }

    /// Whether every number is the share of a class, so that averages are meaningful.
    pub(crate) fn is_shares(&self) -> bool {
        matches!(&self.finish, RowPass::OneHot { dtype, .. } if *dtype != DType::UInt8)
    }

    /// Planes of a row, and bytes of a plane's element (a pixel, or one channel of it).
    pub(crate) fn planes(&self, size: Size) -> (usize, usize) {
        let bytes = self.dtype().bytes();
        let layout = self.finish.layout().unwrap_or(Layout::Hwc);
        let shape = self.shape(size);
        match (layout, shape[..].len()) {
            (_, 0..=2) => (1, bytes),
            (Layout::Hwc, _) => (1, shape[2] * bytes),
            (Layout::Chw, _) => (shape[0], bytes),
        }
    }

    /// Returns the column of rows of this plan.
    pub(crate) fn kind(&self) -> ColumnKind {
        let dtype = self.dtype();
        if let Some(bytes) = self.crop_bytes {
            let shape = vec![bytes];
            return ColumnKind::Fixed { dtype, shape };
        }
        match self.size {
            Some(size) => ColumnKind::Fixed {
                dtype,
                shape: self.shape(size),
            },
            None => ColumnKind::Padded {
                dtype,
                rank: self.rank(),
            },
        }
    }
}
