//! Writes the reports of an invented explanation, to look at the layout:
//! `cargo run --example report -- FOLDER`. No number in them was measured.

use std::path::PathBuf;
use std::{env, fs, io};

use infeed_explain::report;

#[path = "../tests/it/report/synthetic.rs"]
mod synthetic;

fn main() -> io::Result<()> {
    let folder = env::args_os()
        .nth(1)
        .map_or_else(env::temp_dir, PathBuf::from);
    fs::create_dir_all(&folder)?;
    let explanations = [
        ("usual", synthetic::usual()),
        ("tie", synthetic::tie()),
        ("no-remedies", synthetic::no_remedies()),
        ("step-bound", synthetic::step_bound()),
        ("what-if", synthetic::with_what_if()),
    ];
    for (name, e) in &explanations {
        fs::write(folder.join(format!("{name}.html")), report::html(e))?;
        fs::write(folder.join(format!("{name}.json")), report::json(e))?;
        fs::write(folder.join(format!("{name}.trace.json")), report::trace(e))?;
        fs::write(
            folder.join(format!("{name}.txt")),
            report::text(e, 80, false),
        )?;
    }
    println!("written to {}", folder.display());
    Ok(())
}
