//! Images and their masks in two folders, paired by relative path without extension.

use std::path::{Path, PathBuf};

use super::folder::read_files;
use super::left_out::LeftOut;
use super::listing::{ObjectInfo, Paths, Tree};
use super::{Admission, Read, ReadError, Sink, Source, fingerprint};
use infeed_core::error::Error;
use infeed_core::random::hash;
use infeed_core::sample::{Field, FieldKind, Pixels, Record, RecordId};

/// Maximum number of files without a partner that an error lists.
const NAMED: usize = 5;

/// Image and mask files, paired by stem.
#[derive(Debug)]
pub struct Pairs {
    fields: Vec<Field>,
    images: Paths,
    masks: Paths,
}

impl Pairs {
    /// Lists both folders and pairs their files. Symbolic links that lead outside their folder are
    /// left out unless `follow_links` is set.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for a folder that cannot be listed. [`Error::Config`] if a folder holds no
    /// images, if two files of a folder have the same stem, or if a file has no partner.
    pub fn open(image: &Path, mask: &Path, follow_links: bool) -> Result<Pairs, Error> {
        let list = |root| Stems::list(root, follow_links);
        let (images, masks) = (list(image)?, list(mask)?);
        let lonely_images = images.without(&masks);
        let lonely_masks = masks.without(&images);
        if !lonely_images.is_empty() || !lonely_masks.is_empty() {
            let mut problems = Vec::new();
            for (lonely, root, other) in [
                (&lonely_images, image, "mask"),
                (&lonely_masks, mask, "image"),
            ] {
                if !lonely.is_empty() {
                    let named: Vec<String> = lonely
                        .iter()
                        .take(NAMED)
                        .map(|path| path.display().to_string())
                        .collect();
                    let more = lonely.len().saturating_sub(NAMED);
                    let more = if more > 0 {
                        format!(" and {more} more")
                    } else {
                        String::new()
                    };
                    problems.push(format!(
                        "{} files of {} have no {other}: {}{more}",
                        lonely.len(),
                        root.display(),
                        named.join(", "),
                    ));
                }
            }
            problems.push("files pair by equal name without extension".to_owned());
            return Err(Error::config("source", problems.join("; ")));
        }
        let field = |name: &str, kind| Field {
            name: name.to_owned(),
            kind,
        };
        Ok(Pairs {
            fields: vec![
                field("image", FieldKind::Image(Pixels::Encoded)),
                field("mask", FieldKind::Mask(Pixels::Encoded)),
            ],
            images: images.paths(),
            masks: masks.paths(),
        })
    }
}

/// The files of one folder sorted by stem.
struct Stems {
    files: Vec<(PathBuf, PathBuf, ObjectInfo)>,
    /// Empty paths of the folder, filled by [`Stems::paths`].
    paths: Paths,
}

impl Stems {
    fn list(root: &Path, follow_links: bool) -> Result<Stems, Error> {
        let Tree { folders, paths } = Tree::list(root, follow_links, None)?;
        let mut files: Vec<(PathBuf, PathBuf, ObjectInfo)> = folders
            .iter()
            .flat_map(|folder| {
                let names = folder.names.iter();
                names.map(|(name, object)| (folder.path.join(name), object))
            })
            .map(|(path, object)| (path.with_extension(""), path, object))
            .collect();
        files.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        if files.is_empty() {
            let problem = format!("{} holds no images", root.display());
            return Err(Error::config("source", problem));
        }
        if let Some(twins) = files.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let problem = format!(
                "{} and {} in {} differ in extension only; remove one",
                twins[0].1.display(),
                twins[1].1.display(),
                root.display()
            );
            return Err(Error::config("source", problem));
        }
        Ok(Stems { files, paths })
    }

    /// Returns the files whose stem the other folder does not have.
    fn without(&self, other: &Stems) -> Vec<&PathBuf> {
        let missing = |stem: &PathBuf| {
            other
                .files
                .binary_search_by(|(known, ..)| known.cmp(stem))
                .is_err()
        };
        self.files
            .iter()
            .filter(|(stem, ..)| missing(stem))
            .map(|(_, path, _)| path)
            .collect()
    }

    fn paths(self) -> Paths {
        let mut paths = self.paths;
        let mut current: Option<&Path> = None;
        for (_, path, object) in &self.files {
            let parent = path.parent().unwrap_or(Path::new(""));
            if current != Some(parent) {
                paths.begin_folder(parent.to_owned());
                current = Some(parent);
            }
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy())
                .unwrap_or_default();
            paths.push(&name, *object);
        }
        paths.shrink();
        paths
    }
}

impl Source for Pairs {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> u64 {
        self.images.len() as u64
    }

    fn id(&self, record: u64, field: Option<usize>) -> RecordId {
        let paths = if field == Some(1) {
            &self.masks
        } else {
            &self.images
        };
        let name = paths.path(record as usize).display().to_string();
        RecordId {
            index: record,
            name,
        }
    }

    fn fingerprint(&self) -> u64 {
        hash(&[
            fingerprint(self.len(), &self.fields),
            self.images.fingerprint(),
            self.masks.fingerprint(),
        ])
    }

    fn name(&self, record: u64) -> Option<String> {
        Some(self.images.name(record as usize))
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        let at = record as usize;
        vec![self.images.path(at), self.masks.path(at)]
    }

    fn left_out(&self) -> Vec<LeftOut> {
        [self.images.left_out(), self.masks.left_out()].concat()
    }

    fn parallel_reads(&self) -> Option<usize> {
        self.images.parallel_reads().or(self.masks.parallel_reads())
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        for &(place, record) in &read.records {
            let fields = read_files(record, &[&self.images, &self.masks], admit)?;
            let found = Record {
                index: record,
                fields,
            };
            sink(place, Ok(found));
        }
        Ok(())
    }
}
