//! Memory, control flow and threads.

use super::tests::{Bytes, run, text};
use super::*;

const AT: u64 = 0x1000;

/// Runs with 64 bytes from [`AT`], each its index with the upper bit set; `%d1` contains their
/// address.
fn over_bytes(body: &str) -> Result<Vec<u8>, KernelFault> {
    let memory = Bytes(AT, (0x80..0xc0).collect::<Vec<u8>>().into());
    run(
        &format!("ld.param.b64 %d1, [given];\n{body}"),
        [AT, 0, 0, 0],
        &memory,
    )?;
    Ok(memory.1.into_inner())
}

#[test]
fn elements_are_extended_or_truncated_by_their_type() {
    for (load, register, expected) in [
        ("ld.global.b8", "%h1", 0x81_u64),
        ("ld.global.s8", "%h1", 0xff81),
        ("ld.global.u8", "%r1", 0x81),
        ("ld.global.s8", "%r1", 0xffff_ff81),
        ("ld.global.b8", "%d2", 0x81),
        ("ld.global.s8", "%d2", 0xffff_ffff_ffff_ff81),
    ] {
        let bits = match &register[..2] {
            "%h" => 16,
            "%r" => 32,
            _ => 64,
        };
        let body = format!("{load} {register}, [%d1+1]; st.global.b{bits} [%d1+16], {register};");
        let found = over_bytes(&body).expect(load);
        let bytes = bits / 8;
        assert_eq!(
            found[16..16 + bytes],
            expected.to_le_bytes()[..bytes],
            "{load} {register}"
        );
        assert_eq!(found[16 + bytes], 0x90 + bytes as u8, "{load} {register}");
    }
    let found = over_bytes("ld.global.s16 %r1, [%d1+2]; st.global.b32 [%d1+16], %r1;");
    assert_eq!(found.expect("aligned")[16..20], [0x82, 0x83, 0xff, 0xff]);
    // Not extended beyond the register's width.
    let found = over_bytes(
        "ld.global.s8 %h1, [%d1+1]; setp.eq.b16 %p1, %h1, -127;\n\
         selp.b32 %r1, 1, 0, %p1; st.global.b32 [%d1], %r1;",
    );
    assert_eq!(found.expect("aligned")[..4], [1, 0, 0, 0]);
    let found = over_bytes("mov.b64 %d2, 0x1122334455667788; st.global.b16 [%d1+2], %d2;");
    assert_eq!(found.expect("aligned")[..5], [0x80, 0x81, 0x88, 0x77, 0x84]);
}

#[test]
fn vectors_keep_the_order_of_their_elements() {
    let found = over_bytes(
        "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d1+16];\n\
         st.global.v4.b32 [%d1+32], {%r3, %r2, %r1, %r0};\n\
         ld.global.v2.b64 {%d2, %d3}, [%d1]; st.global.v2.b8 [%d1+2], {%d3, %d2};",
    );
    let found = found.expect("aligned");
    let of = |begin: u8| [begin, begin + 1, begin + 2, begin + 3];
    assert_eq!(found[32..48], [0x9c, 0x98, 0x94, 0x90].map(of).concat());
    assert_eq!(found[..6], [0x80, 0x81, 0x88, 0x80, 0x84, 0x85]);
}

#[test]
fn accesses_must_be_aligned_to_their_whole_size() {
    for (access, bytes) in [
        ("ld.global.b16 %r1, [AT]", 2),
        ("ld.global.s16 %r1, [AT]", 2),
        ("ld.global.b32 %r1, [AT]", 4),
        ("ld.global.b64 %d2, [AT]", 8),
        ("ld.global.v2.b32 {%r1, %r2}, [AT]", 8),
        ("ld.global.v4.b8 {%r1, %r2, %r3, %r4}, [AT]", 4),
        ("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [AT]", 16),
        ("st.global.b16 [AT], %r1", 2),
        ("st.global.b64 [AT], %d2", 8),
        ("st.global.v4.b32 [AT], {%r1, %r2, %r3, %r4}", 16),
        ("st.global.v2.b64 [AT], {%d1, %d2}", 16),
    ] {
        for offset in 0..=32_usize {
            let ran = over_bytes(&format!(
                "{};",
                access.replace("AT", &format!("%d1+{offset}"))
            ));
            if offset.is_multiple_of(bytes) {
                ran.expect(access);
                continue;
            }
            let Err(KernelFault::Misaligned {
                address,
                bytes: found,
                site,
            }) = ran
            else {
                panic!("{access} at {offset}: {ran:?}");
            };
            assert_eq!((address, found, site.line), (AT + offset as u64, bytes, 7));
        }
        // The parameter is aligned to exactly 8.
        if let Some(load) = access.strip_prefix("ld.global").filter(|_| bytes == 16) {
            let ran = over_bytes(&format!("ld.param{};", load.replace("AT", "given")));
            assert!(
                matches!(ran, Err(KernelFault::Misaligned { .. })),
                "{ran:?}"
            );
        }
    }
}

#[test]
fn an_access_outside_of_memory_names_its_thread_and_line() {
    for (access, ends) in [
        ("ld.global.b8 %r1, [%d1+64]", false),
        ("ld.global.b8 %r1, [%d1+63]", true),
        ("ld.global.b8 %r1, [%d1+-1]", false),
        ("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d1+48]", true),
        ("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d1+64]", false),
        ("st.global.b64 [%d1+56], %d1", true),
        ("st.global.b64 [%d1+64], %d1", false),
        ("ld.param.b64 %d2, [given+24]", true),
        ("ld.param.b64 %d2, [given+32]", false),
        ("ld.param.b64 %d2, [given+-8]", false),
        // The parameter has a separate address space.
        ("mov.b64 %d2, given; ld.param.b8 %r1, [%d2+31]", true),
        ("mov.b64 %d2, given; ld.global.b8 %r1, [%d2]", false),
    ] {
        let ran = over_bytes(&format!("{access};"));
        match ends {
            true => assert!(ran.is_ok(), "{access}: {ran:?}"),
            false => assert!(
                matches!(ran, Err(KernelFault::Outside { .. })),
                "{access}: {ran:?}"
            ),
        }
    }
    let body = "mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 4;\nst.global.b32 [%d1+256], %r1;";
    let module = Module::parse(&text(body)).expect("understood");
    let fault = module
        .run("test", 3, 8, &[0; 32], &Bytes::zeroed(256, 20))
        .unwrap_err();
    let message = "test, block 0, thread 5, line 7: 4 bytes at 0x114 are outside of memory";
    assert_eq!(fault.to_string(), message);
}

#[test]
fn every_thread_has_its_thread_and_block_number() {
    let body = "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;\n\
                mad.lo.s32 %r4, %r2, %r3, %r1; mul.wide.u32 %d1, %r4, 16; mov.u32 %r0, %nctaid.x;\n\
                st.global.v4.b32 [%d1], {%r1, %r2, %r3, %r0};";
    let module = Module::parse(&text(body)).expect("understood");
    let memory = Bytes::zeroed(0, 15 * 16);
    let mut lines = Vec::new();
    module
        .run_watched("test", 3, 5, &[0; 32], &memory, |line| lines.push(line))
        .expect("it ends");
    let expected: Vec<u8> = (0..3_u32)
        .flat_map(|block| (0..5).map(move |thread| [thread, block, 5, 3]))
        .flatten()
        .flat_map(u32::to_le_bytes)
        .collect();
    assert_eq!(memory.1.into_inner(), expected);
    assert_eq!(lines, [6, 6, 6, 7, 7, 7, 8, 9].repeat(15));
}

#[test]
fn loops_run_until_their_branch_fails_or_the_limit_is_reached() {
    let count = "mov.b32 %r1, 0;\n$again:\nadd.s32 %r1, %r1, 3; setp.lt.u32 %p1, %r1, 100;\n\
                 @%p1 bra $again;\nbra.uni $end;\nmov.b32 %r1, 0;\n$end: st.global.b32 [%d1], %r1;";
    assert_eq!(
        over_bytes(count).expect("it ends")[..4],
        102_u32.to_le_bytes()
    );
    let fault = over_bytes("$again:\nbra $again;").unwrap_err();
    let KernelFault::Endless { instructions, site } = fault else {
        panic!("{fault}")
    };
    assert_eq!((instructions, site.line), (1000, 8));
}

#[test]
fn an_unwritten_register_holds_noise() {
    for (store, bytes) in [
        ("b16 [%d1], %h5", 2),
        ("b32 [%d1], %r5", 4),
        ("b64 [%d1], %d5", 8),
    ] {
        let found = over_bytes(&format!("st.global.{store};")).expect("aligned");
        assert!(found[..bytes].iter().any(|&byte| byte != 0), "{store}");
        assert_eq!(found[bytes], 0x80 + bytes as u8);
    }
    // The registers of the previous thread are not visible either.
    let body = "mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 4; st.global.b32 [%d1], %r5;\n\
                mov.b32 %r5, %r1;";
    let module = Module::parse(&text(body)).expect("understood");
    let memory = Bytes::zeroed(0, 12);
    module
        .run("test", 1, 3, &[0; 32], &memory)
        .expect("it ends");
    let found = memory.1.into_inner();
    assert_eq!((&found[..4], &found[4..8]), (&found[4..8], &found[8..]));
}

#[test]
fn launches_that_do_not_match_the_entry_are_rejected() {
    let module = Module::parse(&text("")).expect("understood");
    assert_eq!(module.target(), 60);
    assert_eq!(module.entries().collect::<Vec<_>>(), ["test"]);
    assert_eq!(module.parameter_bytes("test"), Some(32));
    assert_eq!(module.parameter_bytes("Test"), None);
    let memory = Bytes::zeroed(0, 0);
    let run = |entry: &str, argument: &[u8]| {
        module
            .run(entry, 1, 1, argument, &memory)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(run("best", &[0; 32]), "there is no entry best");
    let message = "test takes an argument of 32 bytes, and got 24";
    assert_eq!(run("test", &[0; 24]), message);
}
