//! What the bytes of a field must be to be a value of its kind, and numbers written in other ways.

use std::sync::Arc;

use bytes::Bytes;

use super::index::invalid;
use super::npy::Array;
use crate::error::Cause;
use crate::sample::{DType, Depth, Field, FieldKind, Pixels};

/// A field that is wanted of the records of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Name of the field.
    pub(crate) name: String,
    /// What it is called in the shards; absent: its name.
    pub(crate) from: Option<String>,
    /// What is told of its kind.
    pub(crate) told: Told,
}

/// What is told of the kind of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing: the records tell.
    Nothing,
    /// That it is a tensor; the records tell of what.
    Tensor,
    /// That it is ragged; the records tell of what.
    Ragged,
    /// All.
    Kind(FieldKind),
}

impl Wanted {
    /// What it is called in the shards.
    pub(super) fn source_name(&self) -> &str {
        self.from.as_deref().unwrap_or(&self.name)
    }

    /// The field, of a kind that is known now.
    pub(super) fn field(&self, kind: FieldKind) -> Field {
        Field {
            name: self.name.clone(),
            kind,
        }
    }
}

/// The fields, where all kinds are told.
pub(crate) fn told_fields(wanted: &[Wanted]) -> Option<Vec<Field>> {
    let kinds = wanted.iter().map(|wanted| match &wanted.told {
        Told::Kind(kind) => Some(wanted.field(kind.clone())),
        _ => None,
    });
    kinds
        .collect::<Option<Vec<Field>>>()
        .filter(|fields| !fields.is_empty())
}

/// What is wrong with the bytes of a record.
pub(super) fn cause(problem: impl Into<String>) -> Cause {
    Arc::new(invalid(problem.into()))
}

/// Bytes that are a value as they are: encoded pixels, text, elements of an array.
///
/// # Errors
///
/// A length or an encoding that the kind does not have.
pub(super) fn plain(kind: &FieldKind, bytes: Bytes) -> Result<Bytes, String> {
    let length = bytes.len();
    if let Some(expected) = kind.record_bytes()
        && length != expected
    {
        return Err(format!(
            "{length} bytes where {} has {expected}",
            shown(kind)
        ));
    }
    match kind {
        FieldKind::Text if std::str::from_utf8(&bytes).is_err() => {
            Err("it is no UTF-8; read it as bytes".to_owned())
        }
        FieldKind::Ragged { dtype } if !length.is_multiple_of(dtype.bytes()) => Err(format!(
            "{length} bytes are no whole number of {}",
            dtype.name()
        )),
        _ => Ok(bytes),
    }
}

/// The elements of an array, if it has the type and shape of the kind.
///
/// # Errors
///
/// What it has and what it should have.
pub(super) fn array(kind: &FieldKind, array: Array) -> Result<Bytes, String> {
    let fits = match kind {
        FieldKind::Tensor { dtype, shape } => array.dtype == *dtype && array.shape == *shape,
        FieldKind::Ragged { dtype } => array.dtype == *dtype && array.shape.len() == 1,
        FieldKind::Image(Pixels::Raw {
            size,
            channels,
            depth,
        })
        | FieldKind::Mask(Pixels::Raw {
            size,
            channels,
            depth,
        }) => {
            let (height, width) = (size.height as usize, size.width as usize);
            let shape = &array.shape[..];
            let gray = *channels == 1 && shape == [height, width];
            let same = gray || shape == [height, width, *channels];
            same && array.dtype
                == match depth {
                    Depth::U8 => DType::UInt8,
                    Depth::U16 => DType::UInt16,
                }
        }
        _ => false,
    };
    match fits {
        true => Ok(array.elements),
        false => Err(format!(
            "an array of {} {:?} where the field is {}",
            array.dtype.name(),
            array.shape,
            shown(kind)
        )),
    }
}

/// A kind, as an error names it.
pub(super) fn shown(kind: &FieldKind) -> String {
    match kind {
        FieldKind::Image(Pixels::Encoded) => "an encoded image".to_owned(),
        FieldKind::Mask(Pixels::Encoded) => "an encoded mask".to_owned(),
        FieldKind::Image(Pixels::Raw { size, channels, .. }) => {
            format!("an image of {size} px and {channels} channels")
        }
        FieldKind::Mask(Pixels::Raw { size, channels, .. }) => {
            format!("a mask of {size} px and {channels} channels")
        }
        FieldKind::Tensor { dtype, shape } => format!("{} {shape:?}", dtype.name()),
        FieldKind::Bytes => "bytes".to_owned(),
        FieldKind::Text => "text".to_owned(),
        FieldKind::Ragged { dtype } => format!("a list of {}", dtype.name()),
    }
}

/// Numbers that are on their way into a value.
#[derive(Debug)]
pub(super) struct Numbers<'a> {
    kind: &'a FieldKind,
    dtype: DType,
    bytes: Vec<u8>,
}

impl Numbers<'_> {
    /// Room for the numbers of a value. None for kinds that hold none.
    pub(super) fn of(kind: &FieldKind) -> Option<Numbers<'_>> {
        let dtype = match kind {
            FieldKind::Tensor { dtype, .. } | FieldKind::Ragged { dtype } => *dtype,
            _ => return None,
        };
        Some(Numbers {
            kind,
            dtype,
            bytes: Vec::new(),
        })
    }

    /// Makes room for so many, or as many as the value has, so that no vector grows by doubling.
    pub(super) fn reserve(&mut self, count: u64) {
        let bytes = usize::try_from(count)
            .unwrap_or(usize::MAX)
            .saturating_mul(self.dtype.bytes());
        let bytes = bytes.min(self.kind.record_bytes().unwrap_or(usize::MAX));
        self.bytes.reserve_exact(bytes);
    }

    /// Whether there are none yet.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Refuses more numbers than the value has, before they take memory.
    fn has_room(&self) -> Result<(), String> {
        match self.kind.record_bytes() {
            Some(bytes) if self.bytes.len() >= bytes => {
                let count = bytes / self.dtype.bytes();
                Err(format!(
                    "over {count} numbers where the field is {}",
                    shown(self.kind)
                ))
            }
            _ => Ok(()),
        }
    }

    /// Adds a whole number.
    ///
    /// # Errors
    ///
    /// One that the element type does not hold.
    pub(super) fn push_whole(&mut self, value: i128) -> Result<(), String> {
        self.has_room()?;
        let refused = || format!("{value} is no {}", self.dtype.name());
        macro_rules! put {
            ($type:ty) => {{
                let value = <$type>::try_from(value).map_err(|_| refused())?;
                self.bytes.extend(value.to_le_bytes())
            }};
        }
        match self.dtype {
            DType::Bool if !(0..=1).contains(&value) => return Err(refused()),
            DType::Bool | DType::UInt8 => put!(u8),
            DType::UInt16 => put!(u16),
            DType::UInt32 => put!(u32),
            DType::UInt64 => put!(u64),
            DType::Int8 => put!(i8),
            DType::Int16 => put!(i16),
            DType::Int32 => put!(i32),
            DType::Int64 => put!(i64),
            _ => return self.push_real(value as f64),
        }
        Ok(())
    }

    /// Adds a number that may have a fraction.
    ///
    /// # Errors
    ///
    /// An element type of whole numbers.
    pub(super) fn push_real(&mut self, value: f64) -> Result<(), String> {
        self.has_room()?;
        match self.dtype {
            DType::Float16 => self.bytes.extend(half::f16::from_f64(value).to_le_bytes()),
            DType::BFloat16 => self.bytes.extend(half::bf16::from_f64(value).to_le_bytes()),
            DType::Float32 => self.bytes.extend((value as f32).to_le_bytes()),
            DType::Float64 => self.bytes.extend(value.to_le_bytes()),
            other => return Err(format!("{value} is no {}", other.name())),
        }
        Ok(())
    }

    /// The value, if there are as many numbers as it has.
    ///
    /// # Errors
    ///
    /// Too few or too many.
    pub(super) fn finish(self) -> Result<Bytes, String> {
        let count = self.bytes.len() / self.dtype.bytes();
        match self.kind.record_bytes() {
            Some(expected) if expected != self.bytes.len() => Err(format!(
                "{count} numbers where the field is {}",
                shown(self.kind)
            )),
            _ => Ok(Bytes::from(self.bytes)),
        }
    }
}

/// Numbers written in decimal, with blanks or commas between them.
///
/// # Errors
///
/// What is no number of the type, or too few or too many of them.
pub(super) fn decimal(kind: &FieldKind, text: &[u8]) -> Result<Bytes, String> {
    let mut numbers = Numbers::of(kind).ok_or("it holds no numbers")?;
    let text = std::str::from_utf8(text).map_err(|_| "it is no text with numbers")?;
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let words = || {
        let words = text.split(|c: char| c == ',' || c.is_whitespace());
        words.filter(|word| !word.is_empty())
    };
    numbers.reserve(words().count() as u64);
    for word in words() {
        match (word.parse::<i128>(), word.parse::<f64>()) {
            (Ok(whole), _) => numbers.push_whole(whole)?,
            (_, Ok(real)) => numbers.push_real(real)?,
            _ => {
                let start: String = word.chars().take(20).collect();
                return Err(format!("`{start}` is no number"));
            }
        }
    }
    numbers.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: DType, shape: &[usize]) -> FieldKind {
        let shape = shape.to_vec();
        FieldKind::Tensor { dtype, shape }
    }

    #[test]
    fn decimal_numbers_become_elements_of_their_type() {
        let scalar = decimal(&tensor(DType::Int64, &[]), b" -7\n").expect("a number");
        assert_eq!(scalar, (-7_i64).to_le_bytes()[..]);

        let pair = decimal(&tensor(DType::Float32, &[2]), b"[1.5, -2]").expect("two numbers");
        assert_eq!(
            pair,
            [1.5_f32.to_le_bytes(), (-2_f32).to_le_bytes()].concat()
        );

        let kind = FieldKind::Ragged {
            dtype: DType::UInt16,
        };
        assert_eq!(
            decimal(&kind, b"1 2 3").expect("three"),
            b"\x01\0\x02\0\x03\0"[..]
        );
        assert_eq!(decimal(&kind, b"").expect("none"), b""[..]);
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused_with_the_number() {
        for (kind, text, reason) in [
            (tensor(DType::UInt8, &[]), "256", "256 is no uint8"),
            (tensor(DType::UInt8, &[]), "-1", "-1 is no uint8"),
            (tensor(DType::Bool, &[]), "2", "2 is no bool"),
            (tensor(DType::Int64, &[]), "1.5", "1.5 is no int64"),
            (tensor(DType::Int64, &[]), "cat", "`cat` is no number"),
            (tensor(DType::Int64, &[]), "1 2", "over 1 numbers"),
            (tensor(DType::Int64, &[]), "", "0 numbers"),
            (
                tensor(DType::Int64, &[]),
                "9223372036854775808",
                "is no int64",
            ),
        ] {
            let error = decimal(&kind, text.as_bytes()).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
