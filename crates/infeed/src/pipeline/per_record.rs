//! Arrays with one number per record: weights, and groups for batches.

use super::{BatchSpec, Handle, MemoryField};
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_core::order::similar::{BatchGroups, MAX_POSITIONS};
use infeed_core::sample::{DType, FieldKind};
use infeed_source::Source;
use infeed_source::memory::FieldData;

/// Part of the description in errors about groups.
const GROUPS: &str = "batch_groups";

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
    if order.window().is_some() || source.groups().is_some_and(|groups| groups.whole) {
        let problem = "records of shards and row groups are read in windows, and batches of one \
                       group take records from all of them; use .shuffle(seed, window=\"all\"), or \
                       pack the records to a folder";
        return wrong(problem.to_owned());
    }
    let part = (GROUPS, "int64");
    let keys = one_per_record(part, groups, source, handles, |dtype, bytes| {
        (dtype == DType::Int64)
            .then(|| bytes.first_chunk().copied().map(i64::from_le_bytes))
            .flatten()
    })?;
    let positions = order.len();
    Order::similar(order, BatchGroups::new(&keys, size)).map_or_else(
        || {
            wrong(format!(
                "an epoch has {positions} positions, and at most {MAX_POSITIONS} can be sorted into \
                 batches; use fewer records or passes"
            ))
        },
        Ok,
    )
}
