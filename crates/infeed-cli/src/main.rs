//! Entry point of the `infeed` command. The code is in the library, which the Python package also
//! calls.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(infeed_cli::run(std::env::args_os()))
}
