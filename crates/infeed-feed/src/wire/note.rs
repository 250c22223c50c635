//! Bad records of a batch in a feeder's message. The trainer counts and lists them like its own.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::bytes::{Put, Take};
use super::error::WireError;
use infeed_core::error::{Cause, Error, with_causes};
use infeed_core::sample::RecordId;
use infeed_source::Source;

/// Maximum length in bytes of a note's text.
const TEXT_BYTES: usize = 1024;

/// Marks a missing field.
const NO_FIELD: u32 = u32::MAX;

/// A record that was skipped or substituted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Number in the source.
    pub record: u64,
    /// Field in the record's name, if any.
    pub field: Option<u32>,
    /// The error of the record.
    pub reason: Reason,
}

/// Error of a record. Errors that depend on memory or the machine are not included, nor exceptions
/// of user functions, which may have a local cause such as a missing file. For those, the trainer
/// makes the batch itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reason {
    Damaged {
        cause: String,
    },
    Decode {
        field: String,
        cause: String,
    },
    Transform {
        transform: String,
        cause: String,
    },
    Shape {
        field: String,
        found: String,
        expected: String,
        fix: String,
    },
}

/// Cause of an error on another machine, in one line.
#[derive(Debug)]
struct RemoteCause(String);

impl fmt::Display for RemoteCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for RemoteCause {}

impl Note {
    /// Creates a note for an error; `None` if the trainer has to find the error itself.
    pub fn of(error: &Error, source: &dyn Source) -> Option<Note> {
        let record = error.record()?;
        let reason = match error {
            Error::Damaged { source, .. } => Reason::Damaged {
                cause: with_causes(&**source),
            },
            Error::Decode { field, source, .. } => Reason::Decode {
                field: field.clone(),
                cause: with_causes(&**source),
            },
            Error::Transform {
                transform, source, ..
            } => Reason::Transform {
                transform: transform.to_string(),
                cause: with_causes(&**source),
            },
            Error::Shape {
                field,
                found,
                expected,
                fix,
                ..
            } => Reason::Shape {
                field: field.clone(),
                found: found.clone(),
                expected: expected.clone(),
                fix: fix.to_string(),
            },
            _ => return None,
        };
        // The record's name may differ on the trainer; its number and field are equal.
        let fields = 0..source.fields().len();
        let mut fields = fields.filter(|field| source.id(record.index, Some(*field)) == *record);
        let field = match source.id(record.index, None) == *record {
            true => None,
            false => fields.next().and_then(|field| u32::try_from(field).ok()),
        };
        Some(Note {
            record: record.index,
            field,
            reason,
        })
    }

    /// Returns the record with its name on the trainer, and the error.
    ///
    /// # Errors
    ///
    /// If the source has no such record or field.
    pub fn error(self, source: &dyn Source) -> Result<(RecordId, Error), WireError> {
        let field = self.field.map(|field| field as usize);
        if self.record >= source.len() || field.is_some_and(|f| f >= source.fields().len()) {
            return Err(WireError::malformed("a bad record that does not exist"));
        }
        let record = source.id(self.record, field);
        let cause = |text| -> Cause { Arc::new(RemoteCause(text)) };
        let named = record.clone();
        let error = match self.reason {
            Reason::Damaged { cause: text } => Error::Damaged {
                record: named,
                source: cause(text),
            },
            Reason::Decode { field, cause: text } => Error::Decode {
                record: named,
                field,
                source: cause(text),
            },
            Reason::Transform {
                transform,
                cause: text,
            } => Error::Transform {
                record: named,
                transform: transform.into(),
                source: cause(text),
            },
            Reason::Shape {
                field,
                found,
                expected,
                fix,
            } => Error::Shape {
                record: named,
                field,
                found,
                expected,
                fix: fix.into(),
            },
        };
        Ok((record, error))
    }

    pub(super) fn encode(&self, put: &mut Put) {
        put.u64(self.record).u32(self.field.unwrap_or(NO_FIELD));
        let (kind, texts): (u8, [&str; 4]) = match &self.reason {
            Reason::Damaged { cause } => (0, [cause, "", "", ""]),
            Reason::Decode { field, cause } => (1, [cause, field, "", ""]),
            Reason::Transform { transform, cause } => (2, [cause, transform, "", ""]),
            Reason::Shape {
                field,
                found,
                expected,
                fix,
            } => (3, [fix, field, found, expected]),
        };
        put.u8(kind);
        for text in texts {
            put.text(text, TEXT_BYTES);
        }
    }

    pub(super) fn decode(take: &mut Take<'_>) -> Result<Note, WireError> {
        let (record, field) = (take.u64()?, take.u32()?);
        let kind = take.u8()?;
        let (cause, name) = (take.text(TEXT_BYTES)?, take.text(TEXT_BYTES)?);
        let (found, expected) = (take.text(TEXT_BYTES)?, take.text(TEXT_BYTES)?);
        let reason = match kind {
            0 => Reason::Damaged { cause },
            1 => Reason::Decode { field: name, cause },
            2 => Reason::Transform {
                transform: name,
                cause,
            },
            3 => Reason::Shape {
                field: name,
                found,
                expected,
                fix: cause,
            },
            _ => return Err(WireError::malformed("a note of an unknown kind")),
        };
        Ok(Note {
            record,
            field: (field != NO_FIELD).then_some(field),
            reason,
        })
    }
}
