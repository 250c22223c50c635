//! Errors of a text, and of a kernel that runs.

use std::fmt;

/// Text that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the PTX: {what}")]
pub struct BadPtx {
    /// Line, from 1.
    pub line: u32,
    /// The unsupported part.
    pub what: String,
}

impl BadPtx {
    pub(super) fn new(line: u32, what: impl Into<String>) -> BadPtx {
        let what = what.into();
        BadPtx { line, what }
    }
}

/// The thread and the instruction of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Entry that ran.
    pub entry: String,
    /// Block in the grid.
    pub block: u32,
    /// Thread in its block.
    pub thread: u32,
    /// Line of the text, from 1.
    pub line: u32,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site {
            entry,
            block,
            thread,
            line,
        } = self;
        write!(f, "{entry}, block {block}, thread {thread}, line {line}")
    }
}

/// Reason why a kernel stopped early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum KernelFault {
    /// The module has no entry of that name.
    #[error("there is no entry {entry}")]
    NoEntry { entry: String },

    /// The argument's length differs from the entry's parameter.
    #[error("{entry} takes an argument of {expected} bytes, and got {found}")]
    Argument {
        entry: String,
        expected: usize,
        found: usize,
    },

    /// An access to an invalid address.
    #[error("{site}: {bytes} bytes at {address:#x} are outside of memory")]
    Outside {
        site: Site,
        address: u64,
        bytes: usize,
    },

    /// An access at an address that is not a multiple of its size.
    #[error("{site}: {bytes} bytes at {address:#x}, which is not a multiple of that size")]
    Misaligned {
        site: Site,
        address: u64,
        bytes: usize,
    },

    /// A thread exceeded its limit of instructions.
    #[error("{site}: more than {instructions} instructions in one thread")]
    Endless { site: Site, instructions: u64 },
}
