//! `lockwarden top` in a terminal: what the screen shows, what the keys do, and that the terminal is restored at the end.

use std::process::Command;

use lockwarden_tests::{ADMIN_TOKEN, Client, Forwarder, Proxy, Redis, Terminal, lockwarden, run_to_end, wait_for};

/// `lockwarden top` of these proxies, looking often.
fn top(proxies: &[String]) -> Command {
    let mut command = lockwarden(&["top", "--interval", "200ms"]);
    command.env("LOCKWARDEN_ADMIN_TOKEN", ADMIN_TOKEN);
    match proxies {
        [one] => {
            command.env("LOCKWARDEN_ADMIN", one);
        }
        several => {
            command.arg("--fleet").arg(several.join(","));
        }
    }
    command
}

fn of(proxy: &Proxy) -> Command {
    top(&[proxy.admin_address().to_string()])
}

fn named(proxy: &Proxy, name: &str) -> Client {
    let client = proxy.client();
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    client
}

/// In which line these words stand.
fn place(lines: &[String], words: &str) -> Option<usize> {
    lines.iter().position(|line| line.contains(words))
}

#[test]
fn locks_applications_and_refusals_are_shown_while_they_change() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let terminal = Terminal::start(&mut of(&proxy), 80, 24);
    let lines = terminal.shows_words("no lock is held");
    assert!(lines[0].starts_with("lockwarden top · held 0"), "{lines:?}");
    assert!(lines[1].contains("1 Locks 0"), "{lines:?}");
    assert!(lines[23].starts_with("q quit  Tab list"), "{lines:?}");
    let (holder, stranger) = (named(&proxy, "billing-7"), named(&proxy, "stock-2"));
    holder.sends("SET lock:a a1 NX PX 60000").gets("+OK");
    holder.sends("SET lock:b b1 NX PX 90000").gets("+OK");
    let refused = stranger.sends("SET lock:a s1").gets_error("LOCKDENIED");
    let lines =
        terminal.shows("both locks", |lines| place(lines, "lock:a").is_some() && place(lines, "lock:b").is_some());
    let row = &lines[place(&lines, "lock:a").expect("it is there")];
    for words in ["lock:a", "held", "billing-7", " s"] {
        assert!(row.contains(words), "{words}: {row}");
    }
    assert!(lines[2].starts_with("KEY"), "{lines:?}");
    assert!(lines[2].contains("STATE ▲"), "{lines:?}");
    // The further details of the chosen row.
    assert!(lines[21].starts_with("KEY lock:a"), "{lines:?}");

    terminal.types("\t");
    let lines = terminal.shows_words("APPLICATION");
    assert!(place(&lines, "billing-7").is_some(), "{lines:?}");
    let row = &lines[place(&lines, "stock-2").expect("it is there")];
    assert!(row.contains("no"), "it is not ready: {row}");
    terminal.types("3");
    let id = refused.split("id=").nth(1).expect("an id");
    let lines = terminal.shows_words(id.split(' ').next().expect("an id"));
    let row = &lines[place(&lines, "overwrite").expect("the reason")];
    assert!(row.contains("lock:a") && row.contains("ago"), "{row}");

    terminal.types("1");
    holder.sends("DEL lock:a").gets(":1");
    terminal.shows("the lock to go", |lines| place(lines, "lock:a").is_none() && place(lines, "lock:b").is_some());
    terminal.types("q");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_list_is_sorted_turned_round_and_filtered_by_keys() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let holder = named(&proxy, "billing-7");
    for (key, ttl) in [("lock:b", 3_000_000), ("lock:c", 1_000_000), ("lock:a", 2_000_000)] {
        holder.sends(format!("SET {key} x NX PX {ttl}")).gets("+OK");
    }
    let terminal = Terminal::start(&mut of(&proxy), 100, 20);
    let keys = |lines: &[String]| -> String {
        let rows = lines[3..].iter().filter(|line| line.starts_with("lock:"));
        rows.filter_map(|row| row.chars().nth(5)).collect()
    };
    let shows = |expected: &str| {
        terminal.shows(expected, |lines| keys(lines) == expected);
    };
    shows("bca");
    // From STATE on to the right: HOLDER, AGE, TTL LEFT; the left ones by the arrow of the terminal.
    terminal.types("l");
    terminal.shows_words("HOLDER ▲");
    terminal.types("\u{1b}[C");
    terminal.shows_words("AGE ▼");
    terminal.types(">");
    terminal.shows_words("TTL LEFT ▼");
    shows("bac");
    terminal.types("r");
    terminal.shows_words("TTL LEFT ▲");
    shows("cab");
    terminal.types("hhh\u{1b}[D<");
    terminal.shows_words("KEY ▲");
    shows("abc");
    // The row that was chosen stays so, wherever it stands.
    terminal.types("j");
    terminal.shows_words("KEY lock:b");
    terminal.types("r");
    shows("cba");
    terminal.types("\u{1b}[B");
    terminal.shows_words("KEY lock:a");

    // Letters that are keys elsewhere are letters here.
    terminal.types("/LOCK:q");
    terminal.shows_words("nothing matches the filter");
    terminal.shows_words("filter: LOCK:q_");
    terminal.types("\u{7f}B\r");
    shows("b");
    terminal.shows_words("filter: LOCK:B");
    terminal.types("\u{1b}");
    shows("cba");
    terminal.types("p");
    terminal.shows_words("paused");
    holder.sends("DEL lock:a").gets(":1");
    holder.sends("SET lock:d x NX PX 900000").gets("+OK");
    terminal.types("p");
    shows("dcb");
    // Ctrl-C, which is a key here.
    terminal.types("\u{3}");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_small_screen_shows_what_matters_most() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let holder = named(&proxy, "billing-7");
    holder.sends("SET lock:an-order-with-a-long-name:4711 x NX PX 60000").gets("+OK");
    let terminal = Terminal::start(&mut of(&proxy), 30, 8);
    let lines = terminal.shows_words("lock:an-");
    assert!(lines[2].starts_with("KEY"), "{lines:?}");
    assert!(lines[2].contains("AGE"), "{lines:?}");
    assert!(!lines[2].contains("FENCE"), "{lines:?}");
    assert!(lines[3].contains('…'), "{lines:?}");
    assert!(lines[7].starts_with("q quit"), "{lines:?}");
    // Wider and higher, and then with hardly anything.
    terminal.resizes(120, 30);
    let lines = terminal.shows_words("FENCE");
    assert!(place(&lines, "lock:an-order-with-a-long-name:4711").is_some());
    assert!(lines[29].starts_with("q quit"), "{lines:?}");
    for (columns, rows) in [(5, 2), (1, 1)] {
        terminal.resizes(columns, rows);
        terminal.shows("the smallest screen", |lines| lines[0].starts_with('l'));
    }
    terminal.types("q");
    assert_eq!(terminal.ends(), Some(0));
}

/// A terminal obeys what it is sent, and keys and names are chosen by clients.
#[test]
fn hostile_keys_and_names_are_text_on_the_screen() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = named(&proxy, "=cmd|<script>");
    client.sends_arguments(&[&b"SET"[..], b"lock:\x1b]0;owned\x07\xff\r\n", b"1", b"NX", b"PX", b"60000"]).gets("+OK");
    client.sends_arguments(&[&b"APPEND"[..], b"lock:\x1b]0;owned\x07\xff\r\n", b"x"]).gets_error("LOCKDENIED");
    let terminal = Terminal::start(&mut of(&proxy), 120, 24);
    terminal.shows_words(r"lock:\x1b]0;owned\x07\xff\x0d\x0a");
    terminal.types("2");
    terminal.shows_words("=cmd|<script>");
    terminal.types("3");
    terminal.shows_words(r"lock:\x1b]0;owned");
    terminal.types("/\u{7}\u{9b}x");
    terminal.shows_words("filter: ");
    terminal.types("\u{3}");
    let bytes = terminal.bytes();
    assert_eq!(terminal.ends(), Some(0));
    let has = |words: &[u8]| bytes.windows(words.len()).any(|some| some == words);
    assert!(!has(b"\x1b]") && !has(b"\x07"), "the terminal was told so");
}

#[test]
fn a_proxy_that_is_gone_is_said_and_asked_again() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let holder = named(&proxy, "billing-7");
    holder.sends("SET lock:a x NX PX 60000").gets("+OK");
    let line = Forwarder::to(proxy.admin_address());
    let terminal = Terminal::start(&mut top(&[line.address().to_string()]), 100, 24);
    terminal.shows_words("lock:a");
    // Nothing listens there: the port is reserved.
    line.leads_to(([127, 0, 0, 1], 1).into());
    let lines = terminal.shows_words("; trying on");
    assert!(place(&lines, "this is what was so").is_some(), "{lines:?}");
    assert!(place(&lines, "cannot be reached").is_some(), "{lines:?}");
    assert!(place(&lines, "billing-7").is_some(), "{lines:?}");
    holder.sends("SET lock:b x NX PX 60000").gets("+OK");
    line.leads_to(proxy.admin_address());
    let lines = terminal.shows_words("lock:b");
    assert!(place(&lines, "trying on").is_none(), "{lines:?}");
    terminal.signals(libc::SIGTERM);
    assert_eq!(terminal.ends(), Some(128 + libc::SIGTERM));
}

#[test]
fn several_proxies_are_on_one_screen_and_one_that_is_silent_has_a_line() {
    let redis = Redis::start();
    let (one, two) = (Proxy::enforcing(&redis), Proxy::enforcing(&redis));
    let (billing, stock) = (named(&one, "billing-7"), named(&two, "stock-2"));
    billing.sends("SET lock:a x NX PX 60000").gets("+OK");
    stock.sends("SET lock:b x NX PX 60000").gets("+OK");
    let addresses = [one.admin_address().to_string(), two.admin_address().to_string(), "127.0.0.1:1".to_owned()];
    let terminal = Terminal::start(&mut top(&addresses), 120, 24);
    let lines = terminal
        .shows("both holders", |lines| place(lines, "billing-7").is_some() && place(lines, "stock-2").is_some());
    assert!(lines[2].starts_with("PROXY"), "{lines:?}");
    assert!(lines[0].contains("held 2"), "{lines:?}");
    for (words, address) in [("billing-7", &addresses[0]), ("stock-2", &addresses[1])] {
        let row = &lines[place(&lines, words).expect("its row")];
        assert!(row.starts_with(address.as_str()), "{row}");
    }
    assert!(place(&lines, "127.0.0.1:1: the admin address").is_some(), "{lines:?}");
    drop(stock);
    two.kill();
    terminal.shows("the lock of the one that is left", |lines| {
        place(lines, "stock-2").is_none()
            && place(lines, "billing-7").is_some()
            && lines.iter().any(|line| line.contains(&format!("{}: the admin", addresses[1])))
    });
    terminal.types("q");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn top_says_what_it_needs() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let said = run_to_end(&mut of(&proxy));
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("needs a terminal"), "{said:?}");
    assert_eq!(said.stdout, "");
    // A proxy that cannot be reached at the start is reported as by any other command.
    let nobody = || vec!["127.0.0.1:1".to_owned()];
    for proxies in [nobody(), [nobody(), nobody()].concat()] {
        let terminal = Terminal::start(&mut top(&proxies), 80, 24);
        terminal.shows_words("cannot be reached");
        assert!(!terminal.is_full_screen());
        assert_eq!(terminal.ends(), Some(3));
    }
    // A terminal that is closed takes the program along.
    let terminal = Terminal::start(&mut of(&proxy), 80, 24);
    terminal.shows_words("no lock is held");
    terminal.signals(libc::SIGHUP);
    assert_eq!(terminal.ends(), Some(128 + libc::SIGHUP));
    wait_for("nobody to ask any more", || proxy.ready() == Some(200));
}
