//! Writes records as rows of `.npy` files, one file per field. Rows have known offsets, so only a
//! few records are in memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::fields::inline_bytes;
use super::make::Maker;
use super::npy;
use super::output_folder::OutputFolder;
use super::product::{Product, Shape};
use super::run::{RecordBytes, Writer};
use super::selection::RecordSelection;
use super::shapes::{differs, first_good, none_left};
use super::targets::Target;
use infeed::pipeline::{MemoryField, SourceSpec};
use infeed_core::error::Error;
use infeed_core::sample::{DType, FieldKind, Record};
use infeed_raw::file;
use infeed_source::Source;

/// Bitmap of the written rows, one bit per record.
const PROGRESS: &str = "infeed-pack.rows";

/// Writes records as rows.
pub(super) struct NpyWriter<'a> {
    out: &'a OutputFolder,
    source: &'a dyn Source,
    columns: Vec<ArrayColumn>,
    /// Bytes of the fields of a record that are not separate files.
    inline_bytes: u64,
    /// The record that determines the shapes.
    first: u64,
    records: u64,
    /// One bit per written record.
    done: Mutex<Vec<u8>>,
}

/// The array of one field.
struct ArrayColumn {
    name: String,
    kind: &'static str,
    dtype: DType,
    /// Shape of a row.
    shape: Vec<usize>,
    /// Shape of the pixels of a row.
    pixels: Option<Shape>,
    header: Vec<u8>,
    row_bytes: u64,
    path: PathBuf,
    /// Path of the file until it is complete.
    part: PathBuf,
    file: File,
}

impl<'a> NpyWriter<'a> {
    /// Creates the files with the shapes of the first record, or opens those of an earlier run.
    pub(super) fn begin(
        out: &'a OutputFolder,
        maker: &Maker<'a>,
        chosen: &RecordSelection,
        max_bad: Option<u64>,
    ) -> Result<NpyWriter<'a>, Error> {
        let records = chosen.len();
        let (first, products) = first_good(maker, chosen, max_bad)?;
        let mut columns = Vec::with_capacity(products.len());
        // Whether files of an earlier run have a place for each row, and whether that run finished
        // them.
        let (mut is_known, mut is_finished) = (true, true);
        for (field, product) in maker.fields.iter().zip(&products) {
            let (kind, dtype, shape) = layout(&field.kind, product.shape);
            let header = npy::header(dtype, &axes(&shape, records));
            let row_bytes = product.bytes.len() as u64;
            let length = row_bytes
                .checked_mul(records)
                .and_then(|rows| rows.checked_add(header.len() as u64));
            let Some(length) = length else {
                let problem = format!("the array of `{}` is larger than any disk", field.name);
                return Err(Error::config("out", problem));
            };
            let name = format!("{}.npy", field.name);
            let path = out.path().join(&name);
            let part = out.path().join(format!(".{name}.part"));
            let found = open(&path, &header, length);
            is_finished &= found.is_some();
            let file = match found.or_else(|| open(&part, &header, length)) {
                Some(file) => file,
                None => {
                    // Before the file exists, because the bitmap of another file would mark rows
                    // that this one does not have.
                    remove_progress(out)?;
                    is_known = false;
                    create(&part, &header, length).map_err(|error| Error::write(&part, error))?
                }
            };
            columns.push(ArrayColumn {
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
        let mut writer = NpyWriter {
            out,
            source: maker.source,
            columns,
            inline_bytes: inline_bytes(maker.fields),
            first,
            records,
            done: Mutex::default(),
        };
        let done = match is_known {
            true => writer.earlier_bitmap(is_finished),
            false => None,
        };
        writer.done = Mutex::new(done.unwrap_or_else(|| vec![0; records.div_ceil(8) as usize]));
        Ok(writer)
    }

    /// Returns the bitmap of an earlier run. None if it is unknown which rows that run wrote.
    fn earlier_bitmap(&self, is_finished: bool) -> Option<Vec<u8>> {
        let bytes = self.records.div_ceil(8) as usize;
        match file::read(self.out.path().join(PROGRESS), bytes as u64) {
            Ok(found) => (found.len() == bytes).then_some(found),
            Err(_) if is_finished && self.out.was_complete => Some(vec![0xFF; bytes]),
            Err(_) => None,
        }
    }

    /// Gives the files their names and describes them. Removes the rows of bad records.
    pub(super) fn finish(&self, bad: &BTreeMap<usize, Error>) -> Result<SourceSpec, Error> {
        if !bad.is_empty() {
            return self.finish_without(bad);
        }
        for column in &self.columns {
            if column.part.exists() {
                fs::rename(&column.part, &column.path)
                    .map_err(|error| Error::write(&column.path, error))?;
            }
        }
        remove_progress(self.out)?;
        Ok(self.describe(self.records))
    }

    /// Copies the rows of good records to new files, which then take the final names.
    fn finish_without(&self, bad: &BTreeMap<usize, Error>) -> Result<SourceSpec, Error> {
        let left = self.records - bad.len() as u64;
        if left == 0 {
            return Err(none_left());
        }
        let kept = |column: &ArrayColumn| column.part.with_extension("kept");
        for column in &self.columns {
            let copy = || -> io::Result<()> {
                let mut file = io::BufWriter::new(file::create(kept(column))?);
                file.write_all(&npy::header(column.dtype, &column.axes(left)))?;
                let mut row = vec![0; column.row_bytes as usize];
                for position in
                    (0..self.records).filter(|&position| !bad.contains_key(&(position as usize)))
                {
                    let offset = column.header.len() as u64 + column.row_bytes * position;
                    read_at(&column.file, &mut row, offset)?;
                    file.write_all(&row)?;
                }
                file.into_inner()
                    .map_err(io::IntoInnerError::into_error)?
                    .sync_all()
            };
            copy().map_err(|error| Error::write(&column.path, error))?;
        }
        for column in &self.columns {
            fs::rename(kept(column), &column.path)
                .map_err(|error| Error::write(&column.path, error))?;
        }
        // Not earlier, because an interrupted run resumes with these files.
        for column in &self.columns {
            // A file that cannot be removed only takes space.
            let _ = fs::remove_file(&column.part);
        }
        remove_progress(self.out)?;
        Ok(self.describe(left))
    }

    fn describe(&self, records: u64) -> SourceSpec {
        let field = |column: &ArrayColumn| MemoryField {
            name: column.name.clone(),
            kind: column.kind.to_owned(),
            dtype: Some(column.dtype),
            shape: column.shape.clone(),
            handle: None,
            offsets: None,
            files: false,
            path: Some(column.path.clone()),
            offset: npy::header(column.dtype, &column.axes(records)).len() as u64,
            records: Some(records),
        };
        SourceSpec::Memory {
            fields: self.columns.iter().map(field).collect(),
        }
    }

    /// Removes the files of a run that cannot be finished.
    pub(super) fn remove(&self) {
        for column in &self.columns {
            // A file that cannot be removed only takes space, and the run already reports an error.
            let _ = fs::remove_file(&column.part);
        }
        let _ = fs::remove_file(self.out.path().join(PROGRESS));
    }

    /// Bytes of all files with this number of rows.
    pub(super) fn bytes(&self, records: u64) -> u64 {
        let bytes = |column: &ArrayColumn| column.header.len() as u64 + column.row_bytes * records;
        self.columns.iter().map(bytes).sum()
    }
}

impl ArrayColumn {
    fn axes(&self, records: u64) -> Vec<u64> {
        axes(&self.shape, records)
    }
}

fn axes(shape: &[usize], records: u64) -> Vec<u64> {
    let rows = shape.iter().map(|&axis| axis as u64);
    std::iter::once(records).chain(rows).collect()
}

/// Returns kind, element type and row shape of a field.
fn layout(kind: &FieldKind, pixels: Option<Shape>) -> (&'static str, DType, Vec<usize>) {
    let kind_name = match kind {
        FieldKind::Image(_) => "image",
        FieldKind::Mask(_) => "mask",
        _ => "tensor",
    };
    match (kind, pixels) {
        (_, Some(found)) => (kind_name, found.depth.dtype(), found.axes()),
        (FieldKind::Tensor { dtype, shape }, None) => (kind_name, *dtype, shape.clone()),
        // The plan rejects kinds without a fixed size before any read.
        (_, None) => (kind_name, DType::UInt8, Vec::new()),
    }
}

/// Opens a file of an earlier run. None if its header or length differs.
fn open(path: &Path, header: &[u8], length: u64) -> Option<File> {
    let file = file::open_own(path, File::options().read(true).write(true)).ok()?;
    let mut found = vec![0; header.len()];
    let fits = file.metadata().is_ok_and(|of| of.len() == length);
    let is_same = io::Read::read_exact(&mut &file, &mut found).is_ok() && found == header;
    (fits && is_same).then_some(file)
}

/// Creates a file for rows. Unwritten rows take no space on most file systems.
fn create(part: &Path, header: &[u8], length: u64) -> io::Result<File> {
    let file = file::create(part)?;
    file.set_len(length)?;
    write_at(&file, header, 0)?;
    Ok(file)
}

/// Removes the bitmap of the written rows.
fn remove_progress(out: &OutputFolder) -> Result<(), Error> {
    let rows = out.path().join(PROGRESS);
    match fs::remove_file(&rows) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::write(rows, error)),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[read..];
        at += read as u64;
    }
    Ok(())
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

impl Writer for NpyWriter<'_> {
    fn complete_record(&self, position: usize, record: u64) -> Option<RecordBytes> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if done[position / 8] & 1 << (position % 8) == 0 {
            return None;
        }
        drop(done);
        let sizes = self.source.files(record).into_iter();
        let sizes = sizes.filter_map(|path| Some(fs::metadata(path).ok()?.len()));
        Some(RecordBytes {
            bytes_in: sizes.sum::<u64>() + self.inline_bytes,
            bytes_out: self.columns.iter().map(|column| column.row_bytes).sum(),
        })
    }

    fn leave_out(&self, _place: usize, _record: u64) -> Result<(), Error> {
        // `finish_without` removes the row at the end.
        Ok(())
    }

    fn write(&self, position: usize, record: &Record, products: &[Product]) -> Result<u64, Error> {
        let mut bytes_out = 0;
        for (at, (column, product)) in self.columns.iter().zip(products).enumerate() {
            let bytes = &product.bytes;
            if product.shape != column.pixels || bytes.len() as u64 != column.row_bytes {
                return Err(differs(
                    Target::Arrays,
                    &column.name,
                    (column.pixels, self.source.id(self.first, Some(at))),
                    (product.shape, self.source.id(record.index, Some(at))),
                ));
            }
            let offset = column.header.len() as u64 + column.row_bytes * position as u64;
            write_at(&column.file, bytes, offset)
                .map_err(|error| Error::write(&column.path, error))?;
            bytes_out += column.row_bytes;
        }
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done[position / 8] |= 1 << (position % 8);
        Ok(bytes_out)
    }

    fn checkpoint(&self) -> Result<(), Error> {
        // Rows first, so that every row that the bitmap marks is on the disk before the bitmap is.
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
