"""What panels are made of: the catalogue of metrics, queries with the dashboard's variables, and the JSON of
each kind of panel. Which panels there are: rows.py."""

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
CATALOGUE = HERE.parent / "docs" / "metrics.md"

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# What a query selects of the proxies, and of the namespaces on them.
PROXY = 'job=~"$job", instance=~"$instance"'
SPACE = PROXY + ', namespace=~"$namespace"'
BOARD_OF_SERIES = {
    "title": "Lock board: ${__field.labels.namespace}",
    "url": "${board}/?namespace=${__field.labels.namespace:percentencode}",
    "targetBlank": True,
}
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"


def known_metrics():
    """The names that the proxy exports; histograms with their three series."""
    names = {}
    page = CATALOGUE.read_text(encoding="utf-8")
    for name, kind in re.findall(r"^### `(lockwarden_\w+)`\n\n(\w+)\.", page, re.M):
        suffixes = ["_bucket", "_sum", "_count"] if kind == "histogram" else [""]
        for suffix in suffixes:
            names[name + suffix] = kind
    return names


METRICS = known_metrics()


def select(metric, matchers=""):
    """`metric{…}` with the variables; a metric with a namespace is chosen by that, too."""
    base = re.sub(r"_(bucket|sum|count)$", "", metric)
    has_namespace = base in WITH_NAMESPACE or metric in WITH_NAMESPACE
    scope = SPACE if has_namespace else PROXY
    return f"{metric}{{{scope}{', ' + matchers if matchers else ''}}}"


def with_namespace():
    page = CATALOGUE.read_text(encoding="utf-8")
    sections = re.split(r"^### ", page, flags=re.M)[1:]
    return {
        re.match(r"`(\w+)`", section).group(1)
        for section in sections
        if "\n- `namespace`" in section
    }


WITH_NAMESPACE = with_namespace()


def rate(metric, matchers="", over="$__rate_interval"):
    return f"rate({select(metric, matchers)}[{over}])"


def increase(metric, matchers="", over="$__range"):
    return f"increase({select(metric, matchers)}[{over}])"


def quantile(q, metric, by, matchers=""):
    return f"histogram_quantile({q}, sum by (le, {by}) ({rate(metric + '_bucket', matchers)}))"


def target(expr, legend="", instant=False, form="time_series"):
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expr,
        "legendFormat": legend or "__auto",
        "instant": instant,
        "range": not instant,
        "format": form,
    }


def steps(*pairs):
    """Thresholds from (None, colour), (value, colour), …"""
    return {"mode": "absolute", "steps": [{"value": v, "color": c} for v, c in pairs]}


class Panel:
    """One panel; `place` and `id` are given to it by the dashboard."""

    def __init__(self, kind, title, description, targets, unit="short", width=8, height=8, **more):
        self.kind, self.title, self.description = kind, title, description
        self.targets, self.unit, self.width, self.height = targets, unit, width, height
        self.more = more

    def missing(self):
        """Metrics of the proxy that the catalogue does not have."""
        text = " ".join(t["expr"] for t in self.targets)
        return set(re.findall(r"\blockwarden_\w+", text)) - set(METRICS)

    def json(self, number, x, y):
        defaults = {"unit": self.unit, "custom": {}, "mappings": self.more.get("mappings", [])}
        defaults["thresholds"] = self.more.get("thresholds", steps((None, GREEN)))
        for key in ("min", "max", "decimals", "noValue", "links"):
            if key in self.more:
                defaults[key] = self.more[key]
        options = {}
        if self.kind == "stat":
            defaults["color"] = {"mode": "thresholds"}
            options = {
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "colorMode": "value", "graphMode": self.more.get("graph", "none"),
                "textMode": "value", "justifyMode": "center", "orientation": "auto",
            }
        elif self.kind == "timeseries":
            defaults["color"] = {"mode": "palette-classic"}
            defaults["custom"] = {
                "drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1,
                "fillOpacity": 12, "showPoints": "never", "spanNulls": False,
                "axisSoftMin": 0,
                "stacking": {"mode": self.more.get("stack", "none"), "group": "A"},
            }
            options = {
                "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True,
                           "calcs": ["mean", "lastNotNull"]},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        elif self.kind == "bargauge":
            defaults["color"] = {"mode": "palette-classic"}
            options = {
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "orientation": "horizontal", "displayMode": "basic", "showUnfilled": True,
                "valueMode": "color", "minVizHeight": 12, "minVizWidth": 0,
            }
        elif self.kind == "heatmap":
            options = {
                "calculate": False, "cellGap": 1, "legend": {"show": True},
                "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
                "yAxis": {"unit": self.unit, "axisPlacement": "left"},
                "tooltip": {"show": True, "yHistogram": True}, "rowsFrame": {"layout": "auto"},
            }
        elif self.kind == "table":
            options = {"showHeader": True, "footer": {"show": False}}
        panel = {
            "id": number, "type": self.kind, "title": self.title, "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [dict(t, refId=chr(ord("A") + n)) for n, t in enumerate(self.targets)],
            "fieldConfig": {"defaults": defaults, "overrides": self.more.get("overrides", [])},
            "options": options,
        }
        if "hide" in self.more:
            hidden = {name: True for name in self.more["hide"]}
            panel["transformations"] = [
                {"id": "organize", "options": {"excludeByName": hidden, "indexByName": {}, "renameByName": {}}}
            ]
        return panel


def stat(title, description, expr, **more):
    return Panel("stat", title, description, [target(expr, instant=True)], width=3, height=4, **more)


def lines(title, description, *queries, **more):
    return Panel("timeseries", title, description, [target(e, l) for e, l in queries], **more)


def bars(title, description, expr, legend, **more):
    return Panel("bargauge", title, description, [target(expr, legend, instant=True)], **more)


def table(title, description, expr, **more):
    return Panel("table", title, description, [target(expr, instant=True, form="table")], **more)


GOOD_ZERO = steps((None, GREEN), (1, RED))
SERVED_NAMESPACE = {"links": [BOARD_OF_SERIES]}
NOT_IN_TABLE = ["Time", "Value", "__name__"]
