//! Errors of a connection.

use super::refusal::Refusal;

/// Errors of a connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The connection failed.
    #[error("the connection failed: {}", reason(.0))]
    Io(#[from] std::io::Error),
    /// The other side sent an invalid message.
    #[error("the peer sent {0}")]
    Malformed(String),
    /// A checksum differs, so the lengths in the message cannot be trusted.
    #[error("checksum mismatch in {0}")]
    Corrupt(&'static str),
    /// The other side proved the token and rejects this run.
    #[error("{0}")]
    Refused(Refusal),
    /// The other side rejects this run and did not prove the token.
    #[error("the peer did not prove that it knows the token; its message: {0}")]
    Unproven(Refusal),
}

/// Names the end of a stream, for which the standard library only reports an unfilled buffer.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            "the peer closed it; see its log for the reason".to_owned()
        }
        _ => error.to_string(),
    }
}

impl WireError {
    /// Creates the error for an invalid message.
    pub fn malformed(what: impl Into<String>) -> WireError {
        WireError::Malformed(what.into())
    }
}
