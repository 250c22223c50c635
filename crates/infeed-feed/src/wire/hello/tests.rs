//! Handshakes over loopback, also with dishonest peers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::super::channel::UNENCRYPTED;
use super::*;

fn token() -> Token {
    Token::new("0123456789abcdef").expect("long enough")
}

fn fact(name: &str, value: &str) -> Fact {
    let (name, value) = (name.to_owned(), value.to_owned());
    Fact { name, value }
}

fn hello() -> Hello {
    Hello {
        facts: vec![fact("data", "00ff"), fact("seed", "7")],
        rank: 1,
        world_size: 2,
        for_device: false,
        policy: Policy::Skip,
        pixels: true,
        limits: RecordLimits::NONE,
    }
}

/// Returns the results of a trainer and a feeder.
fn shake(
    trainer: impl FnOnce(TcpStream) -> Result<(), WireError> + Send + 'static,
    feeder: impl FnOnce(TcpStream) -> Result<(), WireError>,
) -> (Result<(), WireError>, Result<(), WireError>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let trainer = thread::spawn(move || trainer(TcpStream::connect(address).expect("listens")));
    let (stream, _) = listener.accept().expect("it comes");
    let feeder_result = feeder(stream);
    (trainer.join().expect("no panic"), feeder_result)
}

#[test]
fn a_trainer_with_the_token_is_accepted_with_its_message() {
    let (trainer, feeder) = shake(
        |stream| greet(&stream, &token(), UNENCRYPTED, &hello(), || ()),
        |stream| {
            let peer = accept_trainer(&stream, &token(), UNENCRYPTED)?;
            assert_eq!(peer.hello, hello());
            welcome(&stream, &token(), &peer)
        },
    );

    assert!(trainer.is_ok() && feeder.is_ok());
}

#[test]
fn both_sides_report_a_wrong_token() {
    let other = || Token::new("another token that is long").expect("long enough");
    for (trainer, feeder) in [
        (other(), token()),
        (Token::default(), token()),
        (token(), Token::default()),
    ] {
        let (trainer_result, feeder_result) = shake(
            move |stream| greet(&stream, &trainer, UNENCRYPTED, &hello(), || ()),
            |stream| accept_trainer(&stream, &feeder, UNENCRYPTED).map(drop),
        );
        for result in [trainer_result, feeder_result] {
            let error = result.expect_err("refused").to_string();
            assert!(error.contains("token differs"), "{error}");
        }
    }
}

#[test]
fn an_answer_without_the_token_is_rejected() {
    let (trainer, _) = shake(
        |stream| greet(&stream, &token(), UNENCRYPTED, &hello(), || ()),
        |mut stream| {
            stream.write_all(&preamble(VERSION, &[7; NONCE_BYTES]))?;
            let mut bytes = [0; 8 + 4 + NONCE_BYTES];
            stream.read_exact(&mut bytes)?;
            frame::control(&mut stream, &[Kind::Hello])?;
            // Echoes the message, like a peer that only repeats.
            frame::write(&mut stream, Kind::Welcome, &[0; MAC_BYTES])
        },
    );

    let error = trainer.expect_err("no MAC of it").to_string();
    assert!(error.contains("token differs"), "{error}");
}

#[test]
fn a_refusal_counts_only_from_a_feeder_with_the_token() {
    let refusal = || Refusal {
        what: "data".to_owned(),
        trainer: "00ff".to_owned(),
        feeder: "00fe".to_owned(),
    };
    let (trainer, _) = shake(
        |stream| greet(&stream, &token(), UNENCRYPTED, &hello(), || ()),
        |stream| {
            let peer = accept_trainer(&stream, &token(), UNENCRYPTED)?;
            refuse(&stream, &token(), &peer, &refusal())
        },
    );
    match trainer {
        Err(WireError::Refused(received)) => assert_eq!(received, refusal()),
        other => panic!("{other:?}"),
    }

    // An impostor that sends the same answer to every trainer, and one that claims another version.
    let (trainer, _) = shake(
        |stream| greet(&stream, &token(), UNENCRYPTED, &hello(), || ()),
        |mut stream| {
            stream.write_all(&preamble(VERSION, &[7; NONCE_BYTES]))?;
            read_greeting(&mut stream, Speaker::Feeder)?;
            frame::control(&mut stream, &[Kind::Hello])?;
            write_refusal(&stream, &[9; MAC_BYTES], &refusal())
        },
    );
    assert!(
        matches!(trainer, Err(WireError::Unproven(_))),
        "{trainer:?}"
    );
    let (trainer, _) = shake(
        |stream| greet(&stream, &token(), UNENCRYPTED, &hello(), || ()),
        |mut stream| Ok(stream.write_all(&preamble(VERSION + 1, &[7; NONCE_BYTES]))?),
    );
    assert!(
        matches!(trainer, Err(WireError::Unproven(_))),
        "{trainer:?}"
    );
}

#[test]
fn another_version_is_reported_before_any_other_message() {
    let (trainer, feeder) = shake(
        |mut stream| {
            stream.write_all(&preamble(VERSION + 1, &[7; NONCE_BYTES]))?;
            read_greeting(&mut stream, Speaker::Trainer).map(drop)
        },
        |stream| accept_trainer(&stream, &token(), UNENCRYPTED).map(drop),
    );

    assert!(trainer.is_ok(), "it can read which version this is");
    let error = feeder.expect_err("refused").to_string();
    let versions = format!(
        "version {} at the trainer, version {VERSION} at the feeder",
        VERSION + 1
    );
    assert!(
        error.contains("protocol") && error.contains(&versions),
        "{error}"
    );
    let (trainer, _) = shake(
        |stream| greet(&stream, &token(), UNENCRYPTED, &hello(), || ()),
        |mut stream| Ok(stream.write_all(&preamble(VERSION + 1, &[7; NONCE_BYTES]))?),
    );
    let error = trainer.expect_err("refused").to_string();
    let versions = format!(
        "version {VERSION} at the trainer, version {} at the feeder",
        VERSION + 1
    );
    assert!(error.contains(&versions), "{error}");
    let (_, feeder) = shake(
        |mut stream| Ok(stream.write_all(&[b'G'; 44])?),
        |stream| accept_trainer(&stream, &token(), UNENCRYPTED).map(drop),
    );
    let error = feeder.expect_err("refused").to_string();
    assert!(error.contains("not an infeed greeting"), "{error}");
}

#[test]
fn a_closed_connection_is_reported() {
    let end = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);

    let error = WireError::from(end).to_string();

    assert!(error.contains("the peer closed it"), "{error}");
}

#[test]
fn a_difference_is_reported_with_both_values_and_a_fix() {
    let own = [fact("data", "00fe"), fact("seed", "7")];

    let refusal = difference(&hello().facts, &own).expect("other data");

    assert_eq!(refusal.what, "data");
    let text = Refusal::decode(&refusal.encode())
        .expect("its own")
        .to_string();
    for part in ["00ff at the trainer", "00fe at the feeder", "same data"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(difference(&hello().facts, &hello().facts), None);
    let more = [fact("bits", "1")];
    assert_eq!(
        difference(&hello().facts, &more).expect("not said").trainer,
        "unknown"
    );
}

#[test]
fn a_hello_round_trips_and_damaged_ones_never_panic() {
    let bytes = hello().encode();

    assert_eq!(Hello::decode(&bytes).expect("its own"), hello());
    for end in 0..bytes.len() {
        assert!(Hello::decode(&bytes[..end]).is_err());
    }
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        // Any result but a panic.
        let _ = Hello::decode(&changed);
    }
}
