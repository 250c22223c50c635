//! What instructions compute, by the manual's definitions. Values come and go without bits above
//! their width; the widths are the instruction's.

use super::instruction::{Compare, Number, One, Three, Two};

/// What the manual gives for every f32 that is no number.
const NAN: u32 = 0x7fff_ffff;

/// The lower bits.
pub(super) fn low(value: u64, bits: u8) -> u64 {
    if bits >= 64 {
        value
    } else {
        value & ((1 << bits) - 1)
    }
}

/// The lower bits as a signed number.
pub(super) fn signed(value: u64, bits: u8) -> i64 {
    let above = 64 - u32::from(bits.clamp(1, 64));
    ((value << above) as i64) >> above
}

fn number(value: u64, of: Number) -> i64 {
    if of.is_signed {
        signed(value, of.bits)
    } else {
        low(value, of.bits) as i64
    }
}

pub(super) fn one(how: One, a: u64) -> u64 {
    match how {
        One::Move => a,
        One::Not { bits } => low(!a, bits),
        One::Negate { bits } => low(a.wrapping_neg(), bits),
        One::Integer { from, to, register } => {
            low(number(number(a, from) as u64, to) as u64, register)
        }
        One::Float { from } => {
            let float = match from.is_signed {
                true => signed(a, from.bits) as f32,
                false => low(a, from.bits) as f32,
            };
            u64::from(float.to_bits())
        }
        One::Half => {
            let float = f32::from_bits(a as u32);
            match float.is_nan() {
                true => 0x7fff,
                false => u64::from(half::f16::from_f32(float).to_bits()),
            }
        }
    }
}

pub(super) fn two(how: Two, bits: u8, a: u64, b: u64) -> u64 {
    match how {
        Two::Add => low(a.wrapping_add(b), bits),
        Two::Sub => low(a.wrapping_sub(b), bits),
        Two::Mul => low(a.wrapping_mul(b), bits),
        Two::MulWide { is_signed: false } => a.wrapping_mul(b),
        Two::MulWide { is_signed: true } => {
            let product = signed(a, bits).wrapping_mul(signed(b, bits));
            low(product as u64, 2 * bits)
        }
        Two::Min { is_signed: false } => a.min(b),
        Two::Max { is_signed: false } => a.max(b),
        Two::Min { is_signed: true } => match signed(a, bits) < signed(b, bits) {
            true => a,
            false => b,
        },
        Two::Max { is_signed: true } => match signed(a, bits) > signed(b, bits) {
            true => a,
            false => b,
        },
        Two::And => a & b,
        Two::Or => a | b,
        Two::Xor => a ^ b,
        // Amounts above the width are the width.
        Two::ShiftLeft if b >= u64::from(bits) => 0,
        Two::ShiftLeft => low(a << b, bits),
        Two::ShiftRight { is_signed: false } if b >= u64::from(bits) => 0,
        Two::ShiftRight { is_signed: false } => a >> b,
        Two::ShiftRight { is_signed: true } => low((signed(a, bits) >> b.min(63)) as u64, bits),
        Two::AddFloat => float(a, b, |a, b| a + b),
        Two::MulFloat => float(a, b, |a, b| a * b),
        Two::Brains => brain(a) << 16 | brain(b),
        Two::Compare { how, is_signed } => {
            let (a, b) = match is_signed {
                // In the order of unsigned numbers.
                true => (flipped(a, bits), flipped(b, bits)),
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
        Two::Pack => a | b << 32,
    }
}

pub(super) fn three(how: Three, bits: u8, a: u64, b: u64, c: u64) -> u64 {
    match how {
        Three::MulAdd => low(a.wrapping_mul(b).wrapping_add(c), bits),
        Three::Select => match c != 0 {
            true => a,
            false => b,
        },
        Three::Extract { is_signed } => extract(is_signed, bits, a, b & 0xff, c & 0xff),
        Three::Funnel { is_left, wraps } => {
            let amount = if wraps { c & 31 } else { c.min(32) };
            let both = b << 32 | a;
            match is_left {
                true => (both << amount) >> 32,
                false => low(both >> amount, 32),
            }
        }
    }
}

/// The sign bit turned over.
fn flipped(value: u64, bits: u8) -> u64 {
    value ^ 1 << (bits - 1)
}

fn float(a: u64, b: u64, of: impl Fn(f32, f32) -> f32) -> u64 {
    let result = of(f32::from_bits(a as u32), f32::from_bits(b as u32));
    u64::from(match result.is_nan() {
        true => NAN,
        false => result.to_bits(),
    })
}

fn brain(value: u64) -> u64 {
    let float = f32::from_bits(value as u32);
    match float.is_nan() {
        true => 0x7fff,
        false => u64::from(half::bf16::from_f32(float).to_bits()),
    }
}

/// `length` bits from `position` on. Where a signed number has no bits, or none are asked for, they
/// are those of the last bit that was, or 0.
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
