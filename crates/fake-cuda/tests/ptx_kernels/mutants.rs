//! The PTX with one instruction changed.

use std::ops::Range;

use crate::noise::Noise;

/// A change of one line.
pub(crate) struct Mutant {
    /// A module with only the changed entry.
    pub(crate) text: String,
    /// Line in the whole text, from 1.
    pub(crate) line: usize,
    pub(crate) was: String,
    pub(crate) is: String,
}

/// Returns the lines of an entry in a text.
fn lines_of(lines: &[&str], entry: &str) -> Range<usize> {
    let head = format!(".visible .entry {entry}(");
    let begin = lines
        .iter()
        .position(|line| *line == head)
        .expect("an entry");
    let end = lines[begin..]
        .iter()
        .position(|line| *line == "}")
        .expect("an end");
    begin..begin + end + 1
}

/// Changes a random instruction of an entry.
pub(crate) fn mutant(noise: &mut Noise, text: &str, entry: &str) -> Mutant {
    let lines: Vec<&str> = text.lines().collect();
    let range = lines_of(&lines, entry);
    loop {
        let line = range.start + noise.below(range.len());
        let was = lines[line].trim();
        let changes = changes(was);
        if changes.is_empty() {
            continue;
        }
        let is = changes[noise.below(changes.len())].clone();
        return replace_line(&lines, range, line, is);
    }
}

/// Returns a module of the entry in these lines, with one line replaced.
fn replace_line(lines: &[&str], range: Range<usize>, line: usize, is: String) -> Mutant {
    let directives = |line: &&&str| {
        [".version", ".target", ".address_size"]
            .iter()
            .any(|name| line.starts_with(name))
    };
    let head = lines.iter().filter(directives).copied();
    let body = range.map(|n| if n == line { is.as_str() } else { lines[n] });
    Mutant {
        text: head.chain(body).collect::<Vec<_>>().join("\n"),
        line: line + 1,
        was: lines[line].trim().to_owned(),
        is,
    }
}

/// Opcodes, and others that take the same operands. Opcodes for signed numbers are not replaced
/// with those for unsigned ones: indices are below 2^31, where both behave the same.
const OTHERS: &[(&str, &str)] = &[
    ("add.s32", "sub.s32"),
    ("add.s64", "sub.s64"),
    ("sub.s32", "add.s32"),
    ("sub.s64", "add.s64"),
    ("and.b32", "or.b32"),
    ("and.b64", "or.b64"),
    ("or.b32", "and.b32"),
    ("and.pred", "or.pred"),
    ("or.pred", "and.pred"),
    ("shl.b32", "shr.u32"),
    ("shl.b64", "shr.u64"),
    ("shr.u32", "shl.b32"),
    ("shr.u64", "shl.b64"),
    ("shr.s32", "shr.u32"),
    ("min.s32", "max.s32"),
    ("max.s32", "min.s32"),
    ("mul.lo.s32", "add.s32"),
    ("mul.lo.s64", "add.s64"),
    ("mul.rn.f32", "add.rn.f32"),
    ("add.rn.f32", "mul.rn.f32"),
    ("setp.eq.b32", "setp.ne.b32"),
    ("setp.ne.b32", "setp.eq.b32"),
    ("setp.eq.b64", "setp.ne.b64"),
    ("setp.ne.b64", "setp.eq.b64"),
    ("setp.lt.u32", "setp.le.u32"),
    ("setp.lt.s32", "setp.le.s32"),
    ("setp.le.u32", "setp.lt.u32"),
    ("setp.gt.u32", "setp.ge.u32"),
    ("setp.gt.s32", "setp.ge.s32"),
    ("setp.ge.u32", "setp.gt.u32"),
    ("setp.lt.u32", "setp.gt.u32"),
    ("setp.lt.s32", "setp.gt.s32"),
    ("setp.gt.u32", "setp.lt.u32"),
    ("neg.s32", "not.b32"),
    ("not.b32", "neg.s32"),
    ("not.b64", "mov.b64"),
    ("not.pred", "mov.pred"),
    ("bfe.s32", "bfe.u32"),
    ("shf.l.wrap.b32", "shf.r.wrap.b32"),
    ("ld.global.s16", "ld.global.u16"),
    ("ld.global.b32", "ld.global.b16"),
    ("ld.global.b32", "ld.global.b8"),
    ("st.global.b32", "st.global.b16"),
    ("st.global.b16", "st.global.b8"),
    ("%ctaid.x", "%tid.x"),
    ("%tid.x", "%ctaid.x"),
    ("cvt.rn.f32.u32", "cvt.u32.u32"),
    ("bra.uni", "ret; //"),
];

/// Returns the possible changes of a line.
fn changes(line: &str) -> Vec<String> {
    let is_instruction =
        line.ends_with(';') && line.starts_with(|c: char| c.is_ascii_lowercase() || c == '@');
    if !is_instruction {
        return Vec::new();
    }
    let mut changes: Vec<String> = OTHERS
        .iter()
        .filter(|(from, _)| line.contains(from))
        .map(|(from, to)| line.replace(from, to))
        .collect();
    if let Some(rest) = line.strip_prefix("@%") {
        changes.push(format!("@!%{rest}"));
    }
    if let Some(rest) = line.strip_prefix("@!%") {
        changes.push(format!("@%{rest}"));
    }
    let operands = line
        .split_once('\t')
        .map(|(opcode, operands)| (opcode, operands.trim_end_matches(';')));
    let Some((opcode, operands)) = operands else {
        return changes;
    };
    let operands: Vec<&str> = operands.split(", ").collect();
    // Swaps the two values of a selection.
    if let ("selp.b16" | "selp.b32" | "selp.b64", [to, a, b, c]) = (opcode, &operands[..]) {
        changes.push(format!("{opcode} {to}, {b}, {a}, {c};"));
    }
    // Omits the summand.
    if let ("mad.lo.s32" | "mad.lo.s64", [to, a, b, _]) = (opcode, &operands[..]) {
        changes.push(format!("{opcode} {to}, {a}, {b}, 0;"));
    }
    // The next number, and the next address.
    for (n, operand) in operands.iter().enumerate() {
        let next = match operand.parse::<i64>() {
            Ok(number) => (number + 1).to_string(),
            Err(_) => match operand
                .strip_suffix(']')
                .and_then(|address| address.split_once('+'))
            {
                Some((base, offset)) => match offset.parse::<i64>() {
                    Ok(offset) => format!("{base}+{}]", offset + 4),
                    Err(_) => continue,
                },
                None => continue,
            },
        };
        let mut changed = operands.clone();
        changed[n] = &next;
        changes.push(format!("{opcode} {};", changed.join(", ")));
    }
    changes
}
