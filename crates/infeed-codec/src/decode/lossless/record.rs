//! The 12 bytes that begin every lossless record: magic, kind, version, flags, checksum.

/// First bytes of every record.
pub(crate) const MAGIC: [u8; 4] = [0x93, b'I', b'F', b'L'];

/// Bytes before the body.
const LENGTH: usize = 12;

/// Version of all kinds.
const VERSION: u8 = 1;

/// Content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RecordKind {
    /// Coefficients of a JPEG.
    Jpeg,
    /// Planes of samples of a PNG.
    Planes,
}

impl RecordKind {
    fn byte(self) -> u8 {
        match self {
            RecordKind::Jpeg => b'J',
            RecordKind::Planes => b'P',
        }
    }
}

/// The header and the body of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LosslessRecord<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) flags: u16,
    checksum: u32,
    pub(crate) body: &'a [u8],
}

impl<'a> LosslessRecord<'a> {
    /// Splits a record. Does not verify the checksum.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<LosslessRecord<'a>, &'static str> {
        let (head, body) = bytes
            .split_first_chunk::<LENGTH>()
            .ok_or("a record too short")?;
        if head[..4] != MAGIC {
            return Err("no lossless record");
        }
        let kind = [RecordKind::Jpeg, RecordKind::Planes]
            .into_iter()
            .find(|kind| kind.byte() == head[4])
            .ok_or("an unknown kind of lossless record")?;
        if head[5] != VERSION {
            return Err("a newer version of lossless record");
        }
        Ok(LosslessRecord {
            kind,
            flags: u16::from_le_bytes([head[6], head[7]]),
            checksum: u32::from_le_bytes([head[8], head[9], head[10], head[11]]),
            body,
        })
    }

    /// Whether the body and the bytes before the checksum are those that were written.
    pub(crate) fn is_intact(&self) -> bool {
        self.checksum == checksum(self.kind, self.flags, self.body)
    }
}

fn checksum(kind: RecordKind, flags: u16, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind.byte(), VERSION]);
    hasher.update(&flags.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// Writes a record.
#[derive(Debug)]
pub(crate) struct RecordWriter {
    kind: RecordKind,
    flags: u16,
    bytes: Vec<u8>,
}

impl RecordWriter {
    pub(crate) fn new(kind: RecordKind, flags: u16) -> RecordWriter {
        let mut bytes = Vec::from(MAGIC);
        bytes.extend([kind.byte(), VERSION]);
        bytes.extend(flags.to_le_bytes());
        bytes.extend([0; 4]);
        RecordWriter { kind, flags, bytes }
    }

    /// The bytes so far, to append to.
    pub(crate) fn body(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns the record with its checksum.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let sum = checksum(self.kind, self.flags, &self.bytes[LENGTH..]);
        self.bytes[8..LENGTH].copy_from_slice(&sum.to_le_bytes());
        self.bytes
    }
}
