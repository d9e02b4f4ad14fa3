//! The text that a server returns for `INFO`.

/// The value of a field, named with its colon.
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut values = info.lines().filter_map(|line| line.strip_prefix(name));
    values.next().map(str::trim)
}
