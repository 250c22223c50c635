//! The layout of a dataset's shards, decided before the first one is written.

use super::fields::{self, FieldWork};
use super::make::Maker;
use super::options::PackOptions;
use super::product::Shape;
use super::selection::RecordSelection;
use super::shapes;
use super::shard::ShardLimits;
use super::shard_layout::{PackedRecord, ShardLayout};
use super::targets::format::NewLayout;
use infeed::pipeline::Pipeline;
use infeed_core::error::Error;
use infeed_source::store::MAX_NAMES;

/// The layout and limits of a dataset's shards.
pub(super) struct ShardPlan {
    pub(super) layout: Box<dyn ShardLayout>,
    pub(super) limits: ShardLimits,
    /// Whether records come from groups that are read as a whole.
    pub(super) reads_whole: bool,
    /// Shapes of raw pixels.
    shapes: Vec<Option<Shape>>,
    /// The record that determined them.
    first: u64,
}

impl ShardPlan {
    /// Plans the shards of the chosen records. Makes the first good record if a field is raw pixels.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the format cannot hold the fields or the number of shards, and for a
    /// shuffle of a source that is read in whole groups. The error of the bad record as for
    /// [`shapes::first_good`].
    pub(super) fn new(
        maker: &Maker<'_>,
        chosen: &RecordSelection,
        pipeline: &Pipeline,
        options: &PackOptions,
        new_layout: NewLayout,
    ) -> Result<ShardPlan, Error> {
        let mut first = chosen.at(0);
        let mut shapes = vec![None; maker.fields.len()];
        if maker.fields.iter().any(FieldWork::is_pixels) {
            let good = shapes::first_good(maker, chosen, options.max_bad)?;
            first = good.0;
            shapes = good.1.iter().map(|product| product.shape).collect();
        }
        let columns = fields::columns(maker.fields, &shapes);
        let classes = maker.source.classes();
        let rows = options.rows(pipeline).unwrap_or(1);
        if options.to.batch_file().is_some() {
            check_number(chosen.len().div_ceil(rows.max(1)), options)?;
        }
        let layout = new_layout(columns, classes, rows)?;
        Ok(ShardPlan {
            limits: ShardLimits {
                records: layout.most_records(),
                bytes: options.shard_bytes,
            },
            layout,
            reads_whole: reads_whole(maker, options)?,
            shapes,
            first,
        })
    }

    /// Rejects pixels of another shape than those of the first record.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names both records.
    pub(super) fn check_shape(
        &self,
        maker: &Maker<'_>,
        options: &PackOptions,
        made: &PackedRecord,
    ) -> Result<(), Error> {
        for (at, (product, expected)) in made.products.iter().zip(&self.shapes).enumerate() {
            if product.shape != *expected {
                return Err(shapes::differs(
                    options.to,
                    &maker.fields[at].name,
                    (*expected, maker.source.id(self.first, Some(at))),
                    (product.shape, maker.source.id(made.record, Some(at))),
                ));
            }
        }
        Ok(())
    }
}

/// Returns whether the source is read in whole groups, which a shuffle would read repeatedly.
fn reads_whole(maker: &Maker<'_>, options: &PackOptions) -> Result<bool, Error> {
    let groups = maker.source.groups();
    let whole = groups.is_some_and(|groups| groups.whole);
    if whole && options.shuffle.is_some() {
        let problem = "the source can only be read in whole groups of records; pack it without a \
                       shuffle first, then shuffle the result";
        return Err(Error::config("shuffle", problem));
    }
    Ok(whole)
}

/// Rejects more shards than their name pattern supports.
pub(super) fn check_number(shards: u64, options: &PackOptions) -> Result<(), Error> {
    if shards <= MAX_NAMES as u64 {
        return Ok(());
    }
    let (part, fix) = match options.to.batch_file() {
        Some(_) => ("rows", "give each file more rows"),
        None => ("shard_bytes", "make them larger"),
    };
    let problem = format!("this makes over {MAX_NAMES} files, more than a pattern can name; {fix}");
    Err(Error::config(part, problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::Target;

    #[test]
    fn no_more_shards_are_begun_than_a_pattern_can_name() {
        let options = PackOptions::new(Target::WebDataset);
        assert!(check_number(1_000_000, &options).is_ok());

        let refused = check_number(1_000_001, &options).expect_err("too many");

        assert!(
            refused.to_string().contains("make them larger"),
            "{refused}"
        );
    }
}
