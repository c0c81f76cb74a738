package read

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"jettison/cgroup"
	"jettison/stats"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// podSet holds the pods of the hierarchy, and keeps the state of each between looks. Listing the
// same pods again does not allocate.
type podSet struct {
	fs          *cgroup.FS
	roots       []*podRoot
	runtimeOnly map[string]*podGroup // by UID: pods that only the runtime knows
	byUID       map[string]*podGroup // by UID: pods found below a root
	order       []*podGroup          // all, by UID
	all         []*podGroup          // order, then the outside groups of all pods
	round       uint64               // number of lists received
	changed     bool                 // since order was made
	names       []byte               // scratch: directory entries
	client      *listClient          // lists and opens
	joinRound   uint64               // number of joins
}

// podRoot is a cgroup with pods as children.
type podRoot struct {
	path    string
	groups  map[string]*podGroup // by directory name; UID is empty for a directory that is no pod's
	present int                  // groups seen in this round
}

// podGroup is one pod's cgroup.
type podGroup struct {
	stats.PodCgroup
	parent string        // for a pod outside the roots: its cgroup as the runtime reports it
	group  *cgroup.Group // nil: not open
	round  uint64        // last round that listed it; for a pod outside the roots: the last join
	gone   bool          // the pod is no longer listed

	// Work of the lister for this pod. Looks are counted by listClient.
	openedLook uint64 // last look in which it was opened
	err        error  // of that attempt
	// its open cgroup was removed: a successor under the same name is unlikely
	vanished    bool
	checkWanted bool   // this look needs a check of its processes
	checkedLook uint64 // last look in which they were checked
	critical    bool   // result of that check
	checked     bool   // a check has been done
	// since when it waits for the lister; zero: it does not wait
	waitingSince time.Time

	// Containers of the pod that are not below its cgroup: each with its own cgroup, or with a process.
	outside   []*podGroup
	owner     *podGroup                // of an outside group: its pod
	container string                   // of an outside group: the ID
	process   stats.ProcessID          // of an outside group without a cgroup
	memory    processMemory            // of that process
	unlocated bool                     // the processes of a container are not known
	listed    []stats.OutsideContainer // as found; outside is made of it

	usage             usageSample
	containers        map[string]usageSample // by name of the cgroup
	containerUsage    []containerUse         // memory, at the last full look
	outsideContainers uint64                 // memory outside the containers, at that look
}

// usageSample is the CPU time that was used up to an instant.
type usageSample struct {
	at   time.Time
	used time.Duration
}

// rate returns the usage per second since the previous sample, in billionths of a core.
func (s *usageSample) rate(now time.Time, used time.Duration) (out stats.Opt[uint64]) {
	if elapsed := now.Sub(s.at); !s.at.IsZero() && elapsed > 0 && used >= s.used {
		out = stats.Some(uint64(float64(used-s.used) / float64(elapsed) * 1e9))
	}
	*s = usageSample{now, used}
	return out
}

func newPodSet(fs *cgroup.FS, proc *procfs.Proc, roots []string) *podSet {
	s := &podSet{
		fs: fs, runtimeOnly: map[string]*podGroup{}, byUID: map[string]*podGroup{},
		names:  make([]byte, 32<<10),
		client: newListClient(newLister(fs, proc, roots)),
	}
	for _, r := range roots {
		s.roots = append(s.roots, &podRoot{path: r, groups: map[string]*podGroup{}})
	}
	return s
}

func (s *podSet) close() {
	s.client.close(s)
	for _, r := range s.roots {
		for _, g := range r.groups {
			g.forget()
		}
	}
	for _, g := range s.runtimeOnly {
		g.forget()
	}
}

// close closes the descriptors of a pod. A later look opens them again.
func (g *podGroup) close() {
	if g.group != nil {
		g.group.Close()
		g.group = nil
	}
	g.openedLook, g.checkedLook, g.critical, g.checked, g.waitingSince = 0, 0, false, false, time.Time{}
}

// forget closes a group that is no longer listed, even while the lister works on it.
func (g *podGroup) forget() {
	g.gone = true
	g.close()
	for _, o := range g.outside {
		o.forget()
	}
}

// discover finds the current pods and opens those that are not open.
func (s *podSet) discover(pods podindex.Index) error { return s.find(pods, true) }

// find does the same as discover. patient: the result may be used to choose a victim, so longer
// waits are allowed.
func (s *podSet) find(pods podindex.Index, patient bool) error {
	s.client.begin(patient)
	err := s.client.list(s)
	s.join(pods)
	s.client.finish(s)
	return err
}

// join adds the pods that only the runtime knows to the listed pods.
func (s *podSet) join(pods podindex.Index) {
	s.joinRound++
	for uid, p := range pods {
		g := s.byUID[uid]
		if (g == nil || g.round != s.round) && (p.Ready() || len(p.Outside) > 0) {
			g = s.addRuntimeOnly(uid, p)
		}
		if g != nil {
			s.setOutside(g, p)
		}
	}
	for _, o := range s.all[min(len(s.order), len(s.all)):] {
		// its pod has ended, or another cgroup of the pod has it now
		if g := o.owner; pods[g.UID] == nil || s.byUID[g.UID] != g && s.runtimeOnly[g.UID] != g {
			s.setOutside(g, &podindex.Pod{})
		}
	}
	for uid, g := range s.runtimeOnly {
		if g.round != s.joinRound {
			g.forget()
			delete(s.runtimeOnly, uid)
			s.changed = true
		}
	}
	if s.changed {
		s.sort()
	}
}

// relist replaces the content of a root: names, each followed by a 0 byte.
func (s *podSet) relist(r *podRoot, names []byte) {
	r.present = 0
	for len(names) > 0 {
		end := bytes.IndexByte(names, 0)
		s.addListed(r, names[:end])
		names = names[end+1:]
	}
	s.dropMissing(r)
}

// addListed adds one directory below a root.
func (s *podSet) addListed(r *podRoot, name []byte) {
	g := r.groups[string(name)]
	if g == nil {
		g = &podGroup{}
		if p, ok := stats.ParsePodCgroup(r.path, string(name)); ok {
			g.PodCgroup = p
		}
		r.groups[string(name)] = g
		s.changed = true
	}
	if g.round != s.round {
		g.round = s.round
		r.present++
	}
}

// keepRoot keeps the pods of a root that cannot be listed.
func (s *podSet) keepRoot(r *podRoot) {
	for _, g := range r.groups {
		g.round = s.round
	}
}

// dropMissing forgets the groups that are no longer below a root.
func (s *podSet) dropMissing(r *podRoot) {
	if r.present == len(r.groups) {
		return
	}
	for name, g := range r.groups {
		if g.round == s.round {
			continue
		}
		g.forget()
		delete(r.groups, name)
		s.changed = true
	}
}

// podCgroup returns the cgroup that the runtime reports for a pod, if its name contains the pod's
// UID. A sandbox without its own cgroup shares one with other sandboxes (containerd's /k8s.io, a
// system.slice), and killing that cgroup would kill them all.
func podCgroup(uid, reported string) (c stats.PodCgroup, ok bool) {
	dir, base := path.Split(reported)
	if base != "" {
		c, ok = stats.ParsePodCgroup(strings.Trim(dir, "/"), base)
	}
	return c, ok && c.UID == uid
}

// addRuntimeOnly adds a pod that was not found below the roots. Without a cgroup of its own the pod
// is unmeasured, unless its containers have some.
func (s *podSet) addRuntimeOnly(uid string, p *podindex.Pod) *podGroup {
	g := s.runtimeOnly[uid]
	if g == nil || g.parent != p.Cgroup {
		if g != nil {
			g.forget()
		}
		g = &podGroup{PodCgroup: stats.PodCgroup{UID: uid}, parent: p.Cgroup}
		if c, ok := podCgroup(uid, p.Cgroup); ok {
			g.PodCgroup = c
		}
		s.runtimeOnly[uid] = g
		s.changed = true
	}
	g.round = s.joinRound
	return g
}

// setOutside sets the containers outside a pod's cgroup. Those that stay keep their descriptors.
func (s *podSet) setOutside(g *podGroup, p *podindex.Pod) {
	g.unlocated = len(p.Unlocated) > 0
	if slices.Equal(g.listed, p.Outside) {
		return
	}
	before := g.outside
	g.listed, g.outside, s.changed = p.Outside, nil, true
	for i := range p.Outside {
		c := &p.Outside[i]
		at := slices.IndexFunc(before, func(o *podGroup) bool {
			return o.container == c.ID && o.Path == c.Cgroup && o.process == c.Process
		})
		if at >= 0 {
			g.outside = append(g.outside, before[at])
			before = slices.Delete(before, at, at+1)
			continue
		}
		g.outside = append(g.outside, &podGroup{
			PodCgroup: stats.PodCgroup{UID: g.UID, Path: c.Cgroup, QOSClass: g.QOSClass}, owner: g,
			container: c.ID, process: c.Process,
		})
	}
	for _, o := range before {
		o.forget()
	}
}

func (s *podSet) sort() {
	s.order, s.changed = s.order[:0], false
	for _, r := range s.roots {
		for _, g := range r.groups {
			if g.UID != "" {
				s.order = append(s.order, g)
			}
		}
	}
	for _, g := range s.runtimeOnly {
		s.order = append(s.order, g)
	}
	slices.SortFunc(s.order, func(a, b *podGroup) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Path, b.Path))
	})
	s.all = append(s.all[:0], s.order...)
	for _, g := range s.order {
		s.all = append(s.all, g.outside...)
	}
}

// reindex maps UIDs to pods. A pod found below two roots (a leftover of the other driver, or of
// another class) is in s.order once for each of its cgroups.
func (s *podSet) reindex() {
	clear(s.byUID)
	for _, r := range s.roots {
		for _, g := range r.groups {
			if g.UID != "" {
				s.byUID[g.UID] = g
			}
		}
	}
}

// reset clears a pod's values but keeps the memory of its slices.
func (g *podGroup) reset(p *stats.PodStats) {
	containers, volumes := p.Containers[:0], p.EphemeralStorage.Volumes[:0]
	*p = stats.PodStats{PodRef: stats.PodReference{UID: g.UID}, Cgroup: g.Path, QOSClass: g.QOSClass,
		Containers: containers}
	p.EphemeralStorage.Volumes = volumes
}
