//! What a running kernel sent, replayed: the files in `recorded/` show what came and when, and what Linux did.
//!
//! `scripts/record-tcp` makes them, and describes their lines. The kernel's timers fire up to two ticks late, or later still
//! beyond 252 ms. So a timer of ours is right if the kernel's fired within that time after it, and it then fires when that did.

use sidestep_net::{MaybeTime, Span, Time};

use crate::{
    packet::{Flags, Kind, Packet},
    tcp::{Algorithm, Config, Profile, Sender, SenderTimeout, State},
};

/// How much later than ours a timer of the kernel's may fire: two ticks; beyond 63 ticks, eight and two.
const TICKS: Span = Span::from_millis(9);
const FAR_TICKS: Span = Span::from_millis(41);
const FAR: Span = Span::from_millis(252);
/// How late a tick may be while other work runs.
const BUSY: Span = Span::from_millis(4);
/// How far the recorder's own times are off.
const LATE: Span = Span::from_millis(1);

/// One recorded connection, with our sender in the kernel's place.
#[derive(Clone)]
struct Replay {
    config: Config,
    sender: Sender,
    start: Time,
    now: Time,
    /// By segment, when it was sent.
    sent: Vec<Vec<Time>>,
    acked: u32,
    echo: MaybeTime,
    /// By how much the next timer may be late beside its own ticks, as timers before it fired that sent nothing.
    unknown: Span,
    /// How much later still a timer may be, as no person looks at each recording.
    busy: Span,
}

macro_rules! recorded {
    ($($name:ident $file:literal $($differs:literal)?)*) => {
        $(
            #[test]
            fn $name() {
                let differences = replay(include_str!(concat!("recorded/", $file, ".txt")), Span::ZERO, None);
                let known: &[&str] = &[$($differs)?];
                assert!(differences == known, "{}", differences.join("\n"));
            }
        )*

        #[test]
        fn every_recording_is_replayed() {
            assert_all_are_replayed("recorded", &[$($file),*]);
        }
    };
}

recorded! {
    a_report_of_a_duplicate_after_a_recovery_gives_the_window_back "dsack-after-recovery"
    a_timeout_in_vain_is_taken_back_once_all_duplicates_are_reported "dsack-after-timeout"
    reports_of_all_duplicates_end_a_recovery "dsack-in-recovery"
    a_report_of_one_duplicate_of_two_takes_nothing_back "dsack-of-one-of-two"
    a_report_of_a_duplicate_alone_does_not_grow_the_window "duplicate-after-reordering"
    an_echo_of_the_first_transmission_at_the_end_of_a_recovery_takes_it_back "eifel-fast-retransmit"
    an_early_echo_while_another_retransmission_is_out_waits_for_it "eifel-one-of-two"
    an_echo_of_the_first_transmission_within_a_recovery_takes_it_back "eifel-partial"
    an_echo_of_the_first_transmission_takes_a_timeout_back "eifel-timeout"
    a_sack_of_an_original_takes_a_timeout_back "frto-by-sack"
    an_ack_of_an_original_takes_a_timeout_back "frto-in-vain"
    f_rto_without_new_data_retransmits "frto-no-new-data"
    f_rto_tries_two_new_segments_before_it_retransmits "frto-true-loss"
    a_lost_retransmission_is_found_by_later_segments "lost-retransmission"
    marks_let_a_segment_out_for_every_other "mark"
    an_odd_segment_waits_for_the_next_ack "odd-segment"
    a_probe_in_vain_keeps_the_window "probe-in-vain"
    a_probe_of_one_segment_waits_for_the_timeout_at_most "probe-of-one"
    a_probe_of_one_segment_waits_for_two_round_trips_and_200_ms "probe-of-one-before-the-timeout"
    a_probe_of_several_segments_is_the_last_after_two_round_trips "probe-of-several"
    a_probe_that_repaired_a_loss_shrinks_the_window "probe-that-repaired"
    new_data_after_a_probe_begins_the_timeout_anew "probe-then-new-data"
    a_probe_that_nobody_answers_is_followed_by_doubling_timeouts "probe-unanswered"
    a_probe_is_new_data_beyond_the_window_if_there_is_some "probe-with-new-data"
    three_segments_above_a_gap_are_waited_for_once_some_were_reordered "reordering-seen"
    two_segments_above_a_gap_are_waited_for "reordering-timer"
    a_retransmission_in_vain_widens_the_wait_for_reordered_segments "reordering-widened"
    a_sack_of_what_was_sent_before_a_retransmission_begins_its_timeout_anew "timeout-after-sacks"
    a_timeout_spares_what_was_just_sent "timeout-spares-recent"
}

#[test]
#[ignore = "needs recordings in the directory that SIDESTEP_RECORDINGS names"]
fn recordings_of_a_directory_are_replayed() {
    // The recordings do not show where the kernel's ticks lay: at the one of these places that fits best, or nowhere.
    let ticks = [0, 1, 2, 3].map(|place| Some(Span::from_millis(place)));
    let best = |text: &str| ticks.into_iter().chain([None]).map(|ticks| replay(text, BUSY, ticks)).min_by_key(Vec::len);
    let wrong = replay_directory("open", |text| best(text).unwrap_or_default());
    assert!(wrong == 0, "{wrong}");
}

/// Replays the recordings of one kind in the directory that SIDESTEP_RECORDINGS names; returns how many differ.
pub(super) fn replay_directory(kind: &str, replay: impl Fn(&str) -> Vec<String>) -> usize {
    let directory = std::env::var("SIDESTEP_RECORDINGS").unwrap();
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut replayed, mut wrong) = (0, 0);
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        if !text.lines().any(|line| line.starts_with(kind)) {
            continue;
        }
        replayed += 1;
        let differences = replay(&text);
        if !differences.is_empty() {
            wrong += 1;
            // Most of the later ones follow from the first.
            println!("{}\n{}", file.display(), differences[..differences.len().min(3)].join("\n"));
        }
    }
    println!("{wrong} of {replayed} differ");
    assert!(replayed > 0, "there is none");
    wrong
}

/// Replays a file with ticks of 250 a second, the SYN this long after one of them, or with none; returns what ours does
/// otherwise.
fn replay(text: &str, busy: Span, ticks: Option<Span>) -> Vec<String> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).peekable();
    let mut replay = Replay { busy, ..Replay::open(lines.next().unwrap(), ticks) };
    let mut differences = Vec::new();
    while let Some(line) = lines.next() {
        let (at, action) = line.split_once(' ').unwrap();
        let mut check = |ours: Result<String, String>, theirs: &str| match ours {
            Ok(ours) if ours == theirs => {}
            Ok(ours) | Err(ours) => differences.push(format!("{line}\n  Linux: {theirs}\n  ours:  {ours}")),
        };
        check(replay.be_silent_until(millis(at)), "");
        let mut left = replay.act(action.trim());
        while let Some(answer) = lines.next_if(|line| line.starts_with(' ')) {
            let (kind, answer) = answer.trim().split_once(' ').unwrap_or(("=", ""));
            if kind == "=" {
                // Code outside does not know our degree of reordering, and Disorder.
                let theirs = answer.split(" reordering").next().unwrap().replace("Disorder", "Open");
                check(Ok(std::mem::take(&mut left)), &theirs);
                continue;
            }
            let (at, segments) = answer.split_once(' ').unwrap();
            if left.is_empty() {
                check(replay.wait_for_timer(millis(at)), segments);
            } else {
                check(Ok(std::mem::take(&mut left)), segments);
            }
        }
        check(Ok(left), "");
    }
    differences
}

/// Fails unless these are all the recordings of a folder.
pub(super) fn assert_all_are_replayed(folder: &str, names: &[&str]) {
    let folder = format!("{}/src/tcp/tests/{folder}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> =
        (std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    let mut replayed: Vec<_> = names.iter().map(|name| format!("{name}.txt")).collect();
    replayed.sort();
    assert_eq!(files, replayed);
}

pub(super) fn millis(text: &str) -> Span {
    Span::from_nanos((text.parse::<f64>().unwrap() * 1e6) as u64)
}

impl Replay {
    fn open(line: &str, ticks: Option<Span>) -> Self {
        let mut words = line.split(' ').skip(1);
        let rtt = millis(words.next().unwrap());
        let option = words.next();
        let config = Config {
            profile: Profile::Linux,
            hz: if ticks.is_some() { 250 } else { 0 },
            algorithm: Algorithm::Cubic,
            ecn: option == Some("ecn"),
            ..Config::rfc()
        };
        let syn = Time::from_nanos(1_000_000_000) + ticks.unwrap_or_default();
        let mut sender = Sender::new(&config);
        sender.open();
        assert!(sender.poll_transmit(&config, syn).is_some());
        let now = syn + rtt;
        let flags = Flags::when(config.ecn, Flags::ECE);
        sender.handle_ack(
            &config,
            now,
            &Packet { kind: Kind::SynAck, sent: syn.into(), window: 1_000, flags, ..Packet::default() },
        );
        let echo = if option == Some("plain") { MaybeTime::NONE } else { syn.into() };
        Replay {
            config,
            sender,
            start: now,
            now,
            sent: Vec::new(),
            acked: 0,
            echo,
            unknown: Span::ZERO,
            busy: Span::ZERO,
        }
    }

    /// What the sender sends now.
    fn sent(&mut self) -> String {
        let mut sent = Vec::new();
        while let Some(transmit) = self.sender.poll_transmit(&self.config, self.now) {
            let again = if transmit.flags.has(Flags::RETRANSMIT) { " again" } else { "" };
            let cwr = if transmit.flags.has(Flags::CWR) { " cwr" } else { "" };
            sent.push(format!("{}{again}{cwr}", transmit.seq));
            self.sent.resize(self.sent.len().max(transmit.seq as usize + 1), Vec::new());
            self.sent[transmit.seq as usize].push(self.now);
        }
        sent.join(", ")
    }

    /// Fires the timer that is due first, at a time; returns what it sends.
    fn fire(&mut self, at: Time) -> String {
        self.now = at;
        self.sender.handle_timeout(&self.config, at);
        self.sent()
    }

    /// What the timer sends, if it is the one that fired in the kernel at this time.
    fn wait_for_timer(&mut self, at: Span) -> Result<String, String> {
        let at = self.start + at;
        loop {
            let (due, timer) = self.sender.next_timeout().ok_or("nothing, ever")?;
            let late = self.lateness(due, timer);
            if due > at + LATE {
                return Err(format!("nothing before {:.1} ms", (due.since(self.start)).as_secs_f64() * 1e3));
            }
            let mut then = self.clone();
            let sent = then.fire(at.max(due));
            if sent.is_empty() {
                self.unknown = late;
                self.fire(due);
                continue;
            }
            if at > due + late {
                return Err(format!("{sent} at {:.1} ms", (due.since(self.start)).as_secs_f64() * 1e3));
            }
            then.unknown = Span::ZERO;
            *self = then;
            return Ok(sent);
        }
    }

    /// How much later the kernel's timer may fire.
    fn lateness(&self, due: Time, timer: SenderTimeout) -> Span {
        let far = timer == SenderTimeout::Retransmission || due.since(self.now) >= FAR;
        self.unknown + self.busy + if far { FAR_TICKS } else { TICKS }
    }

    /// Lets time pass in which the kernel sends nothing; returns what ours sends.
    fn be_silent_until(&mut self, at: Span) -> Result<String, String> {
        let at = self.start + at;
        while let Some((due, timer)) = self.sender.next_timeout().filter(|(due, _)| *due <= at) {
            let late = self.lateness(due, timer);
            if due + late >= at {
                // It may come later in the kernel.
                break;
            }
            let sent = self.fire(due);
            if !sent.is_empty() {
                return Err(format!("{sent} at {:.1} ms", due.since(self.start).as_secs_f64() * 1e3));
            }
            self.unknown = late;
        }
        (self.now, self.unknown) = (at, Span::ZERO);
        Ok(String::new())
    }

    /// Does what a line describes; returns what is sent, or what is asked for.
    fn act(&mut self, action: &str) -> String {
        let (verb, rest) = action.split_once(' ').unwrap_or((action, ""));
        match verb {
            "write" => self.sender.supply(rest.parse().unwrap()),
            "ack" => self.acknowledge(rest),
            "info" => return self.info(),
            "end" => {
                let counters = self.sender.counters().unwrap();
                let named: Vec<_> = counters.named().filter(|(_, count)| *count > 0).collect();
                return named.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(" ");
            }
            _ => panic!("{action}"),
        }
        self.sent()
    }

    fn acknowledge(&mut self, rest: &str) {
        let mut words = rest.split_whitespace();
        let ack: u32 = words.next().unwrap().parse().unwrap();
        let mut packet = Packet { kind: Kind::Ack, seq: ack, window: 1_000, ..Packet::default() };
        let (mut blocks, mut original) = (Vec::new(), false);
        while let Some(word) = words.next() {
            match word {
                "ece" => packet.flags = Flags::ECE,
                "original" => original = true,
                _ => blocks.extend(words.next().unwrap().split(',')),
            }
        }
        for (place, block) in packet.sack.iter_mut().zip(blocks) {
            let (from, to) = block.split_once('-').unwrap();
            let (from, to): (u32, u32) = (from.parse().unwrap(), to.parse().unwrap());
            *place = if from < ack { ((ack - from) as u16, 0) } else { ((from - ack) as u16, (to - ack) as u16) };
        }
        // Ours may not have sent it, which was found to differ before.
        if ack > self.acked
            && !self.echo.is_none()
            && let Some([first, .., last] | [first @ last]) = self.sent.get(self.acked as usize).map(Vec::as_slice)
        {
            self.echo = if original { *first } else { *last }.into();
        }
        self.acked = self.acked.max(ack);
        packet.sent = self.echo;
        self.sender.handle_ack(&self.config, self.now, &packet);
    }

    fn info(&self) -> String {
        let state = match self.sender.state() {
            State::Open => "Open",
            State::Reduced => "CWR",
            State::Recovery => "Recovery",
            State::Loss => "Loss",
            other => panic!("{other:?}"),
        };
        let ssthresh = self.sender.ssthresh();
        let ssthresh = if ssthresh.is_finite() { ssthresh.to_string() } else { "-".into() };
        format!("{state} cwnd {} ssthresh {ssthresh}", self.sender.cwnd())
    }
}
