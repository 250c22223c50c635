//! What trainers and feeders say to each other: frames of limited length over TCP, a handshake in which
//! each shows that it knows the token and the trainer says which run it means, and rows of batches.
//!
//! Numbers are little-endian. Whatever comes is hostile until shown otherwise: lengths have limits
//! before anything is allocated for them, memory grows with the bytes that have come, and nothing is
//! ever run or unpickled. There is no encryption; each column has a checksum, since TCP's is weak.
//!
//! It stands above the plan, whose bits its self-test looks at, and below the loader, which fills
//! the rows and is what a feeder runs. Who asks whom, and what happens when: `feed/README.md`.

pub mod bits;
pub mod bytes;
pub mod frame;
pub mod hello;
pub mod looks;
pub mod note;
pub mod rows;
pub mod socket;
pub mod token;

/// Version of all this; others are refused.
pub const VERSION: u32 = 2;

/// Why a conversation cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The connection.
    #[error("the connection failed: {}", reason(.0))]
    Io(#[from] std::io::Error),
    /// What came is not what may come here.
    #[error("it sent {0}")]
    Malformed(String),
    /// A checksum differs where going on would mean to trust a length.
    #[error("bytes of {0} were changed on the way")]
    Corrupt(&'static str),
    /// The other side does not want this run.
    #[error("{0}")]
    Refused(hello::Refusal),
}

/// Names the end of a stream, for which the standard library only reports an unfilled buffer.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            "the other side closed it; its log says why".to_owned()
        }
        _ => error.to_string(),
    }
}

impl WireError {
    /// Something that may not come here.
    pub fn malformed(what: impl Into<String>) -> WireError {
        WireError::Malformed(what.into())
    }
}
