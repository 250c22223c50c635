//! An explanation for people and for other programs: text, JSON, HTML, trace events; and the counts
//! of a long run for those who watch it: Prometheus.

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
pub use json::json;
pub use prometheus::{Counted, PROMETHEUS_TYPE, prometheus};
pub use serve::{MetricsServer, serve_metrics};
pub use text::text;
pub use trace::trace;
