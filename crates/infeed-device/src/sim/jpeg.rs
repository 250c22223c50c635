//! JPEG decoding on a simulated device. It uses libjpeg-turbo, so the pixels equal the host's.
//!
//! As on GPUs, a decoder is an engine with a separate stream that waits for no other stream: it
//! writes as soon as it is called, and the stream of the call then waits for the engine.

use std::sync::{Arc, Mutex};

use infeed_raw::jpeg::{JpegDecoder, JpegError, JpegTask};
use infeed_raw::jpeg_batch::{ImagePosition, RejectedFile, Rejection, ScannedJpeg};

use super::memory::{self, SimMemory};
use super::races::ViolationKind;
use super::state::Faults;
use super::stream_thread::{CommandWork, lock};
use crate::jpeg::LateRejections;
use infeed_codec::decode::{self, Limits};
use infeed_core::sample::Size;

/// Name of the library in rejections.
pub(super) const LIBRARY: &str = "libjpeg-turbo";

/// A decoder of a simulated device.
#[derive(Debug)]
pub struct SimDecoder {
    /// Number of the device, so that other devices reject this decoder.
    pub(super) device: u64,
    /// Number of the engine's stream.
    pub(super) engine: usize,
    pub(super) pixels_per_s: f64,
    /// Shared with batches in flight, which may be on several streams.
    decoder: Arc<Mutex<JpegDecoder>>,
}

/// The device was created without a decoder.
#[derive(Debug, thiserror::Error)]
#[error("the simulated device has no decoder; remove `jpeg=none` from its name")]
pub(super) struct DecoderDisabled;

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

/// The files of a batch to decode.
pub(super) struct JpegBatch(Vec<JpegFile>);

struct JpegFile {
    row: usize,
    position: ImagePosition,
    jpeg: ScannedJpeg,
    /// Hash of the file's bytes when it was enqueued.
    enqueued_hash: u64,
}

/// Checks that the library reads the position's size from a file, and that engines accept its kind.
/// Like NVIDIA's library, it reads only the header.
fn check_header(bytes: &[u8], position: &ImagePosition) -> Result<(), Rejection> {
    let rejected = |what: String| Rejection::Decoder {
        decoder: LIBRARY,
        what,
    };
    let header = decode::Decoder::new().header(bytes, false, &Limits::default());
    let header = header.map_err(|error| rejected(error.to_string()))?;
    let size = Size {
        height: position.height,
        width: position.width,
    };
    if header.size != size {
        return Err(rejected(format!("it reads {}", header.size)));
    }
    match header.has_several_scans() {
        true => Err(rejected(
            "files with several scans are not supported".to_owned(),
        )),
        false => Ok(()),
    }
}

impl JpegBatch {
    /// Divides a batch into accepted and rejected files. There must be one position for each file.
    pub(super) fn of(
        jpegs: &[ScannedJpeg],
        positions: &[ImagePosition],
    ) -> (JpegBatch, Vec<RejectedFile>) {
        let (mut files, mut rejected) = (Vec::with_capacity(jpegs.len()), Vec::new());
        for (row, (jpeg, position)) in jpegs.iter().zip(positions).enumerate() {
            let checked = jpeg.check(position);
            match checked.and_then(|()| check_header(jpeg.bytes(), position)) {
                Ok(()) => files.push(JpegFile {
                    row,
                    position: *position,
                    jpeg: jpeg.clone(),
                    enqueued_hash: memory::sample_hash(jpeg.bytes()),
                }),
                Err(why) => rejected.push(RejectedFile { row, why }),
            }
        }
        (JpegBatch(files), rejected)
    }

    /// Returns the number of bytes that cross the bus.
    pub(super) fn encoded_bytes(&self) -> u64 {
        let encoded = |file: &JpegFile| file.jpeg.bytes().len() as u64;
        self.0.iter().map(encoded).sum()
    }

    /// Returns the number of pixels to decode.
    pub(super) fn pixels(&self) -> u64 {
        let pixels =
            |position: &ImagePosition| u64::from(position.height) * u64::from(position.width);
        self.0.iter().map(|file| pixels(&file.position)).sum()
    }

    /// Decodes each file, and reports the broken ones. Runs as the engine's command.
    pub(super) fn work(
        self,
        with: &SimDecoder,
        to: &Arc<SimMemory>,
        stream: usize,
        found: &Arc<Faults>,
        later: &LateRejections,
    ) -> CommandWork {
        let (decoder, to) = (Arc::clone(&with.decoder), Arc::clone(to));
        let (found, later) = (Arc::clone(found), Arc::clone(later));
        Box::new(move || {
            for file in self.0 {
                if memory::sample_hash(file.jpeg.bytes()) != file.enqueued_hash {
                    let wrong = vec![(ViolationKind::HostChanged, None)];
                    found.add(stream, to.number, wrong);
                }
                if let Err(why) = decode_file(&mut lock(&decoder), &file, &to) {
                    let row = file.row;
                    lock(&later).push(RejectedFile { row, why });
                }
            }
        })
    }
}

/// Decodes a file into its position. A broken file leaves zeros.
fn decode_file(
    decoder: &mut JpegDecoder,
    file: &JpegFile,
    to: &SimMemory,
) -> Result<(), Rejection> {
    let ImagePosition {
        height,
        width,
        row_bytes,
        ..
    } = file.position;
    let task = JpegTask {
        // The scan of a baseline file needs only a few rows, and its position bounds its size.
        max_memory_mib: u16::MAX,
        ..JpegTask::whole(width, height)
    };
    let line = width as usize * 3;
    let mut pixels = vec![0; line * height as usize];
    let decoded = decoder.decode(file.jpeg.bytes(), &task, &mut pixels);
    if decoded.is_err() {
        pixels.fill(0);
    }
    let mut memory = lock(&to.bytes);
    let rows = memory[file.position.offset..].chunks_mut(row_bytes);
    for (row, pixels) in rows.zip(pixels.chunks_exact(line)) {
        row[..line].copy_from_slice(pixels);
    }
    decoded.map(|_| ()).map_err(|error| Rejection::Decoder {
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
    use crate::{Device, DeviceError};
    use infeed_codec::decode::{ColorMode, Decoder, Limits, Request};
    use infeed_core::sample::Image;

    const SAMPLINGS: [Subsampling; 5] = [
        Subsampling::None,
        Subsampling::Half,
        Subsampling::HalfRows,
        Subsampling::Quarter,
        Subsampling::Gray,
    ];

    /// Encodes noise, so that every byte of the JPEG matters.
    fn jpeg(key: u64, height: u32, width: u32, subsampling: Subsampling) -> Vec<u8> {
        let words =
            (0..u64::from(height * width * 3)).map(|n| infeed_core::random::hash(&[key, n]));
        let rgb: Vec<u8> = words.map(|word| word as u8).collect();
        encode(&rgb, width, height, 85, subsampling).expect("it encodes")
    }

    /// Decodes a file on the host with the engine's library.
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

    fn scan_all(files: &[Vec<u8>]) -> Vec<ScannedJpeg> {
        let scan = |file: &Vec<u8>| ScannedJpeg::scan(Arc::new(file.clone()));
        files
            .iter()
            .map(|file| scan(file).expect("a plain file"))
            .collect()
    }

    fn open_sim(text: &str) -> (Sim, SimQueue, SimDecoder) {
        let sim = Sim::parse(text).expect("a device");
        let queue = sim.stream().expect("a stream");
        let decoder = sim.decoder(&Default::default()).expect("a decoder");
        (sim, queue, decoder)
    }

    #[test]
    fn pixels_on_the_device_are_those_of_the_host() {
        let (sim, queue, mut decoder) = open_sim("sim:latency=0ns");
        let (height, width) = (19, 37);
        let files: Vec<_> = SAMPLINGS
            .iter()
            .map(|&s| jpeg(1, height, width, s))
            .collect();
        // Lines and images are padded.
        let row_bytes = 128;
        let image = height as usize * row_bytes;
        let position = |n: usize| ImagePosition {
            offset: 64 + n * (image + 64),
            row_bytes,
            height,
            width,
        };
        let positions: Vec<_> = (0..files.len()).map(position).collect();
        let to = sim.memory(64 + files.len() * (image + 64)).expect("memory");

        let decoding = sim.decode(queue, &mut decoder, &scan_all(&files), &to, &positions);
        let decoding = decoding.expect("a batch");
        let all = sim.len(&to) - 64;
        let read = sim.read(queue, &to, all, Duration::ZERO);
        drop(read.expect("a read").bytes());
        assert!(decoding.rejected_files().is_empty());
        drop(decoding);

        let seen = to.first(sim.len(&to));
        for (file, position) in files.iter().zip(&positions) {
            let rows = seen[position.offset..]
                .chunks(row_bytes)
                .take(height as usize);
            let line = width as usize * 3;
            let pixels: Vec<u8> = rows.flat_map(|row| row[..line].to_vec()).collect();
            assert!(pixels == on_host(file));
        }
        // The copy reads the padding, which was never written, and the device reports it.
        let wrong: Vec<_> = sim.violations().iter().map(|v| v.kind).collect();
        assert_eq!(wrong, [ViolationKind::ReadUnwritten]);
    }

    #[test]
    fn files_that_cannot_be_decoded_are_named_and_the_others_are_decoded() {
        let (sim, queue, mut decoder) = open_sim("sim:latency=0ns");
        let good = jpeg(2, 16, 16, Subsampling::Quarter);
        let mut progressive = good.clone();
        let frame = good.windows(2).position(|pair| pair == [0xFF, 0xC0]);
        progressive[frame.expect("a frame") + 1] = 0xC2;
        // The markers are valid, the entropy-coded data is not.
        let rgb = vec![7; 64 * 64 * 3];
        let whole = encode_with_restarts(&rgb, 64, 64, 85, Subsampling::None, 8);
        let mut scan = whole.expect("it encodes");
        let start = scan.windows(2).position(|pair| pair == [0xFF, 0xDA]);
        let start = start.expect("a scan") + 14;
        let end = scan[start..].iter().position(|&byte| byte == 0xFF);
        scan[start..start + end.expect("a marker")].fill(0xAA);
        let plain = ScannedJpeg::scan(Arc::new(good.clone())).expect("a plain file");
        // These files differ from the result of their scan.
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
        let positions = [
            ImagePosition::dense(0, 16, 16),
            ImagePosition::dense(1000, 16, 16),
            ImagePosition::dense(2000, 64, 64),
            ImagePosition::dense(15_000, 16, 16),
            ImagePosition::dense(16_000, 16, 16),
        ];
        let to = sim.memory(20_000).expect("memory");
        let done = sim.event(false).expect("an event");

        let decoding = sim.decode(queue, &mut decoder, &files, &to, &positions);
        let decoding = decoding.expect("a batch");
        sim.record(&done, queue).expect("a record");
        sim.synchronize(&done).expect("no fault");

        let rejected = decoding.rejected_files();
        let rows: Vec<_> = rejected.iter().map(|rejected| rejected.row).collect();
        assert_eq!(rows, [1, 2, 3]);
        assert!(rejected[0].why.to_string().contains("several scans"));
        assert!(
            rejected[1]
                .why
                .to_string()
                .contains("libjpeg-turbo rejects")
        );
        assert!(rejected[1].why.is_for_the_host(), "it says what is wrong");
        assert!(!rejected[2].why.is_for_the_host());
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
        let (sim, queue, mut decoder) = open_sim("sim:latency=0ns");
        let mut file = jpeg(6, 16, 16, Subsampling::Half);
        let scan = ScannedJpeg::scan(Arc::new(file.clone())).expect("a plain file");
        let frame = file.windows(2).position(|pair| pair == [0xFF, 0xC0]);
        // Extended sequential: the decoder accepts it like baseline, but a scan rejects it.
        file[frame.expect("a frame") + 1] = 0xC1;
        assert!(ScannedJpeg::scan(Arc::new(file.clone())).is_err());
        let files = [ScannedJpeg {
            source: Arc::new(file.clone()),
            ..scan
        }];
        let to = sim.memory(768).expect("memory");
        let done = sim.event(false).expect("an event");

        let positions = [ImagePosition::dense(0, 16, 16)];
        let decoding = sim.decode(queue, &mut decoder, &files, &to, &positions);
        let decoding = decoding.expect("a batch");
        sim.record(&done, queue).expect("a record");
        sim.synchronize(&done).expect("no fault");

        assert!(
            decoding.rejected_files().is_empty(),
            "{:?}",
            decoding.rejected_files()
        );
        assert!(to.first(768) == on_host(&file));
    }

    #[test]
    fn a_decoder_does_not_wait_for_its_stream() {
        let (sim, queue, mut decoder) = open_sim("sim:latency=0ns");
        let other = sim.stream().expect("a stream");
        let files = scan_all(&[jpeg(7, 8, 8, Subsampling::Gray)]);
        let (to, positions) = (
            sim.memory(192).expect("memory"),
            [ImagePosition::dense(0, 8, 8)],
        );
        let read = sim.event(false).expect("an event");
        let mut decode_behind_a_read = |waits_on_host: bool| {
            let first = sim.decode(queue, &mut decoder, &files, &to, &positions);
            drop(first.expect("a batch"));
            sim.record(&read, queue).expect("a record");
            sim.wait(other, &read).expect("a wait");
            let seen = sim.read(other, &to, 192, Duration::from_micros(50));
            sim.record(&read, other).expect("a record");
            sim.wait(queue, &read).expect("a wait");
            if waits_on_host {
                sim.synchronize(&read).expect("no fault");
            }
            let second = sim.decode(queue, &mut decoder, &files, &to, &positions);
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
        let positions = [
            ImagePosition::dense(0, 16, 16),
            ImagePosition::dense(1000, 16, 16),
        ];

        let files = scan_all(&[file.clone(), file]);
        let decoding = sim.decode(queue, &mut decoder, &files, &to, &positions);
        drop(decoding.expect("a batch"));

        // Two commands; 512 pixels at 10 ns each.
        let expected = Duration::from_nanos(2 * len + 100 + 5120 + 100);
        assert_eq!(sim.end_of(queue).expect("its stream"), expected);
    }

    #[test]
    fn reading_pixels_before_they_are_decoded_is_reported() {
        let (sim, queue, mut decoder) = open_sim("sim");
        let other = sim.stream().expect("a stream");
        let files = scan_all(&[jpeg(4, 8, 8, Subsampling::Gray)]);
        let (to, positions) = (
            sim.memory(192).expect("memory"),
            [ImagePosition::dense(0, 8, 8)],
        );

        let decoding = sim.decode(queue, &mut decoder, &files, &to, &positions);
        let read = sim.read(other, &to, 192, Duration::ZERO);

        drop(read.expect("a read").bytes());
        drop(decoding.expect("a batch"));
        let wrong: Vec<_> = sim.violations().iter().map(|v| v.kind).collect();
        assert_eq!(wrong, [ViolationKind::ReadBeforeReady]);
    }

    #[test]
    fn invalid_calls_are_rejected_and_the_device_stays_usable() {
        let (sim, queue, mut decoder) = open_sim("sim:latency=0ns");
        let files = scan_all(&[jpeg(5, 8, 8, Subsampling::Gray)]);
        let to = sim.memory(192).expect("memory");
        for positions in [
            vec![],
            vec![ImagePosition::dense(1, 8, 8)],
            vec![ImagePosition::dense(0, 8, 9)],
        ] {
            let rejected = sim.decode(queue, &mut decoder, &files, &to, &positions);
            assert!(
                matches!(rejected, Err(DeviceError::Rejected { .. })),
                "{positions:?}"
            );
        }
        let (_, _, mut foreign) = open_sim("sim");
        let positions = [ImagePosition::dense(0, 8, 8)];
        let rejected = sim.decode(queue, &mut foreign, &files, &to, &positions);
        assert!(matches!(rejected, Err(DeviceError::Failed { .. })));

        let decoding = sim.decode(queue, &mut decoder, &files, &to, &positions);
        assert!(decoding.expect("a batch").rejected_files().is_empty());
    }

    #[test]
    fn the_error_of_a_device_without_a_decoder_names_the_fix() {
        let sim = Sim::parse("sim:jpeg=none").expect("a device");
        assert_eq!(sim.name(), "sim:jpeg=none");

        let Err(DeviceError::NoDecoder { source }) = sim.decoder(&Default::default()) else {
            panic!("it has no decoder");
        };

        assert!(source.to_string().contains("remove `jpeg=none`"));
        assert!(Sim::parse("sim:jpeg=0").is_err());
        let fast = Sim::parse("sim:jpeg=4e9").expect("a device");
        assert_eq!(
            (fast.config().jpeg_pixels_per_s, fast.name().as_str()),
            (Some(4e9), "sim:jpeg=4e9")
        );
    }
}
