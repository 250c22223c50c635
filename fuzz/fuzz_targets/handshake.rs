//! The handshake of trainer and feeder, with a peer that sends any bytes and knows no token.
#![no_main]

use std::io::{self, Read, Write};

use infeed_feed::wire::VERSION;
use infeed_feed::wire::channel::UNENCRYPTED;
use infeed_feed::wire::frame::{self, Kind};
use infeed_feed::wire::hello::{Fact, Hello, accept_trainer, difference, greet};
use infeed_feed::wire::token::Token;
use libfuzzer_sys::fuzz_target;

/// A peer that has sent these bytes.
struct Peer<'a>(&'a [u8]);

impl Read for Peer<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const KINDS: [Kind; 4] = [Kind::Hello, Kind::Welcome, Kind::Refused, Kind::Request];

/// A greeting of this version, and a whole frame.
fn greeting(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"infeed\0w".to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([7; 32]);
    frame::write(&mut bytes, kind, body).expect("writes to memory");
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else {
        return;
    };
    let whole = greeting(KINDS[usize::from(first) % KINDS.len()], rest);
    let token = Token::new("0123456789abcdef0123456789abcdef").expect("a token");
    let own = Hello::decode(&[0; 52]).expect("a hello without facts");
    for sent in [bytes, &whole] {
        let peer = accept_trainer(Peer(sent), &token, UNENCRYPTED);
        assert!(peer.is_err(), "a trainer without the token");
        let peer = greet(Peer(sent), &token, UNENCRYPTED, &own, || ());
        assert!(peer.is_err(), "a feeder without the token");
    }
    let Ok(hello) = Hello::decode(rest) else {
        return;
    };
    let changed = |fact: &Fact| Fact {
        name: fact.name.clone(),
        value: "1:2 3..4:-".to_owned(),
    };
    let _ = difference(
        &hello.facts,
        &hello.facts.iter().map(changed).collect::<Vec<_>>(),
    );
});
