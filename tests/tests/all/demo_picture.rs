//! The pictures in the README show what `lockwarden demo` and `lockwarden demo --guard` print, drawn as a terminal. To
//! update them after a change of the demo: `UPDATE_DOCS=1 cargo test -p lockwarden-tests --test all demo_picture`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use lockwarden_tests::{lockwarden, run_to_end};

use crate::documentation::{page, repository};

/// Characters in a line of the drawn terminal.
const COLUMNS: usize = 100;
/// Pixels: a character of 14 px in any monospaced font is at most this wide, and lines are this far apart.
const ADVANCE: f32 = 8.6;
const LINE: usize = 20;
const MARGIN: usize = 20;
/// Items in each shop of `demo --guard`.
const ITEMS: u32 = 100;

/// The lines of a text in a terminal of this width, each with its colour.
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
        _ if line.contains("still holds the lock") || line.contains(": 0 oversold") => "#7ee787",
        _ if line.contains(" oversold") => "#ff7b72",
        _ if line.starts_with(' ') => "#c9d1d9",
        _ => "#ffffff",
    }
}

/// As SVG writes it. Browsers fold spaces in a row, but not those that do not break.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace(' ', "\u{a0}").replace('<', "&lt;").replace('>', "&gt;")
}

fn drawn(command: &str, lines: &[(&str, String)]) -> String {
    let columns = f32::from(u16::try_from(COLUMNS).expect("it is a constant"));
    let width = columns * ADVANCE + 2.0 * 20.0;
    let height = lines.len() * LINE + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" role=\"img\">\n\
         <title>What {command} prints</title>\n\
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

/// The text of a picture without what differs from run to run: numbers, however long, the id of the refusal, and where
/// its line is broken.
fn story(svg: &str) -> String {
    let lines = svg.lines().filter_map(|line| {
        let text = line.strip_prefix("<text ")?.split_once('>')?.1;
        text.strip_suffix("</text>")
    });
    let mut said: String = lines.collect();
    for (begins, ends) in [("\"id\":\"", '"'), ("\u{a0}id=", '\u{a0}')] {
        if let Some((before, rest)) = said.split_once(begins) {
            let after = rest.split_once(ends).map_or("", |(_, after)| after);
            said = format!("{before}{begins}{ends}{after}");
        }
    }
    let without_numbers = said.split(|letter: char| letter.is_ascii_digit());
    without_numbers.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("0")
}

/// Compares the picture with one of what the command has printed, or draws it anew.
#[track_caller]
fn is_drawn(picture: &str, command: &str, printed: &str) {
    let told = wrapped(&format!("$ {command}\n{printed}"));
    let svg = drawn(command, &told);
    assert!(told.len() > 15 && story(&svg).len() > 500, "{svg}");
    let path = repository().join(picture);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, svg).expect("docs can be written");
        return;
    }
    assert_eq!(
        story(&page(picture)),
        story(&svg),
        "{picture} is old: UPDATE_DOCS=1 cargo test -p lockwarden-tests --test all demo_picture"
    );
}

#[test]
fn the_picture_of_the_demo_is_what_the_demo_prints() {
    let end = run_to_end(&mut lockwarden(&["demo"]));
    assert_eq!(end.code, Some(0), "{end:?}");
    is_drawn("docs/images/demo.svg", "lockwarden demo", &end.stdout);
}

/// The numbers of a shop.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    sold: u32,
    oversold: u32,
    refused: u32,
}

impl Said {
    /// Of a line such as `100 sold of 100: 0 oversold, 37 late writes refused`.
    fn of(line: &str) -> Said {
        let number = |before: &str| {
            let text = line.split(before).next().filter(|text| text.len() < line.len());
            let word = text.and_then(|text| text.rsplit(' ').next());
            word.map_or(0, |word| word.parse().expect("a number"))
        };
        Said { sold: number(" sold of 100"), oversold: number(" oversold"), refused: number(" late writes refused") }
    }
}

#[test]
fn a_guard_keeps_a_shop_from_selling_items_twice() {
    let begun = Instant::now();
    let end = run_to_end(&mut lockwarden(&["demo", "--guard"]));
    let took = begun.elapsed();
    assert_eq!(end.code, Some(0), "{end:?}");
    let said = end.stdout.lines().filter(|line| line.contains(" sold of "));
    let said: Vec<Said> = said.map(|line| Said::of(line.trim())).collect();
    let [straight, kept] = &said[..] else { panic!("two shops: {end:?}") };
    assert!(straight.sold > ITEMS && straight.oversold == straight.sold - ITEMS && straight.refused == 0, "{end:?}");
    assert!(kept.sold == ITEMS && kept.oversold == 0 && kept.refused > 0, "{end:?}");
    assert!(end.stdout.contains("-LOCKDENIED stale-fence key=stock:7 cmd=SET lock=lock_sale_7"), "{end:?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    is_drawn("docs/images/guard.svg", "lockwarden demo --guard", &end.stdout);
}
