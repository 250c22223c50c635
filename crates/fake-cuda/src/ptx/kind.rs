//! Types of instructions.

use super::instruction::IntegerType;

/// Type suffix of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) kind: NumberKind,
    pub(super) bits: u8,
}

/// Interpretation of the bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberKind {
    Predicate,
    Bits,
    Unsigned,
    Signed,
    Float,
}

use NumberKind::{Bits, Float, Predicate, Signed, Unsigned};

impl Type {
    pub(super) fn of(name: &str) -> Option<Type> {
        let (kind, bits) = match name {
            "pred" => (Predicate, 1),
            "f32" => (Float, 32),
            _ => {
                let kind = match name.as_bytes().first()? {
                    b'b' => Bits,
                    b'u' => Unsigned,
                    b's' => Signed,
                    _ => return None,
                };
                let bits = match name.get(1..)? {
                    "8" => 8,
                    "16" => 16,
                    "32" => 32,
                    "64" => 64,
                    _ => return None,
                };
                (kind, bits)
            }
        };
        Some(Type { kind, bits })
    }

    pub(super) fn is_signed(self) -> bool {
        self.kind == Signed
    }

    /// Whether the type is one of these kinds with one of these widths.
    pub(super) fn is(self, kinds: &[NumberKind], bits: &[u8]) -> bool {
        kinds.contains(&self.kind) && bits.contains(&self.bits)
    }

    pub(super) fn number(self) -> IntegerType {
        IntegerType {
            bits: self.bits,
            is_signed: self.is_signed(),
        }
    }
}
