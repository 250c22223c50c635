//! JPEG coefficients: reads them from a file, and decodes pixels from coefficients that the caller
//! supplies, with libjpeg-turbo.
//!
//! Everything after entropy decoding (dequantisation, inverse DCT, upsampling, colours, crops) is
//! libjpeg-turbo's, so the pixels are those of the file that the coefficients came from. See
//! `libjpeg/coefficients.c`.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::jpeg::{JpegError, JpegTask, PixelFormat};

/// The quantised coefficients of 8x8 samples, in row order (not in zigzag order).
pub type CoefficientBlock = [i16; 64];

/// Blocks of an MCU that libjpeg-turbo supports.
pub const MAX_BLOCKS_IN_MCU: usize = 10;

/// Supplies the coefficients of an image, MCU by MCU in raster order.
pub trait McuSource {
    /// Writes all blocks of the next MCU: component by component, each row by row.
    fn fill(&mut self, blocks: &mut [CoefficientBlock]);

    /// Moves past the next MCU, which is outside of the window.
    fn skip(&mut self);
}

/// Numbers of MCUs and blocks that the caller expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McuGrid {
    /// MCUs per row.
    pub across: u32,
    /// Rows of MCUs.
    pub down: u32,
    /// Blocks of an MCU.
    pub blocks: u32,
}

/// Coefficients of one component, row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentBlocks {
    /// Blocks per row. Rows and columns are padded to whole MCUs, unless the component is the only
    /// one.
    pub across: usize,
    /// All blocks.
    pub blocks: Vec<CoefficientBlock>,
}

/// Reason why a file has no coefficients that determine its pixels.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoefficientsError {
    /// libjpeg-turbo rejected the file, or gave a warning.
    #[error("{0}")]
    Rejected(String),
    /// A progressive file without its last scans; decoders smooth over the missing data.
    #[error("the progressive file lacks scans")]
    Incomplete,
}

#[repr(C)]
struct RawRequest {
    width: c_int,
    height: c_int,
    eighths: c_int,
    top: c_int,
    left: c_int,
    rows: c_int,
    columns: c_int,
    colors: c_int,
    blocks: c_int,
    mcus_across: c_int,
    mcus_down: c_int,
    max_memory: c_long,
}

/// Bytes of libjpeg's longest message, with its NUL; `JMSG_LENGTH_MAX`.
const MESSAGE: usize = 200;

unsafe extern "C" {
    fn infeed_coefficients_decode(
        header: *const u8,
        length: usize,
        request: *const RawRequest,
        fill: extern "C" fn(*mut c_void, *mut i16, c_int),
        source: *mut c_void,
        out: *mut u8,
        message: *mut c_char,
    ) -> c_int;

    fn infeed_coefficients_read(
        file: *const u8,
        length: usize,
        max_scans: c_int,
        max_memory: c_long,
        take: extern "C" fn(*mut c_void, c_int, *const i16, c_int),
        sink: *mut c_void,
        message: *mut c_char,
    ) -> c_int;
}

struct McuFeed<'a, S> {
    source: &'a mut S,
    has_panicked: bool,
}

/// Passes an MCU of libjpeg to the source. A panic must not unwind through C.
extern "C" fn fill<S: McuSource>(feed: *mut c_void, out: *mut i16, blocks: c_int) {
    // SAFETY: `decode` passes a `McuFeed<S>` that outlives the call into libjpeg and that nothing else
    // uses meanwhile.
    let feed = unsafe { &mut *feed.cast::<McuFeed<'_, S>>() };
    if feed.has_panicked {
        return;
    }
    let done = catch_unwind(AssertUnwindSafe(|| match usize::try_from(blocks) {
        _ if out.is_null() => feed.source.skip(),
        Ok(blocks) => {
            // SAFETY: libjpeg's decoder owns `blocks` consecutive, initialised blocks of 64
            // aligned coefficients at `out` and does not touch them during this call.
            let blocks =
                unsafe { std::slice::from_raw_parts_mut(out.cast::<CoefficientBlock>(), blocks) };
            feed.source.fill(blocks);
        }
        Err(_) => {}
    }));
    feed.has_panicked = done.is_err();
}

/// Decodes a window of an image whose coefficients `source` supplies. `header` holds the segments
/// of a baseline JPEG, up to and including the header of its only scan.
///
/// Returns the pixels row after row in `out`, as [`crate::jpeg::JpegDecoder::decode`] does.
///
/// # Errors
///
/// `BadWindow` if `out` has another length than the window or the window exceeds the image,
/// `Damaged` if libjpeg-turbo rejects the header, if its size or MCUs differ from `task` and
/// `grid`, or if the source panics. `out` is unspecified then.
pub fn decode<S: McuSource>(
    header: &[u8],
    task: &JpegTask,
    grid: McuGrid,
    source: &mut S,
    out: &mut [u8],
) -> Result<(), JpegError> {
    let window = task.window;
    let colors = match task.format {
        PixelFormat::Cmyk => return Err(JpegError::BadWindow),
        other => other.bytes(),
    };
    let expected = (window.height as usize)
        .checked_mul(window.width as usize)
        .and_then(|pixels| pixels.checked_mul(colors));
    let scaled = |side: u32| (u64::from(side) * u64::from(task.eighths)).div_ceil(8);
    let fits = u64::from(window.left) + u64::from(window.width) <= scaled(task.width)
        && u64::from(window.top) + u64::from(window.height) <= scaled(task.height);
    if expected != Some(out.len())
        || out.is_empty()
        || !fits
        || !matches!(task.eighths, 1 | 2 | 4 | 8)
    {
        return Err(JpegError::BadWindow);
    }
    let int = |value: u32| c_int::try_from(value).map_err(|_| JpegError::BadWindow);
    let request = RawRequest {
        width: int(task.width)?,
        height: int(task.height)?,
        eighths: c_int::from(task.eighths),
        top: int(window.top)?,
        left: int(window.left)?,
        rows: int(window.height)?,
        columns: int(window.width)?,
        colors: colors as c_int,
        blocks: int(grid.blocks)?,
        mcus_across: int(grid.across)?,
        mcus_down: int(grid.down)?,
        max_memory: c_long::from(task.max_memory_mib) << 20,
    };
    let mut feed = McuFeed {
        source,
        has_panicked: false,
    };
    let mut message = [0 as c_char; MESSAGE];
    // SAFETY: `header`, `request`, `feed`, `out` and `message` outlive the call. The C function
    // writes `rows * columns * colors` bytes, which is the length of `out`, checked above, and at
    // most `MESSAGE` bytes of text. It passes `feed` only to `fill::<S>`, which does not unwind and
    // calls nothing of libjpeg, so that no `longjmp` crosses a Rust frame.
    let rc = unsafe {
        infeed_coefficients_decode(
            header.as_ptr(),
            header.len(),
            &raw const request,
            fill::<S>,
            (&raw mut feed).cast(),
            out.as_mut_ptr(),
            message.as_mut_ptr(),
        )
    };
    if feed.has_panicked {
        let message = "the source of coefficients panicked".to_owned();
        return Err(JpegError::Damaged { message });
    }
    match rc {
        0 => Ok(()),
        _ => Err(JpegError::Damaged {
            message: text(&message),
        }),
    }
}

/// Collects rows of blocks. Stops at `limit` blocks.
struct BlockSink {
    components: Vec<ComponentBlocks>,
    blocks: usize,
    limit: usize,
}

extern "C" fn take(sink: *mut c_void, component: c_int, blocks: *const i16, count: c_int) {
    // SAFETY: `read` passes a `BlockSink` that outlives the call into libjpeg and that nothing else uses
    // meanwhile.
    let sink = unsafe { &mut *sink.cast::<BlockSink>() };
    let (Ok(component), Ok(count)) = (usize::try_from(component), usize::try_from(count)) else {
        return;
    };
    sink.blocks = sink.blocks.saturating_add(count);
    if sink.blocks > sink.limit || component > 3 {
        return;
    }
    // SAFETY: libjpeg holds `count` consecutive, initialised blocks of 64 aligned coefficients at
    // `blocks` and does not change them during this call.
    let row = unsafe { std::slice::from_raw_parts(blocks.cast::<CoefficientBlock>(), count) };
    while sink.components.len() <= component {
        sink.components.push(ComponentBlocks::default());
    }
    let at = &mut sink.components[component];
    at.across = count;
    at.blocks.extend_from_slice(row);
}

/// Reads the coefficients of a whole file. `max_blocks` limits the memory of the result, and
/// together with `max_scans` the time.
///
/// # Errors
///
/// `Rejected` if the file is damaged in any way that libjpeg-turbo reports, has arithmetic coding
/// or samples of other than 8 bits, or exceeds a limit; `Incomplete` if a progressive file lacks
/// scans.
pub fn read(
    file: &[u8],
    max_scans: u16,
    max_blocks: usize,
) -> Result<Vec<ComponentBlocks>, CoefficientsError> {
    let mut sink = BlockSink {
        components: Vec::new(),
        blocks: 0,
        limit: max_blocks,
    };
    let max_memory = max_blocks
        .saturating_mul(2 * size_of::<CoefficientBlock>())
        .saturating_add(16 << 20);
    let mut message = [0 as c_char; MESSAGE];
    // SAFETY: `file`, `sink` and `message` outlive the call. The C function writes at most
    // `MESSAGE` bytes of text, and passes `sink` only to `take`, which calls nothing of libjpeg, so
    // that no `longjmp` crosses a Rust frame. `take` aborts the process if it panics (an allocation
    // that overflows), as every `extern "C"` function does.
    let rc = unsafe {
        infeed_coefficients_read(
            file.as_ptr(),
            file.len(),
            c_int::from(max_scans),
            c_long::try_from(max_memory).unwrap_or(c_long::MAX),
            take,
            (&raw mut sink).cast(),
            message.as_mut_ptr(),
        )
    };
    match rc {
        0 if sink.blocks > max_blocks => {
            let message = format!("more than {max_blocks} blocks");
            Err(CoefficientsError::Rejected(message))
        }
        0 => Ok(sink.components),
        1 => Err(CoefficientsError::Incomplete),
        _ => Err(CoefficientsError::Rejected(text(&message))),
    }
}

fn text(message: &[c_char; MESSAGE]) -> String {
    let bytes: Vec<u8> = message.iter().map(|&c| c as u8).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::new(),
    }
}
