//! Made-up photographs that weigh and decode like real ones.
//!
//! A picture is painted back to front from outlines and materials (`canvas`), over noise with the
//! falling spectrum of natural images (`noise`), then blurred and given sensor noise as a camera
//! would. `photo` paints one object of a class before a background, `street` a road scene with the
//! class of every pixel, `dataset` writes folders of either. Only additions, multiplications,
//! divisions and square roots are used on floats, and `libm` for the rest, so a seed gives the
//! same bytes on every machine. How close the result is to photographs is measured by
//! `benchmarks/sample_realism.py`.
#![forbid(unsafe_code)]

mod canvas;
mod dataset;
mod encode;
mod noise;
mod outline;
mod photo;
mod street;
mod things;

pub use dataset::{Classification, Dataset, SampleFile, Segmentation, write_dataset};
pub use encode::{jpeg, png};
pub use infeed_raw::jpeg_encode::Subsampling;
pub use photo::{MAX_PHOTO_CLASSES, photo_class_name, photograph};
pub use street::{MAX_STREET_CLASSES, Street, StreetClass, street, street_classes};
