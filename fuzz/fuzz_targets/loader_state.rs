//! A loader's state, a run record, a file of measurements and a ledger, of any text. A state
//! that is accepted leads to batches.
#![no_main]

use std::cell::RefCell;

use infeed::loader::LoaderState;
use infeed::loader::run_record::RunRecord;
use infeed::pipeline::{MemoryField, SourceSpec};
use infeed::{Loader, Options, Pipeline};
use infeed_core::probe::Probe;
use infeed_core::sample::DType;
use infeed_explain::ledger;
use infeed_fuzz::shards::file;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static LOADER: RefCell<Loader> = RefCell::new(open());
}

/// A loader of ten numbers in batches of three, shuffled.
fn open() -> Loader {
    let field = MemoryField::array("number", "tensor", DType::UInt8, vec![], 0);
    let source = SourceSpec::Memory {
        fields: vec![field],
    };
    let pipeline = Pipeline::new(source).shuffle(7).batch(3);
    let mut options = Options::default();
    options.workers = Some(1);
    options.readers = Some(1);
    let numbers = bytes::Bytes::from_static(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    pipeline
        .open_with(&[numbers.into()], &options)
        .expect("a plain pipeline")
}

fuzz_target!(|bytes: &[u8]| {
    let path = file("text", bytes);
    let _ = RunRecord::read(&path);
    let _ = Probe::load(&path);
    let _ = ledger::read(&path);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(state) = LoaderState::from_json(text) else {
        return;
    };
    let again = LoaderState::from_json(&state.to_json());
    assert_eq!(again.expect("its own JSON"), state);
    LOADER.with_borrow(|loader| {
        let is_accepted = loader.restore(&state).is_ok() || loader.restore_anyway(&state).is_ok();
        if is_accepted {
            let batch = loader.next_batch().expect("the data is good");
            let rows = batch.map_or(0, |batch| batch.records.len());
            assert!(rows <= 3, "{rows} rows");
        }
    });
});
