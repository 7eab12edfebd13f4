//! The path of a cell: a spec joined from fragments, a topology's file, or an endpoint.

use std::net::IpAddr;

use super::super::model::{ExperimentPath, Place};
use super::cells::Resolver;
use super::file_text;
use super::setting::{PathSetting, Setting};
use crate::lab::Topology;
use crate::link::PathSpec;
use crate::toml_reader::{self, At, Fault};
use crate::units::{EndpointName, shortened};

impl<'a> Resolver<'a> {
    pub(super) fn place(&self, settings: &[&Setting<'a>]) -> Result<Place, Fault> {
        let mut path = self.base.path.clone();
        for setting in settings.iter().copied().chain(&self.quick) {
            let is_real = path.host.is_some();
            let other = &setting.path;
            if is_real && (!other.lab.is_empty() || other.topology.is_some()) {
                let hint = "a real path is as it is, and this level makes one of its own: the file \
                    runs on labs alone";
                return Fault::contradiction(setting.offset, "`lab` or `topology`", hint);
            }
            path = path.merged(other);
        }
        if let (Some(_), Some(at)) = (&path.host, path.server_cpu) {
            let hint = "the endpoint of a real path has the CPUs that it has, and other clients: \
                run it on a lab";
            return Fault::contradiction(at.offset, "`server_cpu`", hint);
        }
        let family = path.family.map(toml_reader::family).transpose()?;
        Ok(Place {
            family: self.family.or(family),
            client_cpu: path.client_cpu.map(share).transpose()?,
            server_cpu: path.server_cpu.map(share).transpose()?,
            path: self.path(&path)?,
        })
    }

    fn path(&self, path: &PathSetting<'a>) -> Result<ExperimentPath, Fault> {
        if let Some(host) = &path.host {
            let name = host.value.parse::<EndpointName>();
            let fault = |error| Fault::new(host.offset, format!("host: {error}"));
            return Ok(ExperimentPath::Host(name.map_err(fault)?));
        }
        if let Some(topology) = path.topology {
            return self.topology(path, topology);
        }
        let (text, offset) = joined(&path.lab, self.base.offset);
        let spec = match text.as_str() {
            "" => Ok(PathSpec::default()),
            text => text.parse(),
        };
        let spec: PathSpec = spec.map_err(|error| {
            let spec = shortened(&text);
            Fault::new(offset, format!("in the spec `{spec}`, {error}"))
        })?;
        if let Some(at) = path.client.or(path.server).or(path.address) {
            let hint = "a path's hosts are client and server; give a `topology`";
            return Fault::contradiction(at.offset, "`client`, `server` and `address`", hint);
        }
        Ok(ExperimentPath::from_spec(spec))
    }

    fn topology(&self, path: &PathSetting<'a>, file: At<&'a str>) -> Result<ExperimentPath, Fault> {
        if let Some(fragment) = path.lab.first() {
            let hint = "a topology has a `spec` for each of its links";
            return Fault::contradiction(fragment.offset, "`lab`", hint);
        }
        let topology = Topology::from_toml(&file_text(file, self.files)?)
            .map_err(|error| Fault::new(file.offset, format!("in the topology, {error}")))?;
        let host = |at: Option<At<&str>>, default: &str| {
            let name = at.map_or(default, |at| at.value);
            if topology.node(name).is_some() {
                return Ok(name.to_owned());
            }
            let names = topology.nodes.iter().map(|node| node.name.as_str());
            let names: Vec<&str> = names.collect();
            let at = at.unwrap_or(file).map(|_| name);
            Err(Fault::unknown(at, "host", &names))
        };
        let client = host(path.client, "client")?;
        let server = host(path.server, "server")?;
        let address = path.address.map(|at| address(&topology, &server, at));
        let address = address.transpose()?;
        Ok(ExperimentPath::Lab {
            name: file.value.to_owned(),
            spec: None,
            topology: Box::new(topology),
            client,
            server,
            address,
        })
    }
}

/// The spec that fragments make together, and where the last of them is. A key takes the place of
/// the same key before it, and one for both directions that of those for one.
fn joined(fragments: &[At<String>], base: usize) -> (String, usize) {
    let mut entries: Vec<(&str, &str)> = Vec::new();
    for fragment in fragments {
        let own = entries_of(&fragment.value).into_iter();
        let own = own.map(|entry| (entry.split('=').next().unwrap_or(entry).trim(), entry));
        let own: Vec<(&str, &str)> = own.collect();
        entries.retain(|(key, _)| {
            let bare = key.trim_start_matches("up.").trim_start_matches("down.");
            !own.iter().any(|(other, _)| other == key || *other == bare)
        });
        entries.extend(own);
    }
    let texts: Vec<&str> = entries.iter().map(|(_, entry)| *entry).collect();
    let offset = fragments.last().map_or(base, |last| last.offset);
    (texts.join(","), offset)
}

/// `a=1,loss=ge(1%,2%)` at the commas that are not within parentheses.
fn entries_of(spec: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = spec.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).collect()
}

/// `"25%"` of one CPU.
fn share(at: At<&str>) -> Result<u32, Fault> {
    let digits = at.value.strip_suffix('%').unwrap_or(at.value);
    match digits.trim().parse::<u32>() {
        Ok(percent @ 1..=100) => Ok(percent),
        _ => Fault::malformed(at, "share of a CPU", "write \"1%\" to \"100%\""),
    }
}

fn address(topology: &Topology, server: &str, at: At<&str>) -> Result<IpAddr, Fault> {
    let hint = "write 198.18.5.1 or 2001:2::1";
    let address: IpAddr = at.parsed("address", hint, |_| true)?;
    let interfaces = topology.node(server).map(|node| node.interfaces.iter());
    let own = interfaces.into_iter().flatten();
    let mut own = own.flat_map(|interface| &interface.addresses);
    if own.any(|own| own.address == address) {
        Ok(address)
    } else {
        let what = format!("`{}`", at.value);
        Fault::contradiction(at.offset, what, "the server does not have it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(fragments: &[&str]) -> String {
        let fragments: Vec<At<String>> = (fragments.iter())
            .map(|text| At {
                offset: 0,
                value: (*text).to_owned(),
            })
            .collect();
        joined(&fragments, 0).0
    }

    #[test]
    fn a_fragment_replaces_its_own_keys_and_adds_the_others() {
        let base = "rate=10mbit,rtt=29ms,loss=ge(1%,20%)";
        assert_eq!(spec(&[base]), base);
        assert_eq!(
            spec(&[base, "loss=0.5%,hops=1"]),
            "rate=10mbit,rtt=29ms,loss=0.5%,hops=1"
        );
        assert_eq!(
            spec(&[base, "", "rtt=1ms"]),
            "rate=10mbit,loss=ge(1%,20%),rtt=1ms"
        );
    }

    #[test]
    fn a_key_for_both_directions_replaces_the_key_of_one() {
        assert_eq!(
            spec(&["up.loss=1%,down.rate=1mbit", "loss=2%"]),
            "down.rate=1mbit,loss=2%"
        );
        assert_eq!(spec(&["loss=2%", "up.loss=1%"]), "loss=2%,up.loss=1%");
    }
}
