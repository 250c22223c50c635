//! The interface of user functions, which are written in a language that the engine does not know.
//!
//! A description names a [`Function`]; [`Function::start`] makes it [`Running`], which workers
//! call, several at once, with the columns of a sample or of a batch. The binding of a language
//! implements both traits, and sets with [`set_importer`] how a name is imported.
//!
//! Importing a name runs code, and a description may come from a stranger. So the engine imports
//! nothing on its own: [`import`] runs only for names that the user's patterns allow.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::batch::Column;
use crate::error::{Cause, Error};
use crate::random::hash;
use crate::sample::DType;

/// Keeps the draws of functions on samples apart from all others.
const SAMPLE: u64 = 0x7079_0001;

/// Keeps the draws of functions on batches apart from all others.
const BATCH: u64 = 0x7079_0002;

/// What a function is called with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// One sample, before it lies in its row.
    #[default]
    Sample,
    /// The finished batch of this rank.
    Batch,
}

/// A function of the user's.
pub trait Function: fmt::Debug + Send + Sync {
    /// `module:name`, or another name for errors and states.
    fn name(&self) -> &str;

    /// Whether it takes samples or batches; `None` if it takes either. A description may name one
    /// function for both.
    fn on(&self) -> Option<On> {
        None
    }

    /// Why it can be called in this process alone, if that is so.
    fn bound_here(&self) -> Option<String>;

    /// What it is, so that another machine can tell whether what has its name there does the same.
    ///
    /// # Errors
    ///
    /// Why that cannot be told, with the mend.
    fn identity(&self) -> Result<Identity, String> {
        Err("what it does cannot be told from its name".to_owned())
    }

    /// Makes it ready to be called by several threads at once: in this process, or in so many
    /// others.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if it cannot be called in other processes, [`Error::Process`] if they
    /// do not start.
    fn start(&self, processes: usize) -> Result<Box<dyn Running>, Error>;
}

/// What a function is, beyond its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where its code is, and a hash of that: short, and equal where the code is.
    pub code: String,
    /// Its language, and whatever else makes the same code do something else, with versions.
    pub language: String,
}

/// A function that is ready. Dropping it ends its processes.
pub trait Running: fmt::Debug + Send + Sync {
    /// Calls it. Values that it returns are written where `sink` says, in any order.
    ///
    /// For a sample, columns are arrays without the axis of rows, or lists of one entry.
    ///
    /// # Errors
    ///
    /// [`Failed`]; what was written by then means nothing.
    fn call(&self, inputs: &[Column], draw: Draw, sink: &mut dyn Sink) -> Result<Spent, Failed>;
}

/// Takes what a function returns. An error says in words what is wrong with it.
pub trait Sink {
    /// Room for a value, to be overwritten whole.
    ///
    /// # Errors
    ///
    /// It is not what the function was known to return.
    fn room(&mut self, name: &str, form: Form<'_>) -> Result<&mut [u8], String>;

    /// Takes the input of this number, as it came.
    ///
    /// # Errors
    ///
    /// As [`Sink::room`].
    fn same(&mut self, name: &str, input: usize) -> Result<(), String>;
}

/// What a returned value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// Numbers.
    Array {
        /// Element type.
        dtype: DType,
        /// Lengths of the axes.
        shape: &'a [usize],
    },
    /// So many bytes.
    Bytes(usize),
    /// So many bytes of UTF-8.
    Text(usize),
}

/// What random draws inside a call are keyed by: the same for a sample or batch on every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw(pub [u64; 2]);

impl Draw {
    /// The draws of the function with this number in the description.
    pub fn new(on: On, seed: u64, epoch: u64, position: u64, number: u64) -> Draw {
        let tag = match on {
            On::Sample => SAMPLE,
            On::Batch => BATCH,
        };
        let word = |half| hash(&[tag, half, seed, epoch, position, number]);
        Draw([word(0), word(1)])
    }
}

/// What a call took beside the time of the thread that made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Time until it could begin: for the interpreter's lock, or for a process that is free.
    pub waited: Duration,
    /// Processor time of another process.
    pub elsewhere: Duration,
}

/// Why a call came to nothing.
#[derive(Clone, Debug)]
pub enum Failed {
    /// The function did not take the sample, or returned what it should not: the same each time.
    Raised(Cause),
    /// No process can be started for it.
    Process(Arc<io::Error>),
    /// The loader is closing; nobody wants the result.
    Closed,
}

impl Failed {
    /// A returned value is not what it should be.
    pub fn wrong(problem: impl Into<String>) -> Failed {
        Failed::Raised(Arc::new(Wrong(problem.into())))
    }
}

/// A returned value that is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Wrong(String);

/// Imports the function that a description names, if one of the patterns allows that name;
/// returns `None` without importing anything if none does.
pub type Importer = fn(&str, On, &[String]) -> Result<Option<Arc<dyn Function>>, Error>;

static IMPORTER: OnceLock<Importer> = OnceLock::new();

/// Sets how this process imports functions. Only the first call has an effect.
pub fn set_importer(importer: Importer) {
    // A second importer would be the same: a process has one interpreter.
    let _ = IMPORTER.set(importer);
}

/// Imports the function `name` if one of the patterns `allowed` (`module:name`, with `*` for any
/// part) allows it; returns `None` without importing anything if none does.
///
/// # Errors
///
/// [`Error::Config`] if there is no such function, or this process has no interpreter.
pub fn import(name: &str, on: On, allowed: &[String]) -> Result<Option<Arc<dyn Function>>, Error> {
    match IMPORTER.get() {
        _ if allowed.is_empty() => Ok(None),
        Some(importer) => importer(name, on, allowed),
        None => {
            let problem = format!(
                "{name} is a Python function, and this program has no Python; use the `infeed` \
                 command of the Python package"
            );
            Err(Error::config("python", problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ_by_whatever_they_are_keyed_by_and_by_nothing_else() {
        let draw = |on, key: [u64; 4]| Draw::new(on, key[0], key[1], key[2], key[3]).0;
        let mut all = vec![draw(On::Batch, [1, 2, 3, 4])];
        for key in [
            [1, 2, 3, 4],
            [2, 2, 3, 4],
            [1, 3, 3, 4],
            [1, 2, 4, 4],
            [1, 2, 3, 5],
        ] {
            all.push(draw(On::Sample, key));
        }

        assert_eq!(all[1], draw(On::Sample, [1, 2, 3, 4]));
        let words: std::collections::HashSet<u64> = all.iter().flatten().copied().collect();
        assert_eq!(words.len(), 2 * all.len());
    }

    #[test]
    fn importing_a_function_without_an_interpreter_is_an_error_that_names_it() {
        let allowed = ["steps:*".to_owned()];

        let error = import("steps:blur", On::Sample, &allowed)
            .expect_err("no Python")
            .to_string();

        assert!(error.contains("steps:blur is a Python function"), "{error}");
    }
}
