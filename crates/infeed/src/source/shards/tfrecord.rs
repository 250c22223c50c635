//! TFRecord files of `tf.train.Example`, plain or compressed as a whole with gzip or zlib.
//!
//! A record is its length, the checksum of the length, its bytes, the checksum of those; the
//! checksums are CRC-32C, masked. Source: tensorflow/core/lib/io/record_writer.h.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};

use bytes::Bytes;
use crc_fast::crc32_iscsi;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::beside;
use super::example::{Feature, Of, features};
use super::index::{Index, PACKED_BYTES, PACKED_RECORDS, Pieces, Scan, invalid};
use super::values::{Told, Wanted, cause, told_fields};
use super::{Format, Grown, Shards};
use crate::decode;
use crate::error::{Cause, Error};
use crate::sample::{DType, Field, FieldKind, Pixels};
use crate::store::{self, Blob};

/// Bytes before those of a record, and after.
const HEAD: u64 = 12;
const FOOT: u64 = 4;

/// Bytes of a compressed file that are read at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Deflate makes of a byte at most so many.
const DEFLATE: u64 = 1032;

/// Features that are looked at where nobody said which are wanted.
const FEATURES: usize = 4096;

/// Features that an error lists.
const LISTED: usize = 20;

/// Names that `image`, `label` and `mask` have in the datasets that TensorFlow's own scripts
/// write.
const USUAL: [(&str, [&str; 2]); 3] = [
    ("image", ["image/encoded", "image"]),
    ("label", ["image/class/label", "label"]),
    ("mask", ["image/segmentation/class/encoded", "mask"]),
];

/// Opens TFRecord shards.
///
/// # Errors
///
/// As [`store::find`] and [`Shards::open`].
pub(crate) fn open(shards: &[String], wanted: &[Wanted]) -> Result<Shards, Error> {
    Shards::open(Box::new(TfRecord::new(wanted)), store::find(shards)?)
}

/// TFRecord shards and what their features become.
#[derive(Debug)]
pub(super) struct TfRecord {
    wanted: Vec<Wanted>,
    /// Once they are settled.
    fields: Vec<Field>,
    /// Names of the feature of each field, the first that is there counts.
    from: Vec<Vec<String>>,
}

impl TfRecord {
    pub(super) fn new(wanted: &[Wanted]) -> TfRecord {
        TfRecord {
            fields: told_fields(wanted).unwrap_or_default(),
            from: wanted.iter().map(names).collect(),
            wanted: wanted.to_vec(),
        }
    }
}

/// What a feature was in the first records.
#[derive(Debug)]
struct Seen {
    first: Feature,
    counts: Vec<u64>,
    of: Vec<Of>,
}

impl Format for TfRecord {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn kept_as(&self) -> Option<&'static str> {
        Some("tfrecord")
    }

    fn index(&self, _number: usize, shard: &dyn Blob) -> io::Result<Index> {
        let start = shard.read(0..shard.len().min(HEAD))?;
        match Packing::of(&start) {
            None => Ok(Index::Plain(plain_starts(shard)?)),
            Some(packing) => Ok(Index::Packed(packed_starts(packing, shard)?)),
        }
    }

    fn told(&self, text: &str, shard: &dyn Blob) -> Option<Index> {
        let starts = beside::tfrecord(text)?;
        let [.., before, end] = starts[..] else {
            return None;
        };
        if end != shard.len() {
            return None;
        }
        for start in [0, before] {
            let head = shard.read(start..start.checked_add(HEAD)?.min(end)).ok()?;
            length(&head)?;
        }
        Some(Index::Plain(starts))
    }

    fn unpack(&self, _number: usize, stored: Bytes, expected: u64) -> io::Result<Bytes> {
        let packing = Packing::of(&stored)
            .ok_or_else(|| invalid("it is not compressed any more".to_owned()))?;
        let most = (stored.len() as u64).saturating_mul(DEFLATE);
        if expected > most.saturating_add(1024) {
            return Err(invalid(format!("it cannot hold {expected} bytes")));
        }
        let mut content = Vec::with_capacity(expected as usize);
        packing
            .over(&stored[..])
            .take(expected + 1)
            .read_to_end(&mut content)
            .map_err(|error| invalid(format!("it does not unpack: {error}")))?;
        match content.len() as u64 == expected {
            true => Ok(content.into()),
            false => Err(invalid(format!("it does not unpack to {expected} bytes"))),
        }
    }

    fn grown(&self) -> Grown {
        // A varint has a byte at least.
        Grown::of(self.fields.iter(), 1)
    }

    fn is_settled(&self) -> bool {
        !self.fields.is_empty()
    }

    fn settle(&mut self, records: &[Bytes]) -> Result<(), Cause> {
        let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
        let (mut problem, mut good) = (None, 0);
        for record in records {
            match look(record, &mut seen) {
                Ok(()) => good += 1,
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        if good == 0 {
            return Err(cause(problem.unwrap_or_default()));
        }
        if self.wanted.is_empty() {
            self.guess(&seen, good);
        }
        let all = self.wanted.iter().zip(&self.from);
        let fields = all.map(|(wanted, from)| settled(wanted, from, &seen));
        self.fields = fields.collect::<Result<_, _>>().map_err(cause)?;
        match self.fields.is_empty() {
            true => Err(cause(format!(
                "no feature can be a field without being told; name fields of {}",
                listed(seen.keys().map(String::as_str))
            ))),
            false => Ok(()),
        }
    }

    fn parse(&self, bytes: Bytes) -> Result<Vec<Bytes>, Cause> {
        let example = unframed(&bytes).map_err(cause)?;
        // For each field the feature and how far its name is from the first choice.
        let mut found: Vec<Option<(usize, Feature)>> = vec![None; self.from.len()];
        features(&example, &mut |name, feature| {
            for (slot, from) in found.iter_mut().zip(&self.from) {
                let choice = from.iter().position(|one| one.as_bytes() == name);
                if let Some(choice) = choice
                    && slot.as_ref().is_none_or(|(known, _)| choice <= *known)
                {
                    *slot = Some((choice, feature.clone()));
                }
            }
            Ok(())
        })
        .map_err(cause)?;
        let all = self.fields.iter().zip(&self.from).zip(found);
        let values = all.map(|((field, from), found)| {
            let about = |problem| {
                cause(format!(
                    "field `{}`, feature `{}`: {problem}",
                    field.name,
                    from.join(";")
                ))
            };
            match found {
                Some((_, feature)) => feature.value(&field.kind).map_err(about),
                None => Err(about(format!("there is none, but {}", there(&example)))),
            }
        });
        values.collect()
    }
}

impl TfRecord {
    /// Fields of all features that all first records have, where nobody said which are wanted.
    fn guess(&mut self, seen: &BTreeMap<String, Seen>, records: usize) {
        let mut fields: Vec<(Wanted, Vec<String>)> = Vec::new();
        let images = seen.values().filter(|one| is_image(&one.first)).count();
        for (feature, one) in seen {
            let several = one.of.contains(&Of::Bytes) && one.counts.iter().any(|&n| n != 1);
            if one.counts.len() < records || several || one.of.contains(&Of::Nothing) {
                tracing::info!("feature `{feature}` is not in every record once; it is left out");
                continue;
            }
            let usual = USUAL
                .iter()
                .find(|(_, names)| names.contains(&feature.as_str()));
            let name = match usual {
                Some((name, _)) => name,
                None if images == 1 && is_image(&one.first) && !is_mask(feature) => "image",
                None => feature.as_str(),
            };
            let name = match fields.iter().any(|(known, _)| known.name == name) {
                true => feature.as_str(),
                false => name,
            };
            let wanted = Wanted {
                name: name.to_owned(),
                from: Some(feature.clone()),
                told: Told::Nothing,
            };
            fields.push((wanted, vec![feature.clone()]));
        }
        let place = |wanted: &Wanted| USUAL.iter().position(|(name, _)| *name == wanted.name);
        fields.sort_by_key(|(wanted, _)| place(wanted).unwrap_or(USUAL.len()));
        (self.wanted, self.from) = fields.into_iter().unzip();
    }
}

/// The field of a feature, as the first records have it.
fn settled(
    wanted: &Wanted,
    from: &[String],
    seen: &BTreeMap<String, Seen>,
) -> Result<Field, String> {
    if let Told::Kind(kind) = &wanted.told {
        return Ok(wanted.field(kind.clone()));
    }
    let Some((feature, one)) = from.iter().find_map(|name| seen.get_key_value(name)) else {
        let there = listed(seen.keys().map(String::as_str));
        let from = from.join("` or `");
        return Err(format!(
            "field `{}`: no feature `{from}`, but {there}",
            wanted.name
        ));
    };
    let mixed = one.of.iter().any(|of| *of != one.of[0]);
    let dtype = match one.of[0] {
        _ if mixed => {
            return Err(format!(
                "field `{}`: `{feature}` holds now this, now that",
                wanted.name
            ));
        }
        Of::Floats => DType::Float32,
        Of::Wholes => DType::Int64,
        Of::Bytes if wanted.told != Told::Nothing => {
            return Err(format!(
                "field `{}`: `{feature}` is bytes; tell the dtype and shape of what they hold",
                wanted.name
            ));
        }
        Of::Bytes => {
            let kind = match is_image(&one.first) {
                true if is_mask(feature) || wanted.name == "mask" => {
                    FieldKind::Mask(Pixels::Encoded)
                }
                true => FieldKind::Image(Pixels::Encoded),
                false => FieldKind::Bytes,
            };
            return Ok(wanted.field(kind));
        }
        Of::Nothing => {
            return Err(format!(
                "field `{}`: `{feature}` holds nothing",
                wanted.name
            ));
        }
    };
    let count = one.counts[0];
    let same = one.counts.iter().all(|&other| other == count);
    let kind = match (same, &wanted.told) {
        (true, Told::Nothing | Told::Tensor) => FieldKind::Tensor {
            dtype,
            shape: match count {
                1 => Vec::new(),
                count => vec![count as usize],
            },
        },
        _ => FieldKind::Ragged { dtype },
    };
    Ok(wanted.field(kind))
}

/// Adds what the features of a record are.
fn look(record: &Bytes, seen: &mut BTreeMap<String, Seen>) -> Result<(), String> {
    let example = unframed(record)?;
    features(&example, &mut |name, feature| {
        let name = String::from_utf8_lossy(name).into_owned();
        if seen.len() >= FEATURES && !seen.contains_key(&name) {
            return Err(format!(
                "over {FEATURES} features; name the fields that are wanted"
            ));
        }
        let (count, of) = (feature.count()?, feature.of);
        let one = seen.entry(name).or_insert_with(|| Seen {
            first: feature,
            counts: Vec::new(),
            of: Vec::new(),
        });
        one.counts.push(count);
        one.of.push(of);
        Ok(())
    })
}

fn is_image(feature: &Feature) -> bool {
    let bytes = match feature.of {
        Of::Bytes => feature.bytes().ok(),
        _ => None,
    };
    bytes.is_some_and(|bytes| decode::Format::of(&bytes).is_some())
}

fn is_mask(feature: &str) -> bool {
    feature.contains("mask") || feature.contains("segmentation")
}

/// Names of the features of an Example, as an error lists them.
fn there(example: &Bytes) -> String {
    let mut names: Vec<String> = Vec::new();
    let _ = features(example, &mut |name, _| {
        if names.len() <= LISTED {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(())
    });
    listed(names.iter().map(String::as_str))
}

fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let shown: Vec<&str> = names.take(LISTED).collect();
    match count {
        0 => "nothing else".to_owned(),
        _ if count > LISTED => format!("`{}` and more", shown.join("`, `")),
        _ => format!("`{}`", shown.join("`, `")),
    }
}

/// The names that a field's feature may have.
fn names(wanted: &Wanted) -> Vec<String> {
    let usual = USUAL.iter().find(|(name, _)| *name == wanted.name);
    match (&wanted.from, usual) {
        (Some(from), _) => from.split(';').map(|name| name.trim().to_owned()).collect(),
        (None, Some((_, names))) => names.map(str::to_owned).to_vec(),
        (None, None) => vec![wanted.name.clone()],
    }
}

/// A checksum as it is stored.
fn masked(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
        .rotate_right(15)
        .wrapping_add(0xA282_EAD8)
}

/// The length that a record's first bytes tell; None if their checksum differs.
fn length(head: &[u8]) -> Option<u64> {
    let (length, rest) = head.split_first_chunk::<8>()?;
    let sum = rest.first_chunk::<4>()?;
    (masked(length) == u32::from_le_bytes(*sum)).then(|| u64::from_le_bytes(*length))
}

/// The bytes of a record without what is around them, if both checksums are right.
fn unframed(record: &Bytes) -> Result<Bytes, String> {
    let length = length(record).ok_or("the checksum of its length differs")?;
    let fits = length.checked_add(HEAD + FOOT) == Some(record.len() as u64);
    if !fits {
        return Err(format!("{length} bytes where its index has another length"));
    }
    let end = record.len() - FOOT as usize;
    let bytes = record.slice(HEAD as usize..end);
    match masked(&bytes).to_le_bytes()[..] == record[end..] {
        true => Ok(bytes),
        false => Err("the checksum of its bytes differs".to_owned()),
    }
}

fn plain_starts(shard: &dyn Blob) -> io::Result<Vec<u64>> {
    let mut scan = Scan::over(shard);
    let mut starts = vec![0];
    let mut at = 0;
    while at < shard.len() {
        let head = scan.at(at, HEAD as usize)?;
        at = next_start(at, &head, shard.len())?;
        starts.push(at);
    }
    Ok(starts)
}

/// Where the record behind the one at `at` begins, which must be `end` at most.
fn next_start(at: u64, head: &[u8], end: u64) -> io::Result<u64> {
    if (head.len() as u64) < HEAD {
        return Err(invalid(format!(
            "at byte {at}: a record without its length; was it cut?"
        )));
    }
    let length = length(head).ok_or_else(|| {
        let what = match at {
            0 => "; it is no TFRecord file, or damaged",
            _ => "",
        };
        invalid(format!(
            "at byte {at}: the checksum of a record's length differs{what}"
        ))
    })?;
    let next = length
        .checked_add(HEAD + FOOT)
        .and_then(|bytes| at.checked_add(bytes));
    next.filter(|&next| next <= end).ok_or_else(|| {
        invalid(format!(
            "at byte {at}: a record of {length} bytes, past the end at byte {end}; was it cut?"
        ))
    })
}

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Gzip,
    Zlib,
}

impl Packing {
    /// By the first bytes; None for a file that begins with a record, or with nothing known.
    fn of(start: &[u8]) -> Option<Packing> {
        if start.len() >= HEAD as usize && length(&start[..HEAD as usize]).is_some() {
            return None;
        }
        match *start {
            [0x1F, 0x8B, ..] => Some(Packing::Gzip),
            // A window of 32 KiB at most, and a sum that 31 divides.
            [a, b, ..]
                if a & 0x0F == 8 && a <= 0x78 && u16::from_be_bytes([a, b]).is_multiple_of(31) =>
            {
                Some(Packing::Zlib)
            }
            _ => None,
        }
    }

    fn over<'a>(self, stored: impl io::BufRead + 'a) -> Box<dyn Read + 'a> {
        match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(stored)),
            Packing::Zlib => Box::new(ZlibDecoder::new(stored)),
        }
    }
}

/// Reads a blob from its beginning, and remembers what the storage said.
struct Stream<'a> {
    shard: &'a dyn Blob,
    at: u64,
    failed: &'a std::cell::Cell<Option<io::Error>>,
}

impl Read for Stream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let end = self.shard.len().min(self.at + into.len() as u64);
        match self.shard.read(self.at..end) {
            Ok(bytes) => {
                into[..bytes.len()].copy_from_slice(&bytes);
                self.at = end;
                Ok(bytes.len())
            }
            Err(error) => {
                let kind = error.kind();
                self.failed.set(Some(error));
                Err(kind.into())
            }
        }
    }
}

/// Unpacks a file piece by piece, without keeping it, to see where its records begin.
fn packed_starts(packing: Packing, shard: &dyn Blob) -> io::Result<Vec<u64>> {
    let failed = std::cell::Cell::new(None);
    let stream = Stream {
        shard,
        at: 0,
        failed: &failed,
    };
    let mut content = packing.over(BufReader::with_capacity(CHUNK_BYTES as usize, stream));
    let mut starts = vec![0];
    let mut at = 0;
    let mut walk = || -> io::Result<Vec<u64>> {
        loop {
            let mut head = Vec::new();
            content.by_ref().take(HEAD).read_to_end(&mut head)?;
            if head.is_empty() {
                return Ok(std::mem::take(&mut starts));
            }
            let next = next_start(at, &head, u64::MAX)?;
            let rest = next - at - HEAD;
            if io::copy(&mut content.by_ref().take(rest), &mut io::sink())? < rest {
                return Err(invalid(format!("at byte {at}: a record is cut")));
            }
            at = next;
            starts.push(at);
            if at > PACKED_BYTES || starts.len() > PACKED_RECORDS {
                return Err(invalid(format!(
                    "over {PACKED_BYTES} bytes or {PACKED_RECORDS} records are packed as one, \
                     which cannot be read in parts; write smaller shards, or without compression"
                )));
            }
        }
    };
    walk().map_err(|error| match (failed.take(), error) {
        (Some(error), _) => error,
        (None, error) if error.kind() == io::ErrorKind::InvalidData => {
            invalid(format!("unpacked, {error}"))
        }
        (None, error) => invalid(format!("it does not unpack: {error}")),
    })
}
