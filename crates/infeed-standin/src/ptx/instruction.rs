//! Instructions as they are run: registers are numbers, and so are labels.

/// A place among a thread's values: a register, a special register or a constant. A value has no
/// bits above its width.
pub(super) type Slot = u16;

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    /// Where it stands in the text, counted from 1.
    pub(super) line: u32,
    /// It is run where this is `wanted`.
    pub(super) guard: Slot,
    pub(super) wanted: u64,
    pub(super) what: What,
}

/// What an instruction does.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    One {
        how: One,
        to: Slot,
        a: Slot,
    },
    Two {
        how: Two,
        bits: u8,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Three {
        how: Three,
        bits: u8,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// Two halves of 32 bits, the lower first.
    Unpack {
        to: [Slot; 2],
        a: Slot,
    },
    Load {
        space: Space,
        access: Access,
        /// Bits of the registers, to which signed elements are extended.
        register: u8,
        is_signed: bool,
    },
    /// To global memory.
    Store {
        access: Access,
    },
    Branch {
        to: u32,
    },
    Return,
}

/// Elements of memory, and registers for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// Register of the address, to which the offset is added.
    pub(super) address: Slot,
    pub(super) offset: i32,
    /// Bytes of an element.
    pub(super) bytes: u8,
    /// Elements: 1, 2 or 4.
    pub(super) count: u8,
    pub(super) registers: [Slot; 4],
}

/// Kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Global,
    Parameter,
}

/// Of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum One {
    Move,
    Not {
        bits: u8,
    },
    Negate {
        bits: u8,
    },
    /// From an integer to another, into a register that may be wider than that.
    Integer {
        from: Number,
        to: Number,
        register: u8,
    },
    /// From an integer to the nearest f32.
    Float {
        from: Number,
    },
    /// From f32 to the nearest f16.
    Half,
}

/// An integer's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) bits: u8,
    pub(super) is_signed: bool,
}

/// Of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Two {
    Add,
    Sub,
    /// The lower half of the product.
    Mul,
    MulWide {
        is_signed: bool,
    },
    Min {
        is_signed: bool,
    },
    Max {
        is_signed: bool,
    },
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight {
        is_signed: bool,
    },
    /// f32, rounded to nearest even.
    AddFloat,
    MulFloat,
    /// From two f32 to the nearest bf16, the first in the upper half.
    Brains,
    Compare {
        how: Compare,
        is_signed: bool,
    },
    /// Two halves of 32 bits, the lower first.
    Pack,
}

/// What is asked of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Of three values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Three {
    /// The lower half of the product, and a sum.
    MulAdd,
    /// The first where the third, a predicate, is set, else the second.
    Select,
    Extract {
        is_signed: bool,
    },
    Funnel {
        is_left: bool,
        wraps: bool,
    },
}
