//! Redis's error about an unknown command, in the wording of each version.

use lockwarden_resp::Request;

/// How many bytes of a name, and of all arguments, an error repeats, as in Redis.
pub const MAX_REPEATED: usize = 128;

/// The error from its code on, as since 7.0 (`is_modern`) or before. Source: `processCommand` in Redis's server.c.
pub fn unknown_command(request: Request<'_>, is_modern: bool) -> Vec<u8> {
    let name = shown(request.name(), MAX_REPEATED);
    let (opens, closes, before): (&[u8], &[u8], &[u8]) = match is_modern {
        true => (b"'", b"'", b"' "),
        false => (b"`", b"`", b"`, "),
    };
    let mut arguments = Vec::new();
    for argument in request.args().skip(1) {
        if arguments.len() >= MAX_REPEATED {
            break;
        }
        let room = MAX_REPEATED - arguments.len();
        arguments.extend_from_slice(opens);
        arguments.extend_from_slice(shown(argument, room));
        arguments.extend_from_slice(before);
    }
    let mut error = [b"ERR unknown command ", opens, name, closes].concat();
    error.extend_from_slice(b", with args beginning with: ");
    error.extend_from_slice(&arguments);
    one_line(error)
}

/// The same about a subcommand of a known family.
pub fn unknown_subcommand(request: Request<'_>, is_modern: bool) -> Vec<u8> {
    let begins: &[u8] = match is_modern {
        true => b"ERR unknown subcommand '",
        false => b"ERR Unknown subcommand or wrong number of arguments for '",
    };
    let subcommand = shown(request.arg(1), MAX_REPEATED);
    let family = request.name().to_ascii_uppercase();
    one_line([begins, subcommand, b"'. Try ", &family, b" HELP."].concat())
}

fn one_line(mut error: Vec<u8>) -> Vec<u8> {
    let ends = error.iter_mut().filter(|byte| matches!(**byte, b'\r' | b'\n'));
    ends.for_each(|byte| *byte = b' ');
    error
}

/// The text up to the first NUL, as C shows it.
fn shown(bytes: &[u8], most: usize) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    cut(&bytes[..end], most)
}

pub fn cut(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[..bytes.len().min(most)]
}
