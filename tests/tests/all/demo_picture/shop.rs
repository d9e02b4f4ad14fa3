//! `lockwarden demo --guard`: what it says of both shops, and the picture of a run of it in the README. A new picture:
//! `UPDATE_DOCS=1 cargo test -p lockwarden-tests --test all demo_picture::shop`.

use std::time::{Duration, Instant};

use lockwarden_tests::{lockwarden, run_to_end};

use crate::documentation::{page, repository};

const PICTURE: &str = "docs/images/guard.svg";
const AGAIN: &str = "UPDATE_DOCS=1 cargo test -p lockwarden-tests --test all demo_picture::shop";
const ITEMS: usize = 100;

/// What is said of a shop.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    sold: usize,
    oversold: usize,
    refused: usize,
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

/// The two lines of a text that say what was sold.
fn both(text: &str) -> [Said; 2] {
    // In a picture such a line stands between two tags.
    let lines = text.split(['\n', '<', '>']).filter(|line| line.contains(" sold of "));
    let said: Vec<Said> = lines.map(|line| Said::of(line.trim())).collect();
    said.try_into().unwrap_or_else(|said| panic!("these are not two shops: {said:?} {text}"))
}

/// How often a command occurs in the path of this class, over all such paths.
fn drawn(svg: &str, class: &str, command: char) -> Vec<usize> {
    let begins = format!("<path class=\"{class}\" d=\"");
    let paths = svg.split(&begins).skip(1);
    paths.map(|rest| rest.split('"').next().unwrap_or_default().matches(command).count()).collect()
}

/// A picture is drawn from the writes of a run if its lines have as many steps as its words say.
fn is_from_a_run(svg: &str) {
    let [straight, kept] = both(svg);
    assert!(straight.oversold > 0 && straight.refused == 0, "{straight:?}");
    let all = Said { sold: ITEMS, oversold: 0, refused: kept.refused };
    assert_eq!(kept, all);
    assert_eq!(drawn(svg, "sold", 'V'), [straight.sold, kept.sold]);
    assert_eq!(drawn(svg, "stock", 'V'), [straight.sold, kept.sold]);
    assert_eq!(drawn(svg, "refused", 'M'), [kept.refused]);
    assert!(drawn(svg, "late", 'M')[0] > 0, "late writes oversell");
}

/// What stays the same from run to run: everything but numbers.
fn frame(svg: &str) -> Vec<String> {
    let lines = svg.lines().filter(|line| !line.contains(" class=\"axes\""));
    let words = |line: &str| match line.split_once(" d=\"") {
        Some((before, after)) => before.to_owned() + after.split_once('"').map_or("", |(_, rest)| rest),
        None => line.to_owned(),
    };
    let mut frame: Vec<String> =
        lines.map(words).map(|line| line.chars().filter(|letter| !letter.is_ascii_digit()).collect()).collect();
    // The axes have as many numbers as the shops have sold.
    frame.dedup();
    frame
}

#[test]
fn a_guard_keeps_a_shop_from_selling_items_twice() {
    let file = picture_file();
    let begun = Instant::now();
    let end = run_to_end(lockwarden(&["demo", "--guard", "--picture"]).arg(&file));
    let took = begun.elapsed();
    let svg = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    assert_eq!(end.code, Some(0), "{end:?}");
    let svg = svg.expect("a picture");
    let [straight, kept] = both(&end.stdout);
    assert!(straight.sold > ITEMS && straight.oversold == straight.sold - ITEMS, "{end:?}");
    assert!(kept.sold == ITEMS && kept.oversold == 0 && kept.refused > 0, "{end:?}");
    assert!(end.stdout.contains("-LOCKDENIED stale-fence key=stock:7 cmd=SET lock=lock_sale_7"), "{end:?}");
    assert_eq!(both(&svg), [straight, kept]);
    assert!(took < Duration::from_secs(15), "{took:?}");
    is_from_a_run(&svg);
    let path = repository().join(PICTURE);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, svg).expect("docs can be written");
        return;
    }
    let known = page(PICTURE);
    is_from_a_run(&known);
    assert_eq!(frame(&known), frame(&svg), "{PICTURE} is old: {AGAIN}");
}

fn picture_file() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("lockwarden-shop-{}.svg", std::process::id()))
}
