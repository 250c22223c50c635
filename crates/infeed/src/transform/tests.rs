//! Distributions, sizes, pixels against golden files, and what is refused.
