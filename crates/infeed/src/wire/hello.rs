//! The handshake: both sides show that they know the token, and the trainer says which run it means.
//!
//! | | trainer | | feeder |
//! |---|---|---|---|
//! | 1 | magic, version, a number used once | → | |
//! | 2 | | ← | the same |
//! | 3 | `Hello`: MAC, facts, terms | → | looks at the MAC before anything behind it |
//! | 4 | | ← | `Welcome`: MAC; or `Refused`: what differs, and how |
//!
//! A fact is a text that must be the same on both sides, such as the fingerprint of the data.

use std::fmt;
use std::io::{Read, Write};

use super::bytes::{Put, Take};
use super::frame::{self, Kind};
use super::looks;
use super::token::{MAC_BYTES, NONCE_BYTES, Nonce, Speaker, Token, nonce};
use super::{VERSION, WireError};

/// The fact that tells what some records hold, compared record by record.
pub const CONTENTS: &str = "contents";

const MAGIC: [u8; 8] = *b"infeed\0w";

/// Most facts of a run.
const FACTS: usize = 32;
/// Longest name and value of a fact.
const NAME_BYTES: usize = 64;
const VALUE_BYTES: usize = 2048;

/// Something that both sides must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Its name: `data`, `seed`.
    pub name: String,
    /// What it is.
    pub value: String,
}

/// What becomes of a bad record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The trainer makes its batch itself, and stops there.
    Stop,
    /// Another takes its place.
    Substitute,
    /// Its row is left out.
    Skip,
}

/// What a record may need, beyond which it is a bad one: the trainer's, since a batch must not
/// depend on who makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a read in order.
    pub read: u64,
    /// Bytes of a read for a substitute.
    pub again: u64,
    /// Bytes of scratch.
    pub scratch: u64,
    /// Bytes of a row outside of slabs.
    pub row: u64,
}

impl Limits {
    /// No limit but one's own.
    pub const NONE: Limits = Limits {
        read: u64::MAX,
        again: u64::MAX,
        scratch: u64::MAX,
        row: u64::MAX,
    };
}

/// What a trainer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Which run.
    pub facts: Vec<Fact>,
    /// Which of its ranks.
    pub rank: u64,
    /// How many ranks there are.
    pub world_size: u64,
    /// Whether rows are as they go to a device that makes them larger.
    pub for_device: bool,
    /// What becomes of bad records.
    pub policy: Policy,
    /// Whether rows are to be hashed.
    pub pixels: bool,
    /// The trainer's limits.
    pub limits: Limits,
}

/// Why a feeder does not feed a trainer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What differs: the name of a fact; `token`, `protocol`; or `room`, where nothing does.
    pub what: String,
    /// The trainer's.
    pub trainer: String,
    /// The feeder's.
    pub feeder: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal {
            what,
            trainer,
            feeder,
        } = self;
        let mend = match what.as_str() {
            "room" => return f.write_str(feeder),
            "token" => return f.write_str("the token differs; give both sides the same one"),
            "protocol" | "infeed" => "install one version of infeed on both sides",
            "data" | "records" => "both must see the same data under the same names",
            CONTENTS => "both must see the same data, byte for byte",
            "functions" => "both need the same functions, in modules that hold the same",
            "language" => "install the same versions on both sides: they may compute other numbers",
            "bits" => "its processor or build would give other bits, so it cannot be used",
            _ => "start it with the pipeline file of this run",
        };
        write!(
            f,
            "`{what}` differs: {trainer} at the trainer, {feeder} at the feeder; {mend}"
        )
    }
}

/// The first fact that differs from the feeder's own.
pub fn difference(trainer: &[Fact], feeder: &[Fact]) -> Option<Refusal> {
    feeder.iter().find_map(|own| {
        let said = trainer.iter().find(|fact| fact.name == own.name);
        let said = said.map_or("unknown", |fact| fact.value.as_str());
        let (trainer, feeder) = match own.name.as_str() {
            CONTENTS => looks::difference(said, &own.value)?,
            _ if said == own.value => return None,
            _ => (said.to_owned(), own.value.clone()),
        };
        let what = own.name.clone();
        Some(Refusal {
            what,
            trainer,
            feeder,
        })
    })
}

/// The trainer's side of the handshake.
///
/// # Errors
///
/// [`WireError::Refused`] with what differs; or as the connection's.
pub fn greet<S>(mut stream: S, token: &Token, hello: &Hello) -> Result<(), WireError>
where
    S: Read + Write,
{
    let own = nonce()?;
    stream.write_all(&preamble(VERSION, &own))?;
    let theirs = meet(&mut stream, Speaker::Trainer)?;
    let text = hello.encode();
    let mac = token.mac(Speaker::Trainer, (&own, &theirs), &text);
    frame::write(&mut stream, Kind::Hello, &[&mac[..], &text].concat())?;
    stream.flush()?;
    match frame::control(&mut stream, &[Kind::Welcome, Kind::Refused])? {
        (Kind::Welcome, mac) => {
            // Who does not know the token is no feeder of this run, whatever it says.
            match token.verifies(Speaker::Feeder, (&own, &theirs), b"welcome", &mac) {
                true => Ok(()),
                false => Err(WireError::Refused(wrong_token())),
            }
        }
        (_, body) => Err(WireError::Refused(Refusal::decode(&body)?)),
    }
}

/// A trainer that showed that it knows the token, waiting for an answer.
#[derive(Debug)]
pub struct Met {
    /// What it said.
    pub hello: Hello,
    trainer: Nonce,
    feeder: Nonce,
}

/// The feeder's side of the handshake, up to the answer.
///
/// # Errors
///
/// What is wrong with the trainer, which was told so; or as the connection's.
pub fn meet_trainer<S>(mut stream: S, token: &Token) -> Result<Met, WireError>
where
    S: Read + Write,
{
    let feeder = nonce()?;
    // First, so that one of another version learns which one this is.
    stream.write_all(&preamble(VERSION, &feeder))?;
    let trainer = meet(&mut stream, Speaker::Feeder)?;
    let (_, body) = frame::control(&mut stream, &[Kind::Hello])?;
    let (mac, text) = body.split_at_checked(MAC_BYTES).unwrap_or((&[], &body));
    if !token.verifies(Speaker::Trainer, (&trainer, &feeder), text, mac) {
        let refusal = wrong_token();
        refuse(&mut stream, &refusal)?;
        return Err(WireError::Refused(refusal));
    }
    Ok(Met {
        hello: Hello::decode(text)?,
        trainer,
        feeder,
    })
}

/// Answers that it will be fed.
///
/// # Errors
///
/// As the connection's.
pub fn welcome<S: Write>(mut stream: S, token: &Token, met: &Met) -> Result<(), WireError> {
    let nonces = (&met.trainer, &met.feeder);
    let mac = token.mac(Speaker::Feeder, nonces, b"welcome");
    frame::write(&mut stream, Kind::Welcome, &mac)?;
    Ok(stream.flush()?)
}

/// Answers that it will not.
///
/// # Errors
///
/// As the connection's.
pub fn refuse<S: Write>(mut stream: S, refusal: &Refusal) -> Result<(), WireError> {
    frame::write(&mut stream, Kind::Refused, &refusal.encode())?;
    Ok(stream.flush()?)
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

/// Reads the other side's greeting, as this speaker, and returns its nonce.
fn meet(stream: &mut impl Read, own: Speaker) -> Result<Nonce, WireError> {
    let mut bytes = [0; MAGIC.len() + 4 + NONCE_BYTES];
    stream.read_exact(&mut bytes)?;
    let mut take = Take::new(&bytes, "a greeting");
    if take.raw(MAGIC.len())? != MAGIC {
        return Err(WireError::malformed("something that is no infeed's"));
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

    /// What a trainer said, from the bytes behind its MAC.
    ///
    /// # Errors
    ///
    /// If that is none.
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
            limits: Limits {
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
