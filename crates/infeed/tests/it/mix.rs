//! Several sources as one, in a loader.

use bytes::Bytes;
use infeed::pipeline::{Handle, MemoryField, MixPart, SourceSpec};
use infeed::{Options, Pipeline};
use infeed_core::sample::DType;

use crate::data::epoch;

/// A source of the numbers in one of the buffers.
fn numbers(handle: usize) -> SourceSpec {
    SourceSpec::Memory {
        fields: vec![MemoryField::array(
            "number",
            "tensor",
            DType::UInt64,
            Vec::new(),
            handle,
        )],
    }
}

fn mix(weights: Option<[f64; 2]>, epoch: Option<u64>) -> Pipeline {
    let part = |handle: usize| MixPart {
        weight: weights.map(|weights| weights[handle]),
        source: numbers(handle),
    };
    let parts = vec![part(0), part(1)];
    Pipeline::new(SourceSpec::Mix { parts, epoch })
        .shuffle(3)
        .batch(10)
}

fn buffers() -> [Handle; 2] {
    let bytes = |range: std::ops::Range<u64>| range.flat_map(u64::to_le_bytes).collect::<Vec<_>>();
    [bytes(0..50), bytes(1000..1100)].map(|bytes| Bytes::from(bytes).into())
}

fn draw_numbers(pipeline: &Pipeline, workers: usize, epochs: usize) -> Vec<u64> {
    let mut options = Options::default();
    options.workers = Some(workers);
    let loader = pipeline.open_with(&buffers(), &options).expect("opens");
    let batches = (0..epochs).flat_map(|_| epoch(&loader)).collect::<Vec<_>>();
    let bytes = batches
        .iter()
        .flat_map(|batch| batch.array("number").expect("numbers").bytes().to_vec());
    let bytes: Vec<u8> = bytes.collect();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    bytes.chunks_exact(8).map(number).collect()
}

#[test]
fn weights_hold_in_every_epoch_and_for_every_number_of_workers() {
    let pipeline = mix(Some([3.0, 1.0]), Some(80));

    let numbers = draw_numbers(&pipeline, 1, 2);

    assert_eq!(numbers, draw_numbers(&pipeline, 4, 2));
    for epoch in numbers.chunks(80) {
        assert_eq!(epoch.iter().filter(|&&number| number < 1000).count(), 60);
    }
    // 120 draws of the 50 numbers of the first source: each occurs two or three times.
    for wanted in 0..50 {
        let count = numbers.iter().filter(|&&number| number == wanted).count();
        assert!((2..=3).contains(&count), "{wanted}: {count}");
    }
}

#[test]
fn without_weights_every_record_is_read_once_an_epoch() {
    let mut numbers = draw_numbers(&mix(None, None), 2, 1);
    assert!(!numbers.is_sorted());

    numbers.sort_unstable();

    assert_eq!(numbers, (0..50).chain(1000..1100).collect::<Vec<_>>());
}

#[test]
fn a_mix_resumes_from_its_state_with_the_same_records() {
    let pipeline = mix(Some([1.0, 1.0]), None);
    let open = || {
        pipeline
            .open_with(&buffers(), &Options::default())
            .expect("opens")
    };
    let rest = |loader: &infeed::Loader| {
        let batches = epoch(loader);
        batches
            .iter()
            .flat_map(|batch| batch.records.clone())
            .collect::<Vec<_>>()
    };
    let first = open();
    for _ in 0..4 {
        first.next_batch().expect("good").expect("more");
    }
    let state = first.state();

    let second = open();
    second.restore(&state).expect("its own state");

    assert_eq!(rest(&second), rest(&first));
}

#[test]
fn a_mix_in_a_file_names_its_sources_and_weights() {
    let text = "[source]\nkind = \"mix\"\nepoch = 100\n\n[[source.parts]]\nweight = 0.7\n\
                source = { kind = \"folder\", path = \"a\" }\n\n[[source.parts]]\n\
                source = { kind = \"folder\", path = \"b\" }\n";

    let pipeline = Pipeline::from_toml(text).expect("a mix");

    let written = pipeline.to_toml().expect("plain data");
    assert_eq!(
        Pipeline::from_toml(&written).expect("its own form"),
        pipeline
    );
    let error = pipeline
        .source
        .open(&[])
        .expect_err("one weight")
        .to_string();
    assert!(error.contains("every part"), "{error}");
}
