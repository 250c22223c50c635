//! The digests of steps, written along with a run: a line of JSON about the run, then one a step.
//!
//! A run that was killed leaves at most one unfinished line, which whoever goes on cuts off and
//! whoever reads leaves out. A step that comes again, since a run went on from an earlier state,
//! stands there again, and the later line counts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::digest::{Digest, Digested};
use super::state::State;
use super::{OnError, Options};
use crate::error::Error;

/// Version of the file's form.
const VERSION: u32 = 1;

/// Longest line there may be: a state with some thousand bad records would be that long, and the
/// one in a file has none.
const LINE: u64 = 64 << 10;

/// The first line: which run, which of its ranks, and what its digests cover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the file's form, and the mark of it.
    pub infeed_digests: u32,
    /// What the digests cover.
    pub of: Digested,
    /// The rank whose rows they are of.
    pub rank: u64,
    /// How many ranks there were.
    pub world_size: u64,
    /// What became of bad records.
    pub on_error: OnError,
    /// The state at the beginning of an epoch: what another run must have in common with this.
    pub run: State,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    epoch: u64,
    step: u64,
    digest: Digest,
}

/// A file of digests that is being written.
#[derive(Debug)]
pub(super) struct DigestLog {
    path: PathBuf,
    file: File,
}

impl Header {
    pub(super) fn new(options: &Options, run: &State) -> Header {
        Header {
            infeed_digests: VERSION,
            of: options.digest,
            rank: options.rank,
            world_size: options.world_size,
            on_error: options.on_error,
            run: run.clone(),
        }
    }

    fn read(text: &str, path: &Path) -> Result<Header, Error> {
        let wrong = |problem: String| Error::config(path.display().to_string(), problem);
        let header: Header = serde_json::from_str(text)
            .map_err(|error| wrong(format!("it is no file of digests: {error}")))?;
        match header.infeed_digests {
            VERSION => Ok(header),
            version => Err(wrong(format!(
                "version {version} is not known; this infeed reads {VERSION}"
            ))),
        }
    }

    /// What differs between this run and another, of whatever ranks.
    pub(super) fn differences(&self, other: &Header) -> Vec<String> {
        let mut differences = self.run.differences(&other.run);
        let facts = |header: &Header| {
            [
                ("digest", format!("{:?}", header.of).to_lowercase()),
                ("on_error", format!("{:?}", header.on_error).to_lowercase()),
                ("world_size", header.world_size.to_string()),
            ]
        };
        let both = facts(self).into_iter().zip(facts(other));
        let more = both
            .filter(|((_, now), (_, then))| now != then)
            .map(|((name, now), (_, then))| format!("{name} is {now}, was {then}"));
        differences.extend(more);
        differences
    }
}

impl DigestLog {
    /// Begins a file, or goes on with that of the same run and rank.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the file is of another run or none of digests, [`Error::Write`] if it
    /// cannot be written.
    pub(super) fn open(path: &Path, header: &Header) -> Result<DigestLog, Error> {
        let failed = |error| Error::write(path, error);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        let whole = whole_lines(&mut file).map_err(failed)?;
        file.set_len(whole).map_err(failed)?;
        if whole > 0 {
            file.rewind().map_err(failed)?;
            let mut lines = Lines::new(&file);
            let first = lines.next().map_err(failed)?.unwrap_or_default();
            let found = Header::read(&first, path)?;
            let mut differences = header.differences(&found);
            if header.rank != found.rank {
                differences.push(format!("rank is {}, was {}", header.rank, found.rank));
            }
            if !differences.is_empty() {
                let problem = format!(
                    "it holds digests of another run ({}); name another file",
                    differences.join("; ")
                );
                return Err(Error::config(path.display().to_string(), problem));
            }
        }
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let path = path.to_owned();
        let mut log = DigestLog { path, file };
        if whole == 0 {
            log.line(header)?;
        }
        Ok(log)
    }

    /// Adds a step.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn step(&mut self, epoch: u64, step: u64, digest: Digest) -> Result<(), Error> {
        self.line(&Line {
            epoch,
            step,
            digest,
        })
    }

    /// One write a line, so that a process that is killed leaves whole ones.
    fn line(&mut self, content: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_vec(content).expect("a line holds plain data");
        line.push(b'\n');
        self.file
            .write_all(&line)
            .map_err(|error| Error::write(&self.path, error))
    }
}

/// Bytes of a file up to the end of its last whole line.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(LINE);
    file.seek(SeekFrom::Start(from))?;
    let mut end = Vec::new();
    file.take(LINE).read_to_end(&mut end)?;
    match end.iter().rposition(|&byte| byte == b'\n') {
        Some(at) => Ok(from + at as u64 + 1),
        None if from == 0 => Ok(0),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it holds a line that no file of digests has",
        )),
    }
}

/// Whole lines, each of a limited length.
struct Lines<R> {
    from: BufReader<R>,
}

impl<R: Read> Lines<R> {
    fn new(from: R) -> Lines<R> {
        Lines {
            from: BufReader::new(from),
        }
    }

    fn next(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        self.from.by_ref().take(LINE).read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return match line.len() as u64 + 1 < LINE {
                // The end, or a line that was cut by one.
                true => Ok(None),
                false => Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a line is longer than any of a file of digests",
                )),
            };
        }
        let text = String::from_utf8(line);
        text.map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// What files of digests hold, of one rank or of all.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What the files have in common; rank 0 of 1 where they are of all ranks.
    pub header: Header,
    /// Epoch and step to the digest of that rank's rows, or of all ranks'.
    pub steps: BTreeMap<(u64, u64), Digest>,
}

impl Recorded {
    /// Reads the file of one rank, or those of all ranks of a run, whose digests are added up.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; [`Error::Config`] for what is no file of digests, files that do not belong
    /// together, and ranks that are missing.
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Recorded, Error> {
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            files.push((path.as_ref(), read_one(path.as_ref())?));
        }
        files.sort_by_key(|(_, file)| file.header.rank);
        let mut files = files.into_iter();
        let Some((_, mut sum)) = files.next() else {
            return Err(Error::config("against", "name at least one file"));
        };
        let alone = files.len() == 0;
        let mut ranks = vec![sum.header.rank];
        for (path, next) in files {
            let differences = next.header.differences(&sum.header);
            if !differences.is_empty() {
                let problem = format!("it is of another run ({})", differences.join("; "));
                return Err(Error::config(path.display().to_string(), problem));
            }
            ranks.push(next.header.rank);
            // A step counts once all ranks have it.
            sum.steps.retain(|at, _| next.steps.contains_key(at));
            for (at, digest) in &mut sum.steps {
                *digest = digest.plus(next.steps[at]);
            }
        }
        if alone {
            return Ok(sum);
        }
        if !ranks.iter().copied().eq(0..sum.header.world_size) {
            let problem = format!(
                "they are of ranks {ranks:?} out of {}; name one file, or one of every rank",
                sum.header.world_size
            );
            return Err(Error::config("against", problem));
        }
        (sum.header.rank, sum.header.world_size) = (0, 1);
        Ok(sum)
    }
}

fn read_one(path: &Path) -> Result<Recorded, Error> {
    let failed = |error: io::Error| Error::open(path, error);
    let mut lines = Lines::new(fs::File::open(path).map_err(failed)?);
    let first = lines.next().map_err(failed)?;
    let Some(first) = first else {
        let problem = "it holds nothing; was the run killed before its first step?";
        return Err(Error::config(path.display().to_string(), problem));
    };
    let header = Header::read(&first, path)?;
    let mut steps = BTreeMap::new();
    let mut number = 1;
    while let Some(text) = lines.next().map_err(failed)? {
        number += 1;
        let line: Line = serde_json::from_str(&text).map_err(|error| {
            let problem = format!("line {number} is no step's: {error}");
            Error::config(path.display().to_string(), problem)
        })?;
        steps.insert((line.epoch, line.step), line.digest);
    }
    Ok(Recorded { header, steps })
}
