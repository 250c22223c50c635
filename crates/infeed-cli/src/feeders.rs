//! Options that name the feeders of a run.

use std::path::PathBuf;

use infeed_feed::wire::token::Token;
use infeed_feed::{Feeders, Local};

use crate::error::CliError;

/// Examples with feeders in the help of `infeed explain`.
pub(crate) const EXPLAIN_EXAMPLES: &str = "  \
  infeed explain train.toml --step-ms 12 --network 10Gbit    number of feeders that the step needs
  infeed explain train.toml --feeders 10.0.0.7:7077 --token-file token    gain of a running feeder
";

#[derive(clap::Args)]
pub(crate) struct FeederArgs {
    /// Running feeders (`infeed feed`) to use together with this machine's cores: host:port,
    /// separated by commas
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', value_parser = address)]
    feeders: Vec<String>,
    /// File with the token of the feeders
    #[arg(long, value_name = "FILE", requires = "feeders")]
    token_file: Option<PathBuf>,
    /// Use of this machine's cores when there are feeders
    #[arg(long, value_enum, default_value_t = LocalCores::Help, requires = "feeders")]
    local: LocalCores,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LocalCores {
    /// Also make batches
    Help,
    /// Make only the batches that feeders fail to deliver
    Fallback,
}

impl FeederArgs {
    /// Returns whether feeders are named.
    pub(crate) fn are_given(&self) -> bool {
        !self.feeders.is_empty()
    }

    /// Returns the feeders; None if none are named.
    pub(crate) fn feeders(&self) -> Result<Option<Feeders>, CliError> {
        if self.feeders.is_empty() {
            return Ok(None);
        }
        let mut feeders = Feeders::new(self.feeders.iter().cloned());
        feeders.token = token(self.token_file.as_ref())?;
        feeders.local = match self.local {
            LocalCores::Help => Local::Help,
            LocalCores::Fallback => Local::Fallback,
        };
        Ok(Some(feeders))
    }
}

/// Reads the token file. Without a file, returns the empty token.
pub(crate) fn token(file: Option<&PathBuf>) -> Result<Token, CliError> {
    match file {
        None => Ok(Token::default()),
        Some(file) => Token::load(file).map_err(|error| CliError::from_error(&error)),
    }
}

/// Checks the `host:port` of a feeder.
fn address(text: &str) -> Result<String, String> {
    let port = text
        .rsplit_once(':')
        .map(|(host, port)| (host, port.parse::<u16>()));
    match port {
        Some((host, Ok(_))) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err("write host:port, such as 10.0.0.7:7077".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feeder_has_a_host_and_a_port() {
        for right in ["10.0.0.7:7077", "node3:7077", "[::1]:7077"] {
            assert_eq!(address(right), Ok(right.to_owned()));
        }
        for wrong in [
            "",
            "node3",
            "7077",
            ":7077",
            "node3:",
            "node3:port",
            "node3:70777",
        ] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
