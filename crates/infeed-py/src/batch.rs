//! A batch and its columns, handed over without a copy.

use std::sync::Arc;

use infeed::batch::Values;
use pyo3::exceptions::{PyBufferError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

