//! Kernels and instructions as they run: registers and labels are numbers.

/// Index among a thread's values: a register, a special register or a constant. A value has no bits
/// above its width.
pub(super) type ValueIndex = u16;

/// A kernel of a module.
#[derive(Debug)]
pub(super) struct KernelCode {
    pub(super) name: String,
    pub(super) parameter_bytes: usize,
    /// Address of the parameter.
    pub(super) parameter: u64,
    /// Instructions. The last one leaves the entry, and branches stay inside.
    pub(super) code: Vec<Instruction>,
    /// Initial values of a thread.
    pub(super) begin: Vec<u64>,
}

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    /// Line in the text, from 1.
    pub(super) line: u32,
    /// Runs only if the guard's value equals `expected`.
    pub(super) guard: ValueIndex,
    pub(super) expected: u64,
    pub(super) what: Opcode,
}

/// Effect of an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Opcode {
    One {
        how: UnaryOp,
        to: ValueIndex,
        a: ValueIndex,
    },
    Two {
        how: BinaryOp,
        bits: u8,
        to: ValueIndex,
        a: ValueIndex,
        b: ValueIndex,
    },
    Three {
        how: TernaryOp,
        bits: u8,
        to: ValueIndex,
        a: ValueIndex,
        b: ValueIndex,
        c: ValueIndex,
    },
    /// Two halves of 32 bits, the lower first.
    Unpack {
        to: [ValueIndex; 2],
        a: ValueIndex,
    },
    Load {
        space: Space,
        access: MemoryOperands,
        /// Width of the registers in bits, to which signed elements are extended.
        register: u8,
        is_signed: bool,
    },
    /// Stores to global memory.
    Store {
        access: MemoryOperands,
    },
    Branch {
        to: u32,
    },
    Return,
}

/// Elements of memory, and registers for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryOperands {
    /// Register with the address, to which the offset is added.
    pub(super) address: ValueIndex,
    pub(super) offset: i32,
    /// Bytes of an element.
    pub(super) bytes: u8,
    /// Number of elements: 1, 2 or 4.
    pub(super) count: u8,
    pub(super) registers: [ValueIndex; 4],
}

/// Kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Global,
    Parameter,
}

/// Operation on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnaryOp {
    Move,
    Not {
        bits: u8,
    },
    Negate {
        bits: u8,
    },
    /// Converts an integer to another type, in a register that may be wider.
    Integer {
        from: IntegerType,
        to: IntegerType,
        register: u8,
    },
    /// Converts an integer to the nearest f32.
    Float {
        from: IntegerType,
    },
    /// Converts f32 to the nearest f16.
    Half,
}

/// Type of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IntegerType {
    pub(super) bits: u8,
    pub(super) is_signed: bool,
}

/// Operation on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryOp {
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
    /// Converts two f32 to the nearest bf16, the first in the upper half.
    PackBf16,
    Compare {
        how: Compare,
        is_signed: bool,
    },
    /// Joins two halves of 32 bits, the lower first.
    Pack,
}

/// Comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Operation on three values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TernaryOp {
    /// The lower half of the product, plus the third value.
    MulAdd,
    /// The first value if the third, a predicate, is set, else the second.
    Select,
    Extract {
        is_signed: bool,
    },
    Funnel {
        is_left: bool,
        wraps: bool,
    },
}
