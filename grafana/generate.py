#!/usr/bin/env python3
"""Writes dashboards/lockwarden.json: `python3 grafana/generate.py`, or `--check` to compare only.

A panel is a title, a description, queries and a unit; places and ids follow from the order. A panel is
left out while the catalogue of metrics (docs/metrics.md) lacks a metric that it needs, so that nobody
looks at a panel which cannot have data. Needs nothing but Python's own library.
"""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True

from panels import BLUE, DATASOURCE, PROXY, RED, select  # noqa: E402
from rows import ROWS  # noqa: E402

OUTPUT = Path(__file__).resolve().parent / "dashboards" / "lockwarden.json"
WIDTH = 24


def query_variable(name, label, query):
    return {
        "name": name, "label": label, "type": "query", "datasource": DATASOURCE,
        "definition": query, "query": {"query": query, "refId": name},
        "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0, "options": [], "regex": "", "skipUrlSync": False,
    }


def variables():
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus",
         "current": {}, "hide": 0, "includeAll": False, "multi": False, "options": [],
         "refresh": 1, "regex": "", "skipUrlSync": False},
        query_variable("job", "Job", "label_values(lockwarden_build_info, job)"),
        query_variable("instance", "Proxy", 'label_values(lockwarden_build_info{job=~"$job"}, instance)'),
        query_variable("namespace", "Namespace",
                       'label_values(lockwarden_locks_held{job=~"$job", instance=~"$instance"}, namespace)'),
        {"name": "board", "label": "Lock board", "type": "textbox", "query": "http://localhost:9180",
         "current": {"text": "http://localhost:9180", "value": "http://localhost:9180"},
         "hide": 0, "options": [], "skipUrlSync": False},
    ]


def annotation(name, colour, expr, title):
    return {
        "name": name, "enable": True, "hide": False, "iconColor": colour, "datasource": DATASOURCE,
        "expr": expr, "step": "30s", "titleFormat": title, "textFormat": "{{instance}} {{namespace}}",
        "tagKeys": "", "useValueForTime": False,
    }


def dashboard():
    panels, number, y = [], 1, 0
    for title, collapsed, members in ROWS:
        members = [panel for panel in members if not panel.missing()]
        row = {"id": number, "type": "row", "title": title, "collapsed": collapsed, "panels": [],
               "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}}
        number, y, x, tallest, placed = number + 1, y + 1, 0, 0, []
        for panel in members:
            if x + panel.width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            placed.append(panel.json(number, x, y))
            number, x, tallest = number + 1, x + panel.width, max(tallest, panel.height)
        y += tallest
        panels.append(row)
        if collapsed:
            row["panels"] = placed
        else:
            panels += placed
    return {
        "uid": "lockwarden-locks", "title": "lockwarden / locks", "tags": ["lockwarden", "redis", "locks"],
        "description": "Who waits, what was refused, which leases ran out, and what the proxy costs.",
        "schemaVersion": 38, "version": 1, "editable": True, "graphTooltip": 1, "fiscalYearStartMonth": 0,
        "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "timepicker": {}, "timezone": "browser",
        "weekStart": "", "liveNow": False, "id": None,
        "links": [
            {"title": "Lock board", "type": "link", "icon": "external link", "targetBlank": True,
             "url": "${board}/", "tags": [], "tooltip": "The locks themselves, with their holders",
             "asDropdown": False, "includeVars": False, "keepTime": False},
        ],
        "annotations": {"list": [
            annotation("Configuration loaded", BLUE,
                       "changes(" + select("lockwarden_config_last_reload_success_timestamp_seconds") + "[1m]) > 0",
                       "configuration loaded"),
            annotation("Proxy started", "purple",
                       "changes(process_start_time_seconds{" + PROXY + "}[1m]) > 0", "proxy started"),
            annotation("Alerts", RED,
                       'ALERTS{alertname=~"Lock.*", alertstate="firing", job=~"$job"}', "{{alertname}}"),
        ]},
        "templating": {"list": variables()},
        "panels": panels,
    }


def main():
    text = json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"
    if "--check" in sys.argv[1:]:
        if OUTPUT.read_text(encoding="utf-8") != text:
            sys.exit(f"{OUTPUT.name} is old: python3 grafana/generate.py")
    else:
        OUTPUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
