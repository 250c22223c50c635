//! Why a record did not become a sample. The caller adds which record it was.

use crate::decode::DecodeError;
use crate::function::Failed;
use crate::transform::TransformError;

/// Why a record did not become a sample. The caller knows the record.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The bytes are not what they should be.
    #[error(transparent)]
    Decode(DecodeError),
    /// A transform does not apply.
    #[error(transparent)]
    Transform(TransformError),
    /// The sample has another shape than its batch.
    #[error("{found} where the batch has {expected}; {mend}")]
    #[allow(missing_docs)]
    Shape {
        found: String,
        expected: String,
        mend: &'static str,
    },
    /// A function of the user's does not take it.
    #[error("the function {function} failed")]
    #[allow(missing_docs)]
    Function { function: String, error: Failed },
    /// It needs more working memory than a worker may ever take.
    #[error("{needed_bytes} bytes of working memory are needed and {limit_bytes} allowed")]
    #[allow(missing_docs)]
    TooLarge {
        purpose: &'static str,
        needed_bytes: u64,
        limit_bytes: u64,
    },
}

/// A [`SampleError`] and where it happened.
#[derive(Debug)]
pub struct Failure {
    /// Field of the source.
    pub field: usize,
    /// Name of the transform, if one failed.
    pub transform: Option<&'static str>,
    /// What happened.
    pub error: SampleError,
}
