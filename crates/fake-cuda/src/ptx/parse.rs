//! Parses a text into entries: directives, registers, labels, and instructions.

use std::collections::HashMap;

use super::decode::decode;
use super::error::BadPtx;
use super::instruction::{Instruction, KernelCode, Opcode};
use super::operand::{InstructionReader, Operand, operands};
use super::token::{PtxToken, Tokens};
use super::values::{ALWAYS, EntryValues};

/// Address of the parameter, far from global memory.
pub(super) const PARAMETER: u64 = 1 << 60;

/// Parses a text from `.version` on. Returns the target and the entries.
pub(super) fn module(text: &str) -> Result<(u32, Vec<KernelCode>), BadPtx> {
    let mut tokens = Tokens::of(text)?;
    tokens.keyword(".version")?;
    let line = tokens.line();
    let version = tokens.word()?;
    let major = version.split_once('.').map(|(major, _)| major.parse());
    if !matches!(major, Some(Ok(1_u32..=8))) {
        return Err(BadPtx::new(
            line,
            format!("version {version} is not supported"),
        ));
    }
    tokens.keyword(".target")?;
    let line = tokens.line();
    let target = tokens.word()?;
    let number = target
        .strip_prefix("sm_")
        .and_then(|number| number.parse().ok());
    let wrong = || BadPtx::new(line, format!("the target `{target}` is not supported"));
    let target = number.ok_or_else(wrong)?;
    tokens.keyword(".address_size")?;
    tokens.keyword("64")?;

    let mut entries: Vec<KernelCode> = Vec::new();
    while tokens.peek().is_some() {
        if tokens.peek() == Some(PtxToken::Word(".visible")) {
            tokens.next();
        }
        let line = tokens.line();
        tokens.keyword(".entry")?;
        let entry = entry(&mut tokens)?;
        if entries.iter().any(|other| other.name == entry.name) {
            return Err(BadPtx::new(
                line,
                format!("{} is defined twice", entry.name),
            ));
        }
        entries.push(entry);
    }
    Ok((target, entries))
}

/// Parses an entry from its name on, with at most one parameter, an array.
fn entry(tokens: &mut Tokens<'_>) -> Result<KernelCode, BadPtx> {
    let name = tokens.word()?;
    let mut parameter = None;
    let mut parameter_bytes = 0;
    tokens.sign('(')?;
    if !tokens.takes(')') {
        tokens.keyword(".param")?;
        tokens.keyword(".align")?;
        let line = tokens.line();
        let align = tokens.count()?;
        if !align.is_power_of_two() || align > 128 {
            return Err(BadPtx::new(
                line,
                format!("{align} is not a valid alignment"),
            ));
        }
        tokens.keyword(".b8")?;
        // Aligned to exactly `align`, not to a larger power of two.
        parameter = Some((tokens.word()?, PARAMETER + align as u64));
        tokens.sign('[')?;
        parameter_bytes = tokens.count()?;
        tokens.sign(']')?;
        tokens.sign(')')?;
    }
    tokens.sign('{')?;
    let mut body = EntryBody {
        values: EntryValues::new(parameter),
        code: Vec::new(),
        labels: HashMap::new(),
        branches: Vec::new(),
    };
    while body.statement(tokens)? {}
    body.finish(tokens.line())?;
    Ok(KernelCode {
        name: name.to_owned(),
        parameter_bytes,
        parameter: parameter.map_or(PARAMETER, |(_, address)| address),
        code: body.code,
        begin: body.values.into_begin(),
    })
}

/// An entry whose body is being parsed.
struct EntryBody<'a> {
    values: EntryValues<'a>,
    code: Vec<Instruction>,
    labels: HashMap<&'a str, u32>,
    /// Branches, and their target labels.
    branches: Vec<(usize, &'a str)>,
}

impl<'a> EntryBody<'a> {
    /// Parses the next statement. Returns false for the brace that ends the entry.
    fn statement(&mut self, tokens: &mut Tokens<'a>) -> Result<bool, BadPtx> {
        let line = tokens.line();
        if tokens.takes('}') {
            return Ok(self.values.close());
        }
        if tokens.takes('{') {
            self.values.open();
            return Ok(true);
        }
        let mut guard = (ALWAYS, 1);
        if tokens.takes('@') {
            let expected = u64::from(!tokens.takes('!'));
            let name = tokens.word()?;
            let (slot, bits) = self.values.register(line, name)?;
            if bits != 1 {
                return Err(BadPtx::new(line, format!("`{name}` is not a predicate")));
            }
            guard = (slot, expected);
        } else if tokens.peek_second() == Some(PtxToken::Sign(':')) {
            let label = tokens.word()?;
            tokens.sign(':')?;
            if self.labels.insert(label, self.code.len() as u32).is_some() {
                return Err(BadPtx::new(line, format!("`{label}` is defined twice")));
            }
            return Ok(true);
        }
        match tokens.word()? {
            ".reg" if guard.0 == ALWAYS => self.registers(tokens)?,
            ".pragma" if guard.0 == ALWAYS => {
                // A hint for compilers that unroll loops.
                if tokens.next() != Some(PtxToken::Text("nounroll")) {
                    return Err(BadPtx::new(line, "this pragma is not supported"));
                }
                tokens.sign(';')?;
            }
            directive if directive.starts_with('.') => {
                return Err(BadPtx::new(
                    line,
                    format!("`{directive}` is not supported here"),
                ));
            }
            opcode => {
                let operands = operands(tokens)?;
                let what = self.instruction(line, opcode, operands)?;
                let (guard, expected) = guard;
                self.code.push(Instruction {
                    line,
                    guard,
                    expected,
                    what,
                });
            }
        }
        Ok(true)
    }

    /// Parses register declarations, from the type on.
    fn registers(&mut self, tokens: &mut Tokens<'a>) -> Result<(), BadPtx> {
        let bits = match tokens.peek() {
            Some(PtxToken::Word(".pred")) => 1,
            Some(PtxToken::Word(".b16")) => 16,
            Some(PtxToken::Word(".b32")) => 32,
            Some(PtxToken::Word(".b64")) => 64,
            _ => return Err(tokens.unexpected_token("`.pred`, `.b16`, `.b32` or `.b64`")),
        };
        tokens.next();
        loop {
            let line = tokens.line();
            let name = tokens.word()?;
            let mut count = None;
            if tokens.takes('<') {
                count = Some(tokens.count()?);
                tokens.sign('>')?;
            }
            self.values.declare(line, name, count, bits)?;
            if !tokens.takes(',') {
                return tokens.sign(';');
            }
        }
    }

    fn instruction(
        &mut self,
        line: u32,
        opcode: &'a str,
        operands: Vec<Operand<'a>>,
    ) -> Result<Opcode, BadPtx> {
        let values = &mut self.values;
        let mut reading = InstructionReader {
            line,
            opcode,
            operands,
            values,
        };
        if !matches!(opcode, "bra" | "bra.uni") {
            return decode(&mut reading);
        }
        match reading.exactly()? {
            [Operand::Name(label)] => {
                self.branches.push((self.code.len(), label));
                Ok(Opcode::Branch { to: 0 })
            }
            _ => Err(reading.bad("the target is not a label")),
        }
    }

    /// Sets the targets of branches.
    fn finish(&mut self, line: u32) -> Result<(), BadPtx> {
        let len = self.code.len();
        for &(at, label) in &self.branches {
            let branch = &mut self.code[at];
            match self.labels.get(label) {
                Some(&to) if (to as usize) < len => branch.what = Opcode::Branch { to },
                _ => {
                    let what = format!("no instruction has the label `{label}`");
                    return Err(BadPtx::new(branch.line, what));
                }
            }
        }
        let ends = self.code.last().is_some_and(|last| {
            last.guard == ALWAYS && matches!(last.what, Opcode::Branch { .. } | Opcode::Return)
        });
        match ends {
            true => Ok(()),
            false => Err(BadPtx::new(line, "an entry ends in `ret` or in a branch")),
        }
    }
}
