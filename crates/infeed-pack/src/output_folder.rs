//! The output folder: its owner, writes of files, and the mark that it is complete.
//!
//! A local folder is locked. A folder in a bucket has no lock: two packers do the same work twice
//! and put the same bytes.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use super::entry::{BAD_LIST, Entry, JOURNAL, bad_line, shard_number};
use super::location::{Files, OutputLocation};
use super::manifest::{Description, MAX_BYTES, ManifestContents};
use super::note::{self, ShardNote};
use super::options::PackOptions;
use super::part_file::{self, part_of};
use super::selection::RecordSelection;
use infeed::pipeline::Pipeline;
use infeed::pipeline::packed_dataset::{BEGUN, MANIFEST, PIPELINE};
use infeed_core::error::Error;
use infeed_raw::file;

/// The output folder. A local folder is locked while this value exists.
pub(super) struct OutputFolder {
    location: OutputLocation,
    description: Description,
    /// Whether an earlier run completed it.
    pub(super) was_complete: bool,
    /// The shards in its manifest.
    shards: Vec<Entry>,
    /// Whether this run created the folder, or in a bucket the mark.
    is_new: bool,
    /// The locked folder, or its mark if folders cannot be locked. The lock ends when this file
    /// closes.
    _lock: Option<File>,
}

impl OutputFolder {
    /// Creates the folder, or opens one that a run with the same options began.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the folder is from another tool, was made with other options, or is in
    /// use by another process. [`Error::Write`].
    pub(super) fn begin(
        path: &Path,
        pipeline: &Pipeline,
        chosen: &RecordSelection,
        options: &PackOptions,
        values: Option<String>,
    ) -> Result<OutputFolder, Error> {
        let description = Description::new(pipeline, chosen, options, values);
        let location = OutputLocation::of(path)?;
        if let OutputLocation::Bucket(_) = location {
            return OutputFolder::begin_in_bucket(location, description);
        }
        let is_new = !path.exists();
        // Locks before any check, so that files of a process that is about to finish are not taken
        // over.
        let lock = lock(path)?;
        let (manifest, begun) = (path.join(MANIFEST), path.join(BEGUN));
        let was_complete = manifest.exists();
        let mut shards = Vec::new();
        if was_complete {
            shards = shards_at(path, &manifest, &description)?;
        } else if begun.exists() {
            shards_at(path, &begun, &description)?;
        } else if !is_empty(path).map_err(|error| Error::write(path, error))? {
            return Err(not_ours(path));
        }
        if !begun.exists() {
            part_file::write(&begun, "", &description.manifest(None), true)?;
        }
        let lock = match lock {
            Some(lock) => Some(lock),
            None => lock_file(
                file::open(&begun)
                    .map_err(|error| Error::write(&begun, error))?
                    .0,
                path,
            )?,
        };
        Ok(OutputFolder {
            location,
            description,
            was_complete,
            shards,
            is_new,
            _lock: lock,
        })
    }

    fn begin_in_bucket(
        location: OutputLocation,
        description: Description,
    ) -> Result<OutputFolder, Error> {
        let files = location.files()?;
        let mut shards = Vec::new();
        let mut was_complete = false;
        if files.length(MANIFEST).is_some() {
            // If it was removed meanwhile, the empty text fails the check.
            let text = location.read(MANIFEST, MAX_BYTES)?.unwrap_or_default();
            shards = description.shards_in(location.path(), &text)?;
            was_complete = true;
        } else if files.length(BEGUN).is_none() && !files.is_empty() {
            return Err(not_ours(location.path()));
        }
        let is_new = files.length(BEGUN).is_none();
        if is_new {
            location.begin_mark(BEGUN, &description.manifest(None))?;
        }
        // Two runs with different options may begin at the same time. One then reads the other's
        // mark.
        let text = location.read(BEGUN, MAX_BYTES)?.unwrap_or_default();
        description.shards_in(location.path(), &text)?;
        let mut out = OutputFolder {
            location,
            description,
            was_complete,
            shards,
            is_new,
            _lock: None,
        };
        out.note_what_is_left(&files)?;
        Ok(out)
    }

    /// If shards of a complete dataset in a bucket are missing, writes notes for the others and
    /// removes the mark. From then on, the notes state which shards exist.
    fn note_what_is_left(&mut self, files: &Files) -> Result<(), Error> {
        let list = files.length(BAD_LIST).unwrap_or(0);
        let is_there = |entry: &Entry| {
            files.length(&entry.file) == Some(entry.bytes) && entry.listed_bytes <= list
        };
        if self.shards.iter().all(is_there) {
            return Ok(());
        }
        let list = self.location.read(BAD_LIST, u64::MAX)?.unwrap_or_default();
        let mut from = 0;
        for (number, mut entry) in std::mem::take(&mut self.shards).into_iter().enumerate() {
            let lines = from..entry.listed_bytes as usize;
            from = lines.end;
            let Some(bad) = list.get(lines).filter(|_| is_there(&entry)) else {
                continue;
            };
            let bad = String::from_utf8_lossy(bad).into_owned();
            entry.listed_bytes = 0;
            note::write(&self.location, number, "", &ShardNote { entry, bad })?;
        }
        self.was_complete = false;
        self.forget()
    }

    /// Opens the folder from another process than the one that began it, without a lock.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the folder was not begun, or with other options.
    pub(super) fn join(
        path: &Path,
        pipeline: &Pipeline,
        chosen: &RecordSelection,
        options: &PackOptions,
        values: Option<String>,
    ) -> Result<OutputFolder, Error> {
        let description = Description::new(pipeline, chosen, options, values);
        let location = OutputLocation::of(path)?;
        let Some(text) = location.read(BEGUN, MAX_BYTES)? else {
            let problem = format!(
                "no process is packing into {}, or this machine does not see the folder; use a \
                 folder that all machines share",
                path.display()
            );
            return Err(Error::config("out", problem));
        };
        description.shards_in(path, &text)?;
        Ok(OutputFolder {
            location,
            description,
            was_complete: false,
            shards: Vec::new(),
            is_new: false,
            _lock: None,
        })
    }

    /// Restores a folder without output to its earlier state, so that another run can use other
    /// options.
    pub(super) fn abandon(&self) {
        let path = match &self.location {
            OutputLocation::Folder(path) => path,
            location => {
                let is_bare = |files: Files| self.is_new && files.is_only(BEGUN);
                if location.files().is_ok_and(is_bare) {
                    // If this fails, the mark still names the folder's owner.
                    let _ = location.remove(&[BEGUN.to_owned()]);
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
            // If this fails, the mark still names the folder's owner.
            let _ = fs::remove_file(path.join(BEGUN));
            if self.is_new {
                let _ = fs::remove_dir(path);
            }
        }
    }

    /// Returns the folder, local or in a bucket.
    pub(super) fn location(&self) -> &OutputLocation {
        &self.location
    }

    /// Returns its path or URL.
    pub(super) fn path(&self) -> &Path {
        self.location.path()
    }

    /// Writes a file atomically. `tag` distinguishes writers of one file.
    pub(super) fn write(&self, path: &Path, tag: &str, bytes: &[u8]) -> Result<(), Error> {
        self.check_no_link_above(path)?;
        if let Some(folder) = path.parent()
            && !folder.exists()
        {
            fs::create_dir_all(folder).map_err(|error| Error::write(path, error))?;
        }
        part_file::write(path, tag, bytes, false)
    }

    /// Checks that no folder between the output folder and a file is a link: the file would be
    /// written, and maybe replaced, elsewhere.
    fn check_no_link_above(&self, path: &Path) -> Result<(), Error> {
        let is_above = |folder: &&Path| *folder != self.path();
        for folder in path.ancestors().skip(1).take_while(is_above) {
            if fs::symlink_metadata(folder).is_ok_and(|found| found.is_symlink()) {
                let problem =
                    "it is a symbolic link, and packing writes to folders only; remove it";
                let problem = io::Error::new(io::ErrorKind::InvalidInput, problem);
                return Err(Error::write(folder, problem));
            }
        }
        Ok(())
    }

    /// As [`OutputFolder::write`]. Even after a power failure, the file is either the old or the new
    /// one.
    pub(super) fn write_durable(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        part_file::write(path, "", bytes, true)
    }

    /// Returns the shards of a dataset that an earlier run completed.
    pub(super) fn shards(&self) -> &[Entry] {
        &self.shards
    }

    /// Removes the mark of a complete dataset.
    pub(super) fn forget(&self) -> Result<(), Error> {
        self.location.remove(&[MANIFEST.to_owned()])
    }

    /// Writes the list of bad records, or removes the list of an earlier run.
    pub(super) fn list_bad<'a>(&self, bad: impl Iterator<Item = &'a Error>) -> Result<(), Error> {
        let lines: String = bad.map(bad_line).collect();
        let path = self.path().join(BAD_LIST);
        if !lines.is_empty() {
            return part_file::write(&path, "", lines.as_bytes(), true);
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::write(path, error)),
            _ => Ok(()),
        }
    }

    /// Writes the pipeline over the dataset, and marks the dataset as complete.
    pub(super) fn finish(
        &self,
        pipeline: &Pipeline,
        done: &ManifestContents<'_>,
    ) -> Result<(), Error> {
        // The caller adds functions again that a file cannot hold.
        let named = pipeline.without_held_functions();
        let text = named.within_folder(self.path()).to_toml()?;
        if let OutputLocation::Bucket(_) = &self.location {
            self.check_mark()?;
        }
        self.location.write(PIPELINE, "", &text.into())?;
        let manifest = self.description.manifest(Some(done));
        self.location.write(MANIFEST, "", &manifest)?;
        self.location.sync();
        match &self.location {
            // The manifest has the content of the journal.
            OutputLocation::Folder(path) => drop(fs::remove_file(path.join(JOURNAL))),
            OutputLocation::Bucket(_) => self.remove_others(done.shards)?,
        }
        self.location.remove(&[BEGUN.to_owned()])
    }

    /// Rejects finishing in a bucket if another dataset has replaced this one.
    fn check_mark(&self) -> Result<(), Error> {
        let mut mark = self.location.read(BEGUN, MAX_BYTES)?;
        if mark.is_none() {
            // Another packer may have finished the same dataset.
            mark = self.location.read(MANIFEST, MAX_BYTES)?;
        }
        let Some(mark) = mark else {
            let problem = format!(
                "{} was removed during packing; pack again",
                self.path().display()
            );
            return Err(Error::config("out", problem));
        };
        let shards = self.description.shards_in(self.path(), &mark);
        shards.map(drop)
    }

    /// Removes notes and foreign shards from a bucket.
    fn remove_others(&self, shards: &[Entry]) -> Result<(), Error> {
        let files = self.location.files()?;
        let known: HashSet<&str> = shards.iter().map(|entry| split(&entry.file).0).collect();
        let extensions = shards.iter().map(|entry| split(&entry.file).1);
        let extensions: HashSet<&str> = extensions.chain(["idx"]).collect();
        let is_other = |name: &&str| {
            let (stem, extension) = split(name);
            let is_shard = shard_number(stem).is_some() && extensions.contains(extension);
            is_shard && !known.contains(stem)
        };
        let others = files.names().filter(is_other).map(str::to_owned);
        let mut names: Vec<String> = others.chain(note::names(&files)).collect();
        names.sort_unstable();
        names.dedup();
        self.location.remove(&names)
    }
}

/// Returns the name up to its first dot, and the extension after it.
fn split(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

fn not_ours(path: &Path) -> Error {
    let problem = format!(
        "{} is not empty and `infeed pack` did not make it; use a new folder",
        path.display()
    );
    Error::config("out", problem)
}

/// Returns the shards in a manifest on the disk, as [`Description::shards_in`].
fn shards_at(out: &Path, file: &Path, wanted: &Description) -> Result<Vec<Entry>, Error> {
    let manifest = file::read(file, u64::MAX).map_err(|error| Error::open(file, error))?;
    wanted.shards_in(out, &manifest)
}

/// Creates and locks a folder, so that one process at a time writes there. None if folders cannot
/// be locked.
fn lock(path: &Path) -> Result<Option<File>, Error> {
    loop {
        fs::create_dir_all(path).map_err(|error| Error::write(path, error))?;
        let Ok(folder) = File::open(path) else {
            return Ok(None);
        };
        match lock_file(folder, path)? {
            // The previous owner may have removed the folder.
            Some(folder) if !is_at(&folder, path) => {}
            other => return Ok(other),
        }
    }
}

/// Locks a file. None on a file system without locks, where packing continues unlocked.
fn lock_file(file: File, path: &Path) -> Result<Option<File>, Error> {
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            let problem = format!(
                "another process is packing into {}; wait for it, or use another folder",
                path.display()
            );
            Err(Error::config("out", problem))
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Returns whether an open folder is the one at a path.
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

/// Returns whether a folder is empty, except for the partial mark of a killed run.
fn is_empty(path: &Path) -> io::Result<bool> {
    let mark = part_of(Path::new(BEGUN), "");
    for entry in fs::read_dir(path)? {
        if entry?.file_name() != *mark {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::targets::Target;
    use infeed::pipeline::SourceSpec;

    #[test]
    fn a_folder_stays_locked_when_another_mark_takes_the_place_of_the_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let out = folder.path().join("out");
        let pipeline = Pipeline::new(SourceSpec::folder("photos"));
        let chosen = RecordSelection::new(None, 10).expect("all");
        let options = PackOptions::new(Target::Folder);
        let begin = || OutputFolder::begin(&out, &pipeline, &chosen, &options, None);
        let first = begin().expect("is free");
        // Another process that found no mark before writes one now.
        let mark = fs::read(out.join(BEGUN)).expect("a mark");
        first.write(&out.join(BEGUN), "", &mark).expect("writes");

        let second = begin();

        let problem = second.err().expect("one at a time").to_string();
        assert!(problem.contains("another process is packing"), "{problem}");
        drop(first);
        assert!(begin().is_ok());
    }
    #[cfg(unix)]
    #[test]
    fn links_in_the_output_folder_are_not_written_through() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().expect("a folder");
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").expect("writes");
        fs::create_dir(folder.path().join("elsewhere")).expect("a folder");
        let out = folder.path().join("out");
        fs::create_dir(&out).expect("a folder");
        let part = |name: &str| part_of(Path::new(name), "");
        // The only name that a new output folder may have.
        symlink(&precious, out.join(part(BEGUN))).expect("links");
        let pipeline = Pipeline::new(SourceSpec::folder("photos"));
        let chosen = RecordSelection::new(None, 10).expect("all");
        let options = PackOptions::new(Target::Folder);
        let begun = OutputFolder::begin(&out, &pipeline, &chosen, &options, None).expect("begins");
        for name in ["a.jpg", "a.tar"] {
            symlink(&precious, out.join(part(name))).expect("links");
            symlink(&precious, out.join(name)).expect("links");
            let shard = format!(".{name}.part");
            let _ = fs::remove_file(out.join(&shard));
            symlink(&precious, out.join(shard)).expect("links");
        }
        symlink(folder.path().join("elsewhere"), out.join("cat")).expect("links");

        begun.write(&out.join("a.jpg"), "", b"new").expect("writes");
        let mut shard = begun.location.begin("a.tar", "").expect("begins");
        shard.write_all(b"new").expect("writes");
        begun.location.finish("a.tar", "", &shard).expect("ends");
        let in_link = begun.write(&out.join("cat/b.jpg"), "", b"new");

        for name in ["a.jpg", "a.tar"] {
            let kind = fs::symlink_metadata(out.join(name)).expect("is there");
            assert!(kind.is_file(), "{name}");
            assert_eq!(fs::read(out.join(name)).expect("reads"), b"new");
        }
        let error = in_link.expect_err("a folder elsewhere").chain();
        assert!(
            error.contains("cat") && error.contains("symbolic link"),
            "{error}"
        );
        let left = fs::read_dir(folder.path().join("elsewhere")).expect("lists");
        assert_eq!(left.count(), 0);
        assert_eq!(fs::read(&precious).expect("reads"), b"precious");
    }
}
