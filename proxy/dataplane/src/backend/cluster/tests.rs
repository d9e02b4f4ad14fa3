use super::*;

/// The map after a node at `10.0.0.9:1` has reported these lines: id, flags, primary, epoch and slots of each, at
/// `10.0.0.<id>`.
fn told(slots: &Slots, lines: &[(&str, &str, &str, u64, &str)]) -> Option<Slots> {
    let line = |(id, flags, follows, epoch, slots): &(&str, &str, &str, u64, &str)| {
        format!("{id} 10.0.0.{id}:7000@17000 {flags} {follows} 0 0 {epoch} connected {slots}\n")
    };
    let text: String = lines.iter().map(line).collect();
    slots.taken_in(&nodes::read(&text).expect("nodes"), &Place { host: "10.0.0.9".to_owned(), port: 1 }, false)
}

fn homes(slots: &Slots, wanted: [u16; 3]) -> [Option<u32>; 3] {
    wanted.map(|slot| slots.home(slot).map(|id| id.0))
}

fn primary(slots: &Slots, shard: u32) -> String {
    slots.shards[&ShardId(shard)].primary.place.to_string()
}

const THREE: [(&str, &str, &str, u64, &str); 4] = [
    ("1", "myself,master", "-", 1, "0-5460"),
    ("2", "master", "-", 2, "5461-10922"),
    ("3", "master", "-", 3, "10923-16383"),
    ("4", "slave", "1", 1, ""),
];
const EACH: [u16; 3] = [0, 6000, 16_383];

fn three() -> Slots {
    told(&Slots::default(), &THREE).expect("it is new")
}

#[test]
fn each_slot_has_the_shard_of_its_primary() {
    let slots = three();
    assert_eq!(homes(&slots, EACH), [Some(0), Some(1), Some(2)]);
    assert_eq!((primary(&slots, 2), slots.served()), ("10.0.0.3:7000".to_owned(), 16_384));
    assert_eq!(told(&slots, &THREE), None, "nothing is new");
    assert_eq!(told(&slots, &[("9", "myself,master", "-", 0, "")]), None, "a node that was reset knows nobody");
}

#[test]
fn a_replica_that_takes_over_is_the_same_shard() {
    let mut lines = THREE;
    lines[0] = ("1", "master,fail", "-", 1, "");
    lines[3] = ("4", "master", "-", 4, "0-5460");
    let slots = told(&three(), &lines).expect("it is new");
    assert_eq!(homes(&slots, EACH), [Some(0), Some(1), Some(2)]);
    assert_eq!(primary(&slots, 0), "10.0.0.4:7000");
    assert_eq!(slots.shards[&ShardId(0)].primary.epoch, 4);
    // One that has not heard of it yet changes no primary.
    assert_eq!(primary(&told(&slots, &THREE).unwrap_or_else(|| slots.clone()), 0), "10.0.0.4:7000");
    // The other way round it is another primary again, also where its address is the same as before.
    let mut back = THREE;
    back[0] = ("1", "master", "-", 5, "0-5460");
    back[3] = ("4", "slave", "1", 5, "");
    let slots = told(&slots, &back).expect("it is new");
    assert_eq!((primary(&slots, 0), slots.shards[&ShardId(0)].primary.epoch), ("10.0.0.1:7000".to_owned(), 5));
}

#[test]
fn a_cluster_that_was_made_anew_is_believed() {
    let lines = [("7", "myself,master", "-", 1, "0-5460"), ("8", "master", "-", 2, "5461-16383")];
    let slots = told(&three(), &lines).expect("it is new");
    assert_eq!((primary(&slots, 0), slots.served()), ("10.0.0.7:7000".to_owned(), 16_384));
    assert_eq!(slots.home(16_383).and_then(|id| slots.shards.get(&id)).map(|shard| shard.node.as_str()), Some("8"));
}

#[test]
fn who_was_not_known_as_a_replica_takes_the_shard_whose_slots_it_has() {
    let mut lines = THREE;
    lines[0] = ("5", "master", "-", 4, "0-5460");
    let slots = told(&three(), &lines).expect("it is new");
    assert_eq!((homes(&slots, EACH), primary(&slots, 0)), ([Some(0), Some(1), Some(2)], "10.0.0.5:7000".to_owned()));
}

#[test]
fn slots_that_move_belong_to_the_claim_with_the_highest_epoch() {
    let mut lines = THREE;
    lines[0] = ("1", "myself,master", "-", 1, "1-5460");
    lines[1] = ("2", "master", "-", 4, "0 5461-10922");
    let moved = told(&three(), &lines).expect("it is new");
    assert_eq!(homes(&moved, EACH), [Some(1), Some(1), Some(2)]);
    assert_eq!(moved.shards[&ShardId(1)].primary, three().shards[&ShardId(1)].primary, "its connections stay");
    // A node that has not heard of it.
    let older = told(&moved, &THREE);
    assert_eq!(older.map_or_else(|| homes(&moved, EACH), |slots| homes(&slots, EACH)), [Some(1), Some(1), Some(2)]);
    // All of them go to a new node, which is a shard of its own; the one without slots stays until it is forgotten.
    let mut lines = THREE;
    lines[2] = ("3", "master", "-", 3, "16383");
    lines[3] = ("4", "master", "-", 6, "10923-16382");
    let slots = told(&three(), &lines).expect("it is new");
    assert_eq!(homes(&slots, [0, 11_000, 16_383]), [Some(0), Some(3), Some(2)]);
}

#[test]
fn a_slot_that_nobody_claims_is_served_by_nobody() {
    let mut lines = THREE;
    lines[2] = ("3", "master", "-", 3, "10923-16382");
    let slots = told(&three(), &lines).expect("it is new");
    assert_eq!((homes(&slots, EACH), slots.served()), ([Some(0), Some(1), None], 16_383));
    // A node that does not know the third node at all says nothing of its slots.
    let slots = told(&three(), &THREE[..2]);
    assert_eq!(slots.map_or(16_384, |slots| slots.served()), 16_384);
}

#[test]
fn redirects_name_a_primary_by_its_address_or_its_name() {
    let nodes = "1 :7000@17000,one.corp myself,master - 0 0 1 connected 0-8000\n\
                 2 10.0.0.2:7000@17000,two.corp master - 0 0 2 connected 8001-16382\n\
                 3 10.0.0.3:7001@17001 master - 0 0 3 connected 16383\n";
    let at = Place { host: "seed".to_owned(), port: 7000 };
    for by_name in [false, true] {
        let map = ClusterMap::new(&[("seed".to_owned(), 7000)], by_name);
        assert!(map.told(&nodes::read(nodes).expect("nodes"), &at, Instant::now()));
        let [one, two, three] = [0, 8001, 16_383].map(|slot| map.home(slot).expect("a shard"));
        for (sender, host, port, expected) in [
            (two, if by_name { "one.corp" } else { "seed" }, 7000, Some(one)),
            (two, "one.corp", 7000, Some(one)),
            (one, "10.0.0.2", 7000, Some(two)),
            (one, "two.corp", 7000, Some(two)),
            (one, "two.corp", 7001, None),
            // Where no host is named, one that is not the sender has to be the only one.
            (one, "", 7000, Some(two)),
            (one, "?", 7001, Some(three)),
            (three, "?", 7000, None),
            // Another server of its own shard has taken its place.
            (two, "two.corp", 7000, Some(two)),
        ] {
            assert_eq!(map.at(host.as_bytes(), port, sender), expected, "{host}:{port}");
        }
        assert_eq!(map.places().len(), 3 + usize::from(by_name));
    }
}

/// What primaries tell one after the other, each in a second of its own: by its id, with these flags of the first one.
struct Cluster {
    map: ClusterMap,
    begun: Instant,
}

impl Cluster {
    fn new() -> Cluster {
        Cluster { map: ClusterMap::new(&[("10.0.0.1".to_owned(), 7000)], false), begun: Instant::now() }
    }

    fn at(&self, second: u64) -> Instant {
        self.begun + Duration::from_secs(second)
    }

    /// `lines` are those of [`THREE`], whose first is what this node takes it for.
    fn tells(&self, second: u64, node: &str, lines: &[(&str, &str, &str, u64, &str)]) {
        let text: String = lines
            .iter()
            .map(|(id, flags, follows, epoch, slots)| {
                let flags = flags.trim_start_matches("myself,");
                let own = if *id == node { "myself," } else { "" };
                format!("{id} 10.0.0.{id}:7000@17000 {own}{flags} {follows} 0 0 {epoch} connected {slots}\n")
            })
            .collect();
        let place = Place { host: format!("10.0.0.{node}"), port: 7000 };
        self.map.told(&nodes::read(&text).expect("nodes"), &place, self.at(second));
        self.map.were_asked(self.at(second));
    }

    /// Second since which most have named the primary of the first shard.
    fn named_since(&self) -> Option<u64> {
        let naming = self.map.moments(ShardId::FIRST).naming();
        naming.map(|at| at.saturating_duration_since(self.begun).as_secs())
    }
}

#[test]
fn most_primaries_have_to_name_a_primary_and_not_as_one_that_has_failed() {
    let cluster = Cluster::new();
    cluster.tells(1, "1", &THREE);
    assert_eq!(cluster.named_since(), None, "one of three");
    cluster.tells(2, "4", &THREE);
    assert_eq!(cluster.named_since(), None, "a replica has no say");
    cluster.tells(3, "2", &THREE);
    assert_eq!(cluster.named_since(), Some(1));
    cluster.tells(4, "3", &THREE);
    assert_eq!(cluster.named_since(), Some(3), "the two that were asked last");
    let mut failed = THREE;
    failed[0].1 = "master,fail";
    cluster.tells(5, "2", &failed);
    cluster.tells(6, "3", &failed);
    assert_eq!(cluster.named_since(), Some(3), "as long as that was the last that was heard of it");
    let moments = cluster.map.moments(ShardId::FIRST);
    assert!(moments.are_naming(cluster.at(7)) && !moments.are_naming(cluster.at(8)));
    assert!(
        !moments.are_few(cluster.at(9)) && moments.are_few(cluster.at(10)),
        "two of them are heard, whatever they say"
    );
    assert_eq!(cluster.map.heard(cluster.at(7)), (2, 3));
}

#[test]
fn a_new_primary_has_to_be_named_anew() {
    let cluster = Cluster::new();
    for (second, node) in [(1, "1"), (2, "2"), (3, "3")] {
        cluster.tells(second, node, &THREE);
    }
    let mut taken = THREE;
    taken[0] = ("1", "master,fail", "-", 1, "");
    taken[3] = ("4", "master", "-", 4, "0-5460");
    cluster.tells(4, "2", &taken);
    assert_eq!(cluster.named_since(), None, "one has");
    let moments = cluster.map.moments(ShardId::FIRST);
    assert_eq!(moments.take_before(), Some(cluster.at(2)), "until then there was no other one");
    // The old one goes on as if nothing had happened.
    cluster.tells(5, "1", &THREE);
    assert_eq!(cluster.named_since(), None);
    cluster.tells(6, "3", &taken);
    assert_eq!(cluster.named_since(), Some(4));
}
