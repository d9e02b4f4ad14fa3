//! The stock of both shops over time, and how much they sold, as SVG. Every line is drawn from the writes of a run.

use std::fmt::Write as _;
use std::time::Duration;

use super::sales::{ITEMS, Sales};

/// Pixels.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 380.0;
const PANEL_WIDTH: f64 = 385.0;
const PANEL_HEIGHT: f64 = 220.0;
/// The upper left corners of both panels.
const LEFT: f64 = 50.0;
const RIGHT: f64 = 485.0;
const TOP: f64 = 90.0;

const BACKGROUND: &str = "#0d1117";
const GRID: &str = "#30363d";
const QUIET: &str = "#8b949e";
const PLAIN: &str = "#c9d1d9";
const BAD: &str = "#ff7b72";
const GOOD: &str = "#7ee787";
/// From its middle.
const CROSS: &str = "m-3-3l6 6m0-6l-6 6";

/// What the axes of both shops show, so that they can be compared.
#[derive(Clone, Copy)]
struct Axes {
    seconds: f64,
    items: u32,
}

/// Draws both shops, side by side.
pub(super) fn drawn(straight: &Sales, kept: &Sales) -> String {
    let both = [straight, kept];
    let ends = both.into_iter().filter_map(|sales| sales.writes.last());
    let seconds = ends.map(|last| last.at.as_secs_f64()).fold(1.0, f64::max);
    let most = both.map(|sales| sales.sold()).into_iter().max();
    let most = most.and_then(|most| u32::try_from(most).ok());
    let axes = Axes { seconds: seconds.ceil(), items: most.unwrap_or(ITEMS).next_multiple_of(ITEMS / 4) };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <title>What two shops sold, and their stock over time, drawn by lockwarden demo --guard</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\" font-size=\"13\">\n"
    );
    let bad = Panel {
        left: LEFT,
        axes,
        title: "Straight to Redis",
        colour: BAD,
        marks: "late",
        legend: "a late write puts sold items back",
    };
    let good = Panel {
        left: RIGHT,
        axes,
        title: "Through lockwarden, with a guard",
        colour: GOOD,
        marks: "refused",
        legend: "a late write is refused",
    };
    bad.draws(&mut svg, straight);
    good.draws(&mut svg, kept);
    svg + "</g>\n</svg>\n"
}

struct Panel {
    left: f64,
    axes: Axes,
    title: &'static str,
    /// Of what was sold.
    colour: &'static str,
    /// How the late writes are called.
    marks: &'static str,
    legend: &'static str,
}

impl Panel {
    fn draws(&self, svg: &mut String, sales: &Sales) {
        text(svg, (self.left, TOP - 48.0), "#ffffff", self.title);
        let verdict = sales.in_words();
        text(svg, (self.left, TOP - 24.0), self.colour, &verdict);
        self.draws_axes(svg);
        self.draws_writes(svg, sales);
        self.draws_legend(svg);
    }

    fn draws_axes(&self, svg: &mut String) {
        let mut lines = String::new();
        for items in (0..=self.axes.items).step_by(ITEMS as usize / 2) {
            let y = self.height(items);
            lines += &format!("M{} {y:.1}H{}", self.left, self.left + PANEL_WIDTH);
            text(svg, (self.left - 30.0, y + 4.0), QUIET, &items.to_string());
        }
        path(svg, ("axes", GRID), &lines);
        let below = TOP + PANEL_HEIGHT + 18.0;
        text(svg, (self.left, below), QUIET, "0 s");
        let end = format!("{:.0} s", self.axes.seconds);
        text(svg, (self.left + PANEL_WIDTH - 24.0, below), QUIET, &end);
    }

    /// What was sold, the stock, and the writes of those who came late.
    fn draws_writes(&self, svg: &mut String, sales: &Sales) {
        let (mut stock, mut sold) = (ITEMS, 0);
        let mut stock_line = format!("M{} {:.1}", self.left, self.height(stock));
        let mut sold_line = format!("M{} {:.1}", self.left, self.height(sold));
        let mut late = String::new();
        for write in &sales.writes {
            let (x, y) = (self.at(write.at), self.height(write.stock));
            if write.is_refused || write.stock >= stock {
                late += &format!("M{x:.1} {y:.1}{CROSS}");
            }
            if write.is_refused {
                continue;
            }
            (stock, sold) = (write.stock, sold + 1);
            stock_line += &format!("H{x:.1}V{y:.1}");
            sold_line += &format!("H{x:.1}V{:.1}", self.height(sold));
        }
        path(svg, ("stock", PLAIN), &stock_line);
        path(svg, ("sold", self.colour), &sold_line);
        path(svg, (self.marks, BAD), &late);
    }

    fn draws_legend(&self, svg: &mut String) {
        let (x, y) = (self.left, TOP + PANEL_HEIGHT + 46.0);
        let dash = |x: f64| format!("M{x} {:.1}h14", y - 4.0);
        path(svg, ("legend", self.colour), &dash(x));
        text(svg, (x + 20.0, y), QUIET, "sold");
        path(svg, ("legend", PLAIN), &dash(x + 70.0));
        text(svg, (x + 90.0, y), QUIET, "stock");
        let cross = format!("M{} {:.1}{CROSS}", x + 147.0, y - 4.0);
        path(svg, ("legend", BAD), &cross);
        text(svg, (x + 160.0, y), QUIET, self.legend);
    }

    fn at(&self, time: Duration) -> f64 {
        self.left + time.as_secs_f64() / self.axes.seconds * PANEL_WIDTH
    }

    fn height(&self, items: u32) -> f64 {
        TOP + PANEL_HEIGHT * (1.0 - f64::from(items) / f64::from(self.axes.items))
    }
}

fn path(svg: &mut String, (class, colour): (&str, &str), line: &str) {
    // Writing to a String cannot fail.
    let _ =
        writeln!(svg, "<path class=\"{class}\" d=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
}

fn text(svg: &mut String, (x, y): (f64, f64), colour: &str, words: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" fill=\"{colour}\">{words}</text>");
}
