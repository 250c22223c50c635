//! Entry point of the `infeed` command.
fn main() {}
