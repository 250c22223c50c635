//! What is wrong with a record, as the loader's error.

use std::sync::Arc;

use crate::error::Error;
use crate::function::Failed;
use crate::plan::failure::{Failure, SampleError};
use crate::source::Source;
use crate::transform::TransformError;

/// What is wrong with a record as the loader's error.
pub(crate) fn sample_error(source: &dyn Source, record: u64, failure: Failure) -> Error {
    let Failure {
        field,
        transform,
        error,
    } = failure;
    let name = || {
        source
            .fields()
            .get(field)
            .map(|field| field.name.clone())
            .unwrap_or_default()
    };
    let record = match error {
        // A function takes whole samples.
        SampleError::Function { .. } => source.id(record, None),
        _ => source.id(record, Some(field)),
    };
    match error {
        SampleError::Function { function, error } => match error {
            Failed::Raised(source) => Error::Function {
                record,
                function,
                source,
            },
            Failed::Process(source) => Error::Process { function, source },
            Failed::Closed => Error::Closed,
        },
        SampleError::Decode(error) => Error::Decode {
            record,
            field: name(),
            source: Arc::new(error),
        },
        SampleError::Transform(error) => Error::Transform {
            record,
            transform: match &error {
                TransformError::NoClass { transform, .. } => transform,
                _ => transform.unwrap_or("the plan"),
            }
            .into(),
            source: Arc::new(error),
        },
        SampleError::Shape {
            found,
            expected,
            mend,
        } => Error::Shape {
            record,
            field: name(),
            found,
            expected,
            mend: mend.into(),
        },
        SampleError::TooLarge {
            purpose,
            needed_bytes,
            limit_bytes,
        } => Error::RecordTooLarge {
            record,
            purpose,
            needed_bytes,
            limit_bytes,
        },
    }
}
