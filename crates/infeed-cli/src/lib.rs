//! The `infeed` command.
