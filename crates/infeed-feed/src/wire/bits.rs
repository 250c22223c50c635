//! Self-test of a machine's bits: the hash of an image after decoding, resizing, color changes and
//! conversion. Two machines with equal hashes make the same batches.
//!
//! Each step promises the same bits at every SIMD level and on every CPU; the tests check this on
//! the machines that run them. The self-test checks it on each feeder before the trainer uses its
//! batches.

use std::sync::OnceLock;

use bytes::Bytes;
use twox_hash::XxHash3_64;

use infeed::fields::pixels::prepared_record::PixelState;
use infeed::fields::scratch::Position;
use infeed::maker::{SampleMaker, SampleRecord};
use infeed::pipeline::Pipeline;
use infeed::plan::SamplePlan;
use infeed_core::batch::{Batcher, RowCell};
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_core::random::hash;
use infeed_core::sample::{Field, FieldKind, Pixels};
use infeed_source::memory::{FieldData, Memory};
use infeed_source::read_one;

const IMAGE: &[u8] = include_bytes!("bits.jpg");

/// Number of positions at which the image is made, each with other random draws.
const POSITIONS: u64 = 6;

/// Test pipelines, which cover every kind of arithmetic in rows.
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

/// Returns the hash of this machine and build.
///
/// # Errors
///
/// If the self-test cannot run, which is a bug.
pub fn own() -> Result<u64, Error> {
    static OWN: OnceLock<Result<u64, Error>> = OnceLock::new();
    OWN.get_or_init(test).clone()
}

fn test() -> Result<u64, Error> {
    let field = Field {
        name: "image".to_owned(),
        kind: FieldKind::Image(Pixels::Encoded),
    };
    let data = FieldData::List(vec![Bytes::from_static(IMAGE)]);
    let source = Memory::new(vec![(field, data)], false)?;
    let record = read_one(&source, 0)?;
    let mut parts = Vec::new();
    for text in PIPELINES {
        let pipeline = Pipeline::from_json(text)?;
        let plan = SamplePlan::over(&pipeline, &source)?;
        let batcher = Batcher::new(plan.columns().to_vec(), POSITIONS as usize, 0);
        let (_in_flight, rows) =
            batcher
                .begin(POSITIONS as usize)
                .map_err(|_| Error::OutOfMemory {
                    bytes: batcher.slab_bytes(),
                })?;
        let mut maker = SampleMaker::new(&plan);
        for (position, mut row) in (0..POSITIONS).zip(rows) {
            let at = Position { epoch: 1, position };
            let of = SampleRecord {
                record: &record,
                state: PixelState::Stored,
                at,
            };
            let made = maker.make(&[of], None, &mut row);
            made.map_err(|failed| Error::Panicked {
                text: format!("the self-test of bits: {:?}", failed.failure.error),
            })?;
            parts.extend(row.cells.iter().map(|cell| match cell {
                RowCell::Slab(row) => XxHash3_64::oneshot(row.bytes()),
                RowCell::Own { bytes, .. } => XxHash3_64::oneshot(bytes),
            }));
        }
    }
    // Orders are integer arithmetic, except weighted ones.
    let order = Order::new(1000, Some(5)).epoch(3);
    parts.extend((0..16).map(|position| order.get(position)));
    Ok(hash(&parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_that_runs_the_tests_makes_the_same_bits() {
        // Another number means that batches differ from those of the previous version.
        assert_eq!(
            format!("{:016x}", own().expect("it runs")),
            "64e7adc03c393da3"
        );
    }
}
