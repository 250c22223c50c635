//! Tests of the code's structure, in `tests`. They need a parser of Rust and no other library, so they
//! run before anything else is compiled. [`imports`] finds the files that a file of a crate uses.

pub mod imports;
