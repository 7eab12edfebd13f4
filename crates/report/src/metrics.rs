//! Figures as Prometheus reads them: its text format, version 0.0.4.

use std::fmt::Write;

/// A page of metrics that is being written.
#[derive(Debug, Default)]
pub struct Metrics(String);

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It goes up and down.
    Gauge,
    /// It goes up, and begins at 0 with the process.
    Counter,
}

impl Metrics {
    /// Begins a metric, whose samples follow.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) -> &mut Self {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        self.0
            .push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        self
    }

    /// A sample of the metric with its labels. Their values may be anything; their names are words.
    pub fn sample<'a>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        value: f64,
    ) {
        let labels = labels.into_iter().map(|(key, value)| {
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            format!("{key}=\"{value}\"")
        });
        let labels = labels.collect::<Vec<_>>().join(",");
        let labels = if labels.is_empty() {
            labels
        } else {
            format!("{{{labels}}}")
        };
        // Rust writes numbers as Prometheus reads them, `NaN` too; an infinite one is `+Inf` there.
        let value = value.to_string().replace("inf", "Inf");
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// The page.
    pub fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_can_say_anything_and_stays_one_label() {
        let mut page = Metrics::default();
        page.family("linerate_up", Kind::Gauge, "Whether it runs.");
        page.sample("linerate_up", [("path", "a\\b\"} 0\nevil{x=\"")], 1.0);
        page.sample("linerate_up", [], 0.25);
        assert_eq!(
            page.finish(),
            "# HELP linerate_up Whether it runs.\n# TYPE linerate_up gauge\n\
             linerate_up{path=\"a\\\\b\\\"} 0\\nevil{x=\\\"\"} 1\nlinerate_up 0.25\n"
        );
    }
}
