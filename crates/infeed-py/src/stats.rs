//! Counters of a loader, as a dictionary.

use infeed::Stats;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Converts counters to the dictionary that `infeed.stats.LoaderStats` describes: times in seconds,
/// stages in the order of the data flow.
pub(crate) fn dict_from<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("batches", stats.batches)?;
    dict.set_item("samples", stats.samples)?;
    dict.set_item("bad", stats.bad)?;
    dict.set_item("wait_s", stats.wait.as_secs_f64())?;
    dict.set_item(
        "first_batch_s",
        stats.first_batch.map(|time| time.as_secs_f64()),
    )?;
    dict.set_item("elapsed_s", stats.elapsed.as_secs_f64())?;
    dict.set_item("ready", stats.ready)?;
    dict.set_item("held", stats.held)?;
    dict.set_item("unknown_pixels", stats.unknown_pixels)?;
    dict.set_item("warnings", stats.warnings)?;
    dict.set_item("workers", stats.workers)?;
    let tuned = stats.tuned.as_ref().map(|tuned| -> PyResult<_> {
        let entry = PyDict::new(py);
        entry.set_item("cores", tuned.cores)?;
        entry.set_item("most", tuned.most)?;
        entry.set_item("settled", tuned.settled)?;
        entry.set_item("text", &tuned.text)?;
        Ok(entry)
    });
    dict.set_item("tuned", tuned.transpose()?)?;
    dict.set_item("io_threads", stats.readers)?;
    dict.set_item("budget_bytes", stats.budget_bytes)?;
    let stages = PyList::empty(py);
    for (stage, counts) in &stats.stages {
        let entry = PyDict::new(py);
        entry.set_item("name", stage.name())?;
        entry.set_item("samples", counts.samples)?;
        entry.set_item("wall_s", counts.wall.as_secs_f64())?;
        entry.set_item("cpu_s", counts.cpu.as_secs_f64())?;
        entry.set_item("wait_s", counts.wait.as_secs_f64())?;
        entry.set_item("bytes_in", counts.bytes_in)?;
        entry.set_item("bytes_out", counts.bytes_out)?;
        stages.append(entry)?;
    }
    dict.set_item("stages", stages)?;
    let (storage, cache) = (&stats.storage, &stats.cache);
    let entry = PyDict::new(py);
    entry.set_item("requests", storage.requests)?;
    entry.set_item("retries", storage.retries)?;
    entry.set_item("hedges", storage.hedges)?;
    entry.set_item("hedges_won", storage.hedges_won)?;
    entry.set_item("bytes", storage.bytes)?;
    entry.set_item("cache_hits", cache.hits)?;
    entry.set_item("cache_misses", cache.misses)?;
    entry.set_item("cache_damaged", cache.damaged)?;
    dict.set_item("storage", entry)?;
    let cache = stats.decoded_cache.map(|cache| -> PyResult<_> {
        let entry = PyDict::new(py);
        entry.set_item("hits", cache.hits)?;
        entry.set_item("misses", cache.misses)?;
        entry.set_item("records", cache.records)?;
        entry.set_item("used_bytes", cache.used_bytes)?;
        entry.set_item("limit_bytes", cache.limit_bytes)?;
        entry.set_item("full", cache.is_full)?;
        let disk = cache.disk.map(|disk| -> PyResult<_> {
            let entry = PyDict::new(py);
            entry.set_item("hits", disk.hits)?;
            entry.set_item("damaged", disk.damaged)?;
            entry.set_item("limit_bytes", disk.limit_bytes)?;
            entry.set_item("full", disk.is_full)?;
            Ok(entry)
        });
        entry.set_item("disk", disk.transpose()?)?;
        Ok(entry)
    });
    dict.set_item("cache", cache.transpose()?)?;
    let feeders = PyList::empty(py);
    for feeder in &stats.remote {
        let entry = PyDict::new(py);
        let named = |text: &String| (!text.is_empty()).then(|| text.clone());
        entry.set_item("host", named(&feeder.host))?;
        entry.set_item("node", named(&feeder.node))?;
        entry.set_item("connected", feeder.connected)?;
        entry.set_item("batches", feeder.batches)?;
        entry.set_item("bytes", feeder.bytes)?;
        entry.set_item("wait_s", feeder.wait.as_secs_f64())?;
        entry.set_item("receiving_s", feeder.receiving.as_secs_f64())?;
        entry.set_item("cpu_s", feeder.cpu.as_secs_f64())?;
        entry.set_item("redone", feeder.redone)?;
        entry.set_item("declined", feeder.declined)?;
        entry.set_item("corrupt", feeder.corrupt)?;
        entry.set_item("lost", feeder.lost)?;
        entry.set_item("refused", feeder.refused)?;
        entry.set_item("problem", &feeder.problem)?;
        feeders.append(entry)?;
    }
    dict.set_item("feeders", feeders)?;
    let python = stats.python.map(|python| -> PyResult<_> {
        let entry = PyDict::new(py);
        entry.set_item("items", python.items)?;
        entry.set_item("wait_s", python.waited.as_secs_f64())?;
        entry.set_item("inside_s", python.inside.as_secs_f64())?;
        Ok(entry)
    });
    dict.set_item("python", python.transpose()?)?;
    Ok(dict)
}
