//! Rewrites JPEGs with restart markers through libjpeg-turbo. Their coefficients stay the same.
//!
//! Relies on `tj3Transform` of the TurboJPEG 3 interface without an operation: entropy decoding and
//! encoding only. Every file becomes a sequential, Huffman-coded file of one scan with optimised
//! tables. Colour profile, EXIF and comments are kept.

use std::ffi::c_int;
use std::ptr;

use turbojpeg_sys as sys;

use crate::jpeg_encode::{EncodeError, Encoder, JpegBuffer};

/// Settings and limits of a rewrite.
#[derive(Clone, Copy, Debug)]
pub struct RestartTask {
    /// MCUs between two restart markers, at least 1.
    pub interval: u16,
    /// Maximum number of pixels of the image.
    pub max_pixels: u64,
    /// Maximum number of scans of a progressive file.
    pub max_scans: u16,
    /// Maximum memory that libjpeg-turbo may use for coefficients, in MiB, at least 1.
    pub max_memory_mib: u16,
}

/// Reason why a JPEG was not rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestartError {
    /// The interval is 0.
    #[error("a restart interval is 1 to 65535 MCUs, not 0")]
    Interval,
    /// The file is damaged, exceeds a limit, or cannot be stored as one sequential scan.
    #[error(transparent)]
    Library(#[from] EncodeError),
}

/// Rewrites a JPEG with restart markers; the same bytes at every SIMD level.
///
/// # Errors
///
/// `Library` for everything that libjpeg-turbo rejects or warns of: a file is rewritten only if no
/// part of it had to be invented or skipped.
///
/// # Cost
///
/// Keeps the coefficients of the whole image in memory, two bytes each.
pub fn with_restarts(bytes: &[u8], task: &RestartTask) -> Result<Vec<u8>, RestartError> {
    if task.interval == 0 {
        return Err(RestartError::Interval);
    }
    let encoder = Encoder::new(sys::TJINIT_TJINIT_TRANSFORM)?;
    encoder.set(sys::TJPARAM_TJPARAM_STOPONWARNING, 1)?;
    encoder.set(
        sys::TJPARAM_TJPARAM_RESTARTBLOCKS,
        c_int::from(task.interval),
    )?;
    encoder.set(
        sys::TJPARAM_TJPARAM_SCANLIMIT,
        c_int::from(task.max_scans.max(1)),
    )?;
    // 0 would mean no limit.
    encoder.set(
        sys::TJPARAM_TJPARAM_MAXMEMORY,
        c_int::from(task.max_memory_mib.max(1)),
    )?;
    encoder.set(
        sys::TJPARAM_TJPARAM_MAXPIXELS,
        c_int::try_from(task.max_pixels.max(1)).unwrap_or(c_int::MAX),
    )?;
    let transform = sys::tjtransform {
        r: sys::tjregion {
            x: 0,
            y: 0,
            w: 0,
            h: 0,
        },
        op: sys::TJXOP_TJXOP_NONE as c_int,
        options: sys::TJXOPT_OPTIMIZE as c_int,
        data: ptr::null_mut(),
        customFilter: None,
    };
    let mut out = JpegBuffer::default();
    let mut len = 0;
    // SAFETY: the handle is live as long as `encoder`, which was made for transforms. Pointer and
    // length are those of `bytes`. The call passes a count of one transform, and one pointer, one
    // length and one `transform` (without callback) for it, which all outlive the call. With a null
    // buffer, the library allocates one and stores the pointer in `out`, which frees it, also after
    // an error.
    let failed = unsafe {
        sys::tj3Transform(
            encoder.handle,
            bytes.as_ptr(),
            bytes.len() as _,
            1,
            &mut out.bytes,
            &mut len,
            &transform,
        )
    };
    if failed != 0 {
        return Err(encoder.error().into());
    }
    out.len = len as usize;
    Ok(out.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jpeg::{JpegDecoder, JpegTask, PixelFormat, Window};

    fn task(interval: u16) -> RestartTask {
        RestartTask {
            interval,
            max_pixels: 1 << 20,
            max_scans: 100,
            max_memory_mib: 16,
        }
    }

    fn file(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/conformance/");
        std::fs::read(format!("{folder}{name}")).unwrap()
    }

    /// Pixels of a 67x45 file.
    fn pixels(bytes: &[u8], format: PixelFormat) -> Vec<u8> {
        let task = JpegTask {
            width: 67,
            height: 45,
            eighths: 8,
            window: Window {
                top: 0,
                left: 0,
                height: 45,
                width: 67,
            },
            format,
            max_scans: 100,
            max_memory_mib: 16,
        };
        let mut out = vec![0; 67 * 45 * format.bytes()];
        JpegDecoder::new()
            .unwrap()
            .decode(bytes, &task, &mut out)
            .unwrap();
        out
    }

    fn count(bytes: &[u8], marker: impl Fn(u8) -> bool) -> usize {
        bytes
            .windows(2)
            .filter(|pair| pair[0] == 0xFF && marker(pair[1]))
            .count()
    }

    #[test]
    fn a_rewritten_file_keeps_its_pixels_and_is_sequential_huffman_of_one_scan() {
        for (name, format) in [
            ("s420.jpg", PixelFormat::Rgb),
            ("s420p.jpg", PixelFormat::Rgb),
            ("s420a.jpg", PixelFormat::Rgb),
            ("s420r.jpg", PixelFormat::Rgb),
            ("s422n.jpg", PixelFormat::Rgb),
            ("s440.jpg", PixelFormat::Rgb),
            ("s410.jpg", PixelFormat::Rgb),
            ("rgb.jpg", PixelFormat::Rgb),
            ("gray.jpg", PixelFormat::Gray),
            ("grayp.jpg", PixelFormat::Gray),
            ("cmyk.jpg", PixelFormat::Cmyk),
            ("cmykp.jpg", PixelFormat::Cmyk),
        ] {
            let bytes = file(name);

            let rewritten = with_restarts(&bytes, &task(1)).unwrap();

            assert_eq!(pixels(&rewritten, format), pixels(&bytes, format), "{name}");
            assert_eq!(count(&rewritten, |marker| marker == 0xDA), 1, "{name}");
            assert_eq!(
                count(&rewritten, |marker| matches!(marker, 0xC2 | 0xC9 | 0xCA)),
                0,
                "{name}"
            );
            assert!(
                count(&rewritten, |marker| (0xD0..=0xD7).contains(&marker)) > 0,
                "{name}"
            );
        }
    }

    #[test]
    fn rewriting_keeps_orientation_and_profile() {
        let bytes = file("orientation6.jpg");
        let mut with_profile = bytes[..2].to_vec();
        let profile = [&b"ICC_PROFILE\0\x01\x01"[..], &[7; 40]].concat();
        with_profile.extend([0xFF, 0xE2, 0, profile.len() as u8 + 2]);
        with_profile.extend(&profile);
        with_profile.extend(&bytes[2..]);

        let rewritten = with_restarts(&with_profile, &task(1)).unwrap();

        let holds = |part: &[u8]| rewritten.windows(part.len()).any(|found| found == part);
        assert!(holds(b"Exif\0\0"));
        assert!(holds(&profile));
    }

    #[test]
    fn rewriting_twice_gives_the_same_bytes_as_once() {
        let once = with_restarts(&file("s420p.jpg"), &task(5)).unwrap();

        assert_eq!(with_restarts(&once, &task(5)).unwrap(), once);
    }

    #[test]
    fn a_damaged_file_is_never_rewritten() {
        let bytes = file("s420r.jpg");
        let cut = [&bytes[..bytes.len() * 3 / 4], &[0xFF, 0xD9]].concat();

        assert!(matches!(
            with_restarts(&cut, &task(1)),
            Err(RestartError::Library(_))
        ));
        assert!(matches!(
            with_restarts(&[], &task(1)),
            Err(RestartError::Library(_))
        ));
        for length in 0..bytes.len() - 2 {
            assert!(with_restarts(&bytes[..length], &task(1)).is_err());
        }
    }

    #[test]
    fn limits_are_enforced() {
        let bytes = file("s420p.jpg");
        let pixels = RestartTask {
            max_pixels: 67 * 45 - 1,
            ..task(1)
        };
        let scans = RestartTask {
            max_scans: 2,
            ..task(1)
        };

        assert!(with_restarts(&bytes, &pixels).is_err());
        assert!(with_restarts(&bytes, &scans).is_err());
        assert!(matches!(
            with_restarts(&bytes, &task(0)),
            Err(RestartError::Interval)
        ));
    }
}
