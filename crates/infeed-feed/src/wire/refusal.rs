//! Reason why a feeder rejects a trainer.

use std::fmt;

/// Fact with hashes of some records' contents, compared record by record.
pub const CONTENTS: &str = "contents";

/// Reason why a feeder rejects a trainer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The difference: the name of a fact, or `token`, `protocol` or `encryption`. `room` for any
    /// other reason.
    pub what: String,
    /// The trainer's value.
    pub trainer: String,
    /// The feeder's value.
    pub feeder: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal {
            what,
            trainer,
            feeder,
        } = self;
        let fix = match what.as_str() {
            "room" => return f.write_str(feeder),
            "token" => return f.write_str("the token differs; use the same token on both sides"),
            "protocol" | "infeed" => "install the same version of infeed on both sides",
            "data" | "records" => "both sides need the same data under the same names",
            CONTENTS => "both sides need the same data, byte for byte",
            "functions" => "both sides need the same functions, in modules with equal code",
            "language" => {
                "install the same versions on both sides, because others may compute different \
                 numbers"
            }
            "encryption" => {
                "leave `encrypt` at its default on both sides, or turn encryption off on both"
            }
            "bits" => "the CPU or build of the feeder gives different bits, so it cannot be used",
            _ => "start the feeder with the pipeline file of this run",
        };
        write!(
            f,
            "`{what}` differs: {trainer} at the trainer, {feeder} at the feeder; {fix}"
        )
    }
}
