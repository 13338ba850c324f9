//! Answers of other servers, kept for a short time.
//!
//! Entries and bytes are bounded; the entries that were not used for the longest time are dropped first.

use locks::Mutex;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RData, RecordType};
use hickory_proto::serialize::binary::BinEncodable as _;
use lru::LruCache;
use tokio::time::Instant;

use crate::answer::Answer;

/// Number of entries.
const ENTRIES_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// Bytes of all entries, as estimated.
const BYTES_MAX: usize = 16 << 20;
/// Bytes of an entry and of a record beside their names and data.
const ENTRY_BYTES: usize = 256;
const RECORD_BYTES: usize = 320;
/// Bytes of a text beside its characters.
const TEXT_BYTES: usize = 48;
/// Bytes in memory for each byte of a message that has a bitmap of types,
const BITMAP_FACTOR: usize = 64;
/// or parameters of a service.
const PARAMETERS_FACTOR: usize = 16;
/// Longest time that an answer is kept, in seconds.
pub(crate) const TTL_MAX: u32 = 30;
/// Shortest time that a negative answer is kept.
pub(crate) const NEGATIVE_TTL_MIN: u32 = 5;

/// The question that an entry answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The name in lower case.
    pub name: Name,
    /// The type.
    pub record_type: RecordType,
    /// Whether DNSSEC records are part of the answer.
    pub dnssec_ok: bool,
    /// Whether the answer may fail validation.
    pub checking_disabled: bool,
}

struct Entry {
    answer: Arc<Answer>,
    kept: Instant,
    ttl: u32,
    bytes: usize,
}

struct Entries {
    by_key: LruCache<Key, Entry>,
    bytes: usize,
}

/// Sizes of the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Number of entries.
    pub entries: usize,
    /// Bytes of all entries, as estimated.
    pub bytes: usize,
}

/// Answers by question.
pub struct Cache {
    entries: Mutex<Entries>,
    rotation: AtomicUsize,
}

impl Default for Cache {
    fn default() -> Self {
        let entries = Entries { by_key: LruCache::new(ENTRIES_MAX), bytes: 0 };
        Self { entries: Mutex::new(entries), rotation: AtomicUsize::new(0) }
    }
}

impl Cache {
    /// The answer to a question, with the remaining TTL. Address records are rotated.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Answer> {
        let (answer, age) = {
            let mut entries = self.entries.lock();
            let entry = entries.by_key.get(key)?;
            let age = entry.kept.elapsed();
            if age >= Duration::from_secs(entry.ttl.into()) {
                let bytes = entries.by_key.pop(key).map_or(0, |entry| entry.bytes);
                entries.bytes = entries.bytes.saturating_sub(bytes);
                return None;
            }
            (entry.answer.clone(), u32::try_from(age.as_secs()).unwrap_or(u32::MAX))
        };
        let mut answer = Answer::clone(&answer);
        for record in answer.answers.iter_mut().chain(&mut answer.authorities) {
            record.ttl = record.ttl.saturating_sub(age);
        }
        let first = answer.answers.iter().position(|record| matches!(record.data, RData::A(_) | RData::AAAA(_)));
        if let Some(addresses) = first.and_then(|first| answer.answers.get_mut(first..)).filter(|it| it.len() > 1) {
            let steps = self.rotation.fetch_add(1, Ordering::Relaxed).checked_rem(addresses.len()).unwrap_or(0);
            addresses.rotate_left(steps);
        }
        Some(answer)
    }

    /// Keeps an answer as long as its records allow.
    pub fn put(&self, key: Key, answer: &Arc<Answer>) {
        let Some(ttl) = ttl(answer).filter(|ttl| *ttl > 0) else { return };
        let names = answer.answers.iter().chain(&answer.authorities).map(|record| record.name.len());
        let records = names.fold(0_usize, |sum, name| sum.saturating_add(name.saturating_add(RECORD_BYTES)));
        let data = answer.answers.iter().chain(&answer.authorities).map(|record| data_bytes(&record.data));
        let data = data.fold(0_usize, usize::saturating_add);
        let bytes = ENTRY_BYTES.saturating_add(key.name.len()).saturating_add(records).saturating_add(data);
        let mut entries = self.entries.lock();
        let entry = Entry { answer: answer.clone(), kept: Instant::now(), ttl, bytes };
        entries.bytes = entries.bytes.saturating_add(bytes);
        if let Some((_, replaced)) = entries.by_key.push(key, entry) {
            entries.bytes = entries.bytes.saturating_sub(replaced.bytes);
        }
        while entries.bytes > BYTES_MAX {
            let Some((_, dropped)) = entries.by_key.pop_lru() else { return };
            entries.bytes = entries.bytes.saturating_sub(dropped.bytes);
        }
    }

    /// Present sizes.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let entries = self.entries.lock();
        Sizes { entries: entries.by_key.len(), bytes: entries.bytes }
    }
}

/// Bytes of a record's data in memory, at most. Some forms are much shorter in a message: an empty text takes a byte there, and a type in a
/// bitmap one bit.
fn data_bytes(data: &RData) -> usize {
    let written = || data.to_bytes().map_or(BYTES_MAX, |bytes| bytes.len());
    match data {
        RData::A(_) | RData::AAAA(_) => 0,
        RData::TXT(text) => {
            text.txt_data.iter().fold(0, |sum, part| sum.saturating_add(part.len()).saturating_add(TEXT_BYTES))
        }
        RData::Unknown { rdata, .. } => rdata.anything.len(),
        RData::CSYNC(_) => written().saturating_mul(BITMAP_FACTOR),
        RData::SVCB(_) | RData::HTTPS(_) => written().saturating_mul(PARAMETERS_FACTOR),
        _ => written().saturating_mul(2),
    }
}

/// Time that an answer may be kept, in seconds; none for failures.
fn ttl(answer: &Answer) -> Option<u32> {
    let is_negative = answer.answers.is_empty() || answer.code == ResponseCode::NXDomain;
    match answer.code {
        ResponseCode::NoError | ResponseCode::NXDomain if is_negative => {
            let start = answer.authorities.iter().find_map(|record| match &record.data {
                RData::SOA(start) => Some(record.ttl.min(start.minimum)),
                _ => None,
            });
            let aliases = answer.answers.iter().map(|record| record.ttl).min().unwrap_or(TTL_MAX);
            // RFC 2308: without a start of authority nothing is known about the time.
            Some(start.unwrap_or(NEGATIVE_TTL_MIN).clamp(NEGATIVE_TTL_MIN, TTL_MAX).min(aliases.max(NEGATIVE_TTL_MIN)))
        }
        ResponseCode::NoError => answer.answers.iter().map(|record| record.ttl.min(TTL_MAX)).min(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::{A, OPENPGPKEY, SOA, TXT};

    use super::*;

    fn key(name: &str) -> Key {
        let name = Name::from_ascii(name).unwrap();
        Key { name, record_type: RecordType::A, dnssec_ok: false, checking_disabled: false }
    }

    fn answer(ttl: u32, addresses: &[u8]) -> Arc<Answer> {
        let record =
            |last: &u8| Record::from_rdata(key("a.example.").name, ttl, RData::A(A([192, 0, 2, *last].into())));
        Arc::new(Answer { answers: addresses.iter().map(record).collect(), ..Answer::empty(ResponseCode::NoError) })
    }

    #[tokio::test(start_paused = true)]
    async fn answers_expire_with_their_ttl() {
        let cache = Cache::default();
        cache.put(key("a.example."), &answer(20, &[1]));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(cache.get(&key("a.example.")).unwrap().answers[0].ttl, 13);
        tokio::time::advance(Duration::from_secs(13)).await;
        assert_eq!(cache.get(&key("a.example.")), None);
        assert_eq!(cache.sizes(), Sizes::default());
        // Records that must not be kept.
        cache.put(key("a.example."), &answer(0, &[1]));
        assert_eq!(cache.get(&key("a.example.")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_are_rotated() {
        let cache = Cache::default();
        cache.put(key("a.example."), &answer(20, &[1, 2, 3]));
        let first = || cache.get(&key("a.example.")).unwrap().answers[0].data.ip_addr().unwrap().to_string();
        assert_eq!([first(), first(), first(), first()], ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.1"]);
    }

    #[test]
    fn negative_answers_are_kept_for_five_to_thirty_seconds() {
        let negative = |record_ttl: u32, minimum: u32| {
            let name = key("example.").name;
            let start = RData::SOA(SOA::new(name.clone(), name.clone(), 1, 1, 1, 1, minimum));
            let authorities = vec![Record::from_rdata(name, record_ttl, start)];
            ttl(&Answer { authorities, ..Answer::empty(ResponseCode::NXDomain) })
        };
        assert_eq!([negative(3600, 1), negative(9, 600), negative(3600, 3600)], [Some(5), Some(9), Some(30)]);
        assert_eq!(ttl(&Answer::empty(ResponseCode::NoError)), Some(5));
        assert_eq!(ttl(&Answer::empty(ResponseCode::ServFail)), None);
    }

    #[tokio::test]
    async fn entries_are_bounded() {
        let (cache, small) = (Cache::default(), answer(20, &[1]));
        let numbered = |number: usize| key(&format!("{number}.example."));
        for number in 0..ENTRIES_MAX.get() {
            cache.put(numbered(number), &small);
        }
        // The entry that was used last stays, the one that was not used for the longest time is dropped.
        assert!(cache.get(&numbered(0)).is_some());
        let before = cache.sizes();
        cache.put(numbered(ENTRIES_MAX.get()), &small);
        assert_eq!((before.entries, cache.sizes().entries), (ENTRIES_MAX.get(), ENTRIES_MAX.get()));
        assert!(cache.get(&numbered(1)).is_none() && cache.get(&numbered(0)).is_some());
        assert!(cache.sizes().bytes < BYTES_MAX && cache.sizes().bytes.abs_diff(before.bytes) < 16);
    }

    fn entries_of(data: RData) -> usize {
        let cache = Cache::default();
        let records = vec![Record::from_rdata(Name::root(), 30, data)];
        let large = Arc::new(Answer { answers: records, ..Answer::empty(ResponseCode::NoError) });
        for number in 0..1000 {
            cache.put(key(&format!("{number}.example.")), &large);
        }
        assert!(cache.sizes().bytes <= BYTES_MAX);
        cache.sizes().entries
    }

    #[tokio::test]
    async fn bytes_are_bounded() {
        let entries = entries_of(RData::TXT(TXT::from_bytes(vec![&[0; 255]; 200])));
        assert!(entries > 100 && entries < 1000, "{entries}");
        // Empty texts take 16 bytes each, and a byte in the message.
        let entries = entries_of(RData::TXT(TXT::from_bytes(vec![&[]; 60_000])));
        assert!(entries < 16, "{entries}");
        // Data of other types counts, too.
        let entries = entries_of(RData::OPENPGPKEY(OPENPGPKEY::new(vec![0; 60_000])));
        assert!(entries > 50 && entries < 200, "{entries}");
    }
}
