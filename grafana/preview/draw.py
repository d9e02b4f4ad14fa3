"""Draws panels of the dashboard as SVG: lines, numbers, bars, heat maps, tables. It reads the same JSON as Grafana and
looks only roughly like it."""

import html
import math
import re
import time

COLOURS = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#b877d9", "#5794f2", "#fade2a", "#96d98d", "#ffa6b0"]
NAMED = {"green": "#73bf69", "yellow": "#f2cc0c", "red": "#f2495c", "blue": "#5794f2"}
TEXT, FAINT, LINE, PANEL = "#ccccdc", "#8e8e9c", "#2c2f38", "#181b1f"
HEAT = ["#3b1f0b", "#6b3410", "#9c4a12", "#d06a1a", "#f59b4c", "#ffd8a8"]


def shown(value, unit, decimals=None):
    """A number in its unit, as people say it."""
    if value is None or not math.isfinite(value):
        return "–"
    if unit == "percentunit":
        return f"{value * 100:.{0 if decimals == 0 or value == 1 else 1}f} %"
    if unit == "s":
        for factor, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
            if abs(value) >= factor:
                return f"{value / factor:.3g} {name}"
        return "0 s"
    if unit in ("bytes", "Bps"):
        for factor, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
            if abs(value) >= factor:
                return f"{value / factor:.3g} {name}" + ("/s" if unit == "Bps" else "")
        return f"{value:.0f} B" + ("/s" if unit == "Bps" else "")
    if decimals == 0:
        return f"{value:,.0f}"
    text = f"{value / 1000:.3g} k" if abs(value) >= 10000 else f"{value:.3g}"
    return text + ("/s" if unit == "ops" else "")


def label(text, x, y, size=11, colour=TEXT, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{html.escape(text)}</text>')


def ticks(top):
    """Round numbers from 0 to at least the top, four or so."""
    if top <= 0:
        return [0.0, 1.0]
    step = 10 ** math.floor(math.log10(top / 3))
    step = next(step * f for f in (1, 2, 5, 10) if top / (step * f) <= 4)
    return [step * n for n in range(math.ceil(top / step) + 1)]


def legend_rows(series, width):
    """Names and where they stand, as many as fit two lines."""
    rows, x, row = [], 0.0, 0
    for name, colour in series:
        need = 22 + 6.2 * len(name)
        if x + need > width and x > 0:
            x, row = 0.0, row + 1
        if row > 1:
            break
        rows.append((name, colour, x, row))
        x += need
    return rows


def axes(low, high, start, end, unit, left, top, right, bottom):
    parts = []
    for tick in ticks(high):
        y = bottom - (tick - low) / (high - low) * (bottom - top)
        if y < top - 1:
            continue
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>')
        parts.append(label(shown(tick, unit), left - 6, y + 4, 10, FAINT, "end"))
    for n in range(5):
        moment = start + (end - start) * n / 4
        x = left + (right - left) * n / 4
        anchor = "start" if n == 0 else "end" if n == 4 else "middle"
        parts.append(label(time.strftime("%H:%M:%S", time.gmtime(moment)), x, bottom + 15, 10, FAINT, anchor))
    return parts


def points(values, x_of):
    """Runs of finite values, each a list of (x, value)."""
    runs, run = [], []
    for moment, value in values:
        if math.isfinite(value):
            run.append((x_of(moment), value))
        elif run:
            runs.append(run)
            run = []
    return runs + ([run] if run else [])


def timeseries(panel, series, start, end, width, height):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    stacked = panel["fieldConfig"]["defaults"]["custom"].get("stacking", {}).get("mode") == "normal"
    series = [s for s in series if any(math.isfinite(v) for _, v in s["values"])]
    # What happens most is seen first, and has the first colours.
    series.sort(key=lambda s: -sum(v for _, v in s["values"] if math.isfinite(v)))
    if stacked:
        series = [s for s in series if any(v > 0 for _, v in s["values"])] or series[:1]
    series = series[: len(COLOURS)]
    legend = legend_rows([(s["name"], COLOURS[n]) for n, s in enumerate(series)], width - 20)
    lines = 1 + max((row for *_, row in legend), default=0)
    left, top, right, bottom = 62, 34, width - 12, height - 24 - 16 * lines
    floor = {}
    drawn = []
    for one in series:
        values = []
        for moment, value in one["values"]:
            if stacked and math.isfinite(value):
                floor[moment] = floor.get(moment, 0.0) + value
                value = floor[moment]
            values.append((moment, value))
        drawn.append(values)
    high = max((v for values in drawn for _, v in values if math.isfinite(v)), default=1.0)
    high = panel["fieldConfig"]["defaults"].get("max") or ticks(high)[-1] or 1.0
    x_of = lambda t: left + (t - start) / (end - start) * (right - left)  # noqa: E731
    y_of = lambda v: bottom - min(v / high, 1.0) * (bottom - top)  # noqa: E731
    parts = axes(0.0, high, start, end, unit, left, top, right, bottom)
    for number in reversed(range(len(drawn))):
        colour = COLOURS[number]
        for run in points(drawn[number], x_of):
            path = " ".join(f"{x:.1f},{y_of(v):.1f}" for x, v in run)
            area = f"{run[0][0]:.1f},{bottom} {path} {run[-1][0]:.1f},{bottom}"
            if stacked:  # What lies below hides what it is added to.
                parts.append(f'<polygon points="{area}" fill="{PANEL}"/>')
            parts.append(f'<polygon points="{area}" fill="{colour}" fill-opacity="{0.45 if stacked else 0.10}"/>')
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.4"/>')
    for name, colour, x, row in legend:
        y = bottom + 34 + 16 * row
        parts.append(f'<rect x="{x + 12:.1f}" y="{y - 7}" width="10" height="4" rx="2" fill="{colour}"/>')
        parts.append(label(name, x + 26, y, 11))
    return parts


def stat(panel, series, width, height):
    defaults = panel["fieldConfig"]["defaults"]
    value = series[0]["values"][-1][1] if series else None
    colour = FAINT
    for step in defaults["thresholds"]["steps"]:
        if value is not None and (step["value"] is None or round(value) >= step["value"] or value >= step["value"]):
            colour = NAMED.get(step["color"], step["color"])
    text = defaults.get("noValue", "–") if value is None else shown(value, defaults["unit"], defaults.get("decimals"))
    return [label(text, width / 2, height / 2 + 24, 32, colour, "middle", "600")]


def bargauge(panel, series, width, height):
    defaults = panel["fieldConfig"]["defaults"]
    bars = sorted(((s["values"][-1][1], s["name"]) for s in series), reverse=True)
    top = max((value for value, _ in bars), default=1.0) or 1.0
    parts, y, step = [], 44, (height - 56) / max(len(bars), 1)
    step = min(step, 34)
    wide = 16 + 6.6 * max((len(name) for _, name in bars), default=0)
    for number, (value, name) in enumerate(bars):
        room = width - wide - 70
        parts.append(label(name, wide - 6, y + step / 2 + 3, 12, TEXT, "end"))
        parts.append(f'<rect x="{wide}" y="{y}" width="{room}" height="{step - 8:.1f}" fill="{LINE}" fill-opacity="0.5"/>')
        parts.append(f'<rect x="{wide}" y="{y}" width="{max(room * value / top, 1):.1f}" height="{step - 8:.1f}" '
                     f'fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(label(shown(value, defaults["unit"], 0), width - 12, y + step / 2 + 3, 13, TEXT, "end"))
        y += step
    return parts


def heatmap(panel, series, start, end, width, height):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    buckets = sorted(series, key=lambda s: float(s["name"].replace("+Inf", "inf")))
    below, cells, columns = {}, [], sorted({t for s in buckets for t, _ in s["values"]})
    for one in buckets:
        counts = []
        for moment, value in one["values"]:
            value = value if math.isfinite(value) else 0.0
            counts.append((moment, max(value - below.get(moment, 0.0), 0.0)))
            below[moment] = max(value, below.get(moment, 0.0))
        cells.append((one["name"], counts))
    busy = [n for n, (_, counts) in enumerate(cells) if any(c > 0.01 for _, c in counts)]
    cells = cells[max(min(busy, default=0) - 1, 0): max(busy, default=0) + 2]
    most = max((c for _, counts in cells for _, c in counts), default=1.0) or 1.0
    left, top, right, bottom = 62, 34, width - 12, height - 28
    tall, wide = (bottom - top) / len(cells), (right - left) / max(len(columns), 1)
    parts = []
    for row, (name, counts) in enumerate(cells):
        y = bottom - (row + 1) * tall
        edge = "more" if name == "+Inf" else shown(float(name), unit)
        if row % 2 == 0 or len(cells) < 9:
            parts.append(label(edge, left - 6, y + 5, 10, FAINT, "end"))
        for moment, count in counts:
            if count > 0.01:
                shade = HEAT[min(int((count / most) ** 0.5 * len(HEAT)), len(HEAT) - 1)]
                x = left + columns.index(moment) * wide
                parts.append(f'<rect x="{x:.1f}" y="{y + 0.5:.1f}" width="{wide + 0.2:.1f}" height="{tall - 1:.1f}" fill="{shade}"/>')
    for n in range(5):
        anchor = "start" if n == 0 else "end" if n == 4 else "middle"
        moment = start + (end - start) * n / 4
        parts.append(label(time.strftime("%H:%M:%S", time.gmtime(moment)), left + (right - left) * n / 4, bottom + 15, 10, FAINT, anchor))
    return parts


def table(panel, series, width, height):
    hidden = {"__name__", "job", "instance"}
    columns = sorted({key for s in series for key in s["labels"]} - hidden)
    parts = []
    for n, column in enumerate(columns):
        parts.append(label(column, 14 + n * (width - 20) / len(columns), 52, 11, "#6e9fff", weight="600"))
    for row, one in enumerate(series):
        y = 76 + 24 * row
        parts.append(f'<line x1="10" x2="{width - 10}" y1="{y - 16}" y2="{y - 16}" stroke="{LINE}"/>')
        for n, column in enumerate(columns):
            parts.append(label(one["labels"].get(column, ""), 14 + n * (width - 20) / len(columns), y, 11))
    return parts


def panel_svg(panel, series, start, end, width, height):
    """One panel, as the inside of an SVG of this size."""
    kind = panel["type"]
    if kind == "timeseries":
        body = timeseries(panel, series, start, end, width, height)
    elif kind == "heatmap":
        body = heatmap(panel, series, start, end, width, height)
    else:
        body = {"stat": stat, "bargauge": bargauge, "table": table}[kind](panel, series, width, height)
    frame = f'<rect width="{width}" height="{height}" rx="2" fill="{PANEL}" stroke="{LINE}"/>'
    return frame + label(panel["title"], 12, 20, 13, TEXT, weight="600") + "".join(body)


def legend_name(template, labels):
    """`{{label}}` filled in; what has no template is named by its labels."""
    if template == "__auto":
        return ", ".join(f"{k}={v}" for k, v in sorted(labels.items()) if k != "__name__") or "value"
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), template)
