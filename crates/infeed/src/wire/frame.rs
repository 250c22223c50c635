//! Frames: what it is, how long it is, its bytes, their checksum.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | kind |
//! | 4 | length of the body |
//! | n | body |
//! | 4 | CRC-32C of all before |
//!
//! Behind a frame of rows come columns, whose lengths its body tells; see [`rows`](super::rows).

use std::io::{Read, Write};

use crc_fast::{CrcAlgorithm, Digest};

use super::WireError;

/// Bytes of a frame that holds no rows.
pub const CONTROL_BYTES: u32 = 64 << 10;

/// Bytes that memory is taken for at once while a frame comes.
const STEP: u64 = 64 << 10;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The trainer says who it is and which run it means.
    Hello,
    /// The feeder will feed it.
    Welcome,
    /// The feeder will not.
    Refused,
    /// The trainer asks for a batch.
    Ask,
    /// The trainer is still there.
    Here,
    /// The rows of a batch, and columns behind it.
    Rows,
    /// The feeder cannot make this batch.
    Declined,
}

const KINDS: [(u32, Kind); 7] = [
    (1, Kind::Hello),
    (2, Kind::Welcome),
    (3, Kind::Refused),
    (4, Kind::Ask),
    (5, Kind::Here),
    (6, Kind::Rows),
    (7, Kind::Declined),
];

/// What is known of a frame before its body has come.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// What it is.
    pub kind: Kind,
    len: u32,
}

/// The CRC-32C of bytes that come in pieces.
#[derive(Debug)]
pub struct Checksum(Digest);

impl Default for Checksum {
    fn default() -> Checksum {
        Checksum(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Checksum {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all that was added.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// Writes a frame.
///
/// # Errors
///
/// As the writer's, or if the body is longer than a frame may be.
pub fn write(to: &mut impl Write, kind: Kind, body: &[u8]) -> Result<(), WireError> {
    let number = KINDS.iter().find(|(_, known)| *known == kind);
    let number = number.map_or(0, |(number, _)| *number);
    let len = u32::try_from(body.len())
        .map_err(|_| WireError::malformed("a frame of more than 4 GiB"))?;
    let mut sum = Checksum::default();
    for part in [&number.to_le_bytes()[..], &len.to_le_bytes()[..], body] {
        sum.add(part);
        to.write_all(part)?;
    }
    to.write_all(&sum.finish().to_le_bytes())?;
    Ok(())
}

/// Reads what a frame is and how long, which is no more than `limit`.
///
/// # Errors
///
/// As the reader's; if no such frame may come.
pub fn head(from: &mut impl Read, limit: impl Fn(Kind) -> u32) -> Result<Head, WireError> {
    let mut head = [0; 8];
    from.read_exact(&mut head)?;
    let [a, b, c, d, e, f, g, h] = head;
    let (number, len) = (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    );
    let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == number) else {
        return Err(WireError::malformed(format!(
            "a frame of the kind {number}"
        )));
    };
    let limit = limit(*kind);
    if len > limit {
        let what = format!("a frame of {len} bytes, over {limit}");
        return Err(WireError::malformed(what));
    }
    Ok(Head { kind: *kind, len })
}

/// Reads the body of a frame; memory grows as it comes.
///
/// # Errors
///
/// As the reader's; [`WireError::Corrupt`].
pub fn body(from: &mut impl Read, head: Head) -> Result<Vec<u8>, WireError> {
    let mut body = Vec::new();
    exactly(from, head.len.into(), &mut body)?;
    let mut sum = Checksum::default();
    let number = KINDS.iter().find(|(_, known)| *known == head.kind);
    sum.add(&number.map_or(0, |(number, _)| *number).to_le_bytes());
    sum.add(&head.len.to_le_bytes());
    sum.add(&body);
    match checked(from, &sum)? {
        true => Ok(body),
        false => Err(WireError::Corrupt("a frame")),
    }
}

/// Reads a frame of one of these kinds, at most [`CONTROL_BYTES`] long.
///
/// # Errors
///
/// As [`head`] and [`body`]; or if it is of another kind.
pub fn control(from: &mut impl Read, kinds: &[Kind]) -> Result<(Kind, Vec<u8>), WireError> {
    let head = head(from, |kind| match kinds.contains(&kind) {
        true => CONTROL_BYTES,
        false => 0,
    })?;
    let body = body(from, head)?;
    if !kinds.contains(&head.kind) {
        let what = format!("{:?} where {kinds:?} may come", head.kind);
        return Err(WireError::malformed(what));
    }
    Ok((head.kind, body))
}

/// Reads so many bytes behind those that are there; memory grows as they come.
///
/// # Errors
///
/// As the reader's; if it ends before.
pub fn exactly(from: &mut impl Read, len: u64, into: &mut Vec<u8>) -> Result<(), WireError> {
    let mut left = len;
    while left > 0 {
        let part = left.min(STEP);
        into.reserve(part as usize);
        let read = from.take(part).read_to_end(into)? as u64;
        if read < part {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        left -= part;
    }
    Ok(())
}

/// Reads a checksum and says whether it is this one.
///
/// # Errors
///
/// As the reader's.
pub fn checked(from: &mut impl Read, sum: &Checksum) -> Result<bool, WireError> {
    let mut sent = [0; 4];
    from.read_exact(&mut sent)?;
    Ok(u32::from_le_bytes(sent) == sum.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, kind, body).expect("memory takes it");
        bytes
    }

    #[test]
    fn a_frame_comes_back_and_every_changed_bit_of_it_is_noticed() {
        let bytes = frame(Kind::Ask, b"step 7");
        let read = control(&mut &bytes[..], &[Kind::Ask, Kind::Here]);
        assert_eq!(read.expect("whole"), (Kind::Ask, b"step 7".to_vec()));

        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(
                control(&mut &changed[..], &[Kind::Ask]).is_err(),
                "bit {bit}"
            );
        }
        for end in 0..bytes.len() {
            assert!(control(&mut &bytes[..end], &[Kind::Ask]).is_err());
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_a_byte_of_it_is_read() {
        let mut bytes = frame(Kind::Ask, b"");
        bytes[4..8].copy_from_slice(&(CONTROL_BYTES + 1).to_le_bytes());

        let error = control(&mut &bytes[..], &[Kind::Ask]).expect_err("too long");

        assert!(error.to_string().contains("over 65536"), "{error}");
    }

    #[test]
    fn memory_follows_the_bytes_that_came_and_not_the_length_that_was_said() {
        let mut bytes = Vec::new();

        let error = exactly(&mut &b"few"[..], u64::MAX, &mut bytes);

        assert!(error.is_err() && bytes.capacity() as u64 <= 2 * STEP);
    }
}
