//! Sampling weights by class or record, and the order that results.

use serde::{Deserialize, Serialize};

use super::filter::{Class, no_labels};
use super::per_record::one_per_record;
use super::{Handle, MemoryField};
use infeed_core::error::Error;
use infeed_core::order::MAX_POSITIONS;
use infeed_core::order::weights::{RecordWeights, WeightsError};
use infeed_core::sample::DType;
use infeed_source::Source;
use infeed_source::subset::MAX_RECORDS;

/// Relative sampling weights of records: exactly one of `classes`, `balanced` and `records`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Weights {
    /// Positions of an epoch. Absent: the number of records with a weight over zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// All classes have the same total weight.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub balanced: bool,
    /// Weight of each record of a class; 1 for classes that are not listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassWeight>,
    /// One weight per record of the source, including records that are not selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<MemoryField>,
}

/// Weight of each record of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassWeight {
    /// The class.
    pub label: Class,
    /// Weight; 0 leaves the class's records out.
    pub weight: f64,
}

impl Weights {
    /// Creates weights that sample all classes equally often.
    pub fn balanced() -> Weights {
        Weights {
            balanced: true,
            ..Weights::default()
        }
    }

    /// Creates weights by class.
    pub fn classes(classes: impl IntoIterator<Item = (Class, f64)>) -> Weights {
        let classes = classes.into_iter();
        Weights {
            classes: classes
                .map(|(label, weight)| ClassWeight { label, weight })
                .collect(),
            ..Weights::default()
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |problem: String| Err(Error::config("weights", problem));
        let given = [
            self.balanced,
            !self.classes.is_empty(),
            self.records.is_some(),
        ];
        if given.iter().filter(|&&given| given).count() != 1 {
            return wrong("set exactly one of classes, balanced and records".to_owned());
        }
        for class in &self.classes {
            if !class.weight.is_finite() || class.weight < 0.0 {
                return wrong(format!(
                    "class {} has the weight {}; a weight must be a finite number of at least 0",
                    class.label, class.weight
                ));
            }
        }
        if self
            .epoch
            .is_some_and(|epoch| !(1..=MAX_POSITIONS).contains(&epoch))
        {
            return wrong(format!("an epoch must have 1 to {MAX_POSITIONS} positions"));
        }
        Ok(())
    }

    /// Name of the array, if it exists only in this process's memory.
    pub(super) fn in_memory_name(&self) -> Option<&str> {
        self.records.as_ref().and_then(MemoryField::in_memory_name)
    }

    /// Replaces class names by numbers.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a class that the source does not have.
    pub fn with_class_numbers(&self, source: &dyn Source) -> Result<Weights, Error> {
        let mut weights = self.clone();
        for class in &mut weights.classes {
            class.label = Class::Number(class.label.number(source, "weights")?);
        }
        Ok(weights)
    }

    /// Computes the weighted order's table for the records of a source.
    pub(super) fn resolve(
        &self,
        source: &dyn Source,
        handles: &[Handle],
    ) -> Result<RecordWeights, Error> {
        let wrong = |problem: String| Error::config("weights", problem);
        self.check()?;
        if source.weighted_parts().is_some() {
            let problem = "the source is already a weighted mix; remove these weights, or mix \
                           without weights";
            return Err(wrong(problem.to_owned()));
        }
        if source.len() > MAX_RECORDS {
            let problem = format!(
                "weights support at most {MAX_RECORDS} records, and the source has {}; filter or \
                 split the records first",
                source.len()
            );
            return Err(wrong(problem));
        }
        let (weights, listed) = match &self.records {
            Some(field) => {
                let part = ("weights", "float64");
                let weights = one_per_record(part, field, source, handles, number)?;
                (weights, None)
            }
            None => self.by_class(source)?,
        };
        RecordWeights::new(&weights, listed, self.epoch).map_err(|error| {
            wrong(match error {
                WeightsError::Number { record, weight } => format!(
                    "{} has the weight {weight}; a weight must be a finite number of at least 0",
                    source.id(record, None)
                ),
                WeightsError::Zero => error.to_string(),
            })
        })
    }

    /// Returns the weight of each position, and the records sorted by class. The list is `None` if
    /// the records are sorted already, or if groups restrict their order.
    fn by_class(&self, source: &dyn Source) -> Result<(Vec<f64>, Option<Vec<u64>>), Error> {
        let labels = (0..source.len()).map(|record| source.label(record));
        let labels: Option<Vec<i64>> = labels.collect();
        let labels = labels.ok_or_else(|| no_labels("weights"))?;
        let mut listed = None;
        if source.groups().is_none() && !labels.is_sorted() {
            let mut records: Vec<u64> = (0..source.len()).collect();
            records.sort_by_key(|&record| labels[record as usize]);
            listed = Some(records);
        }
        let mut weights = std::collections::HashMap::new();
        for class in &self.classes {
            let number = class.label.number(source, "weights")?;
            if weights.insert(number, class.weight).is_some() {
                let problem = format!("class {} has two weights; remove one", class.label);
                return Err(Error::config("weights", problem));
            }
        }
        if self.balanced {
            for &label in &labels {
                *weights.entry(label).or_insert(0.0) += 1.0;
            }
            weights.values_mut().for_each(|count| *count = 1.0 / *count);
        }
        let weight = |place: usize| {
            let record = listed
                .as_ref()
                .map_or(place, |listed| listed[place] as usize);
            weights.get(&labels[record]).copied().unwrap_or(1.0)
        };
        Ok(((0..labels.len()).map(weight).collect(), listed))
    }
}

impl std::fmt::Display for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let classes = self.classes.iter();
        let classes: Vec<String> = classes
            .map(|class| format!("{} {}", class.label, class.weight))
            .collect();
        match (self.balanced, &classes[..]) {
            (true, _) => f.write_str("each class equally often"),
            (false, []) => f.write_str("by record"),
            (false, classes) => write!(f, "{}, others 1", classes.join(", ")),
        }
    }
}

/// Reads the number at the beginning of `bytes`; `None` for other element types.
fn number(dtype: DType, bytes: &[u8]) -> Option<f64> {
    Some(match dtype {
        DType::Float64 => f64::from_le_bytes(bytes.get(..8)?.try_into().ok()?),
        DType::Float32 => f64::from(f32::from_le_bytes(bytes.get(..4)?.try_into().ok()?)),
        _ => return None,
    })
}
