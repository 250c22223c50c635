//! Limits of annotation files: lists, and files of boxes or names.
//!
//! Opening a dataset reads its annotations into the index, the only part of memory that grows with
//! the dataset. All annotations of a source share one limit, a part of the memory that is available
//! when it opens. Lengths are checked before memory is allocated, and lists are counted while they
//! grow, so a wrong file is an error and does not exhaust the memory.

use std::io;
use std::path::Path;

use bytes::Bytes;

use crate::store;
use crate::store::links::check_no_link;
use infeed_core::error::Error;
use infeed_raw::file;
use infeed_raw::machine::{address_space_left_bytes, available_memory_bytes};

/// Annotations may take one part in `SHARE` of the available memory: the records need the rest.
const SHARE: u64 = 4;

/// Bytes that the label file of one image may have. The limit does not depend on the machine, so that
/// each one has the same bad records.
const LABEL_FILE_BYTES: u64 = file::MAX_TEXT_BYTES;

/// Memory for the annotations of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnnotationRoom {
    most_bytes: u64,
}

/// A label file that is too long, so that its record is bad.
#[derive(Debug, thiserror::Error)]
#[error(
    "the label file {path} has {length} bytes, and that of one image may have {LABEL_FILE_BYTES}; \
     correct it, or leave out the image"
)]
pub(super) struct LongLabelFile {
    path: String,
    length: u64,
}

/// Content of the label file of an image.
pub(super) enum LabelFile {
    Text(Vec<u8>),
    Missing,
    Long(LongLabelFile),
}

impl AnnotationRoom {
    /// Takes a part of the memory that is available now.
    pub(super) fn new() -> AnnotationRoom {
        let available = available_memory_bytes().min(address_space_left_bytes());
        AnnotationRoom {
            most_bytes: available / SHARE,
        }
    }

    #[cfg(test)]
    pub(super) fn of(most_bytes: u64) -> AnnotationRoom {
        AnnotationRoom { most_bytes }
    }

    /// Checks the bytes that annotations take. The problem has no subject: `needs …`.
    pub(super) fn check(&self, bytes: u64) -> Result<(), String> {
        match bytes <= self.most_bytes {
            true => Ok(()),
            false => Err(format!(
                "needs more than {} bytes of memory for its annotations, a quarter of the available \
                 memory; split the dataset, or free memory",
                self.most_bytes
            )),
        }
    }

    /// Checks a file of this length, whose values take `factor` times its bytes.
    fn check_length(&self, length: u64, factor: u64) -> io::Result<()> {
        let problem = match self.check(length.saturating_mul(factor)) {
            Ok(()) => return Ok(()),
            Err(problem) => format!("it has {length} bytes, and {problem}"),
        };
        Err(io::Error::new(io::ErrorKind::FileTooLarge, problem))
    }

    /// Reads a file or object whose values take up to `factor` times its bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for what cannot be read, and for a file that is too large.
    pub(super) fn read(&self, path: &Path, factor: u64) -> Result<Bytes, Error> {
        let failed = |error| Error::open(path, error);
        if store::is_url(path) {
            let blob = store::open(&path.to_string_lossy())?;
            self.check_length(blob.len(), factor).map_err(failed)?;
            return blob.read(0..blob.len()).map_err(failed);
        }
        let (file, length) = file::open(path).map_err(failed)?;
        self.check_length(length, factor).map_err(failed)?;
        let bytes = file::read_up_to(file, length, self.most_bytes);
        bytes.map(Bytes::from).map_err(failed)
    }

    /// Maps a file, or reads an object. Its values are counted while they are parsed.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for what cannot be read, and for a file that does not fit into memory.
    pub(super) fn map(&self, path: &Path) -> Result<Bytes, Error> {
        if store::is_url(path) {
            return self.read(path, 1);
        }
        let failed = |error| Error::open(path, error);
        let (file, length) = file::open(path).map_err(failed)?;
        // Pages of a mapped file do not count as used, but reading it again and again is slow.
        self.check_length(length / SHARE, 1).map_err(|_| {
            let most = self.most_bytes.saturating_mul(SHARE);
            failed(file::too_large(length, most))
        })?;
        let map = infeed_raw::map::FileMap::of(&file).map_err(failed)?;
        Ok(Bytes::from_owner(map))
    }

    /// Reads the label file of an image below a folder, whose values take up to `factor` times its bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for a file that cannot be read, or whose values do not fit into memory.
    pub(super) fn label_file(
        &self,
        (root, path): (&Path, &Path),
        factor: u64,
        follow_links: bool,
    ) -> Result<LabelFile, Error> {
        let failed = |error| Error::open(path, error);
        if !follow_links {
            check_no_link(root, path).map_err(failed)?;
        }
        let (file, length) = match file::open(path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LabelFile::Missing),
            Err(error) => return Err(failed(error)),
        };
        if length > LABEL_FILE_BYTES {
            let path = path.display().to_string();
            return Ok(LabelFile::Long(LongLabelFile { path, length }));
        }
        self.check_length(length, factor).map_err(failed)?;
        let bytes = file::read_up_to(file, length, LABEL_FILE_BYTES);
        bytes.map(LabelFile::Text).map_err(failed)
    }
}

/// Makes room for more values of a list.
///
/// # Errors
///
/// The problem, if the system has no memory.
pub(super) fn reserve<T>(list: &mut Vec<T>, more: usize) -> Result<(), String> {
    list.try_reserve(more)
        .map_err(|_| "is too large for the memory; split the dataset, or free memory".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_needs_more_than_the_room_is_an_error_with_its_length() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("list.csv");
        fs::write(&path, "0123456789").expect("writes");

        assert_eq!(
            AnnotationRoom::of(80).read(&path, 8).expect("fits"),
            &b"0123456789"[..]
        );
        let error = AnnotationRoom::of(79)
            .read(&path, 8)
            .expect_err("too large")
            .chain();

        for part in [
            "list.csv",
            "it has 10 bytes",
            "more than 79 bytes",
            "split the dataset",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_length_of_200_gigabytes_is_an_error_before_a_byte_is_read() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("a.txt");
        let file = fs::File::create(&path).expect("creates");
        file.set_len(200_000_000_000).expect("a sparse file");
        let room = AnnotationRoom::of(1 << 30);

        let read = room.read(&path, 1).expect_err("too large").chain();
        let mapped = room.map(&path).expect_err("too large").chain();
        let label = room.label_file((root.path(), &path), 1, true);

        assert!(
            read.contains("a.txt") && read.contains("200000000000"),
            "{read}"
        );
        assert!(
            mapped.contains("a.txt") && mapped.contains("200000000000"),
            "{mapped}"
        );
        let LabelFile::Long(reason) = label.expect("a bad record") else {
            panic!("the label file is read");
        };
        assert!(reason.to_string().contains("a.txt has 200000000000 bytes"));
    }

    #[test]
    fn the_label_file_of_an_image_is_no_link_if_links_are_not_followed() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("a.txt");
        let room = AnnotationRoom::of(1 << 20);
        let read = |follow| room.label_file((root.path(), &path), 1, follow);
        assert!(matches!(read(false), Ok(LabelFile::Missing)));
        fs::write(root.path().join("other"), "1").expect("writes");
        #[cfg(unix)]
        std::os::unix::fs::symlink("other", &path).expect("links");
        #[cfg(not(unix))]
        return;

        assert!(matches!(read(true), Ok(LabelFile::Text(text)) if text == b"1"));
        let error = read(false).err().expect("a link").chain();

        assert!(error.contains("a.txt is a symbolic link"), "{error}");
    }
}
