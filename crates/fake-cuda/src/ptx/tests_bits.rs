//! Shifts, bit fields, logic and selection.

use super::arithmetic::{self, low};
use super::instruction::TernaryOp;
use super::tests::{of_two, value};

#[test]
fn shifts_by_more_than_the_width_shift_everything_out() {
    let big = 0xffff_ffff;
    for (amount, left, right, fill) in [
        (0, 0x8000_0001, 0x8000_0001, 0x8000_0001),
        (1, 2, 0x4000_0000, 0xc000_0000),
        (31, 1 << 31, 1, big),
        (32, 0, 0, big),
        (33, 0, 0, big),
        (64, 0, 0, big),
        (big, 0, 0, big),
    ] {
        assert_eq!(
            of_two("shl.b32 %r0, %r1, %r2", 0x8000_0001, amount),
            left,
            "{amount}"
        );
        assert_eq!(
            of_two("shr.u32 %r0, %r1, %r2", 0x8000_0001, amount),
            right,
            "{amount}"
        );
        assert_eq!(
            of_two("shr.b32 %r0, %r1, %r2", 0x8000_0001, amount),
            right,
            "{amount}"
        );
        assert_eq!(
            of_two("shr.s32 %r0, %r1, %r2", 0x8000_0001, amount),
            fill,
            "{amount}"
        );
        assert_eq!(
            of_two("shr.s32 %r0, %r1, %r2", 1 << 30, amount.max(31)),
            0,
            "{amount}"
        );
    }
    assert_eq!(of_two("shl.b64 %d0, %d1, %r2", 3, 63), 1 << 63);
    assert_eq!(of_two("shl.b64 %d0, %d1, %r2", 3, 64), 0);
    assert_eq!(of_two("shr.u64 %d0, %d1, %r2", u64::MAX, 63), 1);
    assert_eq!(of_two("shr.u64 %d0, %d1, %r2", u64::MAX, 64), 0);
    assert_eq!(of_two("shr.s64 %d0, %d1, %r2", 1 << 63, 200), u64::MAX);
    assert_eq!(of_two("shr.s16 %h0, %h1, %r2", 0x8000, 3), 0xf000);
    assert_eq!(of_two("shr.s16 %h0, %h1, %r2", 0x8000, 17), 0xffff);
    assert_eq!(of_two("shl.b16 %h0, %h1, %r2", 0x8001, 1), 2);
}

#[test]
fn bit_fields_equal_those_of_the_manuals_loop() {
    let expected = |is_signed: bool, msb: u64, a: u64, b: u64, c: u64| {
        let (pos, len) = (b & 0xff, c & 0xff);
        let bit = |n: u64| a >> n & 1;
        let sbit = match !is_signed || len == 0 {
            true => 0,
            false => bit((pos + len - 1).min(msb)),
        };
        (0..=msb).fold(0, |d, i| {
            let is_there = i < len && pos + i <= msb;
            d | (if is_there { bit(pos + i) } else { sbit }) << i
        })
    };
    let numbers = [
        0,
        1,
        0x8000_0000,
        0xdead_beef,
        0x7fff_ffff,
        0xfedc_ba98_7654_3210,
        u64::MAX,
    ];
    let positions = (0..70).chain([127, 200, 255, 256, 261, 0xffff_ff03]);
    for (position, length) in positions
        .clone()
        .flat_map(|p| positions.clone().map(move |l| (p, l)))
    {
        for a in numbers {
            for (bits, is_signed) in [(32, false), (32, true), (64, false), (64, true)] {
                let a = low(a, bits);
                let how = TernaryOp::Extract { is_signed };
                let found = arithmetic::three(how, bits, a, position, length);
                let expected = expected(is_signed, u64::from(bits) - 1, a, position, length);
                assert_eq!(
                    found, expected,
                    "{bits} {is_signed}: {a:x} {position} {length}"
                );
            }
        }
    }
    assert_eq!(of_two("bfe.u32 %r0, %r1, 8, 8", 0x1234_5678, 0), 0x56);
    assert_eq!(of_two("bfe.s32 %r0, %r1, 3, 1", 8, 0), 0xffff_ffff);
    assert_eq!(of_two("bfe.s64 %d0, %d1, 60, 8", 1 << 63, 0), u64::MAX << 3);
}

#[test]
fn funnel_shifts_treat_two_words_as_one() {
    let (a, b) = (0x89ab_cdef_u64, 0x0123_4567_u64);
    for amount in 0..70_u64 {
        for (mode, n) in [("wrap", amount & 31), ("clamp", amount.min(32))] {
            // The manual's loop, where shifts of 32-bit values by 32 give 0.
            let left = low(b << n, 32) | a >> (32 - n);
            let right = low(b << (32 - n), 32) | a >> n;
            let of = |direction: &str| {
                let instruction = format!("shf.{direction}.{mode}.b32 %r0, %r1, %r2, %r3");
                value(&instruction, [a, b, amount])
            };
            assert_eq!((of("l"), of("r")), (left, right), "{mode} {amount}");
        }
    }
}

#[test]
fn bits_and_predicates_are_combined_and_selected() {
    assert_eq!(of_two("and.b32 %r0, %r1, %r2", 12, 10), 8);
    assert_eq!(of_two("or.b64 %d0, %d1, %d2", 12, 10), 14);
    assert_eq!(of_two("xor.b16 %h0, %h1, %h2", 12, 10), 6);
    assert_eq!(of_two("not.b32 %r0, %r1", 1, 0), 0xffff_fffe);
    assert_eq!(of_two("not.b64 %d0, %d1", 1, 0), u64::MAX - 1);
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        assert_eq!(of_two("and.pred %p0, %p1, %p2", a, b), a & b);
        assert_eq!(of_two("or.pred %p0, %p1, %p2", a, b), a | b);
        assert_eq!(of_two("xor.pred %p0, %p1, %p2", a, b), a ^ b);
        assert_eq!(of_two("not.pred %p0, %p1", a, b), 1 - a);
        assert_eq!(
            value("selp.b32 %r0, %r1, 5, %p2", [9, b, 0]),
            if b == 1 { 9 } else { 5 }
        );
        assert_eq!(
            value("mov.b32 %r0, 3; @%p1 mov.b32 %r0, 4", [a, b, 0]),
            3 + a
        );
        assert_eq!(
            value("mov.b32 %r0, 3; @!%p1 mov.b32 %r0, 4", [a, b, 0]),
            4 - a
        );
    }
    assert_eq!(of_two("mov.pred %p0, -1", 0, 0), 1);
    assert_eq!(of_two("mov.pred %p0, 0", 0, 0), 0);
    assert_eq!(of_two("mov.b64 %d0, {%r1, %r2}", 7, 9), 9 << 32 | 7);
    assert_eq!(
        of_two("mov.b32 %r0, 1; mov.b64 {%r1, %r0}, %d2", 0, 5 << 32 | 6),
        5
    );
}
