//! What was seen: calls, what is still there, and what no driver would have let pass.

use serde_json::{Value, json};

use super::card::Card;
use super::lock;
use super::world::World;

/// All of it as JSON: `calls` by function, `live` things by kind, `misuse` in words, the number of
/// `pageable` copies, and of records of events with timing (`timed`).
pub(crate) fn report(world: &World) -> String {
    let seen = &world.seen;
    let mut misuse = lock(&seen.misuse).clone();
    misuse.extend(world.cards.iter().filter_map(Card::why_lost));
    let report = json!({
        "calls": *lock(&seen.calls),
        "live": live(world),
        "misuse": misuse,
        "pageable": *lock(&seen.pageable),
        "timed": *lock(&seen.timed),
    });
    report.to_string()
}

/// How much there is of each kind.
pub(crate) fn live(world: &World) -> Value {
    let memory: usize = world.cards.iter().map(|card| card.memory.live()).sum();
    let contexts = world.cards.iter().filter(|card| card.is_retained());
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
