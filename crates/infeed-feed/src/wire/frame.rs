//! Frames: kind, length, body and checksum.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | kind |
//! | 4 | length of the body |
//! | n | body |
//! | 4 | CRC-32C of all previous bytes |
//!
//! Columns follow a frame of rows, with lengths from its body; see [`rows`](super::rows).

use std::io::{Read, Write};

use crc_fast::{CrcAlgorithm, Digest};

use super::error::WireError;

/// Maximum body length in bytes of a frame without rows.
pub const CONTROL_BYTES: u32 = 64 << 10;

/// Allocation step in bytes while a frame arrives.
const STEP: u64 = 64 << 10;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The trainer identifies itself and its run.
    Hello,
    /// The feeder accepts the trainer.
    Welcome,
    /// The feeder rejects the trainer.
    Refused,
    /// The trainer requests a batch.
    Request,
    /// The trainer is still connected.
    KeepAlive,
    /// The rows of a batch; columns follow.
    Rows,
    /// The feeder declines to make this batch.
    Declined,
}

const KINDS: [(u32, Kind); 7] = [
    (1, Kind::Hello),
    (2, Kind::Welcome),
    (3, Kind::Refused),
    (4, Kind::Request),
    (5, Kind::KeepAlive),
    (6, Kind::Rows),
    (7, Kind::Declined),
];

/// Header of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Kind of the frame.
    pub kind: Kind,
    len: u32,
}

/// CRC-32C of bytes in pieces.
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

    /// Returns the checksum of all added bytes.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// Writes a frame.
///
/// # Errors
///
/// The writer's errors, or if the body is too long for a frame.
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

/// Reads a frame's header; its length is at most `limit`.
///
/// # Errors
///
/// The reader's errors; if the kind is unknown or the length exceeds the limit.
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
            "a frame of unknown kind {number}"
        )));
    };
    let limit = limit(*kind);
    if len > limit {
        let what = format!("a frame of {len} bytes, over the limit of {limit}");
        return Err(WireError::malformed(what));
    }
    Ok(Head { kind: *kind, len })
}

/// Reads the body of a frame; memory grows with the received bytes.
///
/// # Errors
///
/// The reader's errors; [`WireError::Corrupt`].
pub fn body(from: &mut impl Read, head: Head) -> Result<Vec<u8>, WireError> {
    let mut body = Vec::new();
    exactly(from, head.len.into(), &mut body)?;
    let mut sum = Checksum::default();
    let number = KINDS.iter().find(|(_, known)| *known == head.kind);
    sum.add(&number.map_or(0, |(number, _)| *number).to_le_bytes());
    sum.add(&head.len.to_le_bytes());
    sum.add(&body);
    match verify_checksum(from, &sum)? {
        true => Ok(body),
        false => Err(WireError::Corrupt("a frame")),
    }
}

/// Reads a frame of one of these kinds, at most [`CONTROL_BYTES`] long.
///
/// # Errors
///
/// As [`head`] and [`body`]; or if the frame has another kind.
pub fn control(from: &mut impl Read, kinds: &[Kind]) -> Result<(Kind, Vec<u8>), WireError> {
    let head = head(from, |kind| match kinds.contains(&kind) {
        true => CONTROL_BYTES,
        false => 0,
    })?;
    let body = body(from, head)?;
    if !kinds.contains(&head.kind) {
        let what = format!("{:?} instead of {kinds:?}", head.kind);
        return Err(WireError::malformed(what));
    }
    Ok((head.kind, body))
}

/// Appends `len` bytes to `into`; memory grows with the received bytes.
///
/// # Errors
///
/// The reader's errors; if the stream ends early.
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

/// Reads a checksum and returns whether it equals `sum`.
///
/// # Errors
///
/// The reader's errors.
pub fn verify_checksum(from: &mut impl Read, sum: &Checksum) -> Result<bool, WireError> {
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
    fn frames_round_trip_and_every_changed_bit_is_detected() {
        let bytes = frame(Kind::Request, b"step 7");
        let read = control(&mut &bytes[..], &[Kind::Request, Kind::KeepAlive]);
        assert_eq!(read.expect("whole"), (Kind::Request, b"step 7".to_vec()));

        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(
                control(&mut &changed[..], &[Kind::Request]).is_err(),
                "bit {bit}"
            );
        }
        for end in 0..bytes.len() {
            assert!(control(&mut &bytes[..end], &[Kind::Request]).is_err());
        }
    }

    #[test]
    fn a_length_over_the_limit_is_rejected_before_its_body_is_read() {
        let mut bytes = frame(Kind::Request, b"");
        bytes[4..8].copy_from_slice(&(CONTROL_BYTES + 1).to_le_bytes());

        let error = control(&mut &bytes[..], &[Kind::Request]).expect_err("too long");

        assert!(
            error.to_string().contains("over the limit of 65536"),
            "{error}"
        );
    }

    #[test]
    fn memory_grows_with_received_bytes_and_not_with_the_claimed_length() {
        let mut bytes = Vec::new();

        let error = exactly(&mut &b"few"[..], u64::MAX, &mut bytes);

        assert!(error.is_err() && bytes.capacity() as u64 <= 2 * STEP);
    }
}
