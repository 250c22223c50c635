//! The protocol between trainers and feeders: frames of limited length over TCP, a handshake in
//! which both sides prove the token and the trainer describes its run, and rows of batches.
//!
//! Numbers are little-endian. No received byte is trusted: lengths have limits before memory is
//! allocated, memory grows with the received bytes, and nothing is executed or unpickled.
//! Connections between machines are encrypted ([`channel`]). Each column has a checksum, because
//! TCP's is weak.
//!
//! Trainers read rows into batches, and feeders send them. States and failures: this crate's README.

pub mod bits;
pub mod bytes;
pub mod channel;
pub mod content_hashes;
mod error;
pub mod frame;
pub mod hello;
pub mod note;
mod refusal;
pub mod rows;
pub mod socket;
pub mod token;

pub use error::WireError;
pub use hello::VERSION;
