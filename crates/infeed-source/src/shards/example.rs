//! `tf.train.Example`: a map of names to lists of bytes, floats or whole numbers.
//!
//! Source: tensorflow/core/example/{example,feature}.proto, and the Protocol Buffers encoding
//! guide. Values are slices of the record; no count in it causes an allocation.

use bytes::Bytes;

use super::values::{Numbers, describe_kind, plain};
use infeed_core::sample::{DType, FieldKind};

/// Type of the values of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Bytes,
    Floats,
    Wholes,
    /// A feature that is not set; an empty list.
    Nothing,
}

/// A feature of an Example.
#[derive(Clone, Debug)]
pub(crate) struct Feature {
    pub(crate) of: ListKind,
    /// Encoded list.
    list: Bytes,
}

/// Value of a field of a message.
enum WireValue {
    Varint(u64),
    Fixed32([u8; 4]),
    Fixed64,
    Bytes(Bytes),
}

const CUT: &str = "the Example ends within a field";

/// Reads a message field by field.
struct WireReader {
    bytes: Bytes,
    at: usize,
}

impl WireReader {
    fn of(bytes: Bytes) -> WireReader {
        WireReader { bytes, at: 0 }
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(CUT)?;
            self.at += 1;
            let low = u64::from(byte & 0x7F);
            if shift == 63 && low > 1 {
                break;
            }
            value |= low << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number of the Example is too long".to_owned())
    }

    fn take(&mut self, length: u64) -> Result<Bytes, String> {
        let end = usize::try_from(length)
            .ok()
            .and_then(|length| self.at.checked_add(length))
            .filter(|&end| end <= self.bytes.len())
            .ok_or(CUT)?;
        let taken = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }

    /// Number and value of the next field.
    fn next(&mut self) -> Result<Option<(u64, WireValue)>, String> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                WireValue::Fixed64
            }
            2 => {
                let length = self.varint()?;
                WireValue::Bytes(self.take(length)?)
            }
            5 => {
                let four = self.take(4)?;
                WireValue::Fixed32(four[..].try_into().map_err(|_| CUT)?)
            }
            other => return Err(format!("the Example has a field of wire type {other}")),
        };
        Ok(Some((tag >> 3, value)))
    }
}

/// Receives the name of a feature, and the feature.
pub(crate) type FeatureVisitor<'a> = dyn FnMut(&[u8], Feature) -> Result<(), String> + 'a;

/// Calls `visit` with each feature of an Example. If a name occurs twice, the last one counts.
///
/// # Errors
///
/// Bytes that are not an Example, or the error of `visit`.
pub(crate) fn features(example: &Bytes, visit: &mut FeatureVisitor<'_>) -> Result<(), String> {
    let mut example = WireReader::of(example.clone());
    while let Some((number, value)) = example.next()? {
        match (number, value) {
            (1, WireValue::Bytes(features)) => {
                let mut features = WireReader::of(features);
                while let Some((number, value)) = features.next()? {
                    if let (1, WireValue::Bytes(entry)) = (number, value) {
                        let (name, feature) = entry_of(entry)?;
                        visit(&name, feature)?;
                    }
                }
            }
            (2, WireValue::Bytes(_)) => {
                return Err("it is a SequenceExample, which is not supported".to_owned());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Name and feature of an entry of the map.
fn entry_of(entry: Bytes) -> Result<(Bytes, Feature), String> {
    let mut entry = WireReader::of(entry);
    let mut name = Bytes::new();
    let mut feature = Feature {
        of: ListKind::Nothing,
        list: Bytes::new(),
    };
    while let Some((number, value)) = entry.next()? {
        match (number, value) {
            (1, WireValue::Bytes(key)) => name = key,
            (2, WireValue::Bytes(value)) => {
                let mut value = WireReader::of(value);
                while let Some((number, list)) = value.next()? {
                    let of = match number {
                        1 => ListKind::Bytes,
                        2 => ListKind::Floats,
                        3 => ListKind::Wholes,
                        _ => continue,
                    };
                    if let WireValue::Bytes(list) = list {
                        feature = Feature { of, list };
                    }
                }
            }
            _ => {}
        }
    }
    Ok((name, feature))
}

impl Feature {
    /// Number of values.
    ///
    /// # Errors
    ///
    /// Bytes that are not a list.
    pub(crate) fn count(&self) -> Result<u64, String> {
        let mut count = 0;
        let mut list = WireReader::of(self.list.clone());
        while let Some((number, value)) = list.next()? {
            count += match (number, self.of, value) {
                (1, ListKind::Bytes, WireValue::Bytes(_))
                | (1, ListKind::Floats, WireValue::Fixed32(_))
                | (1, ListKind::Wholes, WireValue::Varint(_)) => 1,
                (1, ListKind::Floats, WireValue::Bytes(packed)) => packed.len() as u64 / 4,
                // Only the last byte of each number lacks the continuation bit.
                (1, ListKind::Wholes, WireValue::Bytes(packed)) => {
                    packed.iter().filter(|&&byte| byte < 0x80).count() as u64
                }
                _ => 0,
            };
        }
        Ok(count)
    }

    /// First value of a list of bytes; None for other and empty lists.
    pub(crate) fn first_bytes(&self) -> Option<Bytes> {
        let mut list = WireReader::of(self.list.clone());
        while let Ok(Some((number, value))) = list.next() {
            if let (ListKind::Bytes, 1, WireValue::Bytes(value)) = (self.of, number, value) {
                return Some(value);
            }
        }
        None
    }

    /// Value of a list of bytes that has exactly one.
    pub(crate) fn bytes(&self) -> Result<Bytes, String> {
        let mut found = None;
        let mut list = WireReader::of(self.list.clone());
        while let Some((number, value)) = list.next()? {
            if let (1, WireValue::Bytes(value)) = (number, value) {
                if found.is_some() {
                    return Err(format!("it has {} values, not one", self.count()?));
                }
                found = Some(value);
            }
        }
        found.ok_or_else(|| "its list is empty".to_owned())
    }

    /// Converts the list to the value of a field of this kind.
    ///
    /// # Errors
    ///
    /// A list of another type, or of more or fewer values.
    pub(crate) fn value(&self, kind: &FieldKind) -> Result<Bytes, String> {
        match (self.of, kind) {
            (ListKind::Bytes, _) => return plain(kind, self.bytes()?),
            // Writers encode an empty list of an unknown type like this.
            (ListKind::Nothing, FieldKind::Ragged { .. }) => return Ok(Bytes::new()),
            (ListKind::Nothing, _) => return Err("it is not set, so it has no value".to_owned()),
            _ => {}
        }
        let wrong = || {
            format!(
                "it is a list of {}, expected {}",
                self.of,
                describe_kind(kind)
            )
        };
        let mut numbers = Numbers::of(kind).ok_or_else(wrong)?;
        let mut list = WireReader::of(self.list.clone());
        let float32 = matches!(
            kind,
            FieldKind::Tensor {
                dtype: DType::Float32,
                ..
            } | FieldKind::Ragged {
                dtype: DType::Float32
            }
        );
        if !(float32 && self.of == ListKind::Floats) {
            numbers.reserve(self.count()?);
        }
        while let Some((number, value)) = list.next()? {
            match (number, self.of, value) {
                (1, ListKind::Floats, WireValue::Bytes(packed)) => {
                    // The usual encoding is the value already.
                    if float32 && list.at == list.bytes.len() && numbers.is_empty() {
                        return plain(kind, packed);
                    }
                    let (floats, rest) = packed.as_chunks::<4>();
                    if !rest.is_empty() {
                        return Err(CUT.to_owned());
                    }
                    for float in floats {
                        numbers.push_real(f64::from(f32::from_le_bytes(*float)))?;
                    }
                }
                (1, ListKind::Floats, WireValue::Fixed32(float)) => {
                    numbers.push_real(f64::from(f32::from_le_bytes(float)))?;
                }
                (1, ListKind::Wholes, WireValue::Varint(whole)) => {
                    numbers.push_whole(i128::from(whole as i64))?;
                }
                (1, ListKind::Wholes, WireValue::Bytes(packed)) => {
                    let mut packed = WireReader::of(packed);
                    while packed.at < packed.bytes.len() {
                        numbers.push_whole(i128::from(packed.varint()? as i64))?;
                    }
                }
                _ => {}
            }
        }
        numbers.finish()
    }
}

impl std::fmt::Display for ListKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ListKind::Bytes => "bytes",
            ListKind::Floats => "floats",
            ListKind::Wholes => "int64",
            ListKind::Nothing => "nothing",
        })
    }
}
