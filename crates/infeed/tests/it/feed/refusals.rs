//! Who is not fed, and is told why by the word; and bytes that mean harm.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use infeed::feed::{FeedOptions, serve};
use infeed::loader::feeders::Local;
use infeed::wire::frame::{self, Kind};
use infeed::wire::hello::{self, Hello, Limits, Policy};
use infeed::wire::token::Token;
use infeed::{Error, Options};

use super::*;
use crate::data::photos;

/// Why a pipeline with this feeder does not open.
fn refused(pipeline: &Pipeline, options: &Options) -> String {
    let error = pipeline.open(options).expect_err("it is refused");
    assert!(matches!(error, Error::Config { .. }), "{error}");
    error.to_string()
}

#[test]
fn what_differs_is_told_by_its_word_where_the_pipeline_is_opened() {
    let (root, other) = (photos(16), photos(18));
    let base = pipeline(root.path());
    let feeder = feeder(&base);
    let options = asking([host(&feeder)], Local::Help);

    let mut wrong = options.clone();
    if let Some(feeders) = &mut wrong.feeders {
        feeders.token = Token::new("another token than theirs").expect("long enough");
    }
    let text = refused(&base, &wrong);
    assert!(text.contains("token differs"), "{text}");

    let text = refused(&pipeline(other.path()), &options);
    assert!(text.contains("`data` differs"), "{text}");
    let text = refused(&base.clone().shuffle(6), &options);
    assert!(
        text.contains("`seed` differs: 6 at the trainer, 5"),
        "{text}"
    );
    let text = refused(&base.clone().batch(8), &options);
    assert!(text.contains("`batch` differs: 8 rows"), "{text}");
    let text = refused(
        &base
            .clone()
            .transform(infeed::transform::RandomErasing::new(0.5)),
        &options,
    );
    assert!(text.contains("`description` differs"), "{text}");
    let told = feeder.stats();
    assert!(told.refused >= 5, "{told:?}");
    assert!(told.problem.is_some());

    // Those who agree are fed all the same.
    let loader = open(&base, &options);
    assert!(epochs(&loader, 1) == locally(&base, &options, 1));
}

#[test]
fn another_version_of_infeed_or_other_bits_are_refused() {
    let root = photos(16);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let says = |name: &str, value: &str| {
        let stream = TcpStream::connect(feeder.address()).expect("it listens");
        // What the feeder has in all others is learnt from its refusals, one by one.
        let mut facts: Vec<hello::Fact> = Vec::new();
        loop {
            let stream = match facts.is_empty() {
                true => stream.try_clone().expect("a socket"),
                false => TcpStream::connect(feeder.address()).expect("it listens"),
            };
            let hello = Hello {
                facts: facts.clone(),
                rank: 0,
                world_size: 1,
                for_device: false,
                policy: Policy::Stop,
                pixels: false,
                limits: Limits::NONE,
            };
            let refusal = match hello::greet(&stream, &token(), &hello) {
                Err(infeed::wire::WireError::Refused(refusal)) => refusal,
                other => panic!("{other:?}"),
            };
            if refusal.what == name {
                assert_eq!(refusal.trainer, "unknown");
                facts.push(hello::Fact {
                    name: name.to_owned(),
                    value: value.to_owned(),
                });
                let stream = TcpStream::connect(feeder.address()).expect("it listens");
                let hello = Hello { facts, ..hello };
                return hello::greet(&stream, &token(), &hello)
                    .expect_err("it differs")
                    .to_string();
            }
            facts.push(hello::Fact {
                name: refusal.what,
                value: refusal.feeder,
            });
        }
    };

    let version = says("infeed", "0.0.1");
    assert!(version.contains("`infeed` differs: 0.0.1"), "{version}");
    assert!(version.contains("install one version"), "{version}");
    let bits = says("bits", "0123456789abcdef");
    assert!(bits.contains("`bits` differs"), "{bits}");
}

#[test]
fn an_address_that_others_reach_needs_a_token_and_is_warned_of() {
    let root = photos(8);
    let pipeline = pipeline(root.path());
    let mut options = FeedOptions::default();
    options.listen = "0.0.0.0:0".to_owned();

    let error = serve(&pipeline, &[], &options)
        .expect_err("no token")
        .to_string();
    assert!(error.contains("give a token"), "{error}");

    options.token = token();
    let feeder = serve(&pipeline, &[], &options).expect("feeds");
    assert!(feeder.notices()[0].contains("nothing is encrypted"));
    let here = format!("127.0.0.1:{}", feeder.address().port());
    let loader = open(&pipeline, &asking([here], Local::Help));
    assert_eq!(epochs(&loader, 1).len(), 2);
}

#[test]
fn options_that_cannot_work_are_told_before_anything_is_asked() {
    let root = photos(8);
    let base = pipeline(root.path());
    let none: [String; 0] = [];

    let text = refused(&base, &asking(none, Local::Help));
    assert!(text.contains("there is no host"), "{text}");

    let mut options = FeedOptions::default();
    options.listen = "nowhere".to_owned();
    let text = serve(&base, &[], &options)
        .expect_err("no address")
        .to_string();
    assert!(text.contains("listen"), "{text}");
    options.listen = "127.0.0.1:0".to_owned();
    let gone = pipeline(&root.path().join("gone"));
    assert!(serve(&gone, &[], &options).is_err());
}

/// Whether the feeder ends a connection on which this is said.
fn is_cut_off(feeder: &Feeder, bytes: &[u8]) -> bool {
    let mut stream = TcpStream::connect(feeder.address()).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a socket");
    // It may have ended it before all was said.
    let _ = stream.write_all(bytes);
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::WouldBlock && error.kind() != ErrorKind::TimedOut,
    }
}

#[test]
fn a_feeder_outlives_whatever_is_said_to_it() {
    let root = photos(16);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let mut greeting = b"infeed\0w".to_vec();
    greeting.extend(infeed::wire::VERSION.to_le_bytes());
    greeting.extend([7; 32]);
    let behind = |bytes: &[u8]| [&greeting[..], bytes].concat();
    let mut endless = Vec::new();
    frame::write(&mut endless, Kind::Hello, &[0; 1000]).expect("memory takes it");
    endless[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut unproven = Vec::new();
    frame::write(&mut unproven, Kind::Hello, &[0; 1000]).expect("memory takes it");
    let mut asking_first = Vec::new();
    frame::write(&mut asking_first, Kind::Ask, &[0; 16]).expect("memory takes it");

    for said in [
        b"GET / HTTP/1.1\r\nHost: feeder\r\nAccept: */*\r\n\r\n".to_vec(),
        vec![0xff; 10_000],
        behind(&[0xff; 10_000]),
        behind(&endless),
        behind(&unproven),
        behind(&asking_first),
    ] {
        assert!(is_cut_off(&feeder, &said));
    }

    let loader = open(&pipeline, &asking([host(&feeder)], Local::Fallback));
    assert!(epochs(&loader, 1) == locally(&pipeline, &Options::default(), 1));
}

#[test]
fn a_trainer_outlives_a_feeder_that_lies() {
    let root = photos(24);
    let pipeline = pipeline(root.path());
    let expected = locally(&pipeline, &Options::default(), 2);
    for lie in 0..5_u8 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket");
        let done = Done(AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.0.load(Ordering::SeqCst) {
                    match listener.accept() {
                        Ok((stream, _)) => lie_to(&stream, lie),
                        Err(_) => std::thread::sleep(Duration::from_millis(5)),
                    }
                }
            });
            let ended = Ends(&done);
            let loader = open(&pipeline, &hurried([address.to_string()], Local::Help));
            let begun = Instant::now();
            let found = epochs(&loader, 2);
            drop(loader);
            drop(ended);
            assert!(found == expected, "lie {lie}");
            assert!(begun.elapsed() < Duration::from_secs(60));
        });
    }
}

/// Whether a listener is to end.
struct Done(AtomicBool);

/// Ends it when dropped, by a panic too.
struct Ends<'a>(&'a Done);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}

/// Shakes hands as a feeder does, and sends what no feeder sends.
fn lie_to(stream: &TcpStream, lie: u8) {
    stream.set_nonblocking(false).expect("a socket");
    let wait = Some(Duration::from_secs(5));
    stream.set_read_timeout(wait).expect("a socket");
    let Ok(met) = hello::meet_trainer(stream, &token()) else {
        return;
    };
    if hello::welcome(stream, &token(), &met).is_err() {
        return;
    }
    let mut from = stream;
    let Ok((_, body)) = frame::control(&mut from, &[Kind::Ask, Kind::Here]) else {
        return;
    };
    let mut answer = Vec::new();
    let kind = Kind::Rows;
    let wrote = match lie {
        // Another batch than was asked for.
        0 => frame::write(&mut answer, kind, &[9; 64]),
        // The right one, with as many rows as there are not.
        1 => frame::write(&mut answer, kind, &[&body[..], &[255; 64]].concat()),
        // Its rows, each left out.
        2 => frame::write(
            &mut answer,
            kind,
            &[&body[..], &[4, 0, 0, 0, 0, 0, 0, 0]].concat(),
        ),
        // A frame that never may come here.
        3 => frame::write(&mut answer, Kind::Welcome, &[]),
        // No frame.
        _ => {
            answer = vec![0xee; 5000];
            Ok(())
        }
    };
    wrote.expect("memory takes it");
    let mut to = stream;
    let _ = to.write_all(&answer);
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn the_kept_seeds_of_the_fuzz_target_are_read_without_harm() {
    use infeed::wire::rows::{Column, Layout, RowsHead};

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/wire");
    let layout = Layout {
        columns: vec![
            Column::Slab { row_bytes: 12 },
            Column::Own {
                rank: Some(2),
                element: 4,
            },
            Column::Own {
                rank: None,
                element: 1,
            },
        ],
        pixels: true,
        row_bytes: 1 << 16,
    };
    let read = |name: &str| std::fs::read(folder.join(name)).expect("it is kept");
    let parsed = |bytes: &[u8]| {
        let mut frames = 0;
        let mut from = bytes;
        while let Ok(head) = frame::head(&mut from, |_| frame::CONTROL_BYTES) {
            if frame::body(&mut from, head).is_err() {
                break;
            }
            frames += 1;
        }
        let rows = RowsHead::decode(bytes, &layout, 3).is_ok();
        (Hello::decode(bytes).is_ok(), rows, frames)
    };

    assert_eq!(parsed(&read("hello")[1..]), (true, false, 0));
    assert_eq!(parsed(&read("rows")[1..]), (false, true, 0));
    assert_eq!(parsed(&read("frames")[1..]), (false, false, 3));
    assert_eq!(parsed(&read("absurd_length")[1..]), (false, false, 0));
}
