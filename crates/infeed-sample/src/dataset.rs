//! Whole folders of made-up pictures: what `infeed sample` writes.

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use infeed_raw::jpeg_encode::Subsampling;

use infeed_core::sample::{Depth, Image, Size};

use super::encode::{jpeg, png};
use super::noise::{Random, hash};
use super::photo::{photo_class_name, photograph};
use super::street::{StreetClass, street, street_classes};

/// One file of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleFile {
    /// Path relative to the folder of the dataset.
    pub path: PathBuf,
    /// Contents.
    pub bytes: Vec<u8>,
}

/// A dataset that can be made, sample by sample, in any order.
pub trait Dataset: Sync {
    /// Number of samples.
    fn count(&self) -> u64;

    /// Files that belong to the dataset as a whole, such as its list of classes.
    fn common_files(&self) -> Vec<SampleFile>;

    /// The files of one sample; the same ones whenever it is asked for.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the settings (sizes, quality) cannot be encoded.
    fn sample_files(&self, index: u64) -> io::Result<Vec<SampleFile>>;
}

/// JPEG photographs in a folder a class, `class/0000.jpg`.
#[derive(Clone, Debug)]
pub struct Classification {
    /// Images altogether, dealt to the classes in turn.
    pub count: u64,
    /// Number of classes, at least 1.
    pub classes: u32,
    /// Everything random follows from it.
    pub seed: u64,
    /// The most frequent size; others vary around it as ImageNet's do.
    pub size: Size,
    /// JPEG qualities drawn from, 1 to 100.
    pub quality: RangeInclusive<u8>,
}

impl Dataset for Classification {
    fn count(&self) -> u64 {
        self.count
    }

    fn common_files(&self) -> Vec<SampleFile> {
        Vec::new()
    }

    fn sample_files(&self, index: u64) -> io::Result<Vec<SampleFile>> {
        let classes = u64::from(self.classes.max(1));
        let (class, number) = ((index % classes) as u32, index / classes);
        let mut random = Random::new(hash(hash(self.seed, 0xDA7A), index));
        let size = varied_size(self.size, &mut random);
        let (low, high) = (
            u64::from(*self.quality.start()),
            u64::from(*self.quality.end()),
        );
        let quality = (low + random.below(high.saturating_sub(low) + 1)) as u8;
        // The shares found in 300 ImageNet files: 220 full, 71 subsampled, 9 gray.
        let subsampling = match random.unit() {
            share if share < 0.03 => Subsampling::Gray,
            share if share < 0.27 => Subsampling::Quarter,
            _ => Subsampling::None,
        };
        let image = photograph(self.seed, index, class, size);
        let path = format!("{}/{number:04}.jpg", photo_class_name(class));
        let bytes = jpeg(&image, quality, subsampling)?;
        Ok(vec![SampleFile {
            path: path.into(),
            bytes,
        }])
    }
}

/// Half the pictures have the size asked for; the others are flatter, upright, square, or scaled,
/// about as often as in ImageNet.
fn varied_size(size: Size, random: &mut Random) -> Size {
    let (height, width) = (size.height as f32, size.width as f32);
    let (height, width) = match random.below(20) {
        0..10 => (height, width),
        10..13 => (height * random.between(0.84, 0.92), width),
        13..17 => (width, height),
        17 => (height, height),
        _ => {
            let scale = random.between(0.5, 1.6);
            (height * scale * random.between(0.8, 1.2), width * scale)
        }
    };
    let side = |v: f32| (v as u32).max(1);
    Size {
        height: side(height),
        width: side(width),
    }
}

/// PNG street scenes and masks by equal name, `images/0000.png`, `masks/0000.png`, and
/// `class_dict.csv` with the colours of the classes.
#[derive(Clone, Debug)]
pub struct Segmentation {
    /// Number of pairs.
    pub count: u64,
    /// Number of classes, 1 to [`MAX_STREET_CLASSES`](super::MAX_STREET_CLASSES).
    pub classes: u32,
    /// Everything random follows from it.
    pub seed: u64,
    /// Size of every image.
    pub size: Size,
}

impl Dataset for Segmentation {
    fn count(&self) -> u64 {
        self.count
    }

    fn common_files(&self) -> Vec<SampleFile> {
        let mut csv = String::from("name,r,g,b\n");
        for StreetClass {
            name,
            colour: [r, g, b],
        } in street_classes(self.classes)
        {
            csv.push_str(&format!("{name},{r},{g},{b}\n"));
        }
        vec![SampleFile {
            path: "class_dict.csv".into(),
            bytes: csv.into_bytes(),
        }]
    }

    fn sample_files(&self, index: u64) -> io::Result<Vec<SampleFile>> {
        let scene = street(self.seed, index, self.classes, self.size);
        let classes = street_classes(self.classes);
        let mut colours = Image::default();
        colours.reset(self.size, 3, Depth::U8);
        for (pixel, &class) in colours.data.chunks_exact_mut(3).zip(&scene.mask.data) {
            pixel.copy_from_slice(&classes[usize::from(class)].colour);
        }
        let file = |folder: &str, bytes| SampleFile {
            path: format!("{folder}/{index:04}.png").into(),
            bytes,
        };
        Ok(vec![
            file("images", png(&scene.image)?),
            file("masks", png(&colours)?),
        ])
    }
}

/// Writes a dataset below `folder` on `threads` threads, calling `on_sample` with the bytes of
/// each sample written; `false` from it stops early.
///
/// The files are the same for any number of threads. Returns the number of samples written.
///
/// # Errors
///
/// `AlreadyExists` if the folder is there and not empty: nothing is ever overwritten. Otherwise
/// the first error met in making or writing a file, named in the message.
pub fn write_dataset(
    dataset: &dyn Dataset,
    folder: &Path,
    threads: usize,
    on_sample: &(dyn Fn(u64) -> bool + Sync),
) -> io::Result<u64> {
    fs::create_dir_all(folder).map_err(|error| with_path(folder, error))?;
    if fs::read_dir(folder)
        .map_err(|error| with_path(folder, error))?
        .next()
        .is_some()
    {
        let message = format!("{} is not empty", folder.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    for file in dataset.common_files() {
        write_file(folder, &file)?;
    }

    let (next, written) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                // Relaxed: the counters carry no other data, and the scope's end orders the rest.
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= dataset.count() {
                        break;
                    }
                    match write_sample(dataset, folder, index) {
                        Ok(bytes) => {
                            written.fetch_add(1, Ordering::Relaxed);
                            if !on_sample(bytes) {
                                stop.store(true, Ordering::Relaxed);
                            }
                        }
                        Err(error) => {
                            stop.store(true, Ordering::Relaxed);
                            if let Ok(mut slot) = failure.lock() {
                                slot.get_or_insert(error);
                            }
                        }
                    }
                }
            });
        }
    });
    match failure.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(written.into_inner()),
    }
}

fn write_sample(dataset: &dyn Dataset, folder: &Path, index: u64) -> io::Result<u64> {
    let mut bytes = 0;
    for file in dataset.sample_files(index)? {
        write_file(folder, &file)?;
        bytes += file.bytes.len() as u64;
    }
    Ok(bytes)
}

fn write_file(folder: &Path, file: &SampleFile) -> io::Result<()> {
    let path = folder.join(&file.path);
    let write = || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &file.bytes)
    };
    write().map_err(|error| with_path(&path, error))
}

fn with_path(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Classification {
        let size = Size {
            height: 30,
            width: 40,
        };
        Classification {
            count: 7,
            classes: 3,
            seed: 9,
            size,
            quality: 90..=95,
        }
    }

    fn written_by(threads: usize) -> Vec<(PathBuf, Vec<u8>)> {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            write_dataset(&tiny(), dir.path(), threads, &|_| true).unwrap(),
            7
        );
        let mut files = Vec::new();
        for class in fs::read_dir(dir.path()).unwrap() {
            for file in fs::read_dir(class.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                let below = path.strip_prefix(dir.path()).unwrap().to_owned();
                files.push((below, fs::read(path).unwrap()));
            }
        }
        files.sort();
        files
    }

    #[test]
    fn the_number_of_threads_does_not_change_the_files() {
        let one = written_by(1);

        assert_eq!(one.len(), 7);
        assert_eq!(one, written_by(3));
    }

    /// Mean bytes per pixel of one file of each of the first `count` samples.
    fn bytes_per_pixel(dataset: &dyn Dataset, count: u64, file: usize, pixels: f64) -> f64 {
        let bytes: usize = (0..count)
            .map(|i| dataset.sample_files(i).unwrap()[file].bytes.len())
            .sum();
        bytes as f64 / count as f64 / pixels
    }

    #[test]
    fn files_weigh_what_real_ones_do() {
        // Real ones, measured by benchmarks/sample_realism.py: ImageNet 0.53 bytes per pixel,
        // CamVid at 960x720 1.55, its masks 0.016.
        let size = Size {
            height: 375,
            width: 500,
        };
        let photos = Classification {
            count: 16,
            classes: 8,
            seed: 0,
            size,
            quality: 94..=97,
        };
        let mean_pixels = 0.95 * size.pixels() as f64;
        let size = Size {
            height: 720,
            width: 960,
        };
        let streets = Segmentation {
            count: 2,
            classes: 12,
            seed: 0,
            size,
        };
        let pixels = size.pixels() as f64;

        let photo = bytes_per_pixel(&photos, photos.count, 0, mean_pixels);
        let image = bytes_per_pixel(&streets, streets.count, 0, pixels);
        let mask = bytes_per_pixel(&streets, streets.count, 1, pixels);

        assert!((0.35..0.75).contains(&photo), "{photo}");
        assert!((1.25..1.85).contains(&image), "{image}");
        assert!((0.012..0.021).contains(&mask), "{mask}");
    }

    #[test]
    fn a_folder_that_is_not_empty_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("mine.txt"), "kept").unwrap();

        let error = write_dataset(&tiny(), dir.path(), 1, &|_| true).unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn colours_of_masks_are_those_of_the_class_list() {
        let size = Size {
            height: 24,
            width: 32,
        };
        let streets = Segmentation {
            count: 1,
            classes: 12,
            seed: 0,
            size,
        };

        let files = streets.sample_files(0).unwrap();

        let mut reader = png::Decoder::new(io::Cursor::new(&files[1].bytes))
            .read_info()
            .unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let colours: Vec<[u8; 3]> = street_classes(12).iter().map(|c| c.colour).collect();
        assert!(
            pixels
                .chunks_exact(3)
                .all(|p| colours.iter().any(|c| c == p))
        );
    }
}
