//! Results of deterministic functions in the cache of decoded records.

use super::*;

/// The first bytes of an image, and how many values it has.
fn summary(inputs: &[Column], _: DrawKey, sink: &mut dyn ValueSink) -> Result<(), FunctionFailure> {
    let image = array(inputs, "image");
    let wrong = |problem: String| FunctionFailure::wrong(problem);
    let spec = |shape| ValueSpec::Array {
        dtype: DType::UInt8,
        shape,
    };
    let head = &image.bytes()[..12];
    sink.room("head", spec(&[4, 3]))
        .map_err(wrong)?
        .copy_from_slice(head);
    let name = format!("{} values", image.bytes().len());
    let text = sink
        .room("name", ValueSpec::Text(name.len()))
        .map_err(wrong)?;
    text.copy_from_slice(name.as_bytes());
    Ok(())
}

/// Adds a number that differs by epoch and position.
fn add_mark(
    inputs: &[Column],
    draw: DrawKey,
    sink: &mut dyn ValueSink,
) -> Result<(), FunctionFailure> {
    let head = array(inputs, "head").bytes()[0];
    let spec = ValueSpec::Array {
        dtype: DType::UInt8,
        shape: &[],
    };
    let to = sink
        .room("head", spec)
        .map_err(|problem: String| FunctionFailure::wrong(problem))?;
    to[0] = head ^ draw.0[0] as u8;
    Ok(())
}

const EPOCHS: usize = 12;
/// Samples of all epochs, more than twice as many as can be in flight.
const SAMPLES: usize = EPOCHS * 20;

#[test]
fn results_of_deterministic_functions_stay_in_the_cache() {
    let root = photos(20);
    let first = own("summary", summary);
    let second = own("marked", add_mark);
    let made = |transform: infeed_codec::transform::Transform, version: Option<u64>| {
        let pipeline = Pipeline::new(SourceSpec::folder(root.path()))
            .shuffle(5)
            .decode();
        let mut spec = FunctionSpec::new(first.name);
        (spec.handle, spec.version) = (Some(0), version);
        let mut then = FunctionSpec::new(second.name);
        then.handle = Some(1);
        then.fields = Some(vec!["head".to_owned()]);
        let pipeline = pipeline
            .transform(transform)
            .function(spec)
            .function(then)
            .batch(4);
        let functions = [Arc::clone(&first), Arc::clone(&second)];
        let handles = functions.map(|of| Handle::Function(of as Arc<dyn Function>));
        (pipeline, handles.to_vec())
    };
    // Calls of both functions in some epochs, hits and misses.
    let run = |made: &(Pipeline, Vec<Handle>), cache: Option<u64>| {
        let calls = || {
            let of = |own: &RustFunction| own.calls.load(Ordering::Relaxed);
            [of(&first), of(&second)]
        };
        let mut options = Options::default();
        options.workers = Some(2);
        options.cache = cache.map(|bytes| infeed::loader::CacheLimit::Bytes(bytes).into());
        // A loader calls the functions from the moment it opens.
        let before = calls();
        let loader = made.0.open_with(&made.1, &options).expect("opens");
        let epochs: Vec<_> = (0..EPOCHS).map(|_| bits(&epoch(&loader))).collect();
        let after = calls();
        let found = loader
            .stats()
            .expect("is open")
            .decoded_cache
            .unwrap_or_default();
        (epochs, [after[0] - before[0], after[1] - before[1]], found)
    };
    let fixed = || infeed_codec::transform::CenterCrop::new(30).into();
    let (expected, [calls, _], _) = run(&made(fixed(), None), None);
    assert!(calls >= SAMPLES, "{calls}");

    let kept = made(fixed(), Some(1));
    let (full, [once, each], found) = run(&kept, Some(1 << 30));
    assert!(full == expected);
    // Rows in flight are requested before their record is in the cache.
    assert!(
        (20..SAMPLES).contains(&once) && each >= SAMPLES,
        "{once} {each}"
    );
    assert!(found.records == 20 && found.hits > 0, "{found:?}");
    let (part, _, found) = run(&kept, Some(10 * 4096));
    assert!(part == expected);
    assert!(
        found.is_full && (1..20).contains(&found.records),
        "{found:?}"
    );
    assert!(found.hits > 0 && found.misses > 20, "{found:?}");

    // Two loaders with one version share results; another version has others.
    let open = |made: &(Pipeline, Vec<Handle>)| {
        let mut options = Options::default();
        options.cache = Some(infeed::loader::CacheLimit::Bytes(1 << 30).into());
        made.0.open_with(&made.1, &options).expect("opens")
    };
    let misses = |loader: &Loader| {
        epoch(loader);
        let stats = loader.stats().expect("is open");
        stats.decoded_cache.expect("a cache").misses
    };
    // A loader begins when it opens, so the first one fills the cache before the others open.
    let one = open(&kept);
    assert!(misses(&one) >= 20);
    assert_eq!(misses(&open(&kept)), 0);
    assert!(misses(&open(&made(fixed(), Some(2)))) >= 20);

    // Behind a random transform, or without a version, functions run in every epoch.
    let random = || RandomResizedCrop::new(30).into();
    for (transform, version) in [(random(), Some(1)), (fixed(), None)] {
        let made = made(transform, version);
        let (expected, _, _) = run(&made, None);
        let (found, [calls, _], _) = run(&made, Some(1 << 30));
        assert!(found == expected && calls >= SAMPLES, "{calls}");
    }
}
