//! Types of the values of columns: their elements, and their description in words.

use arrow_schema::{DataType, TimeUnit};

use infeed_core::printable::printable;
use infeed_core::sample::DType;

/// Maximum depth of nested lists.
pub(super) const DEPTH: usize = 8;

/// Maximum number of children of a struct that a message names.
const CHILDREN: usize = 6;

/// Describes the values of a column in words.
pub(super) fn describe(data_type: &DataType) -> String {
    describe_to(data_type, DEPTH)
}

/// Describes values up to `depth` lists deep.
fn describe_to(data_type: &DataType, depth: usize) -> String {
    let Some(deeper) = depth.checked_sub(1) else {
        return "lists".to_owned();
    };
    let inner = |data_type| describe_to(data_type, deeper);
    match data_type {
        DataType::Struct(children) => {
            let names = children.iter().take(CHILDREN).map(|child| child.name());
            let names: Vec<String> = names.map(|name| format!("`{}`", printable(name))).collect();
            let more = match children.len() > CHILDREN {
                true => ", …",
                false => "",
            };
            format!("structs of {}{more}", names.join(", "))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => format!("lists of {}", inner(item.data_type())),
        DataType::FixedSizeList(item, length) => {
            format!("lists of {length} {}", inner(item.data_type()))
        }
        DataType::Dictionary(_, values) => inner(values),
        DataType::RunEndEncoded(_, values) => inner(values.data_type()),
        DataType::Map(_, _) => "maps".to_owned(),
        DataType::Union(_, _) => "values of several types".to_owned(),
        DataType::Null => "nulls only".to_owned(),
        DataType::Interval(_) => "intervals of time".to_owned(),
        DataType::Decimal32(_, _)
        | DataType::Decimal64(_, _)
        | DataType::Decimal128(_, _)
        | DataType::Decimal256(_, _) => "decimal numbers".to_owned(),
        DataType::Date32 | DataType::Date64 => "dates".to_owned(),
        DataType::Time32(unit) | DataType::Time64(unit) => format!("times in {}", unit_name(*unit)),
        DataType::Timestamp(unit, None) => format!("timestamps in {}", unit_name(*unit)),
        DataType::Timestamp(unit, Some(zone)) => {
            format!("timestamps in {} of {}", unit_name(*unit), printable(zone))
        }
        DataType::Duration(unit) => format!("durations in {}", unit_name(*unit)),
        other if is_text(other) => "text".to_owned(),
        other if holds_bytes(other) => "bytes".to_owned(),
        other => number(other)
            .map_or("values of another type", DType::name)
            .to_owned(),
    }
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "seconds",
        TimeUnit::Millisecond => "milliseconds",
        TimeUnit::Microsecond => "microseconds",
        TimeUnit::Nanosecond => "nanoseconds",
    }
}

/// Whether values of this type are bytes of unknown content.
pub(super) fn holds_bytes(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
            | DataType::Struct(_)
    )
}

pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

/// Element type with the same memory layout as an Arrow type; dates and times are integers.
pub(super) fn number(data_type: &DataType) -> Option<DType> {
    Some(match data_type {
        DataType::Boolean => DType::Bool,
        DataType::Int8 => DType::Int8,
        DataType::Int16 => DType::Int16,
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => DType::Int32,
        DataType::Int64
        | DataType::Date64
        | DataType::Time64(_)
        | DataType::Timestamp(_, _)
        | DataType::Duration(_) => DType::Int64,
        DataType::UInt8 => DType::UInt8,
        DataType::UInt16 => DType::UInt16,
        DataType::UInt32 => DType::UInt32,
        DataType::UInt64 => DType::UInt64,
        DataType::Float16 => DType::Float16,
        DataType::Float32 => DType::Float32,
        DataType::Float64 => DType::Float64,
        _ => return None,
    })
}
