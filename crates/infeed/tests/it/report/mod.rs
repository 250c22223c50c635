//! What people and programs are told of an explanation.

mod synthetic;
mod told;
