//! Keeps the program attached to its control group: that may be removed and made again, and others may detach what they find.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

use sidestep_hostd::{AgentError, End, Tenure};
use sidestep_linux::{LinuxError, bpf::attached::others};

use crate::daemon::program::HostProgram;

/// How often to try again where others refuse: to find out who they are takes a search through all processes.
const AGAIN: Duration = Duration::from_secs(5);

/// How often the program was attached again, by what had become of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reattached {
    /// The control group was made again.
    pub(super) group: u32,
    /// Others had detached it.
    pub(super) others: u32,
}

/// Why the program was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The control group is another one than before.
    Group,
    /// The control group is the same: another program detached the program.
    Others,
}

/// What is known of the attachment.
#[derive(Debug, Default)]
pub(super) struct Attachment {
    /// The number of the group's directory when the program was attached last.
    group: Option<u64>,
    counts: Reattached,
    /// Whether there was no such group when last looked.
    gone: bool,
    /// When to try again, and what was last reported to the operator.
    next: Option<Instant>,
    told: Option<String>,
    /// Whether the program did not act on the control group when last looked at.
    detached: bool,
    /// Whether connections depend on what an earlier daemon left, or, with paths in place and the program attached, on this one.
    tenure: Tenure,
}

impl Attachment {
    /// Whether an earlier daemon left something, on which connections depend.
    pub(super) fn is_inherited(&self) -> bool {
        self.tenure.is_inherited()
    }

    /// Takes note that an earlier daemon left something, if it did.
    pub(super) fn inherit(&mut self, left: bool) {
        self.tenure.inherit(left);
    }

    /// Whether paths are in place and the program is attached.
    pub(super) fn is_at_work(&self) -> bool {
        self.tenure.is_at_work()
    }

    /// Whether the program acts on the control group, as far as known.
    pub(super) fn is_attached(&self) -> bool {
        !self.detached
    }

    /// Attaches the program for the first time, when paths are in place.
    pub(super) fn begin(&mut self, program: &mut HostProgram, cgroup: &Path) -> Result<(), AgentError> {
        self.note_group(cgroup);
        // Once ours are there, the kernel reports nothing of it.
        if let Some(replaced) = others(cgroup).replacement() {
            tracing::warn!("{replaced}");
        }
        match program.attach(cgroup) {
            // What was taken over goes on without new connections, until the control group is there.
            Err(error) if self.tenure.is_inherited() => {
                tracing::warn!(%error, "new connections are left alone until it is there");
                self.detached = true;
            }
            attached => attached?,
        }
        self.tenure.begin();
        Ok(())
    }

    /// Attaches the program again where its control group was removed and made again, or where others have detached it.
    pub(super) fn renew(&mut self, program: &mut HostProgram, cgroup: &Path) {
        if program.is_attached(cgroup) {
            self.detached = false;
            return;
        }
        let Some(lost) = self.tries(Instant::now(), cgroup) else { return };
        match program.attach(cgroup) {
            Ok(()) => self.mended(lost, cgroup),
            Err(error) => self.refused(&error, cgroup),
        }
        self.detached = true;
    }

    /// Whether a daemon that ends leaves what connections depend on; `keep` is what it was started with.
    pub(super) fn should_keep_state(&self, end: End, keep: bool) -> bool {
        match end {
            // `agent stop` asks through the program, at which the caller looks.
            End::Finished => keep,
            _ => self.tenure.should_keep_state(end, keep),
        }
    }

    /// Takes note of the group that the program is attached to.
    fn note_group(&mut self, cgroup: &Path) {
        self.group = number(cgroup);
    }

    /// Whether it is time to attach the program, and why it is not attached.
    fn tries(&self, now: Instant, cgroup: &Path) -> Option<Lost> {
        // A group that was made again owes nothing to what was refused before.
        let same = self.group.is_some() && self.group == number(cgroup);
        if same && self.next.is_some_and(|next| now < next) {
            return None;
        }
        Some(if same { Lost::Others } else { Lost::Group })
    }

    /// Takes note that the program is attached again.
    fn mended(&mut self, lost: Lost, cgroup: &Path) {
        self.note_group(cgroup);
        (self.next, self.told, self.gone) = (None, None, false);
        let cgroup = cgroup.display();
        match lost {
            Lost::Group => {
                self.counts.group += 1;
                tracing::info!(%cgroup, "the control group is back");
            }
            Lost::Others => {
                self.counts.others += 1;
                let times = self.counts.others;
                tracing::warn!(
                    %cgroup, times,
                    "others had detached the program from its control group; it is attached again, and connections that began \
                     meanwhile were left alone"
                );
            }
        }
    }

    /// Takes note that the program cannot be attached; each reason is reported to the operator once.
    fn refused(&mut self, error: &LinuxError, cgroup: &Path) {
        self.gone = number(cgroup).is_none();
        self.next = Some(Instant::now() + AGAIN);
        let error = error.to_string();
        if self.told.as_ref() != Some(&error) {
            tracing::warn!(error, "new connections are left alone until the program is attached again");
            self.told = Some(error);
        }
    }

    /// How often the program was attached again.
    pub(super) fn counts(&self) -> Reattached {
        self.counts
    }

    /// What the status line shows while the program is not attached; empty if it is.
    pub(super) fn status(&self) -> &'static str {
        match self.gone {
            _ if !self.detached => "",
            true => "; the control group is gone",
            false => "; the program is not attached to its control group",
        }
    }
}

/// The number of a control group, which no other has while it exists.
fn number(cgroup: &Path) -> Option<u64> {
    fs::metadata(cgroup).map(|directory| directory.ino()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_others_detached_is_distinguished_from_one_whose_group_is_gone() {
        let groups = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| groups.path().join(name));
        std::fs::create_dir(&one).unwrap();
        let (mut attachment, now) = (Attachment::default(), Instant::now());
        attachment.note_group(&one);
        assert_eq!(attachment.tries(now, &one), Some(Lost::Others));
        assert_eq!(attachment.tries(now, &other), Some(Lost::Group));
        attachment.refused(&LinuxError::not_answered("attaching"), &one);
        assert_eq!(attachment.tries(now, &one), None, "not at once again");
        assert_eq!(attachment.tries(now + 2 * AGAIN, &one), Some(Lost::Others));
        std::fs::create_dir(&other).unwrap();
        assert_eq!(attachment.tries(now, &other), Some(Lost::Group), "at once, as it is another group");
        attachment.mended(Lost::Others, &one);
        attachment.mended(Lost::Group, &other);
        assert_eq!(attachment.counts(), Reattached { group: 1, others: 1 });
        assert_eq!(attachment.tries(now, &other), Some(Lost::Others));
    }
}
