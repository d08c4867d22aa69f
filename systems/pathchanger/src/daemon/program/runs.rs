//! The runs of all programs that work with an agent's maps: the agent's own, and those of processes that look at them.

use std::collections::{BTreeMap, BTreeSet};

use libbpf_rs::{
    MapCore,
    query::{LinkInfo, LinkInfoIter, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions},
};
use sidestep_linux::{
    Result,
    bpf::{failed, map},
};
use sidestep_net::Span;

use super::{HostProgram, ProgramRuns};

impl HostProgram {
    /// The numbers of the control groups to which programs are attached that work with this program's maps; none where the
    /// caller may not ask, which takes CAP_SYS_ADMIN.
    pub fn groups(&self) -> Result<BTreeSet<u64>> {
        Ok(self.attachments()?.into_iter().filter(|id| *id != 0).collect())
    }

    /// Whether programs that work with this program's maps are all attached to control groups that exist; `None` where there are
    /// none, or the caller may not ask, which takes CAP_SYS_ADMIN.
    pub fn are_attached(&self) -> Result<Option<bool>> {
        let attachments = self.attachments()?;
        Ok((!attachments.is_empty()).then(|| attachments.iter().all(|id| *id != 0)))
    }

    /// The number of each attachment's control group; zero where that is gone, or others have detached the program.
    fn attachments(&self) -> Result<Vec<u64>> {
        let shared = map(&self.object, "sidestep_conns")?;
        let id = shared.info().map_err(|error| failed("reading a map's number", &error))?.info.id;
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let ours = ProgInfoIter::with_query_opts(options).filter(|program| program.map_ids.contains(&id));
        let ours: BTreeSet<_> = ours.map(|program| program.id).collect();
        let group = |link: LinkInfo| match link.info {
            LinkTypeInfo::Cgroup(of) if ours.contains(&link.prog_id) => Some(of.cgroup_id),
            _ => None,
        };
        Ok(LinkInfoIter::default().filter_map(group).collect())
    }

    /// The runs of every program of the machine that works with this program's maps, by name. After a
    /// [look](HostProgram::look) at an agent's maps, these include the agent's programs.
    pub fn runs_of_all(&self) -> Result<Vec<ProgramRuns>> {
        let shared = map(&self.object, "sidestep_conns")?;
        let id = shared.info().map_err(|error| failed("reading a map's number", &error))?.info.id;
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let mut sums = BTreeMap::<String, (u64, u64)>::new();
        for program in ProgInfoIter::with_query_opts(options).filter(|program| program.map_ids.contains(&id)) {
            let sum = sums.entry(program.name.to_string_lossy().into_owned()).or_default();
            (sum.0, sum.1) = (sum.0 + program.run_cnt, sum.1 + program.run_time_ns);
        }
        let runs = sums.into_iter();
        Ok(runs.map(|(name, (runs, nanos))| ProgramRuns { name, runs, time: Span::from_nanos(nanos) }).collect())
    }
}
