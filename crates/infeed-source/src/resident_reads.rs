//! Reads of records that are in memory or in mapped files.

use std::collections::VecDeque;

use bytes::Bytes;

use super::pages::{PageToucher, pages_of, touch_pages};
use super::reads::Read;
use super::resident_rows::ResidentRows;
use super::source::Sink;
use infeed_core::error::Cause;
use infeed_core::sample::Record;
use infeed_raw::map::will_need;

/// Bytes of neighbouring records per read: enough that handing them over is cheap compared to
/// touching their pages.
const READ_BYTES: usize = 4 << 20;

/// Maximum number of records per read, so that the first batch does not wait for many.
const READ_RECORDS: usize = 64;

/// Number of records whose pages are touched at a time where records have no handles. Reading the
/// clock takes as long as copying a small record.
const TOUCHED: usize = 64;

/// Plans reads of several records that are in memory or mapped; `record_bytes` is their average
/// size.
pub(super) fn resident_reads(run: &[u64], record_bytes: usize) -> Vec<Read> {
    let group = (READ_BYTES / record_bytes.max(1)).clamp(1, READ_RECORDS);
    let positions: Vec<(usize, u64)> = run.iter().copied().enumerate().collect();
    positions
        .chunks(group)
        // Reads hold no memory: the records are resident or in the page cache.
        .map(|group| Read {
            records: group.to_vec(),
            bytes: Some(0),
            key: 0,
            draws: Vec::new(),
        })
        .collect()
}

/// Hands over the records of a read, whose fields are in memory or in mapped files. Reads mapped pages
/// on this thread, so that no worker waits for a page fault.
pub(super) fn hand_over(
    read: &Read,
    is_mapped: bool,
    sink: &mut Sink<'_>,
    fields: impl Fn(u64) -> Result<Vec<Bytes>, Cause>,
) {
    let records = read.records.iter();
    let found = records.map(|&(position, record)| (position, record, fields(record)));
    let mut found: VecDeque<_> = found.collect();
    let mut pages = is_mapped.then(|| PageToucher::new(found.len(), found.len()));
    if pages.as_ref().is_some_and(PageToucher::requests_first) {
        request(&found);
    }
    while let Some((position, index, fields)) = found.pop_front() {
        if let (Some(pages), Ok(fields)) = (&mut pages, &fields)
            && pages.touch(|| touch(fields))
        {
            request(&found);
        }
        sink(position, fields.map(|fields| Record { index, fields }));
    }
}

/// Position and number of a record, and its fields.
type FoundRecord = (usize, u64, Result<Vec<Bytes>, Cause>);

/// Starts to read the pages of records from storage.
fn request(found: &VecDeque<FoundRecord>) {
    let fields = found
        .iter()
        .filter_map(|(_, _, fields)| fields.as_ref().ok());
    fields.flatten().for_each(|bytes| will_need(bytes));
}

/// Reads one byte of every page of the fields. Returns the number of pages.
pub(super) fn touch(fields: &[Bytes]) -> usize {
    fields.iter().map(|bytes| touch_pages(bytes)).sum()
}

/// Reads the pages of the first `fields` fields of records, on this thread, so that no worker waits
/// for a page fault. Returns immediately if the records are in memory.
pub fn load_pages(rows: &dyn ResidentRows, records: &[u64], fields: usize) {
    if !rows.is_mapped() {
        return;
    }
    let each = |records: &[u64], visit: &mut dyn FnMut(&[u8])| {
        for &record in records {
            for field in 0..fields {
                if let Some(bytes) = rows.stored_bytes(record, field) {
                    visit(bytes);
                }
            }
        }
    };
    let mut pages = PageToucher::new(records.len(), records.len().div_ceil(TOUCHED));
    if pages.requests_first() {
        each(records, &mut |bytes| will_need(bytes));
    }
    let mut rest = records;
    while !rest.is_empty() {
        let (part, later) = rest.split_at(rest.len().min(TOUCHED));
        let is_slow = pages.touch(|| {
            // Neighbouring records share pages.
            let (mut touched, mut known) = (0, usize::MAX);
            each(part, &mut |bytes| {
                let (first, last) = pages_of(bytes);
                if first != last || last != known {
                    touched += touch_pages(bytes);
                }
                known = last;
            });
            touched.max(1)
        });
        if is_slow {
            each(later, &mut |bytes| will_need(bytes));
        }
        rest = later;
    }
}
