//! Machines that feed a loader, and the role of the trainer's own cores.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::wire::channel::Encryption;
use crate::wire::token::Token;
use infeed_core::error::Error;

/// Number of characters of a node's name in messages; cluster managers use names of 56.
const SHOWN: usize = 12;

/// Feeders of a loader, for [`Options::remote`](infeed::Options::remote).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Feeders {
    /// Addresses of the feeders.
    pub hosts: Hosts,
    /// Shared secret of trainer and feeders; [`Token::default`] means no token. A [`FeederAddress`]
    /// may have its own token.
    pub token: Token,
    /// Which connections are encrypted.
    pub encryption: Encryption,
    /// Role of this machine's cores.
    pub local: Local,
    /// Time after which a batch is requested elsewhere. The limit is at least five times the
    /// feeder's usual time, and five times `deadline` before its first answer.
    pub deadline: Duration,
}

/// Addresses of feeders. Their number is fixed; each address can be set, removed and changed while
/// loaders use the feeders. Clones share the addresses.
#[derive(Clone, Debug)]
pub struct Hosts {
    addresses: Arc<[Mutex<Arc<FeederAddress>>]>,
}

/// Address of one feeder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeederAddress {
    /// `host:port`; empty if the feeder has no address.
    pub host: String,
    /// Name of the machine if `host` does not identify it; else empty.
    pub node: String,
    /// Secret shared with the trainer. None: the token in [`Feeders::token`].
    pub token: Option<Token>,
}

/// Role of the trainer's cores if there are feeders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Local {
    /// Local threads make batches too: the next free thread or feeder takes the next batch.
    #[default]
    Help,
    /// Local threads make only batches that feeders decline or deliver too late; all batches while
    /// no feeder is connected.
    Fallback,
}

impl Feeders {
    /// Creates feeders without a token that share the work with local threads.
    pub fn new<T: Into<String>>(hosts: impl IntoIterator<Item = T>) -> Feeders {
        Feeders::at(Hosts::new(hosts))
    }

    /// As [`Feeders::new`], with addresses that the caller can update.
    pub fn at(hosts: Hosts) -> Feeders {
        Feeders {
            hosts,
            token: Token::default(),
            encryption: Encryption::default(),
            local: Local::default(),
            deadline: Duration::from_secs(1),
        }
    }
}

impl Hosts {
    /// Creates feeders that listen at `host:port`.
    pub fn new<T: Into<String>>(hosts: impl IntoIterator<Item = T>) -> Hosts {
        let address = |host: T| FeederAddress {
            host: host.into(),
            ..FeederAddress::default()
        };
        Hosts::of(hosts.into_iter().map(address))
    }

    /// Creates `count` feeders whose addresses are set later.
    pub fn without_addresses(count: usize) -> Hosts {
        Hosts::of((0..count).map(|_| FeederAddress::default()))
    }

    fn of(addresses: impl Iterator<Item = FeederAddress>) -> Hosts {
        Hosts {
            addresses: addresses
                .map(|address| Mutex::new(Arc::new(address)))
                .collect(),
        }
    }

    /// Returns a copy of each address as a separate value.
    pub fn each(&self) -> Vec<Hosts> {
        let alone =
            |number| Hosts::of(std::iter::once(FeederAddress::clone(&self.address(number))));
        (0..self.count()).map(alone).collect()
    }

    /// Returns the number of feeders.
    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Sets the address of a feeder. Other machines make its open batches. Setting the current
    /// address has no effect.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `number` is out of range.
    pub fn set(&self, number: usize, address: FeederAddress) -> Result<(), Error> {
        let Some(known) = self.addresses.get(number) else {
            let problem = format!("no feeder {number}; there are {}", self.count());
            return Err(Error::config("feeders", problem));
        };
        let mut known = lock(known);
        if **known != address {
            *known = Arc::new(address);
        }
        Ok(())
    }

    /// Returns the current address of a feeder.
    pub(crate) fn address(&self, number: usize) -> Arc<FeederAddress> {
        let known = self.addresses.get(number);
        known.map_or_else(Arc::default, |address| Arc::clone(&lock(address)))
    }
}

impl fmt::Display for FeederAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FeederAddress { host, node, .. } = self;
        match node.is_empty() {
            true => f.write_str(host),
            false => write!(f, "{host} (node {node:.SHOWN$})"),
        }
    }
}

fn lock(address: &Mutex<Arc<FeederAddress>>) -> MutexGuard<'_, Arc<FeederAddress>> {
    // The value is replaced whole, so it is always valid.
    address.lock().unwrap_or_else(PoisonError::into_inner)
}
