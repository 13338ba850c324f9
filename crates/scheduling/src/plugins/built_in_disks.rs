//! Disks of built-in drivers, as the CSI drivers that do their work know them.
//!
//! Follows Kubernetes' `csi-translation-lib` as far as placement needs it: the driver, its name of the disk,
//! and the nodes from which the disk is accessible.

mod topology;

use std::collections::BTreeSet;

use api::core::v1::{PersistentVolume, Volume};
use api::json::{Text, Value};
use api::well_known::LABEL_TOPOLOGY_ZONE;

const AWS: &str = "kubernetes.io/aws-ebs";
const GCE: &str = "kubernetes.io/gce-pd";
const AZURE: &str = "kubernetes.io/azure-disk";
const CINDER: &str = "kubernetes.io/cinder";
const PORTWORX: &str = "kubernetes.io/portworx-volume";

/// Names of built-in drivers, and the CSI drivers that do their work. Kubernetes counts volumes of some only.
const DRIVERS: [(&str, Option<&str>); 7] = [
    (AWS, Some("ebs.csi.aws.com")),
    (GCE, Some("pd.csi.storage.gke.io")),
    (AZURE, Some("disk.csi.azure.com")),
    (CINDER, Some("cinder.csi.openstack.org")),
    (PORTWORX, Some("pxd.portworx.com")),
    ("kubernetes.io/azure-file", None),
    ("kubernetes.io/vsphere-volume", None),
];

/// Labels that name the zones of a volume.
const ZONES: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", LABEL_TOPOLOGY_ZONE];

/// Between the zones of a volume that is in several.
const DELIMITER: &str = "__";

/// A disk of a CSI driver.
pub(super) type Disk = (&'static str, Text);

/// Whether a driver is built in.
pub(super) fn is_built_in(driver: &str) -> bool {
    DRIVERS.iter().any(|(name, _)| *name == driver)
}

/// The CSI driver that replaces a built-in driver.
pub(super) fn driver_of(built_in: &str) -> Option<&'static str> {
    DRIVERS.iter().find(|(name, _)| *name == built_in)?.1
}

/// Whether a volume that is written into a pod is a disk of a built-in driver.
pub(super) fn is_disk(volume: &Volume) -> bool {
    source_of(volume).is_some() || volume.azure_file.is_some() || volume.vsphere_volume.is_some()
}

/// The disk that is written into a pod; nothing where there is none, or none that counts.
///
/// # Errors
/// Why the CSI driver cannot have it.
pub(super) fn of_pod(volume: &Volume) -> Result<Option<Disk>, String> {
    let Some((driver, source)) = source_of(volume) else { return Ok(None) };
    let disk = match driver {
        GCE => Ok(in_zone("UNSPECIFIED", source)),
        _ => handle(driver, source),
    };
    let named = disk.map_err(|error| format!("converting volume({}) from inline to csi: {error}", volume.name))?;
    Ok(driver_of(driver).map(|csi| (csi, named.into())))
}

/// The disk that a volume is; nothing where it is none, or none that counts.
pub(super) fn of_volume(volume: &PersistentVolume) -> Option<Disk> {
    let (driver, source) = source_of_volume(volume)?;
    Some((driver_of(driver)?, handle_of_volume(driver, source, volume).ok()?.into()))
}

/// A volume of a built-in driver that a CSI driver has replaced.
pub(super) struct MigratedVolume {
    /// The built-in driver.
    pub(super) driver: &'static str,
    /// The volume in the form of the CSI driver, or the reason why it has none. Only its accessibility is read.
    pub(super) volume: Result<PersistentVolume, String>,
}

/// The volume as a CSI driver would have it; `None` if its driver is not a built-in one.
pub(super) fn migrated(volume: &PersistentVolume) -> Option<MigratedVolume> {
    let (driver, source) = source_of_volume(volume)?;
    let moved = handle_of_volume(driver, source, volume).map(|_| topology::moved(volume, driver));
    Some(MigratedVolume { driver, volume: moved.map_err(|error| format!("could not translate pv: {error}")) })
}

fn source_of_volume(volume: &PersistentVolume) -> Option<(&'static str, &Value)> {
    let spec = &volume.spec;
    let sources = [
        (AWS, &spec.aws_elastic_block_store),
        (GCE, &spec.gce_persistent_disk),
        (AZURE, &spec.azure_disk),
        (CINDER, &spec.cinder),
        (PORTWORX, &spec.portworx_volume),
    ];
    sources.into_iter().find_map(|(driver, source)| Some((driver, source.as_ref()?)))
}

fn handle_of_volume(driver: &str, source: &Value, volume: &PersistentVolume) -> Result<String, String> {
    match driver {
        GCE => google(volume, source).map_err(|error| format!("failed to get region from zones: {error}")),
        _ => handle(driver, source),
    }
}

fn source_of(volume: &Volume) -> Option<(&'static str, &Value)> {
    let sources = [
        (AWS, &volume.aws_elastic_block_store),
        (GCE, &volume.gce_persistent_disk),
        (AZURE, &volume.azure_disk),
        (CINDER, &volume.cinder),
        (PORTWORX, &volume.portworx_volume),
    ];
    sources.into_iter().find_map(|(driver, source)| Some((driver, source.as_ref()?)))
}

/// Returns the driver's name of a disk, if it is independent of the location.
fn handle(driver: &str, source: &Value) -> Result<String, String> {
    match driver {
        AWS => amazon(source.text("volumeID")),
        AZURE => match source.get("kind").and_then(Value::as_str) {
            Some(kind) if !kind.eq_ignore_ascii_case("managed") => {
                Err(format!("kind({kind}) is not supported in csi migration"))
            }
            _ => Ok(source.text("diskURI").to_owned()),
        },
        _ => Ok(source.text("volumeID").to_owned()),
    }
}

/// Users write `aws://ZONE/vol-ID`, too.
fn amazon(id: &str) -> Result<String, String> {
    let Some(rest) = id.strip_prefix("aws://") else { return Ok(id.to_owned()) };
    let path = rest.split_once('/').map(|(_, path)| path.trim_matches('/')).unwrap_or_default();
    if path.starts_with("vol-") && !path.contains('/') {
        return Ok(path.to_owned());
    }
    Err(format!("failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({id})"))
}

/// A disk is known by its zone, or by the region of its zones.
fn google(volume: &PersistentVolume, source: &Value) -> Result<String, String> {
    let labels = &volume.metadata.labels;
    let label = ZONES.iter().filter_map(|label| labels.get(*label)).find(|zones| !zones.is_empty());
    let zones: Vec<&str> = label.map(|zones| zones.split(DELIMITER).collect()).unwrap_or_default();
    if let [] | [_] = zones.as_slice() {
        return Ok(in_zone(zones.first().copied().unwrap_or("UNSPECIFIED"), source));
    }
    let mut regions = BTreeSet::new();
    for zone in zones {
        let odd = || format!("zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}");
        regions.insert(region_of(zone).ok_or_else(odd)?);
    }
    match (regions.first(), regions.len()) {
        (Some(region), 1) => Ok(format!("projects/UNSPECIFIED/regions/{region}/disks/{}", source.text("pdName"))),
        _ => {
            let regions: Vec<String> = regions.into_iter().map(|region| format!("{region}:{{}}")).collect();
            Err(format!("multiple or no regions gotten from zones, got: map[{}]", regions.join(" ")))
        }
    }
}

fn region_of(zone: &str) -> Option<&str> {
    let (region, _) = zone.rsplit_once('-')?;
    (region.matches('-').count() == 1).then_some(region)
}

fn in_zone(zone: &str, source: &Value) -> String {
    format!("projects/UNSPECIFIED/zones/{zone}/disks/{}", source.text("pdName"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(volume: &str, disk: Option<(&str, &str)>) {
        let text = format!(r#"{{"metadata": {{"name": "v"{volume}}}"#);
        let volume: PersistentVolume = api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap();
        let found = of_volume(&volume);
        assert_eq!(found.as_ref().map(|(driver, handle)| (*driver, handle.as_str())), disk);
    }

    #[test]
    fn volumes_are_named_as_their_csi_driver_names_them() {
        let disk = r#""spec": {"gcePersistentDisk": {"pdName": "d"}}"#;
        let gce = |handle| Some(("pd.csi.storage.gke.io", handle));
        check(&format!("}}, {disk}"), gce("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"));
        let labeled = |zones: &str| format!(r#", "labels": {{"topology.kubernetes.io/zone": "{zones}"}}}}, {disk}"#);
        check(&labeled("us-west1-a"), gce("projects/UNSPECIFIED/zones/us-west1-a/disks/d"));
        check(&labeled("us-west1-a__us-west1-b"), gce("projects/UNSPECIFIED/regions/us-west1/disks/d"));
        check(&labeled("us-west1-a__us-east1-b"), None);
        let ebs = |id: &str| format!(r#"}}, "spec": {{"awsElasticBlockStore": {{"volumeID": "{id}"}}}}"#);
        check(&ebs("aws://us-west-2a/vol-1"), Some(("ebs.csi.aws.com", "vol-1")));
        check(&ebs("vol-1"), Some(("ebs.csi.aws.com", "vol-1")));
        check(&ebs("aws://us-west-2a/disk"), None);
        check(r#"}, "spec": {"azureDisk": {"diskURI": "u", "kind": "Dedicated"}}"#, None);
        check(r#"}, "spec": {"cinder": {"volumeID": "c"}}"#, Some(("cinder.csi.openstack.org", "c")));
        check(r#"}, "spec": {"csi": {"driver": "x", "volumeHandle": "h"}}"#, None);
    }
}
