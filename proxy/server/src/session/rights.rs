//! Where Redis would not let a user run the proxy's scripts: how that is noticed, and the clear line
//! that says which rights are missing.

use lockwarden_lock::op::{LockCommand, LockOp};
use lockwarden_lock::outcome::{self, Answers};

/// Redis's words where its ACLs stopped the step, or the command in it.
pub(crate) fn lacking_rights(answers: &Answers) -> Option<String> {
    let error = match answers {
        Answers::Error(text) => Some(text.clone()),
        Answers::One(one) if one.outcome == outcome::Outcome::Failed => one
            .native
            .as_ref()
            .and_then(|native| native.as_error().cloned()),
        Answers::One(_) | Answers::Many(..) | Answers::Script(..) => None,
    }?;
    let text = String::from_utf8_lossy(&error).into_owned();
    lacks_rights(&text).then_some(text)
}

/// Whether Redis's ACLs stopped a command: alone, or in a script, which 7.2 began to word anew.
pub(crate) fn lacks_rights(error: &str) -> bool {
    error.starts_with("NOPERM")
        || error.contains("The user executing the script")
        || error.contains("ACL failure in script")
}

pub(crate) fn rights_line(text: &str, command: &LockCommand, prefix: &[u8]) -> String {
    let more = match command.op {
        LockOp::Wrapped { .. } => {
            " +type +dump +restore +memory|usage +pexpiretime +pexpireat +select +hexists +hget \
             +hkeys +zscore +zrange"
        }
        _ => "",
    };
    format!(
        "NOPERM lockwarden runs {} on a lock as a script: this user needs +eval +evalsha +mget +set \
         +get +getrange +del +unlink +exists +pexpire +pttl +persist +time +setrange{more} and the keys ~{}* \
         beside its locks ({text})",
        command.name.to_ascii_uppercase(),
        String::from_utf8_lossy(prefix),
    )
}
