//! The Python binding of infeed.
