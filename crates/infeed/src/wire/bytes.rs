//! Numbers and texts in a frame, with a limit for everything that has a length.

use super::WireError;
use crate::printable::printable;

/// Puts numbers and texts behind each other.
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

    /// Puts bytes without their number.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Put {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Puts a text of at most `limit` bytes; of a longer one, its beginning.
    pub fn text(&mut self, text: &str, limit: usize) -> &mut Put {
        let mut end = text.len().min(limit).min(u16::MAX.into());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0.extend_from_slice(&(end as u16).to_le_bytes());
        self.raw(&text.as_bytes()[..end])
    }

    /// All of it.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// Takes numbers and texts out of a frame.
#[derive(Clone, Debug)]
pub struct Take<'a> {
    left: &'a [u8],
    what: &'static str,
}

impl<'a> Take<'a> {
    /// Over the bytes of something, which its errors name.
    pub fn new(bytes: &'a [u8], what: &'static str) -> Take<'a> {
        Take { left: bytes, what }
    }

    /// The next bytes.
    ///
    /// # Errors
    ///
    /// If there are fewer; so it is with all that take something.
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let Some((taken, left)) = self.left.split_at_checked(len) else {
            return Err(WireError::malformed(format!("{} that is cut", self.what)));
        };
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.raw(N)?);
        Ok(array)
    }

    /// A number of 8 bits.
    ///
    /// # Errors
    ///
    /// As [`Take::raw`].
    pub fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    /// A number of 32 bits.
    ///
    /// # Errors
    ///
    /// As [`Take::raw`].
    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A number of 64 bits.
    ///
    /// # Errors
    ///
    /// As [`Take::raw`].
    pub fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A text of at most `limit` bytes, fit for a line of a log: control characters are replaced.
    ///
    /// # Errors
    ///
    /// If it is longer, or no UTF-8; or as [`Take::raw`].
    pub fn text(&mut self, limit: usize) -> Result<String, WireError> {
        let len = usize::from(u16::from_le_bytes(self.array()?));
        if len > limit {
            let what = format!("{} with a text of {len} bytes, over {limit}", self.what);
            return Err(WireError::malformed(what));
        }
        let text = std::str::from_utf8(self.raw(len)?);
        let text =
            text.map_err(|_| WireError::malformed(format!("{} with a broken text", self.what)))?;
        // Texts of a peer are shown in errors and logs.
        Ok(printable(text).into_owned())
    }

    /// Nothing may be left.
    ///
    /// # Errors
    ///
    /// If something is.
    pub fn end(self) -> Result<(), WireError> {
        match self.left.len() {
            0 => Ok(()),
            left => {
                let what = format!("{} with {left} bytes behind its end", self.what);
                Err(WireError::malformed(what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken_and_what_is_cut_longer_or_broken_is_refused() {
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
        let told = Take::new(&[1, 0, 7], "a test").text(9).expect("there");
        assert_eq!(told, r"\u{7}", "no bell rings in a log");
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut put = Put::default();
        let bytes = put.text("äöü", 3).finish();

        assert_eq!(Take::new(&bytes, "a test").text(9).expect("there"), "ä");
    }
}
