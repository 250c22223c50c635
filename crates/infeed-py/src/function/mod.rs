//! Functions of the user's: called here, under the interpreter's lock, or in processes of their own.
//!
//! What is about Python's values is in `infeed/_functions.py`, which both ways use.

mod here;
mod link;
mod processes;

use std::fmt;
use std::sync::Arc;

use infeed::Error;
use infeed::function::{Failed, Identity, On, Running};
use pyo3::prelude::*;

use here::Here;
use processes::Processes;

/// A function that a description refers to, by number or by name.
#[pyclass(frozen, module = "infeed._core")]
pub(crate) struct Function {
    inner: Arc<User>,
}

#[pymethods]
impl Function {
    #[new]
    fn new(name: String, adapter: Py<PyAny>, batch: bool) -> Function {
        let on = if batch { On::Batch } else { On::Sample };
        let inner = Arc::new(User { name, adapter, on });
        Function { inner }
    }
}

impl Function {
    pub(crate) fn shared(&self) -> Arc<dyn infeed::function::Function> {
        Arc::clone(&self.inner) as Arc<dyn infeed::function::Function>
    }
}

/// A function and the object that calls it.
struct User {
    name: String,
    adapter: Py<PyAny>,
    on: On,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("User").field(&self.name).finish()
    }
}

impl infeed::function::Function for User {
    fn name(&self) -> &str {
        &self.name
    }

    fn on(&self) -> Option<On> {
        Some(self.on)
    }

    fn bound_here(&self) -> Option<String> {
        let asked = Python::attach(|py| -> PyResult<Option<String>> {
            self.adapter.bind(py).call_method0("bound_here")?.extract()
        });
        asked.unwrap_or_else(|error| Some(text(&error)))
    }

    fn identity(&self) -> Result<Identity, String> {
        let told = Python::attach(|py| -> PyResult<(String, String)> {
            self.adapter
                .bind(py)
                .call_method1("identity", (&self.name,))?
                .extract()
        });
        match told {
            Ok((code, language)) => Ok(Identity { code, language }),
            Err(error) => Err(text(&error)),
        }
    }

    fn start(&self, processes: usize) -> Result<Box<dyn Running>, Error> {
        if processes == 0 {
            let adapter = Python::attach(|py| self.adapter.clone_ref(py));
            return Ok(Box::new(Here::new(adapter)));
        }
        let part = || format!("python ({})", self.name);
        let launch = Python::attach(|py| -> PyResult<_> {
            self.adapter.bind(py).call_method0("launch")?.extract()
        });
        let launch = launch.map_err(|error| Error::config(part(), text(&error)))?;
        let started = Processes::start(launch, processes);
        Ok(Box::new(started.map_err(|failed| match failed {
            Failed::Raised(cause) => Error::config(
                part(),
                format!("it does not start in another process: {cause}"),
            ),
            Failed::Process(source) => Error::Process {
                function: self.name.clone(),
                source,
            },
            Failed::Closed => Error::Closed,
        })?))
    }
}

/// Imports a function that a description names, if one of the patterns allows it.
pub(crate) fn import(
    name: &str,
    on: On,
    allowed: &[String],
) -> Result<Option<Arc<dyn infeed::function::Function>>, Error> {
    let found = Python::attach(|py| -> PyResult<_> {
        let module = py.import("infeed._functions")?;
        let found = module.call_method1("imported", (name, on == On::Batch, allowed))?;
        if found.is_none() {
            return Ok(None);
        }
        Ok(Some(found.cast::<Function>()?.get().shared()))
    });
    found.map_err(|error| Error::config("python", text(&error)))
}

/// What an exception of infeed's own says.
fn text(error: &PyErr) -> String {
    Python::attach(|py| error.value(py).to_string())
}
