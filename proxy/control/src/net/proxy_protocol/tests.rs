use proptest::prelude::*;

use super::*;

fn complete(header: &[u8], source: Option<&str>) {
    let said = Said { source: source.map(|source| source.parse().unwrap()), extensions: Extensions::default() };
    complete_as(header, said);
}

fn complete_as(header: &[u8], said: Said) {
    let length = header.len();
    let expected = Progress::Complete { length, said };
    let shown = header.escape_ascii().to_string();
    // What follows is not looked at, and no part of it is taken for the whole.
    let longer = [header, b"*1\r\n$4\r\nPING\r\n"].concat();
    assert_eq!(progress(&longer).ok(), Some(expected), "{shown}");
    for end in 0..header.len() {
        let part = progress(&header[..end]);
        assert_eq!(part.ok(), Some(Progress::Incomplete), "{end} of {shown}");
    }
}

fn version_2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [BINARY_BEGINS, &[command, family], &length, body].concat()
}

const OVER_IPV4: &[u8] = &[10, 1, 2, 3, 10, 9, 9, 9, 0x9c, 0x40, 0x18, 0xeb];

#[test]
fn headers_say_where_a_client_comes_from() {
    complete(b"PROXY TCP4 10.1.2.3 10.9.9.9 40000 6379\r\n", Some("10.1.2.3:40000"));
    complete(b"PROXY TCP6 2001:db8::1 ::1 40000 6379\r\n", Some("[2001:db8::1]:40000"));
    complete(b"PROXY UNKNOWN\r\n", None);
    complete(b"PROXY UNKNOWN ff:ff anything 1 2 3\r\n", None);

    complete(&version_2(0x21, TCP_OVER_IPV4, OVER_IPV4), Some("10.1.2.3:40000"));
    let mut over_ipv6 = [0; 36];
    over_ipv6[15] = 1;
    over_ipv6[33] = 7;
    complete(&version_2(0x21, TCP_OVER_IPV6, &over_ipv6), Some("[::1]:7"));
    complete(&version_2(0x21, UNSPECIFIED, b""), None);
    complete(&version_2(0x21, UNIX_STREAM, &[0; 216]), None);
    complete(&version_2(0x20, TCP_OVER_IPV4, OVER_IPV4), None);
    complete(&version_2(0x20, 0xff, b""), None);
}

const NAME_AND_ENDPOINT: &[u8] = b"\x20\0\x0c\x07\0\0\0\0\x22\0\x04shop\xea\0\x07\x01vpce-1";

#[test]
fn extensions_say_the_name_in_a_certificate_and_the_endpoint() {
    let whole = Extensions::read(NAME_AND_ENDPOINT);
    assert!(whole.common_name.is_some() && whole.endpoint.is_some());
    let with = |family: u8, addresses: &[u8], source: Option<&str>| {
        let body = [addresses, NAME_AND_ENDPOINT].concat();
        let said = Said { source: source.map(|source| source.parse().unwrap()), extensions: whole.clone() };
        complete_as(&version_2(0x21, family, &body), said);
    };
    with(TCP_OVER_IPV4, OVER_IPV4, Some("10.1.2.3:40000"));
    with(TCP_OVER_IPV6, &[0; 36], Some("[::]:0"));
    with(UNIX_STREAM, &[0; 216], None);
    // Of the balancer's own connection, and of one without a known kind of address, nothing is taken.
    complete(&version_2(0x20, TCP_OVER_IPV4, &[OVER_IPV4, NAME_AND_ENDPOINT].concat()), None);
    complete(&version_2(0x21, UNSPECIFIED, NAME_AND_ENDPOINT), None);
}

#[test]
fn other_extensions_are_passed_over_whatever_they_are() {
    let with = |extensions: &[u8]| {
        let body = [OVER_IPV4, extensions].concat();
        complete(&version_2(0x21, TCP_OVER_IPV4, &body), Some("10.1.2.3:40000"));
    };
    with(&[0xea, 0, 3, b'v', b'p', b'c']);
    with(&[0x20, 0, 1, 7]);
    with(&[0x03, 0, 4, 1, 2, 3, 4]);
    with(&[0xff, 0xff, 0xff]);
    with(&[0; 4000]);
}

#[test]
fn what_is_no_header_is_refused_at_its_first_wrong_byte() {
    for wrong in [
        &b"*1\r\n$4\r\nPING\r\n"[..],
        b"X",
        b"PROXX",
        b"proxy TCP4",
        b"\r\n\r\n\0\r\nQUIX",
        b"PROXY TCP4 10.1.2.3 10.9.9.9 40000\r\n",
        b"PROXY TCP4 10.1.2.3 10.9.9.9 40000 6379 more\r\n",
        b"PROXY TCP4  10.1.2.3 10.9.9.9 40000 6379\r\n",
        b"PROXY TCP4 10.1.2.3 10.9.9.9 +4000 6379\r\n",
        b"PROXY TCP4 10.1.2.3 10.9.9.9 04000 6379\r\n",
        b"PROXY TCP4 10.1.2.3 10.9.9.9 65536 6379\r\n",
        b"PROXY TCP4 10.1.2.03 10.9.9.9 1 6379\r\n",
        b"PROXY TCP4 ::1 ::1 1 6379\r\n",
        b"PROXY TCP6 10.1.2.3 10.9.9.9 1 6379\r\n",
        b"PROXY UDP4 10.1.2.3 10.9.9.9 1 6379\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4 \xff\r\n",
    ] {
        let shown = wrong.escape_ascii();
        let error = progress(wrong).expect_err(&shown.to_string());
        assert!(matches!(error, HeaderError::Malformed(_)), "{shown}");
    }
    for (command, family, body) in [
        (0x11, TCP_OVER_IPV4, OVER_IPV4),
        (0x22, TCP_OVER_IPV4, OVER_IPV4),
        (0x21, TCP_OVER_IPV4, &OVER_IPV4[..11]),
        (0x21, TCP_OVER_IPV6, OVER_IPV4),
        (0x21, 0x12, OVER_IPV4),
        (0x21, 0x41, OVER_IPV4),
    ] {
        let wrong = version_2(command, family, body);
        let error = progress(&wrong).expect_err("it is none");
        assert!(matches!(error, HeaderError::Malformed(_)), "{wrong:?}");
    }
}

#[test]
fn a_header_has_an_end() {
    let long = [b"PROXY UNKNOWN ", &[b'x'; 200][..]].concat();
    assert!(progress(&long[..MAX_TEXT - 1]).is_ok());
    assert!(matches!(progress(&long), Err(HeaderError::TooLong)));
    let longest = [b"PROXY UNKNOWN ", &[b'x'; 91][..], b"\r\n"].concat();
    assert_eq!(longest.len(), MAX_TEXT);
    complete(&longest, None);

    let body = vec![0; MAX_BODY + 1];
    let long = version_2(0x21, UNSPECIFIED, &body);
    let at_once = progress(&long[..BINARY_HEAD]);
    assert!(matches!(at_once, Err(HeaderError::TooLong)));
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(
        beginning in 0_usize..3,
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let beginning = [&b""[..], TEXT_BEGINS, BINARY_BEGINS][beginning];
        let bytes = [beginning, &bytes].concat();
        if let Ok(Progress::Complete { length, .. }) = progress(&bytes) {
            prop_assert!(length <= bytes.len());
        }
    }
}
