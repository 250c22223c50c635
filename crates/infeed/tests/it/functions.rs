//! User functions, written in Rust here: their inputs, their results and their failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use infeed::function::{
    CallCost, DrawKey, Function, FunctionFailure, FunctionScope, RunningFunction, ValueSink,
    ValueSpec,
};
use infeed::pipeline::{FieldSpec, FunctionSpec, Handle, SourceSpec};
use infeed::{Array, Error, Loader, OnError, Options, Pipeline, Values};
use infeed_codec::transform::RandomResizedCrop;
use infeed_core::batch::{Column, ColumnKind};
use infeed_core::sample::DType;

use crate::data::{bits, epoch, photos};

mod cached_results;

type Body = fn(&[Column], DrawKey, &mut dyn ValueSink) -> Result<(), FunctionFailure>;

/// A function in Rust.
#[derive(Debug)]
struct RustFunction {
    name: &'static str,
    body: Body,
    calls: Arc<AtomicUsize>,
    /// Number of processes at each start.
    started: Arc<std::sync::Mutex<Vec<usize>>>,
}

#[derive(Debug)]
struct StartedFunction {
    body: Body,
    calls: Arc<AtomicUsize>,
}

impl Function for RustFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn bound_here(&self) -> Option<String> {
        None
    }

    fn location(&self) -> Option<String> {
        Some(format!("steps.rs:{}", self.name))
    }

    fn start(&self, processes: usize) -> Result<Box<dyn RunningFunction>, Error> {
        self.started.lock().expect("not poisoned").push(processes);
        let (body, calls) = (self.body, Arc::clone(&self.calls));
        Ok(Box::new(StartedFunction { body, calls }))
    }
}

impl RunningFunction for StartedFunction {
    fn call(
        &self,
        inputs: &[Column],
        draw: DrawKey,
        sink: &mut dyn ValueSink,
    ) -> Result<CallCost, FunctionFailure> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        (self.body)(inputs, draw, sink)?;
        Ok(CallCost {
            waited: Duration::from_micros(3),
            elsewhere: Duration::ZERO,
        })
    }
}

fn own(name: &'static str, body: Body) -> Arc<RustFunction> {
    Arc::new(RustFunction {
        name,
        body,
        calls: Arc::default(),
        started: Arc::default(),
    })
}

/// The pipeline with a function in memory; its handle is 0.
fn with(
    pipeline: Pipeline,
    on: FunctionScope,
    function: &Arc<RustFunction>,
) -> (Pipeline, Vec<Handle>) {
    let mut spec = FunctionSpec::new(function.name);
    (spec.on, spec.handle) = (on, Some(0));
    let handle = Handle::Function(Arc::clone(function) as Arc<dyn Function>);
    (pipeline.function(spec), vec![handle])
}

fn photographs(root: &std::path::Path) -> Pipeline {
    Pipeline::new(SourceSpec::folder(root))
        .shuffle(5)
        .decode()
        .transform(RandomResizedCrop::new(16))
        .batch(4)
}

fn open(made: &(Pipeline, Vec<Handle>), workers: usize, on_error: OnError) -> Loader {
    let mut options = Options::default();
    (options.workers, options.on_error) = (Some(workers), on_error);
    made.0.open_with(&made.1, &options).expect("opens")
}

fn array<'a>(inputs: &'a [Column], name: &str) -> &'a Array {
    let column = inputs.iter().find(|column| column.name == name);
    match &column.expect("a field of this name").values {
        Values::Array(array) => array,
        other => panic!("{name} is {other:?}"),
    }
}

fn put(
    sink: &mut dyn ValueSink,
    name: &str,
    dtype: DType,
    shape: &[usize],
    bytes: &[u8],
) -> Result<(), FunctionFailure> {
    let room = sink.room(name, ValueSpec::Array { dtype, shape });
    room.map_err(FunctionFailure::wrong)?.copy_from_slice(bytes);
    Ok(())
}

/// Returns the inverted corner of the image, the label, and a random number.
fn corner(
    inputs: &[Column],
    draw: DrawKey,
    sink: &mut dyn ValueSink,
) -> Result<(), FunctionFailure> {
    let image = array(inputs, "image");
    assert_eq!(image.shape(), [16, 16, 3]);
    let cut: Vec<u8> = (0..4)
        .flat_map(|row| &image.bytes()[row * 48..row * 48 + 12])
        .map(|byte| 255 - byte)
        .collect();
    put(sink, "drawn", DType::UInt64, &[], &draw.0[0].to_le_bytes())?;
    put(sink, "image", DType::UInt8, &[4, 4, 3], &cut)?;
    put(
        sink,
        "label",
        DType::Int64,
        &[],
        array(inputs, "label").bytes(),
    )
}

#[test]
fn a_sample_goes_through_a_function_the_same_for_every_number_of_workers() {
    let root = photos(18);
    let plain: Vec<_> = epoch(
        &photographs(root.path())
            .open(&Options::default())
            .expect("opens"),
    );
    let function = own("steps:corner", corner);
    let made = with(photographs(root.path()), FunctionScope::Sample, &function);

    let mut seen = Vec::new();
    for workers in [1, 2, 7] {
        let loader = open(&made, workers, OnError::Stop);
        let first = epoch(&loader);
        for (batch, before) in first.iter().zip(&plain) {
            assert_eq!(batch.records, before.records);
            let names: Vec<&str> = batch.columns.iter().map(|c| c.name.as_str()).collect();
            assert_eq!(
                names,
                ["drawn", "image", "label"],
                "in the order of its output"
            );
            let (image, whole) = (
                batch.array("image").expect("numbers"),
                before.array("image").expect("numbers"),
            );
            assert_eq!(image.shape(), [batch.rows(), 4, 4, 3]);
            assert_eq!(image.bytes()[0], 255 - whole.bytes()[0]);
            assert_eq!(
                image.bytes()[12],
                255 - whole.bytes()[48],
                "the second line"
            );
        }
        seen.push((bits(&first), bits(&epoch(&loader))));
    }

    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    assert_ne!(seen[0].0, seen[0].1, "another epoch, other draws");
    // Three times with every sample of two epochs, and once when the pipeline opens.
    assert!(function.calls.load(Ordering::Relaxed) >= 3 * (2 * 18 + 1));
}

#[test]
fn fields_outside_a_function_are_kept_and_later_functions_see_them() {
    let root = photos(6);
    let shrink: Body = |inputs, _, sink| {
        assert_eq!(inputs.len(), 1, "only what it asked for");
        let image = array(inputs, "image");
        let sum: u64 = image.bytes().iter().map(|&byte| u64::from(byte)).sum();
        put(sink, "sum", DType::UInt64, &[], &sum.to_le_bytes())
    };
    let double: Body = |inputs, _, sink| {
        let sum = array(inputs, "sum")
            .bytes()
            .try_into()
            .expect("eight bytes");
        let sum = 2 * u64::from_le_bytes(sum);
        put(sink, "sum", DType::UInt64, &[], &sum.to_le_bytes())
    };
    let (shrink, double) = (own("steps:shrink", shrink), own("steps:double", double));
    let (mut pipeline, mut handles) =
        with(photographs(root.path()), FunctionScope::Sample, &shrink);
    let mut spec = FunctionSpec::new("steps:double");
    spec.handle = Some(1);
    pipeline = pipeline.function(spec);
    handles.push(Handle::Function(double));
    pipeline.python[0].fields = Some(vec!["image".to_owned()]);
    pipeline.python[1].fields = Some(vec!["sum".to_owned()]);
    let plain = epoch(
        &photographs(root.path())
            .open(&Options::default())
            .expect("opens"),
    );

    let loader = pipeline
        .open_with(&handles, &Options::default())
        .expect("opens");
    let batches = epoch(&loader);

    for (batch, before) in batches.iter().zip(&plain) {
        let names: Vec<&str> = batch.columns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["label", "sum"]);
        assert_eq!(
            batch.array("label").expect("numbers").bytes(),
            before.array("label").expect("numbers").bytes()
        );
        let image = &before.array("image").expect("numbers").bytes()[..768];
        let sum: u64 = image.iter().map(|&byte| 2 * u64::from(byte)).sum();
        assert_eq!(
            batch.array("sum").expect("numbers").bytes()[..8],
            sum.to_le_bytes()
        );
    }
    let text = pipeline.explain(&handles).expect("a plan");
    assert!(
        text.contains("steps:shrink: python, with each sample, in this process"),
        "{text}"
    );
    assert!(text.contains("passes     label: int64"), "{text}");
    let stats = loader.stats().expect("open");
    let (_, python) = stats.stages.last().expect("stages");
    assert!(
        python.samples >= 6 && python.wait >= Duration::from_micros(3 * 6),
        "{python:?}"
    );
}

#[test]
fn a_record_that_a_function_rejects_is_a_bad_record_that_names_both() {
    let root = photos(8);
    let picky: Body = |inputs, _, sink| {
        // Record 5 is a dog; its first pixel differs from those of the other dogs.
        let label = array(inputs, "label").bytes()[0];
        if label == 1 {
            return Err(FunctionFailure::wrong("it barks"));
        }
        put(
            sink,
            "label",
            DType::Int64,
            &[],
            array(inputs, "label").bytes(),
        )
    };
    let made = with(
        photographs(root.path()),
        FunctionScope::Sample,
        &own("steps:picky", picky),
    );

    let loader = open(&made, 2, OnError::Stop);
    let error = loop {
        match loader.next_batch() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Function { .. }), "{error:?}");
    let text = error.chain();
    assert!(
        text.contains("dog") && text.contains("steps:picky"),
        "{text}"
    );
    assert!(text.contains("it barks"), "{text}");

    let mut seen = Vec::new();
    for workers in [1, 3] {
        let loader = open(&made, workers, OnError::Substitute);
        let batches = epoch(&loader);
        assert!(
            loader.bad_records().len() >= 4,
            "four dogs, and dogs that stand in"
        );
        assert_eq!(batches.iter().map(|batch| batch.rows()).sum::<usize>(), 8);
        seen.push(bits(&batches));
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn a_function_returns_the_same_shape_and_type_for_all_samples() {
    let root = photos(8);
    let uneven: Body = |inputs, _, sink| {
        let label = array(inputs, "label").bytes()[0] as usize;
        put(sink, "x", DType::UInt8, &[label + 1], &vec![7; label + 1])
    };
    let made = with(
        photographs(root.path()),
        FunctionScope::Sample,
        &own("steps:uneven", uneven),
    );
    let loader = open(&made, 2, OnError::Stop);
    let error = loop {
        match loader.next_batch() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let text = error.chain();
    assert!(text.contains("returned `x` as uint8 ["), "{text}");
    assert!(text.contains("or declare its output"), "{text}");

    // With padding, shapes may differ.
    let made = (made.0.clone().pad(), made.1.clone());
    let batches = epoch(&open(&made, 2, OnError::Stop));
    let rows: Vec<usize> = batches
        .iter()
        .map(|b| b.array("x").expect("numbers").shape()[1])
        .collect();
    assert!(rows.contains(&2), "{rows:?}");
}

#[test]
fn images_of_any_size_can_enter_a_function_that_returns_one_size() {
    let root = photos(6);
    let first: Body = |inputs, _, sink| {
        let image = array(inputs, "image");
        assert_eq!(image.shape().len(), 3);
        put(sink, "pixel", DType::UInt8, &[3], &image.bytes()[..3])
    };
    let plain = Pipeline::new(SourceSpec::folder(root.path()))
        .decode()
        .batch(3);
    let function = own("steps:first", first);
    let made = with(plain.clone(), FunctionScope::Sample, &function);

    assert_eq!(epoch(&open(&made, 2, OnError::Stop)).len(), 2);

    let mut with_field = with(plain, FunctionScope::Sample, &function);
    with_field.0.python[0].fields = Some(vec!["label".to_owned()]);
    with_field.0.python[0].output = vec![output("pixel", DType::UInt8, &[3])];
    let error = with_field
        .0
        .open_with(&with_field.1, &Options::default())
        .expect_err("sizes differ");
    assert!(
        error.to_string().contains("the size of `image` differs"),
        "{error}"
    );
}

fn output(name: &str, dtype: DType, shape: &[usize]) -> FieldSpec {
    FieldSpec {
        name: name.to_owned(),
        from: None,
        kind: None,
        dtype: Some(dtype),
        shape: shape.to_vec(),
    }
}

#[test]
fn a_function_with_declared_output_is_not_called_on_open() {
    let root = photos(6);
    let function = own("steps:corner", corner);
    let mut made = with(photographs(root.path()), FunctionScope::Sample, &function);
    made.0.python[0].output = vec![
        output("image", DType::UInt8, &[4, 4, 3]),
        output("label", DType::Int64, &[]),
        output("drawn", DType::UInt64, &[]),
    ];

    let columns = made.0.describe(&made.1).expect("columns");

    assert_eq!(function.calls.load(Ordering::Relaxed), 0);
    assert_eq!(columns[0].name, "image");
    let shape = vec![4, 4, 3];
    let dtype = DType::UInt8;
    assert_eq!(columns[0].kind, ColumnKind::Fixed { dtype, shape });
    let names = |batch: &infeed::Batch| {
        batch
            .columns
            .iter()
            .map(|c| c.name.clone())
            .collect::<Vec<_>>()
    };
    let batches = epoch(&open(&made, 2, OnError::Stop));
    assert_eq!(names(&batches[0]), ["image", "label", "drawn"]);
}

/// Returns the images upside down instead of the order of rows, and the labels unchanged.
fn reverse_rows(
    inputs: &[Column],
    draw: DrawKey,
    sink: &mut dyn ValueSink,
) -> Result<(), FunctionFailure> {
    let image = array(inputs, "image");
    let rows = image.shape()[0];
    let row = image.bytes().len() / rows;
    let turned: Vec<u8> = image.bytes().chunks(row).rev().flatten().copied().collect();
    put(sink, "image", DType::UInt8, image.shape(), &turned)?;
    let drawn = draw.0[0].to_le_bytes().repeat(rows);
    put(sink, "drawn", DType::UInt64, &[rows], &drawn)?;
    let label = inputs.iter().position(|column| column.name == "label");
    sink.same("label", label.expect("a label"))
        .map_err(FunctionFailure::wrong)
}

/// Waits until the consumer holds this number of batches; a batch that was just finished counts for
/// a moment.
fn wait_until_held(loader: &Loader, count: usize) {
    let begun = std::time::Instant::now();
    while loader.stats().expect("open").held != count {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            loader.stats()
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_function_gets_batches_in_order_and_their_slabs_are_reused() {
    let root = photos(18);
    let plain = epoch(
        &photographs(root.path())
            .open(&Options::default())
            .expect("opens"),
    );
    let made = with(
        photographs(root.path()),
        FunctionScope::Batch,
        &own("steps:reversed", reverse_rows),
    );

    let mut seen = Vec::new();
    for workers in [1, 4] {
        let loader = open(&made, workers, OnError::Stop);
        let batches = epoch(&loader);
        for (batch, before) in batches.iter().zip(&plain) {
            let (image, whole) = (
                batch.array("image").expect("numbers").bytes(),
                before.array("image").expect("numbers").bytes(),
            );
            assert_eq!(
                image[..768],
                whole[whole.len() - 768..],
                "the last row is the first"
            );
            let label =
                |batch: &infeed::Batch| batch.array("label").expect("numbers").bytes().to_vec();
            assert_eq!(label(batch), label(before));
        }
        assert_eq!(batches.len(), 5, "the last has two rows");
        wait_until_held(&loader, 5);
        seen.push(bits(&batches));
        drop(batches);
        wait_until_held(&loader, 0);
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn a_batch_that_a_function_rejects_stops_the_run_at_its_step() {
    let root = photos(16);
    let third: Body = |inputs, _, sink| {
        let rows = array(inputs, "label").shape()[0];
        if rows == 4 && array(inputs, "label").bytes().contains(&1) {
            return Err(FunctionFailure::wrong("a dog"));
        }
        put(sink, "n", DType::UInt8, &[rows], &vec![0; rows])
    };
    let plain = Pipeline::new(SourceSpec::folder(root.path())).decode();
    let plain = plain.transform(RandomResizedCrop::new(8)).batch(4);
    let made = with(plain, FunctionScope::Batch, &own("steps:third", third));
    let loader = open(&made, 2, OnError::Substitute);

    // Cats come first: eight of them, two batches.
    for _ in 0..2 {
        loader.next_batch().expect("cats").expect("not over");
    }
    let error = loader.next_batch().expect_err("dogs");

    let names_the_function = matches!(
        error,
        Error::BatchFunction {
            step: 2,
            epoch: 0,
            ..
        }
    );
    assert!(names_the_function && !error.is_bad_record(), "{error:?}");
    assert!(
        error.chain().contains("steps:third failed on the batch"),
        "{}",
        error.chain()
    );
}

#[test]
fn a_state_of_another_function_or_number_of_ranks_is_rejected_by_name() {
    let root = photos(16);
    let state = |name: &'static str, on, body: Body, ranks| {
        let made = with(photographs(root.path()), on, &own(name, body));
        let mut options = Options::default();
        options.world_size = ranks;
        let loader = made.0.open_with(&made.1, &options).expect("opens");
        loader.next_batch().expect("a batch");
        (loader.state(), loader)
    };
    let (corner_state, loader) = state("steps:corner", FunctionScope::Sample, corner, 1);
    loader.restore(&corner_state).expect("its own");

    let (_, other) = state("steps:edge", FunctionScope::Sample, corner, 1);
    let error = other
        .restore(&corner_state)
        .expect_err("another function")
        .to_string();
    assert!(
        error.contains("python is steps:edge, was steps:corner"),
        "{error}"
    );

    let (batch_state, loader) = state("steps:reversed", FunctionScope::Batch, reverse_rows, 2);
    loader.restore(&batch_state).expect("its own");
    let (_, other) = state("steps:reversed", FunctionScope::Batch, reverse_rows, 4);
    let error = other
        .restore(&batch_state)
        .expect_err("other rows")
        .to_string();
    assert!(error.contains("ranks") && error.contains("4"), "{error}");

    // Functions on samples receive the same samples for every number of ranks.
    let (_, other) = state("steps:corner", FunctionScope::Sample, corner, 4);
    other.restore(&corner_state).expect("the same samples");
}

#[test]
fn a_preview_shows_the_input_and_output_of_a_function() {
    let root = photos(6);
    let made = with(
        photographs(root.path()),
        FunctionScope::Sample,
        &own("steps:corner", corner),
    );

    let (_, stages) = made.0.preview(&made.1, 0, 0).expect("a good record");

    let names: Vec<&str> = stages.iter().map(|stage| stage.name).collect();
    assert_eq!(
        names,
        ["decode", "RandomResizedCrop", "row", "python", "output"]
    );
    assert_eq!(stages[3].draws, "steps:corner");
    let batch = epoch(&open(&made, 2, OnError::Stop)).remove(0);
    let Some((_, Values::Array(image))) = stages[4].fields.iter().find(|(name, _)| name == "image")
    else {
        panic!("an image")
    };
    assert_eq!(
        image.bytes(),
        &batch.array("image").expect("numbers").bytes()[..48]
    );
}

#[test]
fn no_more_processes_than_workers_are_started() {
    let root = photos(6);
    let function = own("steps:corner", corner);
    let mut made = with(photographs(root.path()), FunctionScope::Sample, &function);
    made.0.python[0].processes = 8;

    let loader = open(&made, 2, OnError::Stop);
    epoch(&loader);

    // One process to find the output, then those of the loader.
    assert_eq!(*function.started.lock().expect("not poisoned"), [1, 2]);
}

#[test]
fn padding_rows_skip_functions_and_the_valid_mask_is_last() {
    let root = photos(10);
    let function = own("steps:corner", corner);
    let plain = with(photographs(root.path()), FunctionScope::Sample, &function);
    let padding = photographs(root.path()).tail(infeed::pipeline::Tail::Pad);
    let padded = with(padding, FunctionScope::Sample, &function);
    let bytes = |batches: &[infeed::Batch], name: &str| -> Vec<u8> {
        let arrays = batches
            .iter()
            .map(|batch| batch.array(name).expect("there"));
        arrays
            .map(|array| array.bytes())
            .collect::<Vec<_>>()
            .concat()
    };
    let wanted = epoch(&open(&plain, 2, OnError::Stop));

    let found = epoch(&open(&padded, 3, OnError::Stop));

    let columns = padded.0.describe(&padded.1).expect("it fits");
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names.last(), Some(&"valid"));
    let delivered = found[0].columns.iter().map(|column| column.name.as_str());
    assert!(delivered.eq(names.iter().copied()));
    let text = padded.0.explain(&padded.1).expect("it fits");
    let last = text.lines().last().expect("a plan");
    assert!(
        last.starts_with("valid: false where a row is padding"),
        "{text}"
    );
    for name in &names[..names.len() - 1] {
        let (whole, padded) = (bytes(&wanted, name), bytes(&found, name));
        let (own, rest) = padded.split_at(whole.len());
        assert!(own == whole, "{name}");
        assert_eq!(rest.len(), 2 * whole.len() / 10);
        // A call with zeros would have returned other values.
        assert!(rest.iter().all(|byte| *byte == 0), "{name}");
    }
    let marks = bytes(&found, "valid");
    assert_eq!(marks, [&[1; 10][..], &[0; 2][..]].concat());
    for rank in 0..2 {
        let mut options = Options::default();
        (options.rank, options.world_size) = (rank, 2);
        let loader = padded.0.open_with(&padded.1, &options).expect("opens");
        let part = epoch(&loader);
        for name in &names {
            let row = bytes(&found, name).len() / 12;
            let of = |step: usize| {
                let first = (4 * step + 2 * rank as usize) * row;
                bytes(&found, name)[first..first + 2 * row].to_vec()
            };
            assert_eq!(bytes(&part, name), [of(0), of(1), of(2)].concat(), "{name}");
        }
    }
}

/// Returns a field with the name of the padding mask.
fn marking(_: &[Column], _: DrawKey, sink: &mut dyn ValueSink) -> Result<(), FunctionFailure> {
    put(sink, "valid", DType::Bool, &[], &[1])
}

#[test]
fn a_function_that_returns_a_field_named_valid_is_rejected_with_padding() {
    let root = photos(5);
    let function = own("steps:marking", marking);
    let padding = photographs(root.path()).tail(infeed::pipeline::Tail::Pad);
    let (pipeline, handles) = with(padding, FunctionScope::Sample, &function);

    let error = pipeline.describe(&handles).expect_err("two of one name");

    let error = error.to_string();
    assert!(
        error.contains("steps:marking has one") && error.contains("wrap"),
        "{error}"
    );
}

#[test]
fn a_description_with_a_function_in_the_wrong_position_is_rejected() {
    let root = photos(2);
    let function = own("steps:reversed", reverse_rows);
    let (pipeline, handles) = with(photographs(root.path()), FunctionScope::Batch, &function);
    let mut late = FunctionSpec::new("steps:corner");
    late.handle = Some(0);
    let error = pipeline
        .function(late)
        .describe(&handles)
        .expect_err("too late")
        .to_string();
    assert!(error.contains("before the functions on batches"), "{error}");

    let padded = photographs(root.path()).tail(infeed::pipeline::Tail::Pad);
    let (padded, held) = with(padded, FunctionScope::Batch, &function);
    let error = padded.describe(&held).expect_err("padding").to_string();
    assert!(
        error.contains("steps:reversed") && error.contains("wrap"),
        "{error}"
    );

    let (mut pipeline, handles) = with(photographs(root.path()), FunctionScope::Sample, &function);
    pipeline.python[0].fields = Some(vec!["imgae".to_owned()]);
    let error = pipeline.describe(&handles).expect_err("a typo").to_string();
    assert!(
        error.contains("no field `imgae`") && error.contains("image"),
        "{error}"
    );

    let missing = pipeline
        .open(&Options::default())
        .expect_err("no handles")
        .to_string();
    assert!(
        missing.contains("steps:reversed") && !handles.is_empty(),
        "{missing}"
    );
    let source = pipeline.source.open(&[]).expect("photos");
    assert_eq!(source.len(), 2);
}
