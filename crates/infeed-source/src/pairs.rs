//! Images and their masks in two folders, paired by relative path without extension.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::columns::names_encoded_masks;
use super::extensions::without_images;
use super::folder::read_files;
use super::left_out::LeftOut;
use super::listing::Tree;
use super::paths::{ObjectInfo, Paths};
use super::{Admission, Read, ReadError, Sink, Source, fingerprint};
use infeed_core::error::Error;
use infeed_core::random::hash;
use infeed_core::sample::{Field, FieldKind, Pixels, Record, RecordId};

/// Maximum number of files without a partner that an error lists.
const NAMED: usize = 5;

/// Maximum number of masks that are compared with an image to find their suffixes.
const COMPARED: usize = 64;

/// Image and mask files, paired by stem.
#[derive(Debug)]
pub struct Pairs {
    fields: Vec<Field>,
    images: Paths,
    masks: Paths,
}

/// One of the two folders of [`Pairs`].
#[derive(Clone, Copy, Debug)]
pub struct PairFolder<'a> {
    /// Path or URL.
    pub path: &'a Path,
    /// End of the file names without their extensions that is not part of the stem, such as
    /// `_mask`. Other files are excluded.
    pub suffix: &'a str,
}

impl PairFolder<'_> {
    /// Returns the stem of a file: its path without extension and suffix. None for a file without
    /// the suffix.
    pub fn stem(&self, file: &Path) -> Option<PathBuf> {
        let stem = file.file_stem()?.to_string_lossy();
        Some(file.with_file_name(stem.strip_suffix(self.suffix)?))
    }
}

impl Pairs {
    /// Lists both folders and pairs their files. Symbolic links below the folders are left out unless
    /// `follow_links` is set.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for a folder that cannot be listed. [`Error::Config`] if a folder holds no
    /// images, if two files of a folder have the same stem, or if a file has no partner.
    pub fn open(
        image: PairFolder<'_>,
        mask: PairFolder<'_>,
        follow_links: bool,
    ) -> Result<Pairs, Error> {
        let list = |folder| Stems::list(folder, follow_links);
        let (images, masks) = (list(image)?, list(mask)?);
        let lonely_images = images.without(&masks);
        let lonely_masks = masks.without(&images);
        if !lonely_images.is_empty() || !lonely_masks.is_empty() {
            let mut problems = Vec::new();
            for (lonely, folder, other) in [
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
                        folder.path.display(),
                        named.join(", "),
                    ));
                }
            }
            problems.push(match common_suffixes(&lonely_images, &lonely_masks) {
                Some([image, mask]) => {
                    let set = [("image_suffix", image), ("mask_suffix", mask)];
                    let set = set.iter().filter(|(_, suffix)| !suffix.is_empty());
                    let set: Vec<String> = set
                        .map(|(name, suffix)| format!("{name}={suffix:?}"))
                        .collect();
                    format!("set {}", set.join(" and "))
                }
                None => {
                    "files pair by equal name without extension; set mask_suffix= if the names \
                         of masks have an end such as _mask"
                        .to_owned()
                }
            });
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

/// Returns the suffixes of images and masks with which every image has a mask.
fn common_suffixes(images: &[&PathBuf], masks: &[&PathBuf]) -> Option<[String; 2]> {
    let stem = |path: &Path| {
        path.file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
    };
    let first = images.first()?;
    let image = stem(first)?;
    let near = masks.iter().filter(|mask| mask.parent() == first.parent());
    let candidates = near.take(COMPARED).filter_map(|mask| {
        let mask = stem(mask)?;
        let common = image.char_indices().zip(mask.chars());
        let common = common.take_while(|((_, a), b)| a == b);
        let mut end = common.map(|((at, c), _)| at + c.len_utf8()).last()?;
        // A suffix begins at a separator, not within a word.
        if end < image.len().min(mask.len()) {
            end = image[..end].rfind(['_', '-', '.'])?;
        }
        Some([image[end..].to_owned(), mask[end..].to_owned()])
    });
    let fits = |[image_suffix, mask_suffix]: &[String; 2]| {
        let stems = |paths: &[&PathBuf], suffix: &str| -> BTreeSet<PathBuf> {
            let folder = PairFolder {
                path: Path::new(""),
                suffix,
            };
            paths.iter().filter_map(|path| folder.stem(path)).collect()
        };
        let images_found = stems(images, image_suffix);
        images_found.len() == images.len() && images_found.is_subset(&stems(masks, mask_suffix))
    };
    let mut fitting: Vec<[String; 2]> = candidates.filter(fits).collect();
    // `labelIds` rather than `color`.
    let names_classes = |suffix: &str| {
        let suffix = suffix.to_ascii_lowercase();
        suffix.contains("label") || names_encoded_masks(&suffix)
    };
    fitting.sort_by_key(|[_, mask]| !names_classes(mask));
    fitting.into_iter().next()
}

/// The files of one folder sorted by stem.
struct Stems {
    files: Vec<(PathBuf, PathBuf, ObjectInfo)>,
    /// Empty paths of the folder, filled by [`Stems::paths`].
    paths: Paths,
}

impl Stems {
    fn list(folder: PairFolder<'_>, follow_links: bool) -> Result<Stems, Error> {
        let Tree { folders, paths } = Tree::list(folder.path, follow_links, None)?;
        let mut files: Vec<(PathBuf, PathBuf, ObjectInfo)> = folders
            .iter()
            .flat_map(|listed| {
                let names = listed.names.iter();
                names.map(|(name, object)| (listed.path.join(name), object))
            })
            .filter_map(|(path, object)| Some((folder.stem(&path)?, path, object)))
            .collect();
        files.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let root = folder.path.display();
        if files.is_empty() {
            if folder.suffix.is_empty() {
                return Err(without_images(folder.path, paths.left_out()));
            }
            let suffix = folder.suffix;
            let problem = format!("{root} holds no images whose names end with {suffix:?}");
            return Err(Error::config("source", problem));
        }
        if let Some(twins) = files.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let problem = format!(
                "{} and {} in {root} differ in extension only; remove one",
                twins[0].1.display(),
                twins[1].1.display(),
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
            let fields = read_files(record, &[&self.images, &self.masks], 0, admit)?;
            let found = fields.map(|fields| Record {
                index: record,
                fields,
            });
            sink(place, found);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn open_pairs(
        images: &[&str],
        masks: &[&str],
        suffixes: [&str; 2],
    ) -> Result<Vec<String>, String> {
        let root = tempfile::tempdir().expect("a folder");
        for (folder, names) in [("images", images), ("masks", masks)] {
            for name in names {
                let path = root.path().join(folder).join(name);
                fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                fs::write(path, "x").expect("writes");
            }
        }
        let (images, masks) = (root.path().join("images"), root.path().join("masks"));
        let folder = |path, suffix| PairFolder { path, suffix };
        let pairs = Pairs::open(
            folder(&images, suffixes[0]),
            folder(&masks, suffixes[1]),
            true,
        );
        let pairs = pairs.map_err(|error| error.to_string())?;
        let named = (0..pairs.images.len())
            .map(|at| format!("{} {}", pairs.images.name(at), pairs.masks.name(at)));
        Ok(named.collect())
    }

    #[test]
    fn names_with_suffixes_pair_and_other_files_are_excluded() {
        let found = open_pairs(
            &["a/1_left.png", "a/10_left.png"],
            &["a/1_gt_ids.png", "a/1_gt_color.png", "a/10_gt_ids.gif"],
            ["_left", "_gt_ids"],
        );

        let found = found.expect("pairs");
        assert_eq!(
            found,
            [
                "a/1_left.png a/1_gt_ids.png",
                "a/10_left.png a/10_gt_ids.gif"
            ]
        );
        let error = open_pairs(&["1.png"], &["1_mask.png"], ["", "_label"]).expect_err("no mask");
        assert!(error.contains("whose names end with \"_label\""), "{error}");
    }

    #[test]
    fn the_error_about_files_without_a_partner_proposes_the_suffixes() {
        for (images, masks, fix) in [
            (
                &["0a_01.jpg", "0a_02.jpg"][..],
                &["0a_01_mask.gif", "0a_02_mask.gif"][..],
                "set mask_suffix=\"_mask\"",
            ),
            (
                &["x/x_0_leftImg8bit.png"],
                &["x/x_0_gtFine_color.png", "x/x_0_gtFine_labelIds.png"],
                "set image_suffix=\"_leftImg8bit\" and mask_suffix=\"_gtFine_labelIds\"",
            ),
            (
                &["1.jpg", "2.jpg"],
                &["1_L.png", "2_L.png"],
                "mask_suffix=\"_L\"",
            ),
            (&["1_im.jpg"], &["1.png"], "set image_suffix=\"_im\""),
            (
                &["1.jpg", "2.jpg"],
                &["1_L.png"],
                "files pair by equal name",
            ),
            (&["1.jpg"], &["2.png"], "files pair by equal name"),
        ] {
            let error = open_pairs(images, masks, ["", ""]).expect_err("no partners");

            assert!(
                error.ends_with(fix) || error.contains(&format!("; {fix}")),
                "{error}"
            );
        }
    }
}
