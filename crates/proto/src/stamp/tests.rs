use std::net::SocketAddr;

use proptest::prelude::*;
use sidestep_net::{Span, Time};

use super::{sessions::Sessions, *};

const START: WallTime = WallTime::from_nanos(1_795_000_000_123_456_789);

fn reflector() -> Reflector {
    Reflector::new(ReflectorConfig::default())
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn packet(sequence: u32, session: u16, length: usize) -> Vec<u8> {
    let (timestamp, error) = (Timestamp::of(Clock::Ntp, START), ErrorEstimate::unsynchronised(Clock::Ntp));
    let mut bytes = vec![0xee; length];
    SenderPacket { sequence, timestamp, error, session }.write(&mut bytes).unwrap();
    bytes
}

/// Makes the reflector answer a packet that came from this port.
fn reflect(reflector: &mut Reflector, now: Time, from: &str, packet: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut out = [0; 1500];
    let to = address("192.0.2.1:862");
    let request = Request { from: address(from), to, ttl: 61, received: START, packet };
    let departs = WallTime::from_nanos(START.as_nanos() + 1_500);
    reflector.handle_request(now, &request, departs, &mut out).map(|length| out[..length].to_vec())
}

fn read(bytes: &[u8]) -> ReflectorPacket {
    ReflectorPacket::parse(bytes).unwrap().0
}

#[test]
fn packets_lie_on_the_wire_as_the_standard_draws_them() {
    let bytes = packet(0x0102_0304, 0x0506, LENGTH);
    assert_eq!(bytes[..4], [1, 2, 3, 4]);
    // 1,795,000,000 s after 1970, in seconds since 1900; 0.123456789 s in 2⁻³² s.
    assert_eq!(bytes[4..8], (1_795_000_000_u32.wrapping_add(2_208_988_800)).to_be_bytes());
    assert_eq!(bytes[8..12], 530_242_872_u32.to_be_bytes());
    // Unsynchronised, NTP, scale 63, multiplier 1; the session's number; zeros.
    assert_eq!(bytes[12..16], [0x3f, 1, 5, 6]);
    assert_eq!(bytes[16..], [0; 28]);

    let answer = reflect(&mut reflector(), Time::ZERO, "198.51.100.7:40000", &bytes).unwrap();
    assert_eq!(answer[..4], [0; 4], "the reflector's own number");
    assert_eq!(answer[14..16], [5, 6]);
    assert_eq!(answer[16..24], bytes[4..12], "it came when it was sent");
    assert_eq!(answer[24..38], bytes[..14], "number, time and error estimate of the sender");
    assert_eq!(answer[38..], [0, 0, 61, 0, 0, 0]);
    assert_eq!(read(&answer).turnaround(), 1_500);
}

#[test]
fn error_estimates_have_the_bits_of_the_standard() {
    let ptp = ErrorEstimate { synchronised: true, clock: Clock::Ptp, scale: 30, multiplier: 3 };
    assert_eq!(ptp.bits(), 0b1101_1110_0000_0011);
    assert_eq!(ptp.as_secs_f64(), 0.75);
}

#[test]
fn each_session_is_counted_for_itself() {
    let mut reflector = reflector();
    let mut number =
        |from, session| read(&reflect(&mut reflector, Time::ZERO, from, &packet(9, session, LENGTH)).unwrap()).sequence;
    assert_eq!([0, 0, 0].map(|_| number("198.51.100.7:40000", 1)), [0, 1, 2]);
    assert_eq!(number("198.51.100.7:40000", 2), 0, "another number of the session");
    assert_eq!(number("198.51.100.7:40001", 1), 0, "another port");
    assert_eq!(number("198.51.100.8:40000", 1), 0, "another host");
    assert_eq!(number("198.51.100.7:40000", 1), 3);
    assert_eq!(reflector.sessions(Time::ZERO), 4);
}

#[test]
fn extensions_come_back_with_a_mark_of_what_was_understood() {
    let mut bytes = packet(1, 1, LENGTH + 8);
    assert_eq!(bytes[LENGTH..], [0x80, 1, 0, 4, 0, 0, 0, 0], "a longer packet has extra padding");
    bytes.extend([0x80, 4, 0, 4, 1, 2, 3, 4, 0x80, 1, 0, 2, 5, 6, 0x80, 9, 1, 0, 7]);
    let answer = reflect(&mut reflector(), Time::ZERO, "198.51.100.7:40000", &bytes).unwrap();
    assert_eq!(answer.len(), bytes.len());
    assert_eq!(answer[LENGTH..LENGTH + 8], [0, 1, 0, 4, 0, 0, 0, 0], "understood");
    assert_eq!(answer[LENGTH + 8..LENGTH + 16], [0x80, 4, 0, 4, 1, 2, 3, 4], "unrecognised");
    assert_eq!(answer[LENGTH + 16..LENGTH + 22], [0, 1, 0, 2, 5, 6]);
    assert_eq!(answer[LENGTH + 22..], [0xc0, 9, 1, 0, 7], "malformed: longer than what is left");
    // TWAMP pads with zeros.
    let zeros = [packet(1, 1, LENGTH), vec![0; 21]].concat();
    let answer = reflect(&mut reflector(), Time::ZERO, "198.51.100.7:40000", &zeros).unwrap();
    assert_eq!(answer[LENGTH..], [0; 21]);
}

#[test]
fn what_is_no_session_senders_is_not_answered() {
    let mut reflector = reflector();
    let bytes = packet(1, 1, LENGTH);
    let cases = [
        ("198.51.100.7:40000", &bytes[..43], Refusal::Length),
        ("198.51.100.7:862", &bytes[..], Refusal::Port),
        ("198.51.100.7:7", &bytes[..], Refusal::Port),
    ];
    for (from, packet, refusal) in cases {
        assert_eq!(reflect(&mut reflector, Time::ZERO, from, packet), Err(refusal));
    }
    // Two reflectors at another port would answer each other for ever.
    let mut out = [0; 100];
    let (from, to) = (address("198.51.100.7:8620"), address("192.0.2.1:8620"));
    let request = Request { from, to, ttl: 64, received: START, packet: &bytes };
    assert_eq!(reflector.handle_request(Time::ZERO, &request, START, &mut out), Err(Refusal::Port));
    assert_eq!(reflector.counts(), ReflectorCounts { length: 1, port: 3, ..ReflectorCounts::default() });
    assert_eq!(reflector.sessions(Time::ZERO), 0);
}

#[test]
fn a_source_gets_its_rate_and_others_theirs() {
    let mut reflector = Reflector::new(ReflectorConfig { rate: 100, ..ReflectorConfig::default() });
    let mut answered = |from: &str, from_ms: u64, count: u64, every_us: u64| {
        let times = (0..count).map(|n| Time::from_nanos(from_ms * 1_000_000 + n * every_us * 1_000));
        times.filter(|now| reflect(&mut reflector, *now, from, &packet(1, 1, LENGTH)).is_ok()).count()
    };
    // 1,000 packets a second for two seconds: what a second allows at once, and then the rate.
    let flood = answered("198.51.100.7:40000", 0, 2_000, 1_000);
    assert!((299..=301).contains(&flood), "{flood}");
    assert_eq!(answered("198.51.100.7:50000", 1_999, 100, 0), 0, "another port is the same source");
    assert_eq!(answered("198.51.100.8:40000", 2_000, 100, 0), 100, "another host is not");
    assert_eq!(answered("[2001:db8::1]:40000", 2_000, 100, 0), 100);
    assert_eq!(answered("[2001:db8::2]:40000", 2_000, 100, 0), 0, "a /64 is one source");
    assert_eq!(answered("[2001:db8:0:1::1]:40000", 2_000, 100, 0), 100);
    assert_eq!(answered("198.51.100.7:40000", 3_000, 200, 10_000), 200, "within the rate, all are answered");
}

#[test]
fn a_session_is_forgotten_after_a_while_without_packets() {
    let config = ReflectorConfig { expiry: Span::from_secs(60), ..ReflectorConfig::default() };
    let mut reflector = Reflector::new(config);
    let mut number = |at: u64| {
        let bytes = packet(9, 1, LENGTH);
        read(&reflect(&mut reflector, Time::from_nanos(at * 1_000_000_000), "198.51.100.7:40000", &bytes).unwrap())
            .sequence
    };
    assert_eq!([100, 159, 218, 277, 336].map(&mut number), [0, 1, 2, 3, 4], "with a packet a minute it lasts");
    assert_eq!(number(336 + 121), 0);
}

#[test]
fn the_table_is_bounded_and_a_session_in_use_outlives_a_flood_of_others() {
    let most = 1_000;
    let mut reflector = Reflector::new(ReflectorConfig { sessions: most, ..ReflectorConfig::default() });
    let mut expected = 0;
    for stranger in 0..20_000_u32 {
        let now = Time::from_nanos(u64::from(stranger) * 1_000);
        let from = SocketAddr::from((stranger.to_be_bytes(), 40_000));
        assert!(reflect(&mut reflector, now, &from.to_string(), &packet(1, 1, LENGTH)).is_ok());
        assert!(reflector.sessions(now) <= most);
        if stranger % 400 == 0 {
            let answer = reflect(&mut reflector, now, "198.51.100.7:40000", &packet(1, 1, LENGTH)).unwrap();
            assert_eq!(read(&answer).sequence, expected);
            expected += 1;
        }
    }
}

#[test]
fn losses_are_distinguished_by_direction() {
    let mut losses = DirectionLosses::default();
    let lost = |forward, backward| Directions { forward, backward };
    // Packet 1 is lost on its path, the answer to 3 on the path back.
    assert_eq!(losses.handle_answer(0, 0), lost(0, 0));
    assert_eq!(losses.handle_answer(2, 1), lost(1, 0));
    assert_eq!(losses.handle_answer(4, 3), lost(1, 1));
    // Packets 5 and 6 change places on their path; the answers to 7 and 8 on the path back.
    assert_eq!(losses.handle_answer(6, 4), lost(2, 1));
    assert_eq!(losses.handle_answer(5, 5), lost(1, 1));
    assert_eq!(losses.handle_answer(8, 7), lost(1, 2));
    assert_eq!(losses.handle_answer(7, 6), lost(1, 1));
    // The reflector begins again.
    assert_eq!(losses.handle_answer(10, 0), lost(1, 1));
    assert_eq!(losses.handle_answer(12, 1), lost(2, 1));
    // The first packets of all are lost.
    assert_eq!(DirectionLosses::default().handle_answer(5, 2), lost(3, 2));
}

proptest! {
    #[test]
    fn timestamps_keep_what_time_they_mean(from: u64, apart in -60_000_000_000_000_000_i64..60_000_000_000_000_000, ptp: bool) {
        let clock = if ptp { Clock::Ptp } else { Clock::Ntp };
        // Up to the year 2500: both formats count seconds modulo 2³².
        let earlier = WallTime::from_nanos(60_000_000_000_000_000 + from % 16_000_000_000_000_000_000);
        let later = WallTime::from_nanos(earlier.as_nanos().wrapping_add_signed(apart));
        let (later_stamp, earlier_stamp) = (Timestamp::of(clock, later), Timestamp::of(clock, earlier));
        prop_assert_eq!(later_stamp.since(clock, earlier_stamp), apart);
    }

    #[test]
    fn packets_are_read_as_they_were_written(
        sequence: u32, time: u64, session: u16, synchronised: bool, ptp: bool, scale in 0..64_u8, multiplier: u8,
        received: u64, sender: (u32, u64, u8), length in LENGTH..200,
    ) {
        let clock = if ptp { Clock::Ptp } else { Clock::Ntp };
        let error = ErrorEstimate { synchronised, clock, scale, multiplier };
        let sent = SenderPacket { sequence, timestamp: Timestamp(time), error, session };
        let mut bytes = vec![0xee; length];
        sent.write(&mut bytes).unwrap();
        prop_assert_eq!(SenderPacket::parse(&bytes).unwrap().0, sent);
        let answer = ReflectorPacket {
            sequence, timestamp: Timestamp(time), error, session, received: Timestamp(received),
            sender_sequence: sender.0, sender_timestamp: Timestamp(sender.1), sender_error: error, sender_ttl: sender.2,
        };
        answer.write(&mut bytes).unwrap();
        let (read, extensions) = ReflectorPacket::parse(&bytes).unwrap();
        prop_assert_eq!((read, extensions.len()), (answer, length - LENGTH));
    }

    #[test]
    fn no_bytes_break_the_reflector_and_no_answer_is_longer_than_its_request(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), room in 0..200_usize, port: u16,
    ) {
        let mut out = vec![0xee; room];
        let request = Request {
            from: SocketAddr::from(([198, 51, 100, 7], port)), to: address("192.0.2.1:862"), ttl: 64, received: START,
            packet: &bytes,
        };
        let answered = reflector().handle_request(Time::ZERO, &request, START, &mut out);
        if let Ok(length) = answered {
            prop_assert_eq!(length, bytes.len());
            let answer = ReflectorPacket::parse(&out[..length]).unwrap().0;
            prop_assert_eq!(answer.sender_sequence, SenderPacket::parse(&bytes).unwrap().0.sequence);
        }
        prop_assert_eq!(answered.is_ok(), bytes.len() >= LENGTH && room >= bytes.len() && port >= MIN_SOURCE_PORT);
        let _ = ReflectorPacket::parse(&bytes);
    }

    #[test]
    fn the_account_of_losses_is_right_whatever_is_lost(fates in proptest::collection::vec(0..4_u8, 1..200)) {
        // Without reordering: 0 and 1 are answered, 2 is lost on its path, 3 on the path back.
        let (mut losses, mut reflected, mut expected) = (DirectionLosses::default(), 0, Directions::default());
        // What was lost after the last answer is in no account.
        let mut counted = (Directions::default(), Directions::default());
        for (sequence, fate) in fates.iter().enumerate() {
            match fate {
                2 => expected.forward += 1,
                3 => { expected.backward += 1; reflected += 1; }
                _ => {
                    counted = (losses.handle_answer(sequence as u32, reflected), expected);
                    reflected += 1;
                }
            }
        }
        prop_assert_eq!(counted.0, counted.1);
    }

    #[test]
    fn a_table_keeps_what_is_used_and_no_more_than_its_size(
        uses in proptest::collection::vec((0..50_u8, 0..40_u64), 1..300), most in 2..40_usize,
    ) {
        let mut table = Sessions::new(most, Span::from_nanos(100));
        let mut now = 0;
        // By key: when it was used last, and how often since it is new. Slow, but obvious.
        let mut used: Vec<(u64, u32)> = vec![(0, 0); 50];
        for (key, pause) in uses {
            now += pause;
            let count = table.entry(Time::from_nanos(now), &key, || 0_u32);
            *count += 1;
            let (last, expected) = &mut used[usize::from(key)];
            if *count == 1 {
                *expected = 0;
            }
            *expected += 1;
            prop_assert_eq!(*count, *expected);
            // One that is new again was unused for its time, unless others needed the room.
            prop_assert!(*count > 1 || *expected == 1);
            *last = now;
            prop_assert!(table.len() <= most);
        }
    }
}
