//! Fields of a sample, one room for each kind of data.
//!
//! A room holds both halves of its kind: the checks and decisions when a pipeline opens, and the work
//! for each record. Images and masks are in `pixels`. Each other kind implements the trait `KindPlan`,
//! and `kinds` lists them; planner and maker dispatch over this list. Only the transforms of objects and
//! labels (`CopyPaste`, `MirroredPaste`, `MixUp`, `CutMix`) name a kind. Below the rooms lies what they
//! share: errors, working memory, cells of a row, arranged steps and moving coordinates.

pub(crate) mod cells;
pub mod failure;
pub(crate) mod kind;
pub(crate) mod kinds;
pub(crate) mod moving;
pub mod pixels;
pub mod scratch;
pub(crate) mod steps;

pub use kinds::{BoxCheck, BoxCount};
