//! Helpers for the tests of formats: shards in memory, and functions that damage them.

mod mds;
mod tar;
mod tar_members;
mod tfrecord;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::{ShardFormat, Shards};
use crate::store::Blob;
use crate::{self as source, Source};
use infeed_core::error::Error;

/// A shard in memory.
#[derive(Debug)]
pub(super) struct Shard(pub(super) Bytes);

impl Blob for Shard {
    fn name(&self) -> &str {
        "shard"
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn stamp(&self) -> String {
        String::new()
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        if range.end > self.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.0.slice(range.start as usize..range.end as usize))
    }
}

/// Opens one shard.
pub(super) fn open(format: impl ShardFormat + 'static, bytes: Vec<u8>) -> Result<Shards, Error> {
    Shards::open(Box::new(format), vec![Arc::new(Shard(bytes.into()))], true)
}

/// Reads the fields of all records, or the error of each.
pub(super) fn records(shards: &Shards) -> Vec<Result<Vec<Bytes>, String>> {
    let read = |record| match source::read_one(shards, record) {
        Ok(record) => Ok(record.fields),
        Err(error) => Err(error.chain()),
    };
    (0..shards.len()).map(read).collect()
}

/// Reads all records at once, and compares the admitted bytes with the bytes held: more before
/// parsing, and exactly as many after it.
pub(super) fn admits_what_values_take(shards: &Shards) {
    let run: Vec<u64> = (0..shards.len()).collect();
    for read in shards.plan(&run, u64::MAX) {
        let (mut requests, mut own) = (Vec::new(), 0);
        let mut admit = |bytes| {
            requests.push(bytes);
            Ok(())
        };
        let sink = &mut |_, found: source::RecordResult| {
            // All of these are numbers; none is stored in the shard as a slice.
            own += found.expect("a record").bytes();
        };
        shards.read(&read, &mut admit, sink).expect("in memory");
        let span = shards.span(&read);
        let content = match shards.shards[0].index.is_packed() {
            true => shards.shards[0].index.end(),
            false => span.end - span.start,
        };
        let held = content + own + shards.handles(&read);
        assert_eq!(requests.len(), 2, "once before, once after");
        assert_eq!(read.bytes, Some(requests[0]), "as planned");
        assert!(requests[0] >= held, "{} for {held}", requests[0]);
        assert_eq!(requests[1], held);
    }
}

/// Opens a shard after a cut at each byte and after a flip of each bit: of all bytes, or of one in
/// `every`. Each result must be an error that names the shard, or records of which each is either an
/// error or accepted by `right`.
pub(super) fn check_damaged_shards<F: ShardFormat + 'static>(
    whole: &[u8],
    format: impl Fn() -> F,
    right: impl Fn(usize, &[Bytes]) -> bool,
    every: usize,
) {
    let check = |bytes: Vec<u8>, how: String| match open(format(), bytes) {
        Err(error) => assert!(error.to_string().contains("shard"), "{how}: {error}"),
        Ok(shards) => {
            for (number, record) in records(&shards).into_iter().enumerate() {
                match record {
                    Ok(fields) => assert!(right(number, &fields), "{how}, record {number}"),
                    Err(error) => assert!(error.contains("of shard"), "{how}: {error}"),
                }
            }
        }
    };
    for cut in (0..whole.len()).step_by(every) {
        check(whole[..cut].to_vec(), format!("cut at {cut}"));
    }
    for at in (0..whole.len()).step_by(every) {
        for bit in 0..8 {
            let mut flipped = whole.to_vec();
            flipped[at] ^= 1 << bit;
            check(flipped, format!("bit {bit} of byte {at}"));
        }
    }
}
