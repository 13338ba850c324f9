//! Records of the zone: the examples of the specification, and cases of CoreDNS.

use dns::zone::LookupResult;
use hickory_proto::rr::{Name, Record, RecordType};

use crate::support;

fn texts(records: &[Record]) -> Vec<String> {
    let text = |it: &Record| format!("{} {} {} {}", it.name, it.ttl, it.record_type(), it.data);
    records.iter().map(text).collect()
}

#[test]
fn records_are_those_of_the_specification() {
    let zone = support::zone(include_str!("cases/objects.yaml"));
    let (mut documents, error) = api::yaml::parse_documents(include_str!("cases/zone.yaml"));
    assert!(error.is_none(), "{error:?}");
    let cases = documents.remove(0).value;
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in cases.as_array().unwrap() {
        let question = case.text("question");
        let (name, record_type) = question.split_once(' ').unwrap();
        let record_type: RecordType = record_type.parse().unwrap();
        let found = zone.lookup(&Name::from_ascii(name).unwrap(), record_type, 100);
        let (code, answers, additionals, leads_to) = match found {
            LookupResult::Outside => ("outside".to_owned(), Vec::new(), Vec::new(), String::new()),
            LookupResult::Answer(answer) => {
                let has_start = answer.authorities.len() == 1;
                assert_eq!(has_start, answer.answers.is_empty() || answer.code.low() == 3, "{question}");
                let code = match answer.code.low() {
                    0 if answer.answers.is_empty() => "nodata".to_owned(),
                    0 => "ok".to_owned(),
                    3 => "nxdomain".to_owned(),
                    other => other.to_string(),
                };
                (code, texts(&answer.answers), texts(&answer.additionals), String::new())
            }
            LookupResult::Alias(answer, target) => {
                ("alias".to_owned(), texts(&answer.answers), Vec::new(), target.to_string())
            }
        };
        let expected: Vec<&str> = case.texts("answers").collect();
        let expected_additionals: Vec<&str> = case.texts("additionals").collect();
        let expected_code = match case.text("result") {
            "" => "ok",
            code => code,
        };
        let is_right = code == expected_code
            && answers == expected
            && additionals == expected_additionals
            && leads_to == case.text("leads-to");
        if !is_right {
            wrong.push(format!("{question}: {code} {answers:#?} {additionals:#?} {leads_to}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 40, "{count} cases");
}

#[test]
fn missing_names_are_failures_until_the_zone_is_complete() {
    let zone = dns::zone::Zone::new("cluster.local").unwrap();
    let name = Name::from_ascii("a.b.svc.cluster.local.").unwrap();
    let LookupResult::Answer(answer) = zone.lookup(&name, RecordType::A, 10) else { panic!() };
    assert_eq!(answer.code, hickory_proto::op::ResponseCode::ServFail);
}

#[test]
fn addresses_of_headless_services_are_rotated() {
    let zone = support::zone(include_str!("cases/objects.yaml"));
    let name = Name::from_ascii("headless.default.svc.cluster.local.").unwrap();
    let first = || {
        let LookupResult::Answer(answer) = zone.lookup(&name, RecordType::A, 100) else { panic!() };
        assert_eq!(answer.answers.len(), 3);
        answer.answers[0].data.to_string()
    };
    assert_eq!([first(), first(), first(), first()], ["10.3.0.100", "10.3.0.101", "10.3.0.102", "10.3.0.100"]);
}

/// A Service with 100,000 endpoints: answers and changes are bounded by the answer and the slice.
#[test]
fn large_services_have_bounded_answers() {
    use dns::zone::{Backing, Endpoint, Port, Service, Slice, Zone};
    use std::sync::Arc;
    let mut zone = Zone::new("cluster.local").unwrap();
    zone.set_namespace("default", true);
    zone.set_service("default", "large", Some(Arc::new(Service { backing: Backing::Headless, ports: Vec::new() })));
    for slice in 0..1000_u32 {
        let endpoint = |number: u32| {
            let address = std::net::Ipv4Addr::from(0x0a00_0000 + slice * 100 + number);
            Endpoint { address: address.into(), host: address.to_string().replace('.', "-").into() }
        };
        let ports = vec![Port { name: "http".into(), protocol: "tcp".into(), number: 80 }];
        let slice_object = Slice { service: "large".into(), endpoints: (0..100).map(endpoint).collect(), ports };
        zone.set_slice("default", &format!("large-{slice}"), None, Some(Arc::new(slice_object)));
    }
    zone.set_synced();
    for (name, record_type) in [
        ("large.default.svc.cluster.local.", RecordType::A),
        ("large.default.svc.cluster.local.", RecordType::SRV),
        ("_http._tcp.large.default.svc.cluster.local.", RecordType::SRV),
    ] {
        let LookupResult::Answer(answer) = zone.lookup(&Name::from_ascii(name).unwrap(), record_type, 40) else {
            panic!()
        };
        assert_eq!((answer.answers.len(), answer.is_truncated), (40, true), "{name} {record_type}");
    }
    let name = Name::from_ascii("10-1-134-159.large.default.svc.cluster.local.").unwrap();
    let LookupResult::Answer(answer) = zone.lookup(&name, RecordType::A, 40) else { panic!() };
    assert_eq!(texts(&answer.answers), [format!("{name} 30 A 10.1.134.159")]);
}
