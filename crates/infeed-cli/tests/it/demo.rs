//! Tests of `infeed demo`.

use std::fs;

use crate::{SECONDS, infeed, names_a_limit, photos, stderr, stdout};

#[test]
fn the_demo_makes_pictures_and_runs_the_commands() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("my demo");

    let output = infeed([
        "demo",
        folder.to_str().unwrap(),
        "--count",
        "20",
        "--seconds",
        SECONDS,
    ]);
    let text = stdout(&output);

    assert!(output.status.success(), "{}", stderr(&output));
    assert!(text.contains("wrote 20 samples"), "{text}");
    assert!(names_a_limit(&text), "{text}");
    let shown = format!(
        "$ infeed bench '{}/photos' --seconds {SECONDS}",
        folder.display()
    );
    assert!(text.contains(&shown), "{text}");
    let report = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(report.contains("</html>"));
    assert!(folder.join("sheet.png").exists());
}

#[test]
fn the_demo_uses_the_pictures_of_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    photos(dir.path(), 24);

    let output = infeed(["demo", dir.path().to_str().unwrap(), "--seconds", SECONDS]);

    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(!text.contains("Generated pictures"), "{text}");
    assert!(text.contains("24 files"), "{text}");
}

#[test]
fn the_demo_takes_own_images_and_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("demo");
    let own = photos(dir.path(), 24);

    let output = infeed([
        "demo",
        folder.to_str().unwrap(),
        "--data",
        &own,
        "--seconds",
        SECONDS,
    ]);

    assert!(output.status.success(), "{}", stderr(&output));
    let shown = format!("$ infeed inspect {own} --sheet");
    assert!(stdout(&output).contains(&shown), "{}", stdout(&output));
    assert!(!folder.join("photos").exists());
}

#[test]
fn a_demo_of_data_that_do_not_exist_names_them() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("demo");

    let output = infeed(["demo", folder.to_str().unwrap(), "--data", "/none/here"]);

    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("/none/here"),
        "{}",
        stderr(&output)
    );
}
