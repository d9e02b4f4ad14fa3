//! Simulated machines, as network namespaces: each has an address, and a separate link to each other machine, which can be cut
//! in both directions or in one. A machine that is cut off gets no error: packets are dropped. A program on such a machine is a
//! child of the test like any other.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::{panic, thread};

/// An address that no network card has: no machine receives what is sent there.
const NOBODY: &str = "02:00:00:00:00:01";
/// How names of namespaces begin; then the number of the process that made them.
const PREFIX: &str = "lwt";

/// All of them. Dropping it removes them, with whatever still runs there.
pub struct Machines {
    machines: Vec<Machine>,
    /// Where the links are.
    switch: String,
    /// What is cut: a link, or only what the first sends to the second.
    links: RefCell<BTreeSet<(usize, usize)>>,
    deaf: RefCell<BTreeSet<(usize, usize)>>,
}

/// One machine.
#[derive(Clone, Debug)]
pub struct Machine {
    name: String,
    address: Ipv4Addr,
    space: Arc<File>,
}

impl Machines {
    /// Whether they cannot be made here; if so, prints that.
    pub fn are_lacking() -> bool {
        static CAN: OnceLock<bool> = OnceLock::new();
        let can = *CAN.get_or_init(|| {
            remove_left_behind();
            let name = format!("{PREFIX}{}try", std::process::id());
            let can = ip(&["netns", "add", &name]) && ip(&["-n", &name, "link", "add", "try", "type", "bridge"]);
            ip(&["netns", "del", &name]);
            can
        });
        if !can {
            eprintln!("SKIPPED: no network namespaces may be made here: that takes root and `ip`");
        }
        !can
    }

    /// Starts this many machines, each of which reaches all others.
    #[track_caller]
    pub fn start(number: usize) -> Machines {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let named = |what: &str| format!("{PREFIX}{}-{run}{what}", std::process::id());
        let switch = named("sw");
        assert!(ip(&["netns", "add", &switch]), "ask Machines::are_lacking");
        let all: Vec<usize> = (0..number).collect();
        let machines = all.iter().map(|&one| Machine::start(named(&format!("m{one}")), address(one)));
        let machines: Vec<Machine> = machines.collect();
        let mut batch = String::new();
        for (one, other) in pairs(&all) {
            let bridge = link(one, other);
            batch.push_str(&format!("link add {bridge} type bridge\nlink set {bridge} up\n"));
            for (near, far) in [(one, other), (other, one)] {
                let (port, space) = (format!("p{near}-{far}"), &machines[near].name);
                batch.push_str(&format!("link add {port} type veth peer name e{far} netns {space}\n"));
                batch.push_str(&format!("link set {port} master {bridge} up\n"));
            }
        }
        ip_batch(&switch, &batch);
        for (near, machine) in machines.iter().enumerate() {
            let mut batch = String::from("link set lo up\n");
            batch.push_str(&format!("addr add {}/32 dev lo\n", machine.address));
            for far in all.iter().filter(|far| **far != near) {
                batch.push_str(&format!("link set e{far} up\n"));
                batch.push_str(&format!("route add {}/32 dev e{far} src {}\n", address(*far), machine.address));
            }
            ip_batch(&machine.name, &batch);
        }
        Machines { machines, switch, links: RefCell::default(), deaf: RefCell::default() }
    }

    /// The machine with this number, from 0.
    pub fn machine(&self, number: usize) -> &Machine {
        &self.machines[number]
    }

    /// Nothing comes through between these and all others.
    pub fn parts(&self, side: &[usize]) {
        let others = (0..self.machines.len()).filter(|one| !side.contains(one));
        let others: Vec<usize> = others.collect();
        self.cuts(side, &others);
    }

    /// Nothing comes through between these and those.
    pub fn cuts(&self, side: &[usize], others: &[usize]) {
        for (one, other) in side.iter().flat_map(|one| others.iter().map(move |other| (*one, *other))) {
            let (one, other) = (one.min(other), one.max(other));
            self.sets_link(one, other, "down");
            self.links.borrow_mut().insert((one, other));
        }
    }

    /// What this machine sends to those is lost; what they send to it comes through.
    pub fn silences(&self, speaker: usize, listeners: &[usize]) {
        for listener in listeners {
            let (to, device) = (address(*listener).to_string(), format!("e{listener}"));
            let name = &self.machines[speaker].name;
            let words = ["-n", name, "neigh", "replace", &to, "lladdr", NOBODY, "dev", &device, "nud", "permanent"];
            assert!(ip(&words), "{words:?}");
            self.deaf.borrow_mut().insert((speaker, *listener));
        }
    }

    /// Ends all cuts: every machine reaches every other one again.
    pub fn rejoins_all(&self) {
        for (one, other) in self.links.take() {
            self.sets_link(one, other, "up");
        }
        for (speaker, listener) in self.deaf.take() {
            let (to, device) = (address(listener).to_string(), format!("e{listener}"));
            let words = ["-n", &self.machines[speaker].name, "neigh", "del", &to, "dev", &device];
            assert!(ip(&words), "{words:?}");
        }
    }

    fn sets_link(&self, one: usize, other: usize, state: &str) {
        let words = ["-n", &self.switch, "link", "set", &link(one, other), state];
        assert!(ip(&words), "{words:?}");
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let names = self.machines.iter().map(|machine| &machine.name).chain([&self.switch]);
        names.for_each(|name| {
            ip(&["netns", "del", name]);
        });
    }
}

impl Machine {
    fn start(name: String, address: Ipv4Addr) -> Machine {
        assert!(ip(&["netns", "add", &name]), "ask Machines::are_lacking");
        let space = File::open(format!("/run/netns/{name}")).expect("it was made");
        Machine { name, address, space: Arc::new(space) }
    }

    /// Where others reach it.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The command's process will run on this machine.
    pub(crate) fn runs(&self, command: &mut Command) {
        let space = self.space.clone();
        // SAFETY: between fork and exec only `setns` is called, with a descriptor that the closure owns.
        unsafe { command.pre_exec(move || enter(&space)) };
    }

    /// Calls this on the machine, so that sockets that it opens belong to the machine. It must start no process: that
    /// would end with it.
    pub fn within<T: Send>(&self, does: impl FnOnce() -> T + Send) -> T {
        let there = || {
            enter(&self.space).expect("the namespace is there");
            does()
        };
        let done = thread::scope(|scope| scope.spawn(there).join());
        done.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    }
}

/// This thread is on that machine from now on.
fn enter(space: &File) -> std::io::Result<()> {
    // SAFETY: the call takes no pointers, and the descriptor is open.
    match unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, 1 + u8::try_from(number).expect("few machines"))
}

fn link(one: usize, other: usize) -> String {
    format!("b{one}-{other}")
}

fn pairs(all: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    all.iter().flat_map(move |one| all.iter().filter(move |other| one < other).map(move |other| (*one, *other)))
}

/// Removes what killed runs have left behind.
fn remove_left_behind() {
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix(PREFIX).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        if let Some(Some(process)) = number
            && !fs::exists(format!("/proc/{process}")).unwrap_or(true)
        {
            ip(&["netns", "del", &name]);
        }
    }
}

/// Whether `ip` does this.
fn ip(words: &[&str]) -> bool {
    let mut command = Command::new("ip");
    let done = command.args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// Has `ip` do each of these lines in this namespace.
#[track_caller]
fn ip_batch(space: &str, lines: &str) {
    let mut command = Command::new("ip");
    command.args(["-n", space, "-batch", "-"]).stdin(Stdio::piped());
    let mut child = command.spawn().expect("`ip` is there");
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(lines.as_bytes()));
    let done = child.wait().is_ok_and(|status| status.success());
    assert!(done && written.is_some_and(|written| written.is_ok()), "in {space}:\n{lines}");
}
