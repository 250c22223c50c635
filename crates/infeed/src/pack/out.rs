//! The folder that is written to: whose it is, whole files only, and the mark that it is complete.
//!
//! A folder of this machine is locked. One of a bucket cannot be: two that pack into it do the same
//! work twice, and put the same bytes.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::PackOptions;
use super::chosen::Chosen;
use super::count::Totals;
use super::entry::{BAD_LIST, Entry, JOURNAL, bad_line};
use super::noted::{self, Noted};
use super::place::{Files, Place};
use crate::error::Error;
use crate::pipeline::packed::{BEGUN, MANIFEST, PIPELINE};
use crate::pipeline::{Pipeline, SourceSpec};
use crate::store;
use crate::transform::Transform;

/// Version of the manifest.
const VERSION: u32 = 1;

/// Longest manifest that is read of a bucket, in bytes: one of a million shards.
const MOST_BYTES: u64 = 1 << 30;

/// The folder, ours alone while this lives.
pub(super) struct Out {
    place: Place,
    description: Description,
    /// Whether an earlier run finished it.
    pub(super) was_complete: bool,
    /// The shards that its manifest names.
    shards: Vec<Entry>,
    /// Whether it was made here, or in a bucket, was begun here.
    is_new: bool,
    /// The folder itself, or its mark where folders cannot be locked; locked until this is closed.
    _lock: Option<File>,
}

/// What a packed dataset was made of and how: the same description, the same files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Description {
    to: String,
    source: serde_json::Value,
    /// Records of the source.
    of: u64,
    /// Numbers of those chosen; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chosen: Option<Vec<u64>>,
    orient: bool,
    modes: serde_json::Value,
    transforms: Vec<Transform>,
    image: String,
    mask: String,
    /// Width of the tiles of JPEGs, in MCUs; absent without restart markers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restart: Option<u16>,
    /// Seed of the order; absent for the source's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shuffle: Option<u64>,
    /// Bytes of a shard, for targets that have such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shard_bytes: Option<u64>,
    /// Records of a file, for targets that have so many in each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rows: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    verify: bool,
    /// A checksum of some records, where the source lies in memory and its name says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    values: Option<String>,
}

/// What [`MANIFEST`] holds.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    infeed: String,
    #[serde(flatten)]
    description: Description,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes_in: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes_out: Option<u64>,
    /// Records that were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bad: Option<u64>,
    /// Class names by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shards: Vec<Entry>,
}

/// What the manifest of a complete dataset tells.
pub(super) struct Done<'a> {
    pub(super) totals: &'a Totals,
    pub(super) classes: Option<&'a [String]>,
    pub(super) shards: &'a [Entry],
}

impl Out {
    /// Makes the folder, or takes up one that was begun with the same options.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a folder that is not ours, was made with other options, or is being
    /// written to by another process; [`Error::Write`].
    pub(super) fn begin(
        path: &Path,
        pipeline: &Pipeline,
        chosen: &Chosen,
        options: &PackOptions,
        values: Option<String>,
    ) -> Result<Out, Error> {
        let description = describe(pipeline, chosen, options, values);
        let place = Place::of(path)?;
        if let Place::Bucket(_) = place {
            return Out::begin_in_bucket(place, description);
        }
        let is_new = !path.exists();
        // Before anything is looked at: what another process is about to finish is not taken up.
        let lock = lock(path)?;
        let (manifest, begun) = (path.join(MANIFEST), path.join(BEGUN));
        let was_complete = manifest.exists();
        let mut shards = Vec::new();
        if was_complete {
            shards = is_same_at(path, &manifest, &description)?;
        } else if begun.exists() {
            is_same_at(path, &begun, &description)?;
        } else if !is_empty(path).map_err(|error| Error::write(path, error))? {
            return Err(not_ours(path));
        }
        if !begun.exists() {
            let manifest = Manifest::new(&description, None);
            write_whole(&begun, "", &manifest.text(), true)?;
        }
        let lock = match lock {
            Some(lock) => Some(lock),
            None => locked(
                File::open(&begun).map_err(|error| Error::write(&begun, error))?,
                path,
            )?,
        };
        Ok(Out {
            place,
            description,
            was_complete,
            shards,
            is_new,
            _lock: lock,
        })
    }

    fn begin_in_bucket(place: Place, description: Description) -> Result<Out, Error> {
        let files = place.files()?;
        let mut shards = Vec::new();
        let mut was_complete = false;
        if files.length(MANIFEST).is_some() {
            // Taken away since, it is of nobody.
            let text = place.read(MANIFEST, MOST_BYTES)?.unwrap_or_default();
            shards = is_same(place.path(), &text, &description)?;
            was_complete = true;
        } else if files.length(BEGUN).is_none() && !files.is_empty() {
            return Err(not_ours(place.path()));
        }
        let is_new = files.length(BEGUN).is_none();
        if is_new {
            let text = Manifest::new(&description, None).text();
            place.begin_mark(BEGUN, &text.into())?;
        }
        // Of two that begin at the same time with different options one reads the other's.
        let text = place.read(BEGUN, MOST_BYTES)?.unwrap_or_default();
        is_same(place.path(), &text, &description)?;
        let mut out = Out {
            place,
            description,
            was_complete,
            shards,
            is_new,
            _lock: None,
        };
        out.note_what_is_left(&files)?;
        Ok(out)
    }

    /// Where shards of a complete dataset in a bucket are gone, notes those that are there, and takes
    /// away the mark: from then on they are known from their notes.
    fn note_what_is_left(&mut self, files: &Files) -> Result<(), Error> {
        let list = files.length(BAD_LIST).unwrap_or(0);
        let is_there = |entry: &Entry| {
            files.length(&entry.file) == Some(entry.bytes) && entry.listed_bytes <= list
        };
        if self.shards.iter().all(is_there) {
            return Ok(());
        }
        let list = self.place.read(BAD_LIST, u64::MAX)?.unwrap_or_default();
        let mut from = 0;
        for (number, mut entry) in std::mem::take(&mut self.shards).into_iter().enumerate() {
            let lines = from..entry.listed_bytes as usize;
            from = lines.end;
            let Some(bad) = list.get(lines).filter(|_| is_there(&entry)) else {
                continue;
            };
            let bad = String::from_utf8_lossy(bad).into_owned();
            entry.listed_bytes = 0;
            noted::write(&self.place, number, "", &Noted { entry, bad })?;
        }
        self.was_complete = false;
        self.forget()
    }

    /// Looks at the folder from another process than the one that has begun it, without a lock.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a folder that was not begun, or with other options.
    pub(super) fn join(
        path: &Path,
        pipeline: &Pipeline,
        chosen: &Chosen,
        options: &PackOptions,
        values: Option<String>,
    ) -> Result<Out, Error> {
        let description = describe(pipeline, chosen, options, values);
        let place = Place::of(path)?;
        let Some(text) = place.read(BEGUN, MOST_BYTES)? else {
            let problem = format!(
                "nobody packs into {} just now, or this machine does not see it; name a folder \
                 that all machines share",
                path.display()
            );
            return Err(Error::config("out", problem));
        };
        is_same(path, &text, &description)?;
        Ok(Out {
            place,
            description,
            was_complete: false,
            shards: Vec::new(),
            is_new: false,
            _lock: None,
        })
    }

    /// Leaves a folder in which nothing was written as it was before, so that it is in nobody's
    /// way who changes the options.
    pub(super) fn abandon(&self) {
        let path = match &self.place {
            Place::Folder(path) => path,
            place => {
                let is_bare = |files: Files| self.is_new && files.is_only(BEGUN);
                if place.files().is_ok_and(is_bare) {
                    // Where this fails, the folder says whose it is.
                    let _ = place.remove(&[BEGUN.to_owned()]);
                }
                return;
            }
        };
        let journal = path.join(JOURNAL);
        let is_empty = fs::metadata(&journal).is_ok_and(|of| of.len() == 0);
        let is_mark = |entry: io::Result<fs::DirEntry>| {
            let name = entry.map(|entry| entry.file_name());
            name.is_ok_and(|name| name == BEGUN || (name == JOURNAL && is_empty))
        };
        if fs::read_dir(path).is_ok_and(|mut entries| entries.all(is_mark)) {
            let _ = fs::remove_file(journal);
            // Where this fails, the folder says whose it is.
            let _ = fs::remove_file(path.join(BEGUN));
            if self.is_new {
                let _ = fs::remove_dir(path);
            }
        }
    }

    /// The folder, of this machine or of a bucket.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Its path or URL.
    pub(super) fn path(&self) -> &Path {
        self.place.path()
    }

    /// Writes a file that appears whole or not at all. `tag` tells apart writers of one file.
    pub(super) fn write(&self, path: &Path, tag: &str, bytes: &[u8]) -> Result<(), Error> {
        write_whole(path, tag, bytes, false)
    }

    /// As [`Out::write`]; after a power cut, too, the file is the old one or this one.
    pub(super) fn write_durable(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        write_whole(path, "", bytes, true)
    }

    /// The shards of a dataset that an earlier run finished.
    pub(super) fn shards(&self) -> &[Entry] {
        &self.shards
    }

    /// Takes away the mark that the dataset is complete.
    pub(super) fn forget(&self) -> Result<(), Error> {
        self.place.remove(&[MANIFEST.to_owned()])
    }

    /// Writes the list of records that were left out, or removes one of an earlier run.
    pub(super) fn list_bad<'a>(&self, bad: impl Iterator<Item = &'a Error>) -> Result<(), Error> {
        let lines: String = bad.map(bad_line).collect();
        let path = self.path().join(BAD_LIST);
        if !lines.is_empty() {
            return write_whole(&path, "", lines.as_bytes(), true);
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::write(path, error)),
            _ => Ok(()),
        }
    }

    /// Writes the pipeline over the dataset, and marks the dataset as complete.
    pub(super) fn finish(&self, pipeline: &Pipeline, done: &Done<'_>) -> Result<(), Error> {
        // A function that no file can hold is the caller's to add again.
        let named = pipeline.without_held_functions();
        let text = named.within_folder(self.path()).to_toml()?;
        if let Place::Bucket(_) = &self.place {
            self.check_mark()?;
        }
        self.place.write(PIPELINE, "", &text.into())?;
        let manifest = Manifest::new(&self.description, Some(done));
        self.place.write(MANIFEST, "", &manifest.text().into())?;
        self.place.sync();
        match &self.place {
            // It says nothing that the manifest does not.
            Place::Folder(path) => drop(fs::remove_file(path.join(JOURNAL))),
            Place::Bucket(_) => self.remove_others(done.shards)?,
        }
        self.place.remove(&[BEGUN.to_owned()])
    }

    /// Refuses to finish in a bucket what is another dataset's by now.
    fn check_mark(&self) -> Result<(), Error> {
        let mut mark = self.place.read(BEGUN, MOST_BYTES)?;
        if mark.is_none() {
            // Somebody else may have finished the same.
            mark = self.place.read(MANIFEST, MOST_BYTES)?;
        }
        let Some(mark) = mark else {
            let problem = format!(
                "{} was removed while it was packed into; pack anew",
                self.path().display()
            );
            return Err(Error::config("out", problem));
        };
        is_same(self.path(), &mark, &self.description).map(drop)
    }

    /// Removes notes, and shards that are none of the dataset, from a bucket.
    fn remove_others(&self, shards: &[Entry]) -> Result<(), Error> {
        let files = self.place.files()?;
        let known: HashSet<&str> = shards.iter().map(|entry| stem(&entry.file)).collect();
        let is_other = |name: &&str| {
            let digits = stem(name).strip_prefix("shard-").unwrap_or_default();
            let is_shard = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_shard && !known.contains(stem(name))
        };
        let others = files.names().filter(is_other).map(str::to_owned);
        let mut names: Vec<String> = others.chain(noted::names(&files)).collect();
        names.sort_unstable();
        names.dedup();
        self.place.remove(&names)
    }
}

/// A name up to its first dot.
fn stem(name: &str) -> &str {
    name.split_once('.').map_or(name, |(stem, _)| stem)
}

fn not_ours(path: &Path) -> Error {
    let problem = format!(
        "{} is not empty and `infeed pack` did not make it; name a new folder",
        path.display()
    );
    Error::config("out", problem)
}

impl Manifest {
    fn new(description: &Description, done: Option<&Done<'_>>) -> Manifest {
        let totals = done.map(|done| done.totals);
        Manifest {
            version: VERSION,
            infeed: env!("CARGO_PKG_VERSION").to_owned(),
            description: description.clone(),
            records: totals.map(|totals| totals.done - totals.bad),
            bytes_in: totals.map(|totals| totals.bytes_in),
            bytes_out: totals.map(|totals| totals.bytes_out),
            bad: totals.map(|totals| totals.bad),
            classes: done.and_then(|done| Some(done.classes?.to_vec())),
            shards: done.map_or(Vec::new(), |done| done.shards.to_vec()),
        }
    }

    fn text(&self) -> Vec<u8> {
        let mut text =
            serde_json::to_vec_pretty(self).expect("a manifest holds plain data with string keys");
        text.push(b'\n');
        text
    }
}

fn describe(
    pipeline: &Pipeline,
    chosen: &Chosen,
    options: &PackOptions,
    values: Option<String>,
) -> Description {
    let decode = pipeline.decode.clone().unwrap_or_default();
    let json = |value| serde_json::to_value(value).unwrap_or_default();
    let mut source = pipeline.source.clone();
    // However the source was named, it is the same if it lies at the same place.
    source.map_paths(absolute);
    Description {
        to: options.to.name().to_owned(),
        source: serde_json::to_value(&source).unwrap_or_default(),
        of: chosen.all(),
        chosen: chosen.some().map(<[u64]>::to_vec),
        orient: decode.orient,
        modes: json(&decode.modes),
        transforms: options.transforms.clone(),
        image: options.image.to_string(),
        mask: options.mask.to_string(),
        restart: options.restart,
        shuffle: options.shuffle,
        shard_bytes: options.to.is_shards().then_some(options.shard_bytes),
        rows: options.rows(pipeline),
        verify: options.verify,
        values,
    }
}

fn is_same_at(out: &Path, file: &Path, wanted: &Description) -> Result<Vec<Entry>, Error> {
    let text = fs::read(file).map_err(|error| Error::open(file, error))?;
    is_same(out, &text.into(), wanted)
}

/// Refuses a folder that was made differently; gives the shards that its manifest names.
fn is_same(out: &Path, text: &Bytes, wanted: &Description) -> Result<Vec<Entry>, Error> {
    let found: Option<Manifest> = serde_json::from_slice(text).ok();
    let differs = match &found {
        Some(found) if found.version == VERSION => found.description.difference(wanted),
        _ => Some("its manifest is of another version of infeed".to_owned()),
    };
    match differs {
        None => Ok(found.map_or(Vec::new(), |found| found.shards)),
        Some(difference) => {
            let problem = format!(
                "{} was packed differently ({difference}); name a new folder, or remove that one",
                out.display()
            );
            Err(Error::config("out", problem))
        }
    }
}

impl Description {
    /// The first thing that differs, in words.
    fn difference(&self, wanted: &Description) -> Option<String> {
        let (Ok(found), Ok(wanted)) = (serde_json::to_value(self), serde_json::to_value(wanted))
        else {
            return Some("its manifest cannot be read".to_owned());
        };
        let keys = [
            "source",
            "of",
            "chosen",
            "to",
            "transforms",
            "image",
            "mask",
            "restart",
            "shuffle",
            "shard_bytes",
            "rows",
            "verify",
            "orient",
            "modes",
            "values",
        ];
        keys.iter().find_map(|key| {
            let (there, here) = (&found[key], &wanted[key]);
            if there == here {
                return None;
            }
            Some(match *key {
                "chosen" => "of other records".to_owned(),
                "values" => "of other values in memory".to_owned(),
                key => format!("{key}: {there} there, {here} asked for"),
            })
        })
    }
}

/// Makes a folder and locks it, so that one process at a time writes there. None where folders
/// cannot be locked.
fn lock(path: &Path) -> Result<Option<File>, Error> {
    loop {
        fs::create_dir_all(path).map_err(|error| Error::write(path, error))?;
        let Ok(folder) = File::open(path) else {
            return Ok(None);
        };
        match locked(folder, path)? {
            // Whoever had it may have left nothing, the folder neither.
            Some(folder) if !is_at(&folder, path) => {}
            other => return Ok(other),
        }
    }
}

/// What was locked; None on a file system without locks, which is no reason not to pack.
fn locked(file: File, path: &Path) -> Result<Option<File>, Error> {
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            let problem = format!(
                "another process is packing into {}; wait for it, or name another folder",
                path.display()
            );
            Err(Error::config("out", problem))
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Whether an open folder is the one that a path names.
#[cfg(unix)]
fn is_at(folder: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let same = |one: fs::Metadata, other: fs::Metadata| {
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    };
    let both = folder
        .metadata()
        .and_then(|one| Ok((one, fs::metadata(path)?)));
    both.is_ok_and(|(one, other)| same(one, other))
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// Whether a folder holds nothing, but for the mark of a run that was killed as it wrote it.
fn is_empty(path: &Path) -> io::Result<bool> {
    let mark = part_of(Path::new(BEGUN), "");
    for entry in fs::read_dir(path)? {
        if entry?.file_name() != *mark {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Where a file is until it is whole: with a dot, so that no listing takes it for a record.
fn part_of(path: &Path, tag: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{tag}part"))
}

/// Writes to a name of its own, then takes the final one; a `durable` file is on the disk before.
fn write_whole(path: &Path, tag: &str, bytes: &[u8], durable: bool) -> Result<(), Error> {
    let part = part_of(path, tag);
    let write = || -> io::Result<()> {
        let mut file = match File::create(&part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(folder) = path.parent() {
                    fs::create_dir_all(folder)?;
                }
                File::create(&part)?
            }
            file => file?,
        };
        file.write_all(bytes)?;
        if durable {
            file.sync_all()?;
        }
        drop(file);
        fs::rename(&part, path)
    };
    write().map_err(|error| {
        // What is left of it would only take room.
        let _ = fs::remove_file(&part);
        Error::write(path, error)
    })
}

/// Refuses to write into, over, or around the original.
pub(super) fn refuse_overlap(source: &SourceSpec, out: &Path) -> Result<(), Error> {
    let mut originals = Vec::new();
    source.clone().map_paths(|path| {
        originals.push(path.to_owned());
        path.to_owned()
    });
    let place = absolute(out);
    for path in originals {
        let original = absolute(&path);
        let how = if original == place {
            "is"
        } else if place.starts_with(&original) {
            "lies in"
        } else if original.starts_with(&place) {
            "holds"
        } else {
            continue;
        };
        let problem = format!(
            "{} {how} the original {}; name a folder beside it",
            out.display(),
            path.display()
        );
        return Err(Error::config("out", problem));
    }
    Ok(())
}

/// A path from the root without links, also of what does not exist yet.
pub(super) fn absolute(path: &Path) -> PathBuf {
    if store::is_url(path) {
        return path.to_owned();
    }
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for known in whole.ancestors() {
        if let Ok(real) = fs::canonicalize(known) {
            let rest = whole.strip_prefix(known).unwrap_or(Path::new(""));
            // Without a link behind it, `..` can be taken away by name.
            let mut path = real;
            for part in rest.components() {
                match part {
                    std::path::Component::ParentDir => {
                        path.pop();
                    }
                    part => path.push(part),
                }
            }
            return path;
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stays_locked_when_another_mark_takes_the_place_of_the_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let out = folder.path().join("out");
        let pipeline = Pipeline::new(SourceSpec::folder("photos"));
        let chosen = Chosen::new(None, 10).expect("all");
        let options = PackOptions::new(super::super::Target::Folder);
        let begin = || Out::begin(&out, &pipeline, &chosen, &options, None);
        let first = begin().expect("is free");
        // As a process does that found none a moment before.
        let mark = fs::read(out.join(BEGUN)).expect("a mark");
        first.write(&out.join(BEGUN), "", &mark).expect("writes");

        let second = begin();

        let problem = second.err().expect("one at a time").to_string();
        assert!(problem.contains("another process is packing"), "{problem}");
        drop(first);
        assert!(begin().is_ok());
    }
}
