//! Arrays with one number per record: weights, and groups and lengths for batches.

use super::{BatchSpec, Handle, MemoryField};
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_core::order::lengths::{LengthBatches, TokenLimits};
use infeed_core::order::similar::{BatchGroups, MAX_POSITIONS};
use infeed_core::sample::{DType, FieldKind};
use infeed_source::Source;
use infeed_source::memory::FieldData;

/// Parts of the description in errors.
const GROUPS: &str = "batch_groups";
const LENGTHS: &str = "batch_lengths";

/// Returns the number of each selected record, from an array with one number per record of the source.
/// `number` reads a number of an element type, and returns None for other types.
///
/// # Errors
///
/// [`Error::Config`] of `part` if the array has another shape, type or length. `wanted` is the element
/// type that the message suggests.
pub(super) fn one_per_record<T>(
    (part, wanted): (&'static str, &str),
    field: &MemoryField,
    source: &dyn Source,
    handles: &[Handle],
    number: impl Fn(DType, &[u8]) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let wrong = |problem: String| Error::config(part, problem);
    let (opened, data) = field.open(handles)?;
    let (FieldKind::Tensor { dtype, shape }, FieldData::Array(bytes)) = (&opened.kind, &data)
    else {
        return Err(wrong(
            "an array with one number per record is needed, not images, bytes or text".to_owned(),
        ));
    };
    if !shape.is_empty() || number(*dtype, &[0; 8]).is_none() {
        let problem = format!(
            "one number per record is needed, not {} {shape:?}; convert the array to {wanted}",
            dtype.name()
        );
        return Err(wrong(problem));
    }
    let all = source
        .selection()
        .map_or(source.len(), |subset| subset.all());
    let given = (bytes.len() / dtype.bytes()) as u64;
    if given != all {
        let problem = format!(
            "the array has {given} numbers for {all} records; pass one number for each record of \
             the source, including records that are not selected"
        );
        return Err(wrong(problem));
    }
    let size = dtype.bytes();
    let read = |record: u64| {
        let at = source
            .selection()
            .map_or(record, |subset| subset.number(record)) as usize;
        number(*dtype, &bytes[at * size..])
    };
    Ok((0..source.len()).filter_map(read).collect())
}

/// Sorts an order into batches of records of one group.
///
/// # Errors
///
/// [`Error::Config`] if the array does not fit the source, without the size of a batch, and if records
/// are shuffled in windows.
pub(super) fn similar(
    order: Order,
    groups: &MemoryField,
    batch: &BatchSpec,
    source: &dyn Source,
    handles: &[Handle],
) -> Result<Order, Error> {
    let wrong = |problem: String| Err(Error::config(GROUPS, problem));
    let Some(size) = batch.size else {
        let problem = "the groups are for batches over all ranks; set their size with .batch(n)";
        return wrong(problem.to_owned());
    };
    let keys = integers(GROUPS, &order, groups, source, handles)?;
    let positions = order.len();
    let sorted = Order::similar(order, BatchGroups::new(&keys, size));
    sorted.ok_or_else(|| too_many(GROUPS, positions))
}

/// Sorts an order into batches of records of similar length.
///
/// # Errors
///
/// [`Error::Config`] if the array does not fit the source, without a limit of tokens, if a record is
/// too long for it, if records are shuffled in windows, and if epochs have different records.
pub(super) fn by_length(
    order: Order,
    lengths: &MemoryField,
    (batch, seed): (&BatchSpec, Option<u64>),
    source: &dyn Source,
    handles: &[Handle],
) -> Result<Order, Error> {
    let wrong = |problem: String| Err(Error::config("batch", problem));
    let Some(tokens) = batch.max_tokens else {
        return wrong("lengths are for batches with max_tokens; set both".to_owned());
    };
    let limits = TokenLimits {
        tokens,
        rows: batch.size.unwrap_or(u64::MAX),
        multiple: batch.multiple_of.unwrap_or(1),
    };
    if limits.multiple == 0 || limits.rows < limits.multiple {
        return wrong(format!(
            "multiple_of is {}, it must be from 1 to the maximum number of rows",
            limits.multiple
        ));
    }
    if !order.is_even() {
        let problem = "max_tokens needs the same records in every epoch; leave out weights, or \
                       use .batch_groups";
        return wrong(problem.to_owned());
    }
    let numbers = integers(LENGTHS, &order, lengths, source, handles)?;
    let number = |(record, &length): (usize, &i64)| {
        u64::try_from(length).map_err(|_| {
            let id = source.id(record as u64, None);
            Error::config(LENGTHS, format!("{id} has the length {length}"))
        })
    };
    let lengths: Vec<u64> = numbers
        .iter()
        .enumerate()
        .map(number)
        .collect::<Result<_, _>>()?;
    let positions = order.len();
    let passes = positions / order.records().max(1);
    let batches = LengthBatches::new(&lengths, passes, limits, seed);
    let batches = batches.map_err(|long| {
        let id = source.id(long.record, None);
        let (length, most) = (long.length, tokens / limits.multiple);
        let rows = limits.multiple;
        Error::config(
            LENGTHS,
            format!(
                "{id} has the length {length}, and max_tokens={tokens} allows {most} in batches of \
                 {rows} rows; set a larger max_tokens, or leave the record out"
            ),
        )
    })?;
    Order::by_length(order, batches).ok_or_else(|| too_many(LENGTHS, positions))
}

/// Returns one integer per record, for batches that take records from the whole source.
fn integers(
    part: &'static str,
    order: &Order,
    field: &MemoryField,
    source: &dyn Source,
    handles: &[Handle],
) -> Result<Vec<i64>, Error> {
    if order.window().is_some() || source.groups().is_some_and(|groups| groups.whole) {
        let problem = "records of shards and row groups are read in windows, and batches of similar \
                       records take them from all of them; use .shuffle(seed, window=\"all\"), or \
                       pack the records to a folder";
        return Err(Error::config(part, problem));
    }
    one_per_record((part, "int64"), field, source, handles, |dtype, bytes| {
        (dtype == DType::Int64)
            .then(|| bytes.first_chunk().copied().map(i64::from_le_bytes))
            .flatten()
    })
}

fn too_many(part: &'static str, positions: u64) -> Error {
    let problem = format!(
        "an epoch has {positions} positions, and at most {MAX_POSITIONS} can be sorted into batches; \
         use fewer records or passes"
    );
    Error::config(part, problem)
}
