//! Runs threads, one after another.

use super::arithmetic;
use super::error::{KernelFault, Site};
use super::instruction::{Instruction, KernelCode, MemoryOperands, Opcode, Space, ValueIndex};
use super::memory::{AddressFault, KernelMemory};
use super::values::{BLOCK, BLOCKS, THREAD, THREADS};

/// Reason why a thread stopped, before its location is known.
enum ThreadFault {
    Outside { address: u64, bytes: usize },
    Misaligned { address: u64, bytes: usize },
}

/// A thread's values, and the memory that it may load from.
struct Thread<'a, M> {
    values: Vec<u64>,
    /// The parameter and its address.
    argument: &'a [u8],
    parameter: u64,
    memory: &'a M,
}

/// Runs every thread of every block, and calls `watch` with the line of every instruction.
pub(super) fn grid<M: KernelMemory>(
    entry: &KernelCode,
    blocks: u32,
    threads: u32,
    argument: &[u8],
    memory: &M,
    limit: u64,
    mut watch: impl FnMut(u32),
) -> Result<(), KernelFault> {
    let mut state = Thread {
        values: entry.begin.clone(),
        argument,
        parameter: entry.parameter,
        memory,
    };
    for block in 0..blocks {
        for thread in 0..threads {
            state.values.copy_from_slice(&entry.begin);
            state.set(THREAD, thread.into());
            state.set(BLOCK, block.into());
            state.set(THREADS, threads.into());
            state.set(BLOCKS, blocks.into());
            let site = |at: usize| Site {
                entry: entry.name.clone(),
                block,
                thread,
                line: entry.code.get(at).map_or(0, |instruction| instruction.line),
            };
            let mut at = 0;
            state
                .run(&entry.code, &mut at, limit, &mut watch)
                .map_err(|wrong| match wrong {
                    Some(ThreadFault::Outside { address, bytes }) => {
                        let site = site(at);
                        KernelFault::Outside {
                            site,
                            address,
                            bytes,
                        }
                    }
                    Some(ThreadFault::Misaligned { address, bytes }) => {
                        let site = site(at);
                        KernelFault::Misaligned {
                            site,
                            address,
                            bytes,
                        }
                    }
                    None => KernelFault::Endless {
                        site: site(at),
                        instructions: limit,
                    },
                })?;
        }
    }
    Ok(())
}

impl<M: KernelMemory> Thread<'_, M> {
    fn get(&self, slot: ValueIndex) -> u64 {
        self.values[usize::from(slot)]
    }

    fn set(&mut self, slot: ValueIndex, value: u64) {
        self.values[usize::from(slot)] = value;
    }

    /// Runs to the end. An error without a reason means that the thread reached the limit; `at`
    /// stays at the instruction.
    fn run(
        &mut self,
        code: &[Instruction],
        at: &mut usize,
        limit: u64,
        watch: &mut impl FnMut(u32),
    ) -> Result<(), Option<ThreadFault>> {
        let mut ran = 0;
        // Ends at `ret`: parsing ensures that the last instruction leaves the code.
        while let Some(instruction) = code.get(*at) {
            if ran == limit {
                return Err(None);
            }
            ran += 1;
            if self.get(instruction.guard) != instruction.expected {
                *at += 1;
                continue;
            }
            watch(instruction.line);
            match instruction.what {
                Opcode::One { how, to, a } => self.set(to, arithmetic::one(how, self.get(a))),
                Opcode::Two {
                    how,
                    bits,
                    to,
                    a,
                    b,
                } => {
                    self.set(to, arithmetic::two(how, bits, self.get(a), self.get(b)));
                }
                Opcode::Three {
                    how,
                    bits,
                    to,
                    a,
                    b,
                    c,
                } => {
                    let (a, b, c) = (self.get(a), self.get(b), self.get(c));
                    self.set(to, arithmetic::three(how, bits, a, b, c));
                }
                Opcode::Unpack { to, a } => {
                    let whole = self.get(a);
                    self.set(to[0], arithmetic::low(whole, 32));
                    self.set(to[1], whole >> 32);
                }
                Opcode::Load {
                    space,
                    access,
                    register,
                    is_signed,
                } => {
                    self.load(space, access, register, is_signed)?;
                }
                Opcode::Store { access } => self.store(access)?,
                Opcode::Branch { to } => {
                    *at = to as usize;
                    continue;
                }
                Opcode::Return => return Ok(()),
            }
            *at += 1;
        }
        Ok(())
    }

    fn load(
        &mut self,
        space: Space,
        access: MemoryOperands,
        register: u8,
        is_signed: bool,
    ) -> Result<(), ThreadFault> {
        let (address, len) = self.locate(access)?;
        let mut bytes = [0; 16];
        let bytes = &mut bytes[..len];
        let loaded = match space {
            Space::Global => self.memory.load(address, bytes),
            Space::Parameter => self.parameter(address, bytes),
        };
        if loaded.is_err() {
            return Err(ThreadFault::Outside {
                address,
                bytes: len,
            });
        }
        let elements = bytes.chunks_exact(usize::from(access.bytes));
        for (element, slot) in elements.zip(access.registers) {
            let mut value = [0; 8];
            value[..element.len()].copy_from_slice(element);
            let value = u64::from_le_bytes(value);
            let value = match is_signed {
                true => arithmetic::low(
                    arithmetic::sign_extend(value, 8 * access.bytes) as u64,
                    register,
                ),
                false => value,
            };
            self.set(slot, value);
        }
        Ok(())
    }

    fn store(&mut self, access: MemoryOperands) -> Result<(), ThreadFault> {
        let (address, len) = self.locate(access)?;
        let mut bytes = [0; 16];
        let elements = bytes[..len].chunks_exact_mut(usize::from(access.bytes));
        for (element, slot) in elements.zip(access.registers) {
            let value = self.get(slot).to_le_bytes();
            element.copy_from_slice(&value[..element.len()]);
        }
        let stored = self.memory.store(address, &bytes[..len]);
        stored.map_err(|AddressFault| ThreadFault::Outside {
            address,
            bytes: len,
        })
    }

    /// Returns the address and the length of an access, at most 16 bytes; the address is aligned.
    fn locate(&self, access: MemoryOperands) -> Result<(u64, usize), ThreadFault> {
        let bytes = usize::from(access.bytes) * usize::from(access.count);
        let address = self
            .get(access.address)
            .wrapping_add_signed(access.offset.into());
        match address.is_multiple_of(bytes as u64) {
            true => Ok((address, bytes)),
            false => Err(ThreadFault::Misaligned { address, bytes }),
        }
    }

    fn parameter(&self, address: u64, to: &mut [u8]) -> Result<(), AddressFault> {
        let begin = address.checked_sub(self.parameter).ok_or(AddressFault)?;
        let begin = usize::try_from(begin).map_err(|_| AddressFault)?;
        let end = begin.checked_add(to.len()).ok_or(AddressFault)?;
        to.copy_from_slice(self.argument.get(begin..end).ok_or(AddressFault)?);
        Ok(())
    }
}
