//! Makes metrics from their entry in the catalogue and hands out the handles that the data path
//! uses. A handle is found once, here; using it later is one atomic addition without a look-up.

use std::collections::HashMap;
use std::marker::PhantomData;

use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, Result,
};

use super::catalogue::MetricDoc;
use crate::telemetry::vocabulary::{Label, Only};

/// One handle for every member of a label's set.
#[derive(Clone)]
pub(crate) struct ByLabel<L, M> {
    handles: Box<[M]>,
    label: PhantomData<fn(L)>,
}

impl<L: Label, M> ByLabel<L, M> {
    pub(super) fn new(handle: impl Fn(&str) -> M) -> ByLabel<L, M> {
        ByLabel { handles: L::ALL.iter().map(|label| handle(label.word())).collect(), label: PhantomData }
    }

    /// One made for each member.
    pub(super) fn of(make: impl FnMut(L) -> M) -> ByLabel<L, M> {
        ByLabel { handles: L::ALL.iter().copied().map(make).collect(), label: PhantomData }
    }

    /// The handle of one member.
    pub(crate) fn at(&self, label: L) -> &M {
        &self.handles[label.index()]
    }
}

/// Registers metrics in one registry, all with the same fixed label, if any.
pub(super) struct Registrar<'a> {
    registry: &'a Registry,
    fixed: Option<(&'static str, &'a str)>,
}

impl<'a> Registrar<'a> {
    pub(super) fn new(registry: &'a Registry) -> Registrar<'a> {
        Registrar { registry, fixed: None }
    }

    /// Everything registered carries this label.
    pub(super) fn with_label(registry: &'a Registry, name: &'static str, value: &'a str) -> Registrar<'a> {
        Registrar { registry, fixed: Some((name, value)) }
    }

    pub(super) fn counter_vec(&self, doc: &MetricDoc) -> Result<IntCounterVec> {
        self.register(IntCounterVec::new(self.opts(doc), &self.labels(doc))?)
    }

    pub(super) fn counter(&self, doc: &MetricDoc) -> Result<IntCounter> {
        self.counter_vec(doc)?.get_metric_with_label_values::<&str>(&[])
    }

    pub(super) fn float_counter(&self, doc: &MetricDoc) -> Result<Counter> {
        self.register(CounterVec::new(self.opts(doc), &self.labels(doc))?)?.get_metric_with_label_values::<&str>(&[])
    }

    pub(super) fn counters<L: Label>(&self, doc: &MetricDoc) -> Result<ByLabel<L, IntCounter>> {
        let vec = self.counter_vec(doc)?;
        // Every member is there from the start, at 0: a rate over a series that begins at 1 would miss the
        // first event.
        Ok(ByLabel::new(|word| vec.with_label_values(&[word])))
    }

    /// For a first label of which only one member is used.
    pub(super) fn counters_of<L: Label>(&self, doc: &MetricDoc, first: impl Label) -> Result<ByLabel<L, IntCounter>> {
        let vec = self.counter_vec(doc)?;
        Ok(ByLabel::new(|word| vec.with_label_values(&[first.word(), word])))
    }

    /// All combinations of two labels.
    pub(super) fn counters_by<A: Label, B: Label>(
        &self,
        doc: &MetricDoc,
    ) -> Result<ByLabel<A, ByLabel<B, IntCounter>>> {
        let vec = self.counter_vec(doc)?;
        Ok(ByLabel::new(|first| ByLabel::new(|second| vec.with_label_values(&[first, second]))))
    }

    pub(super) fn gauge_vec(&self, doc: &MetricDoc) -> Result<IntGaugeVec> {
        self.register(IntGaugeVec::new(self.opts(doc), &self.labels(doc))?)
    }

    pub(super) fn gauge(&self, doc: &MetricDoc) -> Result<IntGauge> {
        self.gauge_vec(doc)?.get_metric_with_label_values::<&str>(&[])
    }

    pub(super) fn only_gauge(&self, doc: &MetricDoc) -> Result<IntGauge> {
        Ok(self.gauges(doc)?.at(Only::Default).clone())
    }

    pub(super) fn float_gauge(&self, doc: &MetricDoc) -> Result<Gauge> {
        self.float_gauge_vec(doc)?.get_metric_with_label_values::<&str>(&[])
    }

    pub(super) fn float_gauge_vec(&self, doc: &MetricDoc) -> Result<GaugeVec> {
        self.register(GaugeVec::new(self.opts(doc), &self.labels(doc))?)
    }

    pub(super) fn gauges<L: Label>(&self, doc: &MetricDoc) -> Result<ByLabel<L, IntGauge>> {
        let vec = self.gauge_vec(doc)?;
        Ok(ByLabel::new(|word| vec.with_label_values(&[word])))
    }

    pub(super) fn gauges_of<L: Label>(&self, doc: &MetricDoc, first: impl Label) -> Result<ByLabel<L, IntGauge>> {
        let vec = self.gauge_vec(doc)?;
        Ok(ByLabel::new(|word| vec.with_label_values(&[first.word(), word])))
    }

    fn histogram_vec(&self, doc: &MetricDoc, buckets: &[f64]) -> Result<HistogramVec> {
        let opts = HistogramOpts::from(self.opts(doc)).buckets(buckets.to_vec());
        self.register(HistogramVec::new(opts, &self.labels(doc))?)
    }

    pub(super) fn histogram(&self, doc: &MetricDoc, buckets: &[f64]) -> Result<Histogram> {
        self.histogram_vec(doc, buckets)?.get_metric_with_label_values::<&str>(&[])
    }

    pub(super) fn histograms<L: Label>(&self, doc: &MetricDoc, buckets: &[f64]) -> Result<ByLabel<L, Histogram>> {
        let vec = self.histogram_vec(doc, buckets)?;
        Ok(ByLabel::new(|word| vec.with_label_values(&[word])))
    }

    fn opts(&self, doc: &MetricDoc) -> Opts {
        let fixed: HashMap<String, String> =
            self.fixed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Opts::new(doc.name, doc.help).const_labels(fixed)
    }

    fn labels(&self, doc: &MetricDoc) -> Vec<&'static str> {
        let fixed = self.fixed.map(|(name, _)| name);
        let names = doc.labels.iter().map(|label| label.name);
        names.filter(|name| Some(*name) != fixed).collect()
    }

    fn register<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }
}
