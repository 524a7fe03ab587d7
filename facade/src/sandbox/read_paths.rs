//! What the C library and the TLS library read after start: by directory, since a rule on a file dies
//! with the file when it is replaced by another, as resolv.conf and the certificate bundles are.

use std::fs;
use std::path::{Path, PathBuf};

use super::Plan;

/// Where name resolution reads its configuration (resolver(5), nsswitch.conf(5), hosts(5), gai.conf(5),
/// host.conf(5)) and its modules. The last two are where NixOS and Guix keep everything.
const FOR_NAMES: [&str; 8] =
    ["/etc", "/usr/etc", "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/nix/store", "/gnu/store"];

/// Where distributions keep root certificates and what the links there lead to.
const FOR_TLS_ROOTS: [&str; 10] = [
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/share/pki",
    "/usr/lib/ssl",
    "/var/lib/ca-certificates",
    "/nix/store",
    "/gnu/store",
];

/// Configuration files that are often links to what a network manager writes.
const OFTEN_LINKS: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"];

/// Where such a link may lead and its whole directory be granted. A link to elsewhere grants the file
/// alone: its directory may be anyone's, and hold the host's configuration with the key.
const MANAGED: [&str; 4] = ["/run/", "/var/run/", "/usr/", "/mnt/wsl/"];

/// The directories, and single files, that stay readable under `plan`. Some may not exist.
pub fn readable(plan: &Plan) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if plan.names {
        paths.extend(FOR_NAMES.map(PathBuf::from));
        paths.extend(OFTEN_LINKS.iter().filter_map(|link| behind(Path::new(link))));
    }
    if plan.tls_roots {
        paths.extend(FOR_TLS_ROOTS.map(PathBuf::from));
    }
    paths.extend(plan.read.iter().cloned());
    // Each costs an open; an ancestor already grants what is below it.
    let all = paths.clone();
    let has_ancestor = |path: &Path| all.iter().any(|other| path != other && path.starts_with(other));
    paths.retain(|path| !has_ancestor(path));
    paths.sort();
    paths.dedup();
    paths
}

/// What has to be granted so that the target of `link` can be read; `None` where it is no link.
fn behind(link: &Path) -> Option<PathBuf> {
    // Where the target is not there yet, the name service that writes it may not have started.
    let target = fs::canonicalize(link).or_else(|_| named_by(link)).ok()?;
    grant_for(link, &target)
}

/// Where a link points, without looking whether anything is there.
fn named_by(link: &Path) -> std::io::Result<PathBuf> {
    let target = link.parent().unwrap_or(Path::new("/")).join(fs::read_link(link)?);
    let mut plain = PathBuf::new();
    for part in target.components() {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    Ok(plain)
}

fn grant_for(link: &Path, target: &Path) -> Option<PathBuf> {
    if target == link {
        return None;
    }
    let managed = MANAGED.iter().any(|prefix| target.starts_with(prefix));
    match target.parent() {
        Some(directory) if managed && !MANAGED.iter().any(|prefix| Path::new(prefix) == directory) => {
            Some(directory.into())
        }
        _ => Some(target.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(target: &str) -> Option<String> {
        let grant = grant_for(Path::new("/etc/resolv.conf"), Path::new(target));
        grant.map(|path| path.display().to_string())
    }

    #[test]
    fn a_link_grants_the_directory_of_a_network_manager_and_nothing_larger() {
        let directory = granted("/run/systemd/resolve/stub-resolv.conf");
        assert_eq!(directory.as_deref(), Some("/run/systemd/resolve"));
        assert_eq!(granted("/mnt/wsl/resolv.conf").as_deref(), Some("/mnt/wsl/resolv.conf"));
        assert_eq!(granted("/run/resolv.conf").as_deref(), Some("/run/resolv.conf"));
        assert_eq!(granted("/home/agent/resolv.conf").as_deref(), Some("/home/agent/resolv.conf"));
        assert_eq!(granted("/resolv.conf").as_deref(), Some("/resolv.conf"));
        assert_eq!(granted("/etc/resolv.conf"), None);
    }

    #[test]
    fn a_plan_without_names_and_roots_grants_nothing() {
        assert!(readable(&Plan::default()).is_empty());
    }

    #[test]
    fn what_lies_below_a_granted_directory_is_not_opened_again() {
        let paths = readable(&Plan { names: true, tls_roots: true, ..Plan::default() });
        assert!(paths.contains(&"/etc".into()) && paths.contains(&"/usr/share/ca-certificates".into()));
        assert!(
            !paths.iter().any(|path| path.starts_with("/etc/") && path != Path::new("/etc")),
            "{paths:?}"
        );
        assert!(!paths.iter().any(|path| path.starts_with("/proc") || path == Path::new("/")), "{paths:?}");
    }
}
