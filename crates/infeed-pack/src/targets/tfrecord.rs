//! TFRecord shards of `tf.train.Example`.
//!
//! Images are `NAME/encoded` and `NAME/format`, and a label is `image/class/label`, as in
//! TensorFlow's own datasets. Other fields keep their names. If the source has a field
//! `NAME/format` next to its image, that field becomes the feature, and its spelling stays if it is
//! correct. Integers and booleans are `int64_list`, float32 and float16 are `float_list`. No list
//! holds float64 and bfloat16, so they are the bytes of their values, little-endian. Features are
//! sorted by name.
//!
//! Sources: the TFRecord section of TensorFlow's guide (framing, masked CRC-32C);
//! `tensorflow/core/example/{example,feature}.proto`; the protocol buffer encoding; the
//! `tfrecord2idx` tool of NVIDIA DALI for the index.

use std::fmt::Write as _;
use std::io::{self, Write};

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use half::f16;

use super::format::{FormatWriter, OutputFormat, PixelStorage};
use crate::error::PackError;
use crate::shard_layout::{
    CountedFile, Extensions, FinishedShard, PackedRecord, ShardColumn, ShardLayout, ShardWriter,
};
use infeed::pipeline::SourceSpec;
use infeed_codec::decode::Format;
use infeed_core::error::Error;
use infeed_core::sample::{DType, FieldKind};

/// Length and two checksums.
const FRAMING: u64 = 16;

/// The format in the table of output formats.
pub(super) static FORMAT: OutputFormat = OutputFormat {
    name: "tfrecord",
    summary: "tf.train.Example, for TensorFlow and other readers of the format",
    pixels: PixelStorage::Encoded,
    writer: FormatWriter::Shards(|columns, _, _| Ok(Box::new(TfRecordLayout::new(columns)?))),
    batch_file: None,
};

/// Shards of `tf.train.Example`.
struct TfRecordLayout {
    features: Vec<FeatureColumn>,
}

/// A feature and the origin of its values.
#[derive(Clone, Debug)]
struct FeatureColumn {
    name: String,
    from: FeatureSource,
}

#[derive(Clone, Debug)]
enum FeatureSource {
    /// A field of the records.
    Field { at: usize, column: ShardColumn },
    /// The format of the image at `image`, spelled as in the format field of the source if there is
    /// one.
    Format {
        image: usize,
        format_field: Option<(usize, ShardColumn)>,
    },
}

impl TfRecordLayout {
    /// # Errors
    ///
    /// [`Error::Config`] for two fields that would be one feature.
    fn new(columns: Vec<ShardColumn>) -> Result<TfRecordLayout, Error> {
        let of_images: Vec<(String, usize)> = columns
            .iter()
            .enumerate()
            .filter(|(_, column)| is_visual(column))
            .map(|(at, column)| (format!("{}/format", column.name), at))
            .collect();
        let is_format_field = |name: &str, column: &ShardColumn| {
            column.name == name && matches!(column.kind, FieldKind::Bytes | FieldKind::Text)
        };
        let mut features = Vec::with_capacity(columns.len() + of_images.len());
        for (name, image) in &of_images {
            let mut format_field = columns.iter().enumerate();
            let format_field = format_field.find(|(_, column)| is_format_field(name, column));
            features.push(FeatureColumn {
                name: name.clone(),
                from: FeatureSource::Format {
                    image: *image,
                    format_field: format_field.map(|(at, column)| (at, column.clone())),
                },
            });
        }
        for (at, column) in columns.into_iter().enumerate() {
            if !of_images
                .iter()
                .any(|(name, _)| is_format_field(name, &column))
            {
                features.push(FeatureColumn {
                    name: feature_name(&column),
                    from: FeatureSource::Field { at, column },
                });
            }
        }
        features.sort_by(|one, other| one.name.cmp(&other.name));
        if let Some(pair) = features
            .windows(2)
            .find(|pair| pair[0].name == pair[1].name)
        {
            let problem = format!(
                "two fields would become the feature `{}`; rename one",
                pair[0].name
            );
            return Err(Error::config("source", problem));
        }
        Ok(TfRecordLayout { features })
    }

    /// Returns the fields with their indices.
    fn fields(&self) -> Vec<(usize, &FeatureColumn, &ShardColumn)> {
        let mut fields: Vec<(usize, &FeatureColumn, &ShardColumn)> = self
            .features
            .iter()
            .filter_map(|feature| match &feature.from {
                FeatureSource::Field { at, column } => Some((*at, feature, column)),
                FeatureSource::Format { format_field, .. } => {
                    let (at, column) = format_field.as_ref()?;
                    Some((*at, feature, column))
                }
            })
            .collect();
        fields.sort_by_key(|&(at, _, _)| at);
        fields
    }
}

/// Returns whether a column is an image or a mask.
fn is_visual(column: &ShardColumn) -> bool {
    matches!(column.kind, FieldKind::Image(_) | FieldKind::Mask(_))
}

/// Returns the feature name of a field.
fn feature_name(column: &ShardColumn) -> String {
    match column.kind {
        FieldKind::Image(_) | FieldKind::Mask(_) => format!("{}/encoded", column.name),
        _ if column.is_label() => "image/class/label".to_owned(),
        _ => column.name.clone(),
    }
}

impl ShardLayout for TfRecordLayout {
    fn extension(&self) -> &'static str {
        "tfrecord"
    }

    fn weight(&self, made: &PackedRecord) -> u64 {
        made.bytes() + FRAMING
    }

    fn check(&self, made: &PackedRecord) -> Result<(), PackError> {
        for (at, _, column) in self.fields() {
            if let Some((dtype @ DType::UInt64, _)) = column.numbers {
                let mut elements = made.products[at].bytes.chunks_exact(dtype.bytes());
                if elements.any(|element| dtype.integer(element).is_none()) {
                    let field = column.name.clone();
                    return Err(PackError::WideNumber { field });
                }
            }
        }
        Ok(())
    }

    fn begin(&self, out: CountedFile) -> io::Result<Box<dyn ShardWriter>> {
        Ok(Box::new(RecordFile {
            features: self.features.clone(),
            out,
            index: String::new(),
        }))
    }

    fn source(&self, files: Vec<String>, _: &Extensions) -> SourceSpec {
        let fields = self.fields().into_iter();
        SourceSpec::TfRecord {
            shards: files,
            fields: fields
                .map(|(_, feature, column)| column.spec(feature.name.clone()))
                .collect(),
            follow_links: true,
        }
    }
}

/// One file of records.
struct RecordFile {
    features: Vec<FeatureColumn>,
    out: CountedFile,
    index: String,
}

impl ShardWriter for RecordFile {
    fn add(&mut self, made: PackedRecord) -> io::Result<()> {
        let products = &made.products;
        let of = |feature: &FeatureColumn| match &feature.from {
            FeatureSource::Field { at, column } => value(column, &products[*at].bytes),
            FeatureSource::Format {
                image,
                format_field,
            } => {
                let found = format_name(&products[*image].bytes);
                let format_field = format_field
                    .as_ref()
                    .map(|(at, _)| &products[*at].bytes[..]);
                Value::bytes(
                    format_field
                        .filter(|format_field| names(format_field, found))
                        .unwrap_or(found.as_bytes()),
                )
            }
        };
        let features = self.features.iter();
        let features: Vec<(&str, Value<'_>)> = features
            .map(|feature| (&*feature.name, of(feature)))
            .collect();
        let example = example(&features);
        let begin = self.out.written_bytes();
        let length: u64 = example.iter().map(|part| part.len() as u64).sum();
        let length = length.to_le_bytes();
        self.out.write_all(&length)?;
        self.out
            .write_all(&mask_crc(crc32_iscsi(&length)).to_le_bytes())?;
        let mut sum = Digest::new(CrcAlgorithm::Crc32Iscsi);
        for part in &example {
            sum.update(part);
            self.out.write_all(part)?;
        }
        self.out
            .write_all(&mask_crc(sum.finalize() as u32).to_le_bytes())?;
        // Writing to a String cannot fail.
        let _ = writeln!(self.index, "{begin} {}", self.out.written_bytes() - begin);
        Ok(())
    }

    fn finish(self: Box<Self>) -> io::Result<FinishedShard> {
        Ok(FinishedShard {
            out: self.out,
            index: Some(self.index),
            extensions: Extensions::new(),
        })
    }
}

/// Masks a checksum as TFRecord stores it.
fn mask_crc(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// A `Feature` in two parts: the bytes before the value, and the value.
struct Value<'a> {
    head: Vec<u8>,
    tail: &'a [u8],
}

impl<'a> Value<'a> {
    fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// A `bytes_list` of one value.
    fn bytes(bytes: &'a [u8]) -> Value<'a> {
        let mut list = Vec::new();
        tag(&mut list, 1, bytes.len());
        let mut head = Vec::new();
        tag(&mut head, 1, list.len() + bytes.len());
        head.extend(list);
        Value { head, tail: bytes }
    }

    /// A packed list of numbers in a field of `Feature`.
    fn packed_numbers(field: u8, numbers: &[u8]) -> Value<'static> {
        let mut list = Vec::new();
        tag(&mut list, 1, numbers.len());
        list.extend(numbers);
        let mut head = Vec::new();
        tag(&mut head, field, list.len());
        head.extend(list);
        Value { head, tail: &[] }
    }
}

/// Returns the feature of a field.
fn value<'a>(column: &ShardColumn, bytes: &'a [u8]) -> Value<'a> {
    const FLOATS: u8 = 2;
    const INTS: u8 = 3;
    let Some((dtype, _)) = &column.numbers else {
        return Value::bytes(bytes);
    };
    let elements = bytes.chunks_exact(dtype.bytes());
    match dtype {
        DType::Float32 => Value::packed_numbers(FLOATS, bytes),
        DType::Float16 => {
            let wide = |pair: &[u8]| {
                f16::from_le_bytes([pair[0], pair[1]])
                    .to_f32()
                    .to_le_bytes()
            };
            let floats: Vec<u8> = elements.flat_map(wide).collect();
            Value::packed_numbers(FLOATS, &floats)
        }
        DType::Float64 | DType::BFloat16 => Value::bytes(bytes),
        _ => {
            let mut ints = Vec::new();
            for element in elements {
                let number = match dtype.is_integer() {
                    true => dtype.integer(element).unwrap_or(i64::MAX),
                    false => i64::from(element[0] != 0),
                };
                // Negative numbers are stored in 64-bit two's complement.
                varint(&mut ints, number.cast_unsigned());
            }
            Value::packed_numbers(INTS, &ints)
        }
    }
}

/// Returns the parts of an `Example`, in order.
fn example<'a>(features: &'a [(&str, Value<'a>)]) -> Vec<std::borrow::Cow<'a, [u8]>> {
    let mut entries = Vec::with_capacity(2 * features.len());
    let mut length = 0;
    for (name, value) in features {
        let mut inner = Vec::new();
        tag(&mut inner, 1, name.len());
        inner.extend(name.as_bytes());
        tag(&mut inner, 2, value.len());
        let mut head = Vec::new();
        tag(&mut head, 1, inner.len() + value.len());
        head.extend(inner);
        head.extend(&value.head);
        length += head.len() + value.tail.len();
        entries.push(head.into());
        entries.push(value.tail.into());
    }
    let mut head = Vec::new();
    tag(&mut head, 1, length);
    entries.insert(0, head.into());
    entries
}

/// Begins a length-delimited field.
fn tag(out: &mut Vec<u8>, field: u8, length: usize) {
    const LENGTH_DELIMITED: u8 = 2;
    out.push(field << 3 | LENGTH_DELIMITED);
    varint(out, length as u64);
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns whether a word names a format, in any spelling.
fn names(word: &[u8], format: &str) -> bool {
    word.eq_ignore_ascii_case(format.as_bytes())
        || (format == "jpeg" && word.eq_ignore_ascii_case(b"jpg"))
}

/// Returns TensorFlow's name for the format of an image.
fn format_name(bytes: &[u8]) -> &'static str {
    match Format::of(bytes) {
        Some(Format::Jpeg) => "jpeg",
        Some(Format::Png) => "png",
        Some(Format::WebP) => "webp",
        Some(Format::Bmp) => "bmp",
        Some(Format::Gif) => "gif",
        Some(Format::Tiff) => "tiff",
        Some(Format::Pnm) => "pnm",
        Some(Format::Coefficients | Format::Planes) => "ifl",
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::sample::Pixels;

    #[test]
    fn checksums_are_masked_as_the_guide_says() {
        // crc32c("123456789") is 0xE3069283 (RFC 3720, B.4 uses the same polynomial).
        let crc = crc32_iscsi(b"123456789");
        assert_eq!(crc, 0xE306_9283);
        assert_eq!(mask_crc(crc), 0xC78A_B0E5);
    }

    fn column(name: &str, kind: FieldKind) -> ShardColumn {
        ShardColumn {
            name: name.to_owned(),
            kind,
            numbers: None,
        }
    }

    #[test]
    fn a_format_field_is_one_feature_and_a_second_of_that_name_is_rejected() {
        let image = || column("image", FieldKind::Image(Pixels::Encoded));
        let layout = TfRecordLayout::new(vec![column("image/format", FieldKind::Bytes), image()]);
        let layout = layout.expect("one feature");
        let names: Vec<&str> = layout.features.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["image/encoded", "image/format"]);
        assert_eq!(layout.fields().len(), 2);

        let ragged = FieldKind::Ragged {
            dtype: DType::Int64,
        };
        let refused = TfRecordLayout::new(vec![image(), column("image/format", ragged)]);
        let refused = refused.err().expect("two features of one name").to_string();
        assert!(refused.contains("`image/format`"), "{refused}");
    }

    #[test]
    fn the_spelling_of_a_format_stays_if_it_is_correct() {
        assert!(names(b"JPEG", "jpeg") && names(b"jpg", "jpeg") && names(b"png", "png"));
        assert!(!names(b"JPEG", "png") && !names(b"", "png"));
    }

    #[test]
    fn an_example_equals_the_output_of_protobuf() {
        // tf.train.Example with {"a": int64_list [1, 300], "b": bytes_list [b"xy"]}, serialized
        // deterministically.
        let features = [
            ("a", Value::packed_numbers(3, &[1, 0xAC, 0x02])),
            ("b", Value::bytes(b"xy")),
        ];

        let bytes = example(&features).concat();

        let expected = b"\x0a\x1b\x0a\x0c\x0a\x01a\x12\x07\x1a\x05\x0a\x03\x01\xac\x02\
                         \x0a\x0b\x0a\x01b\x12\x06\x0a\x04\x0a\x02xy";
        assert_eq!(bytes, expected);
    }
}
