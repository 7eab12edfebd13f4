//! Prometheus's remote write protocol, version 1.0: a message of protocol buffers, compressed by
//! Snappy's block format.

use std::collections::BTreeMap;

use prost::Message;

/// `prometheus.WriteRequest` of the specification, and the messages within.
#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    /// ms since 1970.
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

impl super::Metrics {
    /// The body of a remote write request with all samples. `common` are labels of every sample
    /// that does not have them itself; `at_ms` is the time of the samples, ms since 1970.
    pub fn remote_write(&self, common: &[(&str, &str)], at_ms: i64) -> Vec<u8> {
        let families = self.0.iter();
        let all = families.flat_map(|family| family.samples.iter().map(move |it| (family, it)));
        let timeseries = all.map(|(family, (labels, value))| {
            let own = labels.iter().map(|(name, value)| (&**name, &**value));
            let named = [("__name__", family.name)];
            // The specification wants labels sorted by name, none twice, and none empty.
            let labels: BTreeMap<&str, &str> =
                common.iter().copied().chain(own).chain(named).collect();
            let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
            TimeSeries {
                labels: labels
                    .map(|(name, value)| Label {
                        name: name.to_owned(),
                        value: value.to_owned(),
                    })
                    .collect(),
                samples: vec![Sample {
                    value: *value,
                    timestamp: at_ms,
                }],
            }
        });
        let request = WriteRequest {
            timeseries: timeseries.collect(),
        };
        let compressed = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
        compressed.expect("it is shorter than 4 GiB")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Metrics};
    use super::*;

    #[test]
    fn a_store_gets_each_sample_with_sorted_labels_and_its_time() {
        let mut metrics = Metrics::default();
        metrics.family("linerate_up", Kind::Gauge, "Whether it runs.");
        metrics.sample([("path", "a\"b"), ("zone", ""), ("job", "own")], 0.5);
        metrics.family("linerate_empty", Kind::Gauge, "None.");
        let body = metrics.remote_write(&[("job", "x"), ("instance", "pit")], 1234);
        let plain = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
        let request = WriteRequest::decode(&*plain).unwrap();
        let label = |(name, value): (&str, &str)| Label {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let labels = [
            ("__name__", "linerate_up"),
            ("instance", "pit"),
            ("job", "own"),
            ("path", "a\"b"),
        ];
        let series = TimeSeries {
            labels: labels.map(label).to_vec(),
            samples: vec![Sample {
                value: 0.5,
                timestamp: 1234,
            }],
        };
        assert_eq!(request.timeseries, [series]);
    }
}
