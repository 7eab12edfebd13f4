//! What holds of every store.

use std::thread;

use super::*;

/// Opens a history again that was empty at the beginning of the test.
type Open<'a> = &'a (dyn Fn() -> History + Sync);

/// The name of a law and its test.
type Law = (&'static str, fn(Open<'_>));

const LAWS: &[Law] = &[
    ("a run comes back as it was saved", a_run_comes_back_as_it_was_saved),
    ("hostile texts come back", hostile_texts_come_back),
    ("runs are found", runs_are_found_by_path_label_and_time_the_newest_first),
    ("pruned runs are gone", pruned_runs_are_gone_with_all_that_belongs_to_them),
    ("prune keeps to its filter", prune_takes_only_the_runs_of_its_filter),
    ("several writers lose nothing", several_writers_lose_nothing),
    ("a series has its figures", a_series_has_the_figure_that_was_asked_for_the_oldest_run_first),
    ("a change is noted once", a_change_is_noted_once_and_told_once_by_each_channel_of_its_owner),
    ("all runs or none", several_runs_are_saved_together_or_not_at_all),
    ("matrix", the_matrix_has_the_newest_result_of_each_pair_at_a_time),
    ("roll-ups", rollups_are_the_medians_of_hours_and_days),
    ("roll-ups stay", rollups_outlive_the_runs_and_keep_the_fullest_count),
];

#[test]
fn every_law_holds_in_sqlite() {
    for (law, holds) in LAWS {
        eprintln!("{law}");
        let directory = tempfile::tempdir().unwrap();
        let place = Place::from(&*directory.path().join("history.db"));
        holds(&|| open(&place).unwrap());
    }
}

#[cfg(feature = "postgres")]
#[test]
fn every_law_holds_in_postgresql() {
    let Some(server) = linerate_testkit::postgres::Server::start() else {
        return;
    };
    for (number, (law, holds)) in LAWS.iter().enumerate() {
        eprintln!("{law}");
        let place = Place::Server(server.database(&format!("law{number}")));
        holds(&|| open(&place).unwrap());
    }
    let place = Place::Server(server.database("lost"));
    let mut history = open(&place).unwrap();
    for number in 1..=3 {
        let saved = history.save(&run("2026-11-23T09:00:00Z", "pit", &[]));
        assert_eq!(saved.unwrap(), number, "a lost connection is made anew");
        server.end_connections();
    }
    assert_eq!(history.newest().unwrap(), 3);
}

pub(crate) fn run<'a>(
    started_at: &'a str,
    path: &'a str,
    labels: &'a [(String, String)],
) -> NewRun<'a> {
    NewRun {
        started_at,
        schema: "linerate.record/1",
        path,
        workload: "stream",
        detail: "tcp up",
        series: "stream tcp up to pit",
        answer: "13.9 Mbit/s up to pit",
        cause: Some("path_rate"),
        figures: &[],
        pairs: &[],
        labels,
        document: "{\"a\":1}",
    }
}

pub(crate) fn label(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

pub(crate) fn ids(history: &dyn Store, filter: &Filter) -> Vec<i64> {
    let runs = history.list(filter).unwrap();
    runs.iter().map(|run| run.id).collect()
}

fn json(text: Option<String>) -> serde_json::Value {
    serde_json::from_str(&text.unwrap()).unwrap()
}

fn a_run_comes_back_as_it_was_saved(open: Open<'_>) {
    let mut history = open();
    let figures = [
        ("throughput_bps".to_owned(), 1.0),
        ("latency_us.p50".to_owned(), 2.5e-7),
        ("not_known".to_owned(), f64::NAN),
        ("throughput_bps".to_owned(), 3.0),
    ];
    let labels = [label("site", "it's"), label("change", "a b"), label("change", "a c")];
    let new = NewRun { figures: &figures, ..run("2026-11-23T09:00:00.250000Z", "pit", &labels) };
    let id = history.save(&new).unwrap();
    let history = open();
    let found = history.list(&Filter::default()).unwrap();
    assert_eq!(found.len(), 1);
    let expected = Run {
        id,
        started_at: new.started_at.to_owned(),
        at_s: 1_795_424_400,
        schema: new.schema.to_owned(),
        path: "pit".to_owned(),
        workload: "stream".to_owned(),
        detail: "tcp up".to_owned(),
        series: new.series.to_owned(),
        answer: new.answer.to_owned(),
        cause: Some("path_rate".to_owned()),
        labels: "change=a c site=it's".to_owned(),
    };
    assert_eq!(found[0], expected);
    assert_eq!(history.figures(id).unwrap(), figures[..2]);
    assert_eq!(json(history.document(id).unwrap()), serde_json::json!({"a": 1}));
    assert_eq!(history.document(id + 1).unwrap(), None);
    let labels: BTreeMap<String, String> = labels[..].iter().cloned().collect();
    assert_eq!(history.labels(id).unwrap(), labels);
    assert_eq!(history.newest().unwrap(), id);
    assert_eq!(history.all_series().unwrap(), [(new.series.to_owned(), 1)]);
}

fn hostile_texts_come_back(open: Open<'_>) {
    let mut history = open();
    let text = "tab\t\"new\\N\nline\r';DROP TABLE runs;-- \\.\n\u{1f980}";
    let document = serde_json::json!({ "text": text, "nul": "a\0b" }).to_string();
    let labels = [label("a\\", text)];
    let new = NewRun {
        answer: text,
        cause: None,
        document: &document,
        ..run("2026-11-23T09:00:00Z", text, &labels)
    };
    let id = history.save(&new).unwrap();
    let of_path = Filter {
        path: Some(text.to_owned()),
        labels: labels.to_vec(),
        label_key: Some("a\\".to_owned()),
        ..Filter::default()
    };
    let found = history.list(&of_path).unwrap();
    assert_eq!(found[0].answer, text);
    assert_eq!(found[0].cause, None);
    let document = json(history.document(id).unwrap());
    assert_eq!(document["text"], text);
    assert!(["a\0b", "a\u{fffd}b"].contains(&document["nul"].as_str().unwrap()));
}

fn runs_are_found_by_path_label_and_time_the_newest_first(open: Open<'_>) {
    let mut history = open();
    let labels = [label("site", "north")];
    let new = [
        run("2020-11-20T09:00:00Z", "pit", &labels),
        run("2020-11-21T09:00:00Z", "pat", &labels),
        run("2020-11-22T09:00:00Z", "pit", &[]),
    ];
    let [old, pat, new] = new.map(|run| history.save(&run).unwrap());
    let moment = |text: &str| Some(Since::Moment(text.to_owned()));
    let any = Filter::default();
    let pit = Filter { path: Some("pit".to_owned()), ..any.clone() };
    let north = Filter { labels: labels.to_vec(), ..any.clone() };
    let cases: [(Filter, &[i64]); 13] = [
        (any.clone(), &[new, pat, old]),
        (pit.clone(), &[new, old]),
        (Filter { labels: labels.to_vec(), ..pit }, &[old]),
        (Filter { since: moment("2020-11-21"), most: Some(1), ..any.clone() }, &[new]),
        (Filter { since: Some(Since::Ago(60)), ..any.clone() }, &[]),
        (Filter { before: moment("2020-11-21T09"), ..any.clone() }, &[old]),
        (Filter { before: moment("2020-11-21"), ..north.clone() }, &[old]),
        (Filter { most: Some(1), skip: 1, ..any.clone() }, &[pat]),
        (Filter { label_key: Some("site".to_owned()), ..any.clone() }, &[pat, old]),
        (Filter { oldest_first: true, most: Some(2), ..any.clone() }, &[old, pat]),
        (Filter { workload: Some("crr".to_owned()), ..any.clone() }, &[]),
        (Filter { from_id: Some(pat), ..north }, &[pat]),
        (Filter { id: Some(pat), schemas: vec!["linerate.record/1".to_owned()], ..any }, &[pat]),
    ];
    for (filter, expected) in cases {
        assert_eq!(ids(&*history, &filter), expected, "{filter:?}");
    }
    let first = |before_id, path: &str| {
        let filter = Filter { before_id, path: Some(path.to_owned()), ..Filter::default() };
        history.first(&filter).unwrap()
    };
    assert_eq!(first(None, "pat"), Some(pat));
    assert_eq!((first(Some(new), "pit"), first(Some(old), "pit")), (Some(old), None));
    assert_eq!(history.before(new).unwrap(), Some(pat));
    assert_eq!(history.before(old).unwrap(), None);
}

fn pruned_runs_are_gone_with_all_that_belongs_to_them(open: Open<'_>) {
    let mut history = open();
    let labels = [label("site", "north")];
    let figures = [("throughput_bps".to_owned(), 1.0)];
    let pairs = [pair_figures("a", "b", 1.0)];
    let add = |history: &mut History, at: &str| {
        let new = NewRun { figures: &figures, pairs: &pairs, ..run(at, "pit", &labels) };
        history.save(&new).unwrap()
    };
    let first = (1..=9).map(|day| add(&mut history, &format!("2026-0{day}-01T09:00:00Z")));
    let first: Vec<i64> = first.collect();
    let last_four = Filter { skip: 4, ..Filter::default() };
    assert_eq!(history.prune(&last_four).unwrap(), 5);
    let earlier =
        Filter { before: Some(Since::Moment("2026-08-01".to_owned())), ..Filter::default() };
    assert_eq!(history.prune(&earlier).unwrap(), 2);
    assert_eq!(ids(&*history, &Filter::default()), [first[8], first[7]]);
    assert_eq!(history.document(first[6]).unwrap(), None);
    assert!(history.figures(first[6]).unwrap().is_empty());
    assert!(history.labels(first[6]).unwrap().is_empty());
    assert_eq!(history.pair("bulk", "a", "b", 99).unwrap().len(), 2);
    // A number is never given twice: what an earlier list said still holds. A late run of a time
    // that was pruned is saved, too.
    assert_eq!(history.prune(&Filter::default()).unwrap(), 2);
    assert_eq!(add(&mut history, "2026-03-01T09:00:00Z"), first[8] + 1);
}

fn prune_takes_only_the_runs_of_its_filter(open: Open<'_>) {
    let mut history = open();
    let mesh = [label("test", "bulk"), label("run", "1")];
    let kept = history.save(&run("2020-11-20T09:00:00Z", "pit", &mesh[..1]));
    history.save(&run("2020-11-20T09:00:00Z", "pit", &mesh)).unwrap();
    let of_mesh = Filter {
        labels: mesh[..1].to_vec(),
        label_key: Some("run".to_owned()),
        before: Some(Since::Ago(0)),
        ..Filter::default()
    };
    let before_it =
        Filter { before: Some(Since::Moment("2020-11-20".to_owned())), ..of_mesh.clone() };
    assert_eq!(history.prune(&before_it).unwrap(), 0);
    assert_eq!(history.prune(&of_mesh).unwrap(), 1);
    assert!(ids(&*history, &Filter::default()).contains(&kept.unwrap()));
}

fn several_writers_lose_nothing(open: Open<'_>) {
    thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                let mut history = open();
                for month in 1..=5 {
                    for day in 1..=5 {
                        let at = format!("2026-0{month}-0{day}T09:00:00Z");
                        let path = format!("host{writer}");
                        history.save(&run(&at, &path, &[])).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(open().list(&Filter::default()).unwrap().len(), 100);
}

fn a_series_has_the_figure_that_was_asked_for_the_oldest_run_first(open: Open<'_>) {
    let mut history = open();
    let labels = [label("test", "bulk")];
    for (day, value) in [(2, 20.0), (1, 10.0), (3, 30.0)] {
        let started_at = format!("2026-11-0{day}T00:00:10Z");
        let figures = [("throughput_bps".to_owned(), value), ("bytes".to_owned(), 2.0 * value)];
        let new = NewRun { figures: &figures, ..run(&started_at, "pit", &labels) };
        history.save(&new).unwrap();
    }
    let bulk = Filter { labels: labels.to_vec(), ..Filter::default() };
    let values = |filter: &Filter, metric| -> Vec<f64> {
        let points = history.series(filter, metric).unwrap();
        points.iter().map(|point| point.value).collect()
    };
    assert_eq!(values(&bulk, None), [10.0, 20.0, 30.0]);
    assert_eq!(values(&bulk, Some("bytes")), [20.0, 40.0, 60.0]);
    assert_eq!(values(&bulk, Some("rtt_us")), [0.0; 0]);
    let newest = Filter { most: Some(2), ..bulk.clone() };
    assert_eq!(values(&newest, None), [20.0, 30.0]);
    let second = ids(&*history, &bulk)[2];
    let later = Filter { from_id: Some(second), ..bulk.clone() };
    assert_eq!(values(&later, None), [10.0, 30.0]);
    let first = &history.series(&bulk, None).unwrap()[0];
    assert_eq!((first.at_s, first.metric.as_str()), (1_793_491_210, "throughput_bps"));
}

fn a_change_is_noted_once_and_told_once_by_each_channel_of_its_owner(open: Open<'_>) {
    let mut history = open();
    assert_eq!(history.changed_since("pit", "bulk").unwrap(), None);
    let alarm = |owner, run, change| NewAlarm {
        owner,
        series: "bulk",
        run,
        change,
        channels: &["command", "webhook"],
    };
    for (owner, run, change) in
        [("pit", 7, "first"), ("pit", 7, "again"), ("lab", 8, "other"), ("pit", 9, "second")]
    {
        history.raise(&alarm(owner, run, change)).unwrap();
    }
    let untold = |history: &History, owner, channel| -> Vec<(String, u32)> {
        let untold = history.untold(owner, channel).unwrap().into_iter();
        untold.map(|it| (it.change, it.attempts)).collect()
    };
    let list = |list: &[(&str, u32)]| -> Vec<(String, u32)> {
        list.iter().map(|(text, n)| ((*text).to_owned(), *n)).collect()
    };
    assert_eq!(history.changed_since("pit", "bulk").unwrap(), Some(9));
    assert_eq!(history.changed_since("lab", "bulk").unwrap(), Some(8));
    assert_eq!(history.changed_since("pit", "other").unwrap(), None);
    let both = list(&[("first", 0), ("second", 0)]);
    assert_eq!(untold(&history, "pit", "command"), both);
    let first = history.untold("pit", "command").unwrap()[0].alarm;
    history.not_told(first, "command").unwrap();
    history.told(first, "webhook").unwrap();
    let tried_last = list(&[("second", 0), ("first", 1)]);
    assert_eq!(untold(&history, "pit", "command"), tried_last);
    assert_eq!(untold(&history, "pit", "webhook"), list(&[("second", 0)]));
    history.amend(&alarm("lab", 8, "amended")).unwrap();
    assert_eq!(untold(&history, "lab", "webhook"), list(&[("amended", 0)]));
    assert_eq!(untold(&history, "pit", "command"), tried_last, "those of others stay");
}

fn several_runs_are_saved_together_or_not_at_all(open: Open<'_>) {
    let mut history = open();
    let days = ["2026-10-31T23:59:59Z", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"];
    let runs = days.map(|day| run(day, "pit", &[]));
    let saved = history.save_all(&runs).unwrap();
    assert!(saved.is_sorted());
    let mut listed = ids(&*history, &Filter::default());
    listed.reverse();
    assert_eq!(listed, saved);
    assert_eq!(history.save_all(&[]).unwrap(), [0_i64; 0]);
}

fn pair_figures(from: &str, to: &str, bps: f64) -> PairFigures {
    PairFigures {
        test: "bulk".to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        throughput_bps: Some(bps),
        loss_percent: None,
        rtt_us: Some(100.0),
        cause: Some("path_rate".to_owned()),
        confidence: Some(0.9),
    }
}

fn the_matrix_has_the_newest_result_of_each_pair_at_a_time(open: Open<'_>) {
    let mut history = open();
    let mut add = |at: &str, pairs: &[PairFigures]| {
        let new = NewRun { pairs, ..run(at, "pit", &[]) };
        history.save(&new).unwrap()
    };
    let both_ways = [pair_figures("a", "b", 2.0), pair_figures("b", "a", 3.0)];
    let middle = add("2026-11-02T00:00:00Z", &both_ways);
    let old = add("2026-09-01T00:00:00Z", &[pair_figures("a", "b", 1.0)]);
    let new = add("2026-12-03T00:00:01.500000Z", &[pair_figures("a", "b", 4.0)]);
    let other = PairFigures { test: "ping".to_owned(), ..pair_figures("a", "b", 9.0) };
    add("2026-12-04T00:00:00Z", &[other]);
    let matrix = |until| {
        let mut runs = history.matrix("bulk", until).unwrap();
        runs.sort_by(|a, b| a.figures.from.cmp(&b.figures.from));
        let of = |it: PairRun| (it.run, it.figures.throughput_bps.unwrap());
        runs.into_iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(matrix(None), [(new, 4.0), (middle, 3.0)]);
    assert_eq!(matrix(Some("2026-12-03T00:00:00Z")), [(middle, 2.0), (middle, 3.0)]);
    assert_eq!(matrix(Some("2026-11-01T00:00:00Z")), [(old, 1.0)]);
    assert_eq!(matrix(Some("2026-08-01T00:00:00Z")), []);
    let over_time = history.pair("bulk", "a", "b", 2).unwrap();
    assert_eq!(over_time.iter().map(|it| it.run).collect::<Vec<_>>(), [new, middle]);
    assert_eq!(over_time[1].figures, both_ways[0]);
    assert_eq!(over_time[0].started_at, "2026-12-03T00:00:01.500000Z");
    assert!(history.pair("bulk", "b", "c", 2).unwrap().is_empty());
}

fn add_value(history: &mut History, started_at: &str, value: f64) {
    let figures = [("throughput_bps".to_owned(), value), ("bytes".to_owned(), 7.0)];
    let new = NewRun { figures: &figures, ..run(started_at, "pit", &[]) };
    history.save(&new).unwrap();
}

const DAILY: RollupFilter =
    RollupFilter { period: Period::Day, series: None, metric: None, since: None };

/// Begin, number of runs, minimum, median and maximum.
fn rollups(history: &History, filter: &RollupFilter) -> Vec<(String, i64, [f64; 3])> {
    let rollups = history.rollups(filter).unwrap().into_iter();
    rollups.map(|it| (it.begins, it.runs, [it.min, it.median, it.max])).collect()
}

fn rollups_are_the_medians_of_hours_and_days(open: Open<'_>) {
    let mut history = open();
    for (at, value) in [
        ("2026-11-01T23:59:59Z", 9.0),
        ("2026-11-02T00:00:00Z", 1.0),
        ("2026-11-02T00:30:00Z", 5.0),
        ("2026-11-02T01:00:00Z", 2.0),
        ("2026-11-02T23:00:00Z", 4.0),
    ] {
        add_value(&mut history, at, value);
    }
    let day = |day: &str, runs, values| (day.to_owned(), runs, values);
    let days = [day("2026-11-01", 1, [9.0; 3]), day("2026-11-02", 4, [1.0, 3.0, 5.0])];
    assert_eq!(rollups(&history, &DAILY), days);
    let hourly = RollupFilter {
        period: Period::Hour,
        series: Some("stream tcp up to pit".to_owned()),
        since: Some(Since::Moment("2026-11-02T00:15".to_owned())),
        ..DAILY
    };
    let hours = rollups(&history, &hourly);
    assert_eq!(hours.len(), 3);
    assert_eq!(hours[0], day("2026-11-02T00", 2, [1.0, 3.0, 5.0]));
    let bytes = RollupFilter { metric: Some("bytes".to_owned()), ..DAILY };
    assert_eq!(rollups(&history, &bytes)[1], day("2026-11-02", 4, [7.0; 3]));
    let other = RollupFilter { series: Some("other".to_owned()), ..DAILY };
    assert_eq!(rollups(&history, &other), []);
}

fn rollups_outlive_the_runs_and_keep_the_fullest_count(open: Open<'_>) {
    let mut history = open();
    for (hour, value) in [1.0, 2.0, 6.0, 7.0, 9.0].into_iter().enumerate() {
        add_value(&mut history, &format!("2026-11-02T0{hour}:00:00Z"), value);
    }
    add_value(&mut history, "2026-11-03T00:00:00Z", 4.0);
    let all = rollups(&history, &DAILY);
    let before = |moment: &str| Filter {
        before: Some(Since::Moment(moment.to_owned())),
        ..Filter::default()
    };
    assert_eq!(history.prune(&before("2026-11-02T02")).unwrap(), 2);
    assert_eq!(rollups(&history, &DAILY), all);
    assert_eq!(history.prune(&before("2026-11-03")).unwrap(), 3);
    assert_eq!(rollups(&history, &DAILY), all);
    assert_eq!(all[0], ("2026-11-02".to_owned(), 5, [1.0, 6.0, 9.0]));
    // A run that comes late is one of a day of which the roll-up knows more.
    add_value(&mut history, "2026-11-02T05:00:00Z", 50.0);
    assert_eq!(history.prune(&before("2026-11-03")).unwrap(), 1);
    assert_eq!(rollups(&history, &DAILY), all);
    let hourly = RollupFilter { period: Period::Hour, ..DAILY };
    assert_eq!(rollups(&history, &hourly).len(), 7);
    assert_eq!(history.list(&Filter::default()).unwrap().len(), 1);
}
