//! Functions of the user, which run in this process under the interpreter lock, or in worker
//! processes.
//!
//! `infeed/_functions.py` converts Python values for both.

mod in_process;
#[cfg(not(unix))]
mod no_worker_process;
mod process_pool;
mod worker_failure;
#[cfg(unix)]
mod worker_process;

use std::fmt;
use std::sync::Arc;

use infeed::Error;
use infeed::function::{FunctionFailure, FunctionIdentity, FunctionScope, RunningFunction};
use pyo3::prelude::*;

use in_process::InProcess;
use process_pool::ProcessPool;

/// A function that a description refers to, by number or by name.
#[pyclass(frozen, name = "Function", module = "infeed._core")]
pub(crate) struct PyFunction {
    inner: Arc<UserFunction>,
}

#[pymethods]
impl PyFunction {
    #[new]
    fn new(name: String, adapter: Py<PyAny>, batch: bool) -> PyFunction {
        let on = if batch {
            FunctionScope::Batch
        } else {
            FunctionScope::Sample
        };
        let inner = Arc::new(UserFunction { name, adapter, on });
        PyFunction { inner }
    }
}

impl PyFunction {
    pub(crate) fn function(&self) -> Arc<dyn infeed::function::Function> {
        Arc::clone(&self.inner) as Arc<dyn infeed::function::Function>
    }
}

/// A function and the object that calls it.
struct UserFunction {
    name: String,
    adapter: Py<PyAny>,
    on: FunctionScope,
}

impl fmt::Debug for UserFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UserFunction").field(&self.name).finish()
    }
}

impl infeed::function::Function for UserFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn on(&self) -> Option<FunctionScope> {
        Some(self.on)
    }

    fn bound_here(&self) -> Option<String> {
        let problem = Python::attach(|py| -> PyResult<Option<String>> {
            self.adapter
                .bind(py)
                .call_method0("process_problem")?
                .extract()
        });
        problem.unwrap_or_else(|error| Some(text(&error)))
    }

    fn identity(&self) -> Result<FunctionIdentity, String> {
        let found = Python::attach(|py| -> PyResult<(String, String)> {
            self.adapter
                .bind(py)
                .call_method1("identity", (&self.name,))?
                .extract()
        });
        match found {
            Ok((code, language)) => Ok(FunctionIdentity { code, language }),
            Err(error) => Err(text(&error)),
        }
    }

    fn location(&self) -> Option<String> {
        let found = Python::attach(|py| -> PyResult<Option<String>> {
            self.adapter.bind(py).call_method0("location")?.extract()
        });
        found.ok().flatten()
    }

    fn start(&self, processes: usize) -> Result<Box<dyn RunningFunction>, Error> {
        if processes == 0 {
            let adapter = Python::attach(|py| self.adapter.clone_ref(py));
            return Ok(Box::new(InProcess::new(adapter)));
        }
        let part = || format!("python ({})", self.name);
        let launch = Python::attach(|py| -> PyResult<_> {
            self.adapter.bind(py).call_method0("launch")?.extract()
        });
        let launch = launch.map_err(|error| Error::config(part(), text(&error)))?;
        let started = ProcessPool::start(launch, processes);
        Ok(Box::new(started.map_err(|failed| match failed {
            FunctionFailure::Raised(cause) => Error::config(
                part(),
                format!("the function does not load in a worker process: {cause}"),
            ),
            FunctionFailure::Process(source) => Error::Process {
                function: self.name.clone(),
                source,
            },
            FunctionFailure::Closed => Error::Closed,
        })?))
    }
}

/// Imports a function that a description names, if one of the patterns allows it.
pub(crate) fn import(
    name: &str,
    on: FunctionScope,
    allowed: &[String],
) -> Result<Option<Arc<dyn infeed::function::Function>>, Error> {
    let found = Python::attach(|py| -> PyResult<_> {
        let module = py.import("infeed._functions")?;
        let found = module.call_method1(
            "import_allowed",
            (name, on == FunctionScope::Batch, allowed),
        )?;
        if found.is_none() {
            return Ok(None);
        }
        Ok(Some(found.cast::<PyFunction>()?.get().function()))
    });
    found.map_err(|error| Error::config("python", text(&error)))
}

/// Returns the message of an exception that infeed raised.
fn text(error: &PyErr) -> String {
    Python::attach(|py| error.value(py).to_string())
}
