//! Fields of a sample, one room for each kind of data.
//!
//! A room holds both halves of its kind: the checks and decisions when a pipeline opens, and the work
//! for each record. Images and masks are in [`pixels`]. Each other kind implements
//! [`KindPlan`](kind::KindPlan), and [`kinds`] lists them; planner and maker know none by name. Below the
//! rooms lies what they share: errors ([`failure`]), working memory ([`scratch`]), cells of a row
//! ([`cells`]), arranged steps ([`steps`]) and moving coordinates ([`moving`]).

pub(crate) mod cells;
pub mod failure;
pub(crate) mod kind;
pub(crate) mod kinds;
pub(crate) mod moving;
pub mod pixels;
pub mod scratch;
pub(crate) mod steps;
