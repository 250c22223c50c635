//! The location of a dataset of shards: a local folder, or a folder in a bucket.
//!
//! A file gets its name when it is complete. In a folder, it is written next to the final name and
//! renamed. For a bucket, it is written to an unnamed temporary file, which never remains, and then
//! put unless the object exists. An existing object must have the same bytes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::part_file::{self, part_of, sync_folder};
use infeed_core::error::Error;
use infeed_raw::file;
use infeed_source::store::{self, BucketFolder, CreateOutcome, ObjectBody};

/// Number of files to read at a time.
const AT_ONCE: usize = 256;

/// A folder, local or in a bucket.
#[derive(Clone, Debug)]
pub(super) enum OutputLocation {
    Folder(PathBuf),
    Bucket(BucketFolder),
}

/// Files directly in a folder.
#[derive(Debug, Default)]
pub(super) struct Files {
    lengths: BTreeMap<String, u64>,
    has_folders: bool,
}

impl Files {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.lengths.keys().map(String::as_str)
    }

    pub(super) fn length(&self, name: &str) -> Option<u64> {
        self.lengths.get(name).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lengths.is_empty() && !self.has_folders
    }

    /// Returns whether a file is the only content.
    pub(super) fn is_only(&self, name: &str) -> bool {
        !self.has_folders && self.names().eq([name])
    }
}

impl OutputLocation {
    /// Returns the location for a path or URL.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a URL that is no bucket, and [`Error::Open`] for invalid settings.
    pub(super) fn of(out: &Path) -> Result<OutputLocation, Error> {
        Ok(match store::is_url(out) {
            true => OutputLocation::Bucket(BucketFolder::of(out)?),
            false => OutputLocation::Folder(out.to_owned()),
        })
    }

    /// Returns its path or URL.
    pub(super) fn path(&self) -> &Path {
        match self {
            OutputLocation::Folder(path) => path,
            OutputLocation::Bucket(folder) => folder.url(),
        }
    }

    /// Returns the files directly in it, with lengths. Empty if a local folder cannot be read.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for a bucket.
    pub(super) fn files(&self) -> Result<Files, Error> {
        match self {
            OutputLocation::Folder(path) => {
                let mut files = Files::default();
                for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                    let Ok(data) = fs::metadata(entry.path()) else {
                        continue;
                    };
                    files.has_folders |= data.is_dir();
                    let name = entry.file_name().to_string_lossy().into_owned();
                    if data.is_file() {
                        files.lengths.insert(name, data.len());
                    }
                }
                Ok(files)
            }
            OutputLocation::Bucket(folder) => {
                let entries = folder.entries();
                let (files, has_folders) =
                    entries.map_err(|error| Error::open(folder.url(), error))?;
                Ok(Files {
                    lengths: files.into_iter().collect(),
                    has_folders,
                })
            }
        }
    }

    /// Returns whether a file exists now.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for a bucket.
    pub(super) fn has(&self, name: &str) -> Result<bool, Error> {
        match self {
            OutputLocation::Folder(path) => Ok(path.join(name).exists()),
            OutputLocation::Bucket(folder) => folder
                .has(name)
                .map_err(|error| Error::open(self.path().join(name), error)),
        }
    }

    /// Returns the bytes of a file. None if it does not exist or is longer than `most`.
    ///
    /// # Errors
    ///
    /// [`Error::Open`].
    pub(super) fn read(&self, name: &str, most: u64) -> Result<Option<Bytes>, Error> {
        let names = [name.to_owned()];
        let mut found = None;
        self.read_each(&names, most, |_, bytes| found = bytes)?;
        Ok(found)
    }

    /// Passes the bytes of files to the sink, in their order. None as for [`OutputLocation::read`].
    ///
    /// # Errors
    ///
    /// [`Error::Open`].
    pub(super) fn read_each(
        &self,
        names: &[String],
        most: u64,
        mut take: impl FnMut(&str, Option<Bytes>),
    ) -> Result<(), Error> {
        match self {
            OutputLocation::Folder(path) => {
                for name in names {
                    let path = path.join(name);
                    use io::ErrorKind::{FileTooLarge, NotFound};
                    match file::read(&path, most) {
                        Ok(bytes) => take(name, Some(bytes.into())),
                        Err(error) if matches!(error.kind(), NotFound | FileTooLarge) => {
                            take(name, None);
                        }
                        Err(error) => return Err(Error::open(&path, error)),
                    }
                }
            }
            OutputLocation::Bucket(folder) => {
                for names in names.chunks(AT_ONCE) {
                    let read = folder.read(names, most);
                    let read = read.map_err(|error| Error::open(folder.url(), error))?;
                    for (name, bytes) in names.iter().zip(read) {
                        take(name, bytes);
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a file and replaces an existing one. `tag` distinguishes writers of one file.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn write(&self, name: &str, tag: &str, bytes: &Bytes) -> Result<(), Error> {
        match self {
            OutputLocation::Folder(path) => part_file::write(&path.join(name), tag, bytes, true),
            OutputLocation::Bucket(folder) => folder
                .replace(name, ObjectBody::Bytes(bytes))
                .map_err(|error| self.not_written(name, error)),
        }
    }

    /// Writes a file that has the same bytes from every writer.
    ///
    /// # Errors
    ///
    /// [`Error::Write`], also if a bucket has the file with other bytes.
    pub(super) fn write_new(&self, name: &str, tag: &str, bytes: &Bytes) -> Result<(), Error> {
        match self {
            OutputLocation::Folder(_) => self.write(name, tag, bytes),
            OutputLocation::Bucket(_) => self.put_new(name, ObjectBody::Bytes(bytes)),
        }
    }

    /// Writes a file unless it exists in the bucket, with any content.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn begin_mark(&self, name: &str, bytes: &Bytes) -> Result<(), Error> {
        match self {
            OutputLocation::Folder(_) => self.write(name, "", bytes),
            OutputLocation::Bucket(folder) => match folder.create(name, ObjectBody::Bytes(bytes)) {
                Ok(_) => Ok(()),
                Err(error) => Err(self.not_written(name, error)),
            },
        }
    }

    /// Puts a file into a bucket and replaces an existing one, or removes that one if the file is
    /// empty. Does nothing for a local folder.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn write_file(&self, name: &str, file: &File) -> Result<(), Error> {
        let OutputLocation::Bucket(folder) = self else {
            return Ok(());
        };
        let write = || match file.metadata()?.len() {
            0 => folder.remove(&[name.to_owned()]),
            length => folder.replace(name, ObjectBody::File(file, length)),
        };
        write().map_err(|error| self.not_written(name, error))
    }

    /// Creates a file without its final name.
    ///
    /// # Errors
    ///
    /// Returns the error of the disk.
    pub(super) fn begin(&self, name: &str, tag: &str) -> io::Result<File> {
        match self {
            OutputLocation::Folder(path) => file::create(part_of(&path.join(name), tag)),
            OutputLocation::Bucket(_) => tempfile::tempfile(),
        }
    }

    /// Returns the error for a file of [`OutputLocation::begin`] that cannot be written.
    pub(super) fn not_made(&self, name: &str, error: io::Error) -> Error {
        let error = match self {
            OutputLocation::Folder(_) => error,
            OutputLocation::Bucket(_) => {
                let temporary = std::env::temp_dir();
                let problem = format!(
                    "cannot create a temporary file in {}: {error}; set TMPDIR to another folder, \
                     with room for a few shards",
                    temporary.display()
                );
                io::Error::new(error.kind(), problem)
            }
        };
        self.not_written(name, error)
    }

    /// Gives a file of [`OutputLocation::begin`] its name. Returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::Write`], as for [`OutputLocation::write_new`].
    pub(super) fn finish(&self, name: &str, tag: &str, file: &File) -> Result<u64, Error> {
        let not_written = |error| self.not_written(name, error);
        let length = file.metadata().map_err(not_written)?.len();
        match self {
            OutputLocation::Folder(path) => {
                file.sync_all().map_err(not_written)?;
                let path = path.join(name);
                fs::rename(part_of(&path, tag), path).map_err(not_written)?;
            }
            OutputLocation::Bucket(_) => self.put_new(name, ObjectBody::File(file, length))?,
        }
        Ok(length)
    }

    /// Removes partial files that did not get their names.
    pub(super) fn give_up(&self, names: &[String], tag: &str) {
        if let OutputLocation::Folder(path) = self {
            for name in names {
                // A partial file would only take space.
                let _ = fs::remove_file(part_of(&path.join(name), tag));
            }
        }
    }

    /// Removes files. Ignores files that do not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn remove(&self, names: &[String]) -> Result<(), Error> {
        match self {
            OutputLocation::Folder(path) => names.iter().try_for_each(|name| {
                let path = path.join(name);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        Err(Error::write(path, error))
                    }
                    _ => Ok(()),
                }
            }),
            OutputLocation::Bucket(folder) => folder
                .remove(names)
                .map_err(|error| Error::write(folder.url(), error)),
        }
    }

    /// Makes names durable, if the location needs a separate call for it.
    pub(super) fn sync(&self) {
        if let OutputLocation::Folder(path) = self {
            sync_folder(path);
        }
    }

    fn put_new(&self, name: &str, body: ObjectBody<'_>) -> Result<(), Error> {
        let OutputLocation::Bucket(folder) = self else {
            return Ok(());
        };
        match folder.create(name, body) {
            Ok(CreateOutcome::New | CreateOutcome::Same) => Ok(()),
            Ok(CreateOutcome::Other) => {
                let problem = "it exists with other bytes, from another version of infeed or from \
                               a source that has changed since; remove it and pack again";
                Err(self.not_written(name, io::Error::other(problem)))
            }
            Err(error) => Err(self.not_written(name, error)),
        }
    }

    fn not_written(&self, name: &str, error: io::Error) -> Error {
        Error::write(self.path().join(name), error)
    }
}
