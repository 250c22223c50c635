//! Values of an entry by name: registers, special registers, constants.

use std::collections::HashMap;

use super::arithmetic::low;
use super::error::BadPtx;
use super::instruction::ValueIndex;

/// Special registers, in the first slots.
pub(super) const THREAD: ValueIndex = 0;
pub(super) const BLOCK: ValueIndex = 1;
pub(super) const THREADS: ValueIndex = 2;
pub(super) const BLOCKS: ValueIndex = 3;
/// A predicate that is always set, for instructions without a guard.
pub(super) const ALWAYS: ValueIndex = 4;

const SPECIAL: [(&str, ValueIndex); 4] = [
    ("%tid.x", THREAD),
    ("%ctaid.x", BLOCK),
    ("%ntid.x", THREADS),
    ("%nctaid.x", BLOCKS),
];

/// Registers declared together, `%r<3>`, or a single one.
#[derive(Debug)]
struct Registers {
    first: ValueIndex,
    /// None for a single register.
    count: Option<usize>,
    /// Width in bits; 1 for predicates.
    bits: u8,
}

/// All values that instructions of an entry may refer to.
pub(super) struct EntryValues<'a> {
    /// Initial contents of every slot.
    begin: Vec<u64>,
    /// Registers by name, with those of the innermost braces last.
    scopes: Vec<HashMap<&'a str, Registers>>,
    constants: HashMap<u64, ValueIndex>,
    /// The parameter and its address.
    parameter: Option<(&'a str, u64)>,
}

impl<'a> EntryValues<'a> {
    pub(super) fn new(parameter: Option<(&'a str, u64)>) -> EntryValues<'a> {
        EntryValues {
            begin: vec![0, 0, 0, 0, 1],
            scopes: vec![HashMap::new()],
            constants: HashMap::new(),
            parameter,
        }
    }

    /// Returns the initial contents of every slot. An unwritten register is undefined, so it
    /// contains noise: a program must not rely on zeros.
    pub(super) fn into_begin(self) -> Vec<u64> {
        self.begin
    }

    pub(super) fn open(&mut self) {
        self.scopes.push(HashMap::new());
    }

    /// Closes braces. Returns false if only the entry's are open.
    pub(super) fn close(&mut self) -> bool {
        self.scopes.pop();
        !self.scopes.is_empty()
    }

    /// Declares `count` registers, or a single one.
    pub(super) fn declare(
        &mut self,
        line: u32,
        name: &'a str,
        count: Option<usize>,
        bits: u8,
    ) -> Result<(), BadPtx> {
        let first = self.next(line)?;
        let registers = Registers { first, count, bits };
        let scope = self.scopes.last_mut();
        if scope.is_some_and(|scope| scope.insert(name, registers).is_some()) {
            return Err(BadPtx::new(line, format!("`{name}` is declared twice")));
        }
        for _ in 0..count.unwrap_or(1) {
            let noise = (self.begin.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.begin.push(low(noise ^ noise >> 29, bits));
            self.next(line)?;
        }
        Ok(())
    }

    /// Returns the slot and the width of a target register.
    pub(super) fn register(&self, line: u32, name: &str) -> Result<(ValueIndex, u8), BadPtx> {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, number) = name.split_at(name.len() - digits);
        let is_plain = number == "0" || !number.starts_with('0');
        for scope in self.scopes.iter().rev() {
            if let Some(one) = scope.get(name).filter(|one| one.count.is_none()) {
                return Ok((one.first, one.bits));
            }
            if let (Some(many), Ok(n), true) =
                (scope.get(prefix), number.parse::<usize>(), is_plain)
                && many.count.is_some_and(|count| n < count)
            {
                return Ok((many.first + n as ValueIndex, many.bits));
            }
        }
        Err(BadPtx::new(
            line,
            format!("`{name}` is not a register here"),
        ))
    }

    /// Returns the slot and the width of any readable name.
    pub(super) fn readable(&mut self, line: u32, name: &str) -> Result<(ValueIndex, u8), BadPtx> {
        if let Some(&(_, slot)) = SPECIAL.iter().find(|(special, _)| *special == name) {
            return Ok((slot, 32));
        }
        match self.parameter {
            Some((parameter, address)) if parameter == name => {
                Ok((self.constant(line, address)?, 64))
            }
            _ => self.register(line, name),
        }
    }

    /// Returns the slot of a number.
    pub(super) fn constant(&mut self, line: u32, value: u64) -> Result<ValueIndex, BadPtx> {
        if let Some(&slot) = self.constants.get(&value) {
            return Ok(slot);
        }
        let slot = self.next(line)?;
        self.begin.push(value);
        self.constants.insert(value, slot);
        Ok(slot)
    }

    fn next(&self, line: u32) -> Result<ValueIndex, BadPtx> {
        let next = ValueIndex::try_from(self.begin.len());
        next.map_err(|_| BadPtx::new(line, "the entry has more than 65536 values"))
    }
}
