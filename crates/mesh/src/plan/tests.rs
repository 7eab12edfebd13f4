use super::*;

const FILE: &str = r#"
bytes-per-day = "1TB"
keep = "90d"

[[group]]
name = "uplink-7"
ways = "each"

[[site]]
name = "oslo"
host = "oslo.example:5202"
labels = { region = "north" }
groups = ["uplink-7", "north"]
rate = "1gbit"
share = "1%"

[[site]]
name = "rome"
host = "192.0.2.2"
groups = ["uplink-7"]
share-of-time = "10%"

[[site]]
name = "nat"
can = ["rr"]

[[test]]
name = "bulk"
workload = { command = "stream", time = "10s" }
every = "24h"
priority = 2

[[test]]
name = "delay"
workload = { command = "rr", time = "2s" }
sites = ["uplink-7", "nat"]
at-once = 4
"#;

#[test]
fn a_file_is_read_with_its_defaults() {
    let mesh = Mesh::from_toml(FILE, 7).unwrap();
    assert_eq!(mesh.sites.len(), 3);
    assert_eq!(mesh.keep_s, Some(90 * 86_400));
    assert_eq!(mesh.sites[0].groups, [0, 1]);
    assert!(mesh.groups[0].each_way && !mesh.groups[1].each_way);
    assert_eq!(mesh.sites[0].bytes_per_day, Some(108_000_000_000));
    assert_eq!(mesh.sites[1].share_of_time, 0.1);
    assert_eq!(mesh.sites[2].host, None);
    let [bulk, delay] = &mesh.tests[..] else {
        panic!("two tests");
    };
    assert_eq!((bulk.kind, &bulk.sites[..]), (TestKind::Bandwidth, &[0, 1][..]));
    assert_eq!((bulk.every_s, bulk.priority), (86_400, 2));
    assert_eq!(delay.kind, TestKind::Latency { at_once: 4 });
    assert_eq!(delay.sites, [0, 1, 2]);
    assert_eq!(bulk.duration(), Nanos::from_millis(12_000));
}

#[test]
fn a_mistake_is_reported_with_its_place() {
    let cases = [
        ("name = \"rome\"", "name = \"oslo\"", "there are two sites with the name `oslo`"),
        ("name = \"rome\"", "name = \"north\"", "`north` is a site and a group"),
        ("\"uplink-7\"\nways", "\"uplink-8\"\nways", "no site has the group `uplink-8`"),
        ("\"each\"", "\"one\"", "line 7, column 8: `one` is no number of ways"),
        ("\"1%\"", "\"101%\"", "line 15, column 9: `101%` is no share"),
        ("\"10%\"", "\"0%\"", "line 21, column 17: `0%` is no share of time"),
        ("can = [\"rr\"]", "can = [\"rm\"]", "line 25, column 8: `rm` is no command"),
        ("\"90d\"", "\"90h\"", "line 3, column 8: `90h` is no time to keep"),
        ("\"nat\"]", "\"nut\"]", "line 36, column 22: `nut` is no site or group"),
        ("at-once = 4", "at-once = 99", "`at-once = 99` is out of range"),
        ("time = \"10s\"", "tine = \"10s\"", "the workload has no key `tine`"),
        ("priority = 2", "at-once = 2", "`at-once` with `stream`: a site is in one"),
        ("can = [\"rr\"]", "share = \"1%\"", "[[site]] needs `rate`"),
        (
            "bytes-per-day = \"1TB\"",
            "bytes-per-day = \"1GB\"",
            "one run of `bulk` at `oslo` may carry",
        ),
    ];
    for (text, other, says) in cases {
        let error = Mesh::from_toml(&FILE.replacen(text, other, 1), 1).unwrap_err();
        assert!(error.to_string().contains(says), "{error}\n{says}");
    }
}

#[test]
fn a_mesh_has_2_to_3000_sites() {
    let file = |sites: usize| {
        let site = |number| format!("[[site]]\nname = \"s{number}\"\nhost = \"192.0.2.1\"\n");
        let sites: String = (0..sites).map(site).collect();
        format!("{sites}[[test]]\nname = \"a\"\nworkload = {{ command = \"rr\" }}\n")
    };
    assert_eq!(Mesh::from_toml(&file(MAX_SITES), 1).unwrap().sites.len(), MAX_SITES);
    for wrong in [1, MAX_SITES + 1] {
        let error = Mesh::from_toml(&file(wrong), 1).unwrap_err().to_string();
        assert!(error.contains("a mesh has 2 to 3000 tables [[site]]"), "{error}");
    }
}

#[test]
fn a_site_has_no_name_of_another_part_of_the_mesh_or_of_a_directory() {
    for name in ["coordinator", ".", "..", "-_"] {
        let text = format!(
            "[[site]]\nname = \"{name}\"\n[[site]]\nname = \"b\"\n[[test]]\nname = \"t\"\nworkload \
             = {{ command = \"rr\" }}\n"
        );
        let error = Mesh::from_toml(&text, 7).unwrap_err().to_string();
        let says = format!("line 1, column 1: a site is called `{name}`");
        assert!(error.contains(&says), "{error}");
    }
}
