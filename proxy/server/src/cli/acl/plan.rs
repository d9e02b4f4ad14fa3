//! The changes of `lockwarden acl`: the orders, each with its reason, and what remains open. Sends nothing itself.

use bytes::Bytes;
use lockwarden_control::config::{Config, Secret, UserMapping};
use lockwarden_control::text::escape::spell;
use lockwarden_control::text::numbers::counted;
use lockwarden_lock::key_sets::{KeySetError, quoted};

use super::barrier::{Barred, Barrier};
use super::passwords;
use super::users::{Keys, Rights, User};

/// One `ACL SETUSER`, or a note about a user.
#[derive(Debug)]
pub(super) enum Step {
    /// A comment.
    Note(String),
    /// An order with its reason.
    Set { why: String, user: Bytes, rules: Vec<Bytes> },
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Whether applications could still bypass lockwarden.
    pub(super) is_open: bool,
}

/// The input of a plan.
pub(super) struct Situation<'a> {
    pub(super) config: &'a Config,
    pub(super) barrier: &'a Barrier,
    pub(super) users: &'a [User],
    /// The user of lockwarden's own connections.
    pub(super) own: &'a str,
    /// The rights that this user lacks.
    pub(super) own_lacks: Option<String>,
    /// The user that runs this command.
    pub(super) runs_as: &'a str,
    /// Also bar users without a twin.
    pub(super) without_twin: bool,
    /// Create twins only, and bar no user yet.
    pub(super) only_twins: bool,
    /// Passwords of twins that are in a file already.
    pub(super) passwords: &'a [Option<Secret>],
}

impl Plan {
    /// Twins come first: so clients of the proxy never lose their locks in between.
    pub(super) fn of(situation: &Situation<'_>) -> Result<Plan, KeySetError> {
        let mut plan = Plan::default();
        for glob in situation.barrier.widened() {
            plan.note(format!(
                "the pattern {} has several *: all keys with its beginning and end are taken, whatever stands between",
                spell(glob)
            ));
        }
        plan.own_user(situation);
        let map = situation.config.user_map.iter().zip(situation.passwords);
        for (mapping, password) in map {
            plan.twin(situation, mapping, password.as_ref());
        }
        if situation.only_twins {
            plan.note("users are not barred yet, because of --only-twins".to_owned());
            return Ok(plan);
        }
        for user in situation.users {
            plan.user(situation, user)?;
        }
        Ok(plan)
    }

    fn note(&mut self, text: String) {
        self.steps.push(Step::Note(text));
    }

    fn leave_open(&mut self, text: String) {
        self.is_open = true;
        self.note(text);
    }

    fn own_user(&mut self, situation: &Situation<'_>) {
        let own = situation.own;
        if let Some(lacks) = &situation.own_lacks {
            self.steps.push(Step::Set {
                why: format!("{own} is lockwarden's own login: what it lacks"),
                user: Bytes::copy_from_slice(own.as_bytes()),
                rules: lacks.split(' ').map(|rule| Bytes::copy_from_slice(rule.as_bytes())).collect(),
            });
        }
    }

    fn twin(&mut self, situation: &Situation<'_>, mapping: &UserMapping, password: Option<&Secret>) {
        let find = |name: &str| situation.users.iter().find(|user| user.name == name);
        let (name, twin) = (&mapping.user, &mapping.twin);
        let Some(user) = find(name) else {
            self.leave_open(format!("user {name} of [[user_map]] is not there; its twin is not made"));
            return;
        };
        let file = mapping.password_file.display();
        let Some(password) = password else {
            self.leave_open(format!(
                "twin {twin} of {name} has no password yet: --apply makes one in {file}, or write one there"
            ));
            return;
        };
        let existing = find(twin);
        let differences = existing.map(|twin| situation.barrier.differences(user, twin));
        let why = match (&differences, situation.barrier.is_open_to(user)) {
            (Some(differences), _) if differences.is_empty() => {
                return self.note(format!("twin {twin} of {name} is as it has to be"));
            }
            (None, _) => {
                format!("{twin} is the twin of {name}: the same rights, and the locks; its password is in {file}")
            }
            (Some(differences), true) => {
                format!("twin {twin} of {name} was changed: {}", differences.join("; "))
            }
            (Some(differences), false) => format!(
                "twin {twin} of {name} was changed: {}. What {name} lost when it was barred is not known any more: see to it that \
                 the twin has it",
                differences.join("; ")
            ),
        };
        let (root, selectors) = situation.barrier.twin(user, existing);
        let mut rules = words(&["reset", "on", &passwords::rule(password)]);
        rules.extend(user.flags.iter().cloned());
        rules.extend(rules_of(&root, &selectors));
        self.steps.push(Step::Set { why, user: Bytes::copy_from_slice(twin.as_bytes()), rules });
    }

    fn user(&mut self, situation: &Situation<'_>, user: &User) -> Result<(), KeySetError> {
        let Situation { config, barrier, .. } = situation;
        let is = |name: &str| user.name == name;
        let shown = user.shown();
        if config.user_map.iter().any(|mapping| is(&mapping.twin)) {
            return Ok(());
        }
        let is_open = barrier.is_open_to(user);
        if !is_open && barrier.holes(user).is_empty() {
            return Ok(());
        }
        if is(situation.own) {
            if is("default") {
                self.leave_open(
                    "default is lockwarden's own login, and everybody's: it cannot be barred. Give lockwarden a user of its own \
                     (docs/rights.md) and name it in [backend_login], then run this again"
                        .to_owned(),
                );
            }
            return Ok(());
        }
        if is(situation.runs_as) {
            self.note(format!("{shown} is who runs this: it is left as it is, and may touch lock keys"));
            return Ok(());
        }
        let is_mapped = config.user_map.iter().any(|mapping| is(&mapping.user));
        if !is_mapped && !situation.without_twin {
            let may = match is_open {
                true => "touch lock keys".to_owned(),
                false => format!("use {}, which reach lock keys", barrier.holes(user).join(" ")),
            };
            self.leave_open(format!(
                "{shown} may {may}, and has no twin: if its clients come through lockwarden, add this to the configuration; if none \
                 does, run this with --without-twin\n#   [[user_map]]\n#   user = \"{shown}\"\n#   twin = \"{shown}-lw\"\n#   \
                 twin_password_file = \"{shown}-lw.password\""
            ));
            return Ok(());
        }
        self.bar(barrier, user, is_open)
    }

    fn bar(&mut self, barrier: &Barrier, user: &User, is_open: bool) -> Result<(), KeySetError> {
        let shown = user.shown();
        let barred = barrier.barred(user)?;
        for glob in &barred.dropped {
            self.note(format!(
                "{shown} loses the pattern {} as a whole: it has several *, and what is left of it cannot be said",
                spell(glob)
            ));
        }
        let patterns = barred.root.keys.len();
        let keys = match is_open {
            true => {
                format!("keeps all keys but locks and records, in {}", counted(patterns as u64, "pattern", "patterns"))
            }
            false => "keeps its keys".to_owned(),
        };
        let commands = match &barred.forbidden[..] {
            [] => String::new(),
            commands => format!("; loses {}", commands.join(" ")),
        };
        self.steps.push(Step::Set {
            why: format!("{shown} {keys}{commands}"),
            user: user.name.clone(),
            rules: changes(user, &barred),
        });
        Ok(())
    }
}

/// The rules that turn a user into the barred one.
fn changes(user: &User, barred: &Barred) -> Vec<Bytes> {
    let mut rules = Vec::new();
    if user.root.key_set() != barred.root.key_set() {
        rules.push(Bytes::from_static(b"resetkeys"));
        rules.extend(barred.root.keys.iter().map(Keys::rule));
    }
    rules.extend(barred.root.commands[user.root.commands.len()..].iter().cloned());
    if user.selectors != barred.selectors {
        rules.push(Bytes::from_static(b"clearselectors"));
        rules.extend(barred.selectors.iter().map(Rights::selector));
    }
    rules
}

fn rules_of(root: &Rights, selectors: &[Rights]) -> Vec<Bytes> {
    let selectors = selectors.iter().map(Rights::selector);
    root.words().into_iter().chain(selectors).collect()
}

fn words(words: &[&str]) -> Vec<Bytes> {
    words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

impl Step {
    /// As a line for `redis-cli`.
    pub(super) fn line(&self) -> String {
        match self {
            Step::Note(text) => format!("# {text}"),
            Step::Set { why, user, rules } => {
                let rules: Vec<String> = rules.iter().map(|rule| quoted(rule)).collect();
                format!("# {why}\nACL SETUSER {} {}", quoted(user), rules.join(" "))
            }
        }
    }
}
