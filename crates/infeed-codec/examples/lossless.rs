//! Size and decoding time of lossless records against the files they are made from.
//!
//! `cargo run --release -p infeed-codec --example lossless -- [--out OUT] [--crop SIDE] FOLDER...`
//! encodes every image of the folders, and prints bytes and thread CPU time, medians over the
//! images: the whole image, and the region that a centre crop needs, of half the sides or of at
//! most SIDE pixels. Files and records are decoded in turn. The records are written to OUT.

use std::path::PathBuf;
use std::time::Duration;

use infeed_codec::decode::{ColorMode, Decoder, Limits, Request};
use infeed_codec::lossless;
use infeed_core::sample::{Image, Region, Size};
use infeed_raw::machine::thread_cpu_time;

const ROUNDS: usize = 5;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut option = |wanted: &str| match &arguments[..] {
        [name, value, ..] if name == wanted => {
            let value = value.clone();
            arguments.drain(..2);
            Some(value)
        }
        _ => None,
    };
    let out = option("--out").map(PathBuf::from);
    let crop = option("--crop").map(|side| side.parse().expect("a number of pixels"));
    let mut files: Vec<PathBuf> = arguments
        .into_iter()
        .flat_map(|folder| std::fs::read_dir(&folder).expect("a folder"))
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let mut decoder = Decoder::new();
    let mut totals = Totals {
        crop_side: crop,
        ..Totals::default()
    };
    for path in files {
        let Ok(file) = std::fs::read(&path) else {
            continue;
        };
        let start = thread_cpu_time();
        match lossless::encode(&file, &mut decoder) {
            Ok(record) => {
                totals.encode += thread_cpu_time().saturating_sub(start);
                totals.exact += usize::from(record.restores_bytes);
                if let (Some(folder), Some(name)) = (&out, path.file_name()) {
                    std::fs::write(folder.join(name), &record.bytes).expect("a writable folder");
                }
                totals.add(&file, &record.bytes, &mut decoder);
            }
            Err(reason) => {
                totals.kept += 1;
                println!("{}: kept, {reason}", path.display());
            }
        }
    }
    totals.print();
}

#[derive(Default)]
struct Totals {
    crop_side: Option<u32>,
    bytes: [usize; 2],
    whole: [Vec<Duration>; 2],
    crop: [Vec<Duration>; 2],
    encode: Duration,
    exact: usize,
    kept: usize,
}

impl Totals {
    fn add(&mut self, file: &[u8], record: &[u8], decoder: &mut Decoder) {
        let mut best = [[Duration::MAX; 2]; 2];
        // Reused, as workers do: fresh memory costs a page fault per 4 kB.
        let mut out = Image::default();
        for _ in 0..ROUNDS {
            for (at, bytes) in [file, record].into_iter().enumerate() {
                for (part, best) in best.iter_mut().enumerate() {
                    let region = |size: Size| match part {
                        0 => size.whole(),
                        _ => centre(size, self.crop_side),
                    };
                    best[at] = best[at].min(decode(bytes, region, decoder, &mut out));
                }
            }
        }
        for (at, bytes) in [file, record].into_iter().enumerate() {
            self.bytes[at] += bytes.len();
            self.whole[at].push(best[0][at]);
            self.crop[at].push(best[1][at]);
        }
    }

    fn print(mut self) {
        let images = self.whole[0].len();
        if images == 0 {
            println!("no images");
            return;
        }
        println!(
            "{images} images, {} restored byte for byte, {} kept; {:.0} images/s encoded",
            self.exact,
            self.kept,
            images as f64 / self.encode.as_secs_f64()
        );
        println!(
            "bytes {:.0} and {:.0} per image, {:.3}x",
            self.bytes[0] as f64 / images as f64,
            self.bytes[1] as f64 / images as f64,
            self.bytes[1] as f64 / self.bytes[0] as f64
        );
        for (name, times) in [("whole", &mut self.whole), ("crop", &mut self.crop)] {
            let mean = |times: &[Duration]| {
                times.iter().sum::<Duration>().as_secs_f64() * 1e3 / times.len() as f64
            };
            let means = [mean(&times[0]), mean(&times[1])];
            let median = |times: &mut Vec<Duration>| {
                times.sort();
                times[times.len() / 2].as_secs_f64() * 1e3
            };
            let medians = [median(&mut times[0]), median(&mut times[1])];
            println!(
                "{name}: mean {:.3} and {:.3} ms, {:.2}x as fast; median {:.3} and {:.3} ms",
                means[0],
                means[1],
                means[0] / means[1],
                medians[0],
                medians[1]
            );
        }
    }
}

fn decode(
    bytes: &[u8],
    region: impl Fn(Size) -> Region,
    decoder: &mut Decoder,
    out: &mut Image,
) -> Duration {
    let start = thread_cpu_time();
    let header = decoder
        .header(bytes, false, &Limits::default())
        .expect("a header");
    decoder.check(bytes, &header, true).expect("an intact file");
    let mut request = Request::whole(&header, ColorMode::Rgb);
    request.region = region(header.size);
    decoder
        .decode(bytes, &header, &request, out)
        .expect("pixels");
    thread_cpu_time().saturating_sub(start)
}

/// Returns the centre of an image.
fn centre(size: Size, side: Option<u32>) -> Region {
    let length = |full: u32| side.unwrap_or(full.div_ceil(2)).min(full);
    let part = Size {
        height: length(size.height),
        width: length(size.width),
    };
    Region {
        top: (size.height - part.height) / 2,
        left: (size.width - part.width) / 2,
        size: part,
    }
}
