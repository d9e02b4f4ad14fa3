use proptest::prelude::*;

use super::*;

fn entry(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("a short value");
    [&[kind][..], &length.to_be_bytes(), value].concat()
}

fn ssl(client: u8, verify: u32, parts: &[u8]) -> Vec<u8> {
    entry(SSL, &[&[client][..], &verify.to_be_bytes(), parts].concat())
}

fn named(name: &[u8]) -> Vec<u8> {
    ssl(0x07, 0, &entry(SSL_COMMON_NAME, name))
}

fn name_in(bytes: &[u8]) -> Option<String> {
    let found = Extensions::read(bytes).common_name;
    found.map(|name| name.to_string())
}

fn endpoint_in(bytes: &[u8]) -> Option<String> {
    let found = Extensions::read(bytes).endpoint;
    found.map(|endpoint| endpoint.to_string())
}

#[test]
fn a_verified_certificate_has_a_name() {
    let parts = [entry(0x21, b"TLSv1.3"), entry(SSL_COMMON_NAME, b"shop"), entry(0x23, b"ECDHE")].concat();
    for client in [0x07, 0x03, 0x05] {
        let bytes = [entry(0x03, &[1, 2, 3, 4]), ssl(client, 0, &parts), entry(0x04, &[0; 9])].concat();
        assert_eq!(name_in(&bytes).as_deref(), Some("shop"), "{client:#x}");
    }
}

#[test]
fn a_certificate_that_was_not_verified_or_not_given_has_none() {
    let name = entry(SSL_COMMON_NAME, b"shop");
    for (client, verify) in [(0x07, 1), (0x07, 0x0100_0000), (0x01, 0), (0x06, 0), (0, 0)] {
        let found = name_in(&ssl(client, verify, &name));
        assert_eq!(found, None, "{client:#x} {verify}");
    }
    assert_eq!(name_in(&ssl(0x07, 0, b"")), None);
    assert_eq!(name_in(&named(b"")), None);
    assert_eq!(name_in(&named(b"shop\n")), None);
    assert_eq!(name_in(&named(&[b'x'; 257])), None);
    // A name outside of the one that says how the certificate was verified.
    assert_eq!(name_in(&name), None);
}

#[test]
fn two_names_are_none() {
    let twice = [entry(SSL_COMMON_NAME, b"shop"), entry(SSL_COMMON_NAME, b"admin")].concat();
    assert_eq!(name_in(&ssl(0x07, 0, &twice)), None);
    assert_eq!(name_in(&[named(b"shop"), named(b"admin")].concat()), None);
}

#[test]
fn endpoints_of_private_links_are_told() {
    let aws = entry(AWS, b"\x01vpce-08d2bf15fac5001c9");
    assert_eq!(endpoint_in(&aws).as_deref(), Some("aws:vpce-08d2bf15fac5001c9"));
    let gcp = entry(GCP, &[0, 0, 0, 0, 0x49, 0x96, 0x02, 0xd2]);
    assert_eq!(endpoint_in(&gcp).as_deref(), Some("gcp:1234567890"));
    for none in [
        entry(AWS, b""),
        entry(AWS, b"\x01"),
        entry(AWS, b"\x02vpce-1"),
        entry(AWS, b"\x01vpce 1"),
        entry(AWS, b"\x01vpce-\xff"),
        entry(AWS, &[&[1][..], &[b'x'; 65]].concat()),
        entry(GCP, &[1, 2, 3]),
        [aws, gcp].concat(),
    ] {
        assert_eq!(endpoint_in(&none), None, "{}", none.escape_ascii());
    }
}

#[test]
fn of_extensions_that_were_cut_off_nothing_is_taken() {
    let whole = [named(b"shop"), entry(AWS, b"\x01vpce-1"), entry(0x04, b"")].concat();
    let ends = [named(b"shop").len(), whole.len() - 3];
    for end in 0..whole.len() {
        let found = Extensions::read(&whole[..end]);
        match ends.contains(&end) {
            true => assert!(found.common_name.is_some(), "{end}"),
            false => assert_eq!(found, Extensions::default(), "{end}"),
        }
    }
    let found = Extensions::read(&whole);
    assert!(found.common_name.is_some() && found.endpoint.is_some());
    // The same inside of the extension for TLS.
    let parts = entry(SSL_COMMON_NAME, b"shop");
    for end in 1..parts.len() {
        let bytes = [ssl(0x07, 0, &parts[..end]), entry(AWS, b"\x01vpce-1")].concat();
        assert_eq!(Extensions::read(&bytes), Extensions::default(), "{end}");
    }
    for end in 0..5 {
        let bytes = entry(SSL, &[0x07, 0, 0, 0, 0][..end]);
        assert_eq!(Extensions::read(&bytes), Extensions::default(), "{end}");
    }
}

proptest! {
    #[test]
    fn no_extensions_are_too_strange(
        kinds in prop::collection::vec(
            (prop::sample::select(vec![SSL, AWS, GCP, SSL_COMMON_NAME, 0x04]), 0_u8..3, 0_u8..40),
            0..6,
        ),
        noise in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut bytes = Vec::new();
        for (kind, high, low) in kinds {
            bytes.extend([kind, high / 2, low]);
            bytes.extend(noise.iter().take(usize::from(low)));
        }
        bytes.extend(&noise);
        let found = Extensions::read(&bytes);
        if let Some(name) = found.common_name {
            prop_assert!(CertificateName::new(name.as_str().as_bytes()).is_ok());
        }
        if let Some(endpoint) = found.endpoint {
            prop_assert!(endpoint.len() <= "aws:".len() + MAX_ENDPOINT);
        }
    }

    #[test]
    fn a_name_is_found_behind_whatever_else_is_said(
        others in prop::collection::vec(
            (any::<u8>(), prop::collection::vec(any::<u8>(), 0..20)),
            0..6,
        ),
        at in any::<prop::sample::Index>(),
        name in "[a-z:/.-]{1,40}",
    ) {
        let mut entries: Vec<Vec<u8>> = others
            .iter()
            .filter(|(kind, _)| *kind != SSL)
            .filter(|(kind, _)| ![AWS, GCP].contains(kind))
            .map(|(kind, value)| entry(*kind, value))
            .collect();
        entries.insert(at.index(entries.len() + 1), named(name.as_bytes()));
        prop_assert_eq!(name_in(&entries.concat()), Some(name));
    }
}
