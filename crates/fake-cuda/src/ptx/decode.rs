//! Translates an opcode and its operands into an operation. Every supported instruction is here;
//! all others are errors.

use super::error::BadPtx;
use super::instruction::{
    BinaryOp, Compare, MemoryOperands, Opcode, Space, TernaryOp, UnaryOp, ValueIndex,
};
use super::kind::NumberKind::{self, Bits, Float, Predicate, Signed, Unsigned};
use super::kind::Type;
use super::operand::{InstructionReader, Operand};

const INTEGERS: &[NumberKind] = &[Unsigned, Signed];
const ANY: &[NumberKind] = &[Bits, Unsigned, Signed];
const WORDS: &[u8] = &[16, 32, 64];
const HALVES: &[u8] = &[16, 32];
const LONG: &[u8] = &[32, 64];

/// Translates an instruction that is not a branch.
pub(super) fn decode(reading: &mut InstructionReader<'_, '_>) -> Result<Opcode, BadPtx> {
    let opcode = reading.opcode;
    let parts: Vec<&str> = opcode.split('.').collect();
    let line = reading.line;
    let unknown = || BadPtx::new(line, format!("the instruction `{opcode}` is not supported"));
    if let ["ret"] = parts[..] {
        reading.exactly::<0>()?;
        return Ok(Opcode::Return);
    }
    let last = parts.last().and_then(|name| Type::of(name));
    let kind = last.ok_or_else(unknown)?;
    let modifiers = &parts[..parts.len() - 1];
    if let ["ld" | "st", ..] = modifiers {
        return memory(reading, modifiers, kind)?.ok_or_else(unknown);
    }
    if let ["mov"] = modifiers {
        return mov(reading, kind)?.ok_or_else(unknown);
    }
    if let (["cvt", "rn", "bf16x2"], Float) = (modifiers, kind.kind) {
        return two(reading, BinaryOp::PackBf16, 32);
    }
    if let ["cvt", to @ ..] = modifiers {
        return convert(reading, to, kind)?.ok_or_else(unknown);
    }
    if let Some(how) = one_of(modifiers, kind) {
        let [to, a] = reading.exactly()?;
        let to = reading.to(&to, kind.bits)?;
        let a = reading.from(&a, kind.bits)?;
        return Ok(Opcode::One { how, to, a });
    }
    if let Some(how) = two_of(modifiers, kind) {
        return two(reading, how, kind.bits);
    }
    let how = three_of(modifiers, kind).ok_or_else(unknown)?;
    three(reading, how, kind.bits)
}

fn one_of(modifiers: &[&str], kind: Type) -> Option<UnaryOp> {
    let bits = kind.bits;
    match modifiers {
        ["not"] if kind.is(&[Bits], WORDS) || kind.kind == Predicate => Some(UnaryOp::Not { bits }),
        ["neg"] if kind.is(&[Signed], WORDS) => Some(UnaryOp::Negate { bits }),
        _ => None,
    }
}

fn two_of(modifiers: &[&str], kind: Type) -> Option<BinaryOp> {
    let is_signed = kind.is_signed();
    let is_integer = kind.is(INTEGERS, WORDS);
    let is_float = kind.kind == Float;
    let is_logic = kind.is(&[Bits], WORDS) || kind.kind == Predicate;
    Some(match *modifiers {
        ["add"] if is_integer => BinaryOp::Add,
        ["sub"] if is_integer => BinaryOp::Sub,
        ["mul", "lo"] if is_integer => BinaryOp::Mul,
        ["mul", "wide"] if kind.is(INTEGERS, HALVES) => BinaryOp::MulWide { is_signed },
        ["min"] if is_integer => BinaryOp::Min { is_signed },
        ["max"] if is_integer => BinaryOp::Max { is_signed },
        ["and"] if is_logic => BinaryOp::And,
        ["or"] if is_logic => BinaryOp::Or,
        ["xor"] if is_logic => BinaryOp::Xor,
        ["shl"] if kind.is(&[Bits], WORDS) => BinaryOp::ShiftLeft,
        ["shr"] if kind.is(ANY, WORDS) => BinaryOp::ShiftRight { is_signed },
        ["add", "rn"] if is_float => BinaryOp::AddFloat,
        ["mul", "rn"] if is_float => BinaryOp::MulFloat,
        ["setp", how] if kind.is(ANY, WORDS) => BinaryOp::Compare {
            how: compare(how, kind)?,
            is_signed,
        },
        _ => return None,
    })
}

/// Unsigned numbers have separate names for their comparisons; untyped bits have none.
fn compare(how: &str, kind: Type) -> Option<Compare> {
    match (how, kind.kind) {
        ("eq", _) => Some(Compare::Equal),
        ("ne", _) => Some(Compare::NotEqual),
        ("lt", Unsigned | Signed) | ("lo", Unsigned) => Some(Compare::Less),
        ("le", Unsigned | Signed) | ("ls", Unsigned) => Some(Compare::LessOrEqual),
        ("gt", Unsigned | Signed) | ("hi", Unsigned) => Some(Compare::Greater),
        ("ge", Unsigned | Signed) | ("hs", Unsigned) => Some(Compare::GreaterOrEqual),
        _ => None,
    }
}

fn three_of(modifiers: &[&str], kind: Type) -> Option<TernaryOp> {
    Some(match *modifiers {
        ["mad", "lo"] if kind.is(INTEGERS, WORDS) => TernaryOp::MulAdd,
        ["selp"] if kind.is(ANY, WORDS) => TernaryOp::Select,
        ["bfe"] if kind.is(INTEGERS, LONG) => TernaryOp::Extract {
            is_signed: kind.is_signed(),
        },
        ["shf", direction @ ("l" | "r"), mode @ ("wrap" | "clamp")] if kind.is(&[Bits], &[32]) => {
            TernaryOp::Funnel {
                is_left: direction == "l",
                wraps: mode == "wrap",
            }
        }
        _ => return None,
    })
}

fn two(reading: &mut InstructionReader<'_, '_>, how: BinaryOp, bits: u8) -> Result<Opcode, BadPtx> {
    let [to, a, b] = reading.exactly()?;
    let result = match how {
        BinaryOp::MulWide { .. } => 2 * bits,
        BinaryOp::Compare { .. } => 1,
        _ => bits,
    };
    // A shift amount has 32 bits for every operand type.
    let second = match how {
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight { .. } => 32,
        _ => bits,
    };
    Ok(Opcode::Two {
        how,
        bits,
        to: reading.to(&to, result)?,
        a: reading.from(&a, bits)?,
        b: reading.from(&b, second)?,
    })
}

fn three(
    reading: &mut InstructionReader<'_, '_>,
    how: TernaryOp,
    bits: u8,
) -> Result<Opcode, BadPtx> {
    let [to, a, b, c] = reading.exactly()?;
    let (second, third) = match how {
        TernaryOp::Extract { .. } => (32, 32),
        TernaryOp::Select => (bits, 1),
        TernaryOp::MulAdd | TernaryOp::Funnel { .. } => (bits, bits),
    };
    Ok(Opcode::Three {
        how,
        bits,
        to: reading.to(&to, bits)?,
        a: reading.from(&a, bits)?,
        b: reading.from(&b, second)?,
        c: reading.from(&c, third)?,
    })
}

/// Translates `mov` of a value, of halves to a whole, and of a whole to halves.
fn mov(reading: &mut InstructionReader<'_, '_>, kind: Type) -> Result<Option<Opcode>, BadPtx> {
    if kind.bits == 8 {
        return Ok(None);
    }
    let [to, a] = reading.exactly()?;
    let is_whole = kind.is(&[Bits], &[64]);
    match (&to, &a) {
        (Operand::Vector(halves), whole) if is_whole => {
            let to = halves_of(reading, halves)?;
            let a = reading.from(whole, 64)?;
            Ok(Some(Opcode::Unpack { to, a }))
        }
        (whole, Operand::Vector(halves)) if is_whole => {
            let [a, b] = halves_of(reading, halves)?;
            let to = reading.to(whole, 64)?;
            let (how, bits) = (BinaryOp::Pack, 64);
            Ok(Some(Opcode::Two {
                how,
                bits,
                to,
                a,
                b,
            }))
        }
        _ => {
            let to = reading.to(&to, kind.bits)?;
            let a = reading.from(&a, kind.bits)?;
            let how = UnaryOp::Move;
            Ok(Some(Opcode::One { how, to, a }))
        }
    }
}

fn halves_of(
    reading: &InstructionReader<'_, '_>,
    names: &[&str],
) -> Result<[ValueIndex; 2], BadPtx> {
    let [low, high] = names else {
        return Err(reading.bad("a value of 64 bits has two halves"));
    };
    let half = |name: &&str| match reading.values.register(reading.line, name)? {
        (slot, 32) => Ok(slot),
        (_, bits) => Err(reading.bad(format!("{name} has {bits} bits, expected 32"))),
    };
    Ok([half(low)?, half(high)?])
}

/// Translates a conversion; `to` is the text between `cvt` and the source type.
fn convert(
    reading: &mut InstructionReader<'_, '_>,
    to: &[&str],
    from: Type,
) -> Result<Option<Opcode>, BadPtx> {
    let is_integer = |kind: Type| kind.is(INTEGERS, &[8, 16, 32, 64]);
    let (how, to) = match *to {
        ["rn", "f32"] if is_integer(from) => {
            let from = from.number();
            (UnaryOp::Float { from }, 32)
        }
        ["rn", "f16"] if from.kind == Float => (UnaryOp::Half, 16),
        [name] if is_integer(from) => match Type::of(name) {
            Some(to) if is_integer(to) => {
                let (from, to) = (from.number(), to.number());
                // The register may be wider; its width is checked below.
                (
                    UnaryOp::Integer {
                        from,
                        to,
                        register: 0,
                    },
                    to.bits,
                )
            }
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let [target, source] = reading.exactly()?;
    let (Operand::Name(target_name), Operand::Name(source_name)) = (&target, &source) else {
        return Err(reading.bad("the source of a conversion is not a register"));
    };
    let (a, _) = match source_name.contains('.') {
        true => (reading.from(&source, from.bits)?, from.bits),
        false => reading.wide(source_name, from.bits)?,
    };
    let (how, to) = match how {
        UnaryOp::Integer { from, to, .. } => {
            let (slot, register) = reading.wide(target_name, to.bits)?;
            (UnaryOp::Integer { from, to, register }, slot)
        }
        how => (how, reading.to(&target, to)?),
    };
    Ok(Some(Opcode::One { how, to, a }))
}

/// Translates loads and stores. Registers may be wider than the elements in memory.
fn memory(
    reading: &mut InstructionReader<'_, '_>,
    modifiers: &[&str],
    kind: Type,
) -> Result<Option<Opcode>, BadPtx> {
    let (is_load, space, count) = match *modifiers {
        ["ld", "global"] => (true, Space::Global, 1),
        ["ld", "global", "v2"] => (true, Space::Global, 2),
        ["ld", "global", "v4"] => (true, Space::Global, 4),
        ["ld", "param"] => (true, Space::Parameter, 1),
        ["ld", "param", "v2"] => (true, Space::Parameter, 2),
        ["ld", "param", "v4"] => (true, Space::Parameter, 4),
        ["st", "global"] => (false, Space::Global, 1),
        ["st", "global", "v2"] => (false, Space::Global, 2),
        ["st", "global", "v4"] => (false, Space::Global, 4),
        _ => return Ok(None),
    };
    // A vector has at most 16 bytes.
    if kind.kind == Predicate || u32::from(kind.bits) * u32::from(count) > 128 {
        return Ok(None);
    }
    let [first, second] = reading.exactly()?;
    let (names, address) = if is_load {
        (first, second)
    } else {
        (second, first)
    };
    let names = match names {
        Operand::Name(name) if count == 1 => vec![name],
        Operand::Vector(names) if names.len() == usize::from(count) && count > 1 => names,
        _ => return Err(reading.bad(format!("expected {count} registers"))),
    };
    let Operand::Address { base, offset } = address else {
        return Err(reading.bad("expected an address in brackets"));
    };
    let mut registers = [0; 4];
    let mut register = 0;
    for (register_slot, name) in registers.iter_mut().zip(names) {
        let (slot, bits) = reading.wide(name, kind.bits)?;
        if bits > kind.bits && kind.kind == Float || register != 0 && register != bits {
            return Err(reading.bad(format!("{name} has {bits} bits")));
        }
        (*register_slot, register) = (slot, bits);
    }
    let access = MemoryOperands {
        address: reading.from(&Operand::Name(base), 64)?,
        offset,
        bytes: kind.bits / 8,
        count,
        registers,
    };
    let is_signed = kind.is_signed();
    Ok(Some(match is_load {
        true => Opcode::Load {
            space,
            access,
            register,
            is_signed,
        },
        false => Opcode::Store { access },
    }))
}
