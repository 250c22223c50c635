//! Rate of a pipeline file: `cargo run --release --example rate -- pipeline.toml [epochs]`.

use std::time::Instant;

use infeed::{Options, Pipeline};

fn main() -> Result<(), infeed::Error> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "pipeline.toml".to_owned());
    let epochs = args.next().and_then(|n| n.parse().ok()).unwrap_or(1_u32);
    let mut options = Options::default();
    options.workers = Some(infeed_raw::machine::usable_cores());
    let loader = Pipeline::load(path)?.open(&options)?;
    for epoch in 0..epochs {
        let (begun, mut samples) = (Instant::now(), 0);
        while let Some(batch) = loader.next_batch()? {
            samples += batch.rows();
        }
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "epoch {epoch}: {samples} samples, {:.0} a second",
            samples as f64 / seconds
        );
    }
    println!("{:#?}", loader.stats()?);
    Ok(())
}
