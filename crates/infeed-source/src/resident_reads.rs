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

/// Number of fields of records whose pages are touched at a time where records have no handles.
/// Reading the clock takes as long as copying a small record.
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
    // Found before the clock is read: to find small records takes longer than to touch their pages.
    let found = on_new_pages(rows, records, fields);
    let mut pages = PageToucher::new(records.len(), found.len().div_ceil(TOUCHED));
    let request = |found: &[&[u8]]| found.iter().for_each(|bytes| will_need(bytes));
    if pages.requests_first() {
        request(&found);
    }
    let mut rest = &found[..];
    while !rest.is_empty() {
        let (part, later) = rest.split_at(rest.len().min(TOUCHED));
        let touch = || part.iter().map(|bytes| touch_pages(bytes)).sum::<usize>();
        if pages.touch(|| touch().max(1)) {
            request(later);
        }
        rest = later;
    }
}

/// Returns the bytes of the first `fields` fields of records, without those on the last page of the
/// same field of the record before.
fn on_new_pages<'a>(rows: &'a dyn ResidentRows, records: &[u64], fields: usize) -> Vec<&'a [u8]> {
    let mut found = Vec::with_capacity(records.len());
    for field in 0..fields {
        let mut known = usize::MAX;
        for &record in records {
            let Some(bytes) = rows.stored_bytes(record, field) else {
                continue;
            };
            let (first, last) = pages_of(bytes);
            if first != last || last != known {
                found.push(bytes);
            }
            known = last;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of 64 bytes in two fields, one after the other.
    struct Columns(Vec<u8>);

    const RECORDS: u64 = 256;

    impl ResidentRows for Columns {
        fn stored_bytes(&self, record: u64, field: usize) -> Option<&[u8]> {
            let begin = (field as u64 * RECORDS + record) as usize * 64;
            self.0.get(begin..begin + 64)
        }

        fn is_mapped(&self) -> bool {
            true
        }
    }

    #[test]
    fn neighbouring_records_on_a_page_are_touched_once() {
        let columns = Columns(vec![0; 2 * 64 * RECORDS as usize]);
        let in_order: Vec<u64> = (0..RECORDS).collect();
        let apart = [3, 250, 4, RECORDS * 2];

        let found = on_new_pages(&columns, &in_order, 2);

        // Each field has 4 pages, and begins and ends in the middle of one.
        assert!((8..=10).contains(&found.len()), "{}", found.len());
        assert_eq!(on_new_pages(&columns, &apart, 1).len(), 3);
    }
}
