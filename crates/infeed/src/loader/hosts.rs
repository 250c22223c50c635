//! Which machines feed a loader, and what its own cores do beside them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::wire::token::Token;

/// Characters of a node's name that messages show; cluster managers have names of 56.
const SHOWN: usize = 12;

/// Feeders of a loader.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Feeders {
    /// Where they listen.
    pub hosts: Hosts,
    /// What they and this trainer know; [`Token::default`] is none. A place may have a token of its own.
    pub token: Token,
    /// What the cores of this machine do.
    pub local: Local,
    /// After so long a batch is asked for elsewhere, or after five times what the feeder usually takes
    /// if that is more; five times this before it has answered once.
    pub deadline: Duration,
}

/// Where feeders listen. How many there are is fixed; where each of them is may be told, taken back and
/// told anew while loaders ask them. Clones are the same hosts.
#[derive(Clone, Debug)]
pub struct Hosts {
    places: Arc<[Mutex<Arc<Place>>]>,
}

/// Where one feeder listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// `host:port`; empty while it is nowhere.
    pub host: String,
    /// Name of its machine where the host says too little; else empty.
    pub node: String,
    /// What it and the trainer know. None: the token of all.
    pub token: Option<Token>,
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
        Feeders::at(Hosts::new(hosts))
    }

    /// The same, of hosts that somebody keeps up to date.
    pub fn at(hosts: Hosts) -> Feeders {
        Feeders {
            hosts,
            token: Token::default(),
            local: Local::default(),
            deadline: Duration::from_secs(1),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.hosts.count()
    }
}

impl Hosts {
    /// Feeders that listen at `host:port`.
    pub fn new<T: Into<String>>(hosts: impl IntoIterator<Item = T>) -> Hosts {
        let place = |host: T| Place {
            host: host.into(),
            ..Place::default()
        };
        Hosts::of(hosts.into_iter().map(place))
    }

    /// So many feeders, of which nobody knows yet where they listen.
    pub fn awaited(count: usize) -> Hosts {
        Hosts::of((0..count).map(|_| Place::default()))
    }

    fn of(places: impl Iterator<Item = Place>) -> Hosts {
        Hosts {
            places: places.map(|place| Mutex::new(Arc::new(place))).collect(),
        }
    }

    /// Each by itself, where it listens now.
    pub(crate) fn each(&self) -> Vec<Hosts> {
        let alone = |number| Hosts::of(std::iter::once(Place::clone(&self.place(number))));
        (0..self.count()).map(alone).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Tells where a feeder listens from now on. What it was asked for elsewhere is made by others; a
    /// place that it has already changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is no feeder of this number.
    pub fn set(&self, number: usize, place: Place) -> Result<(), Error> {
        let Some(known) = self.places.get(number) else {
            let problem = format!("there is no feeder {number} among {}", self.count());
            return Err(Error::config("feeders", problem));
        };
        let mut known = lock(known);
        if **known != place {
            *known = Arc::new(place);
        }
        Ok(())
    }

    /// Where a feeder listens now.
    pub(super) fn place(&self, number: usize) -> Arc<Place> {
        let known = self.places.get(number);
        known.map_or_else(Arc::default, |place| Arc::clone(&lock(place)))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { host, node, .. } = self;
        match node.is_empty() {
            true => f.write_str(host),
            false => write!(f, "{host} (node {node:.SHOWN$})"),
        }
    }
}

fn lock(place: &Mutex<Arc<Place>>) -> MutexGuard<'_, Arc<Place>> {
    // It is replaced whole.
    place.lock().unwrap_or_else(PoisonError::into_inner)
}
