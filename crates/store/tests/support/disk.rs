//! A disk in memory that loses unsynced writes, fills up, and loses power on demand.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of it")]

use std::io;
use std::sync::{Arc, Mutex};

use redb::StorageBackend;

/// One disk; clones are handles to the same one.
#[derive(Debug, Clone, Default)]
pub struct Disk(Arc<Mutex<Image>>);

#[derive(Debug, Default)]
struct Image {
    /// Durable contents.
    synced: Vec<u8>,
    /// Contents visible to the running program.
    current: Vec<u8>,
    /// Writes since the last sync.
    unsynced: Vec<Change>,
    /// Number of changes and syncs.
    operations: u64,
    /// From this operation on nothing works any more.
    power_lost_at: Option<u64>,
    /// Capacity in bytes.
    capacity: Option<u64>,
    syncs_fail: bool,
}

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

fn apply(image: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(at, data) => {
            if image.len() < at + data.len() {
                image.resize(at + data.len(), 0);
            }
            image[*at..at + data.len()].copy_from_slice(data);
        }
        Change::Length(length) => image.resize(*length, 0),
    }
}

impl Image {
    fn count(&mut self) -> io::Result<()> {
        if self.power_lost_at.is_some_and(|at| self.operations >= at) {
            return Err(io::Error::other("power lost"));
        }
        self.operations += 1;
        Ok(())
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        self.count()?;
        let end = match &change {
            Change::Write(at, data) => at + data.len(),
            Change::Length(length) => *length,
        };
        if self.capacity.is_some_and(|capacity| end as u64 > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        apply(&mut self.current, &change);
        self.unsynced.push(change);
        Ok(())
    }
}

impl Disk {
    /// Backend for the store.
    pub fn backend(&self) -> impl Fn() -> io::Result<Box<dyn StorageBackend>> + Send + Sync + use<> {
        let disk = self.clone();
        move || Ok(Box::new(disk.clone()))
    }

    pub fn operations(&self) -> u64 {
        self.0.lock().unwrap().operations
    }

    pub fn lose_power_at(&self, operation: u64) {
        self.0.lock().unwrap().power_lost_at = Some(operation);
    }

    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().unwrap().capacity = bytes;
    }

    pub fn size(&self) -> u64 {
        self.0.lock().unwrap().current.len() as u64
    }

    pub fn fail_syncs(&self) {
        self.0.lock().unwrap().syncs_fail = true;
    }

    /// Returns the disk after a power failure: all synced data, and any part of the unsynced writes.
    pub fn after_power_loss(&self, mut seed: u64) -> Self {
        let image = self.0.lock().unwrap();
        let mut random = move |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) as usize) % below
        };
        let mut survived = image.synced.clone();
        for change in &image.unsynced {
            match change {
                // Sectors of 512 bytes are written whole, but a write may end between them.
                Change::Write(at, data) => match random(4) {
                    0 => {}
                    1 => {
                        let sectors = random(data.len().div_ceil(512) + 1);
                        let torn = data[..data.len().min(sectors * 512)].to_vec();
                        apply(&mut survived, &Change::Write(*at, torn));
                    }
                    _ => apply(&mut survived, change),
                },
                Change::Length(_) => apply(&mut survived, change),
            }
        }
        Self::holding(survived)
    }

    /// A disk with these bytes on it.
    pub fn holding(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Image { synced: bytes.clone(), current: bytes, ..Image::default() })))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let image = self.0.lock().unwrap();
        let offset = usize::try_from(offset).unwrap();
        let bytes = image.current.get(offset..offset + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().change(Change::Length(usize::try_from(len).unwrap()))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut image = self.0.lock().unwrap();
        image.count()?;
        if image.syncs_fail {
            return Err(io::Error::other("sync failed"));
        }
        let image = &mut *image;
        for change in image.unsynced.drain(..) {
            apply(&mut image.synced, &change);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().change(Change::Write(usize::try_from(offset).unwrap(), data.to_vec()))
    }
}
