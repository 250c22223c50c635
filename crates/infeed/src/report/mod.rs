//! An explanation for people and for other programs: text, JSON, HTML, trace events.
