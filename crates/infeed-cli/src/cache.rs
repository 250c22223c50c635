//! `infeed cache`: lists, removes and verifies what the cache on a disk holds, and the options of
//! other commands that use a cache.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use clap::{Parser, Subcommand};
use infeed::loader::{CacheLimit, CacheOptions, DiskCacheOptions};
use infeed_core::units::parse_bytes;
use infeed_source::store::{CacheGroup, OtherFiles, list_cache, remove_cached, verify_cache};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::{CliError, CommandResult};
use crate::json::put_json;
use crate::terminal::{ago, bar, human_bytes};
use crate::{args, interrupt};

/// Default limit of a folder, as in `infeed.Cache`.
const LIMIT: &str = "32GiB";

/// Options of a command that opens a loader with a cache.
#[derive(clap::Args)]
pub(crate) struct CacheArgs {
    /// Memory that keeps decoded records for later epochs, such as 64GiB, or `auto` for half of the
    /// free memory
    #[arg(long, value_name = "BYTES", value_parser = limit)]
    cache: Option<CacheLimit>,
    /// Folder that keeps decoded records for later runs, in addition to --cache or alone
    #[arg(long, value_name = "FOLDER")]
    cache_disk: Option<PathBuf>,
    /// Limit of the folder
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = LIMIT)]
    cache_disk_limit: u64,
}

impl CacheArgs {
    /// Returns the cache; None if none is wanted.
    pub(crate) fn options(&self) -> Option<CacheOptions> {
        let disk = self.cache_disk.as_ref().map(|folder| DiskCacheOptions {
            folder: folder.clone(),
            limit_bytes: self.cache_disk_limit,
        });
        (self.cache.is_some() || disk.is_some()).then_some(CacheOptions {
            memory: self.cache,
            disk,
        })
    }
}

/// Parses the limit of the memory for decoded records.
fn limit(text: &str) -> Result<CacheLimit, String> {
    match text {
        "auto" => Ok(CacheLimit::Auto),
        _ => args::bytes(text).map(CacheLimit::Bytes),
    }
}

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed cache ls /nvme/cache                  what the folder holds, and when it was used
  infeed cache rm /nvme/cache /data/photos     remove the records of one dataset
  infeed cache rm /nvme/cache --all            remove everything
  infeed cache verify /nvme/cache              read everything, remove damaged pieces

Without FOLDER, the commands use INFEED_CACHE_DIR. Loops that use a piece that was removed read or
decode the original.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List datasets and buckets, with their bytes and the time of their last use
    Ls {
        #[command(flatten)]
        folder: FolderArgs,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Remove pieces
    Rm {
        /// Folder of the cache
        folder: PathBuf,
        /// Names of datasets and buckets, as `ls` prints them
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        names: Vec<String>,
        /// Remove everything
        #[arg(long)]
        all: bool,
    },
    /// Read every piece, and remove those with a wrong checksum. The exit status is 1 if there are any
    Verify {
        #[command(flatten)]
        folder: FolderArgs,
    },
}

#[derive(clap::Args)]
struct FolderArgs {
    /// Folder of the cache [default: the folder in INFEED_CACHE_DIR]
    folder: Option<PathBuf>,
}

impl FolderArgs {
    fn path(&self) -> Result<PathBuf, CliError> {
        let named = std::env::var_os("INFEED_CACHE_DIR").filter(|folder| !folder.is_empty());
        let folder = self.folder.clone().or_else(|| named.map(PathBuf::from));
        folder.ok_or_else(|| {
            CliError::Usage("name the folder of the cache, or set INFEED_CACHE_DIR".to_owned())
        })
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    interrupt::watch();
    match &args.action {
        Action::Ls { folder, json } => list(&folder.path()?, *json),
        Action::Rm { folder, names, .. } => remove(folder, names),
        Action::Verify { folder } => verify(&folder.path()?),
    }
}

/// Runs `work` with a progress bar over pieces. `work` gets the function that shows progress and
/// reports whether to go on.
fn with_progress<T>(
    folder: &Path,
    work: impl FnOnce(&mut dyn FnMut(u64, u64) -> bool) -> std::io::Result<T>,
) -> Result<T, CliError> {
    let progress = bar(0, "pieces");
    let result = work(&mut |done, all| {
        progress.set_length(all);
        progress.set_position(done);
        !interrupt::is_requested()
    });
    progress.finish_and_clear();
    result.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => "; is it the folder of a cache?",
            _ => "",
        };
        CliError::Failed(format!("{}: {error}{hint}", folder.display()))
    })
}

fn list(folder: &Path, as_json: bool) -> CommandResult {
    let groups = with_progress(folder, |proceed| list_cache(folder, proceed))?;
    if as_json {
        return put_json(&CacheListJson {
            groups: groups.iter().map(CacheGroupJson::new).collect(),
        });
    }
    if groups.is_empty() {
        return putln!("{} is empty", folder.display());
    }
    putln!(
        "{:<9} {:>9} {:>9}  {:<15}  name",
        "kind",
        "pieces",
        "size",
        "used"
    )?;
    for group in &groups {
        putln!(
            "{:<9} {:>9} {:>9}  {:<15}  {}",
            kind(group),
            group.pieces,
            human_bytes(group.bytes),
            ago(group.used),
            group.name,
        )?;
    }
    let bytes = groups.iter().map(|group| group.bytes).sum();
    putln!("{} in {}", human_bytes(bytes), folder.display())
}

/// Result of `infeed cache ls`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct CacheListJson {
    /// Datasets and buckets with pieces in the folder.
    groups: Vec<CacheGroupJson>,
}

/// The pieces of one dataset or bucket.
#[derive(JsonSchema, Serialize)]
struct CacheGroupJson {
    /// Path of the dataset, or URL of the bucket or web server.
    name: String,
    /// `decoded` for decoded records, `remote` for files from buckets and web servers.
    kind: &'static str,
    /// Number of pieces.
    pieces: u64,
    /// Bytes of the pieces.
    bytes: u64,
    /// Time of the last use, in seconds since 1970, UTC.
    used_at_s: u64,
}

impl CacheGroupJson {
    fn new(group: &CacheGroup) -> CacheGroupJson {
        let used_at = group.used.duration_since(UNIX_EPOCH).unwrap_or_default();
        CacheGroupJson {
            name: group.name.clone(),
            kind: kind(group),
            pieces: group.pieces,
            bytes: group.bytes,
            used_at_s: used_at.as_secs(),
        }
    }
}

fn kind(group: &CacheGroup) -> &'static str {
    match group.is_decoded {
        true => "decoded",
        false => "remote",
    }
}

fn remove(folder: &Path, names: &[String]) -> CommandResult {
    if !names.is_empty() {
        let groups = with_progress(folder, |proceed| list_cache(folder, proceed))?;
        for name in names {
            if !groups.iter().any(|group| group.name == *name) {
                let folder = folder.display();
                return Err(CliError::Failed(format!(
                    "{folder} has nothing of {name}; `infeed cache ls {folder}` lists the names"
                )));
            }
        }
    }
    let chosen = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
    let removed = with_progress(folder, |proceed| remove_cached(folder, &chosen, proceed))?;
    let (pieces, bytes) = (removed.pieces, human_bytes(removed.bytes));
    putln!("removed {pieces} pieces, {bytes}")?;
    list_others(&removed.others)
}

/// Names the files that infeed did not write, if there are any.
fn list_others(others: &OtherFiles) -> CommandResult {
    match others.count {
        0 => Ok(()),
        _ => putln!("{others}"),
    }
}

fn verify(folder: &Path) -> CommandResult {
    let found = with_progress(folder, |proceed| verify_cache(folder, proceed))?;
    putln!("read {} pieces, {}", found.pieces, human_bytes(found.bytes))?;
    list_others(&found.others)?;
    match (found.damaged, found.unreadable) {
        (0, 0) => Ok(()),
        (damaged, 0) => Err(CliError::Failed(format!(
            "{damaged} pieces were damaged; they are removed"
        ))),
        (damaged, unreadable) => Err(CliError::Failed(format!(
            "{damaged} pieces were damaged and are removed; {unreadable} cannot be read or removed"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_wanted_if_memory_or_a_folder_is_named() {
        #[derive(Parser)]
        struct Command {
            #[command(flatten)]
            cache: CacheArgs,
        }
        let options = |given: &[&str]| {
            let argv = ["x"].iter().chain(given);
            Command::try_parse_from(argv)
                .expect("valid")
                .cache
                .options()
        };

        assert_eq!(options(&[]), None);
        assert_eq!(
            options(&["--cache", "1KiB"]),
            Some(CacheLimit::Bytes(1024).into())
        );
        let found = options(&["--cache-disk", "d"]).expect("a folder");
        assert_eq!(found.memory, None);
        assert_eq!(found.disk.expect("a folder").limit_bytes, 32 << 30);
    }
}
