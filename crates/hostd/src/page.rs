//! A reading of a daemon's metrics, as OpenMetrics text.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::Registry,
};

/// A measure that a daemon exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name; counters get the suffix `_total`.
    pub name: &'static str,
    kind: Kind,
    /// What it measures, in one sentence without a full stop.
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// The labels of a sample, and their values.
pub type Labels = Vec<(&'static str, String)>;

/// A reading of all metrics at one time.
#[derive(Debug, Default)]
pub struct Page(Vec<(Metric, Vec<(Labels, f64)>)>);

impl Metric {
    /// A metric whose values only rise, or begin at zero again; `help` is one sentence without a full stop.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Metric { name, kind: Kind::Counter, help }
    }

    /// A metric whose values rise and fall; `help` is one sentence without a full stop.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Metric { name, kind: Kind::Gauge, help }
    }

    /// The name by which Prometheus knows it.
    pub fn exported_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge => self.name.into(),
        }
    }
}

impl Page {
    /// Adds a metric without labels.
    pub fn one(&mut self, metric: Metric, value: f64) {
        self.each(metric, [(Labels::new(), value)]);
    }

    /// Adds a metric with a value for each set of labels.
    pub fn each(&mut self, metric: Metric, samples: impl IntoIterator<Item = (Labels, f64)>) {
        self.0.push((metric, samples.into_iter().collect()));
    }

    /// The page as OpenMetrics text, version 1.0.0.
    pub fn into_text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (metric, samples) in &self.0 {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut family = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
            for (labels, value) in samples {
                if labels.is_empty() {
                    sample(&mut family, metric.kind, *value)?;
                } else {
                    sample(&mut family.encode_family(labels)?, metric.kind, *value)?;
                }
            }
        }
        Ok(())
    }
}

fn sample(encoder: &mut MetricEncoder<'_>, kind: Kind, value: f64) -> Result<(), fmt::Error> {
    match kind {
        Kind::Counter => encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        Kind::Gauge => encoder.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_openmetrics() {
        let moves = Metric::counter("moves", "Connections moved");
        let age = Metric::gauge("age_seconds", "Age of the paths");
        let mut page = Page::default();
        page.each(moves, [("rto", 2.0), ("a\"b\n", 0.0)].map(|(reason, n)| (vec![("reason", reason.into())], n)));
        page.one(age, 1.5);
        let expected = "# HELP moves Connections moved\n# TYPE moves counter\n\
            moves_total{reason=\"rto\"} 2.0\nmoves_total{reason=\"a\\\"b\\n\"} 0.0\n\
            # HELP age_seconds Age of the paths\n# TYPE age_seconds gauge\nage_seconds 1.5\n# EOF\n";
        assert_eq!(page.into_text().unwrap(), expected);
        assert_eq!((moves.exported_name(), age.exported_name()), ("moves_total".into(), "age_seconds".into()));
    }
}
