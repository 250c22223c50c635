//! Numbers, lists, texts and bytes that batches hold as the source stores them.

use crate::fields::cells::copy;
use crate::fields::failure::PartFailure;
use crate::fields::kind::{DrawnSample, KindPlan, PlanInput, own_bytes};
use crate::fields::scratch::FieldScratch;
use infeed_core::batch::{ColumnKind, RowCell};
use infeed_core::error::Error;
use infeed_core::sample::FieldKind;

/// Fields whose bytes are copied.
#[derive(Debug)]
struct ValuesPlan {
    columns: Vec<(usize, ColumnKind)>,
}

/// Plans all fields that no other kind has.
pub(super) fn plan(
    input: &PlanInput<'_>,
    is_free: &dyn Fn(usize) -> bool,
) -> Result<Vec<Box<dyn KindPlan>>, Error> {
    let free = input.fields.iter().enumerate();
    let free = free.filter(|(field, _)| is_free(*field));
    let columns = free.map(|(number, field)| {
        let kind = match &field.kind {
            FieldKind::Tensor { dtype, shape } => ColumnKind::Fixed {
                dtype: *dtype,
                shape: shape.clone(),
            },
            FieldKind::Ragged { dtype } => ColumnKind::Ragged {
                dtype: *dtype,
                item: Vec::new(),
            },
            FieldKind::Text => ColumnKind::Text,
            // An image or mask is bytes as long as it is not decoded.
            FieldKind::Bytes | FieldKind::Image(_) | FieldKind::Mask(_) => ColumnKind::Bytes,
        };
        (number, kind)
    });
    let columns = columns.collect();
    Ok(vec![Box::new(ValuesPlan { columns })])
}

impl KindPlan for ValuesPlan {
    fn columns(&self) -> Vec<(usize, ColumnKind)> {
        self.columns.clone()
    }

    fn describe(&self, field: usize) -> &'static str {
        let mut columns = self.columns.iter();
        match columns.find(|(of, _)| *of == field) {
            Some((_, ColumnKind::Fixed { .. })) => "copied",
            _ => "stored per row",
        }
    }

    fn only_copies(&self) -> bool {
        let mut columns = self.columns.iter();
        columns.all(|(_, kind)| matches!(kind, ColumnKind::Fixed { .. }))
    }

    fn needs_contents(&self) -> bool {
        !self.only_copies()
    }

    fn row_bytes(&self, sample: &DrawnSample<'_>) -> u64 {
        own_bytes(sample.record, &self.columns)
    }

    fn write(
        &self,
        sample: &DrawnSample<'_>,
        cells: &mut [RowCell],
        _: &mut FieldScratch,
    ) -> Result<(), PartFailure> {
        for (field, _) in &self.columns {
            copy(*field, &sample.record.fields[*field], &mut cells[*field])?;
        }
        Ok(())
    }
}
