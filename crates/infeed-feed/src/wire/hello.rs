//! The handshake: both sides prove that they know the token, and the trainer describes its run.
//!
//! | | trainer | | feeder |
//! |---|---|---|---|
//! | 1 | magic, version, a random number | → | |
//! | 2 | | ← | the same |
//! | 3 | `Hello`: MAC, facts, terms | → | checks the MAC before anything after it |
//! | 4 | | ← | `Welcome`: MAC; or `Refused`: MAC, the difference |
//!
//! A fact is a text that must be equal on both sides, such as the fingerprint of the data. A
//! refusal with a wrong MAC comes from a side without the token and proves nothing to the trainer.

use std::io::{Read, Write};

use super::bytes::{Put, Take};
use super::channel::Binding;
use super::content_hashes;
use super::error::WireError;
use super::frame::{self, Kind};
use super::token::{Conversation, MAC_BYTES, NONCE_BYTES, Nonce, Speaker, Token, nonce};
use infeed::loader::remote::RecordLimits;

pub use super::refusal::{CONTENTS, Refusal};

/// Version of the protocol; both sides need the same.
pub const VERSION: u32 = 3;

const MAGIC: [u8; 8] = *b"infeed\0w";

/// Prefixes of the feeder's answers in their MACs.
const WELCOME: &[u8] = b"welcome";
const REFUSED: &[u8] = b"refused";

/// Maximum number of facts.
const FACTS: usize = 32;
/// Maximum lengths in bytes of a fact's name and value.
const NAME_BYTES: usize = 64;
const VALUE_BYTES: usize = 2048;

/// A property on which both sides must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Name, such as `data` or `seed`.
    pub name: String,
    /// Value as text.
    pub value: String,
}

/// Policy for a bad record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The trainer makes the batch itself and stops there.
    Stop,
    /// Another record takes its place.
    Substitute,
    /// Its row is skipped.
    Skip,
}

/// The trainer's message in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Facts that identify the run.
    pub facts: Vec<Fact>,
    /// Rank of the trainer.
    pub rank: u64,
    /// Number of ranks.
    pub world_size: u64,
    /// Whether rows have the layout for a device that expands them.
    pub for_device: bool,
    /// Policy for bad records.
    pub policy: Policy,
    /// Whether the feeder hashes rows.
    pub pixels: bool,
    /// The trainer's limits.
    pub limits: RecordLimits,
}

/// Returns the first fact that differs from the feeder's own.
pub fn difference(trainer: &[Fact], feeder: &[Fact]) -> Option<Refusal> {
    feeder.iter().find_map(|own| {
        let theirs = trainer.iter().find(|fact| fact.name == own.name);
        let theirs = theirs.map_or("unknown", |fact| fact.value.as_str());
        let (trainer, feeder) = match own.name.as_str() {
            CONTENTS => content_hashes::difference(theirs, &own.value)?,
            _ if theirs == own.value => return None,
            _ => (theirs.to_owned(), own.value.clone()),
        };
        let what = own.name.clone();
        Some(Refusal {
            what,
            trainer,
            feeder,
        })
    })
}

/// Runs the trainer's side of the handshake; `binding` is the connection's. Calls `wait` before it
/// waits for the answer, for which the feeder may open a pipeline.
///
/// # Errors
///
/// [`WireError::Refused`] with the difference, from a feeder that proved the token;
/// [`WireError::Unproven`] if the other side did not prove it; or the connection's errors.
pub fn greet<S>(
    mut stream: S,
    token: &Token,
    binding: Binding,
    hello: &Hello,
    wait: impl FnOnce(),
) -> Result<(), WireError>
where
    S: Read + Write,
{
    let trainer = nonce()?;
    stream.write_all(&preamble(VERSION, &trainer))?;
    stream.flush()?;
    let feeder = read_greeting(&mut stream, Speaker::Trainer).map_err(unproven)?;
    let within = Conversation {
        trainer,
        feeder,
        binding,
    };
    let text = hello.encode();
    let mac = token.mac(Speaker::Trainer, &within, &text);
    frame::write(&mut stream, Kind::Hello, &[&mac[..], &text].concat())?;
    stream.flush()?;
    wait();
    let (kind, body) = frame::control(&mut stream, &[Kind::Welcome, Kind::Refused])?;
    let (mac, text) = split(&body);
    let proven = |message: &[u8]| token.verifies(Speaker::Feeder, &within, message, mac);
    match kind {
        Kind::Welcome if proven(WELCOME) => Ok(()),
        Kind::Welcome => Err(WireError::Unproven(wrong_token())),
        _ => {
            let refused = WireError::Refused(Refusal::decode(text)?);
            Err(match proven(&[REFUSED, text].concat()) {
                true => refused,
                false => unproven(refused),
            })
        }
    }
}

/// A trainer that proved the token and waits for the answer.
#[derive(Debug)]
pub struct VerifiedTrainer {
    /// The trainer's message.
    pub hello: Hello,
    within: Conversation,
}

/// Runs the feeder's side of the handshake up to the answer; `binding` is the connection's.
///
/// # Errors
///
/// The reason for rejecting the trainer, which was sent to it; or the connection's errors.
pub fn accept_trainer<S>(
    mut stream: S,
    token: &Token,
    binding: Binding,
) -> Result<VerifiedTrainer, WireError>
where
    S: Read + Write,
{
    let feeder = nonce()?;
    // Sent first, so that a trainer with another version learns the feeder's version.
    stream.write_all(&preamble(VERSION, &feeder))?;
    stream.flush()?;
    let trainer = read_greeting(&mut stream, Speaker::Feeder)?;
    let within = Conversation {
        trainer,
        feeder,
        binding,
    };
    let (_, body) = frame::control(&mut stream, &[Kind::Hello])?;
    let (mac, text) = split(&body);
    if !token.verifies(Speaker::Trainer, &within, text, mac) {
        let refusal = wrong_token();
        // Without a MAC: a side without the token must not receive one that a trainer accepts.
        write_refusal(&mut stream, &[0; MAC_BYTES], &refusal)?;
        return Err(WireError::Refused(refusal));
    }
    Ok(VerifiedTrainer {
        hello: Hello::decode(text)?,
        within,
    })
}

/// Answers that the feeder accepts the trainer.
///
/// # Errors
///
/// The connection's errors.
pub fn welcome<S: Write>(
    mut stream: S,
    token: &Token,
    peer: &VerifiedTrainer,
) -> Result<(), WireError> {
    let mac = token.mac(Speaker::Feeder, &peer.within, WELCOME);
    frame::write(&mut stream, Kind::Welcome, &mac)?;
    Ok(stream.flush()?)
}

/// Answers that the feeder rejects the trainer, with the reason.
///
/// # Errors
///
/// The connection's errors.
pub fn refuse<S: Write>(
    stream: S,
    token: &Token,
    peer: &VerifiedTrainer,
    refusal: &Refusal,
) -> Result<(), WireError> {
    let text = [REFUSED, &refusal.encode()].concat();
    let mac = token.mac(Speaker::Feeder, &peer.within, &text);
    write_refusal(stream, &mac, refusal)
}

fn write_refusal<S: Write>(
    mut stream: S,
    mac: &[u8; MAC_BYTES],
    refusal: &Refusal,
) -> Result<(), WireError> {
    let body = [&mac[..], &refusal.encode()].concat();
    frame::write(&mut stream, Kind::Refused, &body)?;
    Ok(stream.flush()?)
}

/// Splits a body into its MAC and the rest; a short body has no MAC.
fn split(body: &[u8]) -> (&[u8], &[u8]) {
    body.split_at_checked(MAC_BYTES).unwrap_or((&[], body))
}

/// Marks a refusal as one from a side that did not prove the token.
fn unproven(error: WireError) -> WireError {
    match error {
        WireError::Refused(refusal) => WireError::Unproven(refusal),
        other => other,
    }
}

fn wrong_token() -> Refusal {
    Refusal {
        what: "token".to_owned(),
        trainer: String::new(),
        feeder: String::new(),
    }
}

fn preamble(version: u32, nonce: &Nonce) -> Vec<u8> {
    let mut put = Put::default();
    put.raw(&MAGIC).u32(version).raw(nonce).finish()
}

/// Reads the other side's greeting and returns its nonce; `own` is this side.
fn read_greeting(stream: &mut impl Read, own: Speaker) -> Result<Nonce, WireError> {
    let mut bytes = [0; MAGIC.len() + 4 + NONCE_BYTES];
    stream.read_exact(&mut bytes)?;
    let mut take = Take::new(&bytes, "a greeting");
    if take.raw(MAGIC.len())? != MAGIC {
        return Err(WireError::malformed(
            "bytes that are not an infeed greeting",
        ));
    }
    let version = take.u32()?;
    if version != VERSION {
        let (trainer, feeder) = match own {
            Speaker::Trainer => (VERSION, version),
            Speaker::Feeder => (version, VERSION),
        };
        return Err(WireError::Refused(Refusal {
            what: "protocol".to_owned(),
            trainer: format!("version {trainer}"),
            feeder: format!("version {feeder}"),
        }));
    }
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(take.raw(NONCE_BYTES)?);
    Ok(nonce)
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        let mut put = Put::default();
        put.u8(self.facts.len().min(FACTS) as u8);
        for fact in self.facts.iter().take(FACTS) {
            put.text(&fact.name, NAME_BYTES);
            put.text(&fact.value, VALUE_BYTES);
        }
        put.u64(self.rank).u64(self.world_size);
        put.u8(self.for_device.into()).u8(self.pixels.into());
        put.u8(match self.policy {
            Policy::Stop => 0,
            Policy::Substitute => 1,
            Policy::Skip => 2,
        });
        let limits = self.limits;
        put.u64(limits.read).u64(limits.again);
        put.u64(limits.scratch).u64(limits.row).finish()
    }

    /// Parses a trainer's message after its MAC.
    ///
    /// # Errors
    ///
    /// If the bytes are not such a message.
    pub fn decode(bytes: &[u8]) -> Result<Hello, WireError> {
        let mut take = Take::new(bytes, "a hello");
        let count = usize::from(take.u8()?);
        if count > FACTS {
            return Err(WireError::malformed(format!("{count} facts")));
        }
        let mut facts = Vec::with_capacity(count);
        for _ in 0..count {
            facts.push(Fact {
                name: take.text(NAME_BYTES)?,
                value: take.text(VALUE_BYTES)?,
            });
        }
        let flag = |byte: u8| match byte {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::malformed("a hello with an unknown flag")),
        };
        let hello = Hello {
            facts,
            rank: take.u64()?,
            world_size: take.u64()?,
            for_device: flag(take.u8()?)?,
            pixels: flag(take.u8()?)?,
            policy: match take.u8()? {
                0 => Policy::Stop,
                1 => Policy::Substitute,
                2 => Policy::Skip,
                _ => return Err(WireError::malformed("a hello with an unknown policy")),
            },
            limits: RecordLimits {
                read: take.u64()?,
                again: take.u64()?,
                scratch: take.u64()?,
                row: take.u64()?,
            },
        };
        take.end()?;
        Ok(hello)
    }
}

impl Refusal {
    fn encode(&self) -> Vec<u8> {
        let mut put = Put::default();
        put.text(&self.what, NAME_BYTES);
        put.text(&self.trainer, VALUE_BYTES);
        put.text(&self.feeder, VALUE_BYTES).finish()
    }

    fn decode(bytes: &[u8]) -> Result<Refusal, WireError> {
        let mut take = Take::new(bytes, "a refusal");
        let refusal = Refusal {
            what: take.text(NAME_BYTES)?,
            trainer: take.text(VALUE_BYTES)?,
            feeder: take.text(VALUE_BYTES)?,
        };
        take.end()?;
        Ok(refusal)
    }
}

#[cfg(test)]
mod tests;
