"""What panels are made of: queries with the dashboard's variables, and the kinds of panels with the look that all of
a kind share. Which panels there are: rows.py."""

import re
from pathlib import Path

from grafana_foundation_sdk.builders.bargauge import Panel as BarGauge
from grafana_foundation_sdk.builders.common import ReduceDataOptions, StackingConfig, VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.builders.dashboard import DashboardLink, FieldColor, ThresholdsConfig
from grafana_foundation_sdk.builders.heatmap import HeatmapColorOptions, Panel as Heatmap, RowsHeatmapOptions, YAxisConfig
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.table import Panel as Table
from grafana_foundation_sdk.builders.timeseries import Panel as TimeSeries
from grafana_foundation_sdk.models.common import (
    AxisPlacement, BarGaugeDisplayMode, BigValueColorMode, BigValueGraphMode, BigValueJustifyMode, BigValueTextMode,
    HeatmapCellLayout, LegendDisplayMode, SortOrder, StackingMode, TooltipDisplayMode, VisibilityMode, VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType, DataSourceRef, DataTransformerConfig, FieldColorModeId, Threshold, ThresholdsMode, ValueMap, ValueMappingResult,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"
DATASOURCE = DataSourceRef("prometheus", "${datasource}")

# --- queries ---

# What a query selects of the proxies.
PROXY = 'job=~"$job", instance=~"$instance"'
# Whether each metric of docs/metrics.md has a label `namespace`.
HAS_NAMESPACE = {
    name: "\n- `namespace`" in section
    for name, section in re.findall(
        r"^### `(\w+)`(.*?)(?=^### |\Z)",
        (Path(__file__).resolve().parents[1] / "docs/metrics.md").read_text(encoding="utf-8"), re.M | re.S)
}


def select(metric, matchers=""):
    """`metric{…}` with the variables; a metric with a namespace is selected by that, too."""
    namespace = 'namespace=~"$namespace"' if HAS_NAMESPACE[re.sub(r"_(bucket|sum|count)$", "", metric)] else ""
    return f"{metric}{{{', '.join(filter(None, [PROXY, namespace, matchers]))}}}"


def rate(metric, matchers=""):
    return f"rate({select(metric, matchers)}[$__rate_interval])"


def increase(metric, matchers="", over="$__rate_interval"):
    return f"increase({select(metric, matchers)}[{over}])"


def in_view(metric, matchers=""):
    """The increase in the time that the dashboard shows."""
    return increase(metric, matchers, "$__range")


def quantile(q, metric, by):
    return f"histogram_quantile({q}, sum by (le, {by}) ({rate(metric + '_bucket')}))"


def sum_by(labels, expr, legend=None):
    """A query with a series for each value of the labels, and its legend: these values unless told."""
    return f"sum by ({labels}) ({expr})", legend or " ".join(f"{{{{{label}}}}}" for label in labels.split(", "))


def query(expr, legend="__auto"):
    return (Dataquery().datasource(DATASOURCE).editor_mode(QueryEditorMode.CODE).format(PromQueryFormat.TIME_SERIES)
            .expr(expr).legend_format(legend))


# --- what a panel may have ---

STACKED = StackingConfig().mode(StackingMode.NORMAL).group("A")
LAST_VALUE = ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def steps(base, *more):
    """The colour of small values, then (value, colour) from where on another begins."""
    colours = [Threshold(None, base)] + [Threshold(value, colour) for value, colour in more]
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(colours)


def words(zero, one):
    """Says 0 and 1 in words: 0 is bad, 1 is good."""
    return [ValueMap({"0": ValueMappingResult(zero, RED), "1": ValueMappingResult(one, GREEN)})]


# --- the kinds of panels ---

def panel(kind, title, description, *queries):
    for letter, one in zip("ABC", queries):
        one.ref_id(letter)
    made = (kind().title(title).description(description).datasource(DATASOURCE).targets(queries)
            .span(8).height(8).unit("short").thresholds(steps(GREEN)))
    if any("$namespace" in one.build().expr for one in queries):
        made.links([to_board("Lock board", "/")])
    return made


def to_board(title, path):
    return DashboardLink(title).type(DashboardLinkType.LINK).target_blank(True).url("${board}" + path)


def to_discovery():
    return [to_board("Which keys, and their configuration", "/discovery")]


def series(kind, title, description, queries):
    """A panel with colours of a palette; one whose series are namespaces leads to the lock board."""
    made = panel(kind, title, description, *queries).color_scheme(FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
    if any("{{namespace}}" in one.build().legend_format for one in queries):
        made.data_links([
            DashboardLink("Lock board: ${__field.labels.namespace}").target_blank(True)
            .url("${board}/?namespace=${__field.labels.namespace:percentencode}")
        ])
    return made


def stat(title, description, expr):
    return (panel(Stat, title, description, query(expr).instant()).span(3).height(4)
            .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS)).reduce_options(LAST_VALUE)
            .color_mode(BigValueColorMode.VALUE).graph_mode(BigValueGraphMode.NONE)
            .text_mode(BigValueTextMode.VALUE).justify_mode(BigValueJustifyMode.CENTER))


def lines(title, description, *queries):
    """A graph of queries, each with its legend."""
    return (series(TimeSeries, title, description, [query(*one).range() for one in queries])
            .fill_opacity(12).show_points(VisibilityMode.NEVER).axis_soft_min(0)
            .legend(VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.TABLE).calcs(["mean", "lastNotNull"]))
            .tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)))


def bars(title, description, expr, legend):
    return (series(BarGauge, title, description, [query(expr, legend).instant()]).decimals(0)
            .reduce_options(LAST_VALUE).orientation(VizOrientation.HORIZONTAL)
            .display_mode(BarGaugeDisplayMode.BASIC).min_viz_height(12))


def heatmap(title, description, expr, unit):
    return (panel(Heatmap, title, description, query(expr, "{{le}}").range().format(PromQueryFormat.HEATMAP)).unit(unit)
            .color(HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64).exponent(0.5))
            .y_axis(YAxisConfig().unit(unit).axis_placement(AxisPlacement.LEFT)).show_tooltip().show_y_histogram()
            .rows_frame(RowsHeatmapOptions().layout(HeatmapCellLayout.AUTO)))


def table(title, description, metric):
    """The labels of a metric."""
    hidden = dict.fromkeys(["Time", "Value", "__name__", "job"], True)
    return (panel(Table, title, description, query(select(metric)).instant().format(PromQueryFormat.TABLE))
            .show_header(True).with_transformation(DataTransformerConfig(
                "organize", options={"excludeByName": hidden, "indexByName": {}, "renameByName": {}})))
