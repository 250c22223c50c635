//! Conversion of a sample's failure to the loader's error.

use std::sync::Arc;

use crate::fields::failure::{SampleError, StageFailure};
use crate::function::FunctionFailure;
use infeed_codec::transform::TransformError;
use infeed_core::error::{Error, MemoryAdvice};
use infeed_source::Source;

/// Converts a sample's failure to the loader's error, which names the record.
pub fn sample_error(source: &dyn Source, record: u64, failure: StageFailure) -> Error {
    let StageFailure {
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
            FunctionFailure::Raised(source) => Error::Function {
                record,
                function,
                source,
            },
            FunctionFailure::Process(source) => Error::Process { function, source },
            FunctionFailure::Closed => Error::Closed,
        },
        SampleError::Decode(error) => Error::Decode {
            record,
            field: name(),
            source: Arc::new(error),
        },
        SampleError::Field(error) => Error::Decode {
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
            fix,
        } => Error::Shape {
            record,
            field: name(),
            found,
            expected,
            fix: fix.into(),
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
            advice: MemoryAdvice::default(),
        },
    }
}
