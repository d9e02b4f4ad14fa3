#!/usr/bin/env python3
"""Writes dashboards/lockwarden.json: `make dashboard`, or with `--check` compares only. The types of Grafana's own SDK
(requirements.txt) know what a dashboard may say; panels get their places from it, by their order."""

import sys
from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import (
    AnnotationQuery, Dashboard, DashboardLink, DatasourceVariable, QueryVariable, Row, TextBoxVariable,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync, DashboardLinkType, VariableOption, VariableRefresh, VariableSort,
)

from panels import BLUE, DATASOURCE, PROXY, RED, select
from rows import HEALTH, ROWS

OUTPUT = Path(__file__).resolve().parent / "dashboards" / "lockwarden.json"
BOARD = "http://localhost:9180"


class Adding(Builder):
    """What a builder makes, with fields that Grafana reads and the SDK's types lack."""

    def __init__(self, builder, **fields):
        self.builder, self.fields = builder, fields

    def build(self):
        return self

    def to_json(self):
        return self.builder.build().to_json() | self.fields


def variable(name, label, query):
    return Adding(
        QueryVariable(name).label(label).datasource(DATASOURCE).query({"query": query, "refId": name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True).include_all(True).all_value(".*").current(VariableOption(selected=True, text=["All"], value=["$__all"])),
        definition=query)


def annotation(name, colour, expr, title):
    return Adding(
        AnnotationQuery().name(name).icon_color(colour).datasource(DATASOURCE).expr(expr),
        step="30s", titleFormat=title, textFormat="{{instance}} {{namespace}}")


def dashboard():
    board = (
        Dashboard("lockwarden / locks").uid("lockwarden-locks").tags(["lockwarden", "redis", "locks"])
        .description("Who waits, what was refused, which leases ran out, and what the proxy costs.")
        .tooltip(DashboardCursorSync.CROSSHAIR).refresh("30s").time("now-1h", "now").version(1)
        .link(DashboardLink("Lock board").type(DashboardLinkType.LINK).icon("external link").target_blank(True)
              .url("${board}/").tooltip("The locks themselves, with their holders"))
        .variables([
            DatasourceVariable("datasource").label("Prometheus").type("prometheus").current(VariableOption()),
            variable("job", "Job", "label_values(lockwarden_build_info, job)"),
            variable("instance", "Proxy", 'label_values(lockwarden_build_info{job=~"$job"}, instance)'),
            variable("namespace", "Namespace", f"label_values(lockwarden_locks_held{{{PROXY}}}, namespace)"),
            TextBoxVariable("board").label("Lock board").default_value(BOARD).current(VariableOption(text=BOARD, value=BOARD)),
        ])
        .annotations([
            annotation("Configuration loaded", BLUE,
                       f"changes({select('lockwarden_config_last_reload_success_timestamp_seconds')}[1m]) > 0",
                       "configuration loaded"),
            annotation("Proxy started", "purple", f"changes(process_start_time_seconds{{{PROXY}}}[1m]) > 0",
                       "proxy started"),
            annotation("Alerts", RED, 'ALERTS{alertname=~"Lock.*", alertstate="firing", job=~"$job"}',
                       "{{alertname}}"),
        ])
    )
    for title, panels in ROWS.items():
        board.with_row(Row(title))
        for panel in panels:
            board.with_panel(panel)
    folded = Row("Health")
    for panel in HEALTH:
        folded.with_panel(panel)
    board.with_row(folded)
    built = board.build()
    # The SDK leaves every row with the id 0.
    everything = [one for panel in built.panels for one in (panel, *getattr(panel, "panels", []))]
    for number, one in enumerate(everything, 1):
        one.id_val = number
    return built


def main():
    text = JSONEncoder(indent=2, ensure_ascii=False).encode(dashboard()) + "\n"
    if "--check" not in sys.argv[1:]:
        OUTPUT.write_text(text, encoding="utf-8")
    elif OUTPUT.read_text(encoding="utf-8") != text:
        sys.exit(f"{OUTPUT.name} is old: make dashboard")


if __name__ == "__main__":
    main()
