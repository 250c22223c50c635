//! Validates the bytes of values, and converts numbers from other encodings.

use std::sync::Arc;

use bytes::Bytes;

use super::index::invalid;
use super::npy::NpyArray;
use infeed_core::error::Cause;
use infeed_core::sample::{DType, Field, FieldKind, Pixels};

/// A requested field of the records of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequest {
    /// Name of the field.
    pub name: String,
    /// Name of the field in the shards; None: the same name.
    pub from: Option<String>,
    /// Specified kind.
    pub hint: KindHint,
}

/// Specification of the kind of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindHint {
    /// None: the records decide.
    Nothing,
    /// A tensor; the records decide its type and shape.
    Tensor,
    /// A ragged list; the records decide its type.
    Ragged,
    /// Complete.
    Kind(FieldKind),
}

impl FieldRequest {
    /// Name of the field in the shards.
    pub(crate) fn source_name(&self) -> &str {
        self.from.as_deref().unwrap_or(&self.name)
    }

    /// Field of a kind that is known now.
    pub(crate) fn field(&self, kind: FieldKind) -> Field {
        Field {
            name: self.name.clone(),
            kind,
        }
    }
}

/// Fields, if all kinds are specified.
pub fn specified_fields(wanted: &[FieldRequest]) -> Option<Vec<Field>> {
    let kinds = wanted.iter().map(|wanted| match &wanted.hint {
        KindHint::Kind(kind) => Some(wanted.field(kind.clone())),
        _ => None,
    });
    kinds
        .collect::<Option<Vec<Field>>>()
        .filter(|fields| !fields.is_empty())
}

/// Maximum number of names that an error lists.
pub(crate) const LISTED: usize = 20;

/// Lists names for an error.
pub(crate) fn list_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let shown: Vec<&str> = names.take(LISTED).collect();
    match count {
        0 => "none".to_owned(),
        _ if count > LISTED => format!("`{}` and more", shown.join("`, `")),
        _ => format!("`{}`", shown.join("`, `")),
    }
}

/// Wraps a problem with the bytes of a record.
pub(crate) fn cause(problem: impl Into<String>) -> Cause {
    Arc::new(invalid(problem.into()))
}

/// Returns the fields that the first good record determines.
///
/// # Errors
///
/// The problem of the first record, if none is good.
pub(crate) fn first_good_fields(
    records: &[Bytes],
    mut settle: impl FnMut(&Bytes) -> Result<Vec<Field>, String>,
) -> Result<Vec<Field>, Cause> {
    let mut problem = None;
    for record in records {
        match settle(record) {
            Ok(fields) => return Ok(fields),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    Err(cause(problem.unwrap_or_default()))
}

/// Returns bytes that need no conversion: encoded pixels, text, elements of an array.
///
/// # Errors
///
/// A length or an encoding that the kind does not allow.
pub(crate) fn plain(kind: &FieldKind, bytes: Bytes) -> Result<Bytes, String> {
    let length = bytes.len();
    if let Some(expected) = kind.record_bytes()
        && length != expected
    {
        return Err(format!(
            "{length} bytes, but {} has {expected}",
            describe_kind(kind)
        ));
    }
    match kind {
        FieldKind::Text if std::str::from_utf8(&bytes).is_err() => {
            Err("it is not UTF-8; read it as bytes".to_owned())
        }
        FieldKind::Ragged { dtype } if !length.is_multiple_of(dtype.bytes()) => Err(format!(
            "{length} bytes are not a multiple of the size of {}",
            dtype.name()
        )),
        _ => Ok(bytes),
    }
}

/// Returns the elements of an array with the type and shape of the kind.
///
/// # Errors
///
/// The actual and the expected type and shape.
pub(crate) fn array(kind: &FieldKind, array: NpyArray) -> Result<Bytes, String> {
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
            same && array.dtype == depth.dtype()
        }
        _ => false,
    };
    match fits {
        true => Ok(array.elements),
        false => Err(format!(
            "an array of {} {:?}, but the field is {}",
            array.dtype.name(),
            array.shape,
            describe_kind(kind)
        )),
    }
}

/// Describes a kind for an error.
pub(crate) fn describe_kind(kind: &FieldKind) -> String {
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

/// Collects numbers into a value.
#[derive(Debug)]
pub(crate) struct Numbers<'a> {
    kind: &'a FieldKind,
    dtype: DType,
    bytes: Vec<u8>,
}

impl Numbers<'_> {
    /// Creates a collector for a kind; None for kinds without numbers.
    pub(crate) fn of(kind: &FieldKind) -> Option<Numbers<'_>> {
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

    /// Allocates for `count` numbers, or for those of the value, so that no vector grows by
    /// doubling.
    pub(crate) fn reserve(&mut self, count: u64) {
        let bytes = usize::try_from(count)
            .unwrap_or(usize::MAX)
            .saturating_mul(self.dtype.bytes());
        let bytes = bytes.min(self.kind.record_bytes().unwrap_or(usize::MAX));
        self.bytes.reserve_exact(bytes);
    }

    /// Whether there are no numbers yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Rejects more numbers than the value has, before memory is allocated.
    fn has_room(&self) -> Result<(), String> {
        match self.kind.record_bytes() {
            Some(bytes) if self.bytes.len() >= bytes => {
                let count = bytes / self.dtype.bytes();
                Err(format!(
                    "over {count} numbers, but the field is {}",
                    describe_kind(self.kind)
                ))
            }
            _ => Ok(()),
        }
    }

    /// Appends an integer.
    ///
    /// # Errors
    ///
    /// A number that the element type cannot hold.
    pub(crate) fn push_whole(&mut self, value: i128) -> Result<(), String> {
        self.has_room()?;
        let refused = || format!("{value} does not fit in {}", self.dtype.name());
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

    /// Appends a number that may have a fraction.
    ///
    /// # Errors
    ///
    /// An integer element type.
    pub(crate) fn push_real(&mut self, value: f64) -> Result<(), String> {
        self.has_room()?;
        match self.dtype {
            DType::Float16 => self.bytes.extend(half::f16::from_f64(value).to_le_bytes()),
            DType::BFloat16 => self.bytes.extend(half::bf16::from_f64(value).to_le_bytes()),
            DType::Float32 => self.bytes.extend((value as f32).to_le_bytes()),
            DType::Float64 => self.bytes.extend(value.to_le_bytes()),
            other => return Err(format!("{value} does not fit in {}", other.name())),
        }
        Ok(())
    }

    /// Returns the value, if the count of numbers matches.
    ///
    /// # Errors
    ///
    /// Too few or too many numbers.
    pub(crate) fn finish(self) -> Result<Bytes, String> {
        let count = self.bytes.len() / self.dtype.bytes();
        match self.kind.record_bytes() {
            Some(expected) if expected != self.bytes.len() => Err(format!(
                "{count} numbers, but the field is {}",
                describe_kind(self.kind)
            )),
            _ => Ok(Bytes::from(self.bytes)),
        }
    }
}

/// Parses decimal numbers, separated by blanks or commas.
///
/// # Errors
///
/// Text that is not a number of the type, or too few or too many numbers.
pub(crate) fn decimal(kind: &FieldKind, text: &[u8]) -> Result<Bytes, String> {
    let mut numbers = Numbers::of(kind).ok_or("it holds no numbers")?;
    let text = std::str::from_utf8(text).map_err(|_| "it is not text with numbers")?;
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
                return Err(format!("`{start}` is not a number"));
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
    fn numbers_that_do_not_fit_are_rejected_with_the_number() {
        for (kind, text, reason) in [
            (
                tensor(DType::UInt8, &[]),
                "256",
                "256 does not fit in uint8",
            ),
            (tensor(DType::UInt8, &[]), "-1", "-1 does not fit in uint8"),
            (tensor(DType::Bool, &[]), "2", "2 does not fit in bool"),
            (
                tensor(DType::Int64, &[]),
                "1.5",
                "1.5 does not fit in int64",
            ),
            (tensor(DType::Int64, &[]), "cat", "`cat` is not a number"),
            (tensor(DType::Int64, &[]), "1 2", "over 1 numbers"),
            (tensor(DType::Int64, &[]), "", "0 numbers"),
            (
                tensor(DType::Int64, &[]),
                "9223372036854775808",
                "does not fit in int64",
            ),
        ] {
            let error = decimal(&kind, text.as_bytes()).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
