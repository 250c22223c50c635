//! Image files with boxes that were read when the source was opened: YOLO and Pascal VOC.

use std::path::PathBuf;

use bytes::Bytes;

use super::folder::read_files;
use super::listing::Paths;
use super::{Admission, Read, ReadError, Sink, Source, fingerprint};
use infeed_core::error::Error;
use infeed_core::random::hash;
use infeed_core::sample::{DType, Field, FieldKind, Pixels, Record, RecordId};

/// Field of the boxes.
pub const BOXES: &str = "boxes";

/// Field of the class of each box, from 0.
pub const LABELS: &str = "labels";

/// Image files, each with its boxes.
#[derive(Debug)]
pub struct BoxedImages {
    fields: Vec<Field>,
    paths: Paths,
    /// End of each record's boxes in the arrays below.
    ends: Vec<usize>,
    boxes: Vec<[f32; 4]>,
    labels: Vec<i64>,
    /// One value per box for the field after the labels, if there is one.
    marks: Option<Vec<bool>>,
    classes: Option<Vec<String>>,
}

/// Returns the fields of every record. `mark` names a field with a truth value for each box.
pub fn fields(mark: Option<&str>) -> Vec<Field> {
    let list = |dtype| FieldKind::Ragged { dtype };
    let field = |name: &str, kind| Field {
        name: name.to_owned(),
        kind,
    };
    let mut fields = vec![
        field("image", FieldKind::Image(Pixels::Encoded)),
        field(BOXES, list(DType::Float32)),
        field(LABELS, list(DType::Int64)),
    ];
    fields.extend(mark.map(|name| field(name, list(DType::Bool))));
    fields
}

impl BoxedImages {
    /// Starts with files that have no boxes yet.
    pub(super) fn new(
        paths: Paths,
        mark: Option<&str>,
        classes: Option<Vec<String>>,
    ) -> BoxedImages {
        BoxedImages {
            fields: fields(mark),
            ends: Vec::with_capacity(paths.len()),
            paths,
            boxes: Vec::new(),
            labels: Vec::new(),
            marks: mark.map(|_| Vec::new()),
            classes,
        }
    }

    /// Adds a box to the next record.
    pub(super) fn push(&mut self, corners: [f64; 4], label: usize, mark: bool) {
        self.boxes.push(corners.map(|x| x as f32));
        self.labels.push(label as i64);
        if let Some(marks) = &mut self.marks {
            marks.push(mark);
        }
    }

    /// Ends the boxes of the next record.
    pub(super) fn end_record(&mut self) {
        self.ends.push(self.boxes.len());
    }

    /// Releases unused memory, after the last record.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if a record was not ended, which is a mistake of the caller.
    pub(super) fn finished(mut self) -> Result<BoxedImages, Error> {
        if self.ends.len() != self.paths.len() {
            let problem = "the number of records changed while they were read; open it again";
            return Err(Error::config("source", problem));
        }
        self.paths.shrink();
        self.boxes.shrink_to_fit();
        self.labels.shrink_to_fit();
        Ok(self)
    }
}

impl Source for BoxedImages {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> u64 {
        self.paths.len() as u64
    }

    fn id(&self, record: u64, _field: Option<usize>) -> RecordId {
        RecordId {
            index: record,
            name: self.paths.path(record as usize).display().to_string(),
        }
    }

    fn fingerprint(&self) -> u64 {
        let boxes = self.boxes.as_flattened().iter().map(|x| x.to_bits().into());
        let labels: Vec<u64> = self.labels.iter().map(|&label| label as u64).collect();
        let marks = self.marks.iter().flatten().map(|&mark| mark.into());
        let ends: Vec<u64> = self.ends.iter().map(|&end| end as u64).collect();
        hash(&[
            fingerprint(self.len(), &self.fields),
            self.paths.fingerprint(),
            hash(&boxes.collect::<Vec<u64>>()),
            hash(&labels),
            hash(&marks.collect::<Vec<u64>>()),
            hash(&ends),
        ])
    }

    fn name(&self, record: u64) -> Option<String> {
        Some(self.paths.name(record as usize))
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        vec![self.paths.path(record as usize)]
    }

    fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }

    fn parallel_reads(&self) -> Option<usize> {
        self.paths.parallel_reads()
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        for &(position, record) in &read.records {
            let mut fields = read_files(record, &[&self.paths], admit)?;
            let at = record as usize;
            let own = at.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[at];
            let boxes = self.boxes[own.clone()].as_flattened().iter();
            fields.push(boxes.flat_map(|x| x.to_le_bytes()).collect());
            let labels = self.labels[own.clone()].iter();
            fields.push(labels.flat_map(|label| label.to_le_bytes()).collect());
            if let Some(marks) = &self.marks {
                fields.push(
                    marks[own]
                        .iter()
                        .map(|&mark| u8::from(mark))
                        .collect::<Bytes>(),
                );
            }
            let found = Record {
                index: record,
                fields,
            };
            sink(position, Ok(found));
        }
        Ok(())
    }
}
