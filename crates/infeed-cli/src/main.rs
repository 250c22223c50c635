//! Entry point of the `infeed` command; all of it is in the library, which the Python package
//! calls too.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(infeed_cli::run(std::env::args_os()))
}
