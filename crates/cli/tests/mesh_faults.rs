//! Faults of a mesh on NATS: whatever is killed, cut off or set back, no result is lost, none is
//! there twice, and tests go on within 30 s.
//!
//! The tests of many faults take minutes. `LINERATE_FAULTS=20` sets how many of each kind there
//! are: `cargo test -p linerate --all-features --test it -- --ignored --nocapture mesh_faults`
#![cfg(feature = "nats")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use linerate_testkit::{Need, made_or_skip};

use crate::mesh_world::{SITES, World};
use crate::nats_server::{Cluster, Server};

/// How many faults of each kind the long tests have.
fn count() -> usize {
    let count = std::env::var("LINERATE_FAULTS");
    count.ok().map_or(3, |count| count.parse().unwrap())
}

/// Longest time in which tests must go on, on a machine that does nothing else.
const RESUMES_WITHIN: Duration = Duration::from_secs(30);

/// How long tests took to go on after each fault of a kind.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    /// Prints them. Where `is_held`, none may be longer than [`RESUMES_WITHIN`].
    fn print(mut self, what: &str, is_held: bool) {
        self.0.sort_unstable();
        let [median, longest] =
            [self.0.len() / 2, self.0.len() - 1].map(|at| self.0[at].as_secs_f64());
        eprintln!(
            "{what}, {} times: tests went on after {median:.1} s in the median, {longest:.1} s at \
             most",
            self.0.len()
        );
        assert!(!is_held || longest <= RESUMES_WITHIN.as_secs_f64());
    }
}

fn kills(count: usize, is_held: bool) {
    let mut world = World::new();
    let Some(mut server) = Server::start(&world.users) else {
        return;
    };
    world.start(&server.url());
    let [mut coordinators, mut agents, mut servers] = [(); 3].map(|()| Times::default());
    for number in 0..count {
        world.kill_coordinator();
        world.start_coordinator();
        let took = world.resumed("a coordinator was killed", None);
        coordinators.0.push(took);
        let agent = number % SITES.len();
        world.kill_agent(agent);
        world.start_agent(agent);
        let took = world.resumed("an agent was killed", Some(agent));
        agents.0.push(took);
        server.kill();
        server.start_again();
        servers.0.push(world.resumed("the server was killed", None));
    }
    world.all_pairs_are_measured();
    let results = world.end(true);
    coordinators.print("coordinator killed and started again", is_held);
    agents.print("agent killed and started again", is_held);
    servers.print("nats-server killed and started again", is_held);
    eprintln!("{results} results, each once");
}

#[test]
fn after_kills_of_coordinator_agent_and_server_no_result_is_lost_or_doubled() {
    kills(1, false);
}

#[test]
#[ignore = "minutes: a minute for each LINERATE_FAULTS"]
fn after_many_kills_no_result_is_lost_or_doubled() {
    kills(count(), true);
}

#[test]
#[ignore = "minutes: a minute for each LINERATE_FAULTS"]
fn after_many_partitions_no_result_is_lost_or_doubled() {
    // Longer than the 9 s after which a silent agent counts as gone.
    let length = std::env::var("LINERATE_PARTITION_S");
    let length = length.map_or(15, |seconds| seconds.parse().unwrap());
    let mut world = World::new();
    let Some(server) = Server::start(&world.users) else {
        return;
    };
    world.start_by_relays(server.port());
    let mut all = Times::default();
    for number in 0..count() {
        // The coordinator and each agent in turn.
        let part = number % (SITES.len() + 1);
        world.connect(part, false);
        std::thread::sleep(Duration::from_secs(length));
        world.connect(part, true);
        all.0.push(world.resumed("a part was cut off", Some(part)));
    }
    world.all_pairs_are_measured();
    let results = world.end(true);
    all.print(&format!("partition of {length} s"), true);
    eprintln!("{results} results, each once");
}

#[test]
#[ignore = "minutes: half a minute for each LINERATE_FAULTS"]
fn after_clocks_were_set_back_no_result_is_lost_or_doubled() {
    let Some(library) = made_or_skip(Need::Faketime, faketime()) else {
        return;
    };
    let mut world = World::new();
    let Some(server) = Server::start(&world.users) else {
        return;
    };
    world.start_with_clocks(&server.url(), library);
    let mut all = Times::default();
    for number in 0..count() {
        let part = number % (SITES.len() + 1);
        world.set_clock(part, 3600 * (number + 1) as u32);
        all.0.push(world.resumed("a clock was set back", Some(part)));
    }
    world.all_pairs_are_measured();
    // The agents did see other clocks.
    assert!(world.hours() > count() / 2, "{}", world.hours());
    // The times in the records are those of clocks that differ.
    let results = world.end(false);
    all.print("clock set back by an hour or more", true);
    eprintln!("{results} results, each once");
}

/// The library that a program loads in order to see another clock.
fn faketime() -> Result<PathBuf, &'static str> {
    let multiarch = fs::read_dir("/usr/lib").map_err(|_| "there is no /usr/lib")?;
    let library = |path: PathBuf| path.join("faketime/libfaketimeMT.so.1");
    let mut found = multiarch.filter_map(|entry| Some(library(entry.ok()?.path())));
    found.find(|path| path.exists()).ok_or("libfaketime is not installed")
}

#[test]
#[ignore = "a minute, and processes enough for two CPUs"]
fn a_cluster_of_three_servers_loses_one_after_the_other_and_tests_go_on() {
    let mut world = World::new();
    let Some(mut cluster) = Cluster::start(&world.users) else {
        return;
    };
    world.start(&cluster.url());
    let mut all = Times::default();
    for number in 0..cluster.servers.len() {
        cluster.servers[number].kill();
        all.0.push(world.resumed("one of three was killed", None));
        cluster.servers[number].start_again();
        cluster.wait(number);
    }
    world.all_pairs_are_measured();
    let results = world.end(true);
    all.print("one of three nats-servers killed", true);
    eprintln!("{results} results, each once");
}
