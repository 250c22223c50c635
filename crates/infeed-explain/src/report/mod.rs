//! Reports of an explanation: text, JSON, HTML, trace events. Also the counters of a long run in
//! the Prometheus format.

mod html;
mod json;
mod numbers;
mod prometheus;
mod serve;
mod table;
mod text;
mod timeline;
mod trace;
mod words;

pub use html::html;
pub use json::{json, json_schema, recording_json, recording_json_schema, schema_of, verdict_json};
pub use prometheus::{LoaderMetrics, PROMETHEUS_TYPE, prometheus};
pub use serve::{MetricsServer, serve_metrics};
pub use text::{recording, summary, text, verdict_text};
pub use trace::trace;
