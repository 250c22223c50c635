//! Data and fakes for trying the engine out: made here, the same on every machine.

pub mod server;
pub mod synthetic;
