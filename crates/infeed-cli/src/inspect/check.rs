//! Decodes every file of a folder completely, in parallel, to find sizes, formats, bad files and
//! the classes of masks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use infeed_codec::decode::{ColorMode, Decoder, ImageFrame, Limits, Loss, Request};
use infeed_codec::transform::Palette;
use infeed_core::sample::{Depth, Image, Size};
use infeed_raw::machine::usable_cores;
use infeed_source::store;

use crate::error::CliError;
use crate::files::{read, spread};
use crate::interrupt;
use crate::terminal::bar;

/// Number of classes to count for masks of indices.
const INDICES: usize = 256;

/// Threads that read and decode objects of a bucket.
const FAR: usize = 32;

/// Meaning of the pixels of the files.
pub(super) enum MaskContents {
    /// No classes to count.
    None,
    /// Class numbers as stored.
    Indices,
    /// Colours of classes.
    Colours(Palette),
}

impl MaskContents {
    /// Returns the classes with their share of all pixels, most frequent first. Pixels of unknown
    /// colour come last.
    pub(super) fn shares(&self, checked: &FolderCheck) -> Vec<(String, f64)> {
        let all: u64 = checked.classes.iter().sum();
        let share = |count: u64| count as f64 / all.max(1) as f64;
        let name = |class: usize| match self {
            MaskContents::Colours(palette) => palette
                .names()
                .get(class)
                .cloned()
                .unwrap_or_else(|| "(in no class)".to_owned()),
            _ => class.to_string(),
        };
        let counted = checked
            .classes
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        let mut shares: Vec<(String, f64)> = counted
            .map(|(class, &count)| (name(class), share(count)))
            .collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        shares
    }
}

/// A file with an EXIF orientation that `decode(orient=True)` applies.
pub(super) struct TurnedFile {
    /// Index in the list.
    pub(super) at: usize,
    pub(super) name: String,
    /// Size as stored.
    pub(super) stored: Size,
    /// Size as displayed.
    pub(super) displayed: Size,
}

/// Results for the files of one folder.
#[derive(Default)]
pub(super) struct FolderCheck {
    pub(super) root: PathBuf,
    /// Number of files. With a limit or after Ctrl-C, fewer are checked.
    pub(super) files: usize,
    pub(super) checked: usize,
    pub(super) bytes: u64,
    pub(super) pixels: u64,
    /// Index in the list and size of each good file, as the pipeline decodes it.
    pub(super) sizes: Vec<(usize, Size)>,
    /// Number of files by format, channels and depth, such as `PNG RGB`.
    pub(super) formats: BTreeMap<String, u64>,
    /// Name and reason of each bad file.
    pub(super) bad: Vec<(String, String)>,
    /// Files with an EXIF orientation that turns them.
    pub(super) turned: Vec<TurnedFile>,
    /// Number of files that decode with a warning.
    pub(super) warned: u64,
    /// Number of pixels by class. For colours, a last entry counts pixels of no class.
    pub(super) classes: Vec<u64>,
}

impl FolderCheck {
    pub(super) fn merge(&mut self, other: FolderCheck) {
        self.files += other.files;
        self.checked += other.checked;
        self.bytes += other.bytes;
        self.pixels += other.pixels;
        self.sizes.extend(other.sizes);
        self.bad.extend(other.bad);
        self.turned.extend(other.turned);
        self.warned += other.warned;
        for (format, count) in other.formats {
            *self.formats.entry(format).or_default() += count;
        }
        self.classes
            .resize(self.classes.len().max(other.classes.len()), 0);
        for (sum, count) in self.classes.iter_mut().zip(other.classes) {
            *sum += count;
        }
    }
}

/// Decodes at most `limit` files, spread over the list, with a progress bar. `orient` says whether
/// the EXIF orientation is applied.
///
/// # Errors
///
/// Never for a file. The problems of files are part of the result.
pub(super) fn check_files(
    files: &[PathBuf],
    limit: usize,
    labels: &MaskContents,
    orient: bool,
) -> Result<FolderCheck, CliError> {
    let numbered: Vec<(usize, &PathBuf)> = files.iter().enumerate().collect();
    let chosen: Vec<&(usize, &PathBuf)> = spread(&numbered, limit).collect();
    let progress = bar(chosen.len() as u64, "files");
    let next = AtomicUsize::new(0);
    let all = Mutex::new(FolderCheck {
        files: files.len(),
        ..FolderCheck::default()
    });
    thread::scope(|scope| {
        // A thread that waits for a bucket needs no core.
        let far = files.first().is_some_and(store::is_url);
        let threads = if far { FAR } else { usable_cores() };
        for _ in 0..threads.min(chosen.len()) {
            scope.spawn(|| {
                let mut checker = Checker::new(labels, orient);
                while !interrupt::is_requested() {
                    // Relaxed: each number is taken once. The scope's end orders the rest.
                    let Some((at, path)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        break;
                    };
                    let name = || path.display().to_string();
                    match read(path) {
                        Ok(bytes) => checker.check(*at, name, &bytes),
                        Err(error) => checker.bad(name(), error.to_string()),
                    }
                    progress.inc(1);
                }
                all.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .merge(checker.found);
            });
        }
    });
    progress.finish_and_clear();
    let mut checked = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    checked.sizes.sort_by_key(|(at, _)| *at);
    checked.bad.sort();
    checked.turned.sort_by_key(|file| file.at);
    Ok(checked)
}

/// Decoder and results of one thread.
pub(super) struct Checker<'a> {
    labels: &'a MaskContents,
    orient: bool,
    decoder: Decoder,
    image: Image,
    pub(super) found: FolderCheck,
}

impl<'a> Checker<'a> {
    pub(super) fn new(labels: &'a MaskContents, orient: bool) -> Checker<'a> {
        let classes = match labels {
            MaskContents::None => 0,
            MaskContents::Indices => INDICES,
            MaskContents::Colours(palette) => palette.classes() + 1,
        };
        let found = FolderCheck {
            classes: vec![0; classes],
            ..FolderCheck::default()
        };
        Checker {
            labels,
            orient,
            decoder: Decoder::new(),
            image: Image::default(),
            found,
        }
    }

    /// Decodes the bytes of an image file.
    pub(super) fn check(&mut self, at: usize, name: impl Fn() -> String, bytes: &[u8]) {
        match self.decode(at, bytes) {
            Ok(frame) => {
                self.found.checked += 1;
                if frame.orientation != 1 {
                    self.found.turned.push(TurnedFile {
                        at,
                        name: name(),
                        stored: frame.stored_size(),
                        displayed: frame.size,
                    });
                }
            }
            Err(reason) => self.bad(name(), reason),
        }
    }

    /// Counts a file that could not be read.
    pub(super) fn bad(&mut self, name: String, reason: String) {
        self.found.checked += 1;
        self.found.bad.push((name, reason));
    }

    /// Decodes a file; returns its size and orientation as displayed.
    fn decode(&mut self, at: usize, bytes: &[u8]) -> Result<ImageFrame, String> {
        let text = |error: infeed_codec::decode::DecodeError| error.to_string();
        let limits = Limits::default();
        let header = self.decoder.header(bytes, self.orient, &limits);
        let header = header.map_err(text)?;
        let displayed = self.decoder.header(bytes, true, &limits).map_err(text)?;
        self.decoder.check(bytes, &header, true).map_err(text)?;
        let mode = match self.labels {
            MaskContents::Colours(_) => ColorMode::Rgb,
            _ if header.depth == Depth::U16 => ColorMode::Stored16,
            _ => ColorMode::Stored,
        };
        let request = Request::whole(&header, mode);
        let warnings = self
            .decoder
            .decode(bytes, &header, &request, &mut self.image)
            .map_err(text)?;

        let colours = ["", "gray", "gray and alpha", "RGB", "RGBA"];
        let colour = colours.get(header.channels).copied().unwrap_or_default();
        let depth = if header.depth == Depth::U16 {
            ", 16 bit"
        } else {
            ""
        };
        let mut format = format!("{} {colour}{depth}", header.format.name());
        for loss in self.decoder.losses() {
            if !matches!(loss, Loss::LowBytes { .. }) {
                format.push_str(", ");
                format.push_str(loss.name());
            }
        }
        *self.found.formats.entry(format).or_default() += 1;
        self.found.bytes += bytes.len() as u64;
        self.found.pixels += header.size.pixels();
        self.found.sizes.push((at, header.size));
        self.found.warned += u64::from(warnings > 0);
        self.count_classes();
        Ok(displayed.frame())
    }

    fn count_classes(&mut self) {
        match self.labels {
            MaskContents::None => {}
            // Masks of several channels without a palette have no class numbers.
            MaskContents::Indices if self.image.channels == 1 && self.image.depth == Depth::U8 => {
                for &class in &self.image.data {
                    self.found.classes[usize::from(class)] += 1;
                }
            }
            MaskContents::Indices => {}
            MaskContents::Colours(palette) => {
                // Neighbours mostly have the same colour, so a run of them needs one lookup.
                let unknown = palette.classes();
                let (mut last, mut class) = ([0; 3], None);
                for pixel in self.image.data.chunks_exact(3) {
                    let colour = [pixel[0], pixel[1], pixel[2]];
                    if class.is_none() || colour != last {
                        last = colour;
                        class = Some(palette.class(colour).map_or(unknown, usize::from));
                    }
                    self.found.classes[class.unwrap_or(unknown)] += 1;
                }
            }
        }
    }
}
