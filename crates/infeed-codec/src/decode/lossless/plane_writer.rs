//! Encodes a PNG as a record of kind `P`.

use infeed_core::sample::{Depth, Image};
use infeed_raw::simd::PlaneColors;
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use super::keep_reason::KeepReason;
use super::planes::{Coding, SampleShape};
use super::record::{RecordKind, RecordWriter};
use super::varint;
use crate::decode::png_chunks::{Chunk, SIGNATURE};

/// Bytes of the samples of a strip.
const STRIP_BYTES: usize = 128 << 10;

/// zstd level of planes with repetitions, such as those of masks. Higher levels save 2 % more in twice
/// the time.
const MATCHES_LEVEL: i32 = 15;

/// Strips that choose the colour transform.
const SAMPLE_STRIPS: usize = 4;

/// Contexts of zstd for planes without repetitions, to find repetitions, and for planes with them.
struct Compressors {
    /// Finds almost no matches. In noise, matches cost bytes and decoding time.
    entropy: Compressor<'static>,
    probe: Compressor<'static>,
    /// Created for the first plane with repetitions.
    matches: Option<Compressor<'static>>,
}

/// A plane and its frame of a fast level.
struct QuickPlane {
    plane: Vec<u8>,
    frame: Vec<u8>,
    /// Length of the smallest frame of a fast level, or of the plane.
    length: usize,
    /// Whether the plane has repetitions.
    has_matches: bool,
}

impl Compressors {
    fn new() -> Option<Compressors> {
        let mut entropy = Compressor::new(1).ok()?;
        entropy.set_parameter(CParameter::HashLog(6)).ok()?;
        entropy.set_parameter(CParameter::MinMatch(7)).ok()?;
        Some(Compressors {
            entropy,
            probe: Compressor::new(1).ok()?,
            matches: None,
        })
    }

    fn quick(&mut self, plane: Vec<u8>) -> Option<QuickPlane> {
        let frame = self.entropy.compress(&plane).ok()?;
        let probe = self.probe.compress(&plane).ok()?;
        Some(QuickPlane {
            length: plane.len().min(frame.len()).min(probe.len()),
            has_matches: probe.len() < frame.len() / 8 * 7 || frame.len() < plane.len() / 4,
            plane,
            frame,
        })
    }

    /// Returns the best frame of a plane, or the plane if the frame is not smaller.
    fn finish(&mut self, quick: QuickPlane) -> Option<Vec<u8>> {
        let mut frame = quick.frame;
        if quick.has_matches {
            let matches = match &mut self.matches {
                Some(matches) => matches,
                slot => slot.insert(Compressor::new(MATCHES_LEVEL).ok()?),
            };
            frame = matches.compress(&quick.plane).ok()?;
        }
        Some(if frame.len() < quick.plane.len() {
            frame
        } else {
            quick.plane
        })
    }

    /// Returns the planes of the samples of a strip with each predictor that may be the best.
    fn predict<S: Sample>(&mut self, samples: &[S], width: usize) -> Option<Vec<PredictedPlanes>> {
        let candidates = [
            S::split(samples.to_vec(), false),
            S::split(differences(samples, width), true),
        ];
        let repeated = candidates.each_ref().map(|planes| match &planes[..] {
            [plane] => Some(collisions(plane)),
            _ => None,
        });
        let pairs = samples.len() as u64 * samples.len() as u64;
        let mut predicted = Vec::new();
        for (predictor, planes) in (0..).zip(candidates) {
            let own = repeated[usize::from(predictor)];
            if let (Some(own), Some(other)) = (own, repeated[1 - usize::from(predictor)])
                && other < pairs / 4
                && own < other / 2
            {
                // The other predictor's plane takes at least a bit less per sample.
                continue;
            }
            let planes = planes.into_iter().map(|plane| self.quick(plane));
            predicted.push(PredictedPlanes {
                predictor,
                planes: planes.collect::<Option<Vec<_>>>()?,
            });
        }
        Some(predicted)
    }

    /// Returns the best predictor of the samples of a strip, and the stored planes.
    fn store<S: Sample>(&mut self, samples: &[S], width: usize) -> Option<(u8, Vec<Vec<u8>>)> {
        let mut predicted = self.predict(samples, width)?;
        let has_matches = |of: &PredictedPlanes| of.planes.iter().any(|plane| plane.has_matches);
        if !predicted.iter().any(has_matches) {
            // Nothing will make them smaller.
            predicted.sort_by_key(PredictedPlanes::length);
            predicted.truncate(1);
        }
        let mut best: Option<(usize, u8, Vec<Vec<u8>>)> = None;
        for PredictedPlanes { predictor, planes } in predicted {
            let planes = planes.into_iter().map(|plane| self.finish(plane));
            let planes = planes.collect::<Option<Vec<_>>>()?;
            let length = planes.iter().map(Vec::len).sum();
            if best
                .as_ref()
                .is_none_or(|(shortest, ..)| length < *shortest)
            {
                best = Some((length, predictor, planes));
            }
        }
        best.map(|(_, predictor, planes)| (predictor, planes))
    }
}

/// Planes of a channel in a strip with one predictor.
struct PredictedPlanes {
    predictor: u8,
    planes: Vec<QuickPlane>,
}

impl PredictedPlanes {
    /// Returns the bytes of the planes, compressed with fast levels.
    fn length(&self) -> usize {
        self.planes.iter().map(|plane| plane.length).sum()
    }
}

/// Returns the number of pairs of equal bytes, in any order: the number of all pairs over this number
/// is two to the power of the collision entropy (A. Renyi, "On measures of entropy and
/// information", 1961). It is a whole number, and so the same on all machines.
fn collisions(plane: &[u8]) -> u64 {
    // Four tables, because additions to one count wait for each other.
    let mut counts = [[0u64; 256]; 4];
    let (fours, rest) = plane.as_chunks::<4>();
    for four in fours {
        for (counts, &byte) in counts.iter_mut().zip(four) {
            counts[usize::from(byte)] += 1;
        }
    }
    for &byte in rest {
        counts[0][usize::from(byte)] += 1;
    }
    let count = |byte: usize| counts.iter().map(|counts| counts[byte]).sum::<u64>();
    (0..256).map(|byte| count(byte) * count(byte)).sum()
}

/// Encodes a PNG whose pixels are `image`, decoded as they are stored.
pub(crate) fn encode(file: &[u8], image: &Image) -> Result<Vec<u8>, KeepReason> {
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
    /// Returns the planes of the bytes of differences, or of samples.
    fn split(values: Vec<Self>, are_differences: bool) -> Vec<Vec<u8>>;
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

    fn split(values: Vec<u8>, _: bool) -> Vec<Vec<u8>> {
        vec![values]
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

    fn split(mut values: Vec<u16>, are_differences: bool) -> Vec<Vec<u8>> {
        if are_differences {
            // Zigzag code: small differences of both signs have a high byte of 0.
            for value in &mut values {
                *value = *value << 1 ^ (*value as i16 >> 15) as u16;
            }
        }
        let byte = |shift: u32| values.iter().map(|&value| (value >> shift) as u8).collect();
        vec![byte(8), byte(0)]
    }

    fn append(self, table: &mut Vec<u8>) {
        table.extend(self.to_be_bytes());
    }
}

/// Returns the encoding with a table if there are few different pixels, and otherwise the one with
/// the best colour transform. None if zstd fails.
fn smallest<S: Sample>(shape: SampleShape, pixels: &[S]) -> Option<Vec<u8>> {
    let mut zstd = Compressors::new()?;
    let width = shape.size.width as usize;
    if Coding::Table.suits(shape)
        && let Some((table, positions)) = table(shape, pixels)
    {
        let mut out = vec![
            Coding::Table.byte()?,
            (table.len() / shape.pixel_bytes() - 1) as u8,
        ];
        out.extend(table);
        let strips = Strips::new(vec![positions], shape);
        strips.write(PlaneColors::Stored, width, &mut zstd, &mut out)?;
        return Some(out);
    }
    let channels = (0..shape.channels).map(|channel| {
        pixels
            .iter()
            .skip(channel)
            .step_by(shape.channels)
            .copied()
            .collect()
    });
    let strips = Strips::new(channels.collect(), shape);
    let mut best: Option<(usize, Coding, PlaneColors)> = None;
    for coding in Coding::ALL {
        if let Coding::Samples(colors) = coding
            && coding.suits(shape)
        {
            let length = match shape.channels {
                // There is no other coding.
                1 | 2 => 0,
                _ => strips.estimate(colors, width, &mut zstd)?,
            };
            if best.is_none_or(|(shortest, ..)| length < shortest) {
                best = Some((length, coding, colors));
            }
        }
    }
    let (_, coding, colors) = best?;
    let mut out = vec![coding.byte()?];
    strips.write(colors, width, &mut zstd, &mut out)?;
    Some(out)
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
    let (mut last, mut position): (&[S], u8) = (&[], 0);
    let positions = pixels.map(|pixel| {
        if pixel != last {
            last = pixel;
            position = known.partition_point(|known| *known < pixel) as u8;
        }
        position
    });
    let positions = positions.collect();
    let mut table = Vec::new();
    for sample in known.into_iter().flatten() {
        sample.append(&mut table);
    }
    Some((table, positions))
}

/// The channels of an image, to be cut into strips.
struct Strips<S> {
    channels: Vec<Vec<S>>,
    rows: usize,
    /// Samples of a channel in a strip. The last strip may have fewer.
    samples: usize,
}

impl<S: Sample> Strips<S> {
    fn new(channels: Vec<Vec<S>>, shape: SampleShape) -> Strips<S> {
        let width = shape.size.width as usize;
        let row_bytes = width * channels.len() * size_of::<S>();
        let rows = (STRIP_BYTES / row_bytes).clamp(1, shape.size.height as usize);
        Strips {
            channels,
            rows,
            samples: rows * width,
        }
    }

    fn count(&self) -> usize {
        self.channels[0].len().div_ceil(self.samples)
    }

    /// Returns the samples of each channel in a strip after a colour transform.
    fn strip(&self, at: usize, colors: PlaneColors) -> Vec<Vec<S>> {
        let start = at * self.samples;
        let end = self.channels[0].len().min(start + self.samples);
        let part = |channel: &Vec<S>| channel[start..end].to_vec();
        let mut channels: Vec<Vec<S>> = self.channels.iter().map(part).collect();
        if let [red, green, blue, ..] = &mut channels[..] {
            let pixels = red.iter_mut().zip(green).zip(blue);
            match colors {
                PlaneColors::Stored => {}
                PlaneColors::MinusGreen => {
                    for ((r, g), b) in pixels {
                        (*r, *b) = (r.minus(*g), b.minus(*g));
                    }
                }
                PlaneColors::YCoCg => {
                    for ((r, g), b) in pixels {
                        let co = r.minus(*b);
                        let t = b.plus(co.half());
                        let cg = g.minus(t);
                        (*r, *g, *b) = (co, t.plus(cg.half()), cg);
                    }
                }
            }
        }
        channels
    }

    /// Returns the bytes of some strips after a colour transform, compressed with fast levels.
    fn estimate(&self, colors: PlaneColors, width: usize, zstd: &mut Compressors) -> Option<usize> {
        let mut length = 0;
        for at in (0..self.count()).step_by(self.count().div_ceil(SAMPLE_STRIPS)) {
            for channel in self.strip(at, colors) {
                let predicted = zstd.predict(&channel, width)?;
                length += predicted.iter().map(PredictedPlanes::length).min()?;
            }
        }
        Some(length)
    }

    /// Appends the number of rows of a strip, the directory and the strips.
    fn write(
        &self,
        colors: PlaneColors,
        width: usize,
        zstd: &mut Compressors,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        varint::write(out, self.rows as u64);
        let mut data = Vec::new();
        for at in 0..self.count() {
            for channel in self.strip(at, colors) {
                let (predictor, planes) = zstd.store(&channel, width)?;
                out.push(predictor);
                for stored in planes {
                    varint::write(out, stored.len() as u64);
                    data.extend(stored);
                }
            }
        }
        out.extend(data);
        Some(())
    }
}

/// Returns the difference of each sample to the one above, and in the first row to the one to the
/// left.
fn differences<S: Sample>(samples: &[S], width: usize) -> Vec<S> {
    let mut out = Vec::with_capacity(samples.len());
    let (first, below) = samples.split_at(width.min(samples.len()));
    let left = std::iter::once(&S::default())
        .chain(first)
        .copied()
        .collect::<Vec<S>>();
    out.extend(
        first
            .iter()
            .zip(&left)
            .map(|(&sample, &left)| sample.minus(left)),
    );
    out.extend(
        below
            .iter()
            .zip(samples)
            .map(|(&sample, &above)| sample.minus(above)),
    );
    out
}
