//! User functions with feeders. A function on samples runs where rows are made, if its code is the
//! same there. A function on batches runs in the trainer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use infeed::function::{
    CallCost, DrawKey, Function, FunctionFailure, FunctionIdentity, FunctionScope, RunningFunction,
    ValueSink, ValueSpec,
};
use infeed::pipeline::{BoundFunction, FunctionSpec, Handle};
use infeed::{Error, OnError};
use infeed_core::batch::{Column, Values};
use infeed_core::sample::DType;

use super::*;
use crate::data::photos;

type Body = fn(&[Column], DrawKey, &mut dyn ValueSink) -> Result<(), FunctionFailure>;

/// A function that may also exist on another machine.
#[derive(Clone, Debug)]
struct Own {
    body: Body,
    code: &'static str,
    language: &'static str,
    calls: Arc<AtomicUsize>,
}

impl Function for Own {
    fn name(&self) -> &'static str {
        "steps:own"
    }

    fn bound_here(&self) -> Option<String> {
        None
    }

    fn identity(&self) -> Result<FunctionIdentity, String> {
        if self.code.is_empty() {
            return Err("its module was changed".to_owned());
        }
        Ok(FunctionIdentity {
            code: self.code.to_owned(),
            language: self.language.to_owned(),
        })
    }

    fn start(&self, _: usize) -> Result<Box<dyn RunningFunction>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl RunningFunction for Own {
    fn call(
        &self,
        inputs: &[Column],
        draw: DrawKey,
        sink: &mut dyn ValueSink,
    ) -> Result<CallCost, FunctionFailure> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        (self.body)(inputs, draw, sink)?;
        Ok(CallCost::default())
    }
}

fn own(body: Body) -> Own {
    Own {
        body,
        code: "steps 5f0e",
        language: "a language 1",
        calls: Arc::default(),
    }
}

/// Returns a pipeline with the function, found by name.
fn with(base: Pipeline, on: FunctionScope, function: &Own) -> Pipeline {
    let mut spec = FunctionSpec::new("steps:own");
    spec.on = on;
    spec.bound = BoundFunction(Some(Arc::new(function.clone())));
    base.function(spec)
}

fn label(inputs: &[Column]) -> u8 {
    let label = inputs.iter().find(|column| column.name == "label");
    match label.map(|column| &column.values) {
        Some(Values::Array(label)) => label.bytes()[0],
        other => panic!("{other:?}"),
    }
}

fn put(
    sink: &mut dyn ValueSink,
    name: &str,
    shape: &[usize],
    bytes: &[u8],
) -> Result<(), FunctionFailure> {
    let layout = ValueSpec::Array {
        dtype: DType::UInt8,
        shape,
    };
    let room = sink.room(name, layout).map_err(FunctionFailure::wrong)?;
    room.copy_from_slice(bytes);
    Ok(())
}

/// Returns the drawn number and the label.
fn draw_number(
    inputs: &[Column],
    draw: DrawKey,
    sink: &mut dyn ValueSink,
) -> Result<(), FunctionFailure> {
    put(sink, "drawn", &[8], &draw.0[0].to_le_bytes())?;
    put(sink, "label", &[], &[label(inputs)])
}

/// Rejects about one image in five: others in every epoch, because crops differ.
fn picky(
    inputs: &[Column],
    draw: DrawKey,
    sink: &mut dyn ValueSink,
) -> Result<(), FunctionFailure> {
    let image = inputs.iter().find(|column| column.name == "image");
    let sum: u64 = match image.map(|column| &column.values) {
        Some(Values::Array(image)) => image.bytes().iter().map(|&byte| u64::from(byte)).sum(),
        other => panic!("{other:?}"),
    };
    match sum % 5 {
        0 => Err(FunctionFailure::wrong("an odd image")),
        _ => draw_number(inputs, draw, sink),
    }
}

/// Returns the drawn number of each row of a batch.
fn draw_by_batch(
    inputs: &[Column],
    draw: DrawKey,
    sink: &mut dyn ValueSink,
) -> Result<(), FunctionFailure> {
    let rows = match &inputs[0].values {
        Values::Array(array) => array.shape()[0],
        other => panic!("{other:?}"),
    };
    put(
        sink,
        "drawn",
        &[rows, 8],
        &draw.0[0].to_le_bytes().repeat(rows),
    )
}

fn open_error(pipeline: &Pipeline, options: &Options) -> String {
    let error = pipeline.open(options).expect_err("it is refused");
    assert!(matches!(error, Error::Config { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_function_on_samples_draws_the_same_on_a_feeder_and_here() {
    let root = photos(18);
    let here = with(
        pipeline(root.path()),
        FunctionScope::Sample,
        &own(draw_number),
    );
    let there = own(draw_number);
    let feeder = feeder(&with(pipeline(root.path()), FunctionScope::Sample, &there));
    let options = options_for([host(&feeder)], Local::Fallback);
    there.calls.store(0, Ordering::Relaxed);

    let loader = open(&here, &options);
    let found = epochs(&loader, 2);

    assert!(found == locally(&here, &options, 2));
    assert!(there.calls.load(Ordering::Relaxed) > 8, "it ran there");
    assert_eq!(stats(&loader)[0].declined, 0);
}

#[test]
fn a_function_on_batches_is_called_here_also_for_rows_of_feeders() {
    let root = photos(18);
    let function = own(draw_by_batch);
    let mut spec = FunctionSpec::new("<lambda>").on_batches();
    spec.handle = Some(0);
    let here = pipeline(root.path()).function(spec);
    let handles = [Handle::Function(Arc::new(function.clone()))];
    // Feeders do not need the function, whether their pipeline file contains it or not.
    for file in [pipeline(root.path()), here.clone()] {
        let feeder = feeder(&file);
        let mut options = options_for([host(&feeder)], Local::Fallback);
        function.calls.store(0, Ordering::Relaxed);

        let loader = here.open_with(&handles, &options).expect("opens");
        let found = epochs(&loader, 2);

        // Opening the pipeline calls it once more.
        assert!(function.calls.load(Ordering::Relaxed) > 2 * 5);
        assert!(stats(&loader)[0].batches > 0);
        options.remote = None;
        let alone = here.open_with(&handles, &options).expect("opens");
        assert!(found == epochs(&alone, 2));
    }
}

#[test]
fn another_function_of_the_same_name_is_rejected_with_the_difference() {
    let root = photos(16);
    let base = pipeline(root.path());
    let feeder = feeder(&with(
        base.clone(),
        FunctionScope::Sample,
        &own(draw_number),
    ));
    let options = options_for([host(&feeder)], Local::Help);

    let mut other = own(draw_number);
    other.code = "steps 81c2";
    let text = open_error(&with(base.clone(), FunctionScope::Sample, &other), &options);
    for part in [
        "`functions` differs: steps:own (steps 81c2) at the trainer",
        "steps:own (steps 5f0e) at the feeder",
        "modules with equal code",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let mut other = own(draw_number);
    other.language = "a language 2";
    let text = open_error(&with(base.clone(), FunctionScope::Sample, &other), &options);
    assert!(
        text.contains("`language` differs: a language 2 at the trainer"),
        "{text}"
    );
    let text = open_error(&base, &options);
    assert!(text.contains("`functions` differs: none at the"), "{text}");
}

#[test]
fn a_function_that_cannot_be_sent_is_an_error_with_the_fix() {
    let root = photos(16);
    let base = pipeline(root.path());
    let feeder = feeder(&base);
    let options = options_for([host(&feeder)], Local::Help);
    for (name, fix) in [
        ("steps:<lambda>", "define it with `def` in a module"),
        (
            "__main__:noise",
            "the running script or notebook; move it to",
        ),
    ] {
        let mut spec = FunctionSpec::new(name);
        spec.handle = Some(0);
        let held = base.clone().function(spec);
        let handles = [Handle::Function(Arc::new(own(draw_number)))];
        let error = held.open_with(&handles, &options).expect_err("rejected");
        let text = error.to_string();
        assert!(
            text.contains(name) && text.contains("cannot run on feeders") && text.contains(fix),
            "{text}"
        );
    }
    let mut changed = own(draw_number);
    changed.code = "";
    let text = open_error(
        &with(base.clone(), FunctionScope::Sample, &changed),
        &options,
    );
    assert!(text.contains("its module was changed"), "{text}");
    // A feeder runs a function from its pipeline file only if it is allowed.
    let mut options = FeedOptions::default();
    options.token = token();
    let named = base.function(FunctionSpec::new("steps:own"));
    let error = serve(&named, &[], &options).expect_err("not allowed");
    let text = error.to_string();
    assert!(text.contains("--allow-functions 'steps:own'"), "{text}");
}

#[test]
fn a_sample_that_a_function_rejects_is_handled_by_the_trainer() {
    let root = photos(24);
    let here = with(pipeline(root.path()), FunctionScope::Sample, &own(picky));
    let feeder = feeder(&with(
        pipeline(root.path()),
        FunctionScope::Sample,
        &own(picky),
    ));
    for policy in [OnError::Substitute, OnError::Skip] {
        let mut options = options_for([host(&feeder)], Local::Fallback);
        options.on_error = policy;
        let (with, without) = (open(&here, &options), {
            options.remote = None;
            open(&here, &options)
        });

        assert!(epochs(&with, 2) == epochs(&without, 2));

        let listed = |loader: &Loader| {
            let bad = loader.bad_records().into_iter();
            let reported =
                |bad: infeed::loader::BadRecord| (bad.record, bad.position, bad.reason.chain());
            bad.map(reported).collect::<Vec<_>>()
        };
        assert!(!listed(&with).is_empty());
        assert_eq!(listed(&with), listed(&without));
        // An exception may have a cause on that machine only, so the trainer makes the batch
        // itself.
        assert!(stats(&with)[0].declined > 0);
        assert!(stats(&with)[0].batches > 0);
    }
    let mut options = options_for([host(&feeder)], Local::Fallback);
    let outcome = |options: &Options| {
        let loader = open(&here, options);
        let mut batches = 0;
        loop {
            match loader.next_batch() {
                Ok(_) => batches += 1,
                Err(error) => return (batches, error.chain()),
            }
        }
    };
    let with = outcome(&options);
    options.remote = None;
    assert_eq!(with, outcome(&options));
    assert!(with.1.contains("an odd image"), "{with:?}");
}
