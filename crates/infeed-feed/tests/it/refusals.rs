//! Connections that a feeder or a trainer rejects, and hostile bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use infeed::loader::remote::RecordLimits;
use infeed::{Error, Options};
use infeed_feed::Local;
use infeed_feed::wire::channel::{Encryption, UNENCRYPTED};
use infeed_feed::wire::frame::{self, Kind};
use infeed_feed::wire::hello::{self, Hello, Policy};
use infeed_feed::wire::token::Token;
use infeed_feed::{FeedOptions, serve};

use super::*;
use crate::data::photos;

/// Returns the error of opening a pipeline with this feeder.
fn open_error(pipeline: &Pipeline, options: &Options) -> String {
    let error = pipeline.open(options).expect_err("it is refused");
    assert!(matches!(error, Error::Config { .. }), "{error}");
    error.to_string()
}

#[test]
fn differences_between_trainer_and_feeder_are_named_when_the_pipeline_opens() {
    let (root, other) = (photos(16), photos(18));
    let base = pipeline(root.path());
    let feeder = feeder(&base);
    let options = options_for([host(&feeder)], Local::Help);

    let text = open_error(&pipeline(other.path()), &options);
    assert!(text.contains("`data` differs"), "{text}");
    let text = open_error(&base.clone().shuffle(6), &options);
    assert!(
        text.contains("`seed` differs: 6 at the trainer, 5"),
        "{text}"
    );
    let text = open_error(&base.clone().batch(8), &options);
    assert!(text.contains("`batch` differs: 8 rows"), "{text}");
    let text = open_error(
        &base
            .clone()
            .transform(infeed_codec::transform::RandomErasing::new(0.5)),
        &options,
    );
    assert!(text.contains("`description` differs"), "{text}");
    let reported = feeder.stats();
    assert!(reported.refused >= 4, "{reported:?}");
    assert!(reported.problem.is_some());

    // A trainer with an equal description is still served.
    let loader = open(&base, &options);
    assert!(epochs(&loader, 1) == locally(&base, &options, 1));
}

#[test]
fn another_version_of_infeed_or_other_bits_are_rejected() {
    let root = photos(16);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let says = |name: &str, value: &str| {
        let stream = TcpStream::connect(feeder.address()).expect("it listens");
        // The feeder's rejections reveal its other facts one by one.
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
                limits: RecordLimits::NONE,
            };
            let refusal = match hello::greet(&stream, &token(), UNENCRYPTED, &hello, || ()) {
                Err(infeed_feed::wire::WireError::Refused(refusal)) => refusal,
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
                return hello::greet(&stream, &token(), UNENCRYPTED, &hello, || ())
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
    assert!(version.contains("install the same version"), "{version}");
    let bits = says("bits", "0123456789abcdef");
    assert!(bits.contains("`bits` differs"), "{bits}");
}

#[test]
fn a_public_address_needs_a_token_and_without_encryption_logs_a_warning() {
    let root = photos(8);
    let pipeline = pipeline(root.path());
    let mut options = FeedOptions::default();
    options.listen = "0.0.0.0:0".to_owned();

    let error = serve(&pipeline, &[], &options)
        .expect_err("no token")
        .to_string();
    assert!(error.contains("set a token"), "{error}");

    options.token = token();
    assert!(
        serve(&pipeline, &[], &options)
            .expect("feeds")
            .notices()
            .is_empty()
    );
    options.encryption = Encryption::Never;
    let feeder = serve(&pipeline, &[], &options).expect("feeds");
    assert!(feeder.notices()[0].contains("encryption is off"));
    let here = format!("127.0.0.1:{}", feeder.address().port());
    let loader = open(&pipeline, &options_for([here], Local::Help));
    assert_eq!(epochs(&loader, 1).len(), 2);
}

#[test]
fn invalid_options_are_rejected_before_any_connection() {
    let root = photos(8);
    let base = pipeline(root.path());
    let none: [String; 0] = [];

    let text = open_error(&base, &options_for(none, Local::Help));
    assert!(text.contains("no feeder address"), "{text}");

    let mut options = FeedOptions::default();
    options.listen = "nowhere".to_owned();
    let text = serve(&base, &[], &options)
        .expect_err("invalid address")
        .to_string();
    assert!(text.contains("listen"), "{text}");
    options.listen = "127.0.0.1:0".to_owned();
    let gone = pipeline(&root.path().join("gone"));
    assert!(serve(&gone, &[], &options).is_err());
}

/// Opens with feeders that prove nothing, and checks that local workers make all batches.
fn runs_alone(base: &Pipeline, options: &Options, problem: &str) {
    let loader = open(base, options);
    assert!(epochs(&loader, 1) == locally(base, options, 1));
    let feeder_stats = &stats(&loader)[0];
    let text = feeder_stats.problem.as_deref().unwrap_or_default();
    assert!(
        !feeder_stats.connected && text.contains(problem),
        "{feeder_stats:?}"
    );
}

#[test]
fn a_refusal_without_the_token_is_a_failed_attempt_and_not_the_end() {
    let root = photos(16);
    let base = pipeline(root.path());
    let feeder = feeder(&base);
    let mut wrong = feeders_at([host(&feeder)], Local::Fallback);
    wrong.token = Token::new("another token than theirs").expect("long enough");
    runs_alone(&base, &options_with(wrong), "token differs");

    // An impostor at the feeder's address, which claims that the data differ.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let mut preamble = b"infeed\0w".to_vec();
            preamble.extend(infeed_feed::wire::VERSION.to_le_bytes());
            preamble.extend([7; 32]);
            let _ = (&stream).write_all(&preamble);
            let _ = (&stream).read_exact(&mut [0; 44]);
            let _ = frame::control(&mut &stream, &[Kind::Hello]);
            let mut body = vec![0; 32];
            for text in ["data", "00", "ff"] {
                body.extend((text.len() as u16).to_le_bytes());
                body.extend(text.as_bytes());
            }
            let _ = frame::write(&mut &stream, Kind::Refused, &body);
        }
    });
    runs_alone(
        &base,
        &options_for([address], Local::Fallback),
        "`data` differs",
    );
}

#[test]
fn a_feeder_that_requires_encryption_rejects_unencrypted_trainers() {
    let root = photos(16);
    let base = pipeline(root.path());
    let mut options = FeedOptions::default();
    (options.token, options.workers) = (token(), Some(2));
    options.encryption = Encryption::Always;
    let feeder = serve(&base, &[], &options).expect("feeds");

    let text = open_error(&base, &options_for([host(&feeder)], Local::Fallback));
    assert!(
        text.contains("`encryption` differs: off at the trainer, required at the feeder"),
        "{text}"
    );

    let mut encrypted = feeders_at([host(&feeder)], Local::Fallback);
    encrypted.encryption = Encryption::Always;
    let encrypted = options_with(encrypted);
    let loader = open(&base, &encrypted);
    assert!(epochs(&loader, 2) == locally(&base, &encrypted, 2));
    let feeder_stats = &stats(&loader)[0];
    assert!(
        feeder_stats.connected && feeder_stats.batches > 0,
        "{feeder_stats:?}"
    );
}

#[test]
fn idle_connections_keep_no_trainer_with_the_token_away() {
    let root = photos(16);
    let base = pipeline(root.path());
    let feeder = feeder(&base);
    let connect = |_| TcpStream::connect(feeder.address()).expect("it listens");
    let mut idle: Vec<TcpStream> = (0..500).map(connect).collect();
    // Some begin a handshake, encrypted or not, and stop halfway.
    for (number, stream) in idle.iter_mut().enumerate() {
        let _ = match number % 3 {
            0 => stream.write_all(b"infeed\0w"),
            1 => stream.write_all(&[22, 3, 1, 2]),
            _ => Ok(()),
        };
    }

    let loader = open(&base, &options_for([host(&feeder)], Local::Fallback));
    let found = epochs(&loader, 1);

    let feeder_stats = &stats(&loader)[0];
    assert!(
        feeder_stats.connected && feeder_stats.batches > 0,
        "{feeder_stats:?}"
    );
    assert!(found == locally(&base, &Options::default(), 1));
    assert_eq!(
        feeder.stats().sessions,
        1,
        "only trainers that proved the token count"
    );
}

/// Whether the feeder closes a connection on which these bytes are sent.
fn is_closed_after(feeder: &Feeder, bytes: &[u8]) -> bool {
    let mut stream = TcpStream::connect(feeder.address()).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a socket");
    // The feeder may have closed the connection before all bytes were sent.
    let _ = stream.write_all(bytes);
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::WouldBlock && error.kind() != ErrorKind::TimedOut,
    }
}

#[test]
fn a_feeder_survives_invalid_messages() {
    let root = photos(16);
    let pipeline = pipeline(root.path());
    let feeder = feeder(&pipeline);
    let mut greeting = b"infeed\0w".to_vec();
    greeting.extend(infeed_feed::wire::VERSION.to_le_bytes());
    greeting.extend([7; 32]);
    let behind = |bytes: &[u8]| [&greeting[..], bytes].concat();
    let mut endless = Vec::new();
    frame::write(&mut endless, Kind::Hello, &[0; 1000]).expect("memory takes it");
    endless[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut unproven = Vec::new();
    frame::write(&mut unproven, Kind::Hello, &[0; 1000]).expect("memory takes it");
    let mut early_request = Vec::new();
    frame::write(&mut early_request, Kind::Request, &[0; 16]).expect("memory takes it");

    for message in [
        b"GET / HTTP/1.1\r\nHost: feeder\r\nAccept: */*\r\n\r\n".to_vec(),
        vec![0xff; 10_000],
        behind(&[0xff; 10_000]),
        behind(&endless),
        behind(&unproven),
        behind(&early_request),
    ] {
        assert!(is_closed_after(&feeder, &message));
    }

    let loader = open(&pipeline, &options_for([host(&feeder)], Local::Fallback));
    assert!(epochs(&loader, 1) == locally(&pipeline, &Options::default(), 1));
}

#[test]
fn a_trainer_survives_a_feeder_that_sends_wrong_data() {
    let root = photos(24);
    let pipeline = pipeline(root.path());
    let expected = locally(&pipeline, &Options::default(), 2);
    for lie in 0..5_u8 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket");
        let done = StopFlag(AtomicBool::new(false));
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
            let loader = open(
                &pipeline,
                &with_short_deadline([address.to_string()], Local::Help),
            );
            let found = epochs(&loader, 2);
            drop(loader);
            drop(ended);
            assert!(found == expected, "lie {lie}");
        });
    }
}

/// Whether a listener has to end.
struct StopFlag(AtomicBool);

/// Ends the listener on drop, also after a panic.
struct Ends<'a>(&'a StopFlag);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}

/// Runs a feeder's handshake, and then sends messages that no feeder sends.
fn lie_to(stream: &TcpStream, lie: u8) {
    stream.set_nonblocking(false).expect("a socket");
    let wait = Some(Duration::from_secs(5));
    stream.set_read_timeout(wait).expect("a socket");
    let Ok(peer) = hello::accept_trainer(stream, &token(), UNENCRYPTED) else {
        return;
    };
    if hello::welcome(stream, &token(), &peer).is_err() {
        return;
    }
    let mut from = stream;
    let Ok((_, body)) = frame::control(&mut from, &[Kind::Request, Kind::KeepAlive]) else {
        return;
    };
    let mut answer = Vec::new();
    let kind = Kind::Rows;
    let wrote = match lie {
        // A batch that was not requested.
        0 => frame::write(&mut answer, kind, &[9; 64]),
        // The requested batch with a wrong number of rows.
        1 => frame::write(&mut answer, kind, &[&body[..], &[255; 64]].concat()),
        // All rows of the batch skipped.
        2 => frame::write(
            &mut answer,
            kind,
            &[&body[..], &[4, 0, 0, 0, 0, 0, 0, 0]].concat(),
        ),
        // A frame that is invalid here.
        3 => frame::write(&mut answer, Kind::Welcome, &[]),
        // Bytes that are no frame.
        _ => {
            answer = vec![0xee; 5000];
            Ok(())
        }
    };
    wrote.expect("memory takes it");
    let mut to = stream;
    let _ = to.write_all(&answer);
    // An earlier end of the connection could discard bytes that the trainer has not read.
    let _ = from.read_to_end(&mut Vec::new());
}

#[test]
fn the_kept_seeds_of_the_fuzz_target_are_read_without_harm() {
    use infeed_feed::wire::rows::{ColumnLayout, RowsHead, RowsLayout};

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/wire");
    let layout = RowsLayout {
        columns: vec![
            ColumnLayout::Slab { row_bytes: 12 },
            ColumnLayout::Own {
                rank: Some(2),
                element: 4,
            },
            ColumnLayout::Own {
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
