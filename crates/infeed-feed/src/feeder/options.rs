//! Options of a feeder.

use crate::wire::channel::Encryption;
use crate::wire::token::Token;

/// Options of a feeder.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FeedOptions {
    /// Address to listen at, such as `127.0.0.1:7077`; port 0 takes a free port. An address that
    /// other machines reach needs a token.
    pub listen: String,
    /// Secret that trainers must prove.
    pub token: Token,
    /// Connections that must be encrypted. The feeder always accepts encrypted ones.
    pub encryption: Encryption,
    /// Worker threads. None: the number of usable cores.
    pub workers: Option<usize>,
    /// I/O threads. None: a number that suits the source's storage.
    pub readers: Option<usize>,
    /// Memory budget in bytes for the trainers of each world size. None: as a loader's.
    pub memory: Option<u64>,
}

impl Default for FeedOptions {
    /// Listens on a free port that only this machine reaches.
    fn default() -> FeedOptions {
        FeedOptions {
            listen: "127.0.0.1:0".to_owned(),
            token: Token::default(),
            encryption: Encryption::default(),
            workers: None,
            readers: None,
            memory: None,
        }
    }
}
