//! JPEGs on a simulated device: decoded by libjpeg-turbo on the thread of the stream, so that the
//! pixels are the host's.

use std::sync::{Arc, Mutex};

use infeed_raw::jpeg::{JpegDecoder, JpegError, JpegTask, PixelFormat, Window};
use infeed_raw::jpeg_batch::{self, Place, Refusal, Refused, Taken};

use super::line::{Work, lock};
use super::memory::{self, SimMemory};
use super::races::ViolationKind;
use super::state::Found;
use crate::device::HostSource;
use crate::device::jpeg::Later;

/// What the library is called in a refusal.
pub(super) const LIBRARY: &str = "libjpeg-turbo";

/// A decoder of a simulated device.
#[derive(Debug)]
pub struct SimDecoder {
    /// Which device, so that a decoder of another is noticed.
    pub(super) device: u64,
    pub(super) pixels_per_s: f64,
    /// Shared with batches under way, which may be on several streams.
    decoder: Arc<Mutex<JpegDecoder>>,
}

/// Why there is no decoder.
#[derive(Debug, thiserror::Error)]
#[error("the simulated device was made without one; leave `jpeg=none` out of its name")]
pub(super) struct MadeWithout;

impl SimDecoder {
    pub(super) fn new(device: u64, pixels_per_s: f64) -> Result<SimDecoder, JpegError> {
        let decoder = Arc::new(Mutex::new(JpegDecoder::new()?));
        Ok(SimDecoder {
            device,
            pixels_per_s,
            decoder,
        })
    }
}

/// The files of a batch that are to be decoded.
pub(super) struct Files(Vec<File>);

struct File {
    taken: Taken,
    place: Place,
    source: HostSource,
    /// What its bytes looked like when it was enqueued.
    looked: u64,
}

impl File {
    fn bytes(&self) -> &[u8] {
        let bytes = (*self.source).as_ref();
        bytes.get(..self.taken.header.len).unwrap_or(&[])
    }
}

impl Files {
    /// Those of a batch that are taken, and the others. There is a place for each.
    pub(super) fn of(jpegs: &[HostSource], places: &[Place]) -> (Files, Vec<Refused>) {
        let bytes: Vec<&[u8]> = jpegs.iter().map(|source| (**source).as_ref()).collect();
        let (taken, refused) = jpeg_batch::sort_out(&bytes, places);
        let file = |taken: Taken| File {
            taken,
            place: places[taken.row],
            source: Arc::clone(&jpegs[taken.row]),
            looked: memory::look(&bytes[taken.row][..taken.header.len]),
        };
        (Files(taken.into_iter().map(file).collect()), refused)
    }

    /// Bytes that cross the bus.
    pub(super) fn encoded(&self) -> u64 {
        self.0.iter().map(|file| file.taken.header.len as u64).sum()
    }

    /// Pixels that they become.
    pub(super) fn pixels(&self) -> u64 {
        let pixels = |place: &Place| u64::from(place.height) * u64::from(place.width);
        self.0.iter().map(|file| pixels(&file.place)).sum()
    }

    /// What the stream does: decodes each, and tells which are broken.
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
                if memory::look(file.bytes()) != file.looked {
                    let wrong = vec![(ViolationKind::HostChanged, None)];
                    found.add(stream, to.number, wrong);
                }
                if let Err(why) = one(&mut lock(&decoder), &file, &to) {
                    let row = file.taken.row;
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
    let decoded = decoder.decode(file.bytes(), &task, &mut pixels);
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

    fn sources(files: &[Vec<u8>]) -> Vec<HostSource> {
        let source = |file: &Vec<u8>| Arc::new(file.clone()) as HostSource;
        files.iter().map(source).collect()
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

        let decoding = sim.decode(queue, &mut decoder, &sources(&files), &to, &places);
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
        let files = [
            good.clone(),
            progressive,
            scan,
            good[..200].to_vec(),
            good.clone(),
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

        let decoding = sim.decode(queue, &mut decoder, &sources(&files), &to, &places);
        let decoding = decoding.expect("a batch");
        sim.record(&done, queue).expect("a record");
        sim.synchronize(&done).expect("no fault");

        let refused = decoding.refused();
        let rows: Vec<_> = refused.iter().map(|refused| refused.row).collect();
        assert_eq!(rows, [1, 2, 3]);
        assert!(refused[0].why.to_string().contains("is progressive"));
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

        let files = sources(&[file.clone(), file]);
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
        let files = sources(&[jpeg(4, 8, 8, Subsampling::Gray)]);
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
        let files = sources(&[jpeg(5, 8, 8, Subsampling::Gray)]);
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
