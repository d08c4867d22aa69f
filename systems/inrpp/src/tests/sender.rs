//! The sender.

use crate::AfterTimeout;

use super::*;

/// A sender that is connected, with a number of segments of 1500 bytes, at 12 Mbit/s: one each millisecond.
struct Host {
    config: tcp::Config,
    sender: Sender,
    now: Time,
}

impl Host {
    fn new(segments: u32) -> Host {
        Host::of(segments, |sender| sender)
    }

    fn of(segments: u32, change: impl FnOnce(Sender) -> Sender) -> Host {
        let config =
            tcp::Config { algorithm: tcp::Algorithm::Unreduced, sack: false, ecn: false, ..tcp::Config::default() };
        let mut sender = change(Sender::new(&config, 1_500, Span::from_secs(1)));
        sender.supply(segments);
        sender.finish();
        sender.set_rate(Rate::from_mbits(12));
        sender.open();
        let mut host = Host { config, sender, now: Time::ZERO + Span::from_millis(1) };
        assert_eq!(host.sends(), [(Kind::Syn, 0)]);
        let syn_ack = Packet { kind: Kind::SynAck, sent: host.now.into(), window: 10_000, ..Packet::default() };
        host.now += Span::from_millis(10);
        host.sender.handle_ack(&host.config, host.now, &syn_ack, &AckFields::default());
        host
    }

    /// What it sends now.
    fn sends(&mut self) -> Vec<(Kind, u32)> {
        let all = std::iter::from_fn(|| self.sender.poll_transmit(&self.config, self.now));
        all.map(|(transmit, _)| (transmit.kind, transmit.seq)).collect()
    }

    /// Lets time pass, with its timeouts; returns what it sends.
    fn wait(&mut self, span: Span) -> Vec<(Kind, u32)> {
        let end = self.now + span;
        let mut sent = self.sends();
        while let Some((due, _)) = self.sender.next_timeout().filter(|(due, _)| *due <= end) {
            self.now = self.now.max(due);
            self.sender.handle_timeout(&self.config, self.now);
            sent.extend(self.sends());
        }
        self.now = end;
        sent
    }

    /// An ACK for all before `seq` arrives, which echoes the time `sent`.
    fn acked(&mut self, seq: u32, sent: Time, notice: Option<Notice>) -> tcp::Acked {
        let ack = Packet { kind: Kind::Ack, seq, sent: sent.into(), window: 10_000, ..Packet::default() };
        let notification = notice.map(|notice| Notification::sign(notice, Nonce(5), 0, None));
        let nonces = if notice == Some(Notice::SlowDown) { Nonces::one(Nonce(5)) } else { Nonces::default() };
        self.sender.handle_ack(&self.config, self.now, &ack, &AckFields { notification, nonces })
    }
}

#[test]
fn it_sends_at_its_rate_until_it_receives_slow_down() {
    let mut host = Host::new(100);
    let start = host.now;
    assert!(host.wait(Span::from_millis(20)).len().abs_diff(20) <= 1);
    host.acked(1, start, Some(Notice::SlowDown));
    assert_eq!(host.sends().len(), 1, "a segment for an ACK");
    assert!(host.wait(Span::from_millis(20)).is_empty() && host.sender.is_closed_loop());
    host.acked(2, start, None);
    let sent = host.sender.poll_transmit(&host.config, host.now).map(|(_, nonces)| nonces);
    assert_eq!(sent, Some(Nonces::one(Nonce(5))), "it names the interface that presses back");
    host.acked(3, start, Some(Notice::Cancel));
    assert!(host.wait(Span::from_millis(20)).len() >= 19 && !host.sender.is_closed_loop());
}

#[test]
fn it_opens_again_when_no_slow_down_comes_for_long() {
    let mut host = Host::new(100_000);
    let start = host.now;
    host.wait(Span::from_millis(5));
    host.acked(1, start, Some(Notice::SlowDown));
    assert!(host.wait(Span::from_millis(150)).len() <= 1);
    let sent = host.wait(Span::from_millis(1_000)).len();
    assert!((100..200).contains(&sent), "{sent} segments, all but the first after a second");
}

#[test]
fn a_timeout_sends_the_first_segment_again_and_no_other() {
    let mut host = Host::new(5);
    assert_eq!(host.wait(Span::from_millis(10)).len(), 5);
    // The round trip took 10 ms, and at least 200 ms are added to it; then the time doubles.
    assert_eq!(host.wait(Span::from_millis(400)), [(Kind::Data, 0)]);
    assert_eq!(host.sender.retransmits(), 1);
    assert_eq!(host.wait(Span::from_millis(400)), [(Kind::Data, 0)]);
}

#[test]
fn after_a_real_loss_the_next_hole_follows_at_once() {
    let mut host = Host::new(10);
    let first = host.now;
    host.wait(Span::from_millis(50));
    // Segments 0 and 5 are lost.
    host.wait(Span::from_millis(200));
    let resent = host.now;
    assert!(host.sender.retransmits() == 1 && resent > first);
    host.acked(5, resent, None);
    assert_eq!(host.sends(), [(Kind::Data, 5)]);
    assert!(host.acked(10, resent, None).signals.finished());
}

#[test]
fn after_a_loss_that_was_none_nothing_is_sent_again() {
    let mut host = Host::new(10);
    let first = host.now;
    host.wait(Span::from_millis(50));
    host.wait(Span::from_millis(200));
    assert_eq!(host.sender.retransmits(), 1);
    // The segments were only stored: the ACK echoes the time of the first transmission.
    host.acked(1, first, None);
    assert!(host.sends().is_empty());
    host.acked(2, first, None);
    assert!(host.sends().is_empty());
}

#[test]
fn acks_that_repeat_because_segments_were_reordered_send_nothing_again_and_let_new_ones_go() {
    let mut host = Host::new(100);
    let start = host.now;
    let sent = host.wait(Span::from_millis(30)).len() as u32;
    // Segment 1 takes a detour, and twenty later ones overtake it.
    let mut next = sent;
    for _ in 0..20 {
        host.acked(1, start, Some(Notice::SlowDown));
        assert_eq!(host.sends(), [(Kind::Data, next)], "a new one for each ACK");
        next += 1;
    }
    host.acked(22, start, Some(Notice::SlowDown));
    assert_eq!((host.sends(), host.sender.retransmits()), (vec![(Kind::Data, next)], 0));
}

#[test]
fn after_a_timeout_the_texts_sender_opens_at_once() {
    for after in [AfterTimeout::Resend, AfterTimeout::Text] {
        let mut host = Host::of(5_000, |sender| sender.after_timeout(after));
        let start = host.now;
        host.wait(Span::from_millis(5));
        host.acked(1, start, Some(Notice::SlowDown));
        host.wait(Span::from_millis(600));
        assert!(host.sender.retransmits() > 0);
        assert_eq!(host.sender.is_closed_loop(), after == AfterTimeout::Resend);
    }
}

#[test]
fn a_sender_that_ignores_routers_sends_on_and_names_no_nonce() {
    let mut host = Host::of(5_000, |sender| sender.obedient(false));
    let start = host.now;
    host.wait(Span::from_millis(5));
    host.acked(1, start, Some(Notice::SlowDown));
    assert!(host.wait(Span::from_millis(20)).len() >= 19 && !host.sender.is_closed_loop());
    let named = host.sender.poll_transmit(&host.config, host.now + Span::from_millis(2)).map(|(_, nonces)| nonces);
    assert_eq!(named, Some(Nonces::default()));
}
