//! Explanations: of a pipeline, by measuring it and its remedies, and of a running loader, from its
//! counters. Also applies a remedy and measures it again.

pub(crate) mod apply;
mod capacities;
pub(crate) mod pipeline;
pub(crate) mod running_loader;
mod starvation;
mod verdict;
