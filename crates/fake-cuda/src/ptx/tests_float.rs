//! Floating-point numbers and their rounding.

use super::arithmetic;
use super::instruction::UnaryOp;
use super::tests::of_two;

#[test]
fn floats_are_rounded_at_every_step_and_nan_has_one_pattern() {
    let two = |name: &str, a: f32, b: f32| {
        let instruction = format!("{name}.rn.f32 %r0, %r1, %r2");
        f32::from_bits(of_two(&instruction, a.to_bits().into(), b.to_bits().into()) as u32)
    };
    // A fused operation would keep the product's last bit.
    let a = 1.0 + 2_f32.powi(-12);
    let product = two("mul", a, a);
    assert_eq!(product, 1.0 + 2_f32.powi(-11));
    assert_eq!(two("add", product, -1.0 - 2_f32.powi(-11)), 0.0);
    assert_eq!(two("add", 16_777_216.0, 1.0), 16_777_216.0);
    assert_eq!(two("add", 16_777_218.0, 1.0), 16_777_220.0);
    assert_eq!(
        two("mul", f32::from_bits(6), 0.5),
        f32::from_bits(3),
        "denormal"
    );
    assert_eq!(two("mul", f32::MAX, 2.0), f32::INFINITY);
    assert_eq!(two("mul", f32::INFINITY, 0.0).to_bits(), 0x7fff_ffff);
    assert_eq!(
        two("add", f32::from_bits(0xffc0_1234), 1.0).to_bits(),
        0x7fff_ffff
    );
    assert_eq!(two("mul", -0.0, 1.0).to_bits(), 1 << 31);
    assert_eq!(
        of_two(
            "mul.rn.f32 %r0, %r1, 0f40000000",
            1.5_f32.to_bits().into(),
            0
        ),
        u64::from(3.0_f32.to_bits())
    );

    let from = |name: &str, a: u64| f32::from_bits(of_two(name, a, 0) as u32);
    assert_eq!(from("cvt.rn.f32.u32 %r0, %r1", 16_777_217), 16_777_216.0);
    assert_eq!(from("cvt.rn.f32.u32 %r0, %r1", 16_777_219), 16_777_220.0);
    assert_eq!(
        from("cvt.rn.f32.u32 %r0, %r1", 0xffff_ffff),
        4_294_967_296.0
    );
    assert_eq!(from("cvt.rn.f32.s32 %r0, %r1", 0xffff_ffff), -1.0);
    assert_eq!(from("cvt.rn.f32.u16 %r0, %h1", 0x1_ffff), 65_535.0);
}

/// Value of a finite, non-negative float16.
fn half(bits: u32) -> f32 {
    let (exponent, fraction) = (bits >> 10, (bits & 0x3ff) as f32);
    match exponent {
        0 => fraction * 2_f32.powi(-24),
        _ => (1024.0 + fraction) * 2_f32.powi(exponent as i32 - 25),
    }
}

#[test]
fn halves_are_rounded_to_nearest_even() {
    let of = |value: f32| arithmetic::one(UnaryOp::Half, value.to_bits().into()) as u32;
    for bits in 0..0x7c00_u32 {
        // After the largest number: the value of the next one if it were not infinite.
        let (this, next) = (
            half(bits),
            if bits == 0x7bff {
                65_536.0
            } else {
                half(bits + 1)
            },
        );
        let middle = (this + next) / 2.0;
        let even = bits + (bits & 1);
        assert_eq!(of(this), bits);
        assert_eq!(of(middle), even, "{middle}");
        assert_eq!(of(middle.next_down()), bits, "below {middle}");
        assert_eq!(of(middle.next_up()), bits + 1, "above {middle}");
        assert_eq!(of(-middle.next_up()), 0x8000 | (bits + 1));
    }
    assert_eq!(
        (of(f32::INFINITY), of(f32::NEG_INFINITY), of(f32::MAX)),
        (0x7c00, 0xfc00, 0x7c00)
    );
    assert_eq!((of(-0.0), of(f32::from_bits(1))), (0x8000, 0));
    assert_eq!(of(f32::from_bits(0xff80_0001)), 0x7fff, "NaN of any sign");
    let instruction = "cvt.rn.f16.f32 %h0, %r1";
    assert_eq!(of_two(instruction, 1.5_f32.to_bits().into(), 0), 0x3e00);
}
