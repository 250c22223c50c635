//! The file names of a packed dataset. Checks that they keep the order of the records.
//!
//! Names derive from the file names of the source, so nothing is stored for a million of them.
//! Records without file names are numbered. The extension follows from the written bytes, so no
//! read is needed to name a file.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Component, Path, PathBuf};

use super::encoding::Encoding;
use super::fields::{FieldWork, Work};
use super::selection::RecordSelection;
use infeed::pipeline::SourceSpec;
use infeed_codec::decode::Format;
use infeed_core::error::Error;
use infeed_source::Source;

/// Layout of the files in a packed folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FolderLayout {
    /// The source's layout. The source lists the files.
    Listed,
    /// The source's layout, with labels in a CSV file.
    Labelled,
    /// Images and masks in two folders.
    Pairs,
}

/// Folders of [`FolderLayout::Pairs`].
pub(super) const PAIRS: [&str; 2] = ["image", "mask"];

/// Names the files of records.
pub(super) struct Naming<'a> {
    source: &'a dyn Source,
    /// Folder of the original files, per image or mask field. Empty if records have no files.
    roots: Vec<PathBuf>,
    /// Per image or mask field: its index among the fields, and the rule for its extension.
    visual: Vec<(usize, ExtensionRule)>,
    digits: usize,
    pub(super) layout: FolderLayout,
    /// The labels option of the original: `auto`, `none` or a CSV file.
    pub(super) labels: String,
    /// Suffixes of images and masks that are paired.
    pub(super) suffixes: [String; 2],
}

/// Rule for the extension of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtensionRule {
    Same,
    /// The extension of the format of the written bytes.
    ByContent,
    Jpeg,
    Png,
    Webp,
    /// JPEG and PNG keep their extension, any other becomes `png`.
    Own,
}

impl ExtensionRule {
    /// Returns the possible extensions of a file without an original name.
    fn endings(self) -> &'static [&'static str] {
        match self {
            ExtensionRule::Same | ExtensionRule::ByContent => {
                &["jpg", "png", "webp", "bmp", "gif", "tiff", "pnm", "ifl"]
            }
            ExtensionRule::Own => &["jpg", "png"],
            ExtensionRule::Jpeg => &["jpg"],
            ExtensionRule::Png => &["png"],
            ExtensionRule::Webp => &["webp"],
        }
    }
}

/// The file of an image or mask of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutputFile {
    /// Its index among the fields.
    pub(super) field: usize,
    /// The original file, if there is one.
    pub(super) original: Option<PathBuf>,
    /// The new file, relative to the output folder. Without its extension if there are `endings`.
    path: PathBuf,
    endings: &'static [&'static str],
}

impl OutputFile {
    /// Returns the path of a new file with these bytes, relative to the output folder.
    pub(super) fn path(&self, bytes: &[u8]) -> PathBuf {
        if self.endings.is_empty() {
            return self.path.clone();
        }
        let format = Format::of(bytes).unwrap_or(Format::Png);
        with_ending(&self.path, format.extension())
    }

    /// Returns all possible paths of the new file.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        match self.endings {
            [] => vec![self.path.clone()],
            endings => {
                let path = |ending: &&str| with_ending(&self.path, ending);
                endings.iter().map(path).collect()
            }
        }
    }
}

impl<'a> Naming<'a> {
    /// Creates the names of all chosen records.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the names of two files that would get one name or change their order,
    /// or of a file outside the folder of its source.
    pub(super) fn new(
        spec: &SourceSpec,
        source: &'a dyn Source,
        fields: &[FieldWork],
        chosen: &RecordSelection,
    ) -> Result<Naming<'a>, Error> {
        let rule = |field: &FieldWork| match field.work {
            Work::Copy { encoding, .. } => match encoding {
                Encoding::Lossless | Encoding::Restore => ExtensionRule::ByContent,
                _ => ExtensionRule::Same,
            },
            Work::Encode { encoding, .. } => match encoding {
                Encoding::Keep if field.is_mask => ExtensionRule::Png,
                Encoding::Keep | Encoding::Raw | Encoding::Lossless | Encoding::Restore => {
                    ExtensionRule::Own
                }
                Encoding::Jpeg { .. } => ExtensionRule::Jpeg,
                Encoding::Png { .. } => ExtensionRule::Png,
                Encoding::WebpLossless => ExtensionRule::Webp,
            },
            _ => ExtensionRule::Png,
        };
        let numbered = fields.iter().enumerate();
        let visual: Vec<(usize, ExtensionRule)> = numbered
            .filter(|(_, field)| field.is_visual())
            .map(|(at, field)| (at, rule(field)))
            .collect();
        let labelled = fields.len() > visual.len();
        let is_whole = chosen.is_whole();
        let mut suffixes = [String::new(), String::new()];
        let (roots, layout, labels) = match spec {
            SourceSpec::Folder { path, labels, .. } => {
                let is_csv = !matches!(labels.as_str(), "auto" | "none");
                let layout = match labelled && (is_csv || !is_whole) {
                    true => FolderLayout::Labelled,
                    false => FolderLayout::Listed,
                };
                (vec![path.clone()], layout, labels.clone())
            }
            SourceSpec::Pairs {
                image,
                mask,
                image_suffix,
                mask_suffix,
                ..
            } => {
                suffixes = [image_suffix.clone(), mask_suffix.clone()];
                let roots = vec![image.clone(), mask.clone()];
                (roots, FolderLayout::Pairs, "none".to_owned())
            }
            _ => {
                let layout = match (visual.len(), labelled) {
                    (2, _) => FolderLayout::Pairs,
                    (_, true) => FolderLayout::Labelled,
                    (_, false) => FolderLayout::Listed,
                };
                (Vec::new(), layout, "none".to_owned())
            }
        };
        let naming = Naming {
            source,
            roots,
            visual,
            digits: source.len().saturating_sub(1).to_string().len(),
            layout,
            labels,
            suffixes,
        };
        naming.check(chosen)?;
        Ok(naming)
    }

    /// Returns the images and masks of a record.
    pub(super) fn files(&self, record: u64) -> Vec<OutputFile> {
        let originals = self.source.files(record);
        let visual = self.visual.iter().enumerate();
        visual
            .map(|(nth, &(field, rule))| {
                let original = originals.get(nth).cloned();
                let (own, endings) = match (&original, self.roots.get(nth)) {
                    (Some(path), Some(root)) => {
                        let path = path.strip_prefix(root).unwrap_or(path);
                        match rule {
                            ExtensionRule::ByContent => (path.with_extension(""), rule.endings()),
                            _ => (packed_name(path, rule), &[][..]),
                        }
                    }
                    _ => {
                        let number = format!("{record:0width$}", width = self.digits);
                        (number.into(), rule.endings())
                    }
                };
                let path = match self.layout {
                    FolderLayout::Pairs => Path::new(PAIRS[nth.min(1)]).join(own),
                    _ => own,
                };
                OutputFile {
                    field,
                    original,
                    path,
                    endings,
                }
            })
            .collect()
    }

    fn check(&self, chosen: &RecordSelection) -> Result<(), Error> {
        if self.roots.is_empty() {
            // Numbers are unique and ascend with the records.
            return Ok(());
        }
        let listed = self.layout == FolderLayout::Listed;
        let hasher = RandomState::new();
        let mut seen: HashMap<u64, u64> = HashMap::new();
        let mut last: Option<(PathBuf, PathBuf)> = None;
        for record in chosen.iter() {
            for named in self.files(record) {
                // Names by content are compared as if all files were recoded.
                let path = match named.endings {
                    [] => named.path,
                    _ => with_ending(&named.path, "ifl"),
                };
                let Some(original) = named.original else {
                    continue;
                };
                let is_below = path
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)));
                if !is_below {
                    let problem = format!(
                        "{} is outside the folder of the source; use the folder that contains all \
                         files",
                        original.display()
                    );
                    return Err(Error::config("source", problem));
                }
                if listed {
                    self.check_order(last.as_ref(), (&path, &original))?;
                    last = Some((path, original));
                } else if self.layout == FolderLayout::Labelled {
                    let other = seen.insert(hasher.hash_one(&path), record);
                    // A list of labels may have several lines for one file.
                    let twin = other.and_then(|other| self.files(other).into_iter().next());
                    if let Some(twin) = twin
                        && let Some(other) = twin.original
                        && (twin.path == path || !twin.endings.is_empty())
                        && other != original
                    {
                        return Err(collision(&other, &original, &path));
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks that names within a folder keep their order.
    fn check_order(
        &self,
        last: Option<&(PathBuf, PathBuf)>,
        (path, original): (&Path, &Path),
    ) -> Result<(), Error> {
        let Some((before, original_before)) = last else {
            return Ok(());
        };
        if before.parent() != path.parent() {
            return Ok(());
        }
        match before.file_name().cmp(&path.file_name()) {
            std::cmp::Ordering::Less => Ok(()),
            std::cmp::Ordering::Equal => Err(collision(original_before, original, path)),
            std::cmp::Ordering::Greater => {
                let problem = format!(
                    "{} and {} would be in the other order as {} and {}, and all later records \
                     would get other numbers; rename one",
                    original_before.display(),
                    original.display(),
                    before.display(),
                    path.display()
                );
                Err(Error::config("source", problem))
            }
        }
    }
}

/// Appends an extension to a path without one, whose name may contain dots.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".");
    path.push(ending);
    path.into()
}

fn collision(one: &Path, other: &Path, path: &Path) -> Error {
    let problem = format!(
        "{} and {} would both become {}; rename one",
        one.display(),
        other.display(),
        path.display()
    );
    Error::config("source", problem)
}

/// Returns the name of a file in its new format. Keeps the name if its extension already fits.
fn packed_name(path: &Path, rule: ExtensionRule) -> PathBuf {
    let is = |known: &[&str]| {
        let extension = path.extension().unwrap_or_default();
        known.iter().any(|one| extension.eq_ignore_ascii_case(one))
    };
    let jpeg = is(&["jpg", "jpeg", "jpe"]);
    let png = is(&["png"]);
    match rule {
        ExtensionRule::Same | ExtensionRule::ByContent => path.to_owned(),
        ExtensionRule::Jpeg if jpeg => path.to_owned(),
        ExtensionRule::Png if png => path.to_owned(),
        ExtensionRule::Webp if is(&["webp"]) => path.to_owned(),
        ExtensionRule::Own if jpeg || png => path.to_owned(),
        ExtensionRule::Jpeg => path.with_extension("jpg"),
        ExtensionRule::Png | ExtensionRule::Own => path.with_extension("png"),
        ExtensionRule::Webp => path.with_extension("webp"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_changes_only_if_its_extension_differs() {
        for (rule, before, after) in [
            (ExtensionRule::Same, "a/b.JPEG", "a/b.JPEG"),
            (ExtensionRule::Jpeg, "a/b.JPEG", "a/b.JPEG"),
            (ExtensionRule::Jpeg, "a/b.c.png", "a/b.c.jpg"),
            (ExtensionRule::Png, "b.jpg", "b.png"),
            (ExtensionRule::Png, "b.PNG", "b.PNG"),
            (ExtensionRule::Webp, "b.png", "b.webp"),
            (ExtensionRule::Webp, "b.WebP", "b.WebP"),
            (ExtensionRule::Own, "b.jpe", "b.jpe"),
            (ExtensionRule::Own, "b.webp", "b.png"),
        ] {
            assert_eq!(
                packed_name(Path::new(before), rule),
                Path::new(after),
                "{rule:?}"
            );
        }
    }
}
