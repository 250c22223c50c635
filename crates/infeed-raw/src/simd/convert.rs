//! Converts pixels to a row of a batch: checks, the choice of level, the loops.
//!
//! The unit of work is 16 pixels. The last block of a line starts earlier, so that it ends at the
//! end of the line; it writes a few elements a second time, with the same values. Only lines
//! shorter than a block are copied with padding.

use super::isa::{ByteShuffle, Isa, Plain};
use super::{Convert, Dtype, Layout, Level, SourcePixels};

/// Pixels of a block.
const BLOCK: usize = 16;

/// Writes `source` into `out` as `how` specifies, at `level`, or with plain code if the processor
/// does not support it; the bits are the same.
///
/// # Shape
///
/// `[height, width, channels]` or `[channels, height, width]`, elements in native byte
/// order, without gaps; `out` needs no alignment.
///
/// # Panics
///
/// If `out` does not have exactly this length, or `source` is inconsistent: no channels, rows
/// closer than they are long, or data that ends before the last row does.
///
/// # Cost
///
/// Reads and writes memory once; no allocation.
pub fn convert(level: Level, source: &SourcePixels<'_>, how: &Convert, out: &mut [u8]) {
    let row_bytes = source.width.checked_mul(source.channels);
    let elements = row_bytes.and_then(|row| row.checked_mul(source.height));
    let out_bytes = elements.and_then(|n| n.checked_mul(how.dtype.bytes()));
    assert_eq!(
        Some(out.len()),
        out_bytes,
        "the row must be as long as the converted image"
    );
    assert!(source.channels > 0, "a pixel must have channels");
    assert!(row_bytes <= Some(source.row_bytes), "rows must not overlap");
    if out.is_empty() {
        return;
    }
    let last = (source.height - 1).checked_mul(source.row_bytes);
    let end = last.and_then(|last| last.checked_add(source.width * source.channels));
    assert!(
        end.is_some_and(|end| end <= source.data.len()),
        "the data must hold every row"
    );

    let level = if level.is_available() {
        level
    } else {
        Level::Scalar
    };
    let job = ConvertJob { source, how, out };
    match level {
        Level::Scalar => run(Plain, job),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => run(super::neon::Neon, job),
        // SAFETY: the processor supports the level, checked above.
        #[cfg(target_arch = "x86_64")]
        Level::Sse41 => unsafe { run_sse41(job) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { run_avx2(job) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { run_avx512(job) },
        #[allow(
            unreachable_patterns,
            reason = "levels of other processors are not available"
        )]
        _ => run(Plain, job),
    }
}

struct ConvertJob<'a> {
    source: &'a SourcePixels<'a>,
    how: &'a Convert,
    out: &'a mut [u8],
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "ssse3,sse4.1")]
fn run_sse41(job: ConvertJob<'_>) {
    // SAFETY: this function runs only on processors with its features.
    run(unsafe { super::x86::Sse41::new() }, job);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn run_avx2(job: ConvertJob<'_>) {
    // SAFETY: this function runs only on processors with its features.
    run(unsafe { super::x86::Avx2::new() }, job);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,f16c")]
fn run_avx512(job: ConvertJob<'_>) {
    // SAFETY: this function runs only on processors with its features.
    run(unsafe { super::x86::Avx512::new() }, job);
}

/// Element type of the output, and its size in bytes.
trait Element {
    const BYTES: usize;

    /// Writes 16 elements at the start of `out`.
    fn put<I: Isa>(isa: I, v: I::Bytes, scale: &[f32; 16], bias: &[f32; 16], out: &mut [u8]);
}

struct U8;
struct F32;
struct F16;
struct BF16;

macro_rules! element {
    ($name:ident, $bytes:literal, |$isa:ident, $v:ident, $scale:ident, $bias:ident, $out:ident| $put:expr) => {
        impl Element for $name {
            const BYTES: usize = $bytes;

            #[inline(always)]
            fn put<I: Isa>(
                $isa: I,
                $v: I::Bytes,
                $scale: &[f32; 16],
                $bias: &[f32; 16],
                out: &mut [u8],
            ) {
                let ($out, _) = out
                    .split_first_chunk_mut()
                    .expect("the caller leaves room for a block");
                $put
            }
        }
    };
}

element!(U8, 1, |isa, v, _scale, _bias, out| isa.put_u8(v, out));
element!(F32, 4, |isa, v, scale, bias, out| isa
    .put_f32(isa.affine(v, scale, bias), out));
element!(F16, 2, |isa, v, scale, bias, out| isa
    .put_f16(isa.affine(v, scale, bias), out));
element!(BF16, 2, |isa, v, scale, bias, out| isa
    .put_bf16(isa.affine(v, scale, bias), out));

#[inline(always)]
fn run<I: Isa>(isa: I, job: ConvertJob<'_>) {
    match (job.how.dtype, job.how.flip_x) {
        (Dtype::U8, false) => image::<I, U8, false>(isa, job),
        (Dtype::U8, true) => image::<I, U8, true>(isa, job),
        (Dtype::F32, false) => image::<I, F32, false>(isa, job),
        (Dtype::F32, true) => image::<I, F32, true>(isa, job),
        (Dtype::F16, false) => image::<I, F16, false>(isa, job),
        (Dtype::F16, true) => image::<I, F16, true>(isa, job),
        (Dtype::BF16, false) => image::<I, BF16, false>(isa, job),
        (Dtype::BF16, true) => image::<I, BF16, true>(isa, job),
    }
}

#[inline(always)]
fn image<I: Isa, E: Element, const FLIP_X: bool>(isa: I, job: ConvertJob<'_>) {
    match (job.how.layout, job.source.channels) {
        // For one channel, both layouts are the same.
        (_, 1) => convert_interleaved::<I, E, FLIP_X, 1>(isa, job),
        (Layout::Hwc, 2) => convert_interleaved::<I, E, FLIP_X, 2>(isa, job),
        (Layout::Hwc, 3) => convert_interleaved::<I, E, FLIP_X, 3>(isa, job),
        (Layout::Hwc, 4) => convert_interleaved::<I, E, FLIP_X, 4>(isa, job),
        (Layout::Chw, 3) => planar_from_three::<I, E, FLIP_X>(isa, job),
        _ => convert_any::<I, E>(isa, job),
    }
}

/// Returns the source's line for line `y` of the output.
#[inline(always)]
fn line_for<'a>(source: &SourcePixels<'a>, how: &Convert, y: usize) -> &'a [u8] {
    let from = if how.flip_y { source.height - 1 - y } else { y };
    &source.data[from * source.row_bytes..][..source.width * source.channels]
}

/// Returns the wrapping distance from a line to the one to prefetch while it is read. Mirrored
/// lines are read backwards, which the processor's own prefetcher does not predict. Four lines of
/// 224 pixels take about the latency of memory.
#[inline(always)]
fn lines_ahead(source: &SourcePixels<'_>, how: &Convert) -> usize {
    let distance = source.row_bytes.wrapping_mul(4);
    if how.flip_y {
        distance.wrapping_neg()
    } else {
        distance
    }
}

/// Returns the start of block `n` in the output, and of its pixels in the source.
#[inline(always)]
fn block_at(n: usize, width: usize, flip_x: bool) -> (usize, usize) {
    let to = (n * BLOCK).min(width - BLOCK);
    (to, if flip_x { width - BLOCK - to } else { to })
}

/// Copies a line shorter than a block into a block, on the side that is written first.
#[inline(always)]
fn copy_padded(line: &[u8], block: &mut [u8], flip_x: bool) {
    let free = block.len() - line.len();
    let at = if flip_x { free } else { 0 };
    block[at..][..line.len()].copy_from_slice(line);
}

/// HWC to HWC for `C` channels, at most 4.
#[inline(always)]
fn convert_interleaved<I: Isa, E: Element, const FLIP_X: bool, const C: usize>(
    isa: I,
    job: ConvertJob<'_>,
) {
    let ConvertJob { source, how, out } = job;
    let width = source.width;
    let ahead = lines_ahead(source, how);
    let line_bytes = width * C * E::BYTES;
    // A block is C vectors of 16 bytes. Each vector has its channels in the same lanes in every
    // block.
    let scale: [[f32; 16]; C] = pattern(&how.scale, |vector, lane| (vector * 16 + lane) % C);
    let bias: [[f32; 16]; C] = pattern(&how.bias, |vector, lane| (vector * 16 + lane) % C);

    for y in 0..source.height {
        let line = line_for(source, how, y);
        let to = &mut out[y * line_bytes..][..line_bytes];
        if width < BLOCK {
            let (mut block, mut spare) = ([0; BLOCK * 4], [0; BLOCK * 4 * 4]);
            copy_padded(line, &mut block[..BLOCK * C], FLIP_X);
            let block = &block[..BLOCK * C];
            interleaved_block::<I, E, FLIP_X, C>(isa, block, &scale, &bias, &mut spare);
            to.copy_from_slice(&spare[..line_bytes]);
            continue;
        }
        if E::BYTES == 1 && !FLIP_X {
            to.copy_from_slice(line);
            continue;
        }
        for n in 0..width.div_ceil(BLOCK) {
            let (to_x, from_x) = block_at(n, width, FLIP_X);
            if FLIP_X {
                isa.prefetch(line, ahead.wrapping_add(from_x * C));
            }
            let block = &line[from_x * C..][..BLOCK * C];
            let to = &mut to[to_x * C * E::BYTES..][..BLOCK * C * E::BYTES];
            interleaved_block::<I, E, FLIP_X, C>(isa, block, &scale, &bias, to);
        }
    }
}

/// Converts 16 pixels of `C` channels.
#[inline(always)]
fn interleaved_block<I: Isa, E: Element, const FLIP_X: bool, const C: usize>(
    isa: I,
    block: &[u8],
    scale: &[[f32; 16]; C],
    bias: &[[f32; 16]; C],
    out: &mut [u8],
) {
    if FLIP_X && C == 3 {
        let block = block
            .first_chunk()
            .expect("a block of three channels is 48 bytes");
        let vectors = isa.permute(block, &ByteShuffle::REVERSE);
        for c in 0..C {
            E::put(
                isa,
                vectors[c],
                &scale[c],
                &bias[c],
                &mut out[c * 16 * E::BYTES..],
            );
        }
        return;
    }
    let mut reversed = [0; BLOCK * 4];
    let block = if FLIP_X {
        let pixels = block.as_chunks::<C>().0.iter().rev();
        for (to, from) in reversed.as_chunks_mut::<C>().0.iter_mut().zip(pixels) {
            *to = *from;
        }
        &reversed[..BLOCK * C]
    } else {
        block
    };
    for (c, vector) in block.as_chunks::<16>().0.iter().enumerate() {
        let vector = isa.load(vector);
        E::put(
            isa,
            vector,
            &scale[c],
            &bias[c],
            &mut out[c * 16 * E::BYTES..],
        );
    }
}

/// HWC to CHW for three channels.
#[inline(always)]
fn planar_from_three<I: Isa, E: Element, const FLIP_X: bool>(isa: I, job: ConvertJob<'_>) {
    let ConvertJob { source, how, out } = job;
    let width = source.width;
    let ahead = lines_ahead(source, how);
    let line_bytes = width * E::BYTES;
    let scale: [[f32; 16]; 3] = pattern(&how.scale, |plane, _| plane);
    let bias: [[f32; 16]; 3] = pattern(&how.bias, |plane, _| plane);
    let order: &ByteShuffle = const {
        if FLIP_X {
            &ByteShuffle::SPLIT_REVERSED
        } else {
            &ByteShuffle::SPLIT
        }
    };
    let (first, rest) = out.split_at_mut(source.height * line_bytes);
    let (second, third) = rest.split_at_mut(source.height * line_bytes);

    for y in 0..source.height {
        let line = line_for(source, how, y);
        let at = y * line_bytes;
        let to = [&mut first[at..], &mut second[at..], &mut third[at..]];
        if width < BLOCK {
            let (mut block, mut spare) = ([0; BLOCK * 3], [0; BLOCK * 4]);
            copy_padded(line, &mut block, FLIP_X);
            let vectors = isa.permute(&block, order);
            for c in 0..3 {
                E::put(isa, vectors[c], &scale[c], &bias[c], &mut spare);
                to[c][..line_bytes].copy_from_slice(&spare[..line_bytes]);
            }
            continue;
        }
        for n in 0..width.div_ceil(BLOCK) {
            let (to_x, from_x) = block_at(n, width, FLIP_X);
            if FLIP_X {
                isa.prefetch(line, ahead.wrapping_add(from_x * 3));
            }
            let block = line[from_x * 3..]
                .first_chunk()
                .expect("a block ends within its line");
            let vectors = isa.permute(block, order);
            for c in 0..3 {
                E::put(
                    isa,
                    vectors[c],
                    &scale[c],
                    &bias[c],
                    &mut to[c][to_x * E::BYTES..],
                );
            }
        }
    }
}

/// Handles all other cases: any number of channels, byte by byte.
#[inline(always)]
fn convert_any<I: Isa, E: Element>(isa: I, job: ConvertJob<'_>) {
    let ConvertJob { source, how, out } = job;
    let (width, channels) = (source.width, source.channels);
    for c in 0..channels {
        let scale = [how.scale[c.min(3)]; 16];
        let bias = [how.bias[c.min(3)]; 16];
        for y in 0..source.height {
            let line = line_for(source, how, y);
            for x in (0..width).step_by(BLOCK) {
                let count = BLOCK.min(width - x);
                let (mut block, mut spare) = ([0; BLOCK], [0; BLOCK * 4]);
                for (n, byte) in block[..count].iter_mut().enumerate() {
                    let from = if how.flip_x {
                        width - 1 - (x + n)
                    } else {
                        x + n
                    };
                    *byte = line[from * channels + c];
                }
                E::put(isa, isa.load(&block), &scale, &bias, &mut spare);
                match how.layout {
                    Layout::Chw => {
                        let at = ((c * source.height + y) * width + x) * E::BYTES;
                        let bytes = count * E::BYTES;
                        out[at..][..bytes].copy_from_slice(&spare[..bytes]);
                    }
                    Layout::Hwc => {
                        for (n, element) in spare.chunks(E::BYTES).take(count).enumerate() {
                            let at = ((y * width + x + n) * channels + c) * E::BYTES;
                            out[at..][..E::BYTES].copy_from_slice(element);
                        }
                    }
                }
            }
        }
    }
}

/// Returns the values for each lane of each vector, by the lane's channel.
#[inline(always)]
fn pattern<const V: usize>(
    values: &[f32; 4],
    channel: impl Fn(usize, usize) -> usize,
) -> [[f32; 16]; V] {
    std::array::from_fn(|vector| std::array::from_fn(|lane| values[channel(vector, lane)]))
}
