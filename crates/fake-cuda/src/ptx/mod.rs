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
mod error;
mod instruction;
mod kind;
mod memory;
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

pub use error::{BadPtx, KernelFault, Site};
use instruction::KernelCode;
pub use memory::{AddressFault, KernelMemory};

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

impl Module {
    /// Parses a module.
    ///
    /// # Errors
    ///
    /// [`BadPtx`], for anything that is not supported.
    pub fn parse(text: &str) -> Result<Module, BadPtx> {
        let (target, entries) = parse::module(text)?;
        let names = entries.iter().map(|entry| entry.name.clone());
        Ok(Module {
            target,
            by_name: names.zip(0..).collect(),
            entries,
            limit: LIMIT,
        })
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
