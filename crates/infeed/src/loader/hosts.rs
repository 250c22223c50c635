//! Which machines feed a loader, and what its own cores do beside them.

use std::time::Duration;

use crate::wire::token::Token;

/// Feeders of a loader.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Feeders {
    /// Where they listen: `host:port`.
    pub hosts: Vec<String>,
    /// What they and this trainer know; [`Token::default`] is none.
    pub token: Token,
    /// What the cores of this machine do.
    pub local: Local,
    /// After so long a batch is asked for elsewhere, or after five times what the feeder usually takes
    /// if that is more; five times this before it has answered once.
    pub deadline: Duration,
}

/// What a trainer's own cores do beside feeders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Local {
    /// They make batches too: whoever is free takes the next.
    #[default]
    Help,
    /// They make what feeders cannot make or have not made in time, and all while there is none.
    Fallback,
}

impl Feeders {
    /// These, without a token, beside the trainer's own cores.
    pub fn new<T: Into<String>>(hosts: impl IntoIterator<Item = T>) -> Feeders {
        Feeders {
            hosts: hosts.into_iter().map(Into::into).collect(),
            token: Token::default(),
            local: Local::default(),
            deadline: Duration::from_secs(1),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.hosts.len()
    }
}
