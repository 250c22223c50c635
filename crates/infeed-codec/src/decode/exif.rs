//! Reads the orientation of an image from its metadata, as Pillow does, and writes it.
//!
//! EXIF has precedence. XMP counts only if EXIF states no orientation, valid or not. Source: EXIF
//! 2.32, 4.6 (TIFF structure): byte order, 42, offset of the first directory; a directory is a count
//! and entries of 12 bytes: tag, type, count, value. In a BigTIFF (43), offsets and counts have 8
//! bytes and entries 20. TIFF 6.0, 2 (types).

const ORIENTATION: u16 = 0x0112;
const XMP: u16 = 0x02BC;

/// Bytes before the TIFF structure in JPEGs. Some writers put them into other files, or twice.
const PREFIX: &[u8] = b"Exif\0\0";

/// Returns the orientation, 1 to 8, from an EXIF block and an XMP packet. Returns 1 if there is none
/// or it is invalid.
///
/// Broken metadata does not make an image bad: like viewers and Pillow, the caller then treats the
/// image as upright.
pub(super) fn orientation(exif: Option<&[u8]>, xmp: Option<&[u8]>) -> u8 {
    exif.and_then(in_exif)
        .or_else(|| xmp.and_then(in_xmp))
        .filter(|value| (1..=8).contains(value))
        .unwrap_or(1)
}

/// Returns the orientation, 1 to 8, from a TIFF file. Returns 1 if there is none or it is invalid.
pub(super) fn orientation_of_tiff(file: &[u8]) -> u8 {
    let xmp = Directory::first(file).and_then(|directory| directory.find(XMP));
    orientation(Some(file), xmp.map(|value| value.data))
}

/// Returns an EXIF block that holds only an orientation. JPEGs need the prefix `Exif\0\0` before it.
pub fn block(orientation: u8) -> Vec<u8> {
    const SHORT: u8 = 3;
    let mut block = b"MM\0*\0\0\0\x08\0\x01".to_vec();
    block.extend(ORIENTATION.to_be_bytes());
    // Type, count, and the value in the first two of four bytes; then no next directory.
    block.extend([0, SHORT, 0, 0, 0, 1, 0, orientation, 0, 0]);
    block.extend([0; 4]);
    block
}

/// Returns the stated orientation, or 0 if it is no number that fits.
fn in_exif(mut exif: &[u8]) -> Option<u8> {
    for _ in 0..2 {
        exif = exif.strip_prefix(PREFIX).unwrap_or(exif);
    }
    let value = Directory::first(exif)?.find(ORIENTATION)?;
    let number = value.number().filter(|number| number.fract() == 0.0);
    // Numbers outside 0 to 255 saturate, and 255 is no orientation either.
    Some(number.map_or(0, |number| number as u8))
}

/// Returns the digit after `tiff:Orientation`, as an attribute or an element.
fn in_xmp(xmp: &[u8]) -> Option<u8> {
    const NAME: &[u8] = b"tiff:Orientation";
    memchr::memmem::find_iter(xmp, NAME).find_map(|at| {
        let rest = &xmp[at + NAME.len()..];
        let value = rest
            .strip_prefix(b"=\"")
            .or_else(|| rest.strip_prefix(b">"))?;
        let digit = value.first().filter(|byte| byte.is_ascii_digit())?;
        Some(digit - b'0')
    })
}

/// A value of a directory.
struct TagValue<'a> {
    kind: u16,
    /// Not empty: at least one whole number.
    data: &'a [u8],
    is_big_endian: bool,
}

impl TagValue<'_> {
    /// Returns the first number. None for bytes and text, which Pillow does not compare with
    /// numbers.
    fn number(&self) -> Option<f64> {
        let unsigned = |from: usize, length: usize| {
            integer(self.data, from, length, self.is_big_endian).map(|number| number as f64)
        };
        let signed = |from: usize, length: usize| {
            let number = integer(self.data, from, length, self.is_big_endian)?;
            let unused = 64 - 8 * length;
            Some(((number << unused) as i64 >> unused) as f64)
        };
        match self.kind {
            3 => unsigned(0, 2),
            4 | 13 => unsigned(0, 4),
            5 => Some(unsigned(0, 4)? / unsigned(4, 4)?),
            6 => signed(0, 1),
            8 => signed(0, 2),
            9 => signed(0, 4),
            10 => Some(signed(0, 4)? / signed(4, 4)?),
            11 => {
                let bits = integer(self.data, 0, 4, self.is_big_endian)?;
                Some(f64::from(f32::from_bits(bits as u32)))
            }
            12 => Some(f64::from_bits(integer(
                self.data,
                0,
                8,
                self.is_big_endian,
            )?)),
            16 => unsigned(0, 8),
            _ => None,
        }
    }
}

/// Returns the bytes of a number of a type. None for an unknown type.
fn unit(kind: u16) -> Option<usize> {
    match kind {
        1 | 2 | 6 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 9 | 11 | 13 => Some(4),
        5 | 10 | 12 | 16 => Some(8),
        _ => None,
    }
}

/// Returns the unsigned number of up to 8 bytes at an offset.
fn integer(bytes: &[u8], at: usize, length: usize, is_big_endian: bool) -> Option<u64> {
    let raw = bytes.get(at..at.checked_add(length)?)?;
    let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    Some(match is_big_endian {
        true => raw.iter().fold(0, push),
        false => raw.iter().rev().fold(0, push),
    })
}

/// The first directory of a TIFF structure.
struct Directory<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
    /// Bytes of an offset, of the number of values and of a value in an entry.
    word: usize,
    /// Bytes of an entry.
    entry: usize,
    first: usize,
    entries: u64,
}

impl<'a> Directory<'a> {
    fn first(bytes: &'a [u8]) -> Option<Directory<'a>> {
        let (is_big_endian, is_big_tiff) = match bytes.get(..4)? {
            // Some writers exchange the bytes of 42.
            b"II*\0" | b"II\0*" => (false, false),
            b"MM\0*" | b"MM*\0" => (true, false),
            b"II+\0" => (false, true),
            b"MM\0+" => (true, true),
            _ => return None,
        };
        // A structure of 43 has the sizes of an offset before the offset.
        let (at, word, count, entry) = match is_big_tiff {
            true => (8, 8, 8, 20),
            false => (4, 4, 2, 12),
        };
        let directory = usize::try_from(integer(bytes, at, word, is_big_endian)?).ok()?;
        Some(Directory {
            bytes,
            is_big_endian,
            word,
            entry,
            first: directory.checked_add(count)?,
            entries: integer(bytes, directory, count, is_big_endian)?,
        })
    }

    fn integer(&self, at: usize, length: usize) -> Option<u64> {
        integer(self.bytes, at, length, self.is_big_endian)
    }

    /// Returns the first usable value of a tag. Skips values of an unknown type and values outside
    /// the bytes.
    fn find(&self, tag: u16) -> Option<TagValue<'a>> {
        let mut at = self.first;
        for _ in 0..self.entries {
            let found = self.integer(at, 2)?;
            if found == u64::from(tag)
                && let Some(value) = self.value(at)
            {
                return Some(value);
            }
            at = at.checked_add(self.entry)?;
        }
        None
    }

    /// Returns the value of the entry at an offset.
    fn value(&self, at: usize) -> Option<TagValue<'a>> {
        let kind = self.integer(at + 2, 2)? as u16;
        let count = usize::try_from(self.integer(at + 4, self.word)?).ok()?;
        let length = count.checked_mul(unit(kind)?)?;
        let inside = at + 4 + self.word;
        let from = match length <= self.word {
            true => inside,
            false => usize::try_from(self.integer(inside, self.word)?).ok()?,
        };
        let data = self.bytes.get(from..from.checked_add(length)?)?;
        (!data.is_empty()).then_some(TagValue {
            kind,
            data,
            is_big_endian: self.is_big_endian,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a TIFF structure with entries of a tag, a type, a count and up to 8 bytes of values.
    fn structure(is_big_endian: bool, entries: &[(u16, u16, u32, Vec<u8>)]) -> Vec<u8> {
        let short = |number: u16| match is_big_endian {
            true => number.to_be_bytes(),
            false => number.to_le_bytes(),
        };
        let long = |number: u32| match is_big_endian {
            true => number.to_be_bytes(),
            false => number.to_le_bytes(),
        };
        let mut bytes = if is_big_endian { b"MM" } else { b"II" }.to_vec();
        bytes.extend(short(42));
        bytes.extend(long(8));
        bytes.extend(short(entries.len() as u16));
        let mut behind: Vec<u8> = Vec::new();
        for (tag, kind, count, value) in entries {
            bytes.extend(short(*tag));
            bytes.extend(short(*kind));
            bytes.extend(long(*count));
            if value.len() <= 4 {
                bytes.extend(value);
                bytes.resize(bytes.len() + 4 - value.len(), 0);
            } else {
                bytes.extend(long((14 + 12 * entries.len() + behind.len()) as u32));
                behind.extend(value);
            }
        }
        bytes.extend(long(0));
        bytes.extend(behind);
        bytes
    }

    /// Returns a number in each type: its code, its bytes, and whether Pillow 13 turns by it.
    fn in_each_type(number: u8, is_big_endian: bool) -> Vec<(u16, Vec<u8>, bool)> {
        let ordered = |mut bytes: Vec<u8>| {
            if !is_big_endian {
                bytes.reverse();
            }
            bytes
        };
        let long = |number: u32| ordered(number.to_be_bytes().to_vec());
        let wide = u32::from(number);
        vec![
            (1, vec![number], false),
            (2, vec![b'0' + number, 0], false),
            (3, ordered(u16::from(number).to_be_bytes().to_vec()), true),
            (4, long(wide), true),
            (5, [long(2 * wide), long(2)].concat(), true),
            (5, [long(2 * wide + 1), long(2)].concat(), false),
            (5, [long(wide), long(0)].concat(), false),
            (6, vec![number], true),
            (7, vec![number], false),
            (8, ordered(i16::from(number).to_be_bytes().to_vec()), true),
            (9, long(wide), true),
            (9, long(wide.wrapping_neg()), false),
            (
                10,
                [long(wide.wrapping_neg()), long(1_u32.wrapping_neg())].concat(),
                true,
            ),
            (11, ordered(f32::from(number).to_be_bytes().to_vec()), true),
            (12, ordered(f64::from(number).to_be_bytes().to_vec()), true),
            (13, long(wide), true),
            (16, ordered(u64::from(number).to_be_bytes().to_vec()), true),
            (14, vec![number], false),
        ]
    }

    #[test]
    fn numbers_of_any_type_turn_and_bytes_and_text_do_not() {
        for is_big_endian in [false, true] {
            for number in 1..=8 {
                for (kind, bytes, turns) in in_each_type(number, is_big_endian) {
                    let count = match (kind, bytes.len()) {
                        (2, length) => length as u32,
                        _ => 1,
                    };
                    let exif = structure(is_big_endian, &[(ORIENTATION, kind, count, bytes)]);
                    let expected = if turns { number } else { 1 };
                    let found = orientation(Some(&exif), None);
                    assert_eq!(found, expected, "{number} as type {kind}, {is_big_endian}");
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_no_orientation_do_not_turn() {
        for number in [0, 9, 255, 256 + 6, u16::MAX] {
            let exif = structure(false, &[(ORIENTATION, 3, 1, number.to_le_bytes().to_vec())]);
            assert_eq!(orientation(Some(&exif), None), 1, "{number}");
        }
    }

    #[test]
    fn the_first_of_several_numbers_and_the_first_usable_entry_count() {
        let several = structure(true, &[(ORIENTATION, 3, 2, vec![0, 6, 0, 3])]);
        assert_eq!(orientation(Some(&several), None), 6);

        let unusable = (ORIENTATION, 14, 1, vec![3]);
        let outside = (ORIENTATION, 3, u32::MAX, vec![0, 3]);
        let empty = (ORIENTATION, 3, 0, vec![0, 3]);
        let usable = (ORIENTATION, 4, 1, vec![0, 0, 0, 8]);
        let later = (ORIENTATION, 3, 1, vec![0, 2]);
        let exif = structure(true, &[unusable, outside, empty, usable, later]);
        assert_eq!(orientation(Some(&exif), None), 8);
    }

    #[test]
    fn up_to_two_prefixes_are_skipped() {
        let plain = block(6);
        let once = [PREFIX, &plain].concat();
        let twice = [PREFIX, &once].concat();
        for exif in [plain, once, twice] {
            assert_eq!(orientation(Some(&exif), None), 6);
        }
    }

    #[test]
    fn xmp_turns_only_if_exif_states_nothing() {
        let packets: [(&[u8], u8); 6] = [
            (b"<rdf tiff:Orientation=\"6\"/>", 6),
            (b"<tiff:Orientation>8</tiff:Orientation>", 8),
            (b"tiff:Orientation tiff:Orientation=\"3\"", 3),
            (b"<rdf tiff:Orientation='6'/>", 1),
            (b"<rdf tiff:Orientation=\"9\"/>", 1),
            (b"<rdf tiff:Orientation=\"", 1),
        ];
        for (packet, expected) in packets {
            assert_eq!(orientation(None, Some(packet)), expected);
            assert_eq!(orientation(Some(b"MM\0"), Some(packet)), expected);
            assert_eq!(orientation(Some(&block(2)), Some(packet)), 2);
            assert_eq!(orientation(Some(&block(9)), Some(packet)), 1);
        }
    }

    #[test]
    fn every_cut_of_a_block_is_upright_or_states_its_orientation() {
        let exif = structure(false, &[(ORIENTATION, 5, 1, vec![6, 0, 0, 0, 1, 0, 0, 0])]);
        assert_eq!(orientation(Some(&exif), None), 6);
        for end in 0..exif.len() {
            assert_eq!(orientation(Some(&exif[..end]), None), 1, "{end}");
        }
    }

    #[test]
    fn a_big_tiff_states_its_orientation() {
        let mut file = b"II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
        file.extend(b"\x12\x01\x03\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0");
        assert_eq!(orientation_of_tiff(&file), 5);
    }
}
