//! The HTML report in Chromium; skipped if it is not installed.
//!
//! Chromium runs without a window and prints the page after all scripts have run. A probe in a copy
//! of the report writes the values that Chromium does not print into the page.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use infeed_explain::Explanation;
use infeed_explain::report;

use super::device::on_device;
use super::{hostile, synthetic};

/// Records errors from the start.
const LISTEN: &str = "<script>
const faults = [];
addEventListener('error', (event) => faults.push(event.message));
addEventListener('unhandledrejection', (event) => faults.push(String(event.reason)));
document.addEventListener('securitypolicyviolation', (event) => faults.push(event.blockedURI));
</script>";

/// Writes its observations into attributes of the page.
const PROBE: &str = "<script>
addEventListener('load', () => setTimeout(() => {
  const results = document.documentElement.dataset;
  const loaded = performance.getEntriesByType('resource').map((entry) => entry.name);
  results.faults = JSON.stringify(faults);
  results.loaded = JSON.stringify(loaded.filter((name) => !name.startsWith('data:')));
  const root = document.documentElement;
  results.over = String(root.scrollWidth - root.clientWidth);
  results.page = getComputedStyle(document.body).backgroundColor;
  results.foreign = String(document.querySelectorAll('[onclick]').length);
  const figures = [...document.querySelectorAll('figure')];
  results.plots = figures.map((figure) => `${figure.id}:${figure.querySelectorAll('svg').length}`).join();
  // A tip, as the pointer brings it up.
  const plot = document.querySelector('#stages svg') ?? document.querySelector('svg');
  const box = plot.getBoundingClientRect();
  const at = { clientX: box.left + box.width / 2, clientY: box.top + 40, pointerType: 'mouse' };
  plot.dispatchEvent(new PointerEvent('pointermove', { ...at, bubbles: true }));
  const tip = plot.querySelector('[aria-label=tip] path');
  results.tip = tip ? getComputedStyle(tip).fill : 'none';
  results.rects = String(document.querySelectorAll('#timeline rect').length);
}, 100));
</script>";

/// Finds a browser on this machine. The variable `CHROMIUM` overrides it.
fn chromium() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"].map(OsString::from);
    let named = env::var_os("CHROMIUM").into_iter();
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
    named.chain(names).find_map(|name| {
        let places = folders.iter().map(|folder| folder.join(&name));
        // A name with a folder is used as a path.
        let mut places = std::iter::once(PathBuf::from(&name)).chain(places);
        places.find(|place| place.is_file())
    })
}

/// A page as the browser rendered it.
struct RenderedPage {
    dom: String,
    console: Vec<String>,
}

impl RenderedPage {
    /// A value that the probe wrote.
    fn result(&self, what: &str) -> &str {
        let (_, rest) = self
            .dom
            .split_once(&format!("data-{what}=\""))
            .unwrap_or_else(|| panic!("the probe reports {what}: {}", &self.dom[..1000]));
        rest.split('"').next().unwrap_or_default()
    }
}

/// Opens a report from disk in a window of the given width, in light or dark.
fn open(chromium: &Path, e: &Explanation, width: u32, dark: bool) -> RenderedPage {
    let folder = tempfile::tempdir().expect("a folder");
    let page = report::html(e)
        .replacen("<head>", &format!("<head>{LISTEN}"), 1)
        .replacen("</body>\n</html>", &format!("{PROBE}</body></html>"), 1);
    assert!(page.contains(PROBE), "the probe is in the page");
    let file = folder.path().join("report.html");
    fs::write(&file, page).expect("written");
    let output = Command::new(chromium)
        .args(["--headless=new", "--disable-gpu", "--enable-logging=stderr"])
        // Chromium cannot create its sandbox as root or in a container. The page is our own.
        .args(["--no-sandbox", "--disable-dev-shm-usage"])
        // Without Chromium's own network traffic.
        .args(["--disable-background-networking", "--no-first-run"])
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .arg(format!("--window-size={width},900"))
        .arg(format!(
            "--blink-settings=preferredColorScheme={}",
            u8::from(!dark)
        ))
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("Chromium runs");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    RenderedPage {
        dom: String::from_utf8(output.stdout).expect("UTF-8"),
        console: log
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .map(str::to_owned)
            .collect(),
    }
}

/// Checks the properties that hold in any window.
fn check(seen: &RenderedPage, plots: &str) {
    assert!(seen.console.is_empty(), "{:?}", seen.console);
    assert_eq!(seen.result("faults"), "[]");
    assert_eq!(seen.result("loaded"), "[]", "nothing is asked of a network");
    assert_eq!(seen.result("over"), "0", "nothing is wider than the window");
    assert_eq!(seen.result("foreign"), "0");
    assert_eq!(seen.result("plots"), plots);
}

const ALL_PLOTS: &str = "resources:1,gains:1,stall:1,stages:1,ready:1,waiting:1,timeline:1,placement:1,decoding:1,busy:1,feeders:1,ledger:1";

/// Returns the explanation of a loader that was ahead for a moment.
fn with_ready_batches(mut e: Explanation) -> Explanation {
    e.run.queue[1].ready = 2;
    e
}

/// Returns the browser, or prints that there is none.
fn browser() -> Option<PathBuf> {
    let found = chromium();
    if found.is_none() {
        eprintln!("SKIPPED: no Chromium on this machine; install one or name it in CHROMIUM");
    }
    found
}

#[test]
fn the_page_draws_its_plots_in_any_window_light_and_dark() {
    let Some(chromium) = browser() else { return };
    let e = with_ready_batches(on_device());
    for (width, dark, background) in [
        (1280, false, "rgb(255, 255, 255)"),
        (1280, true, "rgb(20, 24, 28)"),
        (375, false, "rgb(255, 255, 255)"),
    ] {
        let seen = open(&chromium, &e, width, dark);

        check(&seen, ALL_PLOTS);
        assert_eq!(seen.result("page"), background);
        assert_eq!(seen.result("tip"), background, "a tip is readable");
        let rects: usize = seen.result("rects").parse().expect("a count");
        assert!(rects > 50, "{rects} spans drawn at width {width}");
    }
}

#[test]
fn hostile_names_are_shown_as_text_in_the_plots() {
    let Some(chromium) = browser() else { return };

    // The smallest width with real tables, and a phone's width.
    for width in [740, 375] {
        let e = with_ready_batches(hostile());
        check(&open(&chromium, &e, width, false), ALL_PLOTS);
    }
}

#[test]
fn a_single_bar_and_a_flat_zero_are_not_drawn() {
    let Some(chromium) = browser() else { return };
    let mut e = on_device();
    e.resources.truncate(1);
    e.remedies.truncate(1);
    e.run.stages.truncate(1);
    e.ledger.truncate(1);
    for point in &mut e.run.queue {
        (point.ready, point.waiting) = (0, 0.0);
    }
    for point in &mut e.utilisation.as_mut().expect("a device").samples {
        point.busy = 0.0;
    }

    check(
        &open(&chromium, &e, 800, false),
        "stall:1,timeline:1,placement:1,decoding:1,feeders:1",
    );
}

#[test]
fn a_page_with_few_sections_has_no_errors() {
    let Some(chromium) = browser() else { return };

    let mut e = synthetic::no_remedies();
    check(
        &open(&chromium, &e, 800, true),
        "resources:1,stall:1,stages:1",
    );
    e.run.stages.clear();
    e.resources.clear();
    e.verdict.rate = f64::INFINITY;
    e.stall.compute = f64::NAN;
    check(&open(&chromium, &e, 800, true), "stall:1");
}
