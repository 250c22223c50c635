//! Encoding of numbers and texts in a frame, with a limit for every length.

use super::error::WireError;
use infeed_core::printable::printable;

/// Appends numbers and texts to a buffer.
#[derive(Debug, Default)]
pub struct Put(Vec<u8>);

impl Put {
    /// Puts a number of 8 bits.
    pub fn u8(&mut self, number: u8) -> &mut Put {
        self.0.push(number);
        self
    }

    /// Puts a number of 32 bits.
    pub fn u32(&mut self, number: u32) -> &mut Put {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Puts a number of 64 bits.
    pub fn u64(&mut self, number: u64) -> &mut Put {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Puts bytes without their length.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Put {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Puts a text of at most `limit` bytes; a longer text is cut.
    pub fn text(&mut self, text: &str, limit: usize) -> &mut Put {
        let mut end = text.len().min(limit).min(u16::MAX.into());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0.extend_from_slice(&(end as u16).to_le_bytes());
        self.raw(&text.as_bytes()[..end])
    }

    /// Returns all bytes.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// Reads numbers and texts from a frame.
#[derive(Clone, Debug)]
pub struct Take<'a> {
    left: &'a [u8],
    what: &'static str,
}

impl<'a> Take<'a> {
    /// Reads `bytes`; errors call them `what`.
    pub fn new(bytes: &'a [u8], what: &'static str) -> Take<'a> {
        Take { left: bytes, what }
    }

    /// Returns the next `len` bytes.
    ///
    /// # Errors
    ///
    /// If fewer bytes are left. This holds for all methods that read.
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let Some((taken, left)) = self.left.split_at_checked(len) else {
            return Err(WireError::malformed(format!("{} (truncated)", self.what)));
        };
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.raw(N)?);
        Ok(array)
    }

    /// Reads a number of 8 bits.
    ///
    /// # Errors
    ///
    /// As [`Take::raw`].
    pub fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads a number of 32 bits.
    ///
    /// # Errors
    ///
    /// As [`Take::raw`].
    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads a number of 64 bits.
    ///
    /// # Errors
    ///
    /// As [`Take::raw`].
    pub fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a text of at most `limit` bytes. Control characters are replaced, so that it is safe
    /// to log.
    ///
    /// # Errors
    ///
    /// If the text is longer or not UTF-8; or as [`Take::raw`].
    pub fn text(&mut self, limit: usize) -> Result<String, WireError> {
        let len = usize::from(u16::from_le_bytes(self.array()?));
        if len > limit {
            let what = format!(
                "{} with a text of {len} bytes, over the limit of {limit}",
                self.what
            );
            return Err(WireError::malformed(what));
        }
        let text = std::str::from_utf8(self.raw(len)?);
        let text = text.map_err(|_| {
            WireError::malformed(format!("{} with text that is not UTF-8", self.what))
        })?;
        // Errors and logs show a peer's texts.
        Ok(printable(text).into_owned())
    }

    /// Checks that no bytes are left.
    ///
    /// # Errors
    ///
    /// If bytes are left.
    pub fn end(self) -> Result<(), WireError> {
        match self.left.len() {
            0 => Ok(()),
            left => {
                let what = format!("{} with {left} trailing bytes", self.what);
                Err(WireError::malformed(what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip_and_cut_long_or_broken_bytes_are_rejected() {
        let mut put = Put::default();
        put.u8(7).u32(8).u64(9).text("schön", 64).text("longer", 4);
        let bytes = put.finish();
        let mut take = Take::new(&bytes, "a test");

        assert_eq!(take.u8().expect("there"), 7);
        assert_eq!(take.u32().expect("there"), 8);
        assert_eq!(take.u64().expect("there"), 9);
        assert_eq!(take.text(64).expect("there"), "schön");
        assert_eq!(take.clone().text(4).expect("there"), "long");
        assert!(take.clone().text(3).is_err());
        assert!(take.clone().end().is_err());
        assert!(take.clone().raw(7).is_err());
        assert!(Take::new(&[1, 0, 255], "a test").text(9).is_err());
        let text = Take::new(&[1, 0, 7], "a test").text(9).expect("there");
        assert_eq!(text, r"\u{7}", "no bell rings in a log");
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut put = Put::default();
        let bytes = put.text("äöü", 3).finish();

        assert_eq!(Take::new(&bytes, "a test").text(9).expect("there"), "ä");
    }
}
