//! Size and decoding time of lossless records against the files they are made from.
//!
//! `cargo run --release -p infeed-codec --example lossless -- FOLDER...` encodes every image of
//! the folders, and prints bytes and thread CPU time, medians over the images: the whole image,
//! and the region that a centre crop of half the sides needs. Files and records are decoded in
//! turn. With `--out FOLDER` first, the records are written there.

use std::path::PathBuf;
use std::time::Duration;

use infeed_codec::decode::{ColorMode, Decoder, Limits, Request};
use infeed_codec::lossless;
use infeed_core::sample::{Image, Region, Size};
use infeed_raw::machine::thread_cpu_time;

const ROUNDS: usize = 5;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let out = match &arguments[..] {
        [option, folder, ..] if option == "--out" => Some(PathBuf::from(folder)),
        _ => None,
    };
    if out.is_some() {
        arguments.drain(..2);
    }
    let mut files: Vec<PathBuf> = arguments
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("a folder"))
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let mut decoder = Decoder::new();
    let mut totals = Totals::default();
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
        for _ in 0..ROUNDS {
            for (at, bytes) in [file, record].into_iter().enumerate() {
                for (part, best) in best.iter_mut().enumerate() {
                    best[at] = best[at].min(decode(bytes, part == 1, decoder));
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

fn decode(bytes: &[u8], is_crop: bool, decoder: &mut Decoder) -> Duration {
    let mut out = Image::default();
    let start = thread_cpu_time();
    let header = decoder
        .header(bytes, false, &Limits::default())
        .expect("a header");
    decoder.check(bytes, &header, true).expect("an intact file");
    let mut request = Request::whole(&header, ColorMode::Rgb);
    if is_crop {
        let Size { height, width } = header.size;
        request.region = Region {
            top: height / 4,
            left: width / 4,
            size: Size {
                height: height.div_ceil(2),
                width: width.div_ceil(2),
            },
        };
    }
    decoder
        .decode(bytes, &header, &request, &mut out)
        .expect("pixels");
    thread_cpu_time().saturating_sub(start)
}
