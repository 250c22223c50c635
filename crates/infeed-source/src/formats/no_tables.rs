//! Tables in a build without the cargo feature `tables`: opening one is an error that names it.

use std::sync::Arc;

use crate::Source;
use crate::field_spec::FieldSpec;
use crate::store::FilePatterns;
use infeed_core::error::Error;

/// Returns the error that names the feature.
pub(super) fn open(
    files: FilePatterns<'_>,
    _fields: &[FieldSpec],
) -> Result<Arc<dyn Source>, Error> {
    let first = files.names.first().map_or("tables", String::as_str);
    Err(Error::missing_feature("source", first, "tables"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_the_feature_tables() {
        let files = FilePatterns {
            names: &["train.parquet".to_owned()],
            follow_links: true,
        };
        let error = open(files, &[]).expect_err("a table");
        assert_eq!(
            error.to_string(),
            "source: train.parquet needs the cargo feature `tables` of the crate `infeed`, which \
             this build lacks; enable it"
        );
    }
}
