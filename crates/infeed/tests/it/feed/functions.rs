//! Functions of the user's beside feeders: those on samples run where rows are made, if they are the
//! same there; those on batches where batches are put together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use infeed::batch::{Column, Values};
use infeed::function::{Draw, Failed, Form, Function, Identity, On, Running, Sink, Spent};
use infeed::pipeline::{Bound, FunctionSpec, Handle};
use infeed::sample::DType;
use infeed::{Error, OnError};

use super::*;
use crate::data::photos;

type Body = fn(&[Column], Draw, &mut dyn Sink) -> Result<(), Failed>;

/// A function that another machine may have, too.
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

    fn identity(&self) -> Result<Identity, String> {
        if self.code.is_empty() {
            return Err("its module was changed".to_owned());
        }
        Ok(Identity {
            code: self.code.to_owned(),
            language: self.language.to_owned(),
        })
    }

    fn start(&self, _: usize) -> Result<Box<dyn Running>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl Running for Own {
    fn call(&self, inputs: &[Column], draw: Draw, sink: &mut dyn Sink) -> Result<Spent, Failed> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        (self.body)(inputs, draw, sink)?;
        Ok(Spent::default())
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

/// A pipeline with it, found by its name.
fn with(base: Pipeline, on: On, function: &Own) -> Pipeline {
    let mut spec = FunctionSpec::new("steps:own");
    spec.on = on;
    spec.bound = Bound(Some(Arc::new(function.clone())));
    base.function(spec)
}

fn label(inputs: &[Column]) -> u8 {
    let label = inputs.iter().find(|column| column.name == "label");
    match label.map(|column| &column.values) {
        Some(Values::Array(label)) => label.bytes()[0],
        other => panic!("{other:?}"),
    }
}

fn put(sink: &mut dyn Sink, name: &str, shape: &[usize], bytes: &[u8]) -> Result<(), Failed> {
    let form = Form::Array {
        dtype: DType::UInt8,
        shape,
    };
    let room = sink.room(name, form).map_err(Failed::wrong)?;
    room.copy_from_slice(bytes);
    Ok(())
}

/// What it drew, and the label.
fn drawn(inputs: &[Column], draw: Draw, sink: &mut dyn Sink) -> Result<(), Failed> {
    put(sink, "drawn", &[8], &draw.0[0].to_le_bytes())?;
    put(sink, "label", &[], &[label(inputs)])
}

/// Does not take one image of five or so: another one every epoch, since crops differ.
fn picky(inputs: &[Column], draw: Draw, sink: &mut dyn Sink) -> Result<(), Failed> {
    let image = inputs.iter().find(|column| column.name == "image");
    let sum: u64 = match image.map(|column| &column.values) {
        Some(Values::Array(image)) => image.bytes().iter().map(|&byte| u64::from(byte)).sum(),
        other => panic!("{other:?}"),
    };
    match sum % 5 {
        0 => Err(Failed::wrong("an odd image")),
        _ => drawn(inputs, draw, sink),
    }
}

/// What it drew for the rows of a batch.
fn drawn_by_batch(inputs: &[Column], draw: Draw, sink: &mut dyn Sink) -> Result<(), Failed> {
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

fn refused(pipeline: &Pipeline, options: &Options) -> String {
    let error = pipeline.open(options).expect_err("it is refused");
    assert!(matches!(error, Error::Config { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_function_on_samples_draws_on_a_feeder_what_it_draws_here() {
    let root = photos(18);
    let here = with(pipeline(root.path()), On::Sample, &own(drawn));
    let there = own(drawn);
    let feeder = feeder(&with(pipeline(root.path()), On::Sample, &there));
    let options = asking([host(&feeder)], Local::Fallback);
    there.calls.store(0, Ordering::Relaxed);

    let loader = open(&here, &options);
    let found = epochs(&loader, 2);

    assert!(found == locally(&here, &options, 2));
    assert!(there.calls.load(Ordering::Relaxed) > 8, "it ran there");
    assert_eq!(stats(&loader)[0].declined, 0);
}

#[test]
fn a_function_on_batches_is_called_here_whoever_made_the_rows() {
    let root = photos(18);
    let function = own(drawn_by_batch);
    let mut spec = FunctionSpec::new("<lambda>").on_batches();
    spec.handle = Some(0);
    let here = pipeline(root.path()).function(spec);
    let handles = [Handle::Function(Arc::new(function.clone()))];
    // Neither the feeder of a file that has it nor that of one without needs the function.
    for file in [pipeline(root.path()), here.clone()] {
        let feeder = feeder(&file);
        let mut options = asking([host(&feeder)], Local::Fallback);
        function.calls.store(0, Ordering::Relaxed);

        let loader = here.open_with(&handles, &options).expect("opens");
        let found = epochs(&loader, 2);

        // It is called once more, when the pipeline is opened.
        assert!(function.calls.load(Ordering::Relaxed) > 2 * 5);
        assert!(stats(&loader)[0].batches > 0);
        options.feeders = None;
        let alone = here.open_with(&handles, &options).expect("opens");
        assert!(found == epochs(&alone, 2));
    }
}

#[test]
fn another_function_of_the_same_name_is_refused_by_what_differs() {
    let root = photos(16);
    let base = pipeline(root.path());
    let feeder = feeder(&with(base.clone(), On::Sample, &own(drawn)));
    let options = asking([host(&feeder)], Local::Help);

    let mut other = own(drawn);
    other.code = "steps 81c2";
    let text = refused(&with(base.clone(), On::Sample, &other), &options);
    for part in [
        "`functions` differs: steps:own (steps 81c2) at the trainer",
        "steps:own (steps 5f0e) at the feeder",
        "modules that hold the same",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let mut other = own(drawn);
    other.language = "a language 2";
    let text = refused(&with(base.clone(), On::Sample, &other), &options);
    assert!(
        text.contains("`language` differs: a language 2 at the trainer"),
        "{text}"
    );
    let text = refused(&base, &options);
    assert!(text.contains("`functions` differs: none at the"), "{text}");
}

#[test]
fn a_function_that_no_other_machine_can_have_is_an_error_with_the_fix() {
    let root = photos(16);
    let base = pipeline(root.path());
    let feeder = feeder(&base);
    let options = asking([host(&feeder)], Local::Help);
    for (name, mend) in [
        ("steps:<lambda>", "define it in one that they can import"),
        (
            "__main__:noise",
            "the script or notebook that runs; put it in",
        ),
    ] {
        let mut spec = FunctionSpec::new(name);
        spec.handle = Some(0);
        let held = base.clone().function(spec);
        let handles = [Handle::Function(Arc::new(own(drawn)))];
        let error = held.open_with(&handles, &options).expect_err("refused");
        let text = error.to_string();
        assert!(
            text.contains(name) && text.contains("cannot run on feeders") && text.contains(mend),
            "{text}"
        );
    }
    let mut changed = own(drawn);
    changed.code = "";
    let text = refused(&with(base.clone(), On::Sample, &changed), &options);
    assert!(text.contains("its module was changed"), "{text}");
    // A feeder runs a function that its pipeline file names only if it is allowed.
    let mut options = FeedOptions::default();
    options.token = token();
    let named = base.function(FunctionSpec::new("steps:own"));
    let error = serve(&named, &[], &options).expect_err("not allowed");
    let text = error.to_string();
    assert!(text.contains("--allow-functions 'steps:own'"), "{text}");
}

#[test]
fn what_a_function_does_not_take_is_judged_here_whatever_becomes_of_it() {
    let root = photos(24);
    let here = with(pipeline(root.path()), On::Sample, &own(picky));
    let feeder = feeder(&with(pipeline(root.path()), On::Sample, &own(picky)));
    for policy in [OnError::Substitute, OnError::Skip] {
        let mut options = asking([host(&feeder)], Local::Fallback);
        options.on_error = policy;
        let (with, without) = (open(&here, &options), {
            options.feeders = None;
            open(&here, &options)
        });

        assert!(epochs(&with, 2) == epochs(&without, 2));

        let listed = |loader: &Loader| {
            let bad = loader.quarantine().into_iter();
            let told =
                |bad: infeed::loader::BadRecord| (bad.record, bad.position, bad.reason.chain());
            bad.map(told).collect::<Vec<_>>()
        };
        assert!(!listed(&with).is_empty());
        assert_eq!(listed(&with), listed(&without));
        // An exception may be that machine's alone: the trainer makes such a batch itself.
        assert!(stats(&with)[0].declined > 0);
        assert!(stats(&with)[0].batches > 0);
    }
    let mut options = asking([host(&feeder)], Local::Fallback);
    let met = |options: &Options| {
        let loader = open(&here, options);
        let mut batches = 0;
        loop {
            match loader.next_batch() {
                Ok(_) => batches += 1,
                Err(error) => return (batches, error.chain()),
            }
        }
    };
    let with = met(&options);
    options.feeders = None;
    assert_eq!(with, met(&options));
    assert!(with.1.contains("an odd image"), "{with:?}");
}
