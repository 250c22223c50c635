//! Records as rows of `.npy` files, one file a field, written in place at known offsets so that no
//! more than a few records are in memory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::make::{Bench, Maker, Product, Shape};
use super::npy;
use super::out::Out;
use super::run::{Chosen, Moved, Writer};
use crate::error::Error;
use crate::pipeline::{MemoryField, SourceSpec};
use crate::sample::{DType, Depth, FieldKind, Record};
use crate::source::{Source, read_one};

/// Which rows are written: a bit a record, after a line that says of what arrays.
const PROGRESS: &str = "infeed-pack.rows";

/// Writes records as rows.
pub(super) struct ArrayWriter<'a> {
    out: &'a Out,
    source: &'a dyn Source,
    columns: Vec<Column>,
    /// Record that set the shapes.
    first: u64,
    records: u64,
    /// A bit a record that is written.
    done: Mutex<Vec<u8>>,
}

/// The array of one field.
struct Column {
    name: String,
    kind: &'static str,
    dtype: DType,
    /// Shape of a row.
    shape: Vec<usize>,
    /// Of pixels.
    pixels: Option<Shape>,
    header: Vec<u8>,
    row_bytes: u64,
    path: PathBuf,
    /// Where it is until it is complete.
    part: PathBuf,
    file: File,
}

impl<'a> ArrayWriter<'a> {
    /// Makes the files, of the shape of the first record, or takes up those of an earlier run.
    pub(super) fn begin(
        out: &'a Out,
        maker: &Maker<'a>,
        chosen: &Chosen,
    ) -> Result<ArrayWriter<'a>, Error> {
        let (first, records) = (chosen.at(0), chosen.len());
        let record = read_one(maker.source, first)?;
        let products = maker.make(&record, &mut Bench::default())?;
        let mut columns = Vec::with_capacity(products.len());
        let mut is_new = false;
        for (field, product) in maker.fields.iter().zip(&products) {
            let (kind, dtype, shape) = layout(&field.kind, product.shape);
            let axes = shape.iter().map(|&axis| axis as u64);
            let axes: Vec<u64> = std::iter::once(records).chain(axes).collect();
            let header = npy::header(dtype, &axes);
            let row_bytes = product.bytes.len() as u64;
            let length = row_bytes
                .checked_mul(records)
                .and_then(|rows| rows.checked_add(header.len() as u64));
            let Some(length) = length else {
                let problem = format!("the array of `{}` exceeds any disk", field.name);
                return Err(Error::config("out", problem));
            };
            let name = format!("{}.npy", field.name);
            let path = out.path().join(&name);
            let part = out.path().join(format!(".{name}.part"));
            let (file, was_there) = open(&path, &part, &header, length)?;
            is_new |= !was_there;
            columns.push(Column {
                name: field.name.clone(),
                kind,
                dtype,
                shape,
                pixels: product.shape,
                header,
                row_bytes,
                path,
                part,
                file,
            });
        }
        let mut writer = ArrayWriter {
            out,
            source: maker.source,
            columns,
            first,
            records,
            done: Mutex::default(),
        };
        let done = match is_new {
            true => None,
            false => writer.known(),
        };
        writer.done = Mutex::new(done.unwrap_or_else(|| vec![0; records.div_ceil(8) as usize]));
        Ok(writer)
    }

    /// The rows that an earlier run wrote.
    fn known(&self) -> Option<Vec<u8>> {
        let bytes = self.records.div_ceil(8) as usize;
        match fs::read(self.out.path().join(PROGRESS)) {
            Ok(found) => (found.len() == bytes).then_some(found),
            Err(_) if self.out.was_complete => Some(vec![0xFF; bytes]),
            Err(_) => None,
        }
    }

    /// Gives the files their names and describes them.
    pub(super) fn finish(&self) -> Result<SourceSpec, Error> {
        for column in &self.columns {
            if column.part.exists() {
                fs::rename(&column.part, &column.path)
                    .map_err(|error| Error::write(&column.path, error))?;
            }
        }
        let rows = self.out.path().join(PROGRESS);
        match fs::remove_file(&rows) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::write(rows, error));
            }
            _ => {}
        }
        let field = |column: &Column| MemoryField {
            name: column.name.clone(),
            kind: column.kind.to_owned(),
            dtype: Some(column.dtype),
            shape: column.shape.clone(),
            handle: None,
            offsets: None,
            path: Some(column.path.clone()),
            offset: column.header.len() as u64,
            records: Some(self.records),
        };
        Ok(SourceSpec::Memory {
            fields: self.columns.iter().map(field).collect(),
        })
    }

    /// Removes what was begun and cannot be finished.
    pub(super) fn remove(&self) {
        for column in &self.columns {
            // What stays only takes room, and the reason for this is told already.
            let _ = fs::remove_file(&column.part);
        }
        let _ = fs::remove_file(self.out.path().join(PROGRESS));
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |column: &Column| column.header.len() as u64 + column.row_bytes * self.records;
        self.columns.iter().map(bytes).sum()
    }
}

/// What a field is in an array.
fn layout(kind: &FieldKind, pixels: Option<Shape>) -> (&'static str, DType, Vec<usize>) {
    let kind_name = match kind {
        FieldKind::Image(_) => "image",
        FieldKind::Mask(_) => "mask",
        _ => "tensor",
    };
    match (kind, pixels) {
        (_, Some(found)) => {
            let dtype = match found.depth {
                Depth::U8 => DType::UInt8,
                Depth::U16 => DType::UInt16,
            };
            let mut shape = vec![found.size.height as usize, found.size.width as usize];
            if found.channels > 1 {
                shape.push(found.channels);
            }
            (kind_name, dtype, shape)
        }
        (FieldKind::Tensor { dtype, shape }, None) => (kind_name, *dtype, shape.clone()),
        // Kinds without a fixed size are refused before anything is read.
        (_, None) => (kind_name, DType::UInt8, Vec::new()),
    }
}

/// Opens a file of an earlier run, if it is one of this header and length, or makes it. Rows that
/// were not written take no room on most file systems.
fn open(path: &Path, part: &Path, header: &[u8], length: u64) -> Result<(File, bool), Error> {
    for known in [path, part] {
        let Ok(file) = File::options().read(true).write(true).open(known) else {
            continue;
        };
        let mut found = vec![0; header.len()];
        let fits = file.metadata().is_ok_and(|of| of.len() == length);
        let same = io::Read::read_exact(&mut &file, &mut found).is_ok() && found == header;
        if fits && same {
            return Ok((file, true));
        }
    }
    let make = || -> io::Result<File> {
        let file = File::create(part)?;
        file.set_len(length)?;
        write_at(&file, header, 0)?;
        Ok(file)
    };
    let file = make().map_err(|error| Error::write(part, error))?;
    Ok((file, false))
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(windows)]
fn write_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, at)?;
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}

impl Writer for ArrayWriter<'_> {
    fn found(&self, place: usize, record: u64) -> Option<Moved> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if done[place / 8] & 1 << (place % 8) == 0 {
            return None;
        }
        drop(done);
        let sizes = self.source.files(record).into_iter();
        let sizes = sizes.filter_map(|path| Some(fs::metadata(path).ok()?.len()));
        Some(Moved {
            bytes_in: sizes.sum(),
            bytes_out: self.columns.iter().map(|column| column.row_bytes).sum(),
        })
    }

    fn write(&self, place: usize, record: &Record, products: &[Product]) -> Result<u64, Error> {
        let mut bytes_out = 0;
        for (at, (column, product)) in self.columns.iter().zip(products).enumerate() {
            let bytes = &product.bytes;
            if product.shape != column.pixels || bytes.len() as u64 != column.row_bytes {
                let problem = format!(
                    "an array needs one shape, but `{}` has {} in {} and {} in {}; give all one \
                     size with --crop or --center-crop, after --short-side where some are too small",
                    column.name,
                    words(column.pixels),
                    self.source.id(self.first, Some(at)),
                    words(product.shape),
                    self.source.id(record.index, Some(at)),
                );
                return Err(Error::config("arrays", problem));
            }
            let offset = column.header.len() as u64 + column.row_bytes * place as u64;
            write_at(&column.file, bytes, offset)
                .map_err(|error| Error::write(&column.path, error))?;
            bytes_out += column.row_bytes;
        }
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done[place / 8] |= 1 << (place % 8);
        Ok(bytes_out)
    }

    fn checkpoint(&self) -> Result<(), Error> {
        // Rows first: those marked here were written before, and are on the disk when the marks
        // get there.
        let done = self
            .done
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for column in &self.columns {
            column
                .file
                .sync_data()
                .map_err(|error| Error::write(&column.path, error))?;
        }
        self.out.write(&self.out.path().join(PROGRESS), "", &done)
    }
}

/// Shape of pixels for people.
fn words(shape: Option<Shape>) -> String {
    match shape {
        Some(shape) => format!(
            "{} px with {} x {} bits",
            shape.size,
            shape.channels,
            shape.depth.bytes() * 8
        ),
        None => "other numbers".to_owned(),
    }
}
