//! User functions in a description, by import name or by handle.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{FieldSpec, Handle};
use crate::function::{self, Function, FunctionScope};
use infeed_core::error::Error;

/// A user function on samples or batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSpec {
    /// `module:name` for import. With a handle, any name, used in errors.
    pub function: String,
    /// Whether the function takes samples or batches.
    #[serde(default, skip_serializing_if = "is_sample")]
    pub on: FunctionScope,
    /// Number of processes that run the function; 0 runs it in this process.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub processes: usize,
    /// Fields that the function receives. Its result replaces them, and all other fields pass
    /// unchanged. Absent: the function receives all fields, and its result is the whole sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// Fields that the function returns, of kind `tensor`, `bytes` or `text`. Shapes are per
    /// sample, also for functions on batches. Empty: a call when the pipeline is opened finds them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<FieldSpec>,
    /// Version of the results, for a function that returns the same values for the same sample. A
    /// cache may keep them. Absent: each call may return other values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Index into the handles of the description, for a function that cannot be imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<usize>,
    /// The function, once it is imported or taken from the handles.
    #[serde(skip)]
    pub bound: BoundFunction,
}

/// The function that a name or handle refers to. It is not part of the description, so all values
/// compare equal.
#[derive(Clone, Debug, Default)]
pub struct BoundFunction(pub Option<Arc<dyn Function>>);

impl PartialEq for BoundFunction {
    fn eq(&self, _: &BoundFunction) -> bool {
        true
    }
}

fn is_sample(on: &FunctionScope) -> bool {
    *on == FunctionScope::Sample
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl FunctionSpec {
    /// Creates a function on samples from its import name.
    pub fn new(function: impl Into<String>) -> FunctionSpec {
        FunctionSpec {
            function: function.into(),
            on: FunctionScope::Sample,
            processes: 0,
            fields: None,
            output: Vec::new(),
            version: None,
            handle: None,
            bound: BoundFunction::default(),
        }
    }

    /// Calls the function with batches instead of samples.
    pub fn on_batches(mut self) -> FunctionSpec {
        self.on = FunctionScope::Batch;
        self
    }

    /// Name of this part in errors.
    pub fn part(&self) -> String {
        match self.on {
            FunctionScope::Sample => format!("python ({})", self.function),
            FunctionScope::Batch => format!("python_batch ({})", self.function),
        }
    }

    /// Imports the function if its name matches one of the patterns in `allowed`.
    pub(super) fn import(&mut self, allowed: &[String]) -> Result<(), Error> {
        if self.bound.0.is_none() && self.handle.is_none() {
            self.bound = BoundFunction(function::import(&self.function, self.on, allowed)?);
        }
        Ok(())
    }

    /// Takes the function from `handles` by index, or by name if it has no index. Imports nothing.
    pub(super) fn bind(&mut self, handles: &[Handle]) -> Result<(), Error> {
        if self.bound.0.is_some() {
            return Ok(());
        }
        let named = |handle: &&Handle| match handle {
            Handle::Function(f) => {
                f.name() == self.function && f.on().is_none_or(|on| on == self.on)
            }
            _ => false,
        };
        let found = match self.handle {
            None => handles.iter().find(named),
            Some(number) => handles.get(number),
        };
        let Some(Handle::Function(function)) = found else {
            let problem = match self.handle {
                None => format!(
                    "a pipeline file names this Python function, and such functions run only if you \
                     allow it; if you trust it, add --allow-functions '{}'",
                    self.function
                ),
                Some(_) => {
                    "this function exists only in the process that built the pipeline; open the \
                     pipeline there"
                        .to_owned()
                }
            };
            return Err(Error::config(self.part(), problem));
        };
        self.bound = BoundFunction(Some(Arc::clone(function)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Pipeline, SourceSpec};

    #[test]
    fn a_function_survives_toml_by_name_and_is_rejected_by_handle() {
        let mut spec = FunctionSpec::new("steps:blur");
        spec.processes = 2;
        spec.fields = Some(vec!["image".to_owned()]);
        let plain = Pipeline::new(SourceSpec::folder("x")).batch(2);
        let named = plain
            .clone()
            .function(spec.clone())
            .function(FunctionSpec::new("steps:mix").on_batches());

        let text = named.to_toml().expect("plain data");
        assert_eq!(
            Pipeline::from_toml(&text).expect("its own form"),
            named,
            "{text}"
        );

        spec.handle = Some(0);
        let error = plain.function(spec).to_toml().expect_err("in memory");
        let error = error.to_string();
        assert!(
            error.contains("steps:blur") && error.contains("module"),
            "{error}"
        );
    }
}
