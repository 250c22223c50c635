//! JPEG encoding through libjpeg-turbo, for a transform, synthetic data and tests.
//!
//! Relies on the TurboJPEG 3 C API. The types here own the handle and the output buffer, so nothing
//! leaks if encoding fails.

use std::ffi::{CStr, c_int};
use std::ptr;

use turbojpeg_sys as sys;

/// Chroma subsampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subsampling {
    /// 4:4:4, a chroma sample for every pixel.
    None,
    /// 4:2:2, for every second column.
    Half,
    /// 4:4:0, for every second row.
    HalfRows,
    /// 4:2:0, for every second column and row.
    Quarter,
    /// No chroma: a file with one channel.
    Gray,
}

impl Subsampling {
    /// Columns of the image in one MCU.
    pub fn mcu_width(self) -> u32 {
        match self {
            Subsampling::None | Subsampling::HalfRows | Subsampling::Gray => 8,
            Subsampling::Half | Subsampling::Quarter => 16,
        }
    }

    fn to_sys(self) -> c_int {
        match self {
            Subsampling::None => sys::TJSAMP_TJSAMP_444,
            Subsampling::Half => sys::TJSAMP_TJSAMP_422,
            Subsampling::HalfRows => sys::TJSAMP_TJSAMP_440,
            Subsampling::Quarter => sys::TJSAMP_TJSAMP_420,
            Subsampling::Gray => sys::TJSAMP_TJSAMP_GRAY,
        }
    }
}

/// Reason why an image was not encoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The pixels are not `width * height * 3` bytes, or a side is outside 1 to 65 500.
    #[error("{found} bytes are not {width}x{height} RGB pixels with sides of 1 to 65500")]
    Shape {
        /// Bytes given.
        found: usize,
        /// Columns given.
        width: u32,
        /// Rows given.
        height: u32,
    },
    /// The quality is outside 1 to 100.
    #[error("JPEG quality {0} is not in 1 to 100")]
    Quality(u8),
    /// libjpeg-turbo's reason, such as too little memory.
    #[error("libjpeg-turbo: {0}")]
    Library(String),
}

/// Longest side that the baseline format and libjpeg-turbo support.
pub const MAX_SIDE: u32 = 65_500;

/// Encodes RGB pixels as a baseline JPEG; the same bytes at every SIMD level.
///
/// # Shape
///
/// `rgb` is `[height, width, 3]` `u8`, rows without padding.
///
/// # Errors
///
/// A shape or a quality (1 to 100) out of range, or libjpeg-turbo's error.
pub fn encode(
    rgb: &[u8],
    width: u32,
    height: u32,
    quality: u8,
    subsampling: Subsampling,
) -> Result<Vec<u8>, EncodeError> {
    encode_with_restarts(rgb, width, height, quality, subsampling, 0)
}

/// As [`encode`], with a restart marker after every `interval` MCUs; 0 for none.
///
/// # Errors
///
/// As [`encode`].
pub fn encode_with_restarts(
    rgb: &[u8],
    width: u32,
    height: u32,
    quality: u8,
    subsampling: Subsampling,
    interval: u16,
) -> Result<Vec<u8>, EncodeError> {
    let in_range = |side| (1..=MAX_SIDE).contains(&side);
    let bytes = u64::from(width) * u64::from(height) * 3;
    if !in_range(width) || !in_range(height) || rgb.len() as u64 != bytes {
        return Err(EncodeError::Shape {
            found: rgb.len(),
            width,
            height,
        });
    }
    if !(1..=100).contains(&quality) {
        return Err(EncodeError::Quality(quality));
    }

    let encoder = Encoder::new(sys::TJINIT_TJINIT_COMPRESS)?;
    encoder.set(sys::TJPARAM_TJPARAM_QUALITY, c_int::from(quality))?;
    encoder.set(sys::TJPARAM_TJPARAM_SUBSAMP, subsampling.to_sys())?;
    encoder.set(sys::TJPARAM_TJPARAM_RESTARTBLOCKS, c_int::from(interval))?;
    let mut out = JpegBuffer::default();
    let mut len = 0;
    // SAFETY: the handle is live as long as `encoder`. The library reads `height` rows of `width *
    // 3` bytes (pitch 0 means no padding), which is the length of `rgb` as checked above; both
    // sides fit a `c_int`. With a null buffer, the library allocates one and stores the pointer in
    // `out`, which frees it.
    let failed = unsafe {
        sys::tj3Compress8(
            encoder.handle,
            rgb.as_ptr(),
            width as c_int,
            0,
            height as c_int,
            sys::TJPF_TJPF_RGB,
            &mut out.bytes,
            &mut len,
        )
    };
    if failed != 0 {
        return Err(encoder.error());
    }
    out.len = len as usize;
    Ok(out.to_vec())
}

/// A TurboJPEG compressor or transformer, destroyed when dropped.
pub(crate) struct Encoder {
    /// Live from `new` to `drop`.
    pub(crate) handle: sys::tjhandle,
}

impl Encoder {
    pub(crate) fn new(kind: sys::TJINIT) -> Result<Encoder, EncodeError> {
        // SAFETY: takes no pointers; a null result is checked below.
        let handle = unsafe { sys::tj3Init(kind as c_int) };
        if handle.is_null() {
            return Err(EncodeError::Library("cannot make a compressor".to_owned()));
        }
        Ok(Encoder { handle })
    }

    pub(crate) fn set(&self, parameter: sys::TJPARAM, value: c_int) -> Result<(), EncodeError> {
        // SAFETY: the handle is live: `new` checked it and only `drop` destroys it.
        match unsafe { sys::tj3Set(self.handle, parameter as c_int, value) } {
            0 => Ok(()),
            _ => Err(self.error()),
        }
    }

    pub(crate) fn error(&self) -> EncodeError {
        // SAFETY: the handle is live, and the library returns a NUL-terminated string that stays
        // valid until the next call with this handle. `&self` excludes such a call until the string
        // is copied.
        let text = unsafe { CStr::from_ptr(sys::tj3GetErrorStr(self.handle)) };
        EncodeError::Library(text.to_string_lossy().into_owned())
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: the handle is live and never used again, since `drop` runs once.
        unsafe { sys::tj3Destroy(self.handle) }
    }
}

/// A buffer that libjpeg-turbo allocates, freed when dropped.
pub(crate) struct JpegBuffer {
    /// Null until the library sets it; then allocated by the library.
    pub(crate) bytes: *mut u8,
    /// Number of bytes that the library wrote.
    pub(crate) len: usize,
}

impl Default for JpegBuffer {
    fn default() -> JpegBuffer {
        JpegBuffer {
            bytes: ptr::null_mut(),
            len: 0,
        }
    }
}

impl JpegBuffer {
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        if self.bytes.is_null() {
            return Vec::new();
        }
        // SAFETY: `tj3Compress8` or `tj3Transform` set the non-null pointer, and their callers in
        // this crate stored the number of bytes that the library wrote there. No other code frees
        // or writes them before `drop`.
        unsafe { std::slice::from_raw_parts(self.bytes, self.len) }.to_vec()
    }
}

impl Drop for JpegBuffer {
    fn drop(&mut self) {
        // SAFETY: null, or a buffer of the library's allocator that only this value owns.
        unsafe { sys::tj3Free(self.bytes.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_starts_with_soi_and_ends_with_eoi() {
        let rgb: Vec<u8> = (0..17 * 9 * 3).map(|i| (i * 7) as u8).collect();

        for subsampling in [
            Subsampling::None,
            Subsampling::Half,
            Subsampling::Quarter,
            Subsampling::Gray,
        ] {
            let jpeg = encode(&rgb, 17, 9, 92, subsampling).unwrap();

            assert_eq!(jpeg[..3], [0xFF, 0xD8, 0xFF]);
            assert_eq!(jpeg[jpeg.len() - 2..], [0xFF, 0xD9]);
        }
    }

    #[test]
    fn pixels_that_do_not_fill_the_shape_are_rejected() {
        assert!(matches!(
            encode(&[0; 26], 3, 3, 90, Subsampling::None),
            Err(EncodeError::Shape {
                found: 26,
                width: 3,
                height: 3
            })
        ));
        assert!(matches!(
            encode(&[], 0, 3, 90, Subsampling::None),
            Err(EncodeError::Shape { .. })
        ));
    }

    #[test]
    fn a_quality_out_of_range_is_rejected() {
        for quality in [0, 101] {
            assert!(matches!(
                encode(&[0; 27], 3, 3, quality, Subsampling::None),
                Err(EncodeError::Quality(q)) if q == quality
            ));
        }
    }
}
