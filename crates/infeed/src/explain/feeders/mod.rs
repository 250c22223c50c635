//! Numbers of feeders for the arithmetic of [`super::feeding`]: planned from what this machine does and
//! sends to itself, measured with those that there are, counted by a loop that runs.

mod counted;
mod given;
mod plan;
mod probe;

pub(super) use counted::{counted, made_here};
pub use plan::applies;
pub(super) use plan::{Known, feeding};
