//! Values of one column of a batch: slices of Arrow's buffers wherever these have the layout of
//! infeed's batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;
use bytes::Bytes;

use super::value_types::number;
use crate::columns::integer;
use crate::resident_rows::{copy_stored, copy_wide};
use infeed_core::sample::DType;

/// Reason why a value is not a valid field of a record.
#[derive(Debug, thiserror::Error)]
pub(super) enum ValueError {
    #[error("column `{0}` is null; drop such rows or fill them")]
    Null(Arc<str>),
    #[error(
        "column `{0}` names a file instead of holding its bytes; write the table again with the \
         files embedded"
    )]
    OnlyPath(Arc<str>),
    #[error(
        "column `{column}` has {found} bytes, but its shape has {expected}; write the row again \
         with that shape"
    )]
    Length {
        column: Arc<str>,
        found: usize,
        expected: usize,
    },
    #[error(
        "column `{column}` has {found} bytes, which is not a multiple of the size of {dtype}; give \
         the dtype with which it was written"
    )]
    Elements {
        column: Arc<str>,
        found: usize,
        dtype: &'static str,
    },
    #[error("column `{0}` is not UTF-8; read it as bytes")]
    NoText(Arc<str>),
    #[error(
        "column `{column}` has a list of {found}, but its shape has {expected}; write \
         lists of one length"
    )]
    Shape {
        column: Arc<str>,
        found: usize,
        expected: usize,
    },
    #[error(
        "column `{column}` has `{word}`, which is not a class of the first records; write the \
         column as numbers, or read it as text"
    )]
    NoClass { column: Arc<str>, word: String },
    #[error("column `{0}` points outside of its buffers; write the file again")]
    Outside(Arc<str>),
}

/// Values in their storage layout.
#[derive(Debug)]
pub(super) enum Cells {
    /// Bytes between offsets.
    Spans { offsets: Offsets, values: Bytes },
    /// Byte views into several buffers; short values are in the view itself.
    Views {
        views: ScalarBuffer<u128>,
        buffers: Vec<Bytes>,
    },
    /// A fixed number of elements per row.
    Fixed {
        elements: Elements,
        length: usize,
        /// Nulls of nested levels, with their rows per row of the column.
        nulls: Vec<(NullBuffer, usize)>,
    },
    /// Integers to be widened.
    Wide { elements: Elements, from: DType },
    /// Nested lists.
    Lists {
        levels: Vec<ListLevel>,
        items: ListItems,
        dims: Option<Vec<usize>>,
    },
    /// Keys into words, some of which may be null.
    Words {
        keys: Keys,
        words: Box<Cells>,
        nulls: Option<NullBuffer>,
    },
    /// Keys into words that are classes.
    Classes {
        keys: Keys,
        numbers: Vec<Result<i64, ClassError>>,
    },
}

/// Reason why a word has no class number.
#[derive(Clone, Debug)]
pub(super) enum ClassError {
    Null,
    Outside,
    Unknown(String),
}

/// Items of the innermost lists.
#[derive(Debug)]
pub(super) struct ListItems {
    elements: Elements,
    /// Elements of an item.
    length: usize,
    /// Nulls of the items, and of the elements.
    nulls: [Option<NullBuffer>; 2],
}

#[derive(Debug)]
pub(super) struct ListLevel {
    offsets: Offsets,
    /// Nulls of the lists themselves; those of the first level are the column's.
    nulls: Option<NullBuffer>,
}

#[derive(Debug)]
pub(super) enum Offsets {
    Small(OffsetBuffer<i32>),
    Large(OffsetBuffer<i64>),
}

impl Offsets {
    /// Begin and end of a list; None if they are invalid.
    fn span(&self, row: usize) -> Option<(usize, usize)> {
        let at = |row: usize| match self {
            Offsets::Small(offsets) => usize::try_from(*offsets.get(row)?).ok(),
            Offsets::Large(offsets) => usize::try_from(*offsets.get(row)?).ok(),
        };
        let (begin, end) = (at(row)?, at(row + 1)?);
        (begin <= end).then_some((begin, end))
    }
}

#[derive(Debug)]
pub(super) enum Elements {
    Plain { bytes: Bytes, width: usize },
    Bits(BooleanBuffer),
}

impl Elements {
    fn of(array: &dyn Array) -> Option<Elements> {
        if let Some(array) = array.as_boolean_opt() {
            return Some(Elements::Bits(array.values().clone()));
        }
        let width = match array.data_type() {
            DataType::FixedSizeBinary(width) => usize::try_from(*width).ok()?,
            other => number(other)?.bytes(),
        };
        let data = array.to_data();
        let (begin, length) = (
            data.offset().checked_mul(width)?,
            data.len().checked_mul(width)?,
        );
        let buffer = data.buffers().first()?;
        let fits = begin
            .checked_add(length)
            .is_some_and(|end| end <= buffer.len());
        fits.then(|| Elements::Plain {
            bytes: to_bytes(buffer.slice_with_length(begin, length)),
            width,
        })
    }

    /// Returns stored bytes of elements; None if they are bits.
    fn stored_bytes(&self, begin: usize, end: usize) -> Option<&[u8]> {
        match self {
            Elements::Plain { bytes, width } => {
                bytes.get(begin.checked_mul(*width)?..end.checked_mul(*width)?)
            }
            Elements::Bits(_) => None,
        }
    }

    fn range(&self, begin: usize, end: usize) -> Option<Bytes> {
        match self {
            Elements::Plain { bytes, width } => {
                slice(bytes, begin.checked_mul(*width)?, end.checked_mul(*width)?)
            }
            Elements::Bits(bits) if begin <= end && end <= bits.len() => {
                let byte = |at: usize| u8::from(bits.value(at));
                Some((begin..end).map(byte).collect::<Vec<u8>>().into())
            }
            Elements::Bits(_) => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Keys {
    elements: Elements,
    dtype: DType,
}

impl Keys {
    fn get(&self, row: usize) -> Option<usize> {
        let key = integer(self.dtype, &self.elements.range(row, row + 1)?)?;
        usize::try_from(key).ok()
    }
}

/// Wraps an Arrow buffer as bytes, without a copy.
fn to_bytes(buffer: Buffer) -> Bytes {
    struct OwnedBuffer(Buffer);
    impl AsRef<[u8]> for OwnedBuffer {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(OwnedBuffer(buffer))
}

fn slice(bytes: &Bytes, begin: usize, end: usize) -> Option<Bytes> {
    (begin <= end && end <= bytes.len()).then(|| bytes.slice(begin..end))
}

/// Returns a child of structs, and its nulls with those of the structs.
pub(super) fn struct_child(
    array: &ArrayRef,
    children: &[String],
) -> Option<(ArrayRef, Option<NullBuffer>)> {
    let (mut array, mut nulls) = (Arc::clone(array), array.nulls().cloned());
    for child in children {
        let inner = Arc::clone(array.as_struct_opt()?.column_by_name(child)?);
        nulls = NullBuffer::union(nulls.as_ref(), inner.nulls());
        array = inner;
    }
    Some((array, nulls))
}

/// Elements of an array of exactly this type.
pub(super) fn elements(array: &dyn Array, dtype: DType) -> Option<Elements> {
    Elements::of(array).filter(|_| number(array.data_type()) == Some(dtype))
}

/// Null buffer of an array that has nulls.
fn some_nulls(array: &dyn Array) -> Option<NullBuffer> {
    array
        .nulls()
        .filter(|nulls| nulls.null_count() > 0)
        .cloned()
}

fn any_null(nulls: &NullBuffer, begin: usize, end: usize) -> bool {
    begin <= end && end <= nulls.len() && nulls.slice(begin, end - begin).null_count() > 0
}

impl Cells {
    pub(super) fn bytes(array: &ArrayRef) -> Option<Cells> {
        let buffers = |buffers: &[Buffer]| buffers.iter().cloned().map(to_bytes).collect();
        Some(match array.data_type() {
            DataType::Binary => {
                let array = array.as_binary_opt::<i32>()?;
                Cells::spans(Offsets::Small(array.offsets().clone()), array.values())
            }
            DataType::LargeBinary => {
                let array = array.as_binary_opt::<i64>()?;
                Cells::spans(Offsets::Large(array.offsets().clone()), array.values())
            }
            DataType::Utf8 => {
                let array = array.as_string_opt::<i32>()?;
                Cells::spans(Offsets::Small(array.offsets().clone()), array.values())
            }
            DataType::LargeUtf8 => {
                let array = array.as_string_opt::<i64>()?;
                Cells::spans(Offsets::Large(array.offsets().clone()), array.values())
            }
            DataType::BinaryView => {
                let array = array.as_binary_view_opt()?;
                Cells::Views {
                    views: array.views().clone(),
                    buffers: buffers(array.data_buffers()),
                }
            }
            DataType::Utf8View => {
                let array = array.as_string_view_opt()?;
                Cells::Views {
                    views: array.views().clone(),
                    buffers: buffers(array.data_buffers()),
                }
            }
            DataType::FixedSizeBinary(_) => Cells::Fixed {
                elements: Elements::of(array)?,
                length: 1,
                nulls: Vec::new(),
            },
            DataType::Dictionary(_, _) => {
                let (keys, words) = keys_and_words(array)?;
                Cells::Words {
                    keys,
                    words: Box::new(Cells::bytes(&words)?),
                    nulls: some_nulls(&words),
                }
            }
            _ => return None,
        })
    }

    fn spans(offsets: Offsets, values: &Buffer) -> Cells {
        let values = to_bytes(values.clone());
        Cells::Spans { offsets, values }
    }

    pub(super) fn fixed_size(array: &ArrayRef, dtype: DType, length: usize) -> Option<Cells> {
        let mut inner = Arc::clone(array);
        let (mut rows, mut nulls) = (1_usize, Vec::new());
        while let DataType::FixedSizeList(_, size) = inner.data_type() {
            rows = rows.checked_mul(usize::try_from(*size).ok()?)?;
            let values = Arc::clone(inner.as_fixed_size_list_opt()?.values());
            nulls.extend(some_nulls(&values).map(|nulls| (nulls, rows)));
            inner = values;
        }
        (rows == length).then_some(())?;
        Some(Cells::Fixed {
            elements: elements(&inner, dtype)?,
            length,
            nulls,
        })
    }

    pub(super) fn lists(
        array: &ArrayRef,
        dtype: DType,
        (depth, length): (usize, usize),
        dims: Option<Vec<usize>>,
    ) -> Option<Cells> {
        let mut inner = Arc::clone(array);
        let mut levels = Vec::with_capacity(depth);
        for _ in 0..depth {
            let (offsets, values) = match inner.data_type() {
                DataType::List(_) => {
                    let list = inner.as_list_opt::<i32>()?;
                    (Offsets::Small(list.offsets().clone()), list.values())
                }
                DataType::LargeList(_) => {
                    let list = inner.as_list_opt::<i64>()?;
                    (Offsets::Large(list.offsets().clone()), list.values())
                }
                _ => return None,
            };
            let values = Arc::clone(values);
            levels.push(ListLevel {
                offsets,
                nulls: some_nulls(&inner).filter(|_| !levels.is_empty()),
            });
            inner = values;
        }
        let mut nulls = [some_nulls(&inner), None];
        if let DataType::FixedSizeList(_, size) = inner.data_type() {
            (usize::try_from(*size) == Ok(length)).then_some(())?;
            let values = Arc::clone(inner.as_fixed_size_list_opt()?.values());
            nulls[1] = some_nulls(&values);
            inner = values;
        }
        Some(Cells::Lists {
            levels,
            items: ListItems {
                elements: elements(&inner, dtype)?,
                length,
                nulls,
            },
            dims,
        })
    }

    pub(super) fn classes(array: &ArrayRef, known: &HashMap<String, i64>) -> Option<Cells> {
        let (keys, words) = keys_and_words(array)?;
        let spelled = Cells::bytes(&words)?;
        let number = |at: usize| {
            if words.is_null(at) {
                return Err(ClassError::Null);
            }
            let word = spelled.get(at, &"words".into());
            let word = word.map_err(|_| ClassError::Outside)?;
            let word = String::from_utf8_lossy(&word).into_owned();
            known.get(&word).copied().ok_or(ClassError::Unknown(word))
        };
        Some(Cells::Classes {
            keys,
            numbers: (0..words.len()).map(number).collect(),
        })
    }

    /// Stored bytes of a row of numbers of one shape; None if they are null or invalid, or in another
    /// layout.
    pub(super) fn stored_bytes(&self, row: usize) -> Option<&[u8]> {
        match self {
            Cells::Fixed {
                elements,
                length,
                nulls,
            } if nulls.is_empty() => {
                let begin = row.checked_mul(*length)?;
                elements.stored_bytes(begin, begin.checked_add(*length)?)
            }
            Cells::Wide { elements, .. } => elements.stored_bytes(row, row + 1),
            _ => None,
        }
    }

    /// Copies a row of numbers of one shape. Returns false if they are null or invalid, or in another
    /// layout.
    pub(super) fn copy(&self, row: usize, to: &mut [u8]) -> bool {
        let stored = self.stored_bytes(row);
        match self {
            Cells::Wide { from, .. } => copy_wide(stored.and_then(|own| integer(*from, own)), to),
            _ => copy_stored(stored, to),
        }
    }

    pub(super) fn get(&self, row: usize, name: &Arc<str>) -> Result<Bytes, ValueError> {
        let outside = || ValueError::Outside(Arc::clone(name));
        match self {
            Cells::Spans { offsets, values } => {
                let (begin, end) = offsets.span(row).ok_or_else(outside)?;
                slice(values, begin, end).ok_or_else(outside)
            }
            Cells::Views { views, buffers } => {
                let view = *views.get(row).ok_or_else(outside)?;
                view_bytes(view, buffers).ok_or_else(outside)
            }
            Cells::Fixed {
                elements,
                length,
                nulls,
            } => {
                let null = |(nulls, rows): &(NullBuffer, usize)| {
                    any_null(
                        nulls,
                        row.saturating_mul(*rows),
                        (row + 1).saturating_mul(*rows),
                    )
                };
                if nulls.iter().any(null) {
                    return Err(ValueError::Null(Arc::clone(name)));
                }
                let begin = row.checked_mul(*length).ok_or_else(outside)?;
                let range = elements.range(begin, begin.saturating_add(*length));
                range.ok_or_else(outside)
            }
            Cells::Wide { elements, from } => {
                let bytes = elements.range(row, row + 1).ok_or_else(outside)?;
                let wide = integer(*from, &bytes).ok_or_else(outside)?;
                Ok(Bytes::copy_from_slice(&wide.to_le_bytes()))
            }
            Cells::Lists {
                levels,
                items,
                dims,
            } => list(row, levels, items, dims.as_deref(), name),
            Cells::Words { keys, words, nulls } => {
                let key = keys.get(row).ok_or_else(outside)?;
                let null = |nulls: &NullBuffer| key < nulls.len() && nulls.is_null(key);
                match nulls.as_ref().is_some_and(null) {
                    true => Err(ValueError::Null(Arc::clone(name))),
                    false => words.get(key, name),
                }
            }
            Cells::Classes { keys, numbers } => {
                let key = keys.get(row).ok_or_else(outside)?;
                match numbers.get(key).ok_or_else(outside)? {
                    Ok(number) => Ok(Bytes::copy_from_slice(&number.to_le_bytes())),
                    Err(ClassError::Null) => Err(ValueError::Null(Arc::clone(name))),
                    Err(ClassError::Outside) => Err(outside()),
                    Err(ClassError::Unknown(word)) => Err(ValueError::NoClass {
                        column: Arc::clone(name),
                        word: word.clone(),
                    }),
                }
            }
        }
    }
}

/// Elements of a row of nested lists, which are contiguous.
fn list(
    row: usize,
    levels: &[ListLevel],
    items: &ListItems,
    dims: Option<&[usize]>,
    name: &Arc<str>,
) -> Result<Bytes, ValueError> {
    let outside = || ValueError::Outside(Arc::clone(name));
    let (mut begin, mut end) = (row, row + 1);
    for (at, level) in levels.iter().enumerate() {
        let null = |nulls: &NullBuffer| any_null(nulls, begin, end);
        if level.nulls.as_ref().is_some_and(null) {
            return Err(ValueError::Null(Arc::clone(name)));
        }
        if let Some(&expected) = dims.and_then(|dims| dims.get(at)) {
            for row in begin..end {
                let (begin, end) = level.offsets.span(row).ok_or_else(outside)?;
                if end - begin != expected {
                    return Err(ValueError::Shape {
                        column: Arc::clone(name),
                        found: end - begin,
                        expected,
                    });
                }
            }
        }
        if begin == end {
            // An axis of length 0 ends the nesting.
            break;
        }
        let (first, _) = level.offsets.span(begin).ok_or_else(outside)?;
        let (_, last) = level.offsets.span(end - 1).ok_or_else(outside)?;
        (begin, end) = (first, last);
    }
    let has_null = |nulls: &Option<NullBuffer>, begin, end| {
        nulls
            .as_ref()
            .is_some_and(|nulls| any_null(nulls, begin, end))
    };
    let scaled = |at: usize| at.checked_mul(items.length).ok_or_else(outside);
    let (first, last) = (scaled(begin)?, scaled(end)?);
    let [of_items, of_elements] = &items.nulls;
    if has_null(of_items, begin, end) || has_null(of_elements, first, last) {
        return Err(ValueError::Null(Arc::clone(name)));
    }
    match begin == end {
        true => Ok(Bytes::new()),
        false => items.elements.range(first, last).ok_or_else(outside),
    }
}

/// Bytes of a view: up to 12 bytes are in the view itself, behind the length; more are in a buffer.
fn view_bytes(view: u128, buffers: &[Bytes]) -> Option<Bytes> {
    let length = view as u32 as usize;
    if length <= 12 {
        let bytes = view.to_le_bytes();
        return Some(Bytes::copy_from_slice(&bytes[4..4 + length]));
    }
    let buffer = buffers.get((view >> 64) as u32 as usize)?;
    let begin = (view >> 96) as u32 as usize;
    slice(buffer, begin, begin.checked_add(length)?)
}

fn keys_and_words(array: &ArrayRef) -> Option<(Keys, ArrayRef)> {
    let dictionary = array.as_any_dictionary_opt()?;
    let keys = Keys {
        dtype: number(dictionary.keys().data_type())?,
        elements: Elements::of(dictionary.keys())?,
    };
    Some((keys, Arc::clone(dictionary.values())))
}

/// Words of a dictionary column; None for other columns and for words that are null.
pub(crate) fn words(array: &ArrayRef) -> Option<Vec<String>> {
    let (_, words) = keys_and_words(array)?;
    let cells = Cells::bytes(&words)?;
    let word = |at: usize| {
        let bytes = cells.get(at, &"words".into()).ok()?;
        String::from_utf8(bytes.to_vec()).ok()
    };
    let there = (0..words.len()).filter(|&at| words.is_valid(at));
    there.map(word).collect()
}
