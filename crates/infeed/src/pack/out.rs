//! The folder that is written to: whose it is, whole files only, and the mark that it is complete.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::run::{Chosen, Totals};
use super::{MANIFEST, PackOptions};
use crate::error::Error;
use crate::pipeline::{Pipeline, SourceSpec};
use crate::store;
use crate::transform::Transform;

/// Version of the manifest.
const VERSION: u32 = 1;

/// Marks a folder whose packing has begun, and is locked while it goes on.
const BEGUN: &str = "infeed-pack.begun";

/// The folder, ours alone while this lives.
pub(super) struct Out {
    path: PathBuf,
    description: Description,
    /// Whether an earlier run finished it.
    pub(super) was_complete: bool,
    /// Whether it was made here.
    is_new: bool,
    /// Locked until it is closed.
    _lock: File,
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
    ) -> Result<Out, Error> {
        let description = describe(pipeline, chosen, options);
        let is_new = !path.exists();
        fs::create_dir_all(path).map_err(|error| Error::write(path, error))?;
        let (manifest, begun) = (path.join(MANIFEST), path.join(BEGUN));
        let was_complete = manifest.exists();
        if was_complete {
            is_same(path, &manifest, &description)?;
        } else if begun.exists() {
            is_same(path, &begun, &description)?;
        } else if fs::read_dir(path)
            .map_err(|error| Error::write(path, error))?
            .next()
            .is_some()
        {
            let problem = format!(
                "{} is not empty and `infeed pack` did not make it; name a new folder",
                path.display()
            );
            return Err(Error::config("out", problem));
        }
        if !begun.exists() {
            let manifest = Manifest::new(&description, None);
            write_whole(&begun, "", &manifest.text())?;
        }
        let lock = File::open(&begun).map_err(|error| Error::write(&begun, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let problem = format!(
                    "another process is packing into {}; wait for it, or name another folder",
                    path.display()
                );
                return Err(Error::config("out", problem));
            }
            // A file system without locks is no reason not to pack.
            Err(TryLockError::Error(_)) => {}
        }
        Ok(Out {
            path: path.to_owned(),
            description,
            was_complete,
            is_new,
            _lock: lock,
        })
    }

    /// Leaves a folder in which nothing was written as it was before, so that it is in nobody's
    /// way who changes the options.
    pub(super) fn abandon(&self) {
        let is_mark =
            |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() == BEGUN);
        if fs::read_dir(&self.path).is_ok_and(|mut entries| entries.all(is_mark)) {
            // Where this fails, the folder says whose it is.
            let _ = fs::remove_file(self.path.join(BEGUN));
            if self.is_new {
                let _ = fs::remove_dir(&self.path);
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file that appears whole or not at all. `tag` tells apart writers of one file.
    pub(super) fn write(&self, path: &Path, tag: &str, bytes: &[u8]) -> Result<(), Error> {
        write_whole(path, tag, bytes)
    }

    /// Marks the dataset as complete.
    pub(super) fn finish(&self, records: u64, totals: &Totals) -> Result<(), Error> {
        let manifest = Manifest::new(&self.description, Some((records, totals)));
        write_whole(&self.path.join(MANIFEST), "", &manifest.text())?;
        let begun = self.path.join(BEGUN);
        fs::remove_file(&begun).map_err(|error| Error::write(begun, error))
    }
}

impl Manifest {
    fn new(description: &Description, done: Option<(u64, &Totals)>) -> Manifest {
        Manifest {
            version: VERSION,
            infeed: env!("CARGO_PKG_VERSION").to_owned(),
            description: description.clone(),
            records: done.map(|(records, _)| records),
            bytes_in: done.map(|(_, totals)| totals.bytes_in),
            bytes_out: done.map(|(_, totals)| totals.bytes_out),
        }
    }

    fn text(&self) -> Vec<u8> {
        let mut text =
            serde_json::to_vec_pretty(self).expect("a manifest holds plain data with string keys");
        text.push(b'\n');
        text
    }
}

fn describe(pipeline: &Pipeline, chosen: &Chosen, options: &PackOptions) -> Description {
    let decode = pipeline.decode.clone().unwrap_or_default();
    let json = |value| serde_json::to_value(value).unwrap_or_default();
    let mut source = pipeline.source.clone();
    // However the source was named, it is the same if it lies at the same place.
    each_path(&mut source, &mut |path| absolute(path));
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
    }
}

/// Refuses a folder that was made differently.
fn is_same(out: &Path, manifest: &Path, wanted: &Description) -> Result<(), Error> {
    let text = fs::read(manifest).map_err(|error| Error::open(manifest, error))?;
    let found: Option<Manifest> = serde_json::from_slice(&text).ok();
    let differs = match &found {
        Some(found) if found.version == VERSION => found.description.difference(wanted),
        _ => Some("its manifest is of another version of infeed".to_owned()),
    };
    match differs {
        None => Ok(()),
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
            "orient",
            "modes",
        ];
        keys.iter().find_map(|key| {
            let (there, here) = (&found[key], &wanted[key]);
            if there == here {
                return None;
            }
            Some(match *key {
                "chosen" => "of other records".to_owned(),
                key => format!("{key}: {there} there, {here} asked for"),
            })
        })
    }
}

/// Writes to a name of its own, then takes the final one.
fn write_whole(path: &Path, tag: &str, bytes: &[u8]) -> Result<(), Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // With a dot, so that no listing takes it for a record.
    let part = path.with_file_name(format!(".{name}.{tag}part"));
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
    let place = absolute(out);
    let mut paths = Vec::new();
    each_path(&mut source.clone(), &mut |path| {
        paths.push(path.to_owned());
        path.to_owned()
    });
    for path in paths {
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

/// Names anew the files and folders of this machine that a source names, patterns too.
fn each_path(source: &mut SourceSpec, name: &mut dyn FnMut(&Path) -> PathBuf) {
    match source {
        SourceSpec::Folder { path, .. } => *path = name(path),
        SourceSpec::Pairs { image, mask } => {
            *image = name(image);
            *mask = name(mask);
        }
        SourceSpec::Mix { parts, .. } => {
            let parts = parts.iter_mut();
            parts.for_each(|part| each_path(&mut part.source, name));
        }
        SourceSpec::Memory { fields } => {
            let paths = fields.iter_mut().filter_map(|field| field.path.as_mut());
            paths.for_each(|path| *path = name(path));
        }
        SourceSpec::Parquet { files, .. }
        | SourceSpec::Arrow { files, .. }
        | SourceSpec::Npz { files, .. }
        | SourceSpec::WebDataset { shards: files, .. }
        | SourceSpec::TfRecord { shards: files, .. } => {
            let local = files.iter_mut().filter(|file| !file.contains("://"));
            local.for_each(|file| *file = name(Path::new(file)).to_string_lossy().into_owned());
        }
        SourceSpec::Mds { path, .. } if !path.contains("://") => {
            *path = name(Path::new(path)).to_string_lossy().into_owned();
        }
        SourceSpec::Mds { .. } | SourceSpec::Given { .. } => {}
    }
}

/// A path from the root without links, also of what does not exist yet.
fn absolute(path: &Path) -> PathBuf {
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
