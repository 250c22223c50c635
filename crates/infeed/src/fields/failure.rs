//! Reasons why a record does not become a sample. The caller adds the record.

use crate::function::FunctionFailure;
use infeed_codec::decode::DecodeError;
use infeed_codec::transform::{Transform, TransformError};
use infeed_core::error::MemoryPurpose;

/// Reason why a record does not become a sample. The caller knows the record.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The bytes are invalid.
    #[error(transparent)]
    Decode(DecodeError),
    /// A transform does not apply.
    #[error(transparent)]
    Transform(TransformError),
    /// A field of numbers, such as boxes, is invalid.
    #[error(transparent)]
    Field(FieldError),
    /// The sample's shape differs from its batch's.
    #[error("{found}, but the batch has {expected}; {fix}")]
    #[allow(missing_docs)]
    Shape {
        found: String,
        expected: String,
        fix: &'static str,
    },
    /// A user function failed.
    #[error("the function {function} failed")]
    #[allow(missing_docs)]
    Function {
        function: String,
        error: FunctionFailure,
    },
    /// The sample needs more working memory than a worker may use.
    #[error("it needs {needed_bytes} bytes of working memory, but the limit is {limit_bytes}")]
    #[allow(missing_docs)]
    TooLarge {
        purpose: MemoryPurpose,
        needed_bytes: u64,
        limit_bytes: u64,
    },
}

impl SampleError {
    /// Names the index of the field that failed; 0 if no field is to blame.
    pub fn in_field(self, field: usize) -> StageFailure {
        StageFailure {
            field,
            transform: None,
            error: self,
        }
    }
}

/// A [`SampleError`] with its field and transform.
#[derive(Debug)]
pub struct StageFailure {
    /// Index of the source's field.
    pub field: usize,
    /// Name of the transform, if one failed.
    pub transform: Option<&'static str>,
    /// The error.
    pub error: SampleError,
}

/// Numbers of a record that cannot be used: boxes, points, outlines, or a size.
#[derive(Debug, thiserror::Error)]
#[error("{problem}; {fix}")]
pub struct FieldError {
    pub(crate) problem: String,
    pub(crate) fix: &'static str,
}

/// A failure of one of the records of a sample.
#[derive(Debug)]
pub struct PartFailure {
    /// Number of the record in the sample, 0 to 3. The sample's own record is 0.
    pub part: usize,
    /// The failure.
    pub failure: StageFailure,
}

impl From<StageFailure> for PartFailure {
    /// Blames the sample's own record.
    fn from(failure: StageFailure) -> PartFailure {
        PartFailure { part: 0, failure }
    }
}

impl From<PartFailure> for StageFailure {
    fn from(failed: PartFailure) -> StageFailure {
        failed.failure
    }
}

/// Names a transform by its position in the description.
pub(crate) fn part_name(at: usize, transform: &Transform) -> String {
    format!("transform {} ({})", at + 1, transform.name())
}
