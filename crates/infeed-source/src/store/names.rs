//! Names of files and objects: paths and URLs.

use std::path::Path;

/// Prefix of the URL of a local file.
pub(super) const FILE: &str = "file://";

/// Names of files that a user gives: paths, patterns and URLs.
#[derive(Clone, Copy, Debug)]
pub struct FilePatterns<'a> {
    /// The names.
    pub names: &'a [String],
    /// Whether patterns match files through symbolic links. A path without wildcards is always
    /// followed.
    pub follow_links: bool,
}

/// Whether a path is a URL rather than a file.
pub fn is_url(path: impl AsRef<Path>) -> bool {
    let text = path.as_ref().to_str().unwrap_or_default();
    // A single letter is a Windows drive.
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.len() > 1
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

/// Path of a `file://` URL; any other name unchanged.
pub fn local_path(name: &str) -> &str {
    name.strip_prefix(FILE).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_of_at_least_two_characters() {
        for (path, expected) in [
            ("s3://bucket/x", true),
            ("ftp://host", true),
            ("/data/x", false),
            ("C://x", false),
            ("a b://x", false),
        ] {
            assert_eq!(is_url(path), expected, "{path}");
        }
    }
}
