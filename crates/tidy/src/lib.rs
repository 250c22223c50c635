//! Tests of the code's structure, in `tests/tidy.rs`. They have no dependencies, so they run before
//! anything else is compiled.
