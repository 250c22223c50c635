//! Encrypted connections over loopback, with an attacker in the middle.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use super::*;
use crate::wire::hello::{self, Hello, Policy};
use crate::wire::socket::Socket;
use crate::wire::token::Token;
use infeed::loader::remote::RecordLimits;

const WAIT: Duration = Duration::from_secs(10);

fn token() -> Token {
    Token::new("0123456789abcdef").expect("long enough")
}

fn hello() -> Hello {
    Hello {
        facts: vec![hello::Fact {
            name: "data".to_owned(),
            value: "a fact that only the two sides may read".to_owned(),
        }],
        rank: 0,
        world_size: 1,
        for_device: false,
        policy: Policy::Stop,
        pixels: false,
        limits: RecordLimits::NONE,
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Accepts a trainer like a feeder.
fn feed(listener: &TcpListener) -> Result<Channel, WireError> {
    let (stream, _) = listener.accept()?;
    let plain = Channel::plain(stream);
    assert_eq!(
        Socket::new(&plain, WAIT, &|_| false)?.peek()?,
        TLS_HANDSHAKE
    );
    let channel = Channel::accept(plain.into_stream(), &FeederKey::new()?)?;
    let socket = Socket::new(&channel, WAIT, &|_| false)?;
    let binding = socket.shake()?;
    let peer = hello::accept_trainer(&socket, &token(), binding)?;
    hello::welcome(&socket, &token(), &peer)?;
    Ok(channel)
}

/// Connects to a feeder like a trainer.
fn train(address: SocketAddr) -> Result<Channel, WireError> {
    let channel = Channel::connect(TcpStream::connect(address)?)?;
    let socket = Socket::new(&channel, WAIT, &|_| false)?;
    let binding = socket.shake()?;
    hello::greet(&socket, &token(), binding, &hello(), || ())?;
    Ok(channel)
}

#[test]
fn bytes_arrive_unchanged_in_both_directions_at_once() {
    let (listener, address) = listen();
    let sent: Vec<u8> = (0..3_000_000_u32)
        .map(|n| (n.wrapping_mul(n) / 7) as u8)
        .collect();
    let feeder = thread::spawn(move || feed(&listener).expect("a trainer"));
    let trainer = train(address).expect("a feeder");
    let feeder = feeder.join().expect("no panic");

    let talk = |channel: &Channel| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let socket = Socket::new(channel, WAIT, &|_| false).expect("a socket");
                (&socket).write_all(&sent).expect("it is sent");
            });
            let socket = Socket::new(channel, WAIT, &|_| false).expect("a socket");
            let mut received = vec![0; sent.len()];
            (&socket).read_exact(&mut received).expect("it comes");
            assert!(received == sent);
        });
    };
    thread::scope(|scope| {
        scope.spawn(|| talk(&trainer));
        talk(&feeder);
    });

    drop(feeder);
    let socket = Socket::new(&trainer, WAIT, &|_| false).expect("a socket");
    assert_eq!((&socket).read(&mut [0; 9]).expect("the end"), 0);
}

/// Copies bytes between two connections, and keeps a copy.
fn tap(from: TcpStream, to: TcpStream) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let (mut from, mut to, mut seen) = (from, to, Vec::new());
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut part) {
            seen.extend_from_slice(&part[..read]);
            if to.write_all(&part[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
        seen
    })
}

#[test]
fn messages_cannot_be_read_on_the_network() {
    let (listener, feeder_at) = listen();
    let (middle, middle_at) = listen();
    let feeder = thread::spawn(move || feed(&listener));
    let trainer = thread::spawn(move || train(middle_at));

    let (trainers, _) = middle.accept().expect("the trainer");
    let feeders = TcpStream::connect(feeder_at).expect("the feeder");
    let copy = |stream: &TcpStream| stream.try_clone().expect("a socket");
    let there = tap(copy(&trainers), copy(&feeders));
    let back = tap(feeders, trainers);
    let trainer = trainer.join().expect("no panic").expect("both agree");
    let feeder = feeder.join().expect("no panic").expect("both agree");
    assert!(trainer.is_encrypted() && feeder.is_encrypted());
    drop((trainer, feeder));

    for seen in [there.join(), back.join()] {
        let seen = seen.expect("no panic");
        assert!(seen.len() > 100);
        for secret in [&b"infeed\0w"[..], b"only the two sides may read"] {
            assert!(!seen.windows(secret.len()).any(|part| part == secret));
        }
    }
}

#[test]
fn both_sides_detect_an_attacker_in_the_middle() {
    let (listener, feeder_at) = listen();
    let (middle, middle_at) = listen();
    let feeder = thread::spawn(move || feed(&listener).map(drop));
    let trainer = thread::spawn(move || train(middle_at).map(drop));

    // The attacker runs a handshake with each side and forwards their messages.
    let (stream, _) = middle.accept().expect("the trainer");
    let own = FeederKey::new().expect("random numbers");
    let trainers = Channel::accept(stream, &own).expect("TLS");
    let feeders = TcpStream::connect(feeder_at).expect("the feeder");
    let feeders = Channel::connect(feeders).expect("TLS");
    for channel in [&trainers, &feeders] {
        let socket = Socket::new(channel, WAIT, &|_| false).expect("a socket");
        socket.shake().expect("anyone may shake hands");
    }
    let hand_on = |from: &Channel, to: &Channel| {
        let from = Socket::new(from, WAIT, &|_| false).expect("a socket");
        let to = Socket::new(to, WAIT, &|_| false).expect("a socket");
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = (&from).read(&mut part) {
            if (&to).write_all(&part[..read]).is_err() {
                break;
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| hand_on(&trainers, &feeders));
        hand_on(&feeders, &trainers);
        let _ = trainers.stream().shutdown(std::net::Shutdown::Both);
        let _ = feeders.stream().shutdown(std::net::Shutdown::Both);
    });

    let at_feeder = feeder.join().expect("no panic").expect_err("no MAC of it");
    assert!(at_feeder.to_string().contains("token"), "{at_feeder}");
    let at_trainer = trainer.join().expect("no panic").expect_err("no MAC of it");
    assert!(matches!(at_trainer, WireError::Unproven(_)), "{at_trainer}");
}

#[test]
fn a_changed_byte_ends_an_encrypted_connection() {
    let (listener, feeder_at) = listen();
    let (middle, middle_at) = listen();
    let feeder = thread::spawn(move || feed(&listener).expect("a trainer"));
    let trainer = thread::spawn(move || train(middle_at).expect("a feeder"));
    let (trainers, _) = middle.accept().expect("the trainer");
    let feeders = TcpStream::connect(feeder_at).expect("the feeder");
    let copy = |stream: &TcpStream| stream.try_clone().expect("a socket");
    let _there = tap(copy(&trainers), copy(&feeders));
    let changed = copy(&trainers);
    let back = tap(feeders, trainers);
    let (trainer, feeder) = (trainer.join(), feeder.join());
    let (trainer, _feeder) = (trainer.expect("no panic"), feeder.expect("no panic"));

    // A record that no key of this session encrypted.
    (&changed).write_all(&[23, 3, 3, 0, 32]).expect("sent");
    (&changed).write_all(&[7; 32]).expect("sent");

    let socket = Socket::new(&trainer, WAIT, &|_| false).expect("a socket");
    let error = (&socket).read(&mut [0; 9]).expect_err("it is changed");
    assert!(error.to_string().contains("encryption failed"), "{error}");
    drop((trainer, back));
}

#[test]
fn only_loopback_connections_are_unencrypted_by_default() {
    let applies = |encryption: Encryption, peer: &str| {
        encryption.applies_to(peer.parse().expect("an address"))
    };

    for loopback in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
        assert!(!applies(Encryption::default(), loopback), "{loopback}");
        assert!(applies(Encryption::Always, loopback), "{loopback}");
    }
    for remote in ["10.0.0.7", "::ffff:10.0.0.7", "fe80::1", "0.0.0.0"] {
        assert!(applies(Encryption::default(), remote), "{remote}");
        assert!(!applies(Encryption::Never, remote), "{remote}");
    }
}
