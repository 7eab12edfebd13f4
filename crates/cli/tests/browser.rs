//! The pages of `linerate web` in a real browser: light and dark, on a telephone and on a wide
//! screen, by keyboard.

use linerate_history::{History, NewRun};
use linerate_testkit::browser::Browser;
use linerate_testkit::{Need, eventually, made_or_skip, skip};

use crate::monitor::save_series;
use crate::support::Served;
use crate::web::pages;

/// A name that means harm wherever it is not escaped.
const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&";

fn save_hostile(history: &mut History, document: &str) {
    let label = |key: &str| (key.to_owned(), HOSTILE.to_owned());
    let run = NewRun {
        started_at: "2026-01-01T00:00:00Z",
        schema: "linerate.record/1",
        path: HOSTILE,
        workload: "stream",
        detail: HOSTILE,
        series: HOSTILE,
        answer: HOSTILE,
        cause: Some(HOSTILE),
        figures: &[(HOSTILE.to_owned(), 1.0)],
        pairs: &[],
        labels: &[label("site")],
        document,
    };
    (0..2).for_each(|_| {
        history.save(&run).unwrap();
    });
}

#[test]
fn every_page_opens_wide_and_narrow_light_and_dark_and_a_test_is_started_by_keyboard() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    let mut history = linerate_history::open(&here.join("h.db").as_path().into()).unwrap();
    save_series(&mut history, 0, 40, 1e9);
    save_series(&mut history, 40, 20, 1.0);
    let record = include_str!("data/record.json")
        .replace("\"pit\"", &serde_json::json!(HOSTILE).to_string());
    save_hostile(&mut history, &record);
    drop(history);
    let (_web, at) = pages(here, &served.address, "");
    let own = format!("http://{at}/");
    let Some(browser) = made_or_skip(Need::Browser, Browser::start(&own)) else {
        return;
    };
    let hostile = "series?name=".to_owned() + &percent(HOSTILE);
    let all = [
        ("overview", ""),
        ("series", "series?name=asks%20to%20loop"),
        ("run", "run?id=41"),
        ("compare", "compare?a=40&b=41"),
        ("running", "running"),
        ("hostile-series", &hostile),
        ("hostile-run", "run?id=61"),
        ("hostile-compare", "compare?a=61&b=62"),
    ];
    for (width, is_dark) in [(1440, false), (1440, true), (360, false), (360, true)] {
        browser.look(width, is_dark);
        for (name, path) in all {
            browser.open(&format!("{own}{path}"));
            let ground = browser.script("return getComputedStyle(document.body).backgroundColor");
            // Neither a moment of 1970 nor anything else that was not measured.
            let text = browser.script("return document.body.textContent");
            assert!(!text.as_str().unwrap().contains("1970"), "{name}");
            let expected = if is_dark { "rgb(21, 25, 30)" } else { "rgb(255, 255, 255)" };
            assert_eq!(ground, expected, "{name}");
            let shade = if is_dark { "dark" } else { "light" };
            browser.examine(&format!("web-{name}-{width}-{shade}"));
        }
    }
    by_keyboard(&browser, &own);
}

/// From link to link to the button that starts the test, whose run is then shown without a reload.
fn by_keyboard(browser: &Browser, own: &str) {
    browser.look(1440, false);
    browser.open(own);
    let focused = "const at = document.activeElement; \
        return [at.tagName, getComputedStyle(at).outlineStyle]";
    for _ in 0..20 {
        browser.press("\u{e004}");
        let at = browser.script(focused);
        assert_ne!(at[1], "none", "what is focused shows it: {at}");
        if at[0] == "BUTTON" {
            break;
        }
    }
    assert_eq!(browser.script(focused)[0], "BUTTON");
    browser.press("\u{e007}");
    let address = || browser.script("return location.pathname");
    eventually("the page of the test that runs", || address() == "/running");
    let link = "const link = document.querySelector('#live a'); return link ? \
        link.getAttribute('href') : ''";
    eventually("the run that was saved", || browser.script(link) == "/run?id=63");
    browser.examine("web-ended");
}

/// Longest time to the first paint of a page, ms.
const MAX_PAINT_MS: f64 = 300.0;

/// As many runs as a year of hours has.
#[test]
fn a_series_of_ten_thousand_runs_is_one_page() {
    // Each run is written through to the disk: here there is none.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.unwrap();
    let here = directory.path();
    let Some(browser) = made_or_skip(Need::Browser, Browser::start("http://127.0.0.1:")) else {
        return;
    };
    let mut history = linerate_history::open(&here.join("h.db").as_path().into()).unwrap();
    for number in 0..10_000 {
        let (day, hour) = (number / 24 % 28, number % 24);
        let started_at = format!(
            "{}-{:02}-{:02}T{hour:02}:00:00Z",
            2025 + number / 8064,
            number / 672 % 12 + 1,
            day + 1
        );
        let level = if number < 7000 { 94e6 } else { 71e6 };
        let value = level * (1.0 + 0.02 * f64::sin(f64::from(number * number)));
        let run = NewRun {
            started_at: &started_at,
            schema: "linerate.record/1",
            path: "pit",
            workload: "stream",
            detail: "tcp up",
            series: "bulk to pit",
            answer: "94.1 Mbit/s up to pit; bottleneck: path rate, 97 % sure",
            cause: Some(["path_rate", "congestion", "receive_window"][number as usize % 3]),
            figures: &[("throughput_bps".to_owned(), value)],
            pairs: &[],
            labels: &[
                ("test".to_owned(), "bulk".to_owned()),
                ("path".to_owned(), "pit".to_owned()),
            ],
            document: "{}",
        };
        history.save(&run).unwrap();
    }
    let (_web, at) = pages(here, "127.0.0.1:1", "");
    for (width, name) in [(1440, "web-10000-runs"), (360, "web-10000-runs-360")] {
        browser.look(width, false);
        browser.open(&format!("http://{at}/series?name=bulk%20to%20pit"));
        browser.examine(name);
        let figure = "return document.querySelector('figcaption').textContent";
        assert!(browser.script(figure).as_str().unwrap().starts_with("10000 runs, "));
        let times = "const page = performance.getEntriesByType('navigation')[0]; \
            const paint = performance.getEntriesByName('first-contentful-paint')[0]; \
            return [page.responseStart, page.responseEnd, paint && paint.startTime, \
            page.loadEventEnd]";
        let times = browser.script(times);
        eprintln!("{name}: first byte, last byte, paint, loaded, ms: {times}");
        // A browser that is still to paint has no time of it yet.
        let paint = times[2].as_f64().or(times[3].as_f64()).unwrap();
        if paint > MAX_PAINT_MS {
            skip(Need::Speed, format_args!("it paints after {paint:.0} ms"));
        }
    }
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
