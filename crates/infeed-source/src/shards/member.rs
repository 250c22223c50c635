//! Members of a tar archive, header by header.
//!
//! Source: POSIX.1-2024, pax, "ustar Interchange Format" and "pax Header Block"; the GNU tar
//! manual, "Basic Tar Format", for long names and sizes in base 256.

use std::io;
use std::ops::Range;

use super::index::ShardBytes;

/// Bytes of a header; data is padded to a multiple of it.
pub(crate) const BLOCK: u64 = 512;

/// Maximum bytes of an extended header of names and attributes.
const EXTENDED_BYTES: u64 = 1 << 20;

/// Most zeros after the end mark of an archive. Programs fill up a block of up to a few megabytes.
const MAX_PADDING_BYTES: u64 = 64 << 20;

/// Bytes after the end mark that are read at a time.
const TRAILING_BYTES: usize = 64 << 10;

/// Reason why the bytes at an offset are not a member.
#[derive(Debug)]
pub(crate) enum MemberError {
    /// The storage failed.
    Io(io::Error),
    /// The bytes are invalid.
    Bad {
        /// Offset of the header.
        offset: u64,
        /// Description of the problem.
        what: String,
    },
}

/// Kind of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File,
    /// A folder, or the label of a volume.
    Folder,
    /// A second name of an earlier member.
    HardLink,
    SymbolicLink,
    /// A device or another member that is not read.
    Special,
}

/// Data after the end mark of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrailingData {
    /// The header of a member at this offset.
    Archive(u64),
    /// Other bytes.
    Other {
        /// Offset of the first.
        begin: u64,
        /// Number of bytes up to the end of the file.
        bytes: u64,
    },
}

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TarMember {
    /// First byte of its first header.
    pub(crate) begin: u64,
    /// Full name; invalid UTF-8 is replaced.
    pub(crate) name: String,
    pub(crate) kind: MemberKind,
    /// Range of its data.
    pub(crate) data: Range<u64>,
    /// One past the padding of its data.
    pub(crate) end: u64,
}

/// Iterates over the members of an archive.
#[derive(Debug)]
pub(crate) struct Members<P> {
    pieces: P,
    at: u64,
}

/// Attributes that an extended header gives to the next member.
#[derive(Default)]
struct ExtendedHeader {
    name: Option<String>,
    size: Option<u64>,
}

impl<P: ShardBytes> Members<P> {
    pub(crate) fn of(pieces: P) -> Members<P> {
        Members { pieces, at: 0 }
    }

    /// Continues with the header at this offset.
    pub(crate) fn seek(&mut self, at: u64) {
        self.at = at;
    }

    /// Offset of the next header.
    pub(crate) fn offset(&self) -> u64 {
        self.at
    }

    /// Number of bytes of the archive.
    pub(crate) fn len(&self) -> u64 {
        self.pieces.len()
    }

    /// Returns the next member; None at the end mark of the archive. Rejects names that would leave
    /// the folder in which the archive is unpacked.
    pub(crate) fn next(&mut self) -> Result<Option<TarMember>, MemberError> {
        let begin = self.at;
        let bad = |what: String| MemberError::Bad {
            offset: begin,
            what,
        };
        let mut extended = ExtendedHeader::default();
        loop {
            let at = self.at;
            let block = self
                .pieces
                .at(at, BLOCK as usize)
                .map_err(MemberError::Io)?;
            let Ok(block) = <&[u8; BLOCK as usize]>::try_from(&block[..]) else {
                return Err(bad(format!(
                    "the archive ends at byte {} without its end mark: it may be truncated",
                    self.pieces.len()
                )));
            };
            if block.iter().all(|&byte| byte == 0) {
                return match extended.name.is_none() && extended.size.is_none() {
                    true => Ok(None),
                    false => Err(bad("an extended header without its member".to_owned())),
                };
            }
            check_sum(block).map_err(bad)?;
            let plain = number(&block[124..136])
                .ok_or_else(|| bad("the size in its header is not a number".to_owned()))?;
            let typeflag = block[156];
            let is_extended = matches!(typeflag, b'x' | b'g' | b'L' | b'K');
            let size = match typeflag {
                _ if is_extended => plain,
                // Links and folders have no data, whatever their size field holds.
                b'1'..=b'6' => 0,
                _ => extended.size.unwrap_or(plain),
            };
            let data = at + BLOCK;
            let end = data
                .checked_add(size)
                .filter(|&end| end <= self.pieces.len())
                .ok_or_else(|| {
                    bad(format!(
                        "a member of {size} bytes, past the end of the archive at byte {}; was it \
                         cut?",
                        self.pieces.len()
                    ))
                })?;
            let padded = end.next_multiple_of(BLOCK);
            if padded > self.pieces.len() {
                return Err(bad(format!(
                    "the archive ends at byte {} within a block: it may be truncated",
                    self.pieces.len()
                )));
            }
            self.at = padded;
            if is_extended {
                if size > EXTENDED_BYTES {
                    return Err(bad(format!("an extended header of {size} bytes")));
                }
                let text = self
                    .pieces
                    .at(data, size as usize)
                    .map_err(MemberError::Io)?;
                match typeflag {
                    b'L' => extended.name = Some(until_zero(&text)),
                    b'K' => {}
                    b'x' => attributes(&text, &mut extended).map_err(bad)?,
                    _ => {
                        let mut all = ExtendedHeader::default();
                        attributes(&text, &mut all).map_err(bad)?;
                        if all.name.is_some() || all.size.is_some() {
                            return Err(bad("one name or size for all members".to_owned()));
                        }
                    }
                }
                continue;
            }
            let name = match extended.name {
                Some(name) => name,
                None => own_name(block),
            };
            let kind = match typeflag {
                b'0' | 0 | b'7' if name.ends_with('/') => MemberKind::Folder,
                b'0' | 0 | b'7' => MemberKind::File,
                b'1' => MemberKind::HardLink,
                b'2' => MemberKind::SymbolicLink,
                b'5' | b'D' | b'V' => MemberKind::Folder,
                b'S' => {
                    return Err(bad(format!(
                        "`{name}` is sparse; pack it again without --sparse"
                    )));
                }
                b'M' => return Err(bad(format!("`{name}` continues from another volume"))),
                _ => MemberKind::Special,
            };
            if kind == MemberKind::File && leaves(&name) {
                return Err(bad(format!(
                    "the name `{name}` leads outside the archive; rename the file and pack it again"
                )));
            }
            return Ok(Some(TarMember {
                begin,
                name,
                kind,
                data: data..end,
                end: padded,
            }));
        }
    }

    /// Returns the data after the end mark at which [`next`](Members::next) stopped; None if only
    /// zeros follow. More zeros than programs write are data: all of them could not be read in time.
    ///
    /// # Errors
    ///
    /// The storage's error.
    pub(crate) fn trailing(&mut self) -> io::Result<Option<TrailingData>> {
        let len = self.pieces.len();
        let padding_end = self.at.saturating_add(MAX_PADDING_BYTES);
        while self.at < len {
            if self.at >= padding_end {
                let (begin, bytes) = (self.at, len - self.at);
                return Ok(Some(TrailingData::Other { begin, bytes }));
            }
            let piece = self.pieces.at(self.at, TRAILING_BYTES)?;
            let Some(first) = piece.iter().position(|&byte| byte != 0) else {
                self.at += piece.len() as u64;
                continue;
            };
            let begin = self.at + first as u64;
            let block = begin - begin % BLOCK;
            let header = self.pieces.at(block, BLOCK as usize)?;
            let header = <&[u8; BLOCK as usize]>::try_from(&header[..]);
            return Ok(Some(
                match header.is_ok_and(|block| check_sum(block).is_ok()) {
                    true => TrailingData::Archive(block),
                    false => TrailingData::Other {
                        begin,
                        bytes: len - begin,
                    },
                },
            ));
        }
        Ok(None)
    }
}

/// Verifies the checksum of a header: the sum of its bytes, with its own field as blanks. Some old
/// programs summed signed bytes.
fn check_sum(block: &[u8; BLOCK as usize]) -> Result<(), String> {
    let stored = number(&block[148..156]);
    let bytes = || {
        let numbered = block.iter().enumerate();
        numbered.map(|(at, &byte)| if (148..156).contains(&at) { b' ' } else { byte })
    };
    let sum: i64 = bytes().map(i64::from).sum();
    let signed: i64 = bytes().map(|byte| i64::from(byte as i8)).sum();
    match stored.and_then(|stored| i64::try_from(stored).ok()) {
        Some(stored) if stored == sum || stored == signed => Ok(()),
        _ => Err("the checksum of its header differs".to_owned()),
    }
}

/// Parses a number: octal digits, or base 256 if the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if let [first @ 0x80..=0xFF, rest @ ..] = field {
        let start = u64::from(first & 0x7F);
        return rest.iter().try_fold(start, |sum, &byte| {
            sum.checked_mul(256)?.checked_add(u64::from(byte))
        });
    }
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.trim_matches([' ', '\0']);
    match digits.is_empty() {
        true => Some(0),
        false => u64::from_str_radix(digits, 8).ok(),
    }
}

fn until_zero(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// Name in the header itself.
fn own_name(block: &[u8; BLOCK as usize]) -> String {
    let name = until_zero(&block[..100]);
    // GNU tar uses the field of the prefix for other data; its magic differs.
    match &block[257..263] {
        b"ustar\0" if block[345] != 0 => format!("{}/{name}", until_zero(&block[345..500])),
        _ => name,
    }
}

/// Whether a name leads outside the folder in which it is unpacked.
fn leaves(name: &str) -> bool {
    let drive = name.as_bytes().get(1) == Some(&b':');
    name.starts_with(['/', '\\']) || drive || name.split(['/', '\\']).any(|part| part == "..")
}

/// Parses repeated `LENGTH KEY=VALUE\n`.
fn attributes(mut text: &[u8], found: &mut ExtendedHeader) -> Result<(), String> {
    let wrong = || {
        "its extended header (pax) is not a list of `LENGTH KEY=VALUE` lines; the archive was changed \
         after it was written: copy or pack it again"
            .to_owned()
    };
    while !text.is_empty() {
        // Some writers pad with zeros.
        if text.iter().all(|&byte| byte == 0) {
            break;
        }
        let blank = text.iter().take(20).position(|&byte| byte == b' ');
        let blank = blank.ok_or_else(wrong)?;
        let length = std::str::from_utf8(&text[..blank]).ok();
        let length: usize = length
            .and_then(|text| text.parse().ok())
            .ok_or_else(wrong)?;
        if length > text.len() || length < blank + 3 || text[length - 1] != b'\n' {
            return Err(wrong());
        }
        let record = &text[blank + 1..length - 1];
        let equals = record.iter().position(|&byte| byte == b'=');
        let (key, value) = record.split_at(equals.ok_or_else(wrong)?);
        let value = &value[1..];
        match key {
            b"path" => found.name = Some(until_zero(value)),
            b"size" => {
                let size = std::str::from_utf8(value).ok();
                let size = size.and_then(|text| text.parse().ok());
                found.size = Some(size.ok_or_else(wrong)?);
            }
            key if key.starts_with(b"GNU.sparse.") => {
                return Err("a sparse member; pack it again without --sparse".to_owned());
            }
            _ => {}
        }
        text = &text[length..];
    }
    Ok(())
}
