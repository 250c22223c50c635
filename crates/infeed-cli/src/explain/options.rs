//! The options of `infeed explain`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;
use infeed::loader::DecodeBy;
use infeed_core::probe;
use infeed_explain::DescribedStorage;

use crate::args;
use crate::feeders::{EXPLAIN_EXAMPLES, FeederArgs};
use crate::on_error::OnBadRecord;
use crate::target::{FunctionArgs, path_help};

/// Default duration of the plain run in seconds.
const DEFAULT_SECONDS: f64 = 6.0;

#[derive(Parser)]
#[command(after_help = format!("Examples:
  infeed explain photos                     what limits a folder of images on this machine
  infeed explain pipeline.toml --step-ms 12 with a training step of 12 ms
  infeed explain photos --on hdd            as if the data were on a hard disk
  infeed explain photos --device cuda:0     with batches on a GPU: placement and transfers
  infeed explain photos --device cuda:0 --decode gpu         with JPEGs decoded on the GPU
  infeed explain photos --on h100x8         placement of the work for 8 H100
{EXPLAIN_EXAMPLES}  infeed explain photos --cores 16 --storage s3              the rate on another machine
  infeed explain photos --ram 64GiB         the share of the reads that memory would answer
  infeed explain photos --full              all measurements: stages, evidence, arithmetic, ledger
  infeed explain photos --html report.html  with plots and the timeline
  infeed explain run.json                   the recording of a loop: what it waited for
  infeed explain photos --apply 1           apply remedy 1 of the last report, and measure its gain

A remedy is a change of options, pipeline or data. explain tries each remedy on a few hundred of
your records. --apply writes new data next to the original and never changes the original. Ctrl-C
stops and prints the results so far."))]
pub(crate) struct Args {
    #[arg(help = format!("{}, or a recording of a loop", path_help()))]
    pub(super) path: PathBuf,
    /// Duration of a training step in milliseconds [default: no step, batches are taken as fast as
    /// they arrive]
    #[arg(long, value_name = "N", value_parser = args::positive)]
    pub(super) step_ms: Option<f64>,
    /// Worker threads [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    pub(super) workers: Option<usize>,
    /// I/O threads [default: 4]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    pub(super) io_threads: Option<usize>,
    /// Memory limit for batches and workers, such as 2GiB
    #[arg(long, value_name = "BYTES", value_parser = infeed_core::units::parse_bytes)]
    pub(super) memory: Option<u64>,
    /// Treatment of bad records
    #[arg(long, value_enum, default_value_t = OnBadRecord::Stop)]
    pub(super) on_error: OnBadRecord,
    /// Seconds of the run without remedies; less than 1 also shortens the trials
    #[arg(long, value_name = "S", value_parser = args::positive, default_value_t = DEFAULT_SECONDS)]
    pub(super) seconds: f64,
    /// Plan with the storage and bus of another machine; `infeed probe --list` lists the machines
    #[arg(long, value_name = "NAME", value_parser = profile)]
    pub(super) on: Option<&'static probe::Profile>,
    /// Deliver batches to a device, such as cuda:0 or sim, and find the best placement of the work
    #[arg(long, value_name = "NAME")]
    pub(super) device: Option<String>,
    /// Decoder of baseline JPEGs in the run: cpu, gpu (pixels differ slightly from the CPU's), the
    /// GPU's share of the records such as 5/16 or 0.3, or auto, which keeps the CPU's pixels
    #[arg(
        long,
        value_name = "DECODER",
        default_value = "auto",
        requires = "device"
    )]
    pub(super) decode: DecodeBy,
    #[command(flatten)]
    pub(super) feeders: FeederArgs,
    /// Plan feeders behind a network of this rate, such as 10Gbit [default: the loopback rate, an
    /// upper bound]
    #[arg(long, value_name = "RATE", value_parser = args::network)]
    pub(super) network: Option<f64>,
    /// Plan feeders with this number of cores like this machine's [default: the number of workers]
    #[arg(long, value_name = "N", value_parser = args::threads)]
    pub(super) feeder_cores: Option<usize>,
    /// Predict the rate with this number of cores like those here
    #[arg(long, value_name = "N", value_parser = args::threads)]
    pub(super) cores: Option<usize>,
    /// Predict the rate on a machine with this much memory, such as 64GiB, half of which keeps
    /// pages of the data
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    pub(super) ram: Option<u64>,
    /// Predict the rate of another storage: hdd, sata-ssd, nvme, nfs, s3, 1gbe, 10gbe, 100gbe, or
    /// MB/s,requests/s,ms such as 550,90000,0.1
    #[arg(
        long,
        value_name = "NAME|MB/s,IOPS,ms",
        value_parser = DescribedStorage::from_str
    )]
    pub(super) storage: Option<DescribedStorage>,
    /// Predict the rate and the memory of batches of this number of samples
    #[arg(long, value_name = "N", value_parser = args::rows)]
    pub(super) batch: Option<u64>,
    /// Measure at once while other programs use the cores [default: wait up to 20 s until they leave
    /// them; the load of this shell's own jobs does not count]
    #[arg(long)]
    pub(super) no_wait: bool,
    /// Try no remedies and print only the limits, in a third of the time
    #[arg(long, conflicts_with = "apply")]
    pub(super) no_remedies: bool,
    /// Rank all remedies by gain [default: remedies that change no pixel come first]
    #[arg(long)]
    pub(super) lossy: bool,
    /// Apply a remedy and measure its gain: its number in the last report, its id, or `all`; may be
    /// repeated
    #[arg(long, value_name = "N|ID|all")]
    pub(super) apply: Vec<String>,
    /// Output of an applied remedy [default: next to the data, named after the remedy]
    #[arg(long, value_name = "DIR", requires = "apply")]
    pub(super) out: Option<PathBuf>,
    /// Ledger file [default: in the user's data folder]
    #[arg(long, value_name = "FILE")]
    pub(super) ledger: Option<PathBuf>,
    /// Print all measurements
    #[arg(long)]
    pub(super) full: bool,
    /// Write a report with plots and the timeline
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the timeline as Chrome trace events, for Perfetto
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) functions: FunctionArgs,
}

fn profile(name: &str) -> Result<&'static probe::Profile, String> {
    probe::profile(name).ok_or_else(|| {
        let names: Vec<&str> = probe::PROFILES.iter().map(|profile| profile.name).collect();
        format!(
            "no such machine; the known machines are {}",
            names.join(", ")
        )
    })
}
