//! What the columns of MDS shards hold, and the values they become.
//!
//! Source: streaming/base/format/mds/encodings.py in mosaicml-streaming.

use bytes::Bytes;

use super::npy::Array;
use super::values::{Told, array, decimal, plain, shown};
use crate::sample::{DType, Depth, FieldKind, Pixels, Size};

/// How a column is encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Bytes as they are.
    Bytes,
    /// UTF-8, JSON too.
    Text,
    /// An image file.
    Image,
    /// One number.
    Number(DType),
    /// One number in decimal.
    Decimal(DType),
    /// An array, of a type and shape that are told here or before the elements of each.
    Array {
        dtype: Option<DType>,
        shape: Option<Vec<usize>>,
    },
    /// Width, height, mode and pixels.
    Pixels,
    /// Several image files, of which there must be one: bytes before their number.
    Images(usize),
    /// One that is refused, and why.
    Refused(String),
}

impl Coding {
    /// What the name of an encoding means.
    pub(super) fn of(name: &str) -> Coding {
        let (name, config) = match name.split_once(':') {
            Some((name, config)) => (name, Some(config)),
            None => (name, None),
        };
        if let Some(dtype) = dtype(name) {
            return Coding::Number(dtype);
        }
        match name {
            "bytes" => Coding::Bytes,
            "str" | "json" | "str_decimal" => Coding::Text,
            "int" => Coding::Number(DType::Int64),
            "str_int" => Coding::Decimal(DType::Int64),
            "str_float" => Coding::Decimal(DType::Float64),
            "jpeg" | "png" => Coding::Image,
            "pil" => Coding::Pixels,
            "jpegarray" | "jpeg_array" => Coding::Images(0),
            "list[jpeg]" | "list[png]" => Coding::Images(4),
            "ndarray" => ndarray(config.unwrap_or_default()).unwrap_or_else(|| {
                Coding::Refused(format!("its encoding `ndarray:{}` is none", config.unwrap_or("")))
            }),
            "pkl" => Coding::Refused(
                "it is pickled, and reading it would run code that lies in the data; write it with \
                 another encoding, or name the fields to read without it"
                    .to_owned(),
            ),
            other => Coding::Refused(format!(
                "its encoding `{other}` is not read; name the fields to read without it"
            )),
        }
    }

    /// The kind that the first value tells, of an array or pixels.
    pub(super) fn learned(&self, bytes: &Bytes, told: &Told) -> Result<FieldKind, String> {
        let array = self.array(bytes)?;
        if *self == Coding::Pixels {
            let [height, width, channels @ 1..=4] = array.shape[..] else {
                return Err("pixels of another shape than [H, W, 1 to 4]".to_owned());
            };
            let side = |n: usize| u32::try_from(n).map_err(|_| "an image too large".to_owned());
            let size = Size {
                height: side(height)?,
                width: side(width)?,
            };
            let depth = Depth::U8;
            return Ok(FieldKind::Image(Pixels::Raw {
                size,
                channels,
                depth,
            }));
        }
        let (dtype, shape) = (array.dtype, array.shape);
        Ok(match told {
            Told::Ragged if shape.len() != 1 => {
                return Err(format!(
                    "arrays of shape {shape:?} are no lists; read the column as a tensor"
                ));
            }
            Told::Ragged => FieldKind::Ragged { dtype },
            _ => FieldKind::Tensor { dtype, shape },
        })
    }

    /// A value as an array.
    fn array(&self, bytes: &Bytes) -> Result<Array, String> {
        const CUT: &str = "the array ends within its head";
        let mut at = 0;
        let mut take = |length: usize| -> Result<&[u8], String> {
            let taken = bytes.get(at..at + length).ok_or(CUT)?;
            at += length;
            Ok(taken)
        };
        let (dtype, shape) = match self {
            Coding::Number(dtype) => (*dtype, Vec::new()),
            Coding::Pixels => {
                let head = take(12)?;
                let side = |n: usize| {
                    let four = head[n * 4..].first_chunk::<4>().copied();
                    four.map_or(0, |four| u32::from_le_bytes(four) as usize)
                };
                let (width, height) = (side(0), side(1));
                let channels = match take(side(2).min(16))? {
                    b"L" | b"P" => 1,
                    b"LA" => 2,
                    b"RGB" => 3,
                    b"RGBA" => 4,
                    other => {
                        let mode = String::from_utf8_lossy(other);
                        return Err(format!(
                            "an image of mode `{mode}`; L, P, LA, RGB, RGBA are read"
                        ));
                    }
                };
                (DType::UInt8, vec![height, width, channels])
            }
            Coding::Array {
                dtype: told,
                shape: told_shape,
            } => {
                let dtype = match told {
                    Some(dtype) => *dtype,
                    None => numbered(take(1)?[0]).ok_or("an array of an unknown type")?,
                };
                let shape = match told_shape {
                    Some(shape) => shape.clone(),
                    None => {
                        let head = take(1)?[0];
                        let axis_bytes = 1 << (head & 3);
                        let axes = take(usize::from(head >> 2) * axis_bytes)?;
                        let axis = |bytes: &[u8]| {
                            let parts = bytes.iter().rev();
                            let axis = parts.fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
                            usize::try_from(axis).map_err(|_| CUT.to_owned())
                        };
                        axes.chunks(axis_bytes)
                            .map(axis)
                            .collect::<Result<_, _>>()?
                    }
                };
                (dtype, shape)
            }
            _ => return Err("it is no array".to_owned()),
        };
        let elements = bytes.slice(at..);
        let expected = shape
            .iter()
            .try_fold(dtype.bytes(), |product, &axis| product.checked_mul(axis));
        match expected == Some(elements.len()) {
            true => Ok(Array {
                dtype,
                shape,
                elements,
            }),
            false => Err(format!(
                "{} bytes for an array of {} {shape:?}",
                elements.len(),
                dtype.name()
            )),
        }
    }
}

/// The kind of a column; None where its first value has to tell.
///
/// # Errors
///
/// One that is refused, or that cannot be what was told.
pub(super) fn kind_of(
    name: &str,
    coding: &Coding,
    size: Option<u64>,
    told: &Told,
) -> Result<Option<FieldKind>, String> {
    let number = |dtype: DType, shape: &[usize]| match told {
        Told::Ragged => FieldKind::Ragged { dtype },
        _ => FieldKind::Tensor {
            dtype,
            shape: shape.to_vec(),
        },
    };
    let own = match coding {
        Coding::Refused(reason) => return Err(format!("column `{name}`: {reason}")),
        Coding::Bytes => Some(FieldKind::Bytes),
        Coding::Text => Some(FieldKind::Text),
        Coding::Image | Coding::Images(_) if name.contains("mask") => {
            Some(FieldKind::Mask(Pixels::Encoded))
        }
        Coding::Image | Coding::Images(_) => Some(FieldKind::Image(Pixels::Encoded)),
        Coding::Number(dtype) | Coding::Decimal(dtype) => Some(number(*dtype, &[])),
        Coding::Array {
            dtype: Some(dtype),
            shape: Some(shape),
        } => Some(number(*dtype, shape)),
        Coding::Array { .. } | Coding::Pixels => None,
    };
    if let (Coding::Number(dtype), Some(size)) = (coding, size)
        && size != dtype.bytes() as u64
    {
        return Err(format!(
            "column `{name}`: {size} bytes for {}",
            dtype.name()
        ));
    }
    let kind = match (told, coding) {
        (Told::Kind(kind), _) => kind,
        (Told::Ragged, Coding::Number(_)) => return Err(no_list(name, &[])),
        (
            Told::Ragged,
            Coding::Array {
                shape: Some(shape), ..
            },
        ) if shape.len() != 1 => return Err(no_list(name, shape)),
        _ => return Ok(own),
    };
    // Bytes may be anything; a number is what it is.
    match (coding, &own) {
        (Coding::Number(_) | Coding::Array { .. }, Some(own)) => {
            let ragged = matches!(
                (kind, own),
                (FieldKind::Ragged { dtype: a }, FieldKind::Tensor { dtype: b, shape })
                    if a == b && shape.len() == 1
            );
            let pixels = matches!(
                kind,
                FieldKind::Image(Pixels::Raw { .. }) | FieldKind::Mask(Pixels::Raw { .. })
            ) && kind.record_bytes() == own.record_bytes();
            match kind == own || ragged || pixels {
                true => Ok(Some(kind.clone())),
                false => Err(format!(
                    "column `{name}` is {}, not {}",
                    shown(own),
                    shown(kind)
                )),
            }
        }
        _ => Ok(Some(kind.clone())),
    }
}

/// Why a column cannot be ragged whose values have such a shape.
fn no_list(name: &str, shape: &[usize]) -> String {
    let holds = match shape {
        [] => "one number".to_owned(),
        shape => format!("an array of shape {shape:?}"),
    };
    format!("column `{name}` holds {holds} a record, not a list; read it as a tensor")
}

/// The value of a field of this kind.
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn value(kind: &FieldKind, coding: &Coding, bytes: &Bytes) -> Result<Bytes, String> {
    match coding {
        Coding::Bytes | Coding::Text | Coding::Image => plain(kind, bytes.clone()),
        Coding::Decimal(_) => decimal(kind, bytes),
        Coding::Number(_) | Coding::Array { .. } | Coding::Pixels => {
            array(kind, coding.array(bytes)?)
        }
        Coding::Images(before) => plain(kind, single(bytes, *before)?),
        Coding::Refused(reason) => Err(reason.clone()),
    }
}

/// The one image of a list of them.
fn single(bytes: &Bytes, before: usize) -> Result<Bytes, String> {
    let number = |at: usize| {
        let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        four.map(|four| u32::from_le_bytes(*four) as usize)
            .ok_or_else(|| "the list of images ends within its head".to_owned())
    };
    match number(before)? {
        1 => {
            let (start, length) = (before + 8, number(before + 4)?);
            match start.checked_add(length) == Some(bytes.len()) {
                true => Ok(bytes.slice(start..)),
                false => Err(format!("an image of {length} bytes in {}", bytes.len())),
            }
        }
        count => Err(format!(
            "{count} images where a record has one; read it as bytes"
        )),
    }
}

fn ndarray(config: &str) -> Option<Coding> {
    let mut parts = config.split(':');
    let dtype = match parts.next() {
        None | Some("") => None,
        Some(name) => Some(dtype(name)?),
    };
    let shape = match parts.next() {
        None => None,
        Some(text) => {
            let axes = text.split(',').map(|axis| axis.trim().parse().ok());
            Some(axes.collect::<Option<Vec<usize>>>()?)
        }
    };
    parts
        .next()
        .is_none()
        .then_some(Coding::Array { dtype, shape })
}

fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "uint8" => DType::UInt8,
        "uint16" => DType::UInt16,
        "uint32" => DType::UInt32,
        "uint64" => DType::UInt64,
        "int8" => DType::Int8,
        "int16" => DType::Int16,
        "int32" => DType::Int32,
        "int64" => DType::Int64,
        "float16" => DType::Float16,
        "float32" => DType::Float32,
        "float64" => DType::Float64,
        _ => return None,
    })
}

/// The type that a number before an array stands for.
fn numbered(number: u8) -> Option<DType> {
    Some(match number {
        8 => DType::UInt8,
        9 => DType::Int8,
        16 => DType::UInt16,
        17 => DType::Int16,
        18 => DType::Float16,
        32 => DType::UInt32,
        33 => DType::Int32,
        34 => DType::Float32,
        64 => DType::UInt64,
        65 => DType::Int64,
        66 => DType::Float64,
        _ => return None,
    })
}
