//! Tables in a build without the cargo feature `tables`: opening one is an error that names it.

use std::sync::Arc;

use crate::Source;
use crate::field_spec::FieldSpec;
use infeed_core::error::Error;

/// Returns the error that names the feature.
pub(super) fn open(files: &[String], _fields: &[FieldSpec]) -> Result<Arc<dyn Source>, Error> {
    let first = files.first().map_or("tables", String::as_str);
    Err(Error::missing_feature("source", first, "tables"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_the_feature_tables() {
        let error = open(&["train.parquet".to_owned()], &[]).expect_err("a table");
        assert_eq!(
            error.to_string(),
            "source: train.parquet needs the cargo feature `tables` of the crate `infeed`, which \
             this build lacks; enable it"
        );
    }
}
