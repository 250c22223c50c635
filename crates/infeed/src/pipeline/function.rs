//! User functions in a description: by the name that imports them, or by handle.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{FieldSpec, Handle, Pipeline};
use crate::error::Error;
use crate::function::{self, Function, On};

/// A function of the user's on samples or batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSpec {
    /// `module:name`, by which it can be imported; with a handle, what it is called.
    pub function: String,
    /// What it is called with.
    #[serde(default, skip_serializing_if = "is_sample")]
    pub on: On,
    /// Processes that it runs in; 0: this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub processes: usize,
    /// Fields that it is given, of which it may return others; those beside them pass it by.
    /// Absent: it is given all, and what it returns is all there is then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// What it returns: `tensor`, `bytes` or `text`, by sample also where it is called with
    /// batches. Empty: found by calling it when the pipeline is opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<FieldSpec>,
    /// Its number among what the description refers to, where it cannot be imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<usize>,
    /// The function itself, once it is found.
    #[serde(skip)]
    pub bound: Bound,
}

/// The function that a name or handle stands for. It is not part of the description, so all
/// values are equal.
#[derive(Clone, Debug, Default)]
pub struct Bound(pub Option<Arc<dyn Function>>);

impl PartialEq for Bound {
    fn eq(&self, _: &Bound) -> bool {
        true
    }
}

fn is_sample(on: &On) -> bool {
    *on == On::Sample
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl FunctionSpec {
    /// A function on samples that can be imported by name.
    pub fn new(function: impl Into<String>) -> FunctionSpec {
        FunctionSpec {
            function: function.into(),
            on: On::Sample,
            processes: 0,
            fields: None,
            output: Vec::new(),
            handle: None,
            bound: Bound::default(),
        }
    }

    /// The same, called with batches.
    pub fn on_batches(mut self) -> FunctionSpec {
        self.on = On::Batch;
        self
    }

    /// What errors call its place in the description.
    pub fn part(&self) -> String {
        match self.on {
            On::Sample => format!("python ({})", self.function),
            On::Batch => format!("python_batch ({})", self.function),
        }
    }

    /// Takes the function from `handles`: by number, or by name if it has none. Imports nothing.
    fn bind(&mut self, handles: &[Handle]) -> Result<(), Error> {
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
        self.bound = Bound(Some(Arc::clone(function)));
        Ok(())
    }
}

impl Pipeline {
    /// Adds a function on samples or batches.
    pub fn function(mut self, function: FunctionSpec) -> Pipeline {
        self.python.push(function);
        self
    }

    /// Imports the functions that the description names and one of the patterns `allowed` allows.
    /// The others stay unbound: opening the pipeline is an error then.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming a function that is allowed and cannot be imported.
    pub fn import_functions(&mut self, allowed: &[String]) -> Result<(), Error> {
        for spec in &mut self.python {
            if spec.bound.0.is_none() && spec.handle.is_none() {
                spec.bound = Bound(function::import(&spec.function, spec.on, allowed)?);
            }
        }
        Ok(())
    }

    /// Takes the functions that the description names from `handles`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming a function that is neither there nor imported.
    pub fn bind(&mut self, handles: &[Handle]) -> Result<(), Error> {
        self.python
            .iter_mut()
            .try_for_each(|function| function.bind(handles))
    }

    /// The description without the functions on batches, which whoever puts batches together calls:
    /// what rows are made by.
    pub fn without_batch_functions(&self) -> Pipeline {
        let mut pipeline = self.clone();
        pipeline.python.retain(|spec| spec.on != On::Batch);
        pipeline
    }

    /// Whether any function is called with batches, whose rows depend on the number of ranks.
    pub fn has_batch_functions(&self) -> bool {
        self.python.iter().any(|spec| spec.on == On::Batch)
    }

    /// Names of functions that no file can hold.
    pub(super) fn held_functions(&self) -> Vec<&str> {
        let held = self.python.iter().filter(|spec| spec.handle.is_some());
        held.map(|spec| spec.function.as_str()).collect()
    }

    /// The description without the functions that no file can hold.
    pub fn without_held_functions(&self) -> Pipeline {
        let mut pipeline = self.clone();
        pipeline.python.retain(|spec| spec.handle.is_none());
        pipeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::SourceSpec;

    #[test]
    fn a_function_survives_toml_by_name_and_is_refused_by_handle() {
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
