//! Size and preparation of slabs.

use std::fmt;
use std::sync::Arc;

use infeed_raw::slab::Slab;

use super::ColumnSpec;

/// Prepares every new slab, for example for copies to a device.
#[derive(Clone)]
pub struct PrepareSlab(pub Arc<dyn Fn(&mut Slab) + Send + Sync>);

impl fmt::Debug for PrepareSlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrepareSlab")
    }
}

/// Returns the bytes of the longest row of a column over all layouts. None if the column is kept by
/// row.
pub(super) fn longest_row(forms: &[Vec<ColumnSpec>], column: usize) -> Option<usize> {
    let bytes = forms.iter().map(|form| form.get(column)?.kind.row_bytes());
    bytes.collect::<Option<Vec<usize>>>()?.into_iter().max()
}
