//! What people and programs are told of an explanation.

mod browser;
mod device;
mod feeders;
mod page;
mod synthetic;
mod told;

use infeed::explain::Explanation;
use serde_json::Value;

/// What a file may be called, and what would happen if a report believed it.
const HOSTILE: &str = "</script><b onclick=\"steal()\">'&amp;<!--\u{2028}";

/// Keys of names that are not the dataset's: of resources and of ways to share work.
const NAMES: &[&str] = &[
    "limit",
    "next_limit",
    "split",
    "now",
    "chosen",
    "runner_up",
    "known",
    "bound",
    "binding",
];

/// An explanation whose every name and sentence is hostile.
fn hostile() -> Explanation {
    fn spoil(value: &mut Value, key: &str) {
        match value {
            Value::Object(fields) => fields.iter_mut().for_each(|(key, v)| spoil(v, key)),
            Value::Array(items) => items.iter_mut().for_each(|v| spoil(v, key)),
            // Resources have names of their own, and the consumer is known by its.
            Value::String(text) if !NAMES.contains(&key) && text != "consumer" => {
                *text = format!("{text}{HOSTILE}");
            }
            _ => {}
        }
    }
    let mut e = serde_json::to_value(device::on_device()).expect("plain data");
    spoil(&mut e, "");
    serde_json::from_value(e).expect("the same shape")
}
