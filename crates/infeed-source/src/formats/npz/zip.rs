//! Members of a zip archive as NumPy writes them: stored or deflated, not encrypted.
//!
//! Source: PKWARE's APPNOTE, sections 4.3.7 to 4.3.16 and 4.5.3 (Zip64). Offsets and sizes are
//! compared with the archive before they are used.

use std::io::{self, Read as _};
use std::ops::Range;

use bytes::Bytes;
use flate2::read::DeflateDecoder;

use crate::shards::index::invalid;
use crate::store::Blob;

/// Maximum bytes of a directory of members.
const DIRECTORY_BYTES: u64 = 64 << 20;

/// Bytes of the record that ends an archive, and maximum length of the comment after it.
const END_BYTES: u64 = 22;
const COMMENT_BYTES: u64 = 65_535;

/// Maximum ratio of deflate.
const RATIO: u64 = 1032;

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ZipMember {
    pub(super) name: String,
    /// Range of its bytes in the archive.
    pub(super) span: Range<u64>,
    pub(super) deflated: bool,
    /// Bytes after inflation.
    pub(super) length: u64,
    crc: u32,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u64::from(u16::from_le_bytes(bytes.try_into().ok()?)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u64::from(u32::from_le_bytes(bytes.try_into().ok()?)))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Reads the members of an archive, in the order of its directory.
///
/// # Errors
///
/// The storage's error, or [`io::ErrorKind::InvalidData`] with the reason.
pub(super) fn members(archive: &dyn Blob) -> io::Result<Vec<ZipMember>> {
    let directory = directory(archive)?;
    let mut members = Vec::new();
    let mut at = 0;
    while at < directory.len() {
        let here = || {
            invalid(format!(
                "the directory of the archive is damaged at its byte {at}"
            ))
        };
        let (entry, next) = entry(&directory[at..]).ok_or_else(here)?;
        let member = locate(archive, entry)?;
        members.push(member);
        at += next;
    }
    Ok(members)
}

/// Reads the bytes of the directory.
fn directory(archive: &dyn Blob) -> io::Result<Bytes> {
    let length = archive.len();
    let cut = || invalid("it does not end like a zip archive: it may be truncated");
    let begin = length.saturating_sub(END_BYTES + COMMENT_BYTES);
    let tail = archive.read(begin..length)?;
    let ends = (0..tail.len().saturating_sub(END_BYTES as usize - 1)).rev();
    // If a comment contains the mark by chance, the lengths do not fit.
    let is_end = |&at: &usize| {
        tail[at..].starts_with(b"PK\x05\x06")
            && u16_at(&tail, at + 20) == Some((tail.len() - at) as u64 - END_BYTES)
    };
    let end = ends.into_iter().find(is_end).ok_or_else(cut)?;
    let (mut size, mut offset) = (u32_at(&tail, end + 12), u32_at(&tail, end + 16));
    if size == Some(u64::from(u32::MAX)) || offset == Some(u64::from(u32::MAX)) {
        let locator = end.checked_sub(20).map(|at| &tail[at..end]);
        let locator = locator.filter(|bytes| bytes.starts_with(b"PK\x06\x07"));
        let at = locator.and_then(|bytes| u64_at(bytes, 8)).ok_or_else(cut)?;
        let record_end = at.checked_add(56).filter(|&end| end <= length);
        let record = archive.read(at..record_end.ok_or_else(cut)?)?;
        if !record.starts_with(b"PK\x06\x06") {
            return Err(cut());
        }
        (size, offset) = (u64_at(&record, 40), u64_at(&record, 48));
    }
    let (size, offset) = size.zip(offset).ok_or_else(cut)?;
    let end = offset.checked_add(size).filter(|&end| end <= length);
    let end = end
        .filter(|_| size <= DIRECTORY_BYTES)
        .ok_or_else(|| invalid("the directory is larger than the archive"))?;
    archive.read(offset..end)
}

/// A member according to the directory, which gives the offset of its local header.
struct DirectoryEntry {
    member: ZipMember,
    header: u64,
    stored: u64,
}

/// Parses the entry at the beginning of `bytes`; returns its length too.
fn entry(bytes: &[u8]) -> Option<(DirectoryEntry, usize)> {
    if !bytes.starts_with(b"PK\x01\x02") {
        return None;
    }
    let (flags, method) = (u16_at(bytes, 8)?, u16_at(bytes, 10)?);
    let crc = u32_at(bytes, 16)? as u32;
    let (mut stored, mut length) = (u32_at(bytes, 20)?, u32_at(bytes, 24)?);
    let mut header = u32_at(bytes, 42)?;
    let lengths = [u16_at(bytes, 28)?, u16_at(bytes, 30)?, u16_at(bytes, 32)?];
    let [name, extra, comment] = lengths.map(|n| n as usize);
    let name_end = 46 + name;
    let extra_end = name_end + extra;
    let name = String::from_utf8_lossy(bytes.get(46..name_end)?).into_owned();
    let mut rest = bytes.get(name_end..extra_end)?;
    while let (Some(id), Some(size)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let body = rest.get(4..4 + size as usize)?;
        if id == 1 {
            // 64-bit values of the numbers that do not fit in 32 bits, in this order.
            let mut at = 0;
            for number in [&mut length, &mut stored, &mut header] {
                if *number == u64::from(u32::MAX) {
                    *number = u64_at(body, at)?;
                    at += 8;
                }
            }
        }
        rest = &rest[4 + size as usize..];
    }
    let deflated = match (flags & 1, method) {
        (0, 0) => false,
        (0, 8) => true,
        _ => return None,
    };
    let member = ZipMember {
        name,
        span: 0..0,
        deflated,
        length,
        crc,
    };
    let entry = DirectoryEntry {
        member,
        header,
        stored,
    };
    Some((entry, extra_end + comment))
}

/// Locates the bytes of a member: they follow a local header of variable length.
fn locate(archive: &dyn Blob, entry: DirectoryEntry) -> io::Result<ZipMember> {
    let DirectoryEntry {
        mut member,
        header,
        stored,
    } = entry;
    let wrong = |what: &str| invalid(format!("member {} {what}", member.name));
    let outside = || wrong("is outside the archive: it may be truncated");
    let end = header.checked_add(30).filter(|&end| end <= archive.len());
    let local = archive.read(header..end.ok_or_else(outside)?)?;
    if !local.starts_with(b"PK\x03\x04") {
        return Err(wrong("is not where the directory says"));
    }
    let lengths = u16_at(&local, 26).zip(u16_at(&local, 28));
    let (name, extra) = lengths.ok_or_else(outside)?;
    let begin = header + 30 + name + extra;
    let end = begin
        .checked_add(stored)
        .filter(|&end| end <= archive.len());
    let end = end.ok_or_else(outside)?;
    let possible = match member.deflated {
        true => member.length <= stored.saturating_mul(RATIO).saturating_add(RATIO),
        false => member.length == stored,
    };
    if !possible {
        return Err(wrong("claims a length that its bytes cannot have"));
    }
    member.span = begin..end;
    Ok(member)
}

impl ZipMember {
    /// Reads up to `most` of its first bytes.
    ///
    /// # Errors
    ///
    /// The storage's error, or data that does not inflate.
    pub(super) fn head(&self, archive: &dyn Blob, most: u64) -> io::Result<Vec<u8>> {
        let stored = self.span.start..self.span.end.min(self.span.start + most);
        let stored = archive.read(stored)?;
        if !self.deflated {
            return Ok(stored.to_vec());
        }
        let mut head = Vec::new();
        let mut inflate = DeflateDecoder::new(&stored[..]).take(most);
        let mut part = [0; 4096];
        loop {
            match inflate.read(&mut part) {
                Ok(0) => break,
                Ok(count) => head.extend_from_slice(&part[..count]),
                // The input was limited above, so it may end early.
                Err(_) if !head.is_empty() => break,
                Err(error) => return Err(invalid(error.to_string())),
            }
        }
        Ok(head)
    }

    /// Returns the whole member from its stored bytes, after verifying its checksum.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if the bytes are damaged.
    pub(super) fn unpack(&self, stored: Bytes) -> io::Result<Bytes> {
        let wrong = |what: &str| invalid(format!("member {} {what}", self.name));
        let bytes = if self.deflated {
            let length = usize::try_from(self.length).map_err(|_| wrong("is too large"))?;
            let mut bytes = vec![0; length];
            let mut inflate = DeflateDecoder::new(&stored[..]);
            inflate
                .read_exact(&mut bytes)
                .map_err(|_| wrong("does not inflate to the length it claims"))?;
            if inflate.read(&mut [0]).unwrap_or(1) != 0 {
                return Err(wrong("inflates to more than the length it claims"));
            }
            Bytes::from(bytes)
        } else {
            stored
        };
        match crc32fast::hash(&bytes) == self.crc {
            true => Ok(bytes),
            false => Err(wrong("does not have its checksum")),
        }
    }
}
