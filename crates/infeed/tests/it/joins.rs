//! The records that samples of an epoch join.

use infeed::Pipeline;
use infeed::fields::scratch::Position;
use infeed::plan::SamplePlan;
use infeed::plan::join::JoinDraw;
use infeed_source::Source;

/// Returns the draw of each position of an epoch.
pub(crate) fn draw_joins(
    pipeline: &Pipeline,
    source: &dyn Source,
    epoch: u64,
) -> Vec<Option<JoinDraw>> {
    let plan = SamplePlan::over(pipeline, source).expect("a plan");
    let order = pipeline.order(source, &[]).expect("an order");
    let draw = |position| plan.join(Position { epoch, position }, || order.near(epoch, position));
    (0..order.len()).map(draw).collect()
}
