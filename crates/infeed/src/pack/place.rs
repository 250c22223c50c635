//! Where a dataset of shards is written: a folder of this machine, or one of a bucket.
//!
//! A file has its name once it is whole. In a folder it is written beside it and renamed. For a
//! bucket it is written to a temporary file of this machine that has no name, so that nothing stays
//! of it whatever happens, and then put, unless there is one already: whoever else has put it must
//! have put the same bytes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::entry::{part_of, sync_folder, write_named};
use crate::error::Error;
use crate::store::{self, Body, BucketFolder, Created};

/// Names that are read at a time.
const AT_ONCE: usize = 256;

/// A folder, wherever it lies.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Folder(PathBuf),
    Bucket(BucketFolder),
}

/// What lies right in a place.
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

    /// Whether a file is all there is.
    pub(super) fn is_only(&self, name: &str) -> bool {
        !self.has_folders && self.names().eq([name])
    }
}

impl Place {
    /// The place of a path or URL.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a URL of no bucket; [`Error::Open`] for settings that are none.
    pub(super) fn of(out: &Path) -> Result<Place, Error> {
        Ok(match store::is_url(out) {
            true => Place::Bucket(BucketFolder::of(out)?),
            false => Place::Folder(out.to_owned()),
        })
    }

    /// Its path or URL.
    pub(super) fn path(&self) -> &Path {
        match self {
            Place::Folder(path) => path,
            Place::Bucket(folder) => folder.url(),
        }
    }

    /// What lies right in it, with lengths; of a folder that cannot be read nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Open`], of a bucket.
    pub(super) fn files(&self) -> Result<Files, Error> {
        match self {
            Place::Folder(path) => {
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
            Place::Bucket(folder) => {
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

    /// Whether a file is there now.
    ///
    /// # Errors
    ///
    /// [`Error::Open`], of a bucket.
    pub(super) fn has(&self, name: &str) -> Result<bool, Error> {
        match self {
            Place::Folder(path) => Ok(path.join(name).exists()),
            Place::Bucket(folder) => folder
                .has(name)
                .map_err(|error| Error::open(self.path().join(name), error)),
        }
    }

    /// The bytes of a file; None where there is none, or one longer than `most`.
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

    /// Hands over the bytes of files, in their order; None as of [`Place::read`].
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
            Place::Folder(path) => {
                for name in names {
                    let path = path.join(name);
                    let read = || -> io::Result<Option<Bytes>> {
                        if fs::metadata(&path)?.len() > most {
                            return Ok(None);
                        }
                        fs::read(&path).map(|bytes| Some(bytes.into()))
                    };
                    match read() {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => take(name, None),
                        read => take(name, read.map_err(|error| Error::open(&path, error))?),
                    }
                }
            }
            Place::Bucket(folder) => {
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

    /// Writes a file, over one of its name. `tag` tells apart writers of one file.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn write(&self, name: &str, tag: &str, bytes: &Bytes) -> Result<(), Error> {
        match self {
            Place::Folder(path) => write_named(path, name, tag, bytes),
            Place::Bucket(folder) => folder
                .replace(name, Body::Bytes(bytes))
                .map_err(|error| self.not_written(name, error)),
        }
    }

    /// Writes a file whose bytes are the same whoever writes it.
    ///
    /// # Errors
    ///
    /// [`Error::Write`], also if a bucket has one with other bytes.
    pub(super) fn write_new(&self, name: &str, tag: &str, bytes: &Bytes) -> Result<(), Error> {
        match self {
            Place::Folder(_) => self.write(name, tag, bytes),
            Place::Bucket(_) => self.put_new(name, Body::Bytes(bytes)),
        }
    }

    /// Writes a file unless there is one, whatever that holds.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn begin_mark(&self, name: &str, bytes: &Bytes) -> Result<(), Error> {
        match self {
            Place::Folder(_) => self.write(name, "", bytes),
            Place::Bucket(folder) => match folder.create(name, Body::Bytes(bytes)) {
                Ok(_) => Ok(()),
                Err(error) => Err(self.not_written(name, error)),
            },
        }
    }

    /// Gives a bucket the bytes of a file, over one of this name, or takes that away where there are
    /// none. A folder has what it has.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn write_file(&self, name: &str, file: &File) -> Result<(), Error> {
        let Place::Bucket(folder) = self else {
            return Ok(());
        };
        let write = || match file.metadata()?.len() {
            0 => folder.remove(&[name.to_owned()]),
            length => folder.replace(name, Body::File(file, length)),
        };
        write().map_err(|error| self.not_written(name, error))
    }

    /// Begins a file that has not its name yet.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub(super) fn begin(&self, name: &str, tag: &str) -> io::Result<File> {
        match self {
            Place::Folder(path) => File::create(part_of(path, name, tag)),
            Place::Bucket(_) => tempfile::tempfile(),
        }
    }

    /// What to say where a file of [`Place::begin`] cannot be written.
    pub(super) fn not_made(&self, name: &str, error: io::Error) -> Error {
        let error = match self {
            Place::Folder(_) => error,
            Place::Bucket(_) => {
                let temporary = std::env::temp_dir();
                let problem = format!(
                    "a temporary file in {}: {error}; TMPDIR names another folder, with room for a \
                     few shards",
                    temporary.display()
                );
                io::Error::new(error.kind(), problem)
            }
        };
        self.not_written(name, error)
    }

    /// Gives a file of [`Place::begin`] its name; gives its length.
    ///
    /// # Errors
    ///
    /// [`Error::Write`], as of [`Place::write_new`].
    pub(super) fn finish(&self, name: &str, tag: &str, file: &File) -> Result<u64, Error> {
        let not_written = |error| self.not_written(name, error);
        let length = file.metadata().map_err(not_written)?.len();
        match self {
            Place::Folder(path) => {
                file.sync_all().map_err(not_written)?;
                fs::rename(part_of(path, name, tag), path.join(name)).map_err(not_written)?;
            }
            Place::Bucket(_) => self.put_new(name, Body::File(file, length))?,
        }
        Ok(length)
    }

    /// Removes what is left of files that did not get their names.
    pub(super) fn give_up(&self, names: &[String], tag: &str) {
        if let Place::Folder(path) = self {
            for name in names {
                // What is left would only take room.
                let _ = fs::remove_file(part_of(path, name, tag));
            }
        }
    }

    /// Removes files; those that are not there are none.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn remove(&self, names: &[String]) -> Result<(), Error> {
        match self {
            Place::Folder(path) => names.iter().try_for_each(|name| {
                let path = path.join(name);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        Err(Error::write(path, error))
                    }
                    _ => Ok(()),
                }
            }),
            Place::Bucket(folder) => folder
                .remove(names)
                .map_err(|error| Error::write(folder.url(), error)),
        }
    }

    /// Makes names durable, where that is asked for by itself.
    pub(super) fn sync(&self) {
        if let Place::Folder(path) = self {
            sync_folder(path);
        }
    }

    fn put_new(&self, name: &str, body: Body<'_>) -> Result<(), Error> {
        let Place::Bucket(folder) = self else {
            return Ok(());
        };
        match folder.create(name, body) {
            Ok(Created::New | Created::Same) => Ok(()),
            Ok(Created::Other) => {
                let problem = "it is there with other bytes: of another version of infeed, or of a \
                               source that has changed since; remove what lies there and pack anew";
                Err(self.not_written(name, io::Error::other(problem)))
            }
            Err(error) => Err(self.not_written(name, error)),
        }
    }

    fn not_written(&self, name: &str, error: io::Error) -> Error {
        Error::write(self.path().join(name), error)
    }
}
