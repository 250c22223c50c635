//! Files with the digest of each step: a line of JSON about the run, then one line for each step.
//!
//! If the process is killed, the last line may be unfinished; readers skip it. If a step occurs
//! twice, the later line counts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::digest::{Digest, DigestScope};
use super::state::LoaderState;
use super::{OnError, Options};
use infeed_core::error::Error;
use infeed_core::parse_problem::in_words;
use infeed_raw::file;

/// Version of the format.
const VERSION: u32 = 1;

/// Maximum line length in bytes. Only a state with thousands of bad records is longer, and files
/// contain none.
const LINE: u64 = 64 << 10;

/// The first line: the run, its rank, and the content of its digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DigestHeader {
    /// Version of the format, which also marks the file type.
    pub infeed_digests: u32,
    /// Content of the digests.
    pub of: DigestScope,
    /// Rank whose rows the digests cover.
    pub rank: u64,
    /// Number of ranks.
    pub world_size: u64,
    /// Policy for bad records.
    pub on_error: OnError,
    /// State at the beginning of an epoch; a compared run must agree with it.
    pub run: LoaderState,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DigestLine {
    epoch: u64,
    step: u64,
    digest: Digest,
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct DigestWriter {
    path: PathBuf,
    file: File,
}

impl DigestHeader {
    pub(super) fn new(options: &Options, run: &LoaderState) -> DigestHeader {
        DigestHeader {
            infeed_digests: VERSION,
            of: options.digest,
            rank: options.rank,
            world_size: options.world_size,
            on_error: options.on_error,
            run: run.clone(),
        }
    }

    fn read(text: &str, path: &Path) -> Result<DigestHeader, Error> {
        let wrong = |problem: String| Error::config(path.display().to_string(), problem);
        let header: DigestHeader = serde_json::from_str(text)
            .map_err(|error| in_words(&error.to_string()))
            .map_err(|problem| wrong(format!("it is not a file of digests: {problem}")))?;
        match header.infeed_digests {
            VERSION => Ok(header),
            version => Err(wrong(format!(
                "version {version} is unknown; this infeed reads version {VERSION}"
            ))),
        }
    }
}

impl DigestWriter {
    /// Creates a file; replaces an existing one.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn create(path: &Path, header: &DigestHeader) -> Result<DigestWriter, Error> {
        let file = File::create(path).map_err(|error| Error::write(path, error))?;
        let path = path.to_owned();
        let mut writer = DigestWriter { path, file };
        writer.line(header)?;
        Ok(writer)
    }

    /// Appends a step.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn step(&mut self, epoch: u64, step: u64, digest: Digest) -> Result<(), Error> {
        self.line(&DigestLine {
            epoch,
            step,
            digest,
        })
    }

    /// Writes a line with one call, so that a killed process leaves whole lines.
    fn line(&mut self, content: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_vec(content).expect("a line holds plain data");
        line.push(b'\n');
        self.file
            .write_all(&line)
            .map_err(|error| Error::write(&self.path, error))
    }
}

/// Whole lines, each of a limited length.
struct DigestLines<R> {
    from: BufReader<R>,
}

impl<R: Read> DigestLines<R> {
    fn new(from: R) -> DigestLines<R> {
        DigestLines {
            from: BufReader::new(from),
        }
    }

    fn next(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        self.from.by_ref().take(LINE).read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return match line.len() as u64 + 1 < LINE {
                // The end of the file, or an unfinished line.
                true => Ok(None),
                false => Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a line is longer than in any file of digests",
                )),
            };
        }
        let text = String::from_utf8(line);
        text.map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// The content of a file of digests.
#[derive(Clone, Debug)]
pub struct DigestFile {
    /// The run.
    pub header: DigestHeader,
    /// Digest by epoch and step.
    pub steps: BTreeMap<(u64, u64), Digest>,
}

impl DigestFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; [`Error::Config`] for a file of another kind.
    pub fn read(path: &Path) -> Result<DigestFile, Error> {
        let failed = |error: io::Error| Error::open(path, error);
        let mut lines = DigestLines::new(file::open(path).map_err(failed)?.0);
        let first = lines.next().map_err(failed)?;
        let Some(first) = first else {
            let problem = "the file is empty; write it again";
            return Err(Error::config(path.display().to_string(), problem));
        };
        let header = DigestHeader::read(&first, path)?;
        let mut steps = BTreeMap::new();
        let mut number = 1;
        while let Some(text) = lines.next().map_err(failed)? {
            number += 1;
            let line: DigestLine = serde_json::from_str(&text).map_err(|error| {
                let problem = in_words(&error.to_string());
                let problem = format!("line {number} is not a step: {problem}");
                Error::config(path.display().to_string(), problem)
            })?;
            steps.insert((line.epoch, line.step), line.digest);
        }
        Ok(DigestFile { header, steps })
    }
}
