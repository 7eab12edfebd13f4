//! Pages of documents in a real browser.

use std::fs;

use linerate_report::html::page;
use linerate_testkit::browser::Browser;
use linerate_testkit::{Need, made_or_skip};
use serde_json::Value;

use crate::documents::documents;

#[test]
fn a_report_of_every_document_opens_without_an_error_or_a_request() {
    let directory = tempfile::tempdir().unwrap();
    let own = format!("file://{}/", directory.path().display());
    let Some(browser) = made_or_skip(Need::Browser, Browser::start(&own)) else {
        return;
    };
    for (number, document) in documents().into_iter().enumerate() {
        let (answer, json) = (document.answer(), document.json());
        let schema: Value = serde_json::from_str(&json).unwrap();
        let schema = schema["schema"].as_str().unwrap_or_default().replace(['.', '/'], "-");
        let name = format!("report-{number:02}-{schema}");
        let file = directory.path().join(&name);
        fs::write(file.with_extension("html"), page(&mut [document.into()])).unwrap();
        for (width, is_dark) in [(1440, false), (360, true)] {
            browser.look(width, is_dark);
            browser.open(&format!("{own}{name}.html"));
            browser.examine(&format!("{name}-{width}"));
        }
        let text = |script: &str| browser.script(script).as_str().unwrap_or_default().to_owned();
        let shown = text("return document.querySelector('h1').textContent");
        assert_eq!(shown.replace('\u{a0}', " "), answer.replace('\u{a0}', " "));
        let held = text("return document.querySelector('script.linerate').textContent");
        let [held, given]: [Value; 2] =
            [&held, &json].map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(held, given, "{name}");
    }
}
