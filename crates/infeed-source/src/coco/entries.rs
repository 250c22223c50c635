//! Entries of the files of COCO for object detection and for panoptic segmentation.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::annotations::AnnotationRoom;
use crate::json;
use crate::labelled_images::without_mark;
use crate::paths::Paths;
use infeed_core::error::Error;
use infeed_core::printable::excerpt;
use infeed_core::sample::Size;

/// Numbers in the field `labels`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CocoLabels {
    /// The id of the category, as in the file.
    #[default]
    Id,
    /// The index of the category in the order of ids, from 0.
    Index,
}

#[derive(Deserialize)]
pub(crate) struct ImageEntry<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    file_name: Option<&'a RawValue>,
    #[serde(borrow)]
    height: Option<&'a RawValue>,
    #[serde(borrow)]
    width: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(crate) struct Category<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
}

/// Images of an annotation file, in the order of ids.
pub(crate) struct ListedImages {
    pub(crate) paths: Paths,
    pub(crate) ids: Vec<i64>,
    /// Size of each, 0x0 if the file does not state it.
    pub(crate) sizes: Vec<Size>,
}

/// Returns the content of an annotation file, without a byte order mark.
pub(crate) fn annotation_text(path: &Path, room: &AnnotationRoom) -> Result<Bytes, Error> {
    let text = room.map(path)?;
    let begin = text.len() - without_mark(&text).len();
    Ok(text.slice(begin..))
}

/// Reason why images cannot be listed.
pub(crate) enum ListError {
    Problem(String),
    Other(Error),
}

impl ListError {
    /// Returns the error, with the file of its problem.
    pub(crate) fn with(self, wrong: impl FnOnce(String) -> Error) -> Error {
        match self {
            ListError::Problem(problem) => wrong(problem),
            ListError::Other(error) => error,
        }
    }
}

impl ImageEntry<'_> {
    /// Returns id and name of a valid entry.
    fn check(&self, at: usize) -> Result<(i64, String), String> {
        let file_name = self.file_name.and_then(json::parse::<String>);
        let Some(file_name) = file_name else {
            return Err(format!(
                "image {} of the list has no file_name that is a text; add it",
                at + 1
            ));
        };
        let subject = || format!("image {}", excerpt(&file_name));
        Ok((parse_id(self.id, "id", subject)?, file_name))
    }

    /// Returns the stated size, 0x0 if there is none.
    fn size(&self) -> Size {
        json::size(self.height, self.width)
    }
}

/// Returns an id, or the problem of `subject` with it.
pub(crate) fn parse_id(
    value: Option<&RawValue>,
    key: &str,
    subject: impl Fn() -> String,
) -> Result<i64, String> {
    let Some(value) = value else {
        return Err(format!("{} has no {key}; add it, an integer", subject()));
    };
    json::integer(value).ok_or_else(|| {
        format!(
            "{} has the {key} {}, and ids must be integers; number the images, categories and \
             annotations",
            subject(),
            json::show_value(value)
        )
    })
}

/// Returns the images in the order of ids.
pub(crate) fn list(
    root: &Path,
    images: Option<&RawValue>,
    room: &AnnotationRoom,
    expected: &str,
    follow_links: bool,
) -> Result<ListedImages, ListError> {
    let Some(images) = images else {
        let problem = "it has no list `images`; use an annotation file, not results of a detector";
        return Err(ListError::Problem(problem.to_owned()));
    };
    let checked = |image: ImageEntry<'_>, at| {
        let (id, name) = image.check(at)?;
        Ok((id, name, image.size()))
    };
    let found = json::list(images, room, expected, checked);
    let mut found = found.map_err(ListError::Problem)?;
    found.sort_by_key(|(id, ..)| *id);
    if let Some(twins) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(ListError::Problem(format!(
            "images {} and {} have the same id {}; give each its number",
            excerpt(&twins[0].1),
            excerpt(&twins[1].1),
            twins[0].0
        )));
    }
    if found.is_empty() {
        let problem = "it lists no images".to_owned();
        return Err(ListError::Problem(problem));
    }
    let (mut ids, mut names, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    for (id, name, size) in found {
        ids.push(id);
        names.push(name);
        sizes.push(size);
    }
    let mut paths = Paths::of_names(root, &names, follow_links).map_err(ListError::Other)?;
    paths.shrink();
    Ok(ListedImages { paths, ids, sizes })
}

/// Returns the label of each category, and the names of the labels from 0.
#[allow(clippy::type_complexity, reason = "used twice")]
pub(crate) fn categories(
    categories: Option<&RawValue>,
    labels: CocoLabels,
    room: &AnnotationRoom,
    expected: &str,
) -> Result<(BTreeMap<i64, i64>, Option<Vec<String>>), String> {
    let checked = |category: Category<'_>, _| {
        let name = category.name.and_then(json::parse::<String>);
        let name = name.unwrap_or_default();
        let subject = || format!("the category {}", excerpt(&name));
        Ok((parse_id(category.id, "id", subject)?, name))
    };
    let mut found = match categories {
        Some(categories) => json::list(categories, room, expected, checked)?,
        None => Vec::new(),
    };
    found.sort_by_key(|(id, _)| *id);
    let mut numbers = BTreeMap::new();
    for (index, (id, name)) in found.iter().enumerate() {
        let label = match labels {
            CocoLabels::Id => *id,
            CocoLabels::Index => index as i64,
        };
        if numbers.insert(*id, label).is_some() {
            return Err(format!(
                "the category id {id} ({}) occurs twice; remove one",
                excerpt(name)
            ));
        }
    }
    let names = found.into_iter().map(|(_, name)| name);
    Ok((
        numbers,
        (labels == CocoLabels::Index).then(|| names.collect()),
    ))
}

/// Returns left, top, width and height of a box, if they are valid. Its sides, and right and bottom
/// ends, are numbers of float32.
pub(crate) fn valid_box(value: &RawValue) -> Option<[f64; 4]> {
    let bbox: [f64; 4] = json::parse(value)?;
    let [left, top, width, height] = bbox;
    let ends = [left + width, top + height];
    let is_finite = bbox.iter().chain(&ends).all(|x| (*x as f32).is_finite());
    (is_finite && width >= 0.0 && height >= 0.0).then_some(bbox)
}

/// Returns whether an object is a crowd. None if the value is no truth value.
pub(crate) fn crowd(value: Option<&RawValue>) -> Option<bool> {
    value.map_or(Some(false), json::flag)
}

/// Returns the stated area of an object, or that of its box. None if it is not a number of float32.
pub(crate) fn area(value: Option<&RawValue>, [_, _, width, height]: [f64; 4]) -> Option<f32> {
    let area = value.map_or(Some(width * height), json::number)? as f32;
    area.is_finite().then_some(area)
}
