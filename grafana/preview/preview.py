#!/usr/bin/env python3
"""Makes docs/images/dashboard.png: starts the proxy, a Prometheus and applications (traffic.py), asks Prometheus what the
dashboard asks it, draws the answers (draw.py) and lets Chromium take the picture. Grafana has no part in it.

    cargo build --release -p lockwarden
    python3 grafana/preview/preview.py [--seconds 240] [--binary target/release/lockwarden]

Needs redis-server, prometheus and chromium on the PATH.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import draw
import traffic

ROOT = Path(__file__).resolve().parents[2]
ROWS = ["Is anything wrong?", "Safety", "Contention", "Locks that nobody has named"]
COLUMN, UNIT, GAP, MARGIN = 66, 30, 6, 14
SCRAPE_SECONDS = 2

CONFIGURATION = """
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
backend = "private"
""" + "".join(
    f'\n[[namespace]]\nname = "{name}"\nkeys = ["{name}:*"]\nmode = "{mode}"\n'
    for name, mode in [("orders", "enforce"), ("stock", "enforce"), ("leader", "enforce"), ("reports", "monitor")]
)


def listening(process, words):
    """The addresses that a program's log says after these words."""
    for line in process.stderr:
        if all(word in line for word in words):
            return [line.split(word, 1)[1].split()[0].strip('",').split('"')[0] for word in words]
    sys.exit("a program ended before it listened")


def follow(process):
    """Nobody reads the rest of the log, and nobody waits for that."""
    threading.Thread(target=lambda: [None for _ in process.stderr], daemon=True).start()


def ask(address, path, **parameters):
    url = f"http://{address}{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def substituted(expression, seconds):
    for name, value in [("$__rate_interval", f"{5 * SCRAPE_SECONDS}s"), ("$__range", f"{seconds}s"),
                        ("$job", ".*"), ("$instance", ".*"), ("$namespace", ".*")]:
        expression = expression.replace(name, value)
    return expression


def answers(address, panel, start, end):
    """The series of a panel, with their names."""
    series = []
    seconds = int(end - start)
    for target in panel["targets"]:
        query = substituted(target["expr"], seconds)
        if target["range"]:
            result = ask(address, "/api/v1/query_range", query=query, start=start, end=end, step=max(seconds / 90, 1))
        else:
            result = ask(address, "/api/v1/query", query=query, time=end)
        for one in result:
            values = one.get("values") or [one["value"]]
            series.append({
                "name": draw.legend_name(target["legendFormat"], one["metric"]), "labels": one["metric"],
                "values": [(float(t), float(v)) for t, v in values],
            })
    return series


def picture(address, start, end):
    """The chosen rows as one SVG."""
    dashboard = json.loads((ROOT / "grafana/dashboards/lockwarden.json").read_text(encoding="utf-8"))
    parts, offset, row, wanted = [], None, 0, False
    width = 2 * MARGIN + 24 * COLUMN
    top, bottom = 64, 0
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        if panel["type"] == "row":
            wanted = panel["title"] in ROWS
            if wanted:
                offset = place["y"] if offset is None else offset
                y = top + (place["y"] - offset) * UNIT
                parts.append(draw.label("⌄  " + panel["title"], MARGIN + 2, y + 20, 15, draw.TEXT, weight="600"))
            continue
        if not wanted:
            continue
        x = MARGIN + place["x"] * COLUMN
        y = top + (place["y"] - offset) * UNIT
        wide, tall = place["w"] * COLUMN - GAP, place["h"] * UNIT - GAP
        inside = draw.panel_svg(panel, answers(address, panel, start, end), start, end, wide, tall)
        parts.append(f'<svg x="{x}" y="{y}" width="{wide}" height="{tall}">{inside}</svg>')
        bottom = max(bottom, y + tall)
    height = bottom + MARGIN
    note = "Preview, not Grafana: the dashboard's own queries, answered by a real Prometheus, drawn by grafana/preview"
    head = (f'<rect width="{width}" height="{height}" fill="#111217"/>'
            + draw.label(dashboard["title"], MARGIN, 36, 22, "#ffffff", weight="600")
            + f'<rect x="{width - MARGIN - 800}" y="14" width="800" height="30" rx="15" fill="#1f60c4" fill-opacity="0.35"/>'
            + draw.label(note, width - MARGIN - 400, 34, 13, "#d8e6ff", "middle"))
    svg = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'font-family="Inter, DejaVu Sans, sans-serif">{head}{"".join(parts)}</svg>')
    return svg, width, height


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--seconds", type=int, default=240, help="how long the applications run")
    options.add_argument("--binary", default=str(ROOT / "target/release/lockwarden"))
    options.add_argument("--output", default=str(ROOT / "docs/images/dashboard.png"))
    chosen = options.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or sys.exit("chromium is not installed")
    running = []
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        try:
            (directory / "lockwarden.toml").write_text(CONFIGURATION, encoding="utf-8")
            proxy = subprocess.Popen([chosen.binary, "run", "--config", directory / "lockwarden.toml"],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            running.append(proxy)
            listen, admin = listening(proxy, ['"listen":"', '"admin":"'])
            follow(proxy)
            (directory / "prometheus.yml").write_text(
                f"global: {{scrape_interval: {SCRAPE_SECONDS}s, scrape_timeout: {SCRAPE_SECONDS}s}}\nscrape_configs:\n"
                f"  - job_name: lockwarden\n    static_configs: [{{targets: ['{admin}']}}]\n", encoding="utf-8")
            prometheus = subprocess.Popen(
                ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
                 "--web.listen-address=127.0.0.1:0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            running.append(prometheus)
            (address,) = listening(prometheus, ['Listening on" address='])
            follow(prometheus)
            time.sleep(3 * SCRAPE_SECONDS)
            start = time.time()
            traffic.play(int(listen.rsplit(":", 1)[1]), chosen.seconds)
            svg, width, height = picture(address, start + 6 * SCRAPE_SECONDS, start + chosen.seconds - 2)
        finally:
            for process in running:
                process.terminate()
                process.wait()
        page = directory / "page.html"
        page.write_text(f"<!doctype html><meta charset=utf-8><style>body{{margin:0}}svg{{display:block}}</style>{svg}",
                        encoding="utf-8")
        Path(chosen.output).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                        f"--window-size={width},{height}", f"--screenshot={chosen.output}", f"file://{page}"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    print(chosen.output)


if __name__ == "__main__":
    main()
