//! The pages of `linerate web`, asked for as a browser would.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use linerate_testkit::eventually;

use crate::monitor::{address, command, file, get, run, save_run, save_series};
use crate::support::{Killed, Served, assert_says, spawn};

/// `linerate web` over a history of a series that has changed, with the tests of the file.
pub(crate) fn pages(here: &Path, host: &str, options: &str) -> (Killed, String) {
    file(here, host, "");
    let line = format!("web m.toml --db h.db --listen 0 {options}");
    let mut web = Killed(spawn(command(here, &line)));
    let at = address(&mut web.0);
    (web, at)
}

pub(crate) fn ask(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(stream, "{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn start(address: &str, token: &str) -> String {
    let head = "POST /start HTTP/1.1\r\nHost: localhost";
    ask(address, head, &format!("test=asks&path=loop&token={token}"))
}

/// The token that the forms of a page have.
fn token(page: &str) -> String {
    let rest = page.split("name=\"token\" value=\"").nth(1).expect("a test can be started");
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn a_history_is_looked_at_and_compared_in_a_browser() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let mut history = linerate_history::open(&here.join("h.db").as_path().into()).unwrap();
    save_series(&mut history, 0, 40, 1e9);
    save_series(&mut history, 40, 20, 1.0);
    let (_web, at) = pages(here, "127.0.0.1:1", "");
    let overview = get(&at, "/");
    assert!(
        overview.contains("<span class=\"changed\">changed</span> since 2026-01-02 16:00"),
        "{overview}"
    );
    assert!(
        overview.contains("<svg") && overview.contains("/series?name=asks%20to%20loop"),
        "{overview}"
    );
    // Beside the sparkline its newest figure; below all, where they are kept.
    let place = here.join("h.db").display().to_string();
    assert!(
        overview.contains("</svg> 1.00\u{a0}/s<br>1.00 – ")
            && overview.contains("<b>linerate</b>")
            && overview.contains(&format!("The runs are in {place}.")),
        "{overview}"
    );
    let series = get(&at, "/series?name=asks%20to%20loop");
    assert!(series.contains("kernel here 6.1 → 6.12") && series.contains("60 runs, "), "{series}");
    assert!(series.contains("skip=50\">older") && !series.contains("newer"), "{series}");
    let older = get(&at, "/series?name=asks%20to%20loop&skip=50");
    assert!(older.contains("skip=0\">newer") && older.contains("/run?id=1\""), "{older}");
    let run = get(&at, "/run?id=41");
    assert!(run.contains("/compare?a=40&amp;b=41") && run.contains("<article"), "{run}");
    let beside = get(&at, "/compare?a=40&b=41");
    assert_eq!(beside.matches("<article").count(), 2, "{beside}");
    assert!(get(&at, "/running").contains("No test is running"));
    for (page, status) in [
        ("/run?id=99", 404),
        ("/run?id=x", 404),
        ("/compare?a=1", 404),
        ("/series?name=x", 404),
        ("/nothing", 404),
    ] {
        assert!(get(&at, page).starts_with(&format!("HTTP/1.1 {status} ")), "{page}");
    }
}

#[test]
fn a_test_is_started_by_who_has_the_token_and_never_two() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let served = Served::start(&[]);
    let (_web, at) = pages(here, &served.address, "");
    let token = token(&get(&at, "/"));
    assert!(start(&at, "guessed").starts_with("HTTP/1.1 403 "));
    assert!(get(&at, "/start").starts_with("HTTP/1.1 404 "));
    // Somebody else's test has the turn.
    let held =
        fs::File::options().create(true).truncate(false).write(true).open(here.join("h.db.turn"));
    let held = held.unwrap();
    held.lock().unwrap();
    assert!(start(&at, &token).starts_with("HTTP/1.1 409 "));
    let busy = run(here, "monitor m.toml --once --db h.db");
    assert_says(&busy, "another test is running");
    held.unlock().unwrap();
    let started = start(&at, &token);
    assert!(
        started.starts_with("HTTP/1.1 303 ") && started.contains("location: /running"),
        "{started}"
    );
    eventually("the run is saved", || get(&at, "/live").contains("/run?id=1\""));
    assert!(get(&at, "/").contains("asks%20to%20loop"));
    assert_eq!(
        linerate_history::open(&here.join("h.db").as_path().into()).unwrap().labels(1).unwrap()["site"],
        "no\"rth"
    );
}

#[test]
fn a_test_beyond_the_budget_is_not_started() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (web, _) = pages(here, "127.0.0.1:1", "");
    drop(web);
    let text = fs::read_to_string(here.join("m.toml")).unwrap();
    let budget = "bytes-per-day = \"1MB\"\nhost = ";
    fs::write(here.join("m.toml"), text.replacen("host = ", budget, 1)).unwrap();
    let mut web = Killed(spawn(command(here, "web m.toml --db h.db --listen 0")));
    let at = address(&mut web.0);
    let token = token(&get(&at, "/"));
    let mut history = linerate_history::open(&here.join("h.db").as_path().into()).unwrap();
    let now = linerate_core::units::format_rfc3339(std::time::SystemTime::now());
    save_run(&mut history, &now, [1.0, 1.0], "{}");
    // By a wrong clock: it counts in no budget and hides no result.
    save_run(&mut history, "2100-01-01T00:00:00Z", [1.0, 1e7], "{}");
    let page = get(&at, "/");
    assert!(page.contains("/run?id=1\"") && !page.contains("/run?id=2\""), "{page}");
    assert!(!start(&at, &token).contains("budget"));
    save_run(&mut history, &now, [1.0, 1e7], "{}");
    let refused = start(&at, &token);
    assert!(refused.starts_with("HTTP/1.1 409 ") && refused.contains("budget"), "{refused}");
}

#[test]
fn who_is_not_on_this_host_needs_the_password() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let open = run(here, "web --listen 0.0.0.0:0 --db h.db");
    assert_eq!(open.status.code(), Some(2));
    assert_says(&open, "--token-file");
    let (_web, at) = pages(here, "127.0.0.1:1", "");
    let by_name = |name: &str| ask(&at, &format!("GET / HTTP/1.1\r\nHost: {name}"), "");
    for name in ["localhost:9478", "127.0.0.1", "[::1]:80"] {
        assert!(by_name(name).starts_with("HTTP/1.1 200 "), "{name}");
    }
    for name in ["evil.example", "127.evil.example", "192.0.2.1", ""] {
        assert!(by_name(name).starts_with("HTTP/1.1 403 "), "{name}");
    }
    fs::write(here.join("token"), "secret\n").unwrap();
    let (_web, at) = pages(here, "127.0.0.1:1", "--token-file token");
    let by = |given: &str| {
        ask(&at, &format!("GET / HTTP/1.1\r\nHost: pit\r\nAuthorization: {given}"), "")
    };
    for wrong in ["", "Basic", "Basic eDpz", "Basic ====", "Bearer secret"] {
        assert!(by(wrong).starts_with("HTTP/1.1 401 "), "{wrong}");
    }
    // x:secret
    assert!(by("Basic eDpzZWNyZXQ=").starts_with("HTTP/1.1 200 "));
    // x:s
    for _ in 0..10 {
        assert!(by("Basic eDpz").starts_with("HTTP/1.1 401 "));
    }
    assert!(by("Basic eDpzZWNyZXQ=").starts_with("HTTP/1.1 429 "));
}
