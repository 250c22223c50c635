//! Interface of user functions, which are written in a language that the engine does not know.
//!
//! A description names a [`Function`]. [`Function::start`] returns a [`RunningFunction`]; several
//! worker threads call it at once with the columns of a sample or batch. A language binding
//! implements both traits and sets the importer with [`set_importer`].
//!
//! Importing a name runs code, and a description may come from a stranger. So the engine imports
//! nothing on its own: [`import`] runs only for names that the user's patterns allow.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use infeed_core::batch::Column;
use infeed_core::error::{Cause, Error};
pub use infeed_core::random::DrawKey;
use infeed_core::sample::DType;

/// Separates the random draws of functions on samples from all others.
const SAMPLE: u64 = 0x7079_0001;

/// Separates the random draws of functions on batches from all others.
const BATCH: u64 = 0x7079_0002;

/// Input of a function: a sample or a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FunctionScope {
    /// One sample, before it is written to its row.
    #[default]
    Sample,
    /// The finished batch of this rank.
    Batch,
}

impl FunctionScope {
    /// Creates the key of the random draws inside a call of function number `number` of the
    /// description.
    pub fn draw_key(self, seed: u64, epoch: u64, position: u64, number: u64) -> DrawKey {
        let purpose = match self {
            FunctionScope::Sample => SAMPLE,
            FunctionScope::Batch => BATCH,
        };
        DrawKey::new(purpose, seed, epoch, position, number)
    }
}

/// A user function.
pub trait Function: fmt::Debug + Send + Sync {
    /// `module:name`, or another name for errors and states.
    fn name(&self) -> &str;

    /// Whether it takes samples or batches; `None` if it takes either. A description may name one
    /// function for both.
    fn on(&self) -> Option<FunctionScope> {
        None
    }

    /// The reason why the function can only be called in this process; `None` if others can call
    /// it.
    fn bound_here(&self) -> Option<String>;

    /// Returns the identity of the function's code, so that another machine can check that the
    /// function of this name does the same there.
    ///
    /// # Errors
    ///
    /// The reason why the identity is unknown, with the fix.
    fn identity(&self) -> Result<FunctionIdentity, String> {
        Err("its code cannot be identified by name".to_owned())
    }

    /// Returns the file and the name by which other processes on this machine find the function.
    /// None if only this process has it.
    fn location(&self) -> Option<String> {
        None
    }

    /// Prepares the function for calls from several threads at once: in this process if `processes`
    /// is 0, else in that number of processes.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the function cannot be called in other processes, [`Error::Process`] if
    /// the processes do not start.
    fn start(&self, processes: usize) -> Result<Box<dyn RunningFunction>, Error>;
}

/// Identity of a function beyond its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionIdentity {
    /// Location and hash of the code: short, and equal if the code is equal.
    pub code: String,
    /// Language, and everything else that changes what the code does, with versions.
    pub language: String,
}

/// A function that is ready for calls. Dropping it ends its processes.
pub trait RunningFunction: fmt::Debug + Send + Sync {
    /// Calls the function. Returned values are written to `sink`, in any order.
    ///
    /// For a sample, columns are arrays without the axis of rows, or lists of one entry.
    ///
    /// # Errors
    ///
    /// [`FunctionFailure`]; the values written so far are then invalid.
    fn call(
        &self,
        inputs: &[Column],
        draw: DrawKey,
        sink: &mut dyn ValueSink,
    ) -> Result<CallCost, FunctionFailure>;
}

/// Receives the values that a function returns. Errors describe the invalid value.
pub trait ValueSink {
    /// Returns the memory for a value; the caller overwrites all of it.
    ///
    /// # Errors
    ///
    /// The value differs from the declared output.
    fn room(&mut self, name: &str, spec: ValueSpec<'_>) -> Result<&mut [u8], String>;

    /// Takes input number `input` unchanged as a value.
    ///
    /// # Errors
    ///
    /// As [`ValueSink::room`].
    fn same(&mut self, name: &str, input: usize) -> Result<(), String>;
}

/// Type and size of a returned value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSpec<'a> {
    /// Numbers.
    Array {
        /// Element type.
        dtype: DType,
        /// Lengths of the axes.
        shape: &'a [usize],
    },
    /// Number of bytes.
    Bytes(usize),
    /// Number of bytes of UTF-8.
    Text(usize),
}

/// Cost of a call apart from the time of the calling thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCost {
    /// Time until the call could begin: waiting for the GIL or for a free process.
    pub waited: Duration,
    /// CPU time of another process.
    pub elsewhere: Duration,
}

/// Why a call failed.
#[derive(Clone, Debug)]
pub enum FunctionFailure {
    /// The function rejected the sample or returned an invalid value. The failure is deterministic.
    Raised(Cause),
    /// No process can be started for the function.
    Process(Arc<io::Error>),
    /// The loader is closing and drops the result.
    Closed,
}

impl FunctionFailure {
    /// Creates the failure for an invalid return value.
    pub fn wrong(problem: impl Into<String>) -> FunctionFailure {
        FunctionFailure::Raised(Arc::new(InvalidValue(problem.into())))
    }
}

/// An invalid return value.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct InvalidValue(String);

/// Imports the function that a description names, if one of the patterns allows that name;
/// returns `None` without importing anything if none does.
pub type Importer = fn(&str, FunctionScope, &[String]) -> Result<Option<Arc<dyn Function>>, Error>;

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
pub fn import(
    name: &str,
    on: FunctionScope,
    allowed: &[String],
) -> Result<Option<Arc<dyn Function>>, Error> {
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
    fn draws_depend_on_every_part_of_their_key_and_on_nothing_else() {
        let draw = |on: FunctionScope, key: [u64; 4]| on.draw_key(key[0], key[1], key[2], key[3]).0;
        let mut all = vec![draw(FunctionScope::Batch, [1, 2, 3, 4])];
        for key in [
            [1, 2, 3, 4],
            [2, 2, 3, 4],
            [1, 3, 3, 4],
            [1, 2, 4, 4],
            [1, 2, 3, 5],
        ] {
            all.push(draw(FunctionScope::Sample, key));
        }

        assert_eq!(all[1], draw(FunctionScope::Sample, [1, 2, 3, 4]));
        let words: std::collections::HashSet<u64> = all.iter().flatten().copied().collect();
        assert_eq!(words.len(), 2 * all.len());
    }

    #[test]
    fn importing_a_function_without_an_interpreter_is_an_error_that_names_it() {
        let allowed = ["steps:*".to_owned()];

        let error = import("steps:blur", FunctionScope::Sample, &allowed)
            .expect_err("no Python")
            .to_string();

        assert!(error.contains("steps:blur is a Python function"), "{error}");
    }
}
