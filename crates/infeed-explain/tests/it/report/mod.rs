//! Reports of an explanation, for people and programs.

mod browser;
pub(crate) mod device;
mod feeders;
mod formats;
mod page;
mod synthetic;

use infeed_explain::Explanation;
use serde_json::Value;

/// A valid file name that would run a script if a report did not escape it.
const HOSTILE: &str = "</script><b onclick=\"steal()\">'&amp;<!--\u{2028}";

/// Keys of names that do not come from the dataset: resources and placements.
const NAMES: &[&str] = &[
    "limit",
    "next_limit",
    "limit_now",
    "split",
    "now",
    "chosen",
    "runner_up",
    "origin",
    "bound",
    "binding",
];

/// An explanation whose every name and sentence is hostile.
fn hostile() -> Explanation {
    fn spoil(value: &mut Value, key: &str) {
        match value {
            Value::Object(fields) => fields.iter_mut().for_each(|(key, v)| spoil(v, key)),
            Value::Array(items) => items.iter_mut().for_each(|v| spoil(v, key)),
            // Resources have fixed names, and the consumer is identified by its name.
            Value::String(text) if !NAMES.contains(&key) && text != "consumer" => {
                *text = format!("{text}{HOSTILE}");
            }
            _ => {}
        }
    }
    let mut e = device::on_device();
    e.what_if = synthetic::with_what_if().what_if;
    let mut e = serde_json::to_value(e).expect("plain data");
    spoil(&mut e, "");
    serde_json::from_value(e).expect("the same shape")
}
