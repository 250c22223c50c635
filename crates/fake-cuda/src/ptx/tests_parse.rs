//! Errors of unsupported texts, with their lines.

use super::tests::{Bytes, text};
use super::*;

#[test]
fn unsupported_text_is_an_error_with_its_line() {
    for (body, what) in [
        (
            "fma.rn.f32 %r0, %r1, %r2, %r3;",
            "the instruction `fma.rn.f32` is not supported",
        ),
        (
            "add.b32 %r0, %r1, %r2;",
            "the instruction `add.b32` is not supported",
        ),
        (
            "add.f32 %r0, %r1, %r2;",
            "the instruction `add.f32` is not supported",
        ),
        (
            "mul.s32 %r0, %r1, %r2;",
            "the instruction `mul.s32` is not supported",
        ),
        (
            "shl.u32 %r0, %r1, 1;",
            "the instruction `shl.u32` is not supported",
        ),
        (
            "setp.lt.b32 %p0, %r1, %r2;",
            "the instruction `setp.lt.b32` is not supported",
        ),
        (
            "setp.lo.s32 %p0, %r1, %r2;",
            "the instruction `setp.lo.s32` is not supported",
        ),
        (
            "cvt.f32.u32 %r0, %r1;",
            "the instruction `cvt.f32.u32` is not supported",
        ),
        (
            "ld.b32 %r0, [%d1];",
            "the instruction `ld.b32` is not supported",
        ),
        (
            "ld.global.nc.b32 %r0, [%d1];",
            "the instruction `ld.global.nc.b32` is not supported",
        ),
        (
            "ld.shared.b32 %r0, [%d1];",
            "the instruction `ld.shared.b32` is not supported",
        ),
        (
            "ld.global.v4.b64 {%d0, %d1, %d2, %d3}, [%d1];",
            "the instruction `ld.global.v4.b64`",
        ),
        ("bar.sync 0;", "the instruction `bar.sync` is not supported"),
        ("bra.div $a;", "the instruction `bra.div` is not supported"),
        (
            "add.s32 %r0, %r1;",
            "`add.s32`: expected 3 operands, found 2",
        ),
        (
            "add.s32 %r0, %r1, %d1;",
            "`add.s32`: %d1 has 64 bits, expected 32",
        ),
        (
            "add.s32 %r0, %r1, %p1;",
            "`add.s32`: %p1 has 1 bits, expected 32",
        ),
        ("add.s32 %r8, %r1, %r2;", "`%r8` is not a register here"),
        ("add.s32 %r01, %r1, %r2;", "`%r01` is not a register here"),
        (
            "add.s32 %r0, %r1, 4294967296;",
            "`add.s32`: 4294967296 does not fit 32 bits",
        ),
        (
            "add.s32 %r0, %r1, -2147483649;",
            "`add.s32`: -2147483649 does not fit 32 bits",
        ),
        (
            "add.s32 5, %r1, %r2;",
            "`add.s32`: the target is not a register",
        ),
        ("mov.u32 %tid.x, %r1;", "`%tid.x` is not a register here"),
        ("mov.u32 %r1, %tid.y;", "`%tid.y` is not a register here"),
        (
            "shl.b64 %d0, %d1, %d2;",
            "`shl.b64`: %d2 has 64 bits, expected 32",
        ),
        (
            "mul.wide.u32 %r0, %r1, %r2;",
            "`mul.wide.u32`: %r0 has 32 bits, expected 64",
        ),
        (
            "ld.global.b32 %h0, [%d1];",
            "`ld.global.b32`: %h0 has 16 bits, fewer than 32",
        ),
        (
            "ld.global.b32 %r0, [%r1];",
            "`ld.global.b32`: %r1 has 32 bits, expected 64",
        ),
        (
            "ld.global.b32 %r0, %d1;",
            "`ld.global.b32`: expected an address in brackets",
        ),
        (
            "ld.global.v2.b32 {%r0}, [%d1];",
            "`ld.global.v2.b32`: expected 2 registers",
        ),
        (
            "ld.param.b32 %r0, [other];",
            "`other` is not a register here",
        ),
        ("ld.global.b32 %r0, [%d1-4];", "expected `]`, found `-`"),
        ("@%r1 bra $a;", "`%r1` is not a predicate"),
        ("bra $nowhere;", "no instruction has the label `$nowhere`"),
        ("$a: $a: ret;", "`$a` is defined twice"),
        (
            ".reg .f32 %f<3>;",
            "expected `.pred`, `.b16`, `.b32` or `.b64`, found `.f32`",
        ),
        (".reg .b32 %r<3>;", "`%r` is declared twice"),
        (
            ".reg .b32 %many<70000>;",
            "the entry has more than 65536 values",
        ),
        (
            ".shared .align 4 .b8 s[4];",
            "`.shared` is not supported here",
        ),
        (
            "@%p1 .pragma \"nounroll\";",
            "`.pragma` is not supported here",
        ),
        (".pragma \"unroll\";", "this pragma is not supported"),
        (
            "{ .reg .b32 t; mov.b32 t, 0; } mov.b32 t, 1;",
            "`t` is not a register here",
        ),
        ("mov.b32 %r0, 1.5;", "`1.5` is not a number"),
        ("mov.b32 %r0, 08;", "`08` is not a number"),
        ("mov.b32 %r0, 0f3F8;", "`0f3F8` is not a number"),
        ("mov.b32 %r0, ?;", "no token begins with `?`"),
        ("/* add", "a comment does not end"),
        ("ret; add.s32 %r0, %r0, 1", "expected `,`, found"),
    ] {
        let error = Module::parse(&text(&format!("ret;\n{body}"))).expect_err(body);
        assert!(error.what.contains(what), "{body}: {error}");
        assert!(error.to_string().starts_with("line "), "{error}");
        // The error may be at the brace after the last statement.
        assert!((7..=8).contains(&error.line), "{body}: {error}");
    }
}

#[test]
fn modules_for_other_targets_are_rejected() {
    let head = |version, target, bits| {
        format!(".version {version}\n.target {target}\n.address_size {bits}\n.entry t() {{ ret; }}")
    };
    let module = Module::parse(&head("6.0", "sm_75", 64)).expect("understood");
    assert_eq!(
        (module.target(), module.parameter_bytes("t")),
        (75, Some(0))
    );
    for (version, target, bits) in [
        ("9.0", "sm_60", 64),
        ("6", "sm_60", 64),
        ("6.0", "sm_90a", 64),
        ("6.0", "sm_60, debug", 64),
        ("6.0", "compute_60", 64),
        ("6.0", "sm_60", 32),
    ] {
        let error = Module::parse(&head(version, target, bits));
        assert!(error.is_err(), "{version} {target} {bits}");
    }
    for rest in [
        ".func f() { ret; }",
        ".global .align 4 .b8 g[4];",
        ".entry t() { ret; }",
        ".entry u(.param .u32 a) { ret; }",
        ".entry u(.param .align 8 .b8 a[8], .param .align 8 .b8 b[8]) { ret; }",
        ".entry u() .maxntid 256 { ret; }",
        ".entry u() { }",
        ".entry u() { .reg .pred %p<1>; @%p0 ret; }",
        ".entry u() { ret; $end: }",
        ".entry u() { ret; ",
    ] {
        // An unused label may be at the end.
        let is_bad = Module::parse(&format!("{}\n{rest}", head("6.0", "sm_60", 64))).is_err();
        assert_eq!(is_bad, !rest.contains("$end"), "{rest}");
    }
}

#[test]
fn numbers_comments_and_inner_registers_are_parsed() {
    let body = "{ .reg .b32 t, %r<2>; // inner ones\nmov.b32 t, 0x1F; /* 31\n */ mov.b32 %r1, 017;\n\
                add.s32 t, t, %r1; st.global.b32 [%d1], t; mov.b64 %d2, -1; }\n\
                st.global.b32 [%d1+4], 0; ";
    // Only registers can be stored.
    assert!(Module::parse(&text(body)).is_err());
    let body = body.replace("0; ", "%r1;");
    let body = format!("mov.b64 %d1, 0; mov.b32 %r1, 7;\n{body}");
    let module = Module::parse(&text(&body)).expect("understood");
    let memory = Bytes::zeroed(0, 8);
    module
        .run("test", 1, 1, &[0; 32], &memory)
        .expect("it ends");
    assert_eq!(memory.1.into_inner(), [46, 0, 0, 0, 7, 0, 0, 0]);
}
