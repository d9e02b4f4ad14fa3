use lockwarden_control::ruleset::Administration;
use lockwarden_control::telemetry::events::SessionNumber;
use lockwarden_control::telemetry::metrics::Metrics;
use lockwarden_lock::glob::Glob;
use lockwarden_lock::namespace::Namespaces;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::pass_through::PassThrough;
use lockwarden_policy::PolicyHost;
use lockwarden_resp::{RequestDecoder, RequestLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::request_buffer::RequestBuffer;
use super::*;
use crate::backend::Link;
use crate::registry::buffer_memory::Memory;
use lockwarden_lock::administration::ServerCommands;
use lockwarden_lock::classify::{Class, Classifier, ComputedNames};
use std::collections::{HashMap, HashSet};

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.expect("it listens"), far.expect("it connects").0)
}

fn metrics() -> Arc<Metrics> {
    Metrics::new(lockwarden_control::telemetry::metrics::BUILD, &[], 1).expect("metrics")
}

/// Wires, and the other ends of them: the client and the backend.
async fn transport() -> (Transport<()>, TcpStream, TcpStream) {
    let host = PolicyHost::new().expect("the engine");
    let locks = vec![vec![Glob::new(Bytes::from_static(b"lock:*"))]];
    let active = Active {
        namespaces: Arc::new(Namespaces::new(locks)),
        details: Vec::new(),
        generation: Arc::new(host.load(&[], &[]).expect("nothing to load")),
        companion_prefix: Bytes::from_static(b"lw:"),
        max_connection_age: None,
        meaning: Arc::default(),
        guards: Arc::default(),
        applications: Arc::default(),
        certificate_logins: Arc::default(),
        twins: Arc::default(),
        administration: Arc::new(Administration {
            server_commands: ServerCommands::Forward,
            identities: lockwarden_control::config::Listed::default(),
            computed_names: lockwarden_control::config::ComputedNames::Forward,
            trusted_functions: HashSet::new(),
            unknown_commands: HashMap::new(),
        }),
        computed_names: ComputedNames::Forward,
        rollouts: None,
        quarantines: false,
    };
    let memory = Arc::new(Memory::new(usize::MAX, metrics()));
    let (client, far_client) = pair().await;
    let (backend, far_backend) = pair().await;
    let active = Arc::new(ArcSwap::from_pointee(active));
    let transport = Transport::new(
        client.into(),
        BackendLink::own(Link::uncounted(backend.into())),
        active,
        Arc::default(),
        Arc::default(),
        memory.account(SessionNumber(1), Arc::default()),
    );
    (transport, far_client, far_backend)
}

const KEYS: &[u8] = b"*2\r\n$4\r\nKEYS\r\n$1\r\n*\r\n";
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// Leave to forward a listing.
fn listing(frame: &[u8], then: impl FnOnce(PassThrough<'_>)) {
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    decoder.decode(frame).expect("it is a request");
    let classifier = Classifier {
        namespaces: &Namespaces::new(Vec::new()),
        companion_prefix: b"lw:",
        operator_says: &|_| None,
        trusted_function: &|_| false,
        trusted_script: &|_| Default::default(),
        function: &|_| None,
        foreign: &|| None,
        computed_names: &ComputedNames::Forward,
        enforces: &|_| false,
        counts: &|_| false,
        script: &|_| None,
        saw: &|_| panic!("no script is sent"),
    };
    match classifier.classify(decoder.request(frame)) {
        Class::Listing(_, pass) => then(pass),
        other => panic!("{other:?} is no listing"),
    }
}

/// The answer to `KEYS *` and one more, and what the client gets of them where so much is looked at.
async fn told(longest_collected: usize, replies: &[u8]) -> Vec<u8> {
    let (mut transport, mut client, mut backend) = transport().await;
    transport.longest_collected = longest_collected;
    listing(KEYS, |pass| transport.forward_listing(pass, Listing::Keys, Muted::No));
    transport.relay_own(&OwnRequest::Ping, Muted::No);
    let sending = async {
        let mut requests = [0; KEYS.len() + PING.len()];
        let read = backend.read_exact(&mut requests).await;
        read.expect("both are sent at once");
        backend.write_all(replies).await.expect("the wires read");
        drop(backend);
    };
    let serving = async {
        let end = transport.next_event(&mut RequestBuffer::with(BytesMut::new())).await;
        assert!(matches!(end, Err(End::Backend)), "{end:?}");
        drop(transport);
    };
    let mut heard = Vec::new();
    let ((), (), read) = tokio::join!(sending, serving, client.read_to_end(&mut heard));
    read.expect("the wires close in order");
    heard
}

#[tokio::test]
async fn a_listing_too_long_to_look_through_goes_on_as_it_comes() {
    let mut names: Vec<String> = (0..20_000).map(|n| format!("some-key-{n}")).collect();
    names.push("lw:{0j4}:lock:a".to_owned());
    let array = |names: &[String]| {
        let mut frame = BytesMut::new();
        lockwarden_resp::put_request(&mut frame, names);
        frame.extend_from_slice(b"+PONG\r\n");
        frame
    };
    let whole = array(&names);
    let rest = array(&names[..20_000]);
    for (longest, expected) in [(whole.len() / 10, &whole), (whole.len(), &rest)] {
        let told = told(longest, &whole).await;
        let same = told.iter().zip(expected).take_while(|(a, b)| a == b);
        assert_eq!(same.count(), expected.len(), "the same up to the end");
        assert_eq!(told.len(), expected.len());
    }
}
