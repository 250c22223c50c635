//! A number that two machines have in common if they make the same bits: the hash of an image after
//! decoding, resizing, colour changes and conversion.
//!
//! Each step promises the same bits at every SIMD level and on every processor (the tests hold them to
//! it on the machines that run them). Here a machine shows it, before a batch of it is believed.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use twox_hash::XxHash3_64;

use crate::batch::{Batcher, Cell};
use crate::counters::ThreadCounters;
use crate::error::Error;
use crate::order::Order;
use crate::pipeline::Pipeline;
use crate::plan::Plan;
use crate::plan::sample::{Bench, Position};
use crate::random::hash;
use crate::sample::{Field, FieldKind, Pixels};
use crate::source::memory::{Data, Memory};
use crate::source::read_one;

const IMAGE: &[u8] = include_bytes!("bits.jpg");

/// Positions at which the image is made: other draws each.
const POSITIONS: u64 = 6;

/// What is done to it: every kind of arithmetic that rows come from.
const PIPELINES: [&str; 3] = [
    r#"{"version": 1, "source": {"kind": "folder", "path": "self-test"}, "shuffle": {"seed": 11},
        "decode": {}, "transforms": [
        {"kind": "RandomResizedCrop", "size": 24},
        {"kind": "RandomHorizontalFlip", "p": 0.5},
        {"kind": "ColorJitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
        {"kind": "Normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}]}"#,
    r#"{"version": 1, "source": {"kind": "folder", "path": "self-test"}, "shuffle": {"seed": 12},
        "decode": {}, "transforms": [
        {"kind": "Resize", "size": [33, 29], "interpolation": "bicubic"},
        {"kind": "ToFloat"}],
        "output": {"dtype": "float16"}}"#,
    r#"{"version": 1, "source": {"kind": "folder", "path": "self-test"}, "shuffle": {"seed": 13},
        "decode": {}, "transforms": [{"kind": "CenterCrop", "size": 31}]}"#,
];

/// The number of this machine and build.
///
/// # Errors
///
/// If the self-test cannot be run, which is a defect.
pub fn own() -> Result<u64, Error> {
    static OWN: OnceLock<Result<u64, Error>> = OnceLock::new();
    OWN.get_or_init(test).clone()
}

fn test() -> Result<u64, Error> {
    let field = Field {
        name: "image".to_owned(),
        kind: FieldKind::Image(Pixels::Encoded),
    };
    let data = Data::List(vec![Bytes::from_static(IMAGE)]);
    let source = Memory::new(vec![(field, data)], false)?;
    let record = read_one(&source, 0)?;
    let mut parts = Vec::new();
    for text in PIPELINES {
        let pipeline = Pipeline::from_json(text)?;
        let plan = Plan::over(&pipeline, &source)?;
        let batcher = Batcher::new(plan.columns().to_vec(), POSITIONS as usize, 0);
        let (_tray, rows) = batcher
            .begin(POSITIONS as usize)
            .map_err(|_| Error::OutOfMemory {
                bytes: batcher.slab_bytes(),
            })?;
        let (mut bench, counters) = (Bench::new(), Arc::new(ThreadCounters::new(None)));
        for (position, mut row) in (0..POSITIONS).zip(rows) {
            let at = Position { epoch: 1, position };
            plan.run(
                &record,
                at,
                &mut row,
                &mut bench,
                &counters,
                &mut |_| Ok(()),
            )
            .map_err(|failure| Error::Panicked {
                text: format!("the self-test of bits: {:?}", failure.error),
            })?;
            parts.extend(row.cells.iter().map(|cell| match cell {
                Cell::Slab(row) => XxHash3_64::oneshot(row.bytes()),
                Cell::Own { bytes, .. } => XxHash3_64::oneshot(bytes),
            }));
        }
    }
    // Orders are whole numbers, but for those by weight.
    let order = Order::new(1000, Some(5)).epoch(3);
    parts.extend((0..16).map(|position| order.get(position)));
    Ok(hash(&parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_that_runs_the_tests_makes_the_same_bits() {
        // Another number here means that batches differ from those of the version before.
        assert_eq!(
            format!("{:016x}", own().expect("it runs")),
            "64e7adc03c393da3"
        );
    }
}
