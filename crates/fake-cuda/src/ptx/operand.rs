//! Operands as written, and their conversion to an instruction's type.

use super::error::BadPtx;
use super::instruction::ValueIndex;
use super::token::{PtxToken, Tokens};
use super::values::EntryValues;

/// One operand of an instruction.
#[derive(Clone, Debug)]
pub(super) enum Operand<'a> {
    /// A register, a special register, the parameter or a label.
    Name(&'a str),
    /// An integer.
    Number(i128),
    /// Bits of a number in `0f` notation.
    Float(u32),
    /// `[base+offset]`
    Address { base: &'a str, offset: i32 },
    /// `{a, b}`
    Vector(Vec<&'a str>),
}

/// An instruction being parsed: its name, its operands and the values that they may refer to.
pub(super) struct InstructionReader<'a, 'v> {
    pub(super) line: u32,
    pub(super) opcode: &'a str,
    pub(super) operands: Vec<Operand<'a>>,
    pub(super) values: &'v mut EntryValues<'a>,
}

/// Parses operands up to the semicolon.
pub(super) fn operands<'a>(tokens: &mut Tokens<'a>) -> Result<Vec<Operand<'a>>, BadPtx> {
    let mut operands = Vec::new();
    if tokens.takes(';') {
        return Ok(operands);
    }
    loop {
        operands.push(operand(tokens)?);
        if tokens.takes(';') {
            return Ok(operands);
        }
        tokens.sign(',')?;
    }
}

fn operand<'a>(tokens: &mut Tokens<'a>) -> Result<Operand<'a>, BadPtx> {
    if tokens.takes('[') {
        let base = tokens.word()?;
        let offset = match tokens.takes('+') {
            true => number(tokens)?,
            false => 0,
        };
        let offset = i32::try_from(offset)
            .map_err(|_| BadPtx::new(tokens.line(), "an offset has more than 32 bits"))?;
        tokens.sign(']')?;
        return Ok(Operand::Address { base, offset });
    }
    if tokens.takes('{') {
        let mut names = vec![tokens.word()?];
        while tokens.takes(',') {
            names.push(tokens.word()?);
        }
        tokens.sign('}')?;
        return Ok(Operand::Vector(names));
    }
    let begins_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    match tokens.peek() {
        Some(PtxToken::Word(word)) if word.starts_with("0f") || word.starts_with("0F") => {
            tokens.next();
            let bits = Some(&word[2..]).filter(|digits| digits.len() == 8);
            let bits = bits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
            let wrong = || BadPtx::new(tokens.line(), format!("`{word}` is not a number"));
            Ok(Operand::Float(bits.ok_or_else(wrong)?))
        }
        Some(PtxToken::Word(word)) if !begins_number(word) => {
            tokens.next();
            Ok(Operand::Name(word))
        }
        _ => Ok(Operand::Number(number(tokens)?)),
    }
}

/// Parses an integer, decimal or hexadecimal, of at most 64 bits.
fn number(tokens: &mut Tokens<'_>) -> Result<i128, BadPtx> {
    let line = tokens.line();
    let is_negative = tokens.takes('-');
    let word = tokens.word()?;
    let value = match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        // A leading 0 makes it octal.
        None if word.len() > 1 && word.starts_with('0') => u64::from_str_radix(word, 8),
        None => word.parse(),
    };
    let value = value.map_err(|_| BadPtx::new(line, format!("`{word}` is not a number")))?;
    Ok(if is_negative {
        -i128::from(value)
    } else {
        i128::from(value)
    })
}

impl<'a> InstructionReader<'a, '_> {
    pub(super) fn bad(&self, what: impl std::fmt::Display) -> BadPtx {
        BadPtx::new(self.line, format!("`{}`: {what}", self.opcode))
    }

    /// Returns the operands if there are exactly `N`.
    pub(super) fn exactly<const N: usize>(&self) -> Result<[Operand<'a>; N], BadPtx> {
        let found = self.operands.len();
        let operands = self.operands.clone().try_into();
        operands.map_err(|_| self.bad(format!("expected {N} operands, found {found}")))
    }

    /// Returns a target register with this width.
    pub(super) fn to(&self, operand: &Operand<'a>, bits: u8) -> Result<ValueIndex, BadPtx> {
        let Operand::Name(name) = *operand else {
            return Err(self.bad("the target is not a register"));
        };
        let (slot, found) = self.values.register(self.line, name)?;
        self.same(name, found, bits)?;
        Ok(slot)
    }

    /// Returns a value with this width: a register, a special register, or a number that fits.
    pub(super) fn from(&mut self, operand: &Operand<'a>, bits: u8) -> Result<ValueIndex, BadPtx> {
        match *operand {
            Operand::Name(name) => {
                let (slot, found) = self.values.readable(self.line, name)?;
                self.same(name, found, bits)?;
                Ok(slot)
            }
            // Any value but 0 is true.
            Operand::Number(number) if bits == 1 => {
                self.values.constant(self.line, u64::from(number != 0))
            }
            Operand::Number(number) => {
                let fits = -(1_i128 << (bits - 1)) <= number && number < 1_i128 << bits;
                if !fits {
                    return Err(self.bad(format!("{number} does not fit {bits} bits")));
                }
                let value = super::arithmetic::low(number as u64, bits);
                self.values.constant(self.line, value)
            }
            Operand::Float(value) if bits == 32 => {
                self.values.constant(self.line, u64::from(value))
            }
            _ => Err(self.bad(format!("{operand:?} is not a value of {bits} bits"))),
        }
    }

    /// Returns a register with at least this width, and its width.
    pub(super) fn wide(&self, name: &str, bits: u8) -> Result<(ValueIndex, u8), BadPtx> {
        let (slot, found) = self.values.register(self.line, name)?;
        if found < bits {
            return Err(self.bad(format!("{name} has {found} bits, fewer than {bits}")));
        }
        Ok((slot, found))
    }

    fn same(&self, name: &str, found: u8, bits: u8) -> Result<(), BadPtx> {
        if found == bits {
            return Ok(());
        }
        Err(self.bad(format!("{name} has {found} bits, expected {bits}")))
    }
}
