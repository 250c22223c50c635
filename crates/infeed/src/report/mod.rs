//! An explanation for people and for other programs: text, JSON, HTML, trace events.

mod html;
mod json;
mod numbers;
mod table;
mod text;
mod timeline;
mod trace;
mod words;

pub use html::html;
pub use json::json;
pub use text::text;
pub use trace::trace;
