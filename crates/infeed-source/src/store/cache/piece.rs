//! The file of a piece: its name, a head with identity and checksum, and the bytes.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};

use super::files::{self, MAGIC};
use crate::store::buffers::{BufferPool, read_at};
use infeed_core::random::mix;

/// Magic, length of the identity, length of the bytes, checksum of both.
pub(super) const HEAD: usize = 20;

/// Maximum length of a piece's identity: keys have at most 1024 bytes, and URLs are rarely longer.
pub(super) const LONGEST: usize = 8 << 10;

/// The time of use is updated if it is older than this.
const NOTED: Duration = Duration::from_secs(60);

/// Identity of a piece.
#[derive(Debug)]
pub(super) struct PieceName {
    /// Text that the file of the piece repeats.
    pub(super) text: String,
    /// Name of its file, in a folder named by the first two digits of `folder`.
    pub(super) file: String,
    pub(super) folder: u64,
}

impl PieceName {
    /// Name of a piece of an object.
    pub(super) fn of_object(identity: &str, number: u64) -> PieceName {
        let text = format!("{identity} {number}");
        let hash = |start: u64| text.bytes().fold(mix(start), |h, b| mix(h ^ u64::from(b)));
        let (one, two) = (hash(1), hash(2));
        PieceName {
            file: format!("{one:016x}{two:016x}"),
            folder: one,
            text,
        }
    }

    /// Returns the head of the file of this piece with these bytes.
    pub(super) fn head(&self, bytes: &[u8]) -> Vec<u8> {
        let text = self.text.as_bytes();
        let mut head = Vec::with_capacity(HEAD + text.len());
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&(text.len() as u32).to_le_bytes());
        head.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        let mut sum = checksum(text);
        sum.update(bytes);
        head.extend_from_slice(&(sum.finalize() as u32).to_le_bytes());
        head.extend_from_slice(text);
        head
    }
}

/// Problem of a file with another piece than its name says.
pub(super) const OTHER: &str = "it holds another piece";

/// A piece whose file is open and has the length that its head states.
#[derive(Debug)]
pub(super) struct OpenPiece {
    file: File,
    offset: u64,
    pub(super) length: u64,
    /// Checksum of the name and the bytes, as the file states it.
    stated: u32,
    /// Checksum of the name.
    sum: Digest,
}

impl OpenPiece {
    /// Opens the piece with this name at a path below the folder of a cache. `None` if there is no
    /// file, or none of a piece.
    pub(super) fn find(root: &Path, path: &Path, name: &str) -> Result<Option<OpenPiece>, String> {
        let Ok(Some((file, size))) = files::open(root, path) else {
            return Ok(None);
        };
        match OpenPiece::new(file, size)? {
            (text, piece) if text == name.as_bytes() => Ok(Some(piece)),
            _ => Err(OTHER.to_owned()),
        }
    }

    /// Reads the head of a file of `size` bytes. Returns the name of the piece too.
    pub(super) fn new(mut file: File, size: u64) -> Result<(Vec<u8>, OpenPiece), String> {
        let (name, length, stated) = head(&mut file)?;
        let offset = (HEAD + name.len()) as u64;
        // Checked before memory is allocated for it.
        if size != offset + length {
            return Err(format!(
                "it has {size} bytes instead of {}",
                offset + length
            ));
        }
        let piece = OpenPiece {
            file,
            offset,
            length,
            stated,
            sum: checksum(&name),
        };
        Ok((name, piece))
    }

    /// Reads the bytes, checks them, and notes their use.
    pub(super) fn read(mut self, buffers: &Arc<BufferPool>) -> Result<Bytes, String> {
        let bytes = self.read_checked(buffers)?;
        let used = self.file.metadata().and_then(|data| data.modified());
        if used.is_ok_and(|time| time.elapsed().unwrap_or_default() > NOTED) {
            // Without the update the piece may be removed sooner; nothing else depends on it.
            let _ = self.file.set_modified(SystemTime::now());
        }
        Ok(bytes)
    }

    /// Reads the bytes and checks them.
    pub(super) fn read_checked(&mut self, buffers: &Arc<BufferPool>) -> Result<Bytes, String> {
        let bytes = read_at(&self.file, self.offset, self.length, buffers)
            .map_err(|error| error.to_string())?;
        self.sum.update(&bytes);
        let sum = self.sum.finalize() as u32;
        match bytes.len() as u64 == self.length && sum == self.stated {
            true => Ok(bytes),
            false => Err("its checksum is wrong".to_owned()),
        }
    }
}

/// Reads the head of a piece: its name, the number of its bytes, and the checksum of both.
pub(super) fn head(file: &mut File) -> Result<(Vec<u8>, u64, u32), String> {
    let text = |error: io::Error| error.to_string();
    let mut head = [0; HEAD];
    file.rewind().map_err(text)?;
    file.read_exact(&mut head).map_err(text)?;
    let number = |at: usize| {
        let bytes = head[at..at + 4].iter().rev();
        bytes.fold(0_u32, |number, &byte| number << 8 | u32::from(byte))
    };
    let (named, length, sum) = (number(8) as usize, u64::from(number(12)), number(16));
    if head[..8] != MAGIC || named > LONGEST {
        return Err(OTHER.to_owned());
    }
    let mut name = vec![0; named];
    file.read_exact(&mut name).map_err(text)?;
    Ok((name, length, sum))
}

/// Checksum of the name of a piece, to which its bytes are added.
fn checksum(name: &[u8]) -> Digest {
    let mut sum = Digest::new(CrcAlgorithm::Crc32Iscsi);
    sum.update(name);
    sum
}
