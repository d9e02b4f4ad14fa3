//! The picture at the head of the README is what `lockwarden demo` prints, drawn as a terminal. After a change of the
//! demo: `UPDATE_DOCS=1 cargo test -p lockwarden-tests --test all demo_picture`.

mod shop;

use std::fmt::Write as _;

use lockwarden_tests::{lockwarden, run_to_end};

use crate::documentation::{page, repository};

/// Characters in a line of the drawn terminal.
const COLUMNS: usize = 100;
/// Pixels: a character of 14 px in any monospaced font is at most this wide, and lines are this far apart.
const ADVANCE: f32 = 8.6;
const LINE: usize = 20;
const MARGIN: usize = 20;
const PICTURE: &str = "docs/images/demo.svg";

/// What a terminal of this width makes of a text: its lines, each with its colour.
fn wrapped(text: &str) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let characters: Vec<char> = line.chars().collect();
        match characters.is_empty() {
            true => lines.push((colour(line), String::new())),
            false => lines.extend(characters.chunks(COLUMNS).map(|part| (colour(line), String::from_iter(part)))),
        }
    }
    lines
}

fn colour(line: &str) -> &'static str {
    match line {
        _ if line.starts_with("$ ") => "#7ee787",
        _ if line.contains("has lost its lock") => "#ff7b72",
        _ if line.contains("still holds the lock") => "#7ee787",
        _ if line.starts_with(' ') => "#c9d1d9",
        _ => "#ffffff",
    }
}

/// As SVG writes it. Browsers fold spaces in a row, but not those that do not break.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace(' ', "\u{a0}").replace('<', "&lt;").replace('>', "&gt;")
}

fn drawn(lines: &[(&str, String)]) -> String {
    let columns = f32::from(u16::try_from(COLUMNS).expect("it is a constant"));
    let width = columns * ADVANCE + 2.0 * 20.0;
    let height = lines.len() * LINE + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" role=\"img\">\n\
         <title>What lockwarden demo prints</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\">\n"
    );
    for (number, (fill, line)) in lines.iter().enumerate() {
        let (x, y) = (MARGIN, MARGIN + 14 + number * LINE);
        let text = escaped(line);
        writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"{fill}\">{text}</text>").expect("a String takes everything");
    }
    svg + "</g>\n</svg>\n"
}

/// What a picture says, without what differs from run to run: numbers, however long, the name of the record, and where its
/// line is broken.
fn story(svg: &str) -> String {
    let lines = svg.lines().filter_map(|line| {
        let text = line.strip_prefix("<text ")?.split_once('>')?.1;
        text.strip_suffix("</text>")
    });
    let mut said: String = lines.collect();
    if let Some((before, rest)) = said.split_once("\"id\":\"") {
        let after = rest.split_once('"').map_or("", |(_, after)| after);
        said = format!("{before}\"id\":\"\"{after}");
    }
    let without_numbers = said.split(|letter: char| letter.is_ascii_digit());
    without_numbers.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("0")
}

#[test]
fn the_picture_of_the_demo_is_what_the_demo_prints() {
    let end = run_to_end(&mut lockwarden(&["demo"]));
    assert_eq!(end.code, Some(0), "{end:?}");
    let told = wrapped(&format!("$ lockwarden demo\n{}", end.stdout));
    let svg = drawn(&told);
    assert!(told.len() > 15 && story(&svg).len() > 500, "{svg}");
    let path = repository().join(PICTURE);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, svg).expect("docs can be written");
        return;
    }
    assert_eq!(
        story(&page(PICTURE)),
        story(&svg),
        "{PICTURE} is old: UPDATE_DOCS=1 cargo test -p lockwarden-tests --test all demo_picture"
    );
}
