//! What the processes of a path use: memory and time, as Linux tells it under /proc.
//!
//! A process is found by the port it listens on. All that hold the socket count, as the workers of nginx do; what they
//! start without handing it on, such as Ollama's runners, does not. Elsewhere than on Linux, or where one may not
//! look, nothing is found, and nothing is said about it.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

pub type Pid = u32;

/// The kernel counts time in these for programs, on every architecture that it still runs on.
const TICK: Duration = Duration::from_millis(10);

/// How /proc/net/tcp writes that a socket listens.
const LISTENS: &str = "0A";

/// What some processes use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Since they began.
    pub cpu: Duration,
    pub rss_bytes: u64,
}

/// The processes that listen on one of these addresses, if it is on this machine.
pub fn listening_on(addresses: &[SocketAddr]) -> Vec<Pid> {
    let here: Vec<SocketAddr> = addresses.iter().copied().filter(|address| is_here(address.ip())).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().filter_map(|table| fs::read_to_string(table).ok());
    let sockets: HashSet<String> = tables.flat_map(|table| sockets(&table, &here)).collect();
    if sockets.is_empty() { Vec::new() } else { holders(&sockets) }
}

/// What these processes use; none if none of them can be looked at.
pub fn usage(processes: &[Pid]) -> Option<Usage> {
    let used = processes.iter().filter_map(|pid| usage_of(*pid));
    used.reduce(|one, other| Usage { cpu: one.cpu + other.cpu, rss_bytes: one.rss_bytes + other.rss_bytes })
}

/// A port may be somebody's here and somebody else's elsewhere. Only addresses of one's own can be listened on.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || TcpListener::bind((ip, 0)).is_ok()
}

/// The names, as /proc/*/fd has them, of the sockets in a table that listen where one of these addresses leads.
fn sockets(table: &str, addresses: &[SocketAddr]) -> Vec<String> {
    let socket = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
        let (ip, port) = local.split_once(':')?;
        let (ip, port) = (address(ip)?, u16::from_str_radix(port, 16).ok()?);
        let leads = |to: &SocketAddr| to.port() == port && (ip.is_unspecified() || ip == to.ip().to_canonical());
        (*state == LISTENS && addresses.iter().any(leads)).then(|| format!("socket:[{inode}]"))
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// An address as the kernel prints it: words of four bytes, each in the machine's own order.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    if hex.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
        four.copy_from_slice(&word(at)?);
    }
    Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
}

fn holders(sockets: &HashSet<String>) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
    let holds = |pid: &Pid| {
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        let mut names = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        names.any(|name| name.to_str().is_some_and(|name| sockets.contains(name)))
    };
    pids.filter(holds).collect()
}

fn usage_of(pid: Pid) -> Option<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = resident.trim().trim_end_matches("kB").trim_end().parse().ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything; the numbers come after its end.
    let numbers: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| numbers.get(at)?.parse::<u32>().ok();
    // Its own time and the kernel's on its behalf: fields 14 and 15, of which the first two are gone.
    Some(Usage { cpu: TICK * (ticks(11)? + ticks(12)?), rss_bytes: kib * 1024 })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_listens_is_found_by_its_port_and_no_other_is() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        assert!(listening_on(&[address]).contains(&std::process::id()));
        let elsewhere = SocketAddr::new([192, 0, 2, 1].into(), address.port());
        assert!(listening_on(&[elsewhere]).is_empty(), "the same port of another machine");
    }

    #[test]
    fn a_listener_on_all_addresses_is_found_by_any_of_them() {
        for everywhere in ["0.0.0.0:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(everywhere) else { continue };
            let port = listener.local_addr().expect("an address").port();
            assert!(listening_on(&[SocketAddr::from(([127, 0, 0, 1], port))]).contains(&std::process::id()));
        }
    }

    #[test]
    fn a_process_uses_memory_and_one_that_is_not_there_is_not_seen() {
        let used = usage(&[std::process::id()]).expect("this one is there");
        assert!(used.rss_bytes > 1 << 20, "{used:?}");
        assert_eq!(usage(&[]), None);
        assert_eq!(usage(&[Pid::MAX]), None);
    }

    #[test]
    fn addresses_are_read_as_the_kernel_prints_them() {
        let loopback = u32::from_ne_bytes([127, 0, 0, 1]);
        assert_eq!(address(&format!("{loopback:08X}")), Some([127, 0, 0, 1].into()));
        let mapped = format!("{:08X}{:08X}{:08X}{loopback:08X}", 0, 0, u32::from_ne_bytes([0, 0, 255, 255]));
        assert_eq!(address(&mapped), Some([127, 0, 0, 1].into()));
        assert_eq!(address("not"), None);
    }
}
