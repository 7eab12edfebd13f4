//! The message bus of a mesh on NATS JetStream: a key-value bucket of present sites, a work queue
//! with a subject per site, and a stream of reports.
//!
//! The server keeps all state: agents, the coordinator and the server itself may restart. Calls
//! block; the runtime has a thread of its own and reconnects by itself.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::future::{Future, IntoFuture};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_nats::datetime::DateTime;
use async_nats::jetstream::consumer::{self, AckPolicy, Info, PullConsumer, SequenceInfo, pull};
use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, GetStreamErrorKind,
};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{Context, ErrorCode, Message, kv};
use async_nats::{ConnectOptions, Event, ServerAddr};
use futures_util::StreamExt;
use linerate_mesh::bus::{
    ACKNOWLEDGED_WITHIN, Bus, BusError, Delivery, GONE_AFTER, MAX_WAITING, OFFER_LIFE, Seen,
};
use linerate_mesh::message::{COORDINATOR, MAX_MESSAGE, MAX_PRESENCE};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Names of the streams and the bucket.
const WORK: &str = "linerate_work";
const REPORTS: &str = "linerate_reports";
const SITES: &str = "linerate_sites";
/// Time allowed for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between attempts to watch the sites.
const PAUSE: Duration = Duration::from_secs(1);
/// Most reports waiting for the coordinator; beyond that, agents keep theirs.
const MAX_REPORTS: i64 = 100_000;
/// Most tasks waiting for one site.
const MAX_TASKS: i64 = 64;
/// A report published again within this time is the same one.
const DUPLICATES: Duration = Duration::from_secs(600);
/// Reports fetched at once.
const BATCH: usize = 32;
/// Most deliveries waiting to be acknowledged.
const MAX_OPEN: usize = 1024;
/// Header of a task: when it was offered, by the server's clock, in ms since 1970.
const OFFERED: &str = "Linerate-Offered";
/// Copies of each stream in a cluster: with three, one server may be lost.
const REPLICAS: usize = 3;

/// The server's address and the user's credentials.
#[derive(Debug, Clone, Default)]
pub struct NatsOptions {
    /// `nats://host:port` or `tls://host:port`, several with commas.
    pub servers: String,
    /// Contents of the user's credentials file or of the file with an NKey's seed.
    pub credentials: Option<String>,
    /// File of certificate authorities to trust beside the host's own.
    pub ca: Option<PathBuf>,
    /// Name of the site, whose answers go to a subject only it may listen to; absent for the
    /// coordinator.
    pub site: Option<String>,
}

/// A connection to the server.
pub struct NatsBus {
    runtime: Runtime,
    context: Context,
    collected: Mutex<VecDeque<Delivery>>,
    open: Mutex<Unacknowledged>,
    seen: Arc<Mutex<Entries>>,
    clock: Arc<Mutex<Option<ServerClock>>>,
}

/// The server's clock, as its entries show it: the clocks of agents and coordinator may differ.
#[derive(Clone, Copy)]
struct ServerClock {
    /// Milliseconds since 1970.
    read_ms: i64,
    at: Instant,
}

impl ServerClock {
    fn now_ms(self) -> i64 {
        self.read_ms + self.at.elapsed().as_millis() as i64
    }
}

/// The entry of each site and when it arrived.
type Entries = BTreeMap<String, (Vec<u8>, Instant)>;

/// Deliveries not yet acknowledged.
#[derive(Default)]
struct Unacknowledged {
    last: u64,
    messages: BTreeMap<u64, Message>,
}

impl NatsBus {
    /// Connects; `say` is told when the connection is lost and when it is back.
    ///
    /// # Errors
    /// No server answers, or it refuses this user.
    pub fn connect(
        options: &NatsOptions,
        say: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Self, BusError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("nats")
            .enable_all()
            .build()
            .map_err(cannot("has no thread"))?;
        let servers = servers(&options.servers)?;
        let connecting = connect_options(options, say)?.connect(servers);
        let client = runtime.block_on(async { timeout(2 * PATIENCE, connecting).await });
        let what = "cannot be reached";
        let client = client.map_err(cannot(what))?.map_err(cannot(what))?;
        let context = runtime.block_on(async { async_nats::jetstream::new(client) });
        Ok(Self {
            runtime,
            context,
            collected: Mutex::default(),
            open: Mutex::default(),
            seen: Arc::default(),
            clock: Arc::default(),
        })
    }

    /// The result of `work`, within the time allowed plus `more`.
    fn wait<T, E: Display>(
        &self,
        what: &str,
        more: Duration,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, BusError> {
        let work = async { timeout(PATIENCE + more, work).await };
        let done = self.runtime.block_on(work);
        let cannot = cannot(what);
        done.map_err(|_| BusError(format!("{what}: no answer")))?.map_err(cannot)
    }

    fn send(&self, subject: String, message: PublishMessage) -> Result<(), BusError> {
        self.wait("does not take it", Duration::ZERO, async {
            let sent = self.context.send_publish(subject, message).await?;
            sent.into_future().await
        })?;
        Ok(())
    }

    /// Makes a stream, or changes it to this. In a cluster it has up to [`REPLICAS`] copies.
    fn make_stream(&self, what: &str, config: stream::Config) -> Result<(), BusError> {
        self.wait(what, Duration::ZERO, async {
            let found = self.context.get_stream(&config.name).await;
            // A server without a cluster takes a change to several copies, and does not load such a
            // stream when it starts again (2.9).
            let copies = match &found {
                Ok(stream) => {
                    let info = stream.cached_info();
                    let now = info.config.num_replicas;
                    let is_in_cluster = info.cluster.is_some();
                    [if is_in_cluster { REPLICAS } else { now }, now]
                }
                Err(error) if is_missing(&error.kind()) => [REPLICAS, 1],
                Err(error) => return Err(error.to_string()),
            };
            let with = |num_replicas| stream::Config { num_replicas, ..config.clone() };
            let mut made = self.context.create_or_update_stream(with(copies[0])).await;
            if made.as_ref().is_err_and(lacks_servers) {
                made = self.context.create_or_update_stream(with(copies[1])).await;
            }
            made.map_err(|error| error.to_string())
        })?;
        Ok(())
    }

    /// The consumer of that name, which the coordinator has made. The server is not asked for it:
    /// in the account of the sites it knows of none.
    fn consumer(&self, stream: &str, name: &str) -> PullConsumer {
        let nothing = SequenceInfo { consumer_sequence: 0, stream_sequence: 0, last_active: None };
        let info = Info {
            stream_name: stream.to_owned(),
            name: name.to_owned(),
            created: DateTime::UNIX_EPOCH,
            config: consumer::Config::default(),
            delivered: nothing,
            ack_floor: nothing,
            num_ack_pending: 0,
            num_redelivered: 0,
            num_waiting: 0,
            num_pending: 0,
            cluster: None,
            push_bound: false,
        };
        PullConsumer::new(pull::Config::default(), info, self.context.clone())
    }

    /// Up to `most` messages; waits up to `wait` for the first.
    fn fetch(
        &self,
        [stream, consumer]: [&str; 2],
        most: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, BusError> {
        let fetched = self.wait("gives nothing", wait, async {
            let consumer = self.consumer(stream, consumer);
            let first = consumer.batch().max_messages(1).expires(wait).messages();
            let mut messages = Vec::new();
            drain(first.await, &mut messages).await?;
            // A batch would be waited for until it is full, so further messages are fetched
            // separately.
            if most > 1 && !messages.is_empty() {
                let more = consumer.fetch().max_messages(most - 1).messages();
                drain(more.await, &mut messages).await?;
            }
            Ok::<_, String>(messages)
        });
        Ok(fetched?.into_iter().map(|it| self.delivery(it)).collect())
    }

    fn delivery(&self, message: Message) -> Delivery {
        let mut open = lock(&self.open);
        open.last += 1;
        let receipt = open.last;
        let delivery = Delivery {
            site: name(message.subject.rsplit('.').next().unwrap_or_default()),
            body: message.payload.to_vec(),
            receipt,
        };
        open.messages.insert(receipt, message);
        if open.messages.len() > MAX_OPEN {
            open.messages.pop_first();
        }
        delivery
    }

    /// Watches the entries of the sites for as long as the connection lives. They are renewed all
    /// the time: where none comes, what the watch had at a server was lost with it, and the watch
    /// begins anew, without the entries of sites that may be gone.
    fn watch(&self, bucket: kv::Store) {
        let (seen, clock) = (self.seen.clone(), self.clock.clone());
        self.runtime.spawn(async move {
            let mut watch = timeout(PATIENCE, bucket.watch_with_history(">")).await;
            loop {
                if let Ok(Ok(entries)) = &mut watch {
                    while let Ok(Some(Ok(entry))) = timeout(GONE_AFTER, entries.next()).await {
                        note_clock(&mut lock(&clock), unix_ms(entry.created));
                        let mut seen = lock(&seen);
                        if entry.operation == kv::Operation::Put {
                            seen.insert(name(&entry.key), (entry.value.to_vec(), Instant::now()));
                        } else {
                            seen.remove(&name(&entry.key));
                        }
                    }
                }
                tokio::time::sleep(PAUSE).await;
                watch = timeout(PATIENCE, bucket.watch(">")).await;
            }
        });
    }
}

impl Bus for NatsBus {
    fn announce(&self, site: &str, presence: &[u8]) -> Result<(), BusError> {
        let message = PublishMessage::build().payload(presence.to_vec().into());
        self.send(format!("$KV.{SITES}.{}", token(site)), message)
    }

    fn withdraw(&self, site: &str) -> Result<(), BusError> {
        let message = PublishMessage::build().header("KV-Operation", "DEL");
        self.send(format!("$KV.{SITES}.{}", token(site)), message)
    }

    fn take(&self, site: &str, wait: Duration) -> Result<Option<Delivery>, BusError> {
        let Some(delivery) = self.fetch([WORK, &token(site)], 1, wait)?.pop() else {
            return Ok(None);
        };
        let open = lock(&self.open);
        let is_late = open.messages.get(&delivery.receipt).is_some_and(is_late);
        drop(open);
        if is_late {
            self.acknowledge(&delivery)?;
            return Ok(None);
        }
        Ok(Some(delivery))
    }

    fn publish(&self, site: &str, key: &str, report: &[u8]) -> Result<(), BusError> {
        let message = PublishMessage::build().payload(report.to_vec().into());
        self.send(format!("linerate.report.{}", token(site)), message.message_id(key))
    }

    fn acknowledge(&self, delivery: &Delivery) -> Result<(), BusError> {
        let Some(message) = lock(&self.open).messages.remove(&delivery.receipt) else {
            return Err(BusError("does not wait for it any more".to_owned()));
        };
        self.wait("does not let it go", Duration::ZERO, message.double_ack())
    }

    fn prepare(&self, sites: &[&str]) -> Result<(), BusError> {
        self.make_stream("has no room for sites", bucket())?;
        let bucket = self.wait("shows no sites", Duration::ZERO, async {
            self.context.get_key_value(SITES).await
        })?;
        self.make_stream("has no room for work", work())?;
        self.make_stream("has no room for reports", reports())?;
        let of_sites = sites.iter().map(|site| {
            let site = token(site);
            let subject = format!("linerate.work.{site}");
            (WORK, site, subject)
        });
        let own = (REPORTS, COORDINATOR.to_owned(), "linerate.report.*".to_owned());
        for (stream, name, subject) in of_sites.chain([own]) {
            self.wait("makes no consumer", Duration::ZERO, async {
                let config = of_consumer(&name, subject);
                self.context.create_consumer_on_stream(config, stream).await
            })?;
        }
        self.watch(bucket);
        Ok(())
    }

    fn offer(&self, site: &str, key: &str, task: &[u8]) -> Result<(), BusError> {
        let mut message = PublishMessage::build().payload(task.to_vec().into()).message_id(key);
        if let Some(clock) = *lock(&self.clock) {
            message = message.header(OFFERED, clock.now_ms().to_string());
        }
        self.send(format!("linerate.work.{}", token(site)), message)
    }

    fn clear(&self) -> Result<(), BusError> {
        self.wait("does not clear its work", Duration::ZERO, async {
            let found = self.context.get_stream_no_info(WORK).await;
            let purged = found.map_err(|error| error.to_string())?.purge().await;
            purged.map_err(|error| error.to_string())
        })?;
        Ok(())
    }

    fn collect(&self, wait: Duration) -> Result<Option<Delivery>, BusError> {
        let first = lock(&self.collected).pop_front();
        if first.is_some() {
            return Ok(first);
        }
        let more = self.fetch([REPORTS, COORDINATOR], BATCH, wait)?;
        let mut collected = lock(&self.collected);
        collected.extend(more);
        Ok(collected.pop_front())
    }

    fn present(&self) -> Result<Vec<Seen>, BusError> {
        let entries = lock(&self.seen);
        let seen = entries.iter().map(|(site, (body, at))| Seen {
            site: site.clone(),
            body: body.clone(),
            age: at.elapsed(),
        });
        Ok(seen.collect())
    }
}

impl std::fmt::Debug for NatsBus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NatsBus")
    }
}

/// The entry that was the least time under way shows the server's clock best.
fn note_clock(clock: &mut Option<ServerClock>, read_ms: i64) {
    if clock.is_none_or(|known| known.now_ms() < read_ms) {
        let at = Instant::now();
        *clock = Some(ServerClock { read_ms, at });
    }
}

/// Whether a task was too long on its way to the server: a connection that was cut for a while
/// delivers what the coordinator has given up meanwhile, and its sites may be in other tests.
fn is_late(task: &Message) -> bool {
    let offered = task.headers.as_ref().and_then(|it| it.get(OFFERED));
    let offered_ms = offered.and_then(|it| it.as_str().parse::<i64>().ok());
    let stored_ms = task.info().ok().map(|info| unix_ms(info.published));
    was_late(offered_ms, stored_ms)
}

fn was_late(offered_ms: Option<i64>, stored_ms: Option<i64>) -> bool {
    let times = offered_ms.zip(stored_ms);
    times.is_some_and(|(offered, stored)| {
        stored.saturating_sub(offered) > PATIENCE.as_millis() as i64
    })
}

fn unix_ms(time: DateTime) -> i64 {
    (time.unix_timestamp_nanos() / 1_000_000) as i64
}

/// All messages of a batch.
async fn drain<E: Display>(
    batch: Result<pull::Batch, E>,
    messages: &mut Vec<Message>,
) -> Result<(), String> {
    let mut batch = batch.map_err(|error| error.to_string())?;
    while let Some(message) = batch.next().await {
        messages.push(message.map_err(|error| error.to_string())?);
    }
    Ok(())
}

/// Same settings as the client's own call, which needs more features than server version 2.9 has.
fn bucket() -> stream::Config {
    stream::Config {
        name: format!("KV_{SITES}"),
        subjects: vec![format!("$KV.{SITES}.>")],
        max_messages_per_subject: 1,
        max_age: Duration::from_secs(60),
        max_message_size: MAX_PRESENCE as i32,
        discard: DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        ..stream::Config::default()
    }
}

fn work() -> stream::Config {
    stream::Config {
        name: WORK.to_owned(),
        subjects: vec!["linerate.work.*".to_owned()],
        retention: RetentionPolicy::WorkQueue,
        max_age: OFFER_LIFE,
        duplicate_window: OFFER_LIFE,
        max_messages_per_subject: MAX_TASKS,
        max_message_size: MAX_MESSAGE as i32,
        ..stream::Config::default()
    }
}

fn reports() -> stream::Config {
    stream::Config {
        name: REPORTS.to_owned(),
        subjects: vec!["linerate.report.*".to_owned()],
        retention: RetentionPolicy::WorkQueue,
        duplicate_window: DUPLICATES,
        max_messages: MAX_REPORTS,
        max_messages_per_subject: MAX_WAITING as i64,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_message_size: MAX_MESSAGE as i32 + 4096,
        ..stream::Config::default()
    }
}

fn of_consumer(name: &str, filter_subject: String) -> pull::Config {
    pull::Config {
        durable_name: Some(name.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACKNOWLEDGED_WITHIN,
        filter_subject,
        ..pull::Config::default()
    }
}

/// Whether there is no such stream.
fn is_missing(error: &GetStreamErrorKind) -> bool {
    let GetStreamErrorKind::JetStream(error) = error else {
        return false;
    };
    error.error_code() == ErrorCode::STREAM_NOT_FOUND
}

/// Whether a stream cannot be made because there are fewer servers than copies.
fn lacks_servers(error: &CreateStreamError) -> bool {
    let CreateStreamErrorKind::JetStream(error) = error.kind() else {
        return false;
    };
    let lacking = [ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED, ErrorCode::CLUSTER_NO_PEERS];
    lacking.contains(&error.error_code())
}

fn servers(list: &str) -> Result<Vec<ServerAddr>, BusError> {
    let server = |text: &str| text.trim().parse().map_err(cannot("has no such address"));
    list.split(',').map(server).collect()
}

fn connect_options(
    options: &NatsOptions,
    say: Arc<dyn Fn(&str) + Send + Sync>,
) -> Result<ConnectOptions, BusError> {
    let is_lost = AtomicBool::new(false);
    let mut connect = ConnectOptions::new()
        .name("linerate")
        .connection_timeout(PATIENCE)
        .request_timeout(Some(PATIENCE))
        .event_callback(move |event| {
            match event {
                Event::Disconnected => {
                    is_lost.store(true, Ordering::Relaxed);
                    say("the bus is lost; tried again until it is back");
                }
                Event::Connected if is_lost.load(Ordering::Relaxed) => say("the bus is back"),
                Event::ServerError(error) => say(&format!("the bus: {error}")),
                _ => {}
            }
            async {}
        });
    if let Some(text) = &options.credentials {
        connect = if text.contains("BEGIN NATS USER JWT") {
            connect.credentials(text).map_err(cannot("takes no such credentials"))?
        } else {
            connect.nkey(text.trim().to_owned())
        };
    }
    if let Some(ca) = &options.ca {
        connect = connect.add_root_certificates(ca.clone());
    }
    Ok(match &options.site {
        Some(site) => connect.custom_inbox_prefix(format!("_INBOX_{}", token(site))),
        None => connect,
    })
}

/// The subjects a user may publish to and those it may listen to: an agent's `site`, or without one
/// the coordinator.
pub fn permissions(site: Option<&str>) -> [Vec<String>; 2] {
    let Some(site) = site else {
        let publish = [
            "$JS.API.>",
            "$JS.ACK.>",
            // Without its answers the server stops the flow of the sites' entries.
            "$JS.FC.>",
            "$KV.linerate_sites.>",
            "linerate.work.*",
        ];
        return [publish.map(str::to_owned).to_vec(), vec!["_INBOX.>".to_owned()]];
    };
    let site = token(site);
    let publish = SERVICES.map(|(subject, _)| subject.replace('*', &site));
    [publish.to_vec(), vec![format!("_INBOX_{site}.>")]]
}

/// What sites ask of the coordinator's account, and whether it answers several times: `*` is the
/// site. They have an account of their own with nothing else in it: a server sends its answer to
/// whatever subject a message names for it, also to one that its sender may not publish to, such as
/// that by which a stream is deleted.
pub const SERVICES: [(&str, bool); 4] = [
    ("$KV.linerate_sites.*", false),
    ("linerate.report.*", false),
    ("$JS.API.CONSUMER.MSG.NEXT.linerate_work.*", true),
    ("$JS.ACK.linerate_work.*.>", false),
];

/// A new user NKey: its secret seed and its public key.
///
/// # Errors
/// The host provides no random numbers.
pub fn new_key() -> io::Result<[String; 2]> {
    let key = nkeys::KeyPair::new_user();
    let seed = key.seed().map_err(io::Error::other)?;
    Ok([seed, key.public_key()])
}

/// The public key of a seed; `None` if it is not a user's.
pub fn public_key(seed: &str) -> Option<String> {
    let key = nkeys::KeyPair::from_seed(seed.trim()).ok()?;
    let public = key.public_key();
    public.starts_with('U').then_some(public)
}

/// A site's name as part of a subject, where a dot would start the next part.
fn token(site: &str) -> String {
    site.replace('.', "=2E")
}

/// The site name of a [`token`].
fn name(token: &str) -> String {
    token.replace("=2E", ".")
}

fn cannot<E: Display>(what: &str) -> impl Fn(E) -> BusError {
    let what = what.to_owned();
    move |error| BusError(format!("{what}: {error}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_clock_is_that_of_the_fastest_entry() {
        let mut clock = None;
        note_clock(&mut clock, 1_000_000);
        // It was under way for a minute, because the connection was cut.
        note_clock(&mut clock, 940_000);
        assert!(clock.unwrap().now_ms() >= 1_000_000);
        note_clock(&mut clock, 1_200_000);
        assert!(clock.unwrap().now_ms() >= 1_200_000);
    }

    #[test]
    fn an_offer_that_was_on_its_way_for_a_minute_is_late() {
        let late = |offered_ms| was_late(offered_ms, Some(1_000_000));
        assert!(late(Some(940_000)));
        assert!(!late(Some(999_000)));
        // By a coordinator that has seen no site yet, and by one whose server's clock went back.
        assert!(!late(None) && !late(Some(5_000_000)));
        assert!(late(Some(i64::MIN)));
    }
}
