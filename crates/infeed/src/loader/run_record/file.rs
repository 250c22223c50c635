//! Files of run records: JSON lines, the first about the run, then one for each step.
//!
//! If the process is killed, the last line may be unfinished; readers skip it, and a run that
//! continues cuts it. If a step is not after the last one, it replaces all steps from its number on.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::keys::RowKey;
use super::steps::{RecordedRun, RecordedStep, RunRecord};
use crate::loader::digest::Digest;
use infeed_core::error::Error;
use infeed_core::parse_problem::in_words;
use infeed_core::printable::excerpt;
use infeed_raw::file;

/// Version of the format.
const VERSION: u32 = 1;

/// The first bytes of every record.
const BEGINNING: &[u8] = b"{\"infeed_run_record\":";

/// Maximum length of a line in bytes: a step of a million rows.
const MAX_LINE: u64 = 16 << 20;

/// Bytes that are read at once from the end of a file.
const BLOCK: u64 = 64 << 10;

/// Hexadecimal digits of a hash.
const HASH_DIGITS: usize = 12;

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordHeader {
    /// Version of the format, which also marks the file type.
    infeed_run_record: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RecordedRun>,
}

/// The first line of the formats before this one.
#[derive(Deserialize)]
struct EarlierHeader {
    infeed_digests: Option<IgnoredAny>,
    infeed_certificate: Option<IgnoredAny>,
}

/// One step.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepLine {
    step: u64,
    /// Ids of the rows. A step has either ids or hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<Box<str>>>,
    /// Hashes of the contents of the rows, one after another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hashes: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
}

/// A record that is being written.
#[derive(Debug)]
pub struct RunWriter {
    path: PathBuf,
    file: File,
}

impl RunWriter {
    /// Creates a file, or replaces an existing one.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub fn create(path: &Path, run: Option<RecordedRun>) -> Result<RunWriter, Error> {
        let file = File::create(path).map_err(|error| Error::write(path, error))?;
        let path = path.to_owned();
        let mut writer = RunWriter { path, file };
        writer.line(&RecordHeader {
            infeed_run_record: VERSION,
            run,
        })?;
        Ok(writer)
    }

    /// Opens a record to add the steps of a run that continues; creates it if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; [`Error::Config`] for a file of another kind; [`Error::Write`].
    pub fn resume(path: &Path) -> Result<RunWriter, Error> {
        if !path.exists() {
            return RunWriter::create(path, None);
        }
        let failed = |error: io::Error| Error::open(path, error);
        let (mut file, length) = file::open(path).map_err(failed)?;
        let beginning = read_up_to(&mut file, BEGINNING.len() as u64).map_err(failed)?;
        // The header itself may be unfinished.
        if !BEGINNING.starts_with(&beginning) {
            file.rewind().map_err(failed)?;
            RunRecord::read_from(&file, path)?;
        }
        let end = end_of_lines(&mut file, length).map_err(failed)?;
        if end == 0 {
            return RunWriter::create(path, None);
        }
        let failed = |error: io::Error| Error::write(path, error);
        let opened = OpenOptions::new().write(true).open(path);
        let mut file = opened.map_err(failed)?;
        file.set_len(end).map_err(failed)?;
        file.seek(SeekFrom::Start(end)).map_err(failed)?;
        let path = path.to_owned();
        Ok(RunWriter { path, file })
    }

    /// Appends a step.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub fn write(&mut self, step: &RecordedStep) -> Result<(), Error> {
        let mut ids = Vec::new();
        let mut hashes = String::new();
        for row in &step.rows {
            match row {
                RowKey::Id(id) => ids.push(id.clone()),
                RowKey::Hash(_) => hashes += &row.text(),
            }
        }
        self.line(&StepLine {
            step: step.step,
            hashes: ids.is_empty().then_some(hashes),
            ids: (!ids.is_empty()).then_some(ids),
            digest: step.digest,
        })
    }

    /// Writes a line at once, so that a killed process leaves whole lines.
    fn line(&mut self, content: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_vec(content).expect("a line holds plain data");
        line.push(b'\n');
        self.file
            .write_all(&line)
            .map_err(|error| Error::write(&self.path, error))
    }
}

/// Returns the length of a file without an unfinished last line.
fn end_of_lines(file: &mut File, length: u64) -> io::Result<u64> {
    let mut end = length;
    while end > 0 {
        let begin = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(begin))?;
        let block = read_up_to(file, end - begin)?;
        if let Some(at) = block.iter().rposition(|&byte| byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

fn read_up_to(from: &mut impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl RunRecord {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; [`Error::Config`] for a file of another kind.
    pub fn read(path: &Path) -> Result<RunRecord, Error> {
        let (file, _) = file::open(path).map_err(|error| Error::open(path, error))?;
        RunRecord::read_from(file, path)
    }

    fn read_from(file: impl Read, path: &Path) -> Result<RunRecord, Error> {
        let wrong = |problem: String| Error::config(path.display().to_string(), problem);
        let failed = |error: io::Error| Error::open(path, error);
        let mut lines = BufReader::new(file);
        let Some(first) = next_line(&mut lines).map_err(failed)? else {
            let problem = "it has no complete first line; record the run again";
            return Err(wrong(problem.to_owned()));
        };
        let mut record = RunRecord::default();
        record.run = read_header(&first).map_err(wrong)?;
        let mut number = 1;
        while let Some(line) = next_line(&mut lines).map_err(failed)? {
            number += 1;
            read_step(&line)
                .and_then(|step| record.push(step).map_err(|error| error.to_string()))
                .map_err(|problem| {
                    wrong(format!(
                        "line {number} is not a line of a run record: {problem}"
                    ))
                })?;
        }
        Ok(record)
    }
}

/// Returns the next whole line.
fn next_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.take(MAX_LINE).read_until(b'\n', &mut line)?;
    if line.pop() == Some(b'\n') {
        return Ok(Some(line));
    }
    match line.len() as u64 + 1 < MAX_LINE {
        // The end of the file, or an unfinished line.
        true => Ok(None),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a line is longer than in any run record",
        )),
    }
}

fn read_header(line: &[u8]) -> Result<Option<RecordedRun>, String> {
    match parse::<RecordHeader>(line) {
        Ok(header) if header.infeed_run_record == VERSION => Ok(header.run),
        Ok(header) => Err(format!(
            "version {} is unknown; this infeed reads version {VERSION}",
            header.infeed_run_record
        )),
        Err(problem) => Err(match parse::<EarlierHeader>(line) {
            Ok(EarlierHeader {
                infeed_digests: Some(_),
                ..
            }) => {
                "it is a file of digests of an earlier version; write it again with infeed verify \
                   --write"
                    .to_owned()
            }
            Ok(EarlierHeader {
                infeed_certificate: Some(_),
                ..
            }) => "it is a record of an earlier version; record the run again with \
                   infeed.runs.certify"
                .to_owned(),
            _ => format!("it is not a run record: {problem}"),
        }),
    }
}

fn read_step(line: &[u8]) -> Result<RecordedStep, String> {
    let line: StepLine = parse(line)?;
    let rows = match (line.ids, line.hashes) {
        (Some(ids), None) => ids.into_iter().map(RowKey::Id).collect(),
        (None, Some(hashes)) => read_hashes(&hashes)?,
        _ => return Err("it needs either ids or hashes".to_owned()),
    };
    Ok(RecordedStep {
        step: line.step,
        rows,
        digest: line.digest,
    })
}

fn read_hashes(text: &str) -> Result<Vec<RowKey>, String> {
    let hash = |digits: &[u8]| {
        let is_whole = digits.len() == HASH_DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(digits).ok().filter(|_| is_whole)?;
        u64::from_str_radix(digits, 16).ok().map(RowKey::Hash)
    };
    let hashes = text.as_bytes().chunks(HASH_DIGITS).map(hash);
    let hashes: Option<Vec<RowKey>> = hashes.collect();
    hashes.ok_or_else(|| format!("a hash needs {HASH_DIGITS} hexadecimal digits"))
}

/// Parses a line, which is an object.
fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    // Serde would accept a list of the values, too.
    if !line.starts_with(b"{") {
        return Err("it is not a JSON object".to_owned());
    }
    serde_json::from_slice(line)
        .map_err(|error| excerpt(&in_words(&error.to_string())).into_owned())
}
