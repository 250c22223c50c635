//! Results of instructions, by the manual's definitions. Values have no bits above their width;
//! widths are those of the instruction.

use super::instruction::{BinaryOp, Compare, IntegerType, TernaryOp, UnaryOp};

/// The manual's result for every f32 that is NaN.
const NAN: u32 = 0x7fff_ffff;

/// Returns the lower bits of a value.
pub(super) fn low(value: u64, bits: u8) -> u64 {
    if bits >= 64 {
        value
    } else {
        value & ((1 << bits) - 1)
    }
}

/// Returns the lower bits as a signed number.
pub(super) fn sign_extend(value: u64, bits: u8) -> i64 {
    let above = 64 - u32::from(bits.clamp(1, 64));
    ((value << above) as i64) >> above
}

fn number(value: u64, of: IntegerType) -> i64 {
    if of.is_signed {
        sign_extend(value, of.bits)
    } else {
        low(value, of.bits) as i64
    }
}

pub(super) fn one(how: UnaryOp, a: u64) -> u64 {
    match how {
        UnaryOp::Move => a,
        UnaryOp::Not { bits } => low(!a, bits),
        UnaryOp::Negate { bits } => low(a.wrapping_neg(), bits),
        UnaryOp::Integer { from, to, register } => {
            low(number(number(a, from) as u64, to) as u64, register)
        }
        UnaryOp::Float { from } => {
            let float = match from.is_signed {
                true => sign_extend(a, from.bits) as f32,
                false => low(a, from.bits) as f32,
            };
            u64::from(float.to_bits())
        }
        UnaryOp::Half => {
            let float = f32::from_bits(a as u32);
            match float.is_nan() {
                true => 0x7fff,
                false => u64::from(half::f16::from_f32(float).to_bits()),
            }
        }
    }
}

pub(super) fn two(how: BinaryOp, bits: u8, a: u64, b: u64) -> u64 {
    match how {
        BinaryOp::Add => low(a.wrapping_add(b), bits),
        BinaryOp::Sub => low(a.wrapping_sub(b), bits),
        BinaryOp::Mul => low(a.wrapping_mul(b), bits),
        BinaryOp::MulWide { is_signed: false } => a.wrapping_mul(b),
        BinaryOp::MulWide { is_signed: true } => {
            let product = sign_extend(a, bits).wrapping_mul(sign_extend(b, bits));
            low(product as u64, 2 * bits)
        }
        BinaryOp::Min { is_signed: false } => a.min(b),
        BinaryOp::Max { is_signed: false } => a.max(b),
        BinaryOp::Min { is_signed: true } => match sign_extend(a, bits) < sign_extend(b, bits) {
            true => a,
            false => b,
        },
        BinaryOp::Max { is_signed: true } => match sign_extend(a, bits) > sign_extend(b, bits) {
            true => a,
            false => b,
        },
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        // Larger shift amounts count as the width.
        BinaryOp::ShiftLeft if b >= u64::from(bits) => 0,
        BinaryOp::ShiftLeft => low(a << b, bits),
        BinaryOp::ShiftRight { is_signed: false } if b >= u64::from(bits) => 0,
        BinaryOp::ShiftRight { is_signed: false } => a >> b,
        BinaryOp::ShiftRight { is_signed: true } => {
            low((sign_extend(a, bits) >> b.min(63)) as u64, bits)
        }
        BinaryOp::AddFloat => float(a, b, |a, b| a + b),
        BinaryOp::MulFloat => float(a, b, |a, b| a * b),
        BinaryOp::PackBf16 => bf16_bits(a) << 16 | bf16_bits(b),
        BinaryOp::Compare { how, is_signed } => {
            let (a, b) = match is_signed {
                // The order of unsigned numbers.
                true => (flip_sign(a, bits), flip_sign(b, bits)),
                false => (a, b),
            };
            u64::from(match how {
                Compare::Equal => a == b,
                Compare::NotEqual => a != b,
                Compare::Less => a < b,
                Compare::LessOrEqual => a <= b,
                Compare::Greater => a > b,
                Compare::GreaterOrEqual => a >= b,
            })
        }
        BinaryOp::Pack => a | b << 32,
    }
}

pub(super) fn three(how: TernaryOp, bits: u8, a: u64, b: u64, c: u64) -> u64 {
    match how {
        TernaryOp::MulAdd => low(a.wrapping_mul(b).wrapping_add(c), bits),
        TernaryOp::Select => match c != 0 {
            true => a,
            false => b,
        },
        TernaryOp::Extract { is_signed } => extract(is_signed, bits, a, b & 0xff, c & 0xff),
        TernaryOp::Funnel { is_left, wraps } => {
            let amount = if wraps { c & 31 } else { c.min(32) };
            let both = b << 32 | a;
            match is_left {
                true => (both << amount) >> 32,
                false => low(both >> amount, 32),
            }
        }
    }
}

/// Inverts the sign bit.
fn flip_sign(value: u64, bits: u8) -> u64 {
    value ^ 1 << (bits - 1)
}

fn float(a: u64, b: u64, of: impl Fn(f32, f32) -> f32) -> u64 {
    let result = of(f32::from_bits(a as u32), f32::from_bits(b as u32));
    u64::from(match result.is_nan() {
        true => NAN,
        false => result.to_bits(),
    })
}

fn bf16_bits(value: u64) -> u64 {
    let float = f32::from_bits(value as u32);
    match float.is_nan() {
        true => 0x7fff,
        false => u64::from(half::bf16::from_f32(float).to_bits()),
    }
}

/// Extracts `length` bits from `position` on. Positions beyond a signed number, or an empty field,
/// repeat the last bit before them, or 0.
fn extract(is_signed: bool, bits: u8, a: u64, position: u64, length: u64) -> u64 {
    let width = u64::from(bits);
    let there = width.saturating_sub(position).min(length) as u8;
    let found = match position < width {
        true => low(a >> position, there),
        false => 0,
    };
    if !is_signed || length == 0 {
        return found;
    }
    let last = (position + length - 1).min(width - 1);
    match a >> last & 1 {
        0 => found,
        _ => low(found | !low(u64::MAX, there), bits),
    }
}
