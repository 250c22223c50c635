//! Keys in `~/.aws/credentials` and `~/.aws/config`, as Amazon's tools read them.
//!
//! Only keys in these files are read. A profile whose keys must be requested (a role, single
//! sign-on, a command) is an error that names the way to get keys.

use infeed_raw::file;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maximum length of a file.
const LONGEST: u64 = 1 << 20;

/// Settings of a profile, by lower-case name.
type Section = BTreeMap<String, String>;

/// Settings of the active profile.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AwsProfile {
    /// Options such as `aws_access_key_id`.
    pub(super) options: Vec<(String, String)>,
    /// Setting through which the profile would request keys, if it holds none.
    pub(super) beyond: Option<String>,
}

impl AwsProfile {
    /// Reads the files; None if neither has the profile.
    pub(super) fn read(get: impl Fn(&str) -> Option<String>) -> Option<AwsProfile> {
        let home = || {
            get("HOME")
                .or_else(|| get("USERPROFILE"))
                .map(PathBuf::from)
        };
        let place = |variable: &str, name: &str| {
            let own = get(variable).map(PathBuf::from);
            own.or_else(|| Some(home()?.join(".aws").join(name)))
        };
        let text = |path: Option<PathBuf>| file::read_text(path?, LONGEST).ok();
        let name = get("AWS_PROFILE").or_else(|| get("AWS_DEFAULT_PROFILE"));
        AwsProfile::of(
            name.as_deref().unwrap_or("default"),
            &text(place("AWS_SHARED_CREDENTIALS_FILE", "credentials")).unwrap_or_default(),
            &text(place("AWS_CONFIG_FILE", "config")).unwrap_or_default(),
        )
    }

    fn of(name: &str, credentials: &str, config: &str) -> Option<AwsProfile> {
        let keys = section(credentials, |head| head == name);
        let more = section(config, |head| {
            head == name
                || head
                    .strip_prefix("profile ")
                    .is_some_and(|own| own.trim() == name)
        });
        if keys.is_none() && more.is_none() {
            return None;
        }
        // The credentials file has priority.
        let mut all = more.unwrap_or_default();
        all.extend(keys.unwrap_or_default());
        let names = [
            ("aws_access_key_id", "aws_access_key_id"),
            ("aws_secret_access_key", "aws_secret_access_key"),
            ("aws_session_token", "aws_session_token"),
            ("region", "aws_region"),
            ("endpoint_url", "aws_endpoint_url"),
        ];
        let options: Vec<(String, String)> = names
            .iter()
            .filter_map(|(there, here)| Some(((*here).to_owned(), all.get(*there)?.clone())))
            .collect();
        let beyond = [
            "role_arn",
            "sso_session",
            "sso_start_url",
            "credential_process",
        ];
        let beyond = beyond.into_iter().find(|key| all.contains_key(*key));
        let has_keys = all.contains_key("aws_access_key_id");
        Some(AwsProfile {
            options,
            beyond: beyond.filter(|_| !has_keys).map(str::to_owned),
        })
    }
}

/// Lines of the section whose head satisfies `wanted`.
fn section(text: &str, wanted: impl Fn(&str) -> bool) -> Option<Section> {
    let mut found: Option<Section> = None;
    let mut inside = false;
    for line in text.lines() {
        let bare = line.trim();
        if let Some(head) = bare
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            inside = wanted(head.trim());
            if inside {
                found.get_or_insert_default();
            }
            continue;
        }
        // Indented lines belong to a nested setting.
        let nested = line.starts_with([' ', '\t']);
        if inside
            && !nested
            && !bare.starts_with(['#', ';'])
            && let Some((key, value)) = bare.split_once('=')
        {
            found
                .get_or_insert_default()
                .insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=B\n\
                               [other]\naws_access_key_id=C\naws_secret_access_key = D=E\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  endpoint_url = nested\n\
                          [profile other]\nendpoint_url = http://localhost:9000\n\
                          [profile sso]\nsso_session = work\nregion = us-east-2\n";

    fn options(name: &str) -> Vec<(String, String)> {
        AwsProfile::of(name, CREDENTIALS, CONFIG)
            .expect("it is there")
            .options
    }

    #[test]
    fn keys_and_region_are_read_from_both_files() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());

        assert_eq!(
            options("default"),
            [
                pair("aws_access_key_id", "A"),
                pair("aws_secret_access_key", "B"),
                pair("aws_region", "eu-west-1")
            ]
        );
        assert!(options("other").contains(&pair("aws_secret_access_key", "D=E")));
        assert!(options("other").contains(&pair("aws_endpoint_url", "http://localhost:9000")));
    }

    #[test]
    fn a_profile_without_keys_names_the_setting_that_requests_them() {
        let profile = AwsProfile::of("sso", CREDENTIALS, CONFIG).expect("it is there");

        assert_eq!(profile.beyond.as_deref(), Some("sso_session"));
        assert_eq!(AwsProfile::of("absent", CREDENTIALS, CONFIG), None);
        assert_eq!(AwsProfile::of("default", "", ""), None);
    }
}
