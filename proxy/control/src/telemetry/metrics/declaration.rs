//! What a metric is declared with, and how that becomes series on the page. [`metrics!`] makes of one declaration a field with
//! its handles, its registration, its help text and its part of `docs/metrics.md`; what a label can be, its enum says. A handle
//! is found once, here; using it later is one atomic addition without a look-up.

use std::collections::HashMap;
use std::marker::PhantomData;

use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, Result,
};

use crate::telemetry::vocabulary::Label;

/// A metric as it is declared.
pub(super) struct Declared {
    /// The full name.
    pub(super) name: &'static str,
    /// What it says, as on the page, behind blanks.
    pub(super) help: &'static str,
    /// In the order of registration.
    pub(super) labels: &'static [DeclaredLabel],
    /// The upper bounds of a histogram's buckets, else none.
    pub(super) buckets: &'static [f64],
}

/// A label as it is declared.
pub(super) struct DeclaredLabel {
    pub(super) name: &'static str,
    pub(super) values: Values,
}

/// What a label can be.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "only the page of the documentation says in words what a label can be")
)]
pub(super) enum Values {
    /// Each member of the enum that the field has a handle for.
    Handles,
    /// This one value.
    Always(&'static str),
    /// The members of an enum, of which not all need to be on the page.
    Of(fn() -> Vec<Word>),
    /// Any text, of which this is said.
    Text(&'static str),
}

/// A value of a label, and what it means.
pub(super) type Word = (&'static str, &'static str);

/// Every member of a set.
pub(super) fn words<L: Label>() -> Vec<Word> {
    L::ALL.iter().map(|label| (label.word(), label.meaning())).collect()
}

/// Declares the metrics of a struct, with its other fields behind `with`:
///
/// ```ignore
/// metrics! {
///     /// What is counted about one door.
///     pub(crate) struct DoorMetrics {
///         /// The help text.
///         pub opened: ByLabel<Side, IntCounter> = "lockwarden_door_opened_total" { "side" };
///     } with {
///         registry: Registry,
///     }
/// }
/// ```
///
/// `struct DoorMetrics by "door": "the name of the door"` gives each a label more, whose value the [`Registrar`] knows. Another
/// label has the values of the field's type, in their order; or those of a set (`"side" of Side`), always the same one
/// (`"wall" = "north"`), or any, of which something is said (`"colour": "what it was painted with"`).
macro_rules! metrics {
    (
        $(#[doc = $about:literal])+
        $visibility:vis struct $name:ident $(by $fixed:literal: $member:literal)? {
            $(
                $(#[doc = $help:literal])+
                $field_visibility:vis $field:ident: $handle:ty = $metric:literal $(in $buckets:ident)?
                    { $($label:literal $(= $always:literal)? $(of $set:ty)? $(: $text:literal)?),* };
            )+
        } with {
            $($(#[doc = $note:literal])* $other_visibility:vis $other:ident: $other_type:ty,)*
        }
    ) => {
        $(#[doc = $about])+
        $visibility struct $name {
            $($(#[doc = $help])+ $field_visibility $field: $handle,)+
            $($(#[doc = $note])* $other_visibility $other: $other_type,)*
        }

        impl $name {
            /// Registers them, at 0. It fails only if declarations contradict each other.
            fn declare(make: &Registrar<'_>, $($other: $other_type),*) -> Result<$name> {
                use $crate::telemetry::metrics::declaration::*;
                Ok($name {
                    $($field: make.handle(&Declared {
                        name: $metric,
                        help: concat!($($help),+),
                        labels: &[$(DeclaredLabel {
                            name: $label,
                            values: metrics!(@values $(= $always)? $(of $set)? $(: $text)?),
                        }),*],
                        buckets: metrics!(@buckets $($buckets)?),
                    })?,)+
                    $($other,)*
                })
            }

            /// All of them, for the page of the documentation.
            #[cfg(test)]
            pub(super) fn documented() -> Vec<$crate::telemetry::metrics::declaration::MetricDoc> {
                use $crate::telemetry::metrics::declaration::*;
                let fixed: &[(&'static str, &'static str)] = &[$(($fixed, $member))?];
                vec![$(MetricDoc::of::<$handle>($metric, concat!($($help),+), fixed, &[$(DeclaredLabel {
                    name: $label,
                    values: metrics!(@values $(= $always)? $(of $set)? $(: $text)?),
                }),*])),+]
            }
        }
    };
    (@values) => { Values::Handles };
    (@values = $always:literal) => { Values::Always($always) };
    (@values of $set:ty) => { Values::Of(words::<$set>) };
    (@values : $text:literal) => { Values::Text($text) };
    (@buckets) => { &[] };
    (@buckets $buckets:ident) => { &$buckets };
}

pub(super) use metrics;

/// What a field of a declaration may be: handles of all series of a metric, or the metric itself.
pub(super) trait Handle: Sized {
    /// The metric.
    type Family: Family;

    /// The handle of the series whose first labels have these values.
    fn of(family: &Self::Family, values: &[&str]) -> Result<Self>;

    /// The sets of values of the labels that it has a handle for each member of.
    #[cfg(test)]
    fn sets() -> Vec<Vec<Word>> {
        Vec::new()
    }
}

/// A metric with labels.
pub(super) trait Family: Collector + Clone + 'static {
    /// Its type, in the word of the exposition format.
    #[cfg(test)]
    const KIND: &'static str;

    fn new(opts: Opts, buckets: &[f64], labels: &[&str]) -> Result<Self>;
}

macro_rules! family {
    ($family:ident, $handle:ident, $kind:literal) => {
        impl Family for $family {
            #[cfg(test)]
            const KIND: &'static str = $kind;

            fn new(opts: Opts, _buckets: &[f64], labels: &[&str]) -> Result<$family> {
                $family::new(opts, labels)
            }
        }

        handles!($family, $handle);
    };
}

macro_rules! handles {
    ($family:ident, $handle:ident) => {
        /// The one series that has these values.
        impl Handle for $handle {
            type Family = $family;

            fn of(family: &$family, values: &[&str]) -> Result<$handle> {
                family.get_metric_with_label_values(values)
            }
        }

        /// Its series come and go.
        impl Handle for $family {
            type Family = $family;

            fn of(family: &$family, _values: &[&str]) -> Result<$family> {
                Ok(family.clone())
            }
        }
    };
}

family!(IntCounterVec, IntCounter, "counter");
family!(CounterVec, Counter, "counter");
family!(IntGaugeVec, IntGauge, "gauge");
family!(GaugeVec, Gauge, "gauge");
handles!(HistogramVec, Histogram);

impl Family for HistogramVec {
    #[cfg(test)]
    const KIND: &'static str = "histogram";

    fn new(opts: Opts, buckets: &[f64], labels: &[&str]) -> Result<HistogramVec> {
        HistogramVec::new(HistogramOpts::from(opts).buckets(buckets.to_vec()), labels)
    }
}

/// One handle for every member of a label's set.
#[derive(Clone)]
pub struct ByLabel<L, M> {
    handles: Box<[M]>,
    label: PhantomData<fn(L)>,
}

impl<L: Label, M> ByLabel<L, M> {
    pub(super) fn new(handle: impl Fn(&str) -> M) -> ByLabel<L, M> {
        ByLabel { handles: L::ALL.iter().map(|label| handle(label.word())).collect(), label: PhantomData }
    }

    /// The handle of one member.
    pub fn at(&self, label: L) -> &M {
        &self.handles[label.index()]
    }
}

/// Every member is there from the start, at 0: a rate over a series that begins at 1 would miss the first event.
impl<L: Label, M: Handle> Handle for ByLabel<L, M> {
    type Family = M::Family;

    fn of(family: &M::Family, values: &[&str]) -> Result<ByLabel<L, M>> {
        let handle = |label: &L| M::of(family, &[values, &[label.word()]].concat());
        let handles: Result<_> = L::ALL.iter().map(handle).collect();
        Ok(ByLabel { handles: handles?, label: PhantomData })
    }

    #[cfg(test)]
    fn sets() -> Vec<Vec<Word>> {
        std::iter::once(words::<L>()).chain(M::sets()).collect()
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

    /// Registers a metric, and makes its handles.
    pub(super) fn handle<H: Handle>(&self, declared: &Declared) -> Result<H> {
        let always = declared.labels.iter().filter_map(|label| match label.values {
            Values::Always(value) => Some((label.name, value)),
            Values::Handles | Values::Of(_) | Values::Text(_) => None,
        });
        let constant: HashMap<String, String> =
            self.fixed.into_iter().chain(always).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let names = declared.labels.iter().map(|label| label.name);
        let names: Vec<&str> = names.filter(|name| !constant.contains_key(*name)).collect();
        let opts = Opts::new(declared.name, declared.help.trim_start()).const_labels(constant);
        let family = <H::Family as Family>::new(opts, declared.buckets, &names)?;
        self.registry.register(Box::new(family.clone()))?;
        H::of(&family, &[])
    }
}

/// One metric, as the page of the documentation has it.
#[cfg(test)]
pub(crate) struct MetricDoc {
    pub(crate) name: &'static str,
    /// Its type, in the word of the exposition format.
    pub(crate) kind: &'static str,
    pub(crate) help: &'static str,
    /// Its labels, and what they can be.
    pub(crate) labels: Vec<(&'static str, String)>,
}

#[cfg(test)]
impl MetricDoc {
    pub(super) fn of<H: Handle>(
        name: &'static str,
        help: &'static str,
        fixed: &[(&'static str, &'static str)],
        labels: &[DeclaredLabel],
    ) -> MetricDoc {
        let fixed = fixed.iter().map(|(label, values)| (*label, (*values).to_owned()));
        let mut sets = H::sets().into_iter();
        let labels = labels.iter().map(|label| {
            let values = match &label.values {
                Values::Handles => listed(&sets.next().expect("a set for each label of the handles")),
                Values::Of(words) => listed(&words()),
                Values::Always(value) => format!("`{value}`"),
                Values::Text(text) => (*text).to_owned(),
            };
            (label.name, values)
        });
        let labels = fixed.chain(labels).collect();
        assert!(sets.next().is_none(), "{name}: a label for each set of the handles");
        MetricDoc { name, kind: <H::Family as Family>::KIND, help: help.trim_start(), labels }
    }
}

/// The values of a set, each with what it means.
#[cfg(test)]
fn listed(words: &[Word]) -> String {
    let one = |(word, meaning): &Word| match meaning.trim().trim_end_matches('.') {
        "" => format!("`{word}`"),
        meaning => format!("`{word}` ({})", begun_small(meaning)),
    };
    words.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A sentence as part of another one: its first letter is small, unless the word has more capital letters.
#[cfg(test)]
fn begun_small(sentence: &str) -> String {
    let mut letters = sentence.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), second) if second.is_none_or(|letter| !letter.is_uppercase()) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => sentence.to_owned(),
    }
}
