//! Options and results as JSON, for the Python package.

use serde::Deserialize;
use serde_json::json;

use super::options::PackOptions;
use super::pack::PackedDataset;
use infeed_codec::transform::Transform;
use infeed_core::error::Error;
use infeed_core::parse_problem::in_words;

/// [`PackOptions`] in JSON. Missing keys have their default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OptionsJson {
    to: String,
    #[serde(default)]
    transforms: Vec<Transform>,
    image: Option<String>,
    mask: Option<String>,
    restart: Option<u16>,
    workers: Option<usize>,
    shuffle: Option<u64>,
    shard_bytes: Option<u64>,
    rows: Option<u64>,
    max_bad: Option<u64>,
    #[serde(default)]
    verify: bool,
}

impl PackOptions {
    /// Reads options from JSON: `to`, and all values that differ from [`PackOptions::new`].
    /// Encodings are given by name.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the name of the option and its valid values.
    pub fn from_json(text: &str) -> Result<PackOptions, Error> {
        let found: OptionsJson = serde_json::from_str(text)
            .map_err(|error| Error::config("pack", in_words(&error.to_string())))?;
        let wrong = |part: &'static str| move |problem: String| Error::config(part, problem);
        let defaults = PackOptions::new(found.to.parse().map_err(wrong("to"))?);
        let encoding = |part: &'static str, word: Option<String>, default| match word {
            Some(word) => word.parse().map_err(wrong(part)),
            None => Ok(default),
        };
        Ok(PackOptions {
            transforms: found.transforms,
            image: encoding("image", found.image, defaults.image)?,
            mask: encoding("mask", found.mask, defaults.mask)?,
            restart: found.restart,
            workers: found.workers,
            shuffle: found.shuffle,
            shard_bytes: found.shard_bytes.unwrap_or(defaults.shard_bytes),
            rows: found.rows,
            max_bad: found.max_bad,
            verify: found.verify,
            ..defaults
        })
    }
}

impl PackedDataset {
    /// Returns the result as JSON, with the pipeline as in
    /// [`Pipeline::to_json`](infeed::pipeline::Pipeline::to_json). Infinite numbers, such as the
    /// PSNR of equal images, are null.
    pub fn to_json(&self) -> String {
        let finite = |value: f64| value.is_finite().then_some(value);
        let fidelity = self.fidelity.map(|found| {
            json!({
                "images": found.images,
                "psnr_db": finite(found.psnr_db),
                "least_psnr_db": finite(found.least_psnr_db),
                "ssim": found.ssim,
                "least_ssim": found.least_ssim,
            })
        });
        json!({
            "pipeline": self.pipeline,
            "records": self.records,
            "bad": self.bad,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "seconds": self.seconds,
            "reused": self.reused,
            "unchanged": self.unchanged,
            "fidelity": fidelity,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    #[test]
    fn missing_keys_have_defaults_and_unknown_keys_are_named() {
        let plain = PackOptions::from_json(r#"{"to": "parquet"}"#).expect("a target");
        let full = r#"{"to": "npz", "image": "raw", "rows": 8, "shuffle": 3, "verify": true}"#;
        let full = PackOptions::from_json(full).expect("options");

        assert_eq!(plain, PackOptions::new(Target::Parquet));
        let expected = PackOptions {
            image: crate::Encoding::Raw,
            rows: Some(8),
            shuffle: Some(3),
            verify: true,
            ..PackOptions::new(Target::Npz)
        };
        assert_eq!(full, expected);
        for (text, part) in [
            (r#"{"to": "zip"}"#, "webdataset, tfrecord"),
            (r#"{"to": "npz", "image": "gif"}"#, "write keep"),
            (r#"{"to": "npz", "colour": 1}"#, "colour"),
        ] {
            let error = PackOptions::from_json(text).expect_err("wrong").to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
