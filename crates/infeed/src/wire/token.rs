//! The token that trainers and feeders share: shown without being sent.
//!
//! Each side sends a number that it never used before, and answers with a MAC over both numbers and
//! what it has to say. So a token is not seen on the way, an answer is good once, and what was said
//! in the handshake was said by somebody who knows it. Frames after the handshake carry no MAC.
//!
//! Source: RFC 2104 (HMAC) with SHA-256.

use std::fmt;
use std::path::Path;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::Error;

/// Bytes of a MAC.
pub const MAC_BYTES: usize = 32;

/// Bytes of a number that is used once.
pub const NONCE_BYTES: usize = 32;

/// Least characters of a token.
const LEAST: usize = 16;

/// A number that is used once.
pub type Nonce = [u8; NONCE_BYTES];

/// A secret, or none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Token(Vec<u8>);

/// Who speaks. What one says cannot be sent back to it as the other's.
#[derive(Clone, Copy, Debug)]
pub enum Speaker {
    /// Who asks for batches.
    Trainer,
    /// Who makes them.
    Feeder,
}

impl Token {
    /// A token of at least 16 characters; white space around it is left out.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if it is shorter.
    pub fn new(text: &str) -> Result<Token, Error> {
        let text = text.trim();
        if text.len() < LEAST {
            let problem = format!(
                "it has {} characters; use at least {LEAST}, such as 32 random hexadecimal digits",
                text.len()
            );
            return Err(Error::config("token", problem));
        }
        Ok(Token(text.as_bytes().to_vec()))
    }

    /// The token in a file.
    ///
    /// # Errors
    ///
    /// [`Error::Open`], or as [`Token::new`].
    pub fn load(path: &Path) -> Result<Token, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::open(path, error))?;
        Token::new(&text)
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The MAC of what somebody says in a conversation.
    pub fn mac(&self, by: Speaker, nonces: (&Nonce, &Nonce), text: &[u8]) -> [u8; MAC_BYTES] {
        let tag = hmac::sign(&self.key(), &message(by, nonces, text));
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(tag.as_ref());
        mac
    }

    /// Whether a MAC is right; takes as long where it is not.
    pub fn verifies(&self, by: Speaker, nonces: (&Nonce, &Nonce), text: &[u8], mac: &[u8]) -> bool {
        hmac::verify(&self.key(), &message(by, nonces, text), mac).is_ok()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.is_none() {
            true => "Token(none)",
            false => "Token(..)",
        })
    }
}

/// A number that nobody can foresee.
///
/// # Errors
///
/// If the operating system gives none.
pub fn nonce() -> std::io::Result<Nonce> {
    let mut nonce = [0; NONCE_BYTES];
    SystemRandom::new()
        .fill(&mut nonce)
        .map_err(|_| std::io::Error::other("the operating system gives no random numbers"))?;
    Ok(nonce)
}

fn message(by: Speaker, (trainer, feeder): (&Nonce, &Nonce), text: &[u8]) -> Vec<u8> {
    let by: &[u8] = match by {
        Speaker::Trainer => b"infeed trainer\0",
        Speaker::Feeder => b"infeed feeder\0\0",
    };
    [by, trainer, feeder, text].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_is_right_for_its_token_speaker_numbers_and_text_alone() {
        let token = Token::new("a token of some length").expect("long enough");
        let (one, two) = ([1; NONCE_BYTES], [2; NONCE_BYTES]);
        let mac = token.mac(Speaker::Trainer, (&one, &two), b"text");
        let says = |token: &Token, by, nonces, text: &[u8]| token.verifies(by, nonces, text, &mac);

        assert!(says(&token, Speaker::Trainer, (&one, &two), b"text"));
        assert!(!says(&token, Speaker::Feeder, (&one, &two), b"text"));
        assert!(!says(&token, Speaker::Trainer, (&two, &one), b"text"));
        assert!(!says(&token, Speaker::Trainer, (&one, &two), b"tex"));
        assert!(!says(
            &Token::default(),
            Speaker::Trainer,
            (&one, &two),
            b"text"
        ));
        assert!(!token.verifies(Speaker::Trainer, (&one, &two), b"text", &mac[..31]));
    }

    #[test]
    fn a_short_token_is_refused_and_none_is_ever_printed() {
        let error = Token::new(" short\n")
            .expect_err("5 characters")
            .to_string();
        let token = Token::new(" a token of some length\n").expect("long enough");

        assert!(error.contains("at least 16"), "{error}");
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_eq!(
            token,
            Token::new("a token of some length").expect("the same")
        );
        assert_ne!(nonce().expect("random"), nonce().expect("random"));
    }
}
