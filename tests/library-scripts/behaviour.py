"""What a script does, found out by running it: which section of `library_scripts.lua` does the same in every state of the lock."""

import itertools
import os
import re
import socket
import subprocess
import tempfile
import time

SECTIONS = os.path.join(os.path.dirname(__file__), "../../proxy/lock/src/library_scripts.lua")
OWNER, OTHER = "own-token-0123456789ab", "other-token-0123456789"

# Runs a text with a note of what it calls, and returns that before its reply.
WATCHED = """local calls = {}
local function noted(call)
  return function(name, ...)
    local words = {string.lower(name)}
    for place = 1, select('#', ...) do words[#words + 1] = tostring((select(place, ...))) end
    calls[#calls + 1] = table.concat(words, ' ')
    return call(name, ...)
  end
end
local watched = setmetatable({call = noted(redis.call), pcall = noted(redis.pcall)}, {__index = redis})
local run = function(redis, ...)
TEXT
end
local done, reply = pcall(run, watched)
if not done then return {calls, 'raised'} end
if reply == nil then reply = false end
return {calls, reply}"""

READS = {"get", "getrange", "ttl", "pttl", "exists", "type", "mget", "strlen", "time"}
READS |= {"hget", "hexists", "hlen", "hkeys", "zscore", "zcount", "zrevrange", "lindex"}

# What the keys hold, in words.
HELD = """local held = {}
local keys = redis.call('KEYS', '*')
table.sort(keys)
for _, key in ipairs(keys) do
  local type, all = redis.call('TYPE', key).ok, nil
  if type == 'string' then all = {redis.call('GET', key)} end
  if type == 'hash' then all = redis.call('HGETALL', key) end
  if type == 'list' then all = redis.call('LRANGE', key, 0, -1) end
  if type == 'zset' then all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  held[#held + 1] = {key, type, all, redis.call('PTTL', key)}
end
return held"""


class Server:
    """A Redis of its own."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = tempfile.TemporaryDirectory()
        words = ["redis-server", "--port", str(self.port), "--save", "", "--dir", self.folder.name]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port))
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        self.replies = self.socket.makefile("rb")

    def ask_all(self, requests):
        """The replies to all of them, in one go."""
        sent = b""
        for words in requests:
            parts = [str(word).encode() for word in words]
            sent += b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self.socket.sendall(sent)
        return [self.read() for _ in requests]

    def read(self):
        line = self.replies.readline()[:-2]
        mark, rest = line[:1], line[1:].decode()
        if mark == b"$":
            return None if rest == "-1" else self.replies.read(int(rest) + 2)[:-2].decode("utf-8", "replace")
        if mark == b"*":
            return None if rest == "-1" else [self.read() for _ in range(int(rest))]
        if mark == b":":
            return int(rest)
        return {"error" if mark == b"-" else "status": re.sub(r"script: .*|user_script:\d+.*", "", rest)}

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Section:
    """A section of the file: its name, role and arguments, and its text, empty where it has none."""

    def __init__(self, head, text):
        self.name, rest = head.split(": ", 1)
        self.role, *words = rest.split(", ")
        self.arguments = [word for word in words if "=" not in word]
        self.text = text.strip()
        self.known = {}

    def cases(self, text):
        """What is tried on a library's text: what was there before, KEYS and ARGV."""
        keys, arguments = KEYS_OF_STRINGS, arguments_of(self)
        if self.is_counted():
            # Such a text does not look how many it was given.
            keys, count = [KEYS[: mentioned("KEYS", text)]], mentioned("ARGV", text)
            arguments = list_of_unique(one[:count] for one in arguments if len(one) >= (count or 0))
        for before, keys, arguments in itertools.product(states(self.name), keys, arguments):
            yield before, keys, arguments

    def is_counted(self):
        return self.name.startswith(("redisson-", "members-"))

    def outcome(self, server, case):
        case_name = str(case)
        if case_name not in self.known:
            self.known[case_name] = outcome(server, self.text, *case)
        return self.known[case_name]


def sections():
    with open(SECTIONS, encoding="utf-8") as file:
        whole = file.read()
    parts = re.split(r"^--- (.*)$", whole, flags=re.M)[1:]
    return [Section(head, text) for head, text in zip(parts[::2], parts[1::2])]


def mentioned(name, text):
    """How many of KEYS or ARGV a text looks at; where it reckons which, all that there are, and an even number of keys."""
    places = re.findall(name + r"\[(.*?)\]", text)
    if all(place.isdigit() for place in places) and f"#{name}" not in text:
        return max(map(int, places), default=0)
    return 4 if name == "KEYS" else None


def list_of_unique(lists):
    return [list(one) for one in dict.fromkeys(tuple(one) for one in lists)]


KEYS = ["lock", "second", "third", "fourth", "fifth"]
KEYS_OF_STRINGS = [["lock"], ["lock", "second", "9000"]]


def states(name):
    """What the lock and the other keys may hold."""
    if name.startswith("redisson-"):
        return [[*lock, *others] for lock, others in itertools.product(hashes(), others_of_hashes())]
    if name.startswith("members-"):
        return list(members())
    lock = ["DEL lock"]
    for value in (OWNER, OWNER + "-more", OTHER):
        lock += [f"SET lock {value}", f"SET lock {value} PX 600000"]
    lock += ["LPUSH lock a", "HSET lock a b"]
    others = [["DEL second"], [f"SET second {OWNER} PX 600000"], [f"SET second {OTHER}"], ["LPUSH second a"]]
    return [[one, *more] for one, more in itertools.product(lock, others)]


def hashes():
    """Locks that are hashes: a count for each holder, and a mode where readers share it."""
    yield from ([], ["SET lock a"], ["LPUSH lock a"])
    for fields in (
        f"{OWNER} 1",
        f"{OWNER} 3",
        f"{OWNER} 0",
        f"{OTHER} 1",
        f"mode write {OWNER} 1",
        f"mode write {OWNER} 2",
        f"mode write {OTHER} 1",
        f"mode write {OWNER}:write 1",
        f"mode write {OWNER}:write 2 {OWNER} 1",
        f"mode write {OTHER}:write 1 {OTHER} 1",
        f"mode write {OWNER} 1 {OTHER} 2",
        f"mode read {OWNER} 1",
        f"mode read {OWNER} 2",
        f"mode read {OTHER} 2",
        f"mode read {OWNER} 1 {OTHER} 1",
        f"mode other {OWNER} 1",
    ):
        yield [f"HSET lock {fields}"]
        yield [f"HSET lock {fields}", "PEXPIRE lock 600000"]


def others_of_hashes():
    """The key that says what was done before, a counter, a second lock, and the readers' own times."""
    readers = [f"SET fourth:{owner}:rwlock_timeout:{count} 1 PX {count}00000" for owner in (OWNER, OTHER) for count in (1, 2)]
    # The timeouts of one that renews in several locks.
    readers += [f"SET second:{OWNER}:rwlock_timeout:1 1 PX 300000", "SET third:1 1 PX 100000"]
    return [
        [],
        ["SET second 1 PX 500000", "SET third 0 PX 500000", "SET fifth 1"],
        [f"HSET third mode read {OWNER} 1 {OTHER} 2", "SET second 0"],
        readers,
        [*readers, "SET third 1", "SET fifth 0 PX 9000"],
    ]


def members():
    """Locks that are sorted sets: a score for each holder says when it ends, in ms."""
    past, soon, late = "1000", "NOW+250000", "NOW+900000"
    yield from ([], ["SET lock a"], ["LPUSH lock a"])
    for all_of_them in (
        [(soon, OWNER)],
        [(soon, OWNER), (soon, "__write__")],
        [(soon, OTHER)],
        [(soon, OTHER), (soon, "__write__")],
        [(past, OTHER), (past, "__write__")],
        [(past, OWNER)],
        [(past, OTHER), (soon, OWNER)],
        [(soon, OWNER), (late, OTHER)],
        [(soon, OWNER), (late, OTHER), (late, "__write__")],
    ):
        yield [f"ZADD lock {score} {member}" for score, member in all_of_them]


def arguments_of(section):
    """Lists of ARGV: those that a library sends, and such as nobody should."""
    values = {
        "owner": [OWNER],
        "ms": ["5000", "0", "-1", "x", "1e3", "1500.5"],
        "s": ["5", "0", "-1", "x"],
        "flag": ["0", "1", "x"],
        "length": ["0", "1", "22", "x"],
        "-": ["7000", "0", "x"],
        "message": ["0"],
        "publish": ["publish", "spublish", "x"],
        "writer": [OWNER + ":write"],
        "other": [OTHER],
        "number": ["1", "2"],
        "now": ["NOW/1000", "x"],
    }
    lists = [list(one) for one in itertools.product(*(values[kind] for kind in section.arguments))]
    # One that looks at more arguments does more.
    more = [[*lists[0], *extra] for extra in (["0"], ["1"], ["6000", "7000"])]
    return [*lists, *more, *(one[:-1] for one in lists[:1] if one)]


def outcome(server, text, before, keys, arguments):
    script = ["EVAL", WATCHED.replace("TEXT", text), len(keys), *keys, *arguments]
    requests = [["FLUSHALL"], *(line.split() for line in before), script, ["EVAL", HELD, 0]]
    now = time.time() * 1000
    replies = server.ask_all([[timed(word, now) for word in words] for words in requests])
    said, behind = replies[-2], near(replies[-1])
    if isinstance(said, dict):
        return said
    writes = [call for call in said[0] if call.split()[0] not in READS]
    return [sorted(str(near(word)).lower() for word in call.split(" ")) for call in writes], near(said[1:]), behind


def timed(word, now):
    """`NOW+…` ms and `NOW/1000` as numbers."""
    if not isinstance(word, str) or not word.startswith("NOW"):
        return word
    return f"{now / 1000:.6f}" if word.endswith("/1000") else str(round(now) + int(word[4:] or 0))


def near(value):
    """Times pass while it runs."""
    if isinstance(value, list):
        return [near(one) for one in value]
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?(e\+\d+)?", value):
        value = round(float(value))
    if isinstance(value, int) and value > 1_000_000_000_000:
        return round((value - time.time() * 1000) / 500)
    return round(value / 500) if isinstance(value, int) and value > 900 else value


def does_the_same(server, section, text):
    """Whether it does in every case; one in which both only fail tells nothing."""
    is_told = False
    for case in section.cases(text):
        done = outcome(server, text, *case)
        if done != section.outcome(server, case):
            return False
        is_told = is_told or not isinstance(done, dict) and done[1] != ["raised"]
    return is_told
