//! Reads the orientation tag of an EXIF block.
//!
//! Source: EXIF 2.32, 4.6 (TIFF structure): byte order, 42, offset of the first directory; a
//! directory is a count and entries of 12 bytes: tag, type, count, value.

const ORIENTATION: u16 = 0x0112;
const SHORT: u16 = 3;

/// Returns the orientation, 1 to 8, from a TIFF structure. Returns 1 if there is none or it is
/// invalid.
///
/// Broken metadata does not make an image bad: like viewers and Pillow, the caller then treats the
/// image as upright.
pub(super) fn orientation(tiff: &[u8]) -> u8 {
    find(tiff)
        .filter(|value| (1..=8).contains(value))
        .unwrap_or(1)
}

fn find(tiff: &[u8]) -> Option<u8> {
    let is_big = match tiff.get(..4)? {
        b"II*\0" => false,
        b"MM\0*" => true,
        _ => return None,
    };
    let short = |at: usize| -> Option<u16> {
        let bytes = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if is_big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    };
    let long = |at: usize| -> Option<u32> {
        let bytes = tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if is_big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    };
    let directory = long(4)? as usize;
    for entry in 0..usize::from(short(directory)?) {
        let at = directory.checked_add(2 + 12 * entry)?;
        if short(at)? == ORIENTATION {
            let is_one_short = short(at + 2)? == SHORT && long(at + 4)? == 1;
            return is_one_short
                .then(|| short(at + 8))
                .flatten()?
                .try_into()
                .ok();
        }
    }
    None
}
