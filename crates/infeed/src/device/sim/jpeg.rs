//! JPEGs on a simulated device: decoded by libjpeg-turbo, so that the pixels are the host's.
//!
//! A decoder is an engine with a separate stream, which waits for no other: as the engines of GPUs do, it
//! writes as soon as it is called, and the stream of the call then waits for the engine.

use std::sync::{Arc, Mutex};

use infeed_raw::jpeg::{JpegDecoder, JpegError, JpegTask, PixelFormat, Window};
use infeed_raw::jpeg_batch::{Place, Refusal, Refused, ScannedJpeg};

use super::line::{Work, lock};
use super::memory::{self, SimMemory};
use super::races::ViolationKind;
use super::state::Found;
use crate::decode::{self, Limits};
use crate::device::jpeg::Later;
use crate::sample::Size;

/// Name of the library in a refusal.
pub(super) const LIBRARY: &str = "libjpeg-turbo";

/// A decoder of a simulated device.
#[derive(Debug)]
pub struct SimDecoder {
    /// Which device, so that a decoder of another is noticed.
    pub(super) device: u64,
    /// Number of the stream of its engine.
    pub(super) engine: usize,
    pub(super) pixels_per_s: f64,
    /// Shared with batches under way, which may be on several streams.
    decoder: Arc<Mutex<JpegDecoder>>,
}

/// Why there is no decoder.
#[derive(Debug, thiserror::Error)]
#[error("the simulated device was made without one; leave `jpeg=none` out of its name")]
pub(super) struct MadeWithout;

impl SimDecoder {
    pub(super) fn new(
        device: u64,
        engine: usize,
        pixels_per_s: f64,
    ) -> Result<SimDecoder, JpegError> {
        let decoder = Arc::new(Mutex::new(JpegDecoder::new()?));
        Ok(SimDecoder {
            device,
            engine,
            pixels_per_s,
            decoder,
        })
    }
}

/// The files of a batch that are to be decoded.
pub(super) struct Files(Vec<File>);

struct File {
    row: usize,
    place: Place,
    jpeg: ScannedJpeg,
    /// Hash of its bytes when it was enqueued.
    looked: u64,
}

/// Checks that the library reads the size of the place from a file, and that the file is of a kind that
/// engines take: as NVIDIA's library does, by the header alone.
fn agrees(bytes: &[u8], place: &Place) -> Result<(), Refusal> {
    let refused = |what: String| Refusal::Decoder {
        decoder: LIBRARY,
        what,
    };
    let header = decode::Decoder::new().header(bytes, false, &Limits::default());
    let header = header.map_err(|error| refused(error.to_string()))?;
    let size = Size {
        height: place.height,
        width: place.width,
    };
    if header.size != size {
        return Err(refused(format!("it reads {}", header.size)));
    }
    match header.has_several_scans() {
        true => Err(refused("it decodes no files of several scans".to_owned())),
        false => Ok(()),
    }
}

impl Files {
    /// Those of a batch that are taken, and the others. There is a place for each.
    pub(super) fn of(jpegs: &[ScannedJpeg], places: &[Place]) -> (Files, Vec<Refused>) {
        let (mut files, mut refused) = (Vec::with_capacity(jpegs.len()), Vec::new());
        for (row, (jpeg, place)) in jpegs.iter().zip(places).enumerate() {
            let checked = jpeg.check(place);
            match checked.and_then(|()| agrees(jpeg.bytes(), place)) {
                Ok(()) => files.push(File {
                    row,
                    place: *place,
                    jpeg: jpeg.clone(),
                    looked: memory::look(jpeg.bytes()),
                }),
                Err(why) => refused.push(Refused { row, why }),
            }
        }
        (Files(files), refused)
    }

    /// Bytes that cross the bus.
    pub(super) fn encoded(&self) -> u64 {
        let encoded = |file: &File| file.jpeg.bytes().len() as u64;
        self.0.iter().map(encoded).sum()
    }

    /// Pixels that they become.
    pub(super) fn pixels(&self) -> u64 {
        let pixels = |place: &Place| u64::from(place.height) * u64::from(place.width);
        self.0.iter().map(|file| pixels(&file.place)).sum()
    }

    /// The engine's work: decodes each, and reports which are broken.
    pub(super) fn work(
        self,
        with: &SimDecoder,
        to: &Arc<SimMemory>,
        stream: usize,
        found: &Arc<Found>,
        later: &Later,
    ) -> Work {
        let (decoder, to) = (Arc::clone(&with.decoder), Arc::clone(to));
        let (found, later) = (Arc::clone(found), Arc::clone(later));
        Box::new(move || {
            for file in self.0 {
                if memory::look(file.jpeg.bytes()) != file.looked {
                    let wrong = vec![(ViolationKind::HostChanged, None)];
                    found.add(stream, to.number, wrong);
                }
                if let Err(why) = one(&mut lock(&decoder), &file, &to) {
                    let row = file.row;
                    lock(&later).push(Refused { row, why });
                }
            }
        })
    }
}

/// Decodes a file into its place. Of one that is broken, the place is zeros.
fn one(decoder: &mut JpegDecoder, file: &File, to: &SimMemory) -> Result<(), Refusal> {
    let Place {
        height,
        width,
        row_bytes,
        ..
    } = file.place;
    let task = JpegTask {
        width,
        height,
        eighths: 8,
        window: Window {
            top: 0,
            left: 0,
            height,
            width,
        },
        format: PixelFormat::Rgb,
        max_scans: 1,
        // One scan holds a few rows at a time, of a size whose place is there.
        max_memory_mib: u16::MAX,
    };
    let line = width as usize * 3;
    let mut pixels = vec![0; line * height as usize];
    let decoded = decoder.decode(file.jpeg.bytes(), &task, &mut pixels);
    if decoded.is_err() {
        pixels.fill(0);
    }
    let mut memory = lock(&to.bytes);
    let rows = memory[file.place.offset..].chunks_mut(row_bytes);
    for (row, pixels) in rows.zip(pixels.chunks_exact(line)) {
        row[..line].copy_from_slice(pixels);
    }
    decoded.map(|_| ()).map_err(|error| Refusal::Decoder {
        decoder: LIBRARY,
        what: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use infeed_raw::jpeg_encode::{Subsampling, encode, encode_with_restarts};

    use super::super::{Sim, SimConfig, SimQueue};
    use super::*;
    use crate::decode::{ColorMode, Decoder, Limits, Request};
    use crate::device::{Device, DeviceError};
    use crate::sample::Image;

    const SAMPLINGS: [Subsampling; 5] = [
        Subsampling::None,
        Subsampling::Half,
        Subsampling::HalfRows,
        Subsampling::Quarter,
        Subsampling::Gray,
    ];

    /// A JPEG of noise, of which every byte matters.
    fn jpeg(key: u64, height: u32, width: u32, subsampling: Subsampling) -> Vec<u8> {
        let words = (0..u64::from(height * width * 3)).map(|n| crate::random::hash(&[key, n]));
        let rgb: Vec<u8> = words.map(|word| word as u8).collect();
        encode(&rgb, width, height, 85, subsampling).expect("it encodes")
    }

    /// The pixels that the engine's own decoder gives on the host.
    fn on_host(bytes: &[u8]) -> Vec<u8> {
        let mut decoder = Decoder::new();
        let header = decoder.header(bytes, false, &Limits::default());
        let header = header.expect("a header");
        let request = Request::whole(&header, ColorMode::Rgb);
        let mut image = Image::default();
        let decoded = decoder.decode(bytes, &header, &request, &mut image);
        decoded.expect("it decodes");
        image.data
    }

    fn scanned(files: &[Vec<u8>]) -> Vec<ScannedJpeg> {
        let scan = |file: &Vec<u8>| ScannedJpeg::scan(Arc::new(file.clone()));
        files
            .iter()
            .map(|file| scan(file).expect("a plain file"))
            .collect()
    }

    fn made(text: &str) -> (Sim, SimQueue, SimDecoder) {
        let sim = Sim::parse(text).expect("a device");
        let queue = sim.stream().expect("a stream");
        let decoder = sim.decoder(&Default::default()).expect("a decoder");
        (sim, queue, decoder)
    }

    #[test]
    fn pixels_on_the_device_are_those_of_the_host() {
        let (sim, queue, mut decoder) = made("sim:latency=0ns");
        let (height, width) = (19, 37);
        let files: Vec<_> = SAMPLINGS
            .iter()
            .map(|&s| jpeg(1, height, width, s))
            .collect();
        // From line to line and from image to image there is more than pixels.
        let row_bytes = 128;
        let image = height as usize * row_bytes;
        let place = |n: usize| Place {
            offset: 64 + n * (image + 64),
            row_bytes,
            height,
            width,
        };
        let places: Vec<_> = (0..files.len()).map(place).collect();
        let to = sim.memory(64 + files.len() * (image + 64)).expect("memory");

        let decoding = sim.decode(queue, &mut decoder, &scanned(&files), &to, &places);
        let decoding = decoding.expect("a batch");
        let all = sim.len(&to) - 64;
        let read = sim.read(queue, &to, all, Duration::ZERO);
        drop(read.expect("a read").bytes());
        assert!(decoding.refused().is_empty());
        drop(decoding);

        let seen = to.first(sim.len(&to));
        for (file, place) in files.iter().zip(&places) {
            let rows = seen[place.offset..].chunks(row_bytes).take(height as usize);
            let line = width as usize * 3;
            let pixels: Vec<u8> = rows.flat_map(|row| row[..line].to_vec()).collect();
            assert!(pixels == on_host(file));
        }
        // That the first bytes, before all places, were read unwritten is found.
        let wrong: Vec<_> = sim.violations().iter().map(|v| v.kind).collect();
        assert_eq!(wrong, [ViolationKind::ReadUnwritten]);
    }

    #[test]
    fn files_that_are_not_decoded_are_named_and_the_others_are() {
        let (sim, queue, mut decoder) = made("sim:latency=0ns");
        let good = jpeg(2, 16, 16, Subsampling::Quarter);
        let mut progressive = good.clone();
        let frame = good.windows(2).position(|pair| pair == [0xFF, 0xC0]);
        progressive[frame.expect("a frame") + 1] = 0xC2;
        // Plain by its markers, and its scan is nonsense.
        let rgb = vec![7; 64 * 64 * 3];
        let whole = encode_with_restarts(&rgb, 64, 64, 85, Subsampling::None, 8);
        let mut scan = whole.expect("it encodes");
        let start = scan.windows(2).position(|pair| pair == [0xFF, 0xDA]);
        let start = start.expect("a scan") + 14;
        let end = scan[start..].iter().position(|&byte| byte == 0xFF);
        scan[start..start + end.expect("a marker")].fill(0xAA);
        let plain = ScannedJpeg::scan(Arc::new(good.clone())).expect("a plain file");
        // Files that are not what their scan has found.
        let changed = |bytes: &[u8]| ScannedJpeg {
            source: Arc::new(bytes.to_vec()),
            ..plain.clone()
        };
        let files = [
            plain.clone(),
            changed(&progressive),
            ScannedJpeg::scan(Arc::new(scan)).expect("plain by its markers"),
            changed(&good[..200]),
            plain.clone(),
        ];
        let places = [
            Place::dense(0, 16, 16),
            Place::dense(1000, 16, 16),
            Place::dense(2000, 64, 64),
            Place::dense(15_000, 16, 16),
            Place::dense(16_000, 16, 16),
        ];
        let to = sim.memory(20_000).expect("memory");
        let done = sim.event(false).expect("an event");

        let decoding = sim.decode(queue, &mut decoder, &files, &to, &places);
        let decoding = decoding.expect("a batch");
        sim.record(&done, queue).expect("a record");
        sim.synchronize(&done).expect("no fault");

        let refused = decoding.refused();
        let rows: Vec<_> = refused.iter().map(|refused| refused.row).collect();
        assert_eq!(rows, [1, 2, 3]);
        assert!(refused[0].why.to_string().contains("several scans"));
        assert!(refused[1].why.to_string().contains("libjpeg-turbo refuses"));
        assert!(refused[1].why.is_for_the_host(), "it says what is wrong");
        assert!(!refused[2].why.is_for_the_host());
        let seen = to.first(20_000);
        let expected = on_host(&good);
        for at in [0, 16_000] {
            assert!(seen[at..at + expected.len()] == expected[..]);
        }
        assert!(seen[2000..2000 + 64 * 64 * 3].iter().all(|&byte| byte == 0));
        assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    }

    #[test]
    fn a_file_that_was_scanned_is_not_scanned_again() {
        let (sim, queue, mut decoder) = made("sim:latency=0ns");
        let mut file = jpeg(6, 16, 16, Subsampling::Half);
        let scan = ScannedJpeg::scan(Arc::new(file.clone())).expect("a plain file");
        let frame = file.windows(2).position(|pair| pair == [0xFF, 0xC0]);
        // Extended sequential: decoded as baseline, and refused by a scan.
        file[frame.expect("a frame") + 1] = 0xC1;
        assert!(ScannedJpeg::scan(Arc::new(file.clone())).is_err());
        let files = [ScannedJpeg {
            source: Arc::new(file.clone()),
            ..scan
        }];
        let to = sim.memory(768).expect("memory");
        let done = sim.event(false).expect("an event");

        let places = [Place::dense(0, 16, 16)];
        let decoding = sim.decode(queue, &mut decoder, &files, &to, &places);
        let decoding = decoding.expect("a batch");
        sim.record(&done, queue).expect("a record");
        sim.synchronize(&done).expect("no fault");

        assert!(decoding.refused().is_empty(), "{:?}", decoding.refused());
        assert!(to.first(768) == on_host(&file));
    }

    #[test]
    fn a_decoder_does_not_wait_for_its_stream() {
        let (sim, queue, mut decoder) = made("sim:latency=0ns");
        let other = sim.stream().expect("a stream");
        let files = scanned(&[jpeg(7, 8, 8, Subsampling::Gray)]);
        let (to, places) = (sim.memory(192).expect("memory"), [Place::dense(0, 8, 8)]);
        let read = sim.event(false).expect("an event");
        let mut decode_behind_a_read = |waits_on_host: bool| {
            let first = sim.decode(queue, &mut decoder, &files, &to, &places);
            drop(first.expect("a batch"));
            sim.record(&read, queue).expect("a record");
            sim.wait(other, &read).expect("a wait");
            let seen = sim.read(other, &to, 192, Duration::from_micros(50));
            sim.record(&read, other).expect("a record");
            sim.wait(queue, &read).expect("a wait");
            if waits_on_host {
                sim.synchronize(&read).expect("no fault");
            }
            let second = sim.decode(queue, &mut decoder, &files, &to, &places);
            drop(second.expect("a batch"));
            drop(seen.expect("a read").bytes());
            sim.record(&read, queue).expect("a record");
            sim.synchronize(&read).expect("no fault");
            sim.violations().len()
        };

        assert_eq!(decode_behind_a_read(true), 0);
        assert!(decode_behind_a_read(false) > 0);
        let kinds = sim.violations();
        assert_eq!(kinds[0].kind, ViolationKind::OverwrittenBeforeRead);
    }

    #[test]
    fn a_batch_takes_its_time_on_the_bus_and_then_by_its_pixels() {
        let sim = Sim::with_own_clock(SimConfig {
            bandwidth_bytes_per_s: 1e9,
            jpeg_pixels_per_s: Some(1e8),
            latency: Duration::from_nanos(100),
            ..SimConfig::default()
        });
        let queue = sim.stream().expect("a stream");
        let mut decoder = sim.decoder(&Default::default()).expect("a decoder");
        let file = jpeg(3, 16, 16, Subsampling::None);
        let len = file.len() as u64;
        let to = sim.memory(2000).expect("memory");
        let places = [Place::dense(0, 16, 16), Place::dense(1000, 16, 16)];

        let files = scanned(&[file.clone(), file]);
        let decoding = sim.decode(queue, &mut decoder, &files, &to, &places);
        drop(decoding.expect("a batch"));

        // Two commands; 512 pixels at 10 ns each.
        let expected = Duration::from_nanos(2 * len + 100 + 5120 + 100);
        assert_eq!(sim.end_of(queue).expect("its stream"), expected);
    }

    #[test]
    fn pixels_that_are_read_before_they_are_there_are_found() {
        let (sim, queue, mut decoder) = made("sim");
        let other = sim.stream().expect("a stream");
        let files = scanned(&[jpeg(4, 8, 8, Subsampling::Gray)]);
        let (to, places) = (sim.memory(192).expect("memory"), [Place::dense(0, 8, 8)]);

        let decoding = sim.decode(queue, &mut decoder, &files, &to, &places);
        let read = sim.read(other, &to, 192, Duration::ZERO);

        drop(read.expect("a read").bytes());
        drop(decoding.expect("a batch"));
        let wrong: Vec<_> = sim.violations().iter().map(|v| v.kind).collect();
        assert_eq!(wrong, [ViolationKind::ReadBeforeReady]);
    }

    #[test]
    fn what_cannot_be_right_is_refused_and_the_device_works_on() {
        let (sim, queue, mut decoder) = made("sim:latency=0ns");
        let files = scanned(&[jpeg(5, 8, 8, Subsampling::Gray)]);
        let to = sim.memory(192).expect("memory");
        for places in [
            vec![],
            vec![Place::dense(1, 8, 8)],
            vec![Place::dense(0, 8, 9)],
        ] {
            let refused = sim.decode(queue, &mut decoder, &files, &to, &places);
            assert!(
                matches!(refused, Err(DeviceError::Refused { .. })),
                "{places:?}"
            );
        }
        let (_, _, mut foreign) = made("sim");
        let places = [Place::dense(0, 8, 8)];
        let refused = sim.decode(queue, &mut foreign, &files, &to, &places);
        assert!(matches!(refused, Err(DeviceError::Failed { .. })));

        let decoding = sim.decode(queue, &mut decoder, &files, &to, &places);
        assert!(decoding.expect("a batch").refused().is_empty());
    }

    #[test]
    fn a_device_without_a_decoder_says_how_to_get_one() {
        let sim = Sim::parse("sim:jpeg=none").expect("a device");
        assert_eq!(sim.name(), "sim:jpeg=none");

        let Err(DeviceError::NoDecoder { source }) = sim.decoder(&Default::default()) else {
            panic!("it was made without one");
        };

        assert!(source.to_string().contains("leave `jpeg=none` out"));
        assert!(Sim::parse("sim:jpeg=0").is_err());
        let fast = Sim::parse("sim:jpeg=4e9").expect("a device");
        assert_eq!(
            (fast.config().jpeg_pixels_per_s, fast.name().as_str()),
            (Some(4e9), "sim:jpeg=4e9")
        );
    }
}
