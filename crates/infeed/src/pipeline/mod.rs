//! The pipeline description: plain data, the same in Rust, Python, TOML and JSON.
//!
//! Nothing here runs. The planner checks a description against its source and turns it into a plan
//! that runs.

mod batch;
mod boxes;
pub mod declared_kind;
mod description;
mod file_names;
mod filter;
mod function;
mod memory_field;
mod order;
// Packing writes these files.
#[doc(hidden)]
pub mod packed_dataset;
mod paths;
mod per_record;
mod points;
mod select;
mod shuffle;
mod source;
mod split;
mod text;
mod weights;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_source::Source;
use infeed_source::boxed_images::{self, AnnotatedImage};
use infeed_source::subset::Subset;

pub use batch::{BatchSpec, RaggedLayout};
pub use boxes::BoxesSpec;
pub use declared_kind::DeclaredKind;
pub use description::{Decode, Layout, MisplacedCall, Pipeline, PixelOutput, VERSION};
pub use filter::{Class, RecordFilter};
pub use function::{BoundFunction, FunctionSpec};
pub use infeed_core::order::partition::Tail;
pub use infeed_source::field_spec::FieldSpec;
pub use memory_field::{Handle, MemoryField};
pub use points::PointsSpec;
pub use shuffle::{AllKeyword, Shuffle, ShuffleWindow};
#[doc(hidden)]
pub use shuffle::{WHOLE_WINDOW_BYTES, WINDOW_BYTES};
pub use source::{MixPart, SourceSpec};
pub use split::RecordSplit;
pub use weights::{ClassWeight, Weights};

impl Pipeline {
    /// Checks selection, weights and passes as far as possible without opening the source.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names the part and the fix.
    pub fn check_selection(&self) -> Result<(), Error> {
        select::check(self)?;
        self.weights.as_ref().map_or(Ok(()), Weights::check)?;
        match self.repeat {
            Some(0) => {
                let problem = "the number of passes is 0; use at least 1";
                Err(Error::config("repeat", problem))
            }
            _ => Ok(()),
        }
    }

    /// Opens the source and selects its records.
    ///
    /// # Errors
    ///
    /// As [`SourceSpec::open`] and [`Pipeline::select`].
    pub fn open_source(&self, handles: &[Handle]) -> Result<Arc<dyn Source>, Error> {
        let source = self
            .source
            .open_annotated(handles, self.annotated_image())?;
        self.select(source)
    }

    /// Returns the image that the coordinates of the source's annotations refer to.
    fn annotated_image(&self) -> AnnotatedImage {
        let Some(decode) = &self.decode else {
            // The caller decodes, and may turn images or not.
            return AnnotatedImage::Any;
        };
        let declared = self.declared_boxes();
        let boxes = declared
            .iter()
            .find(|spec| spec.field == boxed_images::BOXES);
        match decode.orient && boxes.is_some_and(BoxesSpec::is_oriented) {
            true => AnnotatedImage::Displayed,
            false => AnnotatedImage::Stored,
        }
    }

    /// Selects the records of a source. In a weighted mix, selects in each part.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the source lacks what a condition needs, or if no record is left.
    pub fn select(&self, source: Arc<dyn Source>) -> Result<Arc<dyn Source>, Error> {
        select::select(self, source)
    }

    /// Returns the numbers of the selected records in a source; `None` if all are selected.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::select`].
    pub fn selected_records(&self, source: &dyn Source) -> Result<Option<Subset>, Error> {
        select::numbers(self, source)
    }

    /// Describes selection and weights as lines of the plan. Empty if each record occurs once per
    /// epoch.
    pub fn selection(&self, source: &dyn Source, order: &Order) -> String {
        select::describe(self, source, order)
    }

    /// Returns the order of a source's records. `source` is the result of [`Pipeline::select`];
    /// `weights` and `batch_groups` may refer to `handles`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if weights or groups do not fit the source, or if positions overflow.
    pub fn order(&self, source: &dyn Source, handles: &[Handle]) -> Result<Order, Error> {
        order::order(self, source, handles)
    }

    /// Reads a description from TOML.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with line and column of the problem.
    pub fn from_toml(text: &str) -> Result<Pipeline, Error> {
        text::from_toml(text)
    }

    /// Reads a description from JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the problem.
    pub fn from_json(text: &str) -> Result<Pipeline, Error> {
        text::from_json(text)
    }

    /// Writes the description as TOML.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if data or a function exists only in memory. Arrays in files are written
    /// as paths.
    pub fn to_toml(&self) -> Result<String, Error> {
        text::to_toml(self)
    }

    /// Writes the description as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a description holds plain data with string keys")
    }

    /// Reads a TOML file. For the folder of a packed dataset, reads the pipeline file in it. Relative
    /// paths refer to the folder of the file.
    ///
    /// # Errors
    ///
    /// [`Error::Open`], or as [`Pipeline::from_toml`]; [`Error::Config`] for an incomplete packed
    /// dataset.
    pub fn load(path: impl AsRef<Path>) -> Result<Pipeline, Error> {
        text::load(path.as_ref())
    }

    /// Writes a TOML file. Relative paths become relative to the folder of the file.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::to_toml`], or [`Error::Open`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut written = self.clone();
        paths::make_relative(&mut written, folder)?;
        fs::write(path, written.to_toml()?).map_err(|error| Error::open(path, error))
    }

    /// Resolves the relative paths of a pipeline file in a folder.
    #[must_use]
    pub fn from_folder(mut self, folder: &Path) -> Pipeline {
        paths::resolve(&mut self, folder);
        self
    }

    /// Makes paths of the source relative to the folder of a packed dataset if they are below it. Other
    /// relative paths become relative to that folder, or absolute if it is in a bucket.
    #[must_use]
    pub fn within_folder(mut self, folder: &Path) -> Pipeline {
        paths::make_relative_to_packed(&mut self, folder);
        self
    }
}
