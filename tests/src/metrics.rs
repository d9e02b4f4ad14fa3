//! The reply of `/metrics` at one moment. A selector names a family and some of its labels, as in
//! `lockwarden_decisions_total{operation="release",decision="deny"}`; every series that matches is added up,
//! and a selector that matches none is a spelling mistake or a missing series.

use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

/// One scrape.
#[derive(Clone, Debug)]
pub struct Metrics {
    series: Vec<(String, Labels, f64)>,
}

impl Metrics {
    /// Reads the text format; panics on a line that is none.
    #[track_caller]
    pub fn parse(text: &str) -> Metrics {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Metrics { series: lines.map(series).collect() }
    }

    /// The sum of the series that match; `None` if there is none.
    pub fn find(&self, selector: &str) -> Option<f64> {
        let (name, wanted) = name_and_labels(selector);
        let matching = self.series.iter().filter(|(family, labels, _)| {
            *family == name && wanted.iter().all(|(label, value)| labels.get(label) == Some(value))
        });
        let values: Vec<f64> = matching.map(|(_, _, value)| *value).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// The sum of the series that match; panics if there is none.
    #[track_caller]
    pub fn get(&self, selector: &str) -> f64 {
        self.find(selector).unwrap_or_else(|| panic!("/metrics has no series {selector}"))
    }

    /// Every label value with its label and family.
    pub fn label_values(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.series.iter().flat_map(|(family, labels, _)| {
            labels.iter().map(move |(label, value)| (family.as_str(), label.as_str(), value.as_str()))
        })
    }
}

#[track_caller]
fn series(line: &str) -> (String, Labels, f64) {
    let (series, value) =
        line.rsplit_once(' ').unwrap_or_else(|| panic!("/metrics has a line without a value: {line:?}"));
    let (name, labels) = name_and_labels(series);
    let value = value.parse().unwrap_or_else(|_| panic!("/metrics has a value that is no number: {line:?}"));
    (name, labels, value)
}

/// Splits `name{label="value",…}`. Label values with commas or quotes do not occur in closed sets.
fn name_and_labels(series: &str) -> (String, Labels) {
    let Some((name, rest)) = series.split_once('{') else {
        return (series.trim().to_owned(), Labels::new());
    };
    let labels = rest
        .trim_end()
        .trim_end_matches('}')
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(label, value)| (label.trim().to_owned(), value.trim_matches('"').to_owned()));
    (name.to_owned(), labels.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_adds_up_the_series_that_match() {
        let metrics = Metrics::parse("# HELP a b\na{x=\"1\",y=\"1\"} 2\na{x=\"1\",y=\"2\"} 3\nb 4\n");
        assert_eq!(metrics.get("a{x=\"1\"}"), 5.0);
        assert_eq!(metrics.get("b"), 4.0);
        assert_eq!(metrics.find("a{x=\"2\"}"), None);
    }
}
