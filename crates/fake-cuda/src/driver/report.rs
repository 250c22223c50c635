//! The report of a driver: calls, live objects, and misuse.

use serde_json::{Value, json};

use super::gpu::FakeGpu;
use super::lock;
use super::world::Driver;

/// Returns the report as JSON: `calls` by function, `live` objects by kind, `misuse` as text, the
/// number of `pageable` copies, and of records of events with timing (`timed`).
pub(crate) fn report(world: &Driver) -> String {
    let seen = &world.counts;
    let mut misuse = lock(&seen.misuse).clone();
    misuse.extend(world.gpus.iter().filter_map(FakeGpu::lost_reason));
    let report = json!({
        "calls": *lock(&seen.calls),
        "live": live(world),
        "misuse": misuse,
        "pageable": *lock(&seen.pageable),
        "timed": *lock(&seen.timed),
    });
    report.to_string()
}

/// Number of live objects of each kind.
pub(crate) fn live(world: &Driver) -> Value {
    let memory: usize = world.gpus.iter().map(|gpu| gpu.memory.live()).sum();
    let contexts = world.gpus.iter().filter(|gpu| gpu.is_retained());
    json!({
        "contexts": contexts.count(),
        "decoders": world.nvjpeg.live(),
        "events": world.events.live(),
        "memory": memory,
        "modules": world.modules.live(),
        "pools": world.pools.live(),
        "pinned": world.pinned.live(),
        "streams": world.streams.live(),
    })
}
