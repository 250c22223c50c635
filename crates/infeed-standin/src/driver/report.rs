//! What was seen: calls, what is still there, and what no driver would have let pass.

use std::sync::Once;

use serde_json::{Value, json};

use super::card::Card;
use super::lock;
use super::world::{self, World};
use crate::nvjpeg;

/// All of it as JSON: `calls` by function, `live` things by kind, `misuse` in words, the number of
/// `pageable` copies.
pub(crate) fn report(world: &World) -> String {
    let seen = &world.seen;
    let mut misuse = lock(&seen.misuse).clone();
    misuse.extend(world.cards.iter().filter_map(Card::why_lost));
    let report = json!({
        "calls": *lock(&seen.calls),
        "live": live(world),
        "misuse": misuse,
        "pageable": *lock(&seen.pageable),
    });
    report.to_string()
}

/// How much there is of each kind.
fn live(world: &World) -> Value {
    let memory: usize = world.cards.iter().map(|card| card.memory.live()).sum();
    let contexts = world.cards.iter().filter(|card| card.is_retained());
    json!({
        "contexts": contexts.count(),
        "decoders": nvjpeg::live(),
        "events": world.events.live(),
        "memory": memory,
        "modules": world.modules.live(),
        "pinned": world.pinned.live(),
        "streams": world.streams.live(),
    })
}

/// Has `STANDIN_REPORT` written as the process ends.
pub(crate) fn write_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function without arguments that lives as long as the library, which is never
        // closed.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    let Some(world) = world::get() else { return };
    if world.is_forked() {
        return;
    }
    if let Some(path) = &world.settings.report
        && let Err(error) = std::fs::write(path, report(world))
    {
        eprintln!("stand-in of the CUDA driver: {}: {error}", path.display());
    }
}
