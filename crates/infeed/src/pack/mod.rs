//! A dataset rewritten once into an open format that is cheaper to read.
