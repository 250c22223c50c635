//! Results of instructions, compared with the manual's definitions.

use std::cell::RefCell;

use super::arithmetic::{self, low, sign_extend};
use super::instruction::{BinaryOp, IntegerType, TernaryOp, UnaryOp};
use super::*;

/// Memory from an address on.
pub(super) struct Bytes(pub(super) u64, pub(super) RefCell<Vec<u8>>);

impl Bytes {
    pub(super) fn zeroed(at: u64, len: usize) -> Bytes {
        Bytes(at, RefCell::new(vec![0; len]))
    }

    fn locate(&self, address: u64, len: usize) -> Result<std::ops::Range<usize>, AddressFault> {
        let begin = address.checked_sub(self.0).ok_or(AddressFault)? as usize;
        let end = begin.checked_add(len).ok_or(AddressFault)?;
        (end <= self.1.borrow().len())
            .then_some(begin..end)
            .ok_or(AddressFault)
    }
}

impl KernelMemory for Bytes {
    fn load(&self, address: u64, to: &mut [u8]) -> Result<(), AddressFault> {
        to.copy_from_slice(&self.1.borrow()[self.locate(address, to.len())?]);
        Ok(())
    }

    fn store(&self, address: u64, from: &[u8]) -> Result<(), AddressFault> {
        let range = self.locate(address, from.len())?;
        self.1.borrow_mut()[range].copy_from_slice(from);
        Ok(())
    }
}

/// A module of one entry, `test`, with registers %p, %h, %r and %d of 1, 16, 32 and 64 bits.
pub(super) fn text(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_60\n.address_size 64\n\
         .visible .entry test(.param .align 8 .b8 given[32]) {{\n\
         .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %d<8>;\n{body}\nret; }}"
    )
}

/// Runs one thread with an argument and memory.
pub(super) fn run(body: &str, argument: [u64; 4], memory: &Bytes) -> Result<(), KernelFault> {
    let module = Module::parse(&text(body)).expect(body);
    let argument: Vec<u8> = argument
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    module.with_limit(1000).run("test", 1, 1, &argument, memory)
}

/// Returns register 0 of its kind after an instruction that reads registers 1 to 3, which contain
/// the lower bits of these numbers in all kinds.
pub(super) fn value(instruction: &str, numbers: [u64; 3]) -> u64 {
    let target = instruction.split_once("%").expect("a register").1;
    let store = match &target[..1] {
        "p" => "selp.b64 %d0, 1, 0, %p0; st.global.b64 [%d7], %d0;",
        "h" => "st.global.b16 [%d7], %h0;",
        "r" => "st.global.b32 [%d7], %r0;",
        _ => "st.global.b64 [%d7], %d0;",
    };
    let mut body = String::from("ld.param.b64 %d7, [given+24];\n");
    for n in 1..=3 {
        let at = 8 * (n - 1);
        body += &format!(
            "ld.param.b64 %d{n}, [given+{at}]; ld.param.b32 %r{n}, [given+{at}];\n\
             ld.param.b16 %h{n}, [given+{at}]; setp.ne.b64 %p{n}, %d{n}, 0;\n"
        );
    }
    body += &format!("{instruction};\n{store}");
    let memory = Bytes::zeroed(64, 8);
    let [a, b, c] = numbers;
    run(&body, [a, b, c, 64], &memory).expect("it ends");
    u64::from_le_bytes(memory.1.into_inner().try_into().expect("8 bytes"))
}

pub(super) fn of_two(instruction: &str, a: u64, b: u64) -> u64 {
    value(instruction, [a, b, 0])
}

#[test]
fn integers_wrap_at_their_width() {
    assert_eq!(of_two("add.s32 %r0, %r1, %r2", 0xffff_ffff, 2), 1);
    assert_eq!(of_two("add.u16 %h0, %h1, %h2", 0xffff, 2), 1);
    assert_eq!(of_two("add.s64 %d0, %d1, %d2", u64::MAX, 2), 1);
    assert_eq!(of_two("sub.s32 %r0, %r1, %r2", 1, 2), 0xffff_ffff);
    assert_eq!(of_two("sub.s64 %d0, %d1, %d2", 1, 2), u64::MAX);
    assert_eq!(
        of_two("mul.lo.s32 %r0, %r1, %r2", 0x1_0001, 0x1_0001),
        0x2_0001
    );
    assert_eq!(
        of_two("mul.lo.s64 %d0, %d1, %d2", 1 << 63 | 3, 5),
        1 << 63 | 15
    );
    assert_eq!(
        value("mad.lo.s32 %r0, %r1, %r2, %r3", [1 << 31, 3, 1 << 31]),
        0
    );
    assert_eq!(
        value("mad.lo.s64 %d0, %d1, %d2, %d3", [1 << 63, 3, 1 << 63 | 9]),
        9
    );
    assert_eq!(of_two("neg.s32 %r0, %r1", 1 << 31, 0), 1 << 31);
    assert_eq!(of_two("neg.s64 %d0, %d1", 1, 0), u64::MAX);
    assert_eq!(of_two("add.s32 %r0, %r1, -5", 3, 0), 0xffff_fffe);
}

#[test]
fn wide_products_follow_the_sign_of_their_type() {
    let minus_one = 0xffff_ffff;
    assert_eq!(
        of_two("mul.wide.u32 %d0, %r1, %r2", minus_one, minus_one),
        0xffff_fffe_0000_0001
    );
    assert_eq!(
        of_two("mul.wide.s32 %d0, %r1, %r2", minus_one, minus_one),
        1
    );
    assert_eq!(
        of_two("mul.wide.s32 %d0, %r1, %r2", minus_one, 7),
        7_u64.wrapping_neg()
    );
    assert_eq!(
        of_two("mul.wide.u16 %r0, %h1, %h2", 0xffff, 0xffff),
        0xfffe_0001
    );
    assert_eq!(of_two("mul.wide.s16 %r0, %h1, %h2", 0x8000, 1), 0xffff_8000);
}

#[test]
fn comparisons_follow_the_sign_of_their_type() {
    for (kind, bits) in [("h", 16), ("r", 32), ("d", 64)] {
        let top = 1_u64 << (bits - 1);
        let edges = [0, 1, top - 1, top, top + 1, low(u64::MAX, bits)];
        for (a, b) in edges.iter().flat_map(|&a| edges.map(|b| (a, b))) {
            let is = |name: &str, letter: &str| {
                of_two(
                    &format!("setp.{name}.{letter}{bits} %p0, %{kind}1, %{kind}2"),
                    a,
                    b,
                ) == 1
            };
            let both = |name: &str, letter: &str| {
                of_two(
                    &format!("{name}.{letter}{bits} %{kind}0, %{kind}1, %{kind}2"),
                    a,
                    b,
                )
            };
            let (x, y) = (sign_extend(a, bits), sign_extend(b, bits));
            assert_eq!((is("eq", "b"), is("ne", "b")), (a == b, a != b));
            assert_eq!(
                (is("lt", "u"), is("le", "u")),
                (a < b, a <= b),
                "{a:x} {b:x}"
            );
            assert_eq!(
                (is("gt", "u"), is("ge", "u")),
                (a > b, a >= b),
                "{a:x} {b:x}"
            );
            assert_eq!(
                (is("lo", "u"), is("hs", "u")),
                (a < b, a >= b),
                "{a:x} {b:x}"
            );
            assert_eq!((is("lt", "s"), is("le", "s")), (x < y, x <= y), "{x} {y}");
            assert_eq!((is("gt", "s"), is("ge", "s")), (x > y, x >= y), "{x} {y}");
            assert_eq!((both("min", "u"), both("max", "u")), (a.min(b), a.max(b)));
            let (least, most) = (both("min", "s"), both("max", "s"));
            assert_eq!(
                (sign_extend(least, bits), sign_extend(most, bits)),
                (x.min(y), x.max(y))
            );
        }
    }
}

#[test]
fn integers_are_truncated_or_extended_by_the_sign_of_their_type() {
    let wide = 0x8877_8665_c433_9281;
    assert_eq!(of_two("cvt.u64.u32 %d0, %r1", wide, 0), 0xc433_9281);
    assert_eq!(
        of_two("cvt.s64.s32 %d0, %r1", wide, 0),
        0xffff_ffff_c433_9281
    );
    assert_eq!(of_two("cvt.u32.u64 %r0, %d1", wide, 0), 0xc433_9281);
    assert_eq!(of_two("cvt.u16.u32 %h0, %r1", wide, 0), 0x9281);
    assert_eq!(of_two("cvt.u32.u16 %r0, %h1", wide, 0), 0x9281);
    assert_eq!(of_two("cvt.s32.s16 %r0, %h1", wide, 0), 0xffff_9281);
    // Registers may be wider than the source and target types.
    assert_eq!(of_two("cvt.s32.s8 %r0, %d1", wide, 0), 0xffff_ff81);
    assert_eq!(of_two("cvt.u8.u32 %d0, %r1", wide, 0), 0x81);
    assert_eq!(
        of_two("cvt.s8.u32 %d0, %r1", wide, 0),
        0xffff_ffff_ffff_ff81
    );
    assert_eq!(
        of_two("cvt.u64.s16 %d0, %h1", wide, 0),
        0xffff_ffff_ffff_9281
    );
}

/// Later instructions rely on this: comparisons use all bits.
#[test]
fn no_result_has_bits_above_its_width() {
    for bits in [16, 32, 64] {
        let top = 1_u64 << (bits - 1);
        let edges = [0, 1, 5, top - 1, top, low(u64::MAX, bits)];
        let fits = |what: &dyn std::fmt::Debug, width: u8, value: u64| {
            assert_eq!(value, low(value, width), "{what:?} of {bits} bits");
        };
        for a in edges {
            for how in [UnaryOp::Not { bits }, UnaryOp::Negate { bits }] {
                fits(&how, bits, arithmetic::one(how, a));
            }
            for (width, is_signed) in [8, 16, 32].map(|w| [(w, true), (w, false)]).as_flattened() {
                let (bits, is_signed) = (*width, *is_signed);
                let how = UnaryOp::Integer {
                    from: IntegerType { bits, is_signed },
                    to: IntegerType { bits, is_signed },
                    register: 32,
                };
                fits(&how, 32, arithmetic::one(how, a));
            }
            for b in edges {
                for how in [
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::Mul,
                    BinaryOp::ShiftLeft,
                ] {
                    fits(&how, bits, arithmetic::two(how, bits, a, b));
                }
                for is_signed in [true, false] {
                    let how = BinaryOp::ShiftRight { is_signed };
                    fits(&how, bits, arithmetic::two(how, bits, a, b));
                    let how = BinaryOp::MulWide { is_signed };
                    if bits == 16 {
                        fits(&how, 32, arithmetic::two(how, bits, a, b));
                    }
                    let how = TernaryOp::Extract { is_signed };
                    fits(&how, bits, arithmetic::three(how, bits, a, b & 63, 9));
                }
                let how = TernaryOp::MulAdd;
                fits(&how, bits, arithmetic::three(how, bits, a, b, top));
            }
        }
    }
}
