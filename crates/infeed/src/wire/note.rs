//! Bad records of a batch, as a feeder tells them, so that the trainer counts and lists them as if it had
//! met them itself.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::WireError;
use super::bytes::{Put, Take};
use crate::error::{Cause, Error};
use crate::sample::RecordId;
use crate::source::Source;

/// Longest text of a note.
const TEXT_BYTES: usize = 1024;

/// Stands for no field.
const NO_FIELD: u32 = u32::MAX;

/// A record that was skipped or substituted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its number in the source.
    pub record: u64,
    /// The field by which it is named.
    pub field: Option<u32>,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What is wrong with a record. What depends on memory or on the machine is none, and so is what a
/// function of the user's raised, for which a file may be missing there: the trainer finds out about
/// that itself.
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
        mend: String,
    },
}

/// A cause that somebody else told, in one line.
#[derive(Debug)]
struct Told(String);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Told {}

impl Note {
    /// A note of an error; None where it is not for others to tell.
    pub fn of(error: &Error, source: &dyn Source) -> Option<Note> {
        let record = error.record()?;
        let reason = match error {
            Error::Damaged { source, .. } => Reason::Damaged {
                cause: chain(source),
            },
            Error::Decode { field, source, .. } => Reason::Decode {
                field: field.clone(),
                cause: chain(source),
            },
            Error::Transform {
                transform, source, ..
            } => Reason::Transform {
                transform: transform.to_string(),
                cause: chain(source),
            },
            Error::Shape {
                field,
                found,
                expected,
                mend,
                ..
            } => Reason::Shape {
                field: field.clone(),
                found: found.clone(),
                expected: expected.clone(),
                mend: mend.to_string(),
            },
            _ => return None,
        };
        // Its name here may be another one than the trainer's; its number and field are the same.
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

    /// The record by its name at the trainer, and the error about it.
    ///
    /// # Errors
    ///
    /// If the source has no such record or field.
    pub fn error(self, source: &dyn Source) -> Result<(RecordId, Error), WireError> {
        let field = self.field.map(|field| field as usize);
        if self.record >= source.len() || field.is_some_and(|f| f >= source.fields().len()) {
            return Err(WireError::malformed("a bad record that there is not"));
        }
        let record = source.id(self.record, field);
        let cause = |text| -> Cause { Arc::new(Told(text)) };
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
                mend,
            } => Error::Shape {
                record: named,
                field,
                found,
                expected,
                mend: mend.into(),
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
                mend,
            } => (3, [mend, field, found, expected]),
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
                mend: cause,
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

/// A cause and those behind it, in one line.
fn chain(cause: &Cause) -> String {
    let mut text = cause.to_string();
    let mut next = cause.source();
    while let Some(error) = next {
        text.push_str(": ");
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}
