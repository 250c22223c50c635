//! Encodes a PNG as a record of kind `P`.

use infeed_core::sample::{Depth, Image};
use infeed_raw::simd::PlaneColors;
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use super::KeepReason;
use super::planes::{Coding, Predictor, SampleShape};
use super::record::{RecordKind, RecordWriter};
use super::varint;
use crate::decode::png::{Chunk, SIGNATURE};

/// Bytes of the samples of a strip.
const STRIP_BYTES: usize = 128 << 10;

/// zstd level of planes with repetitions, such as those of masks. Higher levels save 2 % more in twice
/// the time.
const MATCHES_LEVEL: i32 = 15;

/// Contexts of zstd for planes without repetitions, to find repetitions, and for planes with them.
struct Compressors {
    /// Finds almost no matches. In noise, matches cost bytes and decoding time.
    entropy: Compressor<'static>,
    probe: Compressor<'static>,
    matches: Compressor<'static>,
}

impl Compressors {
    fn new() -> Option<Compressors> {
        let mut entropy = Compressor::new(1).ok()?;
        entropy.set_parameter(CParameter::HashLog(6)).ok()?;
        entropy.set_parameter(CParameter::MinMatch(7)).ok()?;
        Some(Compressors {
            entropy,
            probe: Compressor::new(1).ok()?,
            matches: Compressor::new(MATCHES_LEVEL).ok()?,
        })
    }

    /// Returns the smallest of the frames of a plane, or the plane if no frame is smaller.
    fn compress(&mut self, plane: Vec<u8>) -> Option<Vec<u8>> {
        let mut frame = self.entropy.compress(&plane).ok()?;
        let probe = self.probe.compress(&plane).ok()?;
        if probe.len() < frame.len() / 8 * 7 || frame.len() < plane.len() / 4 {
            frame = self.matches.compress(&plane).ok()?;
        }
        Some(if frame.len() < plane.len() {
            frame
        } else {
            plane
        })
    }
}

/// Encodes a PNG whose pixels are `image`, decoded as they are stored.
pub(super) fn encode(file: &[u8], image: &Image) -> Result<Vec<u8>, KeepReason> {
    let (mut head, tail) = split(file).ok_or(KeepReason::Unsupported)?;
    remove_interlacing(&mut head).ok_or(KeepReason::Unsupported)?;
    let shape = SampleShape {
        size: image.size,
        channels: image.channels,
        bytes: image.depth.bytes(),
    };
    let strips = match image.depth {
        Depth::U8 => smallest(shape, &image.data),
        Depth::U16 => {
            let (samples, _) = image.data.as_chunks::<2>();
            let samples: Vec<u16> = samples.iter().map(|&s| u16::from_ne_bytes(s)).collect();
            smallest(shape, &samples)
        }
    };
    let mut out = RecordWriter::new(RecordKind::Planes, 0);
    let body = out.body();
    for part in [&head[..], tail] {
        varint::write(body, part.len() as u64);
        body.extend(part);
    }
    body.extend(strips.ok_or(KeepReason::Unsupported)?);
    Ok(out.finish())
}

/// Returns the bytes before and after the chunks of pixels.
fn split(file: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut at = SIGNATURE;
    let mut pixels = None;
    loop {
        let chunk = Chunk::at(file, at)?;
        match (&chunk.kind, &mut pixels) {
            (b"IEND", Some((start, end))) => return Some((file[..*start].to_vec(), &file[*end..])),
            (b"IEND", None) => return None,
            (b"IDAT", None) => pixels = Some((at, chunk.end)),
            (b"IDAT", Some((_, end))) if *end == at => *end = chunk.end,
            // Other chunks between those of the pixels.
            (b"IDAT", Some(_)) => return None,
            _ => {}
        }
        at = chunk.end;
    }
}

/// Sets the interlace method of IHDR, which is the first chunk, to 0.
fn remove_interlacing(head: &mut [u8]) -> Option<()> {
    let (header, rest) = head.get_mut(SIGNATURE + 4..)?.split_at_mut_checked(17)?;
    header[16] = 0;
    let sum = crc32fast::hash(header).to_be_bytes();
    rest.get_mut(..4)?.copy_from_slice(&sum);
    Some(())
}

/// A sample of 8 or 16 bits. Sums are modulo 256 or 65536.
trait Sample: Copy + Ord + Default {
    fn minus(self, other: Self) -> Self;
    fn plus(self, other: Self) -> Self;
    /// Half of the signed value, rounded down.
    fn half(self) -> Self;
    /// Appends the bytes of a difference to their planes, or those of the sample itself.
    fn write(self, is_difference: bool, planes: &mut [Vec<u8>]);
    fn append(self, table: &mut Vec<u8>);
}

impl Sample for u8 {
    fn minus(self, other: u8) -> u8 {
        self.wrapping_sub(other)
    }

    fn plus(self, other: u8) -> u8 {
        self.wrapping_add(other)
    }

    fn half(self) -> u8 {
        (self as i8 >> 1) as u8
    }

    fn write(self, _: bool, planes: &mut [Vec<u8>]) {
        planes[0].push(self);
    }

    fn append(self, table: &mut Vec<u8>) {
        table.push(self);
    }
}

impl Sample for u16 {
    fn minus(self, other: u16) -> u16 {
        self.wrapping_sub(other)
    }

    fn plus(self, other: u16) -> u16 {
        self.wrapping_add(other)
    }

    fn half(self) -> u16 {
        (self as i16 >> 1) as u16
    }

    fn write(self, is_difference: bool, planes: &mut [Vec<u8>]) {
        let code = match is_difference {
            // Zigzag code: small differences of both signs have a high byte of 0.
            true => self << 1 ^ (self as i16 >> 15) as u16,
            false => self,
        };
        for (plane, byte) in planes.iter_mut().zip(code.to_be_bytes()) {
            plane.push(byte);
        }
    }

    fn append(self, table: &mut Vec<u8>) {
        table.extend(self.to_be_bytes());
    }
}

/// Returns the encoding with a table if there are few different pixels, and otherwise the smallest.
/// None if zstd fails.
fn smallest<S: Sample>(shape: SampleShape, pixels: &[S]) -> Option<Vec<u8>> {
    let mut zstd = Compressors::new()?;
    if Coding::Table.suits(shape)
        && let Some((table, positions)) = table(shape, pixels)
    {
        let mut out = vec![
            Coding::Table.byte()?,
            (table.len() / shape.pixel_bytes() - 1) as u8,
        ];
        out.extend(table);
        write_strips(shape, &[positions], &mut zstd, &mut out)?;
        return Some(out);
    }
    let mut best: Option<Vec<u8>> = None;
    for coding in Coding::ALL {
        if let Coding::Samples(colors) = coding
            && coding.suits(shape)
        {
            let mut out = vec![coding.byte()?];
            write_strips(shape, &planes(shape, colors, pixels), &mut zstd, &mut out)?;
            if best.as_ref().is_none_or(|best| out.len() < best.len()) {
                best = Some(out);
            }
        }
    }
    best
}

/// Returns the different pixels in increasing order, and the position of every pixel. None if there
/// are more than 256.
fn table<S: Sample>(shape: SampleShape, pixels: &[S]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut known: Vec<&[S]> = Vec::new();
    let pixels = pixels.chunks_exact(shape.channels);
    let mut last: &[S] = &[];
    for pixel in pixels.clone() {
        if pixel != last {
            last = pixel;
            if let Err(at) = known.binary_search(&pixel) {
                known.insert(at, pixel);
            }
            if known.len() > 256 {
                return None;
            }
        }
    }
    let positions = pixels.map(|pixel| known.partition_point(|known| *known < pixel) as u8);
    let positions = positions.collect();
    let mut table = Vec::new();
    for sample in known.into_iter().flatten() {
        sample.append(&mut table);
    }
    Some((table, positions))
}

/// Returns the samples of each channel after a colour transform.
fn planes<S: Sample>(shape: SampleShape, colors: PlaneColors, pixels: &[S]) -> Vec<Vec<S>> {
    let mut planes = vec![Vec::with_capacity(pixels.len() / shape.channels); shape.channels];
    for pixel in pixels.chunks_exact(shape.channels) {
        let mut samples = [S::default(); 4];
        samples[..shape.channels].copy_from_slice(pixel);
        let [r, g, b, _] = samples;
        match colors {
            PlaneColors::Stored => {}
            PlaneColors::MinusGreen => {
                samples[0] = r.minus(g);
                samples[2] = b.minus(g);
            }
            PlaneColors::YCoCg => {
                let co = r.minus(b);
                let t = b.plus(co.half());
                let cg = g.minus(t);
                (samples[0], samples[1], samples[2]) = (co, t.plus(cg.half()), cg);
            }
        }
        for (plane, sample) in planes.iter_mut().zip(samples) {
            plane.push(sample);
        }
    }
    planes
}

/// Appends the number of rows of a strip, the directory and the strips.
fn write_strips<S: Sample>(
    shape: SampleShape,
    channels: &[Vec<S>],
    zstd: &mut Compressors,
    out: &mut Vec<u8>,
) -> Option<()> {
    let width = shape.size.width as usize;
    let row_bytes = width * channels.len() * size_of::<S>();
    let rows = (STRIP_BYTES / row_bytes).clamp(1, shape.size.height as usize);
    varint::write(out, rows as u64);
    let mut data = Vec::new();
    for start in (0..channels[0].len()).step_by(rows * width) {
        for channel in channels {
            let samples = &channel[start..channel.len().min(start + rows * width)];
            let stored = compress(samples, width, Predictor::None, zstd)?;
            let up = compress(samples, width, Predictor::Up, zstd)?;
            let length = |planes: &[Vec<u8>]| planes.iter().map(Vec::len).sum::<usize>();
            let (predictor, planes) = match length(&up) < length(&stored) {
                true => (1, up),
                false => (0, stored),
            };
            out.push(predictor);
            for plane in planes {
                varint::write(out, plane.len() as u64);
                data.extend(plane);
            }
        }
    }
    out.extend(data);
    Some(())
}

/// Returns the compressed planes of the samples of a strip. A plane that does not shrink stays as
/// it is.
fn compress<S: Sample>(
    samples: &[S],
    width: usize,
    predictor: Predictor,
    zstd: &mut Compressors,
) -> Option<Vec<Vec<u8>>> {
    let mut planes = vec![Vec::with_capacity(samples.len()); size_of::<S>()];
    for (at, &sample) in samples.iter().enumerate() {
        let before = match (predictor, at) {
            (Predictor::None, _) => None,
            (Predictor::Up, 0) => Some(S::default()),
            (Predictor::Up, _) if at < width => Some(samples[at - 1]),
            (Predictor::Up, _) => Some(samples[at - width]),
        };
        match before {
            None => sample.write(false, &mut planes),
            Some(before) => sample.minus(before).write(true, &mut planes),
        }
    }
    planes
        .into_iter()
        .map(|plane| zstd.compress(plane))
        .collect()
}
