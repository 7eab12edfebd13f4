//! Metrics for monitoring systems: in the text format of Prometheus (version 0.0.4), and as OTLP 1
//! in JSON for collectors of OpenTelemetry and stores of metrics.

use std::fmt::Write;

use serde_json::{Value, json};

/// Metric families with their samples.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Vec<MetricFamily>);

#[derive(Debug, Clone)]
struct MetricFamily {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: Vec<(Labels, f64)>,
}

type Labels = Vec<(String, String)>;

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only grows, from 0 at the start of the process.
    Counter,
}

impl Metrics {
    /// Begins a metric family; the samples that follow belong to it.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> &mut Self {
        self.0.push(MetricFamily { name, kind, help, samples: Vec::new() });
        self
    }

    /// Adds a sample to the metric family begun last. Label values may be any text; label names
    /// must be valid names.
    pub fn sample<'a>(&mut self, labels: impl IntoIterator<Item = (&'a str, &'a str)>, value: f64) {
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        if let Some(family) = self.0.last_mut() {
            family.samples.push((labels.collect(), value));
        }
    }

    /// The metrics in the text format of Prometheus.
    pub fn page(&self) -> String {
        let mut page = String::new();
        for MetricFamily { name, kind, help, samples } in &self.0 {
            let kind = match kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
            };
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in samples {
                let labels = quoted(labels);
                // Rust writes numbers, `NaN` included, as Prometheus reads them; only infinity is
                // `+Inf` there.
                let value = value.to_string().replace("inf", "Inf");
                let _ = writeln!(page, "{name}{labels} {value}");
            }
        }
        page
    }

    /// An `ExportMetricsServiceRequest` (opentelemetry-proto, metrics/v1). `resource` says what the
    /// metrics describe; `began_ns` and `now_ns` are ns since 1970.
    pub fn otlp(&self, resource: &[(&str, &str)], began_ns: u64, now_ns: u64) -> String {
        let metrics: Vec<Value> = self
            .0
            .iter()
            .filter(|it| !it.samples.is_empty())
            .map(|it| {
                let points = it.samples.iter().map(|(labels, value)| {
                    let labels = labels.iter().map(|(key, value)| (&**key, &**value));
                    // OTLP in JSON writes 64-bit integers as strings.
                    let mut point = json!({
                        "attributes": attributes(labels),
                        "timeUnixNano": now_ns.to_string(),
                        "asDouble": number(*value),
                    });
                    if it.kind == Kind::Counter {
                        point["startTimeUnixNano"] = began_ns.to_string().into();
                    }
                    point
                });
                let points: Vec<Value> = points.collect();
                let mut metric = json!({"name": it.name, "description": it.help});
                match it.kind {
                    Kind::Gauge => metric["gauge"] = json!({"dataPoints": points}),
                    Kind::Counter => {
                        metric["sum"] = json!({
                            "aggregationTemporality": CUMULATIVE,
                            "isMonotonic": true,
                            "dataPoints": points,
                        });
                    }
                }
                metric
            })
            .collect();
        let scope = json!({"name": "linerate", "version": env!("CARGO_PKG_VERSION")});
        let request = json!({"resourceMetrics": [{
            "resource": {"attributes": attributes(resource.iter().copied())},
            "scopeMetrics": [{"scope": scope, "metrics": metrics}],
        }]});
        request.to_string()
    }
}

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;

fn quoted(labels: &Labels) -> String {
    let labels = labels.iter().map(|(key, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{key}=\"{value}\"")
    });
    let labels = labels.collect::<Vec<_>>().join(",");
    if labels.is_empty() { labels } else { format!("{{{labels}}}") }
}

fn attributes<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    let pairs = pairs.map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}));
    pairs.collect()
}

/// A number as protocol buffers write it in JSON, where NaN and infinity are strings.
fn number(value: f64) -> Value {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        let sign = if value > 0.0 { "" } else { "-" };
        format!("{sign}Infinity").into()
    } else {
        value.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_can_say_anything_and_stays_one_label() {
        let mut metrics = Metrics::default();
        metrics.family("linerate_up", Kind::Gauge, "Whether it runs.");
        metrics.sample([("path", "a\\b\"} 0\nevil{x=\"")], 1.0);
        metrics.sample([], 0.25);
        assert_eq!(
            metrics.page(),
            "# HELP linerate_up Whether it runs.\n# TYPE linerate_up gauge\n\
             linerate_up{path=\"a\\\\b\\\"} 0\\nevil{x=\\\"\"} 1\nlinerate_up 0.25\n"
        );
    }

    #[test]
    fn a_collector_is_sent_what_the_page_says_by_the_names_of_the_specification() {
        let mut metrics = Metrics::default();
        metrics.family("linerate_up", Kind::Gauge, "Whether it runs.");
        metrics.sample([("path", "a\"b")], f64::NAN);
        metrics.family("linerate_runs_total", Kind::Counter, "Runs.");
        metrics.sample([], 3.0);
        metrics.family("linerate_empty", Kind::Gauge, "None.");
        let sent = metrics.otlp(&[("service.name", "x")], 5, u64::MAX);
        let sent: Value = serde_json::from_str(&sent).unwrap();
        let of = &sent["resourceMetrics"][0];
        assert_eq!(
            of["resource"]["attributes"][0],
            json!({"key": "service.name", "value": {"stringValue": "x"}})
        );
        let all = of["scopeMetrics"][0]["metrics"].as_array().unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(
            all[0]["gauge"]["dataPoints"][0],
            json!({
                "attributes": [{"key": "path", "value": {"stringValue": "a\"b"}}],
                "timeUnixNano": "18446744073709551615",
                "asDouble": "NaN",
            })
        );
        let sum = &all[1]["sum"];
        assert_eq!(
            (&sum["aggregationTemporality"], &sum["isMonotonic"]),
            (&2.into(), &true.into())
        );
        assert_eq!(sum["dataPoints"][0]["startTimeUnixNano"], "5");
        assert_eq!(sum["dataPoints"][0]["asDouble"], 3.0);
    }
}
