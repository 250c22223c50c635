//! Log of data that decoded pixels do not have: one message per field and kind of loss.
//!
//! Threads note losses in any order. The message names the loss with the lowest key, so it is the
//! same in every run. A loader logs a loss with the batch in which it occurs first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::fields::scratch::FieldLoss;
use crate::pipeline::{Pipeline, SourceSpec};
use infeed_codec::decode::Format;
use infeed_core::exec::Sequence;
use infeed_core::sample::{FieldKind, Record};
use infeed_source::Source;

/// Losses that were noted, logged or not.
#[derive(Debug, Default)]
pub struct LossLog {
    /// First loss of each field and kind.
    noted: Mutex<BTreeMap<(usize, u8), NotedLoss>>,
    /// Whether a loss is not logged.
    has_new: AtomicBool,
    /// Fields of bytes in a pipeline that decodes images.
    undecoded: Vec<usize>,
}

/// Number of images that stay encoded, among the kinds of losses of a field.
const UNDECODED: u8 = u8::MAX;

#[derive(Debug)]
struct NotedLoss {
    /// Batch and sequence number of the row.
    row: (u64, Sequence),
    text: String,
    is_logged: bool,
}

impl LossLog {
    /// Creates a log that also notes images in fields that the source takes for bytes, by their
    /// names or first values, and that the user has not declared as bytes.
    pub(super) fn watching(pipeline: &Pipeline, source: &dyn Source) -> LossLog {
        let declared = pipeline.source.declared_fields();
        let is_declared = |name: &str| {
            let mut fields = declared.iter();
            fields.any(|field| field.name == name && field.kind.is_some())
        };
        let fields = source.fields().iter().enumerate();
        let undecoded = fields.filter(|(_, field)| {
            matches!(field.kind, FieldKind::Bytes) && !is_declared(&field.name)
        });
        LossLog {
            undecoded: match (&pipeline.decode, &pipeline.source) {
                (None, _) | (_, SourceSpec::Memory { .. }) => Vec::new(),
                _ => undecoded.map(|(number, _)| number).collect(),
            },
            ..LossLog::default()
        }
    }

    /// Notes an image in a field that is not decoded.
    pub(super) fn check(&self, source: &dyn Source, row: (u64, Sequence), record: &Record) {
        for &field in &self.undecoded {
            let format = record.fields.get(field).and_then(|bytes| Format::of(bytes));
            // Any bytes may begin like the others.
            let Some(name) = format.and_then(|format| match format {
                Format::Jpeg => Some("a JPEG"),
                Format::Png => Some("a PNG"),
                Format::WebP => Some("a WebP"),
                Format::Gif => Some("a GIF"),
                Format::Tiff => Some("a TIFF"),
                _ => None,
            }) else {
                continue;
            };
            self.note_text(row, (field, UNDECODED), || {
                let id = source.id(record.index, Some(field));
                let field = &source.fields()[field].name;
                format!(
                    "field `{field}` of {id}: the value is {name} image, but the field was taken for \
                     bytes and is not decoded; declare the field with kind=\"image\", or with \
                     kind=\"bytes\" if that is intended"
                )
            });
        }
    }

    /// Notes a loss in a row of a batch (its number, then that of the row), unless an earlier row
    /// has one of the same kind.
    pub fn note(&self, source: &dyn Source, row: (u64, Sequence), lost: FieldLoss) {
        let FieldLoss {
            record,
            field,
            loss,
        } = lost;
        self.note_text(row, (field, loss.kind()), || {
            let name = &source.fields()[field].name;
            let id = source.id(record, Some(field));
            format!("field `{name}` of {id}: {}", loss.message(name))
        });
    }

    fn note_text(&self, row: (u64, Sequence), key: (usize, u8), text: impl FnOnce() -> String) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let known = noted.get(&key);
        if known.is_some_and(|known| known.is_logged || known.row <= row) {
            return;
        }
        let found = NotedLoss {
            row,
            text: text(),
            is_logged: false,
        };
        noted.insert(key, found);
        self.has_new.store(true, Ordering::Relaxed);
    }

    /// Logs the losses of the batches up to this one. All their rows must be filled.
    pub fn log(&self, batch: u64) {
        for text in self.take(batch) {
            tracing::warn!(target: "infeed::decode", "{text}");
        }
    }

    fn take(&self, batch: u64) -> Vec<String> {
        let mut texts = Vec::new();
        // The batch passed through the executor's lock, so its losses are visible.
        if !self.has_new.load(Ordering::Relaxed) {
            return texts;
        }
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        for known in noted.values_mut() {
            if !known.is_logged && known.row.0 <= batch {
                known.is_logged = true;
                texts.push(std::mem::take(&mut known.text));
            }
        }
        let has_new = noted.values().any(|known| !known.is_logged);
        self.has_new.store(has_new, Ordering::Relaxed);
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_with_a_loss_is_logged_once_whichever_worker_notes_it_first() {
        let log = LossLog::default();
        for (row, field) in [((1, 5), 0), ((0, 3), 0), ((0, 4), 0), ((2, 8), 1)] {
            log.note_text(row, (field, 0), || format!("{row:?} {field}"));
        }

        assert_eq!(log.take(0), ["(0, 3) 0"]);
        log.note_text((1, 6), (0, 0), || "again".to_owned());
        assert!(log.take(1).is_empty());
        assert_eq!(log.take(2), ["(2, 8) 1"]);
    }
}
