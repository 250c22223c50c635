//! The kinds of data that are no images. A new kind adds its module and a line to [`DECLARED`].

mod boxes;
pub(crate) mod labels;
mod masks;
pub(crate) mod moved_fields;
pub(crate) mod objects;
mod outlines;
mod points;
mod values;
mod waveform;

pub use boxes::{BoxCheck, BoxCount};

use super::kind::{KindPlan, PlanInput};
use infeed_core::batch::ColumnKind;
use infeed_core::error::Error;
use infeed_core::sample::Size;

/// Plans the fields of a kind, as far as no earlier kind has them.
type PlanKind = fn(&PlanInput<'_>, &dyn Fn(usize) -> bool) -> Result<Vec<Box<dyn KindPlan>>, Error>;

/// Kinds whose fields a pipeline declares.
const DECLARED: &[PlanKind] = &[moved_fields::plan, labels::plan, waveform::plan];

/// Plans of all fields that are no images, and the column of each field.
#[derive(Debug, Default)]
pub(crate) struct KindPlans {
    plans: Vec<Box<dyn KindPlan>>,
    columns: Vec<Option<ColumnKind>>,
}

impl KindPlans {
    /// Plans the fields that a pipeline declares.
    pub(crate) fn plan_declared(input: &PlanInput<'_>) -> Result<KindPlans, Error> {
        let mut plans = KindPlans {
            plans: Vec::new(),
            columns: vec![None; input.fields.len()],
        };
        for plan in DECLARED {
            plans.add(input, *plan)?;
        }
        Ok(plans)
    }

    /// Plans the fields that have no column yet: they keep the values that the source stores.
    pub(crate) fn add_others(&mut self, input: &PlanInput<'_>) -> Result<(), Error> {
        self.add(input, values::plan)
    }

    fn add(&mut self, input: &PlanInput<'_>, plan: PlanKind) -> Result<(), Error> {
        let planned = plan(input, &|field| self.is_free(field))?;
        for plan in planned {
            for (field, kind) in plan.columns() {
                self.columns[field] = Some(kind);
            }
            self.plans.push(plan);
        }
        Ok(())
    }

    /// Whether no kind has a field yet.
    pub(crate) fn is_free(&self, field: usize) -> bool {
        self.columns[field].is_none()
    }

    /// Sets the column of an image or mask.
    pub(crate) fn set_column(&mut self, field: usize, kind: ColumnKind) {
        self.columns[field] = Some(kind);
    }

    /// Sets the size of all images; `None` if sizes differ. Returns the plans, and the column of each
    /// field.
    pub(crate) fn finish(
        mut self,
        size: Option<Size>,
    ) -> (Vec<Box<dyn KindPlan>>, Vec<Option<ColumnKind>>) {
        for plan in &mut self.plans {
            plan.set_image_size(size);
            for (field, kind) in plan.columns() {
                self.columns[field] = Some(kind);
            }
        }
        (self.plans, self.columns)
    }
}
