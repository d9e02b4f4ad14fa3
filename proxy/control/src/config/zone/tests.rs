use proptest::prelude::*;

use super::*;

/// A file with these changes and this rule for the years behind them.
fn file(offsets: &[i32], changes: &[(i64, u8)], rule: &str) -> Vec<u8> {
    let header = |times: usize, types: usize| {
        let mut header = b"TZif2".to_vec();
        header.extend([0; 15]);
        for count in [0, 0, 0, times, types, 4] {
            header.extend(u32::try_from(count).expect("it is small").to_be_bytes());
        }
        header
    };
    let mut file = header(0, 1);
    file.extend([0; 6 + 4]);
    file.extend(header(changes.len(), offsets.len()));
    file.extend(changes.iter().flat_map(|(from, _)| from.to_be_bytes()));
    file.extend(changes.iter().map(|(_, kind)| kind));
    for offset in offsets {
        file.extend(offset.to_be_bytes());
        file.extend([0, 0]);
    }
    file.extend(b"LMT\0");
    file.extend(format!("\n{rule}\n").bytes());
    file
}

/// The hour and minute on the wall.
fn clock_at(zone: &Zone, now_s: i64) -> (i64, i64) {
    let minute = zone.minute(u64::try_from(now_s).expect("it is after 1970") * 1_000);
    (minute.div_euclid(60).rem_euclid(24), minute.rem_euclid(60))
}

const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

#[test]
fn a_rule_of_a_file_says_when_the_clock_changes() {
    let berlin = from_file(&file(&[3_600, 7_200], &[(846_378_000, 0)], BERLIN)).unwrap();
    // 2026-03-29 01:00 and 2026-10-25 01:00, UTC.
    for (now_s, clock) in [
        (1_774_745_999, (1, 59)),
        (1_774_746_000, (3, 0)),
        (1_792_889_999, (2, 59)),
        (1_792_890_000, (2, 0)),
        // 2075-07-01 12:00, the last year but one.
        (3_329_208_000, (14, 0)),
    ] {
        assert_eq!(clock_at(&berlin, now_s), clock, "{now_s}");
    }
}

#[test]
fn a_file_is_believed_before_its_rule() {
    // A month in 2026 without the change, as Morocco has one around Ramadan.
    let zone = from_file(&file(&[3_600, 0], &[(1_771_120_800, 1), (1_774_148_400, 0)], "<+01>-1")).unwrap();
    assert_eq!(clock_at(&zone, 1_771_120_799), (2, 59));
    assert_eq!(clock_at(&zone, 1_771_120_800), (2, 0));
    assert_eq!(clock_at(&zone, 1_774_148_400), (4, 0));
}

#[test]
fn rules_of_every_form_are_read() {
    for (rule, winter, summer) in [
        ("EST5EDT,M3.2.0,M11.1.0", (7, 0), (8, 0)),
        ("AEST-10AEDT,M10.1.0,M4.1.0/3", (23, 0), (22, 0)),
        ("IST-1GMT0,M10.5.0,M3.5.0/1", (12, 0), (13, 0)),
        ("<-03>3<-02>,M3.5.0/-2,M10.5.0/-1", (9, 0), (10, 0)),
        ("<+0330>-3:30<+0430>,J79/24,J263/24", (15, 30), (16, 30)),
        ("EST5EDT,59,300", (7, 0), (8, 0)),
        ("IST-5:30", (17, 30), (17, 30)),
    ] {
        let zone = from_file(&file(&[0], &[], rule)).unwrap_or_else(|| panic!("{rule}"));
        // Noon of 2026-01-15 and 2026-07-15, UTC.
        assert_eq!((clock_at(&zone, 1_768_478_400), clock_at(&zone, 1_784_116_800)), (winter, summer), "{rule}");
    }
    for rule in [
        "C1",
        "CET",
        "CET-1CEST",
        "CET-1CEST,M3.5.0",
        "CET-1CEST,M13.5.0,M10.5.0",
        "CET-1CEST,M3.5.0,M1.2.3.4",
        "CET-25",
    ] {
        assert!(from_file(&file(&[0], &[], rule)).is_none(), "{rule}");
    }
}

#[test]
fn days_are_counted_by_the_calendar() {
    for (date, days) in [
        ((1970, 1, 1), 0),
        ((2000, 2, 29), 11_016),
        ((2000, 3, 1), 11_017),
        ((2026, 11, 26), 20_783),
        ((1969, 12, 31), -1),
    ] {
        assert_eq!(day(date.0, date.1, date.2), days, "{date:?}");
    }
}

#[test]
fn names_and_distances_are_told_apart_and_nothing_else_is_opened() {
    let zones = tempfile::tempdir().unwrap();
    std::fs::create_dir(zones.path().join("Europe")).unwrap();
    std::fs::write(zones.path().join("Europe/Berlin"), file(&[3_600, 7_200], &[], BERLIN)).unwrap();
    std::fs::write(zones.path().join("Broken"), b"TZif2").unwrap();
    let named = |name: &str| named_in(zones.path(), name);
    assert_eq!(named("UTC").unwrap(), Zone::default());
    assert_eq!(clock_at(&named("+05:30").unwrap(), 0), (5, 30));
    assert_eq!(clock_at(&named("-03:00").unwrap(), 0), (21, 0));
    assert_eq!(clock_at(&named("Europe/Berlin").unwrap(), 1_774_746_000), (3, 0));
    for (name, words) in [
        ("", "\"\" is no zone; write a name such as \"Europe/Berlin\""),
        ("../../etc/passwd", "is no zone"),
        ("/etc/passwd", "is no zone"),
        ("Europe//Berlin", "is no zone"),
        ("+5", "is no zone"),
        ("+15:00", "is no zone"),
        ("Europe", "this machine knows no zone \"Europe\""),
        ("Europe/Berln", "this machine knows no zone \"Europe/Berln\""),
        ("Broken", "the file of \"Broken\" is no time zone"),
    ] {
        let error = named(name).unwrap_err().to_string();
        assert!(error.contains(words), "{name}: {error}");
    }
    let missing = named_in(Path::new("/nowhere"), "Europe/Berlin").unwrap_err().to_string();
    assert!(missing.contains("install tzdata"), "{missing}");
}

proptest! {
    #[test]
    fn no_file_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), rule in "[A-Z<>,./:MJ0-9+-]{0,40}", cut in 0_usize..120) {
        from_file(&bytes);
        let whole = file(&[3_600, 7_200], &[(0, 1), (5, 0)], &rule);
        from_file(&whole);
        from_file(&whole[..cut.min(whole.len())]);
        let mut other = whole.clone();
        other[44 + cut % 40] ^= 0xff;
        from_file(&other);
    }
}
