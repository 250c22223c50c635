//! How large slabs are, and what is done to a new one.

use std::fmt;
use std::sync::Arc;

use infeed_raw::slab::Slab;

use super::ColumnSpec;

/// What is done to every new slab, such as readying it for copies to a device.
#[derive(Clone)]
pub(crate) struct Ready(pub(crate) Arc<dyn Fn(&mut Slab) + Send + Sync>);

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ready")
    }
}

/// Bytes of the longest row that a column has in any of these forms; None where it lies in no slab.
pub(super) fn longest_row(forms: &[Vec<ColumnSpec>], column: usize) -> Option<usize> {
    let bytes = forms.iter().map(|form| form.get(column)?.kind.row_bytes());
    bytes.collect::<Option<Vec<usize>>>()?.into_iter().max()
}
