//! A PTX interpreter: runs PTX text thread by thread on the host.
//!
//! Source: NVIDIA, "Parallel Thread Execution ISA", version 8. Instructions follow their
//! definitions to the bit: integers wrap, shifts by more than the width shift everything out,
//! float32 rounds to nearest even and keeps denormal numbers, and every NaN result has the bit
//! pattern that the manual specifies.
//!
//! **Supported PTX** is the PTX that clang emits for kernels like those of this workspace, and no
//! more. [`Module::parse`] returns an error for everything else and skips nothing.
//!
//! | part | forms |
//! |---|---|
//! | module | `.version` 1 to 8, `.target sm_N`, `.address_size 64`, `.visible`, `.entry` with at most one parameter, an array of `.b8` |
//! | in an entry | `.reg` of `.pred`, `.b16`, `.b32`, `.b64`; `.pragma "nounroll"`; labels; braces |
//! | values | registers, `%tid.x`, `%ctaid.x`, `%ntid.x`, `%nctaid.x`, integers, `0f` numbers, the parameter's address |
//! | integers of 16, 32, 64 bits | `add`, `sub`, `mul.lo`, `mul.wide`, `mad.lo`, `min`, `max`, `neg`, `setp`, `selp`, `bfe` |
//! | bits | `and`, `or`, `xor`, `not` (predicates too), `shl`, `shr`, `shf.{l,r}.{wrap,clamp}.b32`, `mov` (predicates and halves of 64 bits too) |
//! | float32 | `add.rn`, `mul.rn` |
//! | conversions | `cvt` between integers, `cvt.rn.f32` from integers, `cvt.rn.f16.f32` |
//! | memory | `ld.param`, `ld.global`, `st.global`, of 1 to 8 bytes, `.v2` and `.v4` up to 16 bytes |
//! | control | `bra`, `bra.uni`, `ret`; any instruction under `@%p` or `@!%p` |
//!
//! **More checks than a GPU.** An access outside of memory, or at an address that is not a multiple
//! of its size (of the whole vector's), is a [`KernelFault`] with the thread and the line. A
//! register contains noise until it is written. Threads run one after another, so races between
//! threads are not detected.

#![forbid(unsafe_code)]

mod arithmetic;
mod decode;
mod instruction;
mod kind;
mod operand;
mod parse;
mod run;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_bits;
#[cfg(test)]
mod tests_float;
#[cfg(test)]
mod tests_memory;
#[cfg(test)]
mod tests_parse;
mod token;
mod values;

use std::collections::HashMap;
use std::fmt;

use instruction::Instruction;

/// Default limit of instructions per thread: a few seconds.
const LIMIT: u64 = 1 << 28;

/// A parsed text, whose entries can be run.
#[derive(Debug)]
pub struct Module {
    target: u32,
    entries: Vec<KernelCode>,
    by_name: HashMap<String, usize>,
    limit: u64,
}

/// A kernel of a module.
#[derive(Debug)]
struct KernelCode {
    name: String,
    parameter_bytes: usize,
    /// Address of the parameter.
    parameter: u64,
    /// Instructions. The last one leaves the entry, and branches stay inside.
    code: Vec<Instruction>,
    /// Initial values of a thread.
    begin: Vec<u64>,
}

impl Module {
    /// Parses a module.
    ///
    /// # Errors
    ///
    /// [`BadPtx`], for anything that is not supported.
    pub fn parse(text: &str) -> Result<Module, BadPtx> {
        parse::module(text)
    }

    fn of(target: u32, entries: Vec<KernelCode>) -> Module {
        let names = entries.iter().map(|entry| entry.name.clone());
        Module {
            target,
            by_name: names.zip(0..).collect(),
            entries,
            limit: LIMIT,
        }
    }

    /// Sets the limit of instructions that a thread may run.
    pub fn with_limit(self, limit: u64) -> Module {
        Module { limit, ..self }
    }

    /// Minimum compute capability, times ten: 60 for `.target sm_60`.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Names of all entries, in the order of the text.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Bytes of an entry's parameter; 0 without a parameter; None if there is no such entry.
    pub fn parameter_bytes(&self, entry: &str) -> Option<usize> {
        Some(self.entry(entry)?.parameter_bytes)
    }

    /// Runs every thread of every block (x dimension only), one after another.
    ///
    /// # Errors
    ///
    /// The first [`KernelFault`]; earlier writes remain.
    pub fn run<M: KernelMemory>(
        &self,
        entry: &str,
        grid: u32,
        block: u32,
        argument: &[u8],
        memory: &M,
    ) -> Result<(), KernelFault> {
        self.run_watched(entry, grid, block, argument, memory, |_| ())
    }

    /// As [`Module::run`]; calls `watch` with the line of every instruction before it runs.
    ///
    /// # Errors
    ///
    /// As [`Module::run`].
    pub fn run_watched<M: KernelMemory>(
        &self,
        entry: &str,
        grid: u32,
        block: u32,
        argument: &[u8],
        memory: &M,
        watch: impl FnMut(u32),
    ) -> Result<(), KernelFault> {
        let Some(entry) = self.entry(entry) else {
            let entry = entry.to_owned();
            return Err(KernelFault::NoEntry { entry });
        };
        if argument.len() != entry.parameter_bytes {
            return Err(KernelFault::Argument {
                entry: entry.name.clone(),
                expected: entry.parameter_bytes,
                found: argument.len(),
            });
        }
        run::grid(entry, grid, block, argument, memory, self.limit, watch)
    }

    fn entry(&self, name: &str) -> Option<&KernelCode> {
        self.entries.get(*self.by_name.get(name)?)
    }
}

/// Memory of a GPU (global space). Kernels of several streams may use it at once.
///
/// The interpreter has checked the alignment of addresses, but not their range.
pub trait KernelMemory {
    /// Copies the bytes from an address on.
    ///
    /// # Errors
    ///
    /// [`AddressFault`] if some of them are not readable memory.
    fn load(&self, address: u64, to: &mut [u8]) -> Result<(), AddressFault>;

    /// Copies bytes to memory from an address on.
    ///
    /// # Errors
    ///
    /// [`AddressFault`] if some of the memory is not writable; nothing is written then.
    fn store(&self, address: u64, from: &[u8]) -> Result<(), AddressFault>;
}

/// The address is not valid memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressFault;

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
    fn new(line: u32, what: impl Into<String>) -> BadPtx {
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
