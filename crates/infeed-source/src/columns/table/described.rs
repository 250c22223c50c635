//! Types of columns in words.

use arrow_schema::{DataType, TimeUnit};

use super::{DEPTH, holds_bytes, is_text, number};
use infeed_core::printable::printable;
use infeed_core::sample::DType;

/// Maximum number of children of a struct that a message names.
const CHILDREN: usize = 6;

/// Describes the values of a column in words.
pub(super) fn described(data_type: &DataType) -> String {
    described_to(data_type, DEPTH)
}

/// Describes values up to `depth` lists deep.
fn described_to(data_type: &DataType, depth: usize) -> String {
    let Some(deeper) = depth.checked_sub(1) else {
        return "lists".to_owned();
    };
    let inner = |data_type| described_to(data_type, deeper);
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
