//! Decodes windows of JPEG images with libjpeg-turbo, through safe slices.
//!
//! Relies on the TurboJPEG 3 interface (`tj3*`), which handles libjpeg's `longjmp` internally.
//! JPEGs are always decoded with the accurate inverse DCT and with "fancy" chroma upsampling, so
//! the pixels are those of every other program with libjpeg(-turbo)'s defaults.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use turbojpeg_sys as tj;

/// Samples of one pixel as libjpeg-turbo writes them, 8 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelFormat {
    /// Luma only; for YCbCr files the stored Y channel.
    Gray,
    /// Red, green, blue.
    Rgb,
    /// Red, green, blue, 255.
    Rgba,
    /// The four stored inks, with YCCK converted to CMYK; files written by Adobe's programs are
    /// inverted.
    Cmyk,
}

impl PixelFormat {
    /// Bytes of one pixel.
    pub fn bytes(self) -> usize {
        match self {
            PixelFormat::Gray => 1,
            PixelFormat::Rgb => 3,
            PixelFormat::Rgba | PixelFormat::Cmyk => 4,
        }
    }

    fn raw(self) -> c_int {
        match self {
            PixelFormat::Gray => tj::TJPF_TJPF_GRAY,
            PixelFormat::Rgb => tj::TJPF_TJPF_RGB,
            PixelFormat::Rgba => tj::TJPF_TJPF_RGBA,
            PixelFormat::Cmyk => tj::TJPF_TJPF_CMYK,
        }
    }
}

/// A rectangle of the scaled image, in its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First row.
    pub top: u32,
    /// First column; a multiple of the scaled iMCU's width.
    pub left: u32,
    /// Rows, at least 1.
    pub height: u32,
    /// Columns, at least 1.
    pub width: u32,
}

/// The part of an image to decode, and limits.
#[derive(Clone, Copy, Debug)]
pub struct JpegTask {
    /// Width of the whole image at full scale, as the caller read it from the file.
    pub width: u32,
    /// Height of the whole image at full scale, as the caller read it from the file.
    pub height: u32,
    /// Eighths of full size: 1, 2, 4 or 8.
    pub eighths: u8,
    /// Part of the scaled image to decode.
    pub window: Window,
    /// Format of a pixel.
    pub format: PixelFormat,
    /// Maximum number of scans of a progressive file.
    pub max_scans: u16,
    /// Maximum memory that libjpeg-turbo may use for coefficients, in MiB.
    pub max_memory_mib: u16,
}

impl JpegTask {
    /// Decodes the whole image of a baseline file to RGB at full size, with up to 64 MiB.
    pub fn whole(width: u32, height: u32) -> JpegTask {
        JpegTask {
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
            max_memory_mib: 64,
        }
    }
}

/// Reason why a JPEG was not decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JpegError {
    /// libjpeg-turbo could not allocate its state.
    #[error("libjpeg-turbo cannot allocate a decoder")]
    NoDecoder,
    /// The scan data ended before the last requested pixel.
    #[error("{message}")]
    PrematureEnd {
        /// libjpeg-turbo's message.
        message: String,
    },
    /// libjpeg-turbo rejected the bytes, or lost its position in them.
    #[error("{message}")]
    Damaged {
        /// libjpeg-turbo's message.
        message: String,
    },
    /// The file has another size than the caller read.
    #[error("the header has the size {width}x{height}")]
    OtherSize {
        /// Width in the file.
        width: u32,
        /// Height in the file.
        height: u32,
    },
    /// The window is empty, misaligned or exceeds the image, or the output has another length.
    #[error("the window does not fit the image or its buffer")]
    BadWindow,
}

/// Parts of the texts of libjpeg's warnings after which pixels are invented. All other warnings
/// (stray bytes between segments, an unknown version or transform number) do not affect pixels.
const LOSSES: [&str; 3] = ["bad Huffman code", "bad arithmetic code", "found marker"];

fn is_loss(warning: &str) -> bool {
    // Bytes skipped before a restart marker belonged to the scan.
    let skipped = |marker: u8| warning.ends_with(&format!("bytes before marker {marker:#04x}"));
    LOSSES.iter().any(|loss| warning.contains(loss)) || (0xD0..=0xD7).any(skipped)
}

/// A decompressor of libjpeg-turbo; each decoding thread has one.
#[derive(Debug)]
pub struct JpegDecoder {
    handle: NonNull<libc::c_void>,
}

// SAFETY: a TurboJPEG handle may be used from any thread, one at a time, and every method that uses
// it takes `&mut self`. Only the text of the last message is kept per thread; it is read directly
// after the call that wrote it, within one method.
unsafe impl Send for JpegDecoder {}

impl JpegDecoder {
    /// Makes a decoder.
    ///
    /// # Errors
    ///
    /// `NoDecoder` if there is not enough memory.
    pub fn new() -> Result<JpegDecoder, JpegError> {
        Ok(JpegDecoder {
            handle: new_handle()?,
        })
    }

    /// Decodes a window of the scaled image into `out`, row after row without padding.
    ///
    /// Returns the number of harmless warnings: 0, or 1 for one or more.
    ///
    /// # Errors
    ///
    /// Any of `JpegError`; `out` is unspecified then. The decoder can be used again.
    ///
    /// # Cost
    ///
    /// Rows below the window are not decoded (in a progressive file they are, up to the inverse
    /// DCT). A file with harmless warnings is decoded twice: libjpeg keeps only the text of the
    /// first warning, so the first attempt stops at that warning, and if it is harmless a second
    /// attempt continues after it.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        task: &JpegTask,
        out: &mut [u8],
    ) -> Result<u32, JpegError> {
        let first = match self.attempt(bytes, task, out, None) {
            Ok(()) => return Ok(0),
            Err(CallFailure::Error(error)) => return Err(self.reset_after(error)),
            Err(CallFailure::Warning(first)) => first,
        };
        if first.to_ascii_lowercase().contains("premature end") {
            return Err(self.reset_after(JpegError::PrematureEnd { message: first }));
        }
        if is_loss(&first) {
            return Err(self.reset_after(JpegError::Damaged { message: first }));
        }
        // A loss *after* a harmless warning is not detected, since libjpeg keeps only the first
        // text. The same bytes and window always end the same way.
        self.handle = self.reset()?;
        match self.attempt(bytes, task, out, Some(&first)) {
            Ok(()) => Ok(1),
            Err(CallFailure::Error(error)) => Err(self.reset_after(error)),
            Err(CallFailure::Warning(message)) => {
                Err(self.reset_after(JpegError::Damaged { message }))
            }
        }
    }

    /// Decodes once. `tolerate` is the text of a harmless first warning, at which this attempt does
    /// not stop.
    fn attempt(
        &mut self,
        bytes: &[u8],
        task: &JpegTask,
        out: &mut [u8],
        tolerate: Option<&str>,
    ) -> Result<(), CallFailure> {
        let Window {
            top,
            left,
            height,
            width,
        } = task.window;
        let expected = (height as usize)
            .checked_mul(width as usize)
            .map(|n| n * task.format.bytes());
        if expected != Some(out.len()) || out.is_empty() || !matches!(task.eighths, 1 | 2 | 4 | 8) {
            return Err(CallFailure::Error(JpegError::BadWindow));
        }
        let signed = |value: u32| {
            c_int::try_from(value).map_err(|_| CallFailure::Error(JpegError::BadWindow))
        };
        let region = tj::tjregion {
            x: signed(left)?,
            y: signed(top)?,
            w: signed(width)?,
            h: signed(height)?,
        };
        let pixels = u64::from(task.width) * u64::from(task.height);

        self.set(
            tj::TJPARAM_TJPARAM_STOPONWARNING,
            c_int::from(tolerate.is_none()),
        )?;
        self.set(tj::TJPARAM_TJPARAM_SCANLIMIT, c_int::from(task.max_scans))?;
        self.set(
            tj::TJPARAM_TJPARAM_MAXMEMORY,
            c_int::from(task.max_memory_mib),
        )?;
        self.set(
            tj::TJPARAM_TJPARAM_MAXPIXELS,
            c_int::try_from(pixels).unwrap_or(c_int::MAX),
        )?;
        // Colour profiles are not used; by default, libjpeg copies them.
        self.set(tj::TJPARAM_TJPARAM_SAVEMARKERS, 0)?;

        // SAFETY: `handle` is live from `new` to `drop`; pointer and length are those of `bytes`,
        // which outlives the call.
        let rc = unsafe {
            tj::tj3DecompressHeader(self.handle.as_ptr(), bytes.as_ptr(), bytes.len() as _)
        };
        self.outcome(rc, tolerate)?;

        let found_width = self.get(tj::TJPARAM_TJPARAM_JPEGWIDTH);
        let found_height = self.get(tj::TJPARAM_TJPARAM_JPEGHEIGHT);
        if (found_width, found_height) != (task.width, task.height) {
            let (width, height) = (found_width, found_height);
            return Err(CallFailure::Error(JpegError::OtherSize { width, height }));
        }
        let scaled = |side: u32| (u64::from(side) * u64::from(task.eighths)).div_ceil(8);
        let (right, bottom) = (
            u64::from(left) + u64::from(width),
            u64::from(top) + u64::from(height),
        );
        if right > scaled(task.width) || bottom > scaled(task.height) {
            return Err(CallFailure::Error(JpegError::BadWindow));
        }
        let is_whole = right - u64::from(left) == scaled(task.width)
            && bottom - u64::from(top) == scaled(task.height);

        let factor = match task.eighths {
            1 => tj::tjscalingfactor { num: 1, denom: 8 },
            2 => tj::tjscalingfactor { num: 1, denom: 4 },
            4 => tj::tjscalingfactor { num: 1, denom: 2 },
            _ => tj::tjscalingfactor { num: 1, denom: 1 },
        };
        // SAFETY: `handle` is live; the factor is passed by value.
        let rc = unsafe { tj::tj3SetScalingFactor(self.handle.as_ptr(), factor) };
        self.outcome(rc, None)?;
        // The whole image needs no region, and unusual sampling factors do not support one.
        let region = if is_whole {
            tj::tjregion {
                x: 0,
                y: 0,
                w: 0,
                h: 0,
            }
        } else {
            region
        };
        // SAFETY: `handle` is live; the region is passed by value.
        let rc = unsafe { tj::tj3SetCroppingRegion(self.handle.as_ptr(), region) };
        self.outcome(rc, None)?;

        // SAFETY: `handle` and `bytes` as above. TurboJPEG writes the region's rows, each at most
        // as long as the region's width; a `pitch` of 0 means no padding. It reads the header again
        // from the same bytes, so the region is the one checked above: `height * width` pixels of
        // `format.bytes()`, which is the length of `out`, checked at the top.
        let rc = unsafe {
            tj::tj3Decompress8(
                self.handle.as_ptr(),
                bytes.as_ptr(),
                bytes.len() as _,
                out.as_mut_ptr(),
                0,
                task.format.raw(),
            )
        };
        self.outcome(rc, tolerate)
    }

    fn set(&mut self, param: tj::TJPARAM, value: c_int) -> Result<(), CallFailure> {
        // SAFETY: `handle` is live; TurboJPEG checks parameter and value.
        let rc = unsafe { tj::tj3Set(self.handle.as_ptr(), param as c_int, value) };
        self.outcome(rc, None)
    }

    fn get(&mut self, param: tj::TJPARAM) -> u32 {
        // SAFETY: `handle` is live; TurboJPEG checks the parameter.
        let value = unsafe { tj::tj3Get(self.handle.as_ptr(), param as c_int) };
        u32::try_from(value).unwrap_or(0)
    }

    /// Converts a return code to a result. Must directly follow the call, on its thread.
    fn outcome(&mut self, rc: c_int, tolerate: Option<&str>) -> Result<(), CallFailure> {
        if rc == 0 {
            return Ok(());
        }
        // SAFETY: `handle` is live; the text is NUL-terminated and lives until the next call on
        // this handle or thread, and is copied before that.
        let message = unsafe { CStr::from_ptr(tj::tj3GetErrorStr(self.handle.as_ptr())) }
            .to_string_lossy()
            .into_owned();
        // The code stays "warning" if an error follows a warning, but the text is that of the
        // error.
        if tolerate == Some(message.as_str()) {
            return Ok(());
        }
        // SAFETY: `handle` is live.
        let code = unsafe { tj::tj3GetErrorCode(self.handle.as_ptr()) };
        if code == tj::TJERR_TJERR_WARNING as c_int && tolerate.is_none() {
            Err(CallFailure::Warning(message))
        } else {
            Err(CallFailure::Error(JpegError::Damaged { message }))
        }
    }

    /// Replaces the decoder after a failed call: libjpeg's marker reader keeps its state when a
    /// header is truncated, and would read the next header as its continuation.
    fn reset(&mut self) -> Result<NonNull<libc::c_void>, JpegError> {
        let handle = new_handle()?;
        // SAFETY: the old handle is live, destroyed once, and replaced by the caller immediately;
        // `destroy` is only called here and in `drop`.
        unsafe { tj::tj3Destroy(self.handle.as_ptr()) };
        Ok(handle)
    }

    fn reset_after(&mut self, error: JpegError) -> JpegError {
        match self.reset() {
            Ok(handle) => {
                self.handle = handle;
                error
            }
            Err(no_memory) => no_memory,
        }
    }
}

impl Drop for JpegDecoder {
    fn drop(&mut self) {
        // SAFETY: `handle` is live and is not used afterwards.
        unsafe { tj::tj3Destroy(self.handle.as_ptr()) };
    }
}

enum CallFailure {
    Warning(String),
    Error(JpegError),
}

fn new_handle() -> Result<NonNull<libc::c_void>, JpegError> {
    // SAFETY: takes only a constant; null means failure and is checked.
    let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
    NonNull::new(handle).ok_or(JpegError::NoDecoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 67x45, 4:2:0: the iMCU is 16x16.
    const JPEG: &[u8] = include_bytes!("../../../testdata/conformance/s420.jpg");

    fn task(window: Window) -> JpegTask {
        JpegTask {
            width: 67,
            height: 45,
            eighths: 8,
            window,
            format: PixelFormat::Rgb,
            max_scans: 10,
            max_memory_mib: 16,
        }
    }

    const WHOLE: Window = Window {
        top: 0,
        left: 0,
        height: 45,
        width: 67,
    };

    fn decode(decoder: &mut JpegDecoder, task: &JpegTask) -> Result<Vec<u8>, JpegError> {
        let pixels = task.window.height as usize * task.window.width as usize;
        let mut out = vec![0; pixels * task.format.bytes()];
        decoder.decode(JPEG, task, &mut out).map(|_| out)
    }

    #[test]
    fn the_inner_pixels_of_a_window_are_those_of_the_whole_image() {
        let mut decoder = JpegDecoder::new().unwrap();
        let whole = decode(&mut decoder, &task(WHOLE)).unwrap();

        let window = Window {
            top: 16,
            left: 16,
            height: 29,
            width: 51,
        };
        let part = decode(&mut decoder, &task(window)).unwrap();

        for (y, row) in part.chunks_exact(51 * 3).enumerate().skip(16) {
            let at = ((y + 16) * 67 + 32) * 3;
            assert_eq!(row[16 * 3..], whole[at..at + 35 * 3], "row {y}");
        }
    }

    #[test]
    fn a_window_outside_of_the_image_or_within_an_imcu_is_rejected() {
        let mut decoder = JpegDecoder::new().unwrap();
        for window in [
            Window {
                top: 0,
                left: 0,
                height: 46,
                width: 67,
            },
            Window {
                top: 1,
                left: 0,
                height: 45,
                width: 67,
            },
            Window {
                top: 0,
                left: 16,
                height: 45,
                width: 52,
            },
            Window {
                top: 0,
                left: 0,
                height: 0,
                width: 67,
            },
            Window {
                top: 0,
                left: u32::MAX,
                height: 1,
                width: 2,
            },
            Window {
                top: 0,
                left: 8,
                height: 45,
                width: 16,
            },
        ] {
            assert!(decode(&mut decoder, &task(window)).is_err(), "{window:?}");
        }
    }

    #[test]
    fn an_output_of_another_length_is_rejected() {
        let mut decoder = JpegDecoder::new().unwrap();
        let mut out = vec![0; 67 * 45 * 3 - 1];

        let error = decoder.decode(JPEG, &task(WHOLE), &mut out).unwrap_err();

        assert!(matches!(error, JpegError::BadWindow), "{error}");
    }

    #[test]
    fn a_size_other_than_the_callers_is_rejected() {
        let mut decoder = JpegDecoder::new().unwrap();
        let window = Window {
            height: 44,
            ..WHOLE
        };

        let error = decode(
            &mut decoder,
            &JpegTask {
                height: 44,
                ..task(window)
            },
        )
        .unwrap_err();

        assert!(
            matches!(
                error,
                JpegError::OtherSize {
                    width: 67,
                    height: 45
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn a_decoder_works_after_any_broken_header() {
        let mut decoder = JpegDecoder::new().unwrap();
        let whole = decode(&mut decoder, &task(WHOLE)).unwrap();
        let mut out = vec![0; whole.len()];

        for length in 0..JPEG.len() - 2 {
            assert!(
                decoder
                    .decode(&JPEG[..length], &task(WHOLE), &mut out)
                    .is_err(),
                "{length}"
            );
            assert_eq!(
                decode(&mut decoder, &task(WHOLE)).unwrap(),
                whole,
                "after {length}"
            );
        }
    }

    #[test]
    fn a_missing_restart_marker_is_an_error() {
        let mut decoder = JpegDecoder::new().unwrap();
        let mut bytes = include_bytes!("../../../testdata/conformance/s420r.jpg").to_vec();
        let at = bytes
            .windows(2)
            .position(|pair| pair == [0xFF, 0xD1])
            .unwrap();
        bytes.drain(at..at + 2);
        let mut out = vec![0; 67 * 45 * 3];

        let error = decoder.decode(&bytes, &task(WHOLE), &mut out).unwrap_err();

        assert!(matches!(error, JpegError::Damaged { .. }), "{error}");
    }

    #[test]
    fn more_scans_than_allowed_are_an_error() {
        let mut decoder = JpegDecoder::new().unwrap();
        let bytes = include_bytes!("../../../testdata/conformance/s420p.jpg");
        let mut out = vec![0; 67 * 45 * 3];

        assert!(decoder.decode(bytes, &task(WHOLE), &mut out).is_ok());
        let few = JpegTask {
            max_scans: 3,
            ..task(WHOLE)
        };
        let error = decoder.decode(bytes, &few, &mut out).unwrap_err();

        assert!(error.to_string().contains("more than 3 scans"), "{error}");
    }
}
