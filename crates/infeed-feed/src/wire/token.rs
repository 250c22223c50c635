//! The shared token of trainers and feeders, and its proof without sending it.
//!
//! Each side sends a random number. It then proves the token with a MAC over both numbers, the
//! binding of the encrypted session, and its message. So the token never crosses the network, and a
//! MAC is valid only once, on one connection. Frames after the handshake have no MAC; on encrypted
//! connections, TLS protects them.
//!
//! Source: RFC 2104 (HMAC) with SHA-256.

use std::fmt;
use std::path::Path;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::channel::Binding;
use infeed_core::error::Error;
use infeed_raw::file;

/// Bytes of a MAC.
pub const MAC_BYTES: usize = 32;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;

/// Minimum number of characters in a token.
const MIN_TOKEN_BYTES: usize = 16;

/// A random number that is used once.
pub type Nonce = [u8; NONCE_BYTES];

/// A shared secret, possibly empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Token(Vec<u8>);

/// Side that sends a message. A MAC of one side never verifies as the other's.
#[derive(Clone, Copy, Debug)]
pub enum Speaker {
    /// The side that requests batches.
    Trainer,
    /// The side that makes batches.
    Feeder,
}

/// Values of one connection. MACs cover them, so they are valid only on that connection.
#[derive(Clone, Copy, Debug)]
pub struct Conversation {
    /// The trainer's random number.
    pub trainer: Nonce,
    /// The feeder's random number.
    pub feeder: Nonce,
    /// The binding of the encrypted session, or [`UNENCRYPTED`](super::channel::UNENCRYPTED).
    pub binding: Binding,
}

impl Token {
    /// Creates a token of at least 16 characters. Surrounding white space is removed.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the token is shorter.
    pub fn new(text: &str) -> Result<Token, Error> {
        let text = text.trim();
        if text.len() < MIN_TOKEN_BYTES {
            let problem = format!(
                "it has {} characters; use at least {MIN_TOKEN_BYTES}, such as 32 random hexadecimal digits",
                text.len()
            );
            return Err(Error::config("token", problem));
        }
        Ok(Token(text.as_bytes().to_vec()))
    }

    /// Reads the token from a file.
    ///
    /// # Errors
    ///
    /// [`Error::Open`], or as [`Token::new`].
    pub fn load(path: &Path) -> Result<Token, Error> {
        let failed = |error| Error::open(path, error);
        let bytes = file::read_argument(path, file::MAX_TEXT_BYTES).map_err(failed)?;
        Token::new(&file::text(bytes).map_err(failed)?)
    }

    /// Whether there is no token.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the MAC of a message.
    pub fn mac(&self, by: Speaker, within: &Conversation, text: &[u8]) -> [u8; MAC_BYTES] {
        let tag = hmac::sign(&self.key(), &message(by, within, text));
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(tag.as_ref());
        mac
    }

    /// Whether a MAC is correct. Takes constant time.
    pub fn verifies(&self, by: Speaker, within: &Conversation, text: &[u8], mac: &[u8]) -> bool {
        hmac::verify(&self.key(), &message(by, within, text), mac).is_ok()
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

/// Returns a random nonce.
///
/// # Errors
///
/// If the operating system has no random numbers.
pub fn nonce() -> std::io::Result<Nonce> {
    let mut nonce = [0; NONCE_BYTES];
    SystemRandom::new()
        .fill(&mut nonce)
        .map_err(|_| std::io::Error::other("the operating system has no random numbers"))?;
    Ok(nonce)
}

fn message(by: Speaker, within: &Conversation, text: &[u8]) -> Vec<u8> {
    let by: &[u8] = match by {
        Speaker::Trainer => b"infeed trainer\0",
        Speaker::Feeder => b"infeed feeder\0\0",
    };
    let Conversation {
        trainer,
        feeder,
        binding,
    } = within;
    [by, trainer, feeder, binding, text].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_verifies_only_for_its_token_speaker_connection_and_text() {
        let token = Token::new("a token of some length").expect("long enough");
        let within = Conversation {
            trainer: [1; NONCE_BYTES],
            feeder: [2; NONCE_BYTES],
            binding: [3; 32],
        };
        let mac = token.mac(Speaker::Trainer, &within, b"text");
        let says = |token: &Token, by, within: &Conversation, text: &[u8]| {
            token.verifies(by, within, text, &mac)
        };

        assert!(says(&token, Speaker::Trainer, &within, b"text"));
        assert!(!says(&token, Speaker::Feeder, &within, b"text"));
        assert!(!says(&token, Speaker::Trainer, &within, b"tex"));
        let swapped = Conversation {
            trainer: within.feeder,
            feeder: within.trainer,
            ..within
        };
        let elsewhere = Conversation {
            binding: [4; 32],
            ..within
        };
        for other in [swapped, elsewhere] {
            assert!(!says(&token, Speaker::Trainer, &other, b"text"));
        }
        assert!(!says(&Token::default(), Speaker::Trainer, &within, b"text"));
        assert!(!token.verifies(Speaker::Trainer, &within, b"text", &mac[..31]));
    }

    #[test]
    fn a_short_token_is_rejected_and_tokens_are_never_printed() {
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
